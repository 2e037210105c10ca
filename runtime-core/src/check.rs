//! The check "is this category on?": one compare with memory and one branch.
//!
//! In assembly, because each owner stores a single byte of the word that is compared, an
//! access of mixed size that Rust's atomics do not allow, and because a compiler that sees
//! no store to a static may decide that it is always zero.

use crate::page::PAGE;
use runtime_core_abi::page::{NODE_HTTP, enable_word_offset};
use std::arch::asm;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Whether a category with a fixed index is on, whoever asked for it.
#[inline(always)]
pub fn enabled<const CATEGORY: usize>() -> bool {
    // SAFETY: reads four bytes of a static that is always mapped, touches only the flags,
    // and goes on either behind the block or at the label.
    unsafe {
        asm!(
            "cmp dword ptr [rip + {page} + {offset}], 0",
            "jne {on}",
            page = sym PAGE,
            offset = const enable_word_offset(CATEGORY),
            on = label { return true },
            options(nostack, readonly),
        );
    }
    false
}

/// The same for an enable word whose address is held.
///
/// # Safety
/// `word` is the address of an enable word of the page.
#[inline(always)]
unsafe fn enabled_at(word: *const u32) -> bool {
    // SAFETY: as above; the address is good by the caller's promise.
    unsafe {
        asm!(
            "cmp dword ptr [{word}], 0",
            "jne {on}",
            word = in(reg) word,
            on = label { return true },
            options(nostack, readonly),
        );
    }
    false
}

/// The same for a category whose index is known only when the program runs. One that is out
/// of range means the slot that is never on.
#[inline(always)]
pub(crate) fn enabled_index(category: usize) -> bool {
    // SAFETY: the address of an enable word of the page, whatever the index.
    unsafe { enabled_at(PAGE.enable_word(category)) }
}

/// What an unresolved [`Word`] looks at: always on, so that its first check finds out.
static UNRESOLVED: u32 = 1;

/// The address of a category's enable word, once it is known.
#[derive(Debug)]
pub(crate) struct Word(AtomicPtr<u32>);

impl Word {
    /// Not known yet: a check says that it is on.
    pub(crate) const fn unresolved() -> Self {
        Self(AtomicPtr::new((&raw const UNRESOLVED).cast_mut()))
    }

    /// From now on it is the word of this category.
    pub(crate) fn resolve(&self, category: usize) {
        self.0.store(PAGE.enable_word(category).cast_mut(), Ordering::Relaxed);
    }

    /// One compare, at an address that is loaded.
    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        // SAFETY: an enable word of the page, or the static above, which is never 0.
        unsafe { enabled_at(self.0.load(Ordering::Relaxed)) }
    }
}

/// [`enabled`] for `node.http`, as a symbol, for callers in other languages.
// SAFETY: the name is this project's own.
#[unsafe(no_mangle)]
pub extern "C" fn runtime_core_node_http_enabled() -> bool {
    enabled::<NODE_HTTP>()
}

/// Whether the category with that index is on, as a symbol, for callers in other languages.
/// An index that is out of range means the slot that is never on.
// SAFETY: the name is this project's own.
#[unsafe(no_mangle)]
pub extern "C" fn runtime_core_category_enabled(category: usize) -> bool {
    enabled_index(category)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::tests_alone;
    use runtime_core_abi::page::{CATEGORIES_MAX, Owner};

    #[test]
    fn each_owner_switches_it_on() {
        let _alone = tests_alone();
        const LAST: usize = CATEGORIES_MAX - 1;
        let word = PAGE.enable_word(LAST);
        for owner in Owner::ALL {
            // SAFETY: an enable word of the page.
            let at = || unsafe { enabled_at(word) };
            assert!(!enabled::<LAST>() && !at());
            PAGE.enable_byte(LAST, owner).store(1, Ordering::Relaxed);
            assert!(enabled::<LAST>() && at() && !enabled::<{ LAST - 1 }>());
            PAGE.enable_byte(LAST, owner).store(0, Ordering::Relaxed);
        }
    }
}

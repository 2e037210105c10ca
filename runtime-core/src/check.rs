//! The check "is this category on?": one compare with memory and one branch.
//!
//! In assembly, because each owner stores a single byte of the word that is compared, an
//! access of mixed size that Rust's atomics do not allow, and because a compiler that sees
//! no store to a static may decide that it is always zero.

use crate::page::PAGE;
use runtime_core_abi::page::{NODE_HTTP, enable_word_offset};
use std::arch::asm;

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
pub(crate) unsafe fn enabled_at(word: *const u32) -> bool {
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
    // SAFETY: the address of an enable word of the page, whatever the index.
    unsafe { enabled_at(PAGE.enable_word(category)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::tests_alone;
    use runtime_core_abi::page::{CATEGORIES_MAX, Owner};
    use std::sync::atomic::Ordering;

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

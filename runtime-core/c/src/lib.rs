//! The C interface of the runtime core's tracing. `runtime-core/include/runtime_core.h` is
//! generated from the functions below, their comments included (`header.rs`).
//!
//! No panic leaves it: a function whose work fails that way answers as it does for a failure.

#![warn(missing_docs)]

mod argument;
#[cfg(test)]
mod header;

pub use argument::{Argument, Union};

use runtime_core::trace::session::{self, Session};
use runtime_core::trace::{BadFilter, Category, event, flags};
use runtime_core::{Lease, Options};
use runtime_core_abi::page::CATEGORY_EXHAUSTED;
use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

static LEASE: Mutex<Option<Lease>> = Mutex::new(None);
static SESSION: Mutex<Option<Session>> = Mutex::new(None);

thread_local!(static ERROR: RefCell<Option<CString>> = const { RefCell::new(None) });

/// One function of the header.
#[cfg(test)]
struct Function {
    name: &'static str,
    doc: &'static [&'static str],
    arguments: &'static [(&'static str, &'static str)],
    result: &'static str,
}

/// Defines the exported functions and, for the header, what they are called. Behind `else`
/// stands what a function returns after a panic.
macro_rules! exported {
    ($($(#[doc = $doc:literal])* fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? $body:block
        else $panicked:expr;)*) => {
        $(
            $(#[doc = $doc])*
            ///
            /// # Safety
            /// Every pointer is null where that is allowed, or good for what it points to.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
                catch_unwind(AssertUnwindSafe(|| $body)).unwrap_or($panicked)
            }
        )*
        #[cfg(test)]
        const FUNCTIONS: &[Function] = &[$(Function {
            name: stringify!($name),
            doc: &[$($doc),*],
            arguments: &[$((stringify!($argument), stringify!($type))),*],
            result: concat!($(stringify!($result))?),
        }),*];
    };
}

exported! {
    /// The enable flags of all categories: 201 words, by index. A category is on while its word
    /// is not 0; read it with runtime_core_enabled().
    ///
    /// The array never moves and is never freed, for the life of the process: when the process
    /// joins an agent or leaves it, other memory is put in place under the same address. So the
    /// address of a flag may be kept for ever. Do not write to it: use
    /// runtime_core_set_enabled(). The words are the live ones and may change at any time.
    fn runtime_core_flags() -> *const u32 {
        flags().as_ptr().cast()
    } else std::ptr::null();

    /// The index of the category of that name, added where it is new, and good for the life of
    /// the process. A name that is a list ("node,node.http") is a category of its own that is on
    /// when any of its parts is. RUNTIME_CORE_CATEGORY_EXHAUSTED, which is never on, where 200 are
    /// taken already and for names that are empty or longer than 128 bytes. Takes a lock only to
    /// add.
    fn runtime_core_category(name: *const c_char) -> u32 {
        // SAFETY: the caller's promise.
        Category::named(&unsafe { text(name) }).index() as u32
    } else CATEGORY_EXHAUSTED as u32;

    /// Switches a category for the process itself, whoever else has it on or off.
    fn runtime_core_set_enabled(category: u32, on: bool) {
        if let Some(category) = Category::at(category as usize) {
            category.set_enabled(on);
        }
    } else ();

    /// Writes an event, stamped now, to whoever asked for the category's events: an agent, a
    /// recording, or nobody. The phase is a letter of Chrome's trace format: B, E, i, C, or with
    /// an id b, n, e. Ask runtime_core_enabled() first, so that arguments are not made in vain.
    fn runtime_core_event(
        category: u32,
        phase: c_char,
        name: *const c_char,
        id: u64,
        arguments: *const Argument,
        count: usize
    ) {
        if let Some(category) = Category::at(category as usize) {
            // SAFETY: the caller's promise.
            let (name, arguments) = unsafe { (text(name), argument::read(arguments, count)) };
            event(category, phase as u8, &name, id, &arguments);
        }
    } else ();

    /// A number that no other operation of this process has; never 0.
    fn runtime_core_next_id() -> u64 {
        runtime_core::trace::lane::next_id()
    } else 0;

    /// Joins the tracebyte agent as this service, and keeps looking for one where there is none.
    /// Returns at once: 0, or -1 where that cannot be started (runtime_core_error()).
    fn runtime_core_join(service: *const c_char) -> c_int {
        // SAFETY: the caller's promise.
        let service = unsafe { text(service) }.into_owned();
        answer(runtime_core::join(Options::new(service)).map(|lease| *lock(&LEASE) = Some(lease)))
    } else -1;

    /// Leaves the agent. Everything goes on without it.
    fn runtime_core_leave() {
        let lease = lock(&LEASE).take();
        drop(lease);
    } else ();

    /// Records events to a file of Chrome's trace format until runtime_core_record_end() or the
    /// end of the process. Patterns are separated by commas: "node.*,-node.fs". In the file's name
    /// ${rotation} becomes the file's number and ${pid} the process's id; NULL stands for
    /// "node_trace.${rotation}.log". Returns 0, or -1 (runtime_core_error()).
    fn runtime_core_record(patterns: *const c_char, file: *const c_char) -> c_int {
        // SAFETY: the caller's promise.
        answer(record(&unsafe { text(patterns) }, (!file.is_null()).then(|| unsafe { text(file) })))
    } else -1;

    /// Ends the recording and says how many events were written and how many were lost; each
    /// pointer may be NULL. Returns 0, or -1 where there was none or it ended early
    /// (runtime_core_error()).
    fn runtime_core_record_end(events: *mut u64, events_lost: *mut u64) -> c_int {
        let session = lock(&SESSION).take().ok_or_else(|| "no recording runs".to_owned());
        answer(session.and_then(|session| session.finish().map_err(|error| error.to_string())).map(|summary| {
            for (to, count) in [(events, summary.events), (events_lost, summary.events_lost)] {
                if !to.is_null() {
                    // SAFETY: the caller's promise.
                    unsafe { to.write(count) };
                }
            }
        }))
    } else -1;

    /// Why the last call of this thread that returned -1 did so. Good until the next one that does.
    fn runtime_core_error() -> *const c_char {
        ERROR.with(|error| error.borrow().as_ref().map_or(c"".as_ptr(), |error| error.as_ptr()))
    } else c"".as_ptr();
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Text that C passed; what is not UTF-8 in it is replaced, and null is empty.
///
/// # Safety
/// Null, or the start of a string that ends with a zero and outlives the result.
unsafe fn text<'a>(from: *const c_char) -> Cow<'a, str> {
    if from.is_null() {
        return Cow::Borrowed("");
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(from) }.to_string_lossy()
}

fn record(patterns: &str, file: Option<Cow<'_, str>>) -> Result<(), String> {
    let mut options = session::Options::new(patterns.parse().map_err(|error: BadFilter| error.to_string())?);
    if let Some(file) = file {
        options = options.file(file);
    }
    let session = Session::start(options).map_err(|error| error.to_string())?;
    *lock(&SESSION) = Some(session);
    Ok(())
}

/// 0, or -1 with the reason kept for the calling thread.
fn answer<E: Display>(result: Result<(), E>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => {
            let reason = CString::new(error.to_string().replace('\0', "\\0")).unwrap_or_default();
            ERROR.set(Some(reason));
            -1
        }
    }
}

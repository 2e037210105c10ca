//! The arguments of an event as C passes them.

use runtime_core::trace::Value;
use std::ffi::{CStr, c_char};

/// The kinds of values, by the numbers that [`Argument::kind`] has.
#[cfg(test)]
pub(crate) const KINDS: [(&str, u32, &str); 6] = [
    ("INT", INT, "int64_t i"),
    ("UINT", UINT, "uint64_t u"),
    ("FLOAT", FLOAT, "double f"),
    ("BOOL", BOOL, "bool b"),
    ("TEXT", TEXT, "const char *text"),
    ("JSON", JSON, "const char *text"),
];

const INT: u32 = 1;
const UINT: u32 = 2;
const FLOAT: u32 = 3;
const BOOL: u32 = 4;
const TEXT: u32 = 5;
const JSON: u32 = 6;

/// `struct runtime_core_argument`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Argument {
    /// Its name, ending with a zero.
    pub key: *const c_char,
    /// Which member of the value holds.
    pub kind: u32,
    /// The value.
    pub value: Union,
}

/// The value of an argument.
#[repr(C)]
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "each is what its type says")]
pub union Union {
    pub i: i64,
    pub u: u64,
    pub f: f64,
    pub byte: u8,
    pub text: *const c_char,
}

const _: () = assert!(size_of::<Argument>() == 24);

/// Reads the arguments. One of a kind that is not known, and one without a key, is left out.
///
/// # Safety
/// `arguments` is null, or the start of `count` of them, each with a key that is null or ends
/// with a zero, and the member that its kind names; all of it outlives the result.
pub(crate) unsafe fn read<'a>(arguments: *const Argument, count: usize) -> Vec<(&'a str, Value<'a>)> {
    if arguments.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller's promise.
    let arguments = unsafe { std::slice::from_raw_parts(arguments, count) };
    let known = arguments.iter().filter_map(|argument| {
        // SAFETY: the caller's promise.
        let key = std::str::from_utf8(unsafe { bytes(argument.key) }?).ok()?;
        // SAFETY: as above: the kind says which member was written.
        let value = unsafe {
            match argument.kind {
                INT => Value::Int(argument.value.i),
                UINT => Value::Uint(argument.value.u),
                FLOAT => Value::Float(argument.value.f),
                // Any byte but 0 is true, whatever C stored.
                BOOL => Value::Bool(argument.value.byte != 0),
                TEXT => Value::Str(bytes(argument.value.text)?),
                JSON => Value::Json(bytes(argument.value.text)?),
                _ => return None,
            }
        };
        Some((key, value))
    });
    known.collect()
}

/// # Safety
/// Null, or the start of a string that ends with a zero and outlives the result.
unsafe fn bytes<'a>(from: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: the caller's promise.
    (!from.is_null()).then(|| unsafe { CStr::from_ptr(from) }.to_bytes())
}

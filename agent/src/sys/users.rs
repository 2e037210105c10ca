//! Users and groups by name.

use std::ffi::{CString, c_char};
use std::io;

/// The id of a user, by name or number; `None` where there is none.
pub fn uid_of(name: &str) -> io::Result<Option<u32>> {
    look_up(name, |name, buffer, found| {
        let mut user = std::mem::MaybeUninit::<libc::passwd>::uninit();
        let mut result = std::ptr::null_mut();
        // SAFETY: `name` is a C string, and the rest is writable for the sizes given.
        let code =
            unsafe { libc::getpwnam_r(name, user.as_mut_ptr(), buffer.as_mut_ptr(), buffer.len(), &raw mut result) };
        if !result.is_null() {
            // SAFETY: `result` points to `user`, which the call has filled.
            *found = Some(unsafe { (*result).pw_uid });
        }
        code
    })
}

/// The id of a group, by name or number; `None` where there is none.
pub fn gid_of(name: &str) -> io::Result<Option<u32>> {
    look_up(name, |name, buffer, found| {
        let mut group = std::mem::MaybeUninit::<libc::group>::uninit();
        let mut result = std::ptr::null_mut();
        // SAFETY: `name` is a C string, and the rest is writable for the sizes given.
        let code =
            unsafe { libc::getgrnam_r(name, group.as_mut_ptr(), buffer.as_mut_ptr(), buffer.len(), &raw mut result) };
        if !result.is_null() {
            // SAFETY: `result` points to `group`, which the call has filled.
            *found = Some(unsafe { (*result).gr_gid });
        }
        code
    })
}

fn look_up(
    name: &str,
    call: impl Fn(*const c_char, &mut [c_char], &mut Option<u32>) -> libc::c_int,
) -> io::Result<Option<u32>> {
    if let Ok(id) = name.parse() {
        return Ok(Some(id));
    }
    let Ok(name) = CString::new(name) else { return Ok(None) };
    let mut buffer = vec![0; 4096];
    loop {
        let mut found = None;
        match call(name.as_ptr(), &mut buffer, &mut found) {
            libc::ERANGE if buffer.len() < 1 << 20 => buffer.resize(buffer.len() * 2, 0),
            0 | libc::ENOENT | libc::ESRCH => return Ok(found),
            code => return Err(io::Error::from_raw_os_error(code)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        assert_eq!(uid_of("root").unwrap(), Some(0));
        assert_eq!(gid_of("root").unwrap(), Some(0));
        assert_eq!(gid_of("4711").unwrap(), Some(4711));
        assert_eq!(uid_of("no-such-user-here").unwrap(), None);
        assert_eq!(gid_of("a\0b").unwrap(), None);
    }
}

//! Finds a function in the kernel's own description of its types (BTF).

/// The type id of the function `name`; `None` where it is not there or the bytes are not
/// BTF.
pub fn function_id(types: &[u8], name: &str) -> Option<u32> {
    const KIND_FUNC: u32 = 12;
    let u32_at = |at: usize| Some(u32::from_le_bytes(types.get(at..at.checked_add(4)?)?.try_into().ok()?));
    if types.get(..2)? != [0x9f, 0xeb] {
        return None;
    }
    let header = u32_at(4)? as usize;
    let (type_off, type_len) = (u32_at(8)? as usize, u32_at(12)? as usize);
    let (str_off, str_len) = (u32_at(16)? as usize, u32_at(20)? as usize);
    let strings = types.get(header + str_off..)?.get(..str_len)?;
    let named = |at: u32| strings.get(at as usize..)?.split(|&byte| byte == 0).next();
    let (mut at, end) = (header + type_off, header + type_off + type_len);
    let mut id = 1;
    while at < end {
        let info = u32_at(at + 4)?;
        let kind = (info >> 24) & 0x1f;
        if kind == KIND_FUNC && named(u32_at(at)?)? == name.as_bytes() {
            return Some(id);
        }
        at += 12 + bytes_after(kind, (info & 0xffff) as usize)?;
        id += 1;
    }
    None
}

/// Bytes that follow the common part of a type of this kind with `count` members.
fn bytes_after(kind: u32, count: usize) -> Option<usize> {
    Some(match kind {
        // Pointers, forward declarations, typedefs, qualifiers, functions, floats, type tags.
        2 | 7..=12 | 16 | 18 => 0,
        // Integers, variables, declaration tags.
        1 | 14 | 17 => 4,
        // Arrays.
        3 => 12,
        // Structures, unions, sections, 64-bit enumerations.
        4 | 5 | 15 | 19 => 12 * count,
        // Enumerations, function prototypes.
        6 | 13 => 8 * count,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header, a pointer, a prototype with one parameter, and the function `f`.
    fn sample() -> Vec<u8> {
        let words: [u32; 17] = [
            0x0001_eb9f,
            24,
            0,
            44,
            44,
            3, // header: types at 0, 44 bytes; strings after them
            0,
            2 << 24,
            0, // pointer
            0,
            13 << 24 | 1,
            0,
            0,
            1, // prototype and its parameter
            1,
            12 << 24,
            2, // function
        ];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend_from_slice(b"\0f\0");
        bytes
    }

    #[test]
    fn finds_the_function_behind_other_types() {
        assert_eq!(function_id(&sample(), "f"), Some(3));
        assert_eq!(function_id(&sample(), "g"), None);
    }

    #[test]
    fn survives_what_is_cut_or_no_btf() {
        let bytes = sample();
        for length in 0..bytes.len() {
            function_id(&bytes[..length], "f");
        }
        assert_eq!(function_id(&[0; 64], "f"), None);
    }
}

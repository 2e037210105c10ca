//! Reading and writing numbers at a place in a buffer, in both byte orders.

use super::Buffer;

/// A number does not fit where it was to be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{width} bytes at offset {offset} are out of bounds: the buffer has {len} bytes")]
pub struct OutOfBounds {
    /// Where, in bytes from the beginning.
    pub offset: usize,
    /// Bytes of the number.
    pub width: usize,
    /// Bytes of the buffer.
    pub len: usize,
}

impl Buffer {
    #[inline(always)]
    fn read<const N: usize>(&self, offset: usize) -> Result<[u8; N], OutOfBounds> {
        let place = self.get(offset..).and_then(|rest| rest.first_chunk::<N>());
        place.copied().ok_or(OutOfBounds { offset, width: N, len: self.len() })
    }

    /// Checks the bounds first, so that a write that fails copies nothing.
    #[inline(always)]
    fn write<const N: usize>(&mut self, bytes: [u8; N], offset: usize) -> Result<usize, OutOfBounds> {
        self.read::<N>(offset)?;
        self.make_mut()[offset..offset + N].copy_from_slice(&bytes);
        Ok(offset + N)
    }
}

macro_rules! numbers {
    ($($type:ident $read:ident $write:ident $from:ident $to:ident $order:literal;)+) => {
        impl Buffer {$(
            #[doc = concat!("The `", stringify!($type), "` at `offset` bytes, ", $order, ".")]
            ///
            /// # Errors
            /// [`OutOfBounds`] if it does not lie within the buffer.
            #[inline]
            pub fn $read(&self, offset: usize) -> Result<$type, OutOfBounds> {
                self.read(offset).map($type::$from)
            }

            #[doc = concat!("Writes the `", stringify!($type), "` at `offset` bytes, ", $order, ",")]
            /// and returns the offset after it; shared bytes are copied first.
            ///
            /// # Errors
            /// [`OutOfBounds`] if it does not lie within the buffer; nothing is written.
            #[inline]
            pub fn $write(&mut self, value: $type, offset: usize) -> Result<usize, OutOfBounds> {
                self.write(value.$to(), offset)
            }
        )+}
    };
}

numbers! {
    u8 read_u8 write_u8 from_le_bytes to_le_bytes "one byte";
    i8 read_i8 write_i8 from_le_bytes to_le_bytes "one byte";
    u16 read_u16_le write_u16_le from_le_bytes to_le_bytes "lowest byte first";
    u16 read_u16_be write_u16_be from_be_bytes to_be_bytes "highest byte first";
    i16 read_i16_le write_i16_le from_le_bytes to_le_bytes "lowest byte first";
    i16 read_i16_be write_i16_be from_be_bytes to_be_bytes "highest byte first";
    u32 read_u32_le write_u32_le from_le_bytes to_le_bytes "lowest byte first";
    u32 read_u32_be write_u32_be from_be_bytes to_be_bytes "highest byte first";
    i32 read_i32_le write_i32_le from_le_bytes to_le_bytes "lowest byte first";
    i32 read_i32_be write_i32_be from_be_bytes to_be_bytes "highest byte first";
    u64 read_u64_le write_u64_le from_le_bytes to_le_bytes "lowest byte first";
    u64 read_u64_be write_u64_be from_be_bytes to_be_bytes "highest byte first";
    i64 read_i64_le write_i64_le from_le_bytes to_le_bytes "lowest byte first";
    i64 read_i64_be write_i64_be from_be_bytes to_be_bytes "highest byte first";
    f32 read_f32_le write_f32_le from_le_bytes to_le_bytes "lowest byte first";
    f32 read_f32_be write_f32_be from_be_bytes to_be_bytes "highest byte first";
    f64 read_f64_le write_f64_le from_le_bytes to_le_bytes "lowest byte first";
    f64 read_f64_be write_f64_be from_be_bytes to_be_bytes "highest byte first";
}

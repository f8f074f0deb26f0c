//! Reading fields off a payload: every step checks that the bytes are there.

use crate::error::HeaderError;

/// The bytes of a payload not read yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(payload: &'a [u8]) -> Self {
        Self { rest: payload }
    }

    /// Number of bytes that are left.
    pub(crate) const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Nothing may be left.
    pub(crate) const fn end(self) -> Result<(), HeaderError> {
        match self.rest.len() {
            0 => Ok(()),
            n => Err(HeaderError::Trailing(n)),
        }
    }

    /// The next `n` bytes.
    #[inline]
    pub(crate) fn bytes(&mut self, n: usize, field: &'static str) -> Result<&'a [u8], HeaderError> {
        let (taken, rest) = self.rest.split_at_checked(n).ok_or(HeaderError::Truncated(field))?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next `N` bytes, as an array.
    #[inline]
    pub(crate) fn array<const N: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<[u8; N], HeaderError> {
        let (taken, rest) =
            self.rest.split_first_chunk::<N>().ok_or(HeaderError::Truncated(field))?;
        self.rest = rest;
        Ok(*taken)
    }

    #[inline]
    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, HeaderError> {
        self.array::<1>(field).map(|[byte]| byte)
    }

    #[inline]
    pub(crate) fn u16(&mut self, field: &'static str) -> Result<u16, HeaderError> {
        self.array(field).map(u16::from_le_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, HeaderError> {
        self.array(field).map(u32::from_le_bytes)
    }

    #[inline]
    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, HeaderError> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// A byte that is 0 or 1.
    #[inline]
    pub(crate) fn flag(&mut self, field: &'static str) -> Result<bool, HeaderError> {
        match self.u8(field)? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(HeaderError::Value { field, value: u64::from(value) }),
        }
    }

    /// An unsigned LEB128 number of at most 64 bits. Only the shortest form is legal, so that every
    /// value has exactly one encoding.
    #[inline]
    pub(crate) fn leb128(&mut self, field: &'static str) -> Result<u64, HeaderError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8(field)?;
            let low = u64::from(byte & 0x7f);
            let padded = shift > 0 && byte == 0;
            let overflows = shift == 63 && byte > 1;
            if padded || overflows {
                return Err(HeaderError::Value { field, value: u64::from(byte) });
            }
            value |= low << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        // The tenth byte either ended the number or overflowed.
        Err(HeaderError::Truncated(field))
    }

    /// The next `n` bytes as text.
    #[inline]
    pub(crate) fn text(&mut self, n: usize, field: &'static str) -> Result<&'a str, HeaderError> {
        std::str::from_utf8(self.bytes(n, field)?).map_err(|_| HeaderError::Text(field))
    }
}

/// The longest start of `text` that fits into `max` bytes and ends between characters.
pub(crate) fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leb128_takes_the_shortest_form_only() {
        let read = |bytes: &[u8]| Reader::new(bytes).leb128("n");
        assert_eq!(read(&[0]), Ok(0));
        assert_eq!(read(&[0x80, 0x01]), Ok(128));
        let longest = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(read(&longest), Ok(u64::MAX));
        let mut over = longest;
        over[9] = 0x02;
        for bad in [&[0x80, 0x00][..], &[0xff, 0x80, 0x00], &over, &[0xff; 11]] {
            assert!(matches!(read(bad), Err(HeaderError::Value { .. })), "{bad:x?}");
        }
        for short in [&[][..], &[0x80], &[0xff; 9]] {
            assert_eq!(read(short), Err(HeaderError::Truncated("n")), "{short:x?}");
        }
    }

    #[test]
    fn cut_never_splits_a_character() {
        assert_eq!((cut("añb", 2), cut("añb", 3), cut("añb", 9)), ("a", "añ", "añb"));
    }
}

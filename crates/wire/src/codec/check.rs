//! The check that bytes are exactly one MessagePack value of bounded depth: one pass, no recursion,
//! no allocation.

use super::VALUE_DEPTH_MAX;

/// Defect of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Defect {
    /// They end inside the value, or announce more elements than bytes are left.
    Truncated,
    /// Number of bytes that are left over after the value.
    Trailing(usize),
    /// Nested deeper than [`VALUE_DEPTH_MAX`].
    TooDeep,
    /// The one byte that starts no value.
    Reserved,
}

/// Head of a value, from its first byte.
enum Head {
    /// Number of bytes until the value ends.
    Leaf(usize),
    /// A length of `length_bytes` bytes, then as many bytes as it says, then `more` bytes.
    Sized { length_bytes: usize, more: usize },
    /// Number of values.
    Children(u64),
    /// A count of `length_bytes` bytes, then `each` bytes for each value.
    Counted { length_bytes: usize, each: u64 },
}

/// Values of this depth are checked without clearing room for the deepest ones first.
const DEPTH_USUAL: usize = 7;

pub(super) fn check(bytes: &[u8]) -> Result<(), Defect> {
    match check_to_depth::<{ DEPTH_USUAL + 1 }>(bytes) {
        Err(Defect::TooDeep) => check_to_depth::<{ VALUE_DEPTH_MAX + 1 }>(bytes),
        checked => checked,
    }
}

/// `LEVELS` is one more than the depth allowed.
fn check_to_depth<const LEVELS: usize>(bytes: &[u8]) -> Result<(), Defect> {
    let mut rest = bytes;
    // Number of values still to come at each level.
    let mut left = [0u64; LEVELS];
    left[0] = 1;
    let mut depth = 0;
    loop {
        let children = children(take(&mut rest, 1)?, &mut rest)?;
        if children > rest.len() as u64 {
            return Err(Defect::Truncated);
        }
        if children > 0 {
            depth += 1;
            *left.get_mut(depth).ok_or(Defect::TooDeep)? = children;
            continue;
        }
        // A value has ended, and with it every value whose last part it was.
        loop {
            left[depth] -= 1;
            if left[depth] > 0 {
                break;
            }
            if depth == 0 {
                return if rest.is_empty() { Ok(()) } else { Err(Defect::Trailing(rest.len())) };
            }
            depth -= 1;
        }
    }
}

/// Takes the head of a map off the front of a value that was checked: how many entries follow.
pub(super) fn map_len(rest: &mut &[u8]) -> Option<u64> {
    let first = take(rest, 1).ok()?;
    match first.first()? {
        byte @ 0x80..=0x8f => Some(u64::from(byte & 0x0f)),
        0xde => take(rest, 2).map(number).ok(),
        0xdf => take(rest, 4).map(number).ok(),
        _ => None,
    }
}

/// Takes a text off the front of values that were checked; none, and nothing is taken, where
/// something else stands.
pub(super) fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (first, mut after) = rest.split_at_checked(1)?;
    let bytes = match first.first()? {
        byte @ 0xa0..=0xbf => u64::from(byte & 0x1f),
        0xd9 => take(&mut after, 1).map(number).ok()?,
        0xda => take(&mut after, 2).map(number).ok()?,
        0xdb => take(&mut after, 4).map(number).ok()?,
        _ => return None,
    };
    let text = take(&mut after, usize::try_from(bytes).ok()?).ok()?;
    *rest = after;
    Some(text)
}

/// Takes a whole value off the front of values that were checked.
pub(super) fn value<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let before = *rest;
    let mut left = 1u64;
    while left > 0 {
        let Ok(children) = take(rest, 1).and_then(|first| children(first, rest)) else { break };
        left = left - 1 + children;
    }
    &before[..before.len() - rest.len()]
}

/// Takes what belongs to the value with this first byte alone: how many values are its parts.
#[inline]
fn children(first: &[u8], rest: &mut &[u8]) -> Result<u64, Defect> {
    Ok(match head(first)? {
        Head::Leaf(n) => {
            take(rest, n)?;
            0
        }
        Head::Sized { length_bytes, more } => {
            let n = number(take(rest, length_bytes)?) as usize;
            take(rest, n.saturating_add(more))?;
            0
        }
        Head::Children(n) => n,
        Head::Counted { length_bytes, each } => number(take(rest, length_bytes)?) * each,
    })
}

fn take<'a>(rest: &mut &'a [u8], n: usize) -> Result<&'a [u8], Defect> {
    let (taken, after) = rest.split_at_checked(n).ok_or(Defect::Truncated)?;
    *rest = after;
    Ok(taken)
}

/// A big-endian number of at most four bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |n, byte| n << 8 | u64::from(*byte))
}

/// The table of MessagePack's formats.
fn head(first: &[u8]) -> Result<Head, Defect> {
    let byte = first.first().copied().ok_or(Defect::Truncated)?;
    Ok(match byte {
        // Small integers, nil, false, true.
        0x00..=0x7f | 0xe0..=0xff | 0xc0 | 0xc2 | 0xc3 => Head::Leaf(0),
        0x80..=0x8f => Head::Children(u64::from(byte & 0x0f) * 2),
        0x90..=0x9f => Head::Children(u64::from(byte & 0x0f)),
        0xa0..=0xbf => Head::Leaf(usize::from(byte & 0x1f)),
        0xc1 => return Err(Defect::Reserved),
        // Bytes, extensions (one more byte: their type), text.
        0xc4 | 0xd9 => Head::Sized { length_bytes: 1, more: 0 },
        0xc5 | 0xda => Head::Sized { length_bytes: 2, more: 0 },
        0xc6 | 0xdb => Head::Sized { length_bytes: 4, more: 0 },
        0xc7 => Head::Sized { length_bytes: 1, more: 1 },
        0xc8 => Head::Sized { length_bytes: 2, more: 1 },
        0xc9 => Head::Sized { length_bytes: 4, more: 1 },
        0xcc | 0xd0 => Head::Leaf(1),
        0xcd | 0xd1 | 0xd4 => Head::Leaf(2),
        0xd5 => Head::Leaf(3),
        0xca | 0xce | 0xd2 => Head::Leaf(4),
        0xd6 => Head::Leaf(5),
        0xcb | 0xcf | 0xd3 => Head::Leaf(8),
        0xd7 => Head::Leaf(9),
        0xd8 => Head::Leaf(17),
        0xdc => Head::Counted { length_bytes: 2, each: 1 },
        0xdd => Head::Counted { length_bytes: 4, each: 1 },
        0xde => Head::Counted { length_bytes: 2, each: 2 },
        0xdf => Head::Counted { length_bytes: 4, each: 2 },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_one_value_of_every_format() {
        let mut formats: Vec<Vec<u8>> = vec![
            vec![0x00],
            vec![0x7f],
            vec![0xe0],
            vec![0xff],
            vec![0xc0],
            vec![0xc2],
            vec![0xc3],
            vec![0x80],
            vec![0x81, 1, 2],
            vec![0x90],
            vec![0x92, 1, 2],
            vec![0xa0],
            vec![0xa2, b'a', b'b'],
        ];
        for (first, more) in [
            (0xca, 4),
            (0xcb, 8),
            (0xcc, 1),
            (0xcd, 2),
            (0xce, 4),
            (0xcf, 8),
            (0xd0, 1),
            (0xd1, 2),
            (0xd2, 4),
            (0xd3, 8),
            (0xd4, 2),
            (0xd5, 3),
            (0xd6, 5),
            (0xd7, 9),
            (0xd8, 17),
        ] {
            formats.push(std::iter::once(first).chain(std::iter::repeat_n(0, more)).collect());
        }
        for (first, length, content) in [
            (0xc4, 1, 3),
            (0xc5, 2, 3),
            (0xc6, 4, 3),
            (0xc7, 1, 4),
            (0xc8, 2, 4),
            (0xc9, 4, 4),
            (0xd9, 1, 3),
            (0xda, 2, 3),
            (0xdb, 4, 3),
            (0xdc, 2, 3),
            (0xdd, 4, 3),
            (0xde, 2, 6),
            (0xdf, 4, 6),
        ] {
            let mut format = vec![first];
            format.extend(std::iter::repeat_n(0, length - 1));
            format.push(3);
            format.extend(std::iter::repeat_n(0, content));
            formats.push(format);
        }
        for format in formats {
            assert_eq!(check(&format), Ok(()), "{format:x?}");
            for end in 0..format.len() {
                assert_eq!(check(&format[..end]), Err(Defect::Truncated), "{:x?}", &format[..end]);
            }
            let longer = [&format[..], &[0xc0]].concat();
            assert_eq!(check(&longer), Err(Defect::Trailing(1)), "{longer:x?}");
        }
    }

    #[test]
    fn depth_is_bounded_exactly() {
        let nested = |depth: usize| [vec![0x91; depth], vec![0xc0]].concat();
        assert_eq!(check(&nested(VALUE_DEPTH_MAX)), Ok(()));
        assert_eq!(check(&nested(VALUE_DEPTH_MAX + 1)), Err(Defect::TooDeep));
        assert_eq!(check(&nested(1 << 20)), Err(Defect::TooDeep));
    }

    #[test]
    fn announced_elements_need_bytes() {
        assert_eq!(check(&[0xdd, 0xff, 0xff, 0xff, 0xff, 0xc0]), Err(Defect::Truncated));
        assert_eq!(check(&[0xdf, 0xff, 0xff, 0xff, 0xff, 0xc0]), Err(Defect::Truncated));
        assert_eq!(check(&[0xdb, 0xff, 0xff, 0xff, 0xff, 0xc0]), Err(Defect::Truncated));
        assert_eq!(check(&[0x92, 0x91, 0xc0, 0xc1]), Err(Defect::Reserved));
    }
}

//! Lines in the input of an exchange, and input that is skipped.
//!
//! Owns: how long a line may be, and where a line or a refused body ends. The exchange reads commands and the puts of a
//! `complete` with the same functions.

use memchr::{memchr, memmem};

use crate::protocol::{CRLF, MAX_LINE_BYTES, longest_line, put_line, tagged_put};

/// The next line of the input.
pub(crate) enum Line<'a> {
    /// All of it, without its CRLF.
    Whole(&'a [u8]),
    /// A part of it.
    Part,
    /// It is too long. No part of it is taken. These are its first bytes: all of it with its CRLF, or as many as its
    /// command may have.
    TooLong(&'a [u8]),
}

/// Takes the next line from `input`. Some lines of the extensions may be longer than C's lines.
#[inline]
pub(crate) fn take_line<'a>(input: &mut &'a [u8]) -> Line<'a> {
    let bytes: &'a [u8] = input;
    match find_crlf(&bytes[..bytes.len().min(MAX_LINE_BYTES)]) {
        Some(end) => {
            *input = &bytes[end + CRLF.len()..];
            Line::Whole(&bytes[..end])
        }
        None if bytes.len() < MAX_LINE_BYTES => Line::Part,
        None => take_long_line(input),
    }
}

/// Takes a line that is longer than C's lines. Only the bytes of the line decide, and not how many of them have
/// arrived: a `put` may be so long only if it has a tag, which can begin at any byte, so its end is awaited.
#[cold]
fn take_long_line<'a>(input: &mut &'a [u8]) -> Line<'a> {
    let bytes: &'a [u8] = input;
    let longest = longest_line(bytes);
    let start = &bytes[..bytes.len().min(longest)];
    match find_crlf(start) {
        Some(end) if put_line(&start[..end]).is_some() && tagged_put(&start[..end]).is_none() => {
            Line::TooLong(&start[..end + CRLF.len()])
        }
        Some(end) => {
            *input = &bytes[end + CRLF.len()..];
            Line::Whole(&bytes[..end])
        }
        None if bytes.len() < longest => Line::Part,
        None => Line::TooLong(start),
    }
}

/// Skips the rest of a line that is too long; returns whether the input had its end.
pub(crate) fn skip_line(input: &mut &[u8]) -> bool {
    let end = find_crlf(input);
    let may_begin_crlf = usize::from(input.last() == Some(&b'\r'));
    *input = &input[end.map_or(input.len() - may_begin_crlf, |end| end + CRLF.len())..];
    end.is_some()
}

/// The length of a refused body with its CRLF. Its size can be any 32-bit number, so on 32-bit machines the sum does
/// not fit into a usize.
pub(crate) fn refused_body_bytes(size: u32) -> u64 {
    u64::from(size) + CRLF.len() as u64
}

/// Skips the part of a refused body that has arrived. `left` bytes of it are missing; returns whether it is complete.
pub(crate) fn skip_body(left: &mut u64, input: &mut &[u8]) -> bool {
    let skipped = (*left).min(input.len() as u64);
    *left -= skipped;
    *input = &input[skipped as usize..];
    *left == 0
}

/// The position of the first CRLF.
fn find_crlf(bytes: &[u8]) -> Option<usize> {
    let newline = memchr(b'\n', bytes)?;
    if newline > 0 && bytes[newline - 1] == b'\r' {
        return Some(newline - 1);
    }
    find_crlf_after(newline + 1, bytes)
}

/// The position of the first CRLF from this one on. Newlines without a CR cost no more than other bytes.
#[cold]
fn find_crlf_after(start: usize, bytes: &[u8]) -> Option<usize> {
    Some(start + memmem::find(&bytes[start..], CRLF)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_crlf_is_found_among_all_other_newlines() {
        for number in 0..3_usize.pow(8) {
            let bytes: Vec<u8> = (0..8).map(|place| b"x\r\n"[number / 3_usize.pow(place) % 3]).collect();
            for length in 0..=bytes.len() {
                let text = &bytes[..length];
                let expected = text.windows(CRLF.len()).position(|pair| pair == CRLF);
                assert_eq!(find_crlf(text), expected, "{}", text.escape_ascii());
            }
        }
    }
}

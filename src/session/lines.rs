//! Lines in the input of a session, and input that is skipped.
//!
//! Owns: how long a line may be, and where a line or a refused body ends. The session reads commands and the puts of a
//! `complete` with the same functions.

use memchr::memchr;

use crate::protocol::{CRLF, MAX_LINE_BYTES, longest_line};

/// The next line of the input.
pub(crate) enum Line<'a> {
    /// All of it, without its CRLF.
    Whole(&'a [u8]),
    /// A part of it.
    Part,
    /// It is too long. No part of it is taken.
    TooLong,
}

/// Takes the next line from `input`. Some lines of the extensions may be longer than those of C.
#[inline]
pub(crate) fn take_line<'a>(input: &mut &'a [u8]) -> Line<'a> {
    take_line_of(input, MAX_LINE_BYTES)
}

/// Takes a line of at most `most` bytes, or of as many as its command may have.
#[inline]
fn take_line_of<'a>(input: &mut &'a [u8], most: usize) -> Line<'a> {
    let bytes: &'a [u8] = input;
    match find_crlf(&bytes[..bytes.len().min(most)]) {
        Some(end) => {
            *input = &bytes[end + CRLF.len()..];
            Line::Whole(&bytes[..end])
        }
        None if bytes.len() < most => Line::Part,
        None => match longest_line(bytes) {
            longest if longest > most => take_line_of(input, longest),
            _ => Line::TooLong,
        },
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
    let mut from = 0;
    loop {
        let newline = from + memchr(b'\n', &bytes[from..])?;
        if newline > 0 && bytes[newline - 1] == b'\r' {
            return Some(newline - 1);
        }
        from = newline + 1;
    }
}

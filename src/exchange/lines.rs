//! Lines in the input of an exchange, and input that is skipped.
//!
//! Owns: how long a line may be, and where a line or a refused body ends. The exchange reads commands and the puts of a
//! `complete` with the same functions.

use memchr::memchr;

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

/// Takes the next line from `input`. Some lines of the extensions may be longer than those of C.
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

/// Takes a line that is longer than those of C. Only the bytes of the line decide, and not how many of them have
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
    let mut from = 0;
    loop {
        let newline = from + memchr(b'\n', &bytes[from..])?;
        if newline > 0 && bytes[newline - 1] == b'\r' {
            return Some(newline - 1);
        }
        from = newline + 1;
    }
}

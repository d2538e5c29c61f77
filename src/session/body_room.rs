//! The room for a body that arrives in pieces.
//!
//! Owns: how much memory is allocated for the bytes that have arrived, and when a body is complete. Driven by the
//! session.

use std::collections::TryReserveError;

use crate::job::Body;
use crate::protocol::CRLF;

/// The minimum that is allocated for a body in progress. It grows with the bytes that arrive, so that announcing a
/// gigabyte costs nothing, and neither do thousands of clients that send a byte now and then.
const FIRST_ALLOCATION_BYTES: usize = 1024;

/// Once this much of a body has arrived, the server trusts its announced size and allocates the rest at once.
const ALLOCATE_REST_FROM_BYTES: usize = 1024 * 1024;
/// The threshold at which the rest is allocated, as a share of the body: one part in this many.
const ALLOCATE_REST_FROM_PART: usize = 4;

/// The length of an accepted body of `size` bytes, with the CRLF after it. A body of more than 1 GiB is never accepted.
pub(crate) fn body_with_crlf(size: u32) -> usize {
    size as usize + CRLF.len()
}

/// A body of `size` bytes with its CRLF, and the input after it. `None` if a part or the CRLF is missing.
pub(crate) fn split_body(size: u32, input: &[u8]) -> Option<(&[u8], &[u8])> {
    let (body, rest) = input.split_at_checked((size as usize).checked_add(CRLF.len())?)?;
    body.ends_with(CRLF).then_some((body, rest))
}

/// How much of a body has arrived.
pub(crate) enum Taken {
    /// A part of it.
    Part,
    /// All of it.
    Whole(Body),
    /// All of it, but no CRLF follows it.
    WithoutCrlf,
    /// There is no memory for the next bytes, which stay in the input.
    NoMemory,
}

/// Takes the bytes of a body of `size` bytes with its CRLF from `input`; `begun` has the bytes that arrived before.
#[inline(always)]
pub(crate) fn take_body(size: u32, begun: &mut Vec<u8>, input: &mut &[u8]) -> Taken {
    let whole = body_with_crlf(size);
    if begun.is_empty() && input.len() >= whole {
        let (bytes, rest) = input.split_at(whole);
        let (body, trailer) = bytes.split_at(size as usize);
        if trailer != CRLF {
            *input = rest;
            return Taken::WithoutCrlf;
        }
        let Ok(body) = Body::copy_of(body) else { return Taken::NoMemory };
        *input = rest;
        return Taken::Whole(body);
    }
    let taken = input.len().min(whole - begun.len());
    if make_room(begun, whole, taken).is_err() {
        return Taken::NoMemory;
    }
    begun.extend_from_slice(&input[..taken]);
    *input = &input[taken..];
    if begun.len() < whole {
        return Taken::Part;
    }
    if !begun.ends_with(CRLF) {
        return Taken::WithoutCrlf;
    }
    let mut body = std::mem::take(begun);
    body.truncate(size as usize);
    Taken::Whole(Body::from(body))
}

/// Makes room for `taken` more bytes of a body of `size`, and for no more of it than can be expected.
pub(crate) fn make_room(body: &mut Vec<u8>, size: usize, taken: usize) -> Result<(), TryReserveError> {
    let needed = (body.len() + taken).min(size);
    if needed <= body.capacity() {
        return Ok(());
    }
    let capacity = if needed >= ALLOCATE_REST_FROM_BYTES.min(size / ALLOCATE_REST_FROM_PART) {
        size
    } else {
        size.min(needed.max(2 * body.capacity()).max(FIRST_ALLOCATION_BYTES))
    };
    body.try_reserve_exact(capacity - body.len())
}

//! A body that arrives in pieces.
//!
//! Owns: how much memory is allocated for the bytes that have arrived, and when a body is complete. Driven by the
//! exchange, for a `put` and for each put of a `complete`.

use std::collections::TryReserveError;

use super::Put;
use crate::description::{Described, Malformed, Reader, Writer};
use crate::job::Body;
use crate::protocol::CRLF;

/// Once this many bytes of a body have arrived and at least as many are missing, it is read directly into its own
/// allocation; copying fewer is cheaper than another system call.
pub(crate) const DIRECT_READ_FROM_BYTES: usize = 32 * 1024;

/// The minimum that is allocated for a body in progress. It grows with the bytes that arrive, so that announcing a
/// gigabyte costs nothing, and neither do thousands of clients that send a byte now and then.
const FIRST_ALLOCATION_BYTES: usize = 1024;

/// Once this much of a body has arrived, the server trusts its announced size and allocates the rest at once.
const ALLOCATE_REST_FROM_BYTES: usize = 1024 * 1024;
/// The threshold at which the rest is allocated, as a share of the body: one part in this many.
const ALLOCATE_REST_FROM_PART: usize = 4;

/// A body of `size` bytes with its CRLF, and the input after it. `None` if a part or the CRLF is missing.
pub(crate) fn split_body(size: u32, input: &[u8]) -> Option<(&[u8], &[u8])> {
    let (body, rest) = input.split_at_checked((size as usize).checked_add(CRLF.len())?)?;
    body.ends_with(CRLF).then_some((body, rest))
}

/// How much of a body has arrived.
pub(crate) enum BodyArrival {
    /// A part of it.
    Part,
    /// All of it.
    Whole(Body),
    /// All of it, but no CRLF follows it.
    WithoutCrlf,
    /// There is no memory for the next bytes, which stay in the input.
    NoMemory,
}

/// An accepted put whose body is arriving.
#[derive(Debug)]
pub(crate) struct Arriving {
    pub(crate) put: Put,
    /// The body with its CRLF, as far as it has arrived in pieces.
    begun: Vec<u8>,
}

impl Arriving {
    /// A put whose body comes next.
    pub(crate) fn new(put: Put) -> Self {
        Self { put, begun: Vec::new() }
    }

    /// The length of the body with its CRLF. A body of more than 1 GiB is never accepted.
    fn whole(&self) -> usize {
        self.put.size as usize + CRLF.len()
    }

    /// How many bytes are missing.
    pub(crate) fn missing(&self) -> usize {
        self.whole() - self.begun.len()
    }

    /// Takes bytes from `input`.
    #[inline(always)]
    pub(crate) fn take(&mut self, input: &mut &[u8]) -> BodyArrival {
        let (size, whole) = (self.put.size as usize, self.whole());
        let begun = &mut self.begun;
        if begun.is_empty() && input.len() >= whole {
            let (bytes, rest) = input.split_at(whole);
            let (body, trailer) = bytes.split_at(size);
            if trailer != CRLF {
                *input = rest;
                return BodyArrival::WithoutCrlf;
            }
            let Ok(body) = Body::copy_of(body) else { return BodyArrival::NoMemory };
            *input = rest;
            return BodyArrival::Whole(body);
        }
        let taken = input.len().min(whole - begun.len());
        if make_room(begun, whole, taken).is_err() {
            return BodyArrival::NoMemory;
        }
        begun.extend_from_slice(&input[..taken]);
        *input = &input[taken..];
        if begun.len() < whole {
            return BodyArrival::Part;
        }
        if !begun.ends_with(CRLF) {
            return BodyArrival::WithoutCrlf;
        }
        let mut body = std::mem::take(begun);
        body.truncate(size);
        BodyArrival::Whole(Body::from(body))
    }

    /// The buffer into which the socket can be read directly, and how many bytes it may take; `None` if the usual
    /// buffer is used. The last byte always comes through the usual buffer, because the server looks for requests only
    /// in the bytes there.
    pub(crate) fn room(&mut self) -> Option<(&mut Vec<u8>, usize)> {
        let (whole, missing) = (self.whole(), self.missing());
        // A client that has sent little so far may be slow, and gets no room in advance.
        if missing.min(self.begun.len()) < DIRECT_READ_FROM_BYTES {
            return None;
        }
        make_room(&mut self.begun, whole, DIRECT_READ_FROM_BYTES).ok()?;
        let room = (missing - 1).min(self.begun.capacity() - self.begun.len());
        Some((&mut self.begun, room))
    }

    /// Whether a part of the body is held.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.capacity() > 0
    }

    /// Memory of the room, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.put.memory_bytes() + self.begun.capacity()
    }
}

impl Described for Arriving {
    fn describe(&self, out: &mut Writer<'_>) {
        self.put.describe(out);
        out.bytes(&self.begun);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let arriving = Self { put: from.value()?, begun: from.bytes()?.to_vec() };
        let is_part = arriving.begun.len() < arriving.whole();
        if is_part { Ok(arriving) } else { Err(Malformed("a partial body is complete")) }
    }
}

/// Makes room for `taken` more bytes of a body of `size`, and for no more of it than can be expected.
fn make_room(body: &mut Vec<u8>, size: usize, taken: usize) -> Result<(), TryReserveError> {
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

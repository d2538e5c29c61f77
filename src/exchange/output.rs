//! Replies that have not been sent to a client yet.
//!
//! Owns: the bytes that the socket has not taken. Small bodies are copied among them; large ones are held and passed to
//! the kernel without a copy, so that a job can be deleted while it is sent. Memory is freed as the bytes are sent,
//! even if a client that pipelines never lets the output become empty.

use std::collections::{TryReserveError, VecDeque};
use std::io::IoSlice;

use crate::job::Body;
use crate::protocol::{Reply, ReplyBuffer};

/// The maximum number of pieces in one write: more would not make it cheaper, and the kernel takes at most 1024.
const MAX_SLICES: usize = 64;

/// The memory of sent bytes is freed once they are more than the unsent ones and at least this many: then each byte is
/// moved once on average, and short outputs are never moved.
const MIN_GIVEN_BACK_BYTES: usize = 4 * 1024;

/// A buffer of up to this many bytes is kept, however few of its bytes are in use.
const KEPT_CAPACITY_BYTES: usize = 16 * 1024;

/// The server stops serving a connection with this many unsent bytes of its own copies until the client reads.
const MAX_UNSENT_OWN_BYTES: usize = 64 * 1024;
/// The server stops serving a connection with this many unsent bytes, including the bodies that it keeps alive.
const MAX_UNSENT_BYTES: usize = 1024 * 1024;
/// The limit `MAX_UNSENT_OWN_BYTES` while memory is low.
const LOW_MEMORY_UNSENT_OWN_BYTES: usize = 1024;
/// The limit `MAX_UNSENT_BYTES` while memory is low.
const LOW_MEMORY_UNSENT_BYTES: usize = 64 * 1024;

/// The bytes still to be sent on a connection, in order.
#[derive(Debug, Default)]
pub struct Output {
    bytes: Vec<u8>,
    /// How many of `bytes` have been sent.
    sent: u32,
    /// Replies added since the connection began, modulo 2^32: only differences count.
    replies: u32,
    /// Bodies between the bytes; most connections have none at most times.
    shared: Option<Box<SharedBodies>>,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Output>() == 40, "every connection has an output");

#[derive(Debug, Default)]
struct SharedBodies {
    /// Never empty.
    queue: VecDeque<SharedBody>,
    /// Unsent bytes of all bodies.
    len: usize,
    /// How many of the output's own bytes were freed since the first shared body: positions are counted from before
    /// them, so that freeing moves no position.
    given_back: u64,
}

/// A body that is sent before the own byte at `at`.
#[derive(Debug)]
struct SharedBody {
    at: u64,
    body: Body,
    sent: usize,
}

impl SharedBodies {
    /// No bodies, with room for the first.
    fn with_room() -> Result<Self, TryReserveError> {
        let mut queue = VecDeque::new();
        queue.try_reserve_exact(1)?;
        Ok(Self { queue, ..Self::default() })
    }

    /// The index of `body` in the output's bytes.
    fn index_of(&self, body: &SharedBody) -> usize {
        (body.at - self.given_back) as usize
    }
}

impl Output {
    /// Unsent bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.own_len() + self.shared.as_ref().map_or(0, |shared| shared.len)
    }

    /// Whether the unsent bytes, with further ones added, are too many to serve the client any further. Of the added
    /// ones, `own` are the output's own. While memory is low (`is_memory_low`), the limits are lower.
    #[must_use]
    #[inline]
    pub fn would_exceed(&self, is_memory_low: bool, own: usize, all: usize) -> bool {
        let (max_own, max) = if is_memory_low {
            (LOW_MEMORY_UNSENT_OWN_BYTES, LOW_MEMORY_UNSENT_BYTES)
        } else {
            (MAX_UNSENT_OWN_BYTES, MAX_UNSENT_BYTES)
        };
        match &self.shared {
            None => self.own_len() + own > max_own || self.own_len() + all > max,
            Some(shared) => self.own_len() + own > max_own || self.own_len() + shared.len + all > max,
        }
    }

    /// Whether everything has been sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Unsent bytes that only this output holds: all except shared bodies.
    #[must_use]
    pub fn own_len(&self) -> usize {
        self.bytes.len() - self.sent()
    }

    /// How many of its own bytes have been sent but not freed.
    fn sent(&self) -> usize {
        self.sent as usize
    }

    /// Memory that only this output holds, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let places = self.shared.as_ref().map_or(0, |shared| shared.queue.capacity());
        self.bytes.capacity() + places * size_of::<SharedBody>()
    }

    /// Replies added since the connection began, modulo 2^32.
    #[must_use]
    pub fn replies(&self) -> u32 {
        self.replies
    }

    /// Appends a reply.
    ///
    /// # Errors
    /// If the allocator has no memory. The output may then end with a part of the reply, so nothing more may be sent.
    #[inline]
    pub fn write(&mut self, reply: &Reply<'_>) -> Result<(), TryReserveError> {
        self.replies = self.replies.wrapping_add(1);
        reply.write(self)
    }

    /// Moves the bytes of `other`, which has sent nothing, to the end of this output.
    ///
    /// # Errors
    /// As `write`.
    pub fn append(&mut self, other: &mut Self) -> Result<(), TryReserveError> {
        debug_assert_eq!(other.sent, 0, "nothing has been sent");
        self.reserve(other.bytes.len())?;
        let mut from = 0;
        for SharedBody { at, body, .. } in other.shared.take().into_iter().flat_map(|shared| shared.queue) {
            self.bytes.extend_from_slice(&other.bytes[from..at as usize]);
            self.push_shared(body)?;
            from = at as usize;
        }
        self.bytes.extend_from_slice(&other.bytes[from..]);
        other.bytes.clear();
        other.bytes.shrink_to(KEPT_CAPACITY_BYTES);
        Ok(())
    }

    /// Keeps the first `len` unsent bytes, which end with a reply, and forgets the rest.
    pub fn truncate(&mut self, len: usize) {
        let (mut left, mut from) = (len, self.sent());
        if let Some(shared) = &mut self.shared {
            let mut kept = 0;
            for body in &shared.queue {
                let at = shared.index_of(body);
                let through = (at - from) + (body.body.len() - body.sent);
                if left < through {
                    break;
                }
                left -= through;
                from = at;
                kept += 1;
            }
            shared.queue.truncate(kept);
            shared.len = shared.queue.iter().map(|body| body.body.len() - body.sent).sum();
            if kept == 0 {
                self.shared = None;
            }
        }
        self.bytes.truncate(from + left);
    }

    #[cold]
    fn grow(&mut self, count: usize) -> Result<(), TryReserveError> {
        self.bytes.try_reserve(count)
    }

    /// Puts a shared body between the bytes.
    fn push_shared(&mut self, body: Body) -> Result<(), TryReserveError> {
        let at = self.bytes.len() as u64;
        let shared = match &mut self.shared {
            Some(shared) => shared,
            none => none.insert(Box::new(SharedBodies::with_room()?)),
        };
        shared.queue.try_reserve(1)?;
        shared.len += body.len();
        shared.queue.push_back(SharedBody { at: shared.given_back + at, body, sent: 0 });
        Ok(())
    }

    /// Takes the buffer of an empty output, for use by another connection.
    pub fn take_buffer(&mut self) -> Vec<u8> {
        debug_assert!(self.is_empty(), "a buffer is taken when its bytes are sent");
        self.sent = 0;
        let mut buffer = std::mem::take(&mut self.bytes);
        buffer.clear();
        buffer
    }

    /// Gives an output without a buffer one.
    pub fn give_buffer(&mut self, buffer: Vec<u8>) {
        debug_assert!(self.bytes.is_empty() && buffer.is_empty());
        self.bytes = buffer;
    }

    /// The unsent bytes, if they are in one piece, as they are without shared bodies.
    #[must_use]
    pub fn as_slice(&self) -> Option<&[u8]> {
        self.shared.is_none().then(|| &self.bytes[self.sent()..])
    }

    /// The first unsent pieces, at most `limit` bytes in total.
    #[must_use]
    pub fn slices(&self, limit: usize) -> Vec<IoSlice<'_>> {
        let bodies = self.shared.iter().flat_map(|shared| {
            shared.queue.iter().map(|body| (shared.index_of(body), &body.body.as_slice()[body.sent..]))
        });
        let mut slices = Vec::with_capacity(MAX_SLICES);
        let mut left = limit;
        let mut from = self.sent();
        for (at, body) in bodies.chain([(self.bytes.len(), &[][..])]) {
            for piece in [&self.bytes[from..at], body] {
                let piece = &piece[..piece.len().min(left)];
                if piece.is_empty() {
                    continue;
                }
                left -= piece.len();
                slices.push(IoSlice::new(piece));
                if slices.len() == MAX_SLICES {
                    return slices;
                }
            }
            from = at;
        }
        slices
    }

    /// Calls `each` with all unsent bytes, piece by piece.
    pub fn each_unsent(&self, mut each: impl FnMut(&[u8])) {
        let mut from = self.sent();
        for body in self.shared.iter().flat_map(|shared| &shared.queue) {
            let at = self.shared.as_ref().map_or(from, |shared| shared.index_of(body));
            each(&self.bytes[from..at]);
            each(&body.body.as_slice()[body.sent..]);
            from = at;
        }
        each(&self.bytes[from..]);
    }

    /// Asserts the invariants of an output between two calls.
    ///
    /// # Panics
    /// If an invariant does not hold.
    #[inline]
    pub fn check_invariants(&self) {
        assert!(self.sent() <= self.bytes.len(), "the sent bytes are bytes of the output");
        let Some(shared) = &self.shared else { return };
        assert!(!shared.queue.is_empty(), "an empty queue of shared bodies is not kept");
        let mut from = self.sent();
        for body in &shared.queue {
            let at = shared.index_of(body);
            assert!(
                (from..=self.bytes.len()).contains(&at),
                "the shared bodies are in the order of their offsets"
            );
            from = at;
        }
        let unsent: usize = shared.queue.iter().map(|body| body.body.len() - body.sent).sum();
        assert_eq!(unsent, shared.len, "the unsent bytes of shared bodies are counted");
    }

    /// Notes that the socket has taken `count` bytes.
    ///
    /// # Panics
    /// If there are fewer unsent bytes.
    #[inline]
    pub fn advance(&mut self, mut count: usize) {
        let mut sent = self.sent();
        while let Some(shared) = &mut self.shared
            && count > 0
        {
            let at = shared.index_of(&shared.queue[0]);
            let front = &mut shared.queue[0];
            let step = count.min(at - sent);
            sent += step;
            count -= step;
            if sent == at {
                let step = count.min(front.body.len() - front.sent);
                front.sent += step;
                shared.len -= step;
                count -= step;
                if front.sent == front.body.len() {
                    shared.queue.pop_front();
                }
            }
            if shared.queue.is_empty() {
                self.shared = None;
            }
        }
        sent += count;
        assert!(sent <= self.bytes.len(), "the sent bytes are bytes of the output");
        // Sent bytes are freed before they are this many.
        self.sent = u32::try_from(sent).expect("an output is bounded far below 4 GiB");
        if self.is_empty() {
            self.bytes.clear();
            self.sent = 0;
        } else if sent >= MIN_GIVEN_BACK_BYTES && sent > self.own_len() {
            self.give_back();
        }
    }

    /// Moves the unsent bytes over the sent ones, and frees the memory of a burst.
    fn give_back(&mut self) {
        if let Some(shared) = &mut self.shared {
            shared.given_back += u64::from(self.sent);
        }
        self.bytes.drain(..self.sent as usize);
        self.sent = 0;
        if self.bytes.capacity() > KEPT_CAPACITY_BYTES.max(4 * self.bytes.len()) {
            self.bytes.shrink_to(KEPT_CAPACITY_BYTES.max(2 * self.bytes.len()));
        }
    }
}

impl ReplyBuffer for Output {
    #[inline]
    fn reserve(&mut self, count: usize) -> Result<(), TryReserveError> {
        if self.bytes.capacity() - self.bytes.len() >= count { Ok(()) } else { self.grow(count) }
    }

    #[inline]
    fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    #[inline]
    fn push_body(&mut self, body: &Body) -> Result<(), TryReserveError> {
        match body.share() {
            None => self.bytes.extend_from_slice(body.as_slice()),
            Some(shared) => self.push_shared(shared)?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use beanstalkd_types::random::Generator;

    use super::*;
    use crate::job::SHARED_FROM_BYTES;
    use crate::protocol::{ListWriter, SHORT_LIST_BYTES, list_bytes};

    #[test]
    fn pieces_come_out_in_order_however_little_the_socket_takes() {
        for take in [1, 7, 4096, SHARED_FROM_BYTES, 1 << 20] {
            let mut output = Output::default();
            let mut expected = Vec::new();
            for round in 0..70u8 {
                let size =
                    if round % 3 == 0 { SHARED_FROM_BYTES + usize::from(round) } else { usize::from(round) };
                let body = Body::copy_of(&vec![round; size]).unwrap();
                output.bytes().extend_from_slice(b"head");
                output.push_body(&body).unwrap();
                expected.extend_from_slice(b"head");
                expected.extend_from_slice(body.as_slice());
            }
            let mut sent = Vec::new();
            while !output.is_empty() {
                assert_eq!(sent.len() + output.len(), expected.len());
                let taken: Vec<u8> = output.slices(take).iter().flat_map(|slice| slice.to_vec()).collect();
                assert!(!taken.is_empty() && taken.len() <= take);
                output.advance(taken.len());
                sent.extend(taken);
            }
            assert_eq!(sent, expected);
            assert!(output.as_slice().is_some_and(<[u8]>::is_empty));
        }
    }

    #[test]
    fn an_appended_output_comes_after_the_bytes_before_it() {
        let sizes = [0, 7, SHARED_FROM_BYTES, 100, SHARED_FROM_BYTES + 1];
        for sent in [0, 3, SHARED_FROM_BYTES + 20] {
            let (mut output, mut expected) = (Output::default(), Vec::new());
            for part in 0..3u8 {
                let mut appended = Output::default();
                for size in sizes {
                    let body = Body::copy_of(&vec![part; size]).unwrap();
                    appended.bytes().extend_from_slice(b"head");
                    appended.push_body(&body).unwrap();
                    expected.extend_from_slice(b"head");
                    expected.extend_from_slice(body.as_slice());
                }
                output.append(&mut appended).unwrap();
                assert!(appended.is_empty());
                output.check_invariants();
                if part == 0 {
                    output.advance(sent);
                }
            }
            assert_eq!(output.len(), expected.len() - sent);
            let mut unsent = Vec::new();
            output.each_unsent(|piece| unsent.extend_from_slice(piece));
            assert_eq!(unsent, expected[sent..]);
        }
    }

    #[test]
    fn no_more_than_the_bounds_wait_to_be_sent() {
        for (is_memory_low, max_own, max) in [
            (true, LOW_MEMORY_UNSENT_OWN_BYTES, LOW_MEMORY_UNSENT_BYTES),
            (false, MAX_UNSENT_OWN_BYTES, MAX_UNSENT_BYTES),
        ] {
            for (own_len, shared_len) in [(0, 0), (100, 0), (0, SHARED_FROM_BYTES), (100, SHARED_FROM_BYTES)]
            {
                let mut output = Output::default();
                output.bytes().extend_from_slice(&vec![b'x'; own_len]);
                if shared_len > 0 {
                    output.push_body(&Body::copy_of(&vec![b'y'; shared_len]).unwrap()).unwrap();
                }
                let (own_left, left) = (max_own - own_len, max - own_len - shared_len);
                assert!(!output.would_exceed(is_memory_low, 0, 0));
                assert!(!output.would_exceed(is_memory_low, own_left, left));
                assert!(output.would_exceed(is_memory_low, own_left + 1, 0));
                assert!(output.would_exceed(is_memory_low, 0, left + 1));
            }
        }
    }

    #[test]
    fn a_truncated_output_forgets_later_replies_with_their_bodies() {
        for (kept, sent) in (1..=6).flat_map(|kept| [0, 2, 100, SHARED_FROM_BYTES].map(|sent| (kept, sent))) {
            let (mut output, mut expected, mut end) = (Output::default(), Vec::new(), 0);
            for reply in 1..=6u8 {
                let size = if reply % 3 == 0 { 10 } else { SHARED_FROM_BYTES + usize::from(reply) };
                output.bytes().extend_from_slice(b"head");
                output.push_body(&Body::copy_of(&vec![reply; size]).unwrap()).unwrap();
                expected.extend_from_slice(b"head");
                expected.extend(std::iter::repeat_n(reply, size));
                if reply == kept {
                    end = expected.len();
                }
            }
            output.advance(sent);
            output.truncate(end - sent);
            assert_eq!(output.len(), end - sent);
            let left: Vec<u8> = output.slices(usize::MAX).iter().flat_map(|slice| slice.to_vec()).collect();
            assert_eq!(left, expected[sent..end][..left.len()]);
            output.advance(left.len());
            let rest: Vec<u8> = output.slices(usize::MAX).iter().flat_map(|slice| slice.to_vec()).collect();
            assert_eq!([left, rest].concat(), expected[sent..end]);
        }
    }

    /// Replies are added and sent at random, and compared with a plain queue of bytes; the output is hardly ever empty,
    /// like that of a client that pipelines.
    #[test]
    fn the_memory_of_an_output_is_a_small_multiple_of_its_unsent_bytes() {
        let mut generator = Generator::new(5);
        let mut random = move |below: usize| generator.draw() as usize % below;
        for round in 0..12 {
            let (mut output, mut model) = (Output::default(), VecDeque::<u8>::new());
            let longest = [20, 300, 5_000, 2 * SHARED_FROM_BYTES][round % 4];
            for step in 0..600u32 {
                let backlog = [2_000, 20_000, 80_000][round % 3];
                if model.len() < backlog {
                    let body = Body::copy_of(&vec![step as u8; random(longest)]).unwrap();
                    output.bytes().extend_from_slice(b"head");
                    output.push_body(&body).unwrap();
                    model.extend(b"head".iter().chain(body.as_slice()));
                } else if random(50) == 0 {
                    let kept = random(model.len());
                    // The output can only be cut after a reply: here after own bytes, at any position.
                    if output.shared.is_none() {
                        output.truncate(kept);
                        model.truncate(kept);
                    }
                }
                if model.len() >= backlog / 2 {
                    let taken: Vec<u8> = output
                        .slices(1 + random(2 * longest))
                        .iter()
                        .flat_map(|slice| slice.to_vec())
                        .collect();
                    assert!(taken.iter().eq(model.iter().take(taken.len())));
                    output.advance(taken.len());
                    model.drain(..taken.len());
                }
                assert_eq!(output.len(), model.len());
                let held = output.memory_bytes();
                assert!(held <= 8 * output.own_len() + 64 * 1024, "{held} bytes for {}", output.own_len());
            }
            let all: Vec<u8> = output.slices(usize::MAX).iter().flat_map(|slice| slice.to_vec()).collect();
            assert!(all.iter().eq(model.iter().take(all.len())));
        }
    }

    #[test]
    fn sent_bytes_are_freed_while_the_output_never_becomes_empty() {
        let mut output = Output::default();
        for _ in 0..10_000 {
            output.bytes().extend_from_slice(&[b'x'; 1_000]);
            if output.len() > 10_000 {
                output.advance(1_000);
            }
            assert!(output.memory_bytes() <= 64 * 1024, "{} bytes", output.memory_bytes());
        }
        output.bytes().extend_from_slice(&vec![b'x'; 1 << 20]);
        while output.len() > 1_000 {
            output.advance(1_000);
        }
        assert!(output.memory_bytes() <= KEPT_CAPACITY_BYTES, "{} bytes of a burst", output.memory_bytes());
    }

    #[test]
    fn a_long_list_is_sent_in_pieces_that_are_shared() {
        for count in [0, 1, 100, 2_000, 5_000] {
            let names: Vec<String> =
                (0..count).map(|n: usize| format!("{n}{}", "x".repeat(n % 190))).collect();
            let whole: String = ["---\n".to_owned()]
                .into_iter()
                .chain(names.iter().map(|name| format!("- {name}\n")))
                .collect();
            for expected in [0, whole.len(), 2 * whole.len()] {
                let mut writer = ListWriter::new(expected).unwrap();
                names.iter().for_each(|name| writer.push(name).unwrap());
                let list = writer.finish().unwrap();
                assert_eq!(list.byte_len(), whole.len());
                assert_eq!(list.byte_len(), list_bytes(count, names.iter().map(String::len).sum()));
                assert!(list.pieces().iter().all(|piece| piece.len() <= 64 * 1024));
                let mut output = Output::default();
                output.write(&Reply::List(&list)).unwrap();
                assert!(output.own_len() < SHORT_LIST_BYTES + 64, "what is long is shared");
                let mut sent = Vec::new();
                while !output.is_empty() {
                    assert_eq!(list.is_held(), whole.len() >= SHARED_FROM_BYTES);
                    let taken: Vec<u8> =
                        output.slices(usize::MAX).iter().flat_map(|piece| piece.to_vec()).collect();
                    output.advance(taken.len());
                    sent.extend(taken);
                }
                assert!(!list.is_held());
                assert_eq!(String::from_utf8(sent).unwrap(), format!("OK {}\r\n{whole}\r\n", whole.len()));
            }
        }
    }
}

//! Replies on their way to a client.
//!
//! Owns: the bytes not yet taken by the socket. Small bodies are copied among them; large ones are held
//! and handed to the kernel from where they lie, so that a job may be deleted while it is sent.

use std::collections::VecDeque;
use std::io::IoSlice;

use crate::job::Body;

/// Pieces handed to one write: more would not make it cheaper, and the kernel takes 1024 at most.
const MAX_SLICES: usize = 64;

/// What is still to be sent on a connection, in order.
#[derive(Debug, Default)]
pub struct Output {
    bytes: Vec<u8>,
    /// How many of `bytes` are sent.
    sent: usize,
    /// Bodies that stand between the bytes; most connections have none, at most times.
    shared: Option<Box<SharedBodies>>,
    /// Replies taken in since the connection began.
    replies: u64,
}

#[derive(Debug, Default)]
struct SharedBodies {
    /// Never empty.
    queue: VecDeque<SharedBody>,
    /// Their unsent bytes.
    len: usize,
}

/// A body that goes out before `bytes[at]`.
#[derive(Debug)]
struct SharedBody {
    at: usize,
    body: Body,
    sent: usize,
}

impl Output {
    /// Unsent bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.own_len() + self.shared.as_ref().map_or(0, |shared| shared.len)
    }

    /// Whether everything is sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Unsent bytes that this output alone holds: all but shared bodies.
    #[must_use]
    pub fn own_len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Memory that this output alone holds, in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Replies taken in since the connection began.
    #[must_use]
    pub fn replies(&self) -> u64 {
        self.replies
    }

    /// Counts a reply.
    pub(super) fn count_reply(&mut self) {
        self.replies += 1;
    }

    /// Keeps the first `len` unsent bytes, which end with a reply, and forgets the rest.
    pub fn truncate(&mut self, len: usize) {
        let (mut left, mut from) = (len, self.sent);
        if let Some(shared) = &mut self.shared {
            let mut kept = 0;
            for body in &shared.queue {
                let through = (body.at - from) + (body.body.len() - body.sent);
                if left < through {
                    break;
                }
                left -= through;
                from = body.at;
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

    /// Where replies are appended.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Appends a body, which is copied where it is small.
    pub fn push_body(&mut self, body: &Body) {
        match body.share() {
            None => self.bytes.extend_from_slice(body.as_slice()),
            Some(body) => {
                let shared = self.shared.get_or_insert_default();
                shared.len += body.len();
                shared.queue.push_back(SharedBody { at: self.bytes.len(), body, sent: 0 });
            }
        }
    }

    /// Takes the buffer out of an empty output, so that another connection can use it.
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

    /// The unsent bytes where they are in one piece, as they are without shared bodies.
    #[must_use]
    pub fn as_slice(&self) -> Option<&[u8]> {
        self.shared.is_none().then(|| &self.bytes[self.sent..])
    }

    /// The first pieces of what is unsent, not more than `limit` bytes together.
    #[must_use]
    pub fn slices(&self, limit: usize) -> Vec<IoSlice<'_>> {
        let shared = self.shared.iter().flat_map(|shared| &shared.queue);
        let mut slices = Vec::with_capacity(MAX_SLICES);
        let mut left = limit;
        let mut from = self.sent;
        let bodies = shared.map(|shared| (shared.at, &shared.body.as_slice()[shared.sent..]));
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

    /// The socket has taken `count` bytes.
    pub fn advance(&mut self, mut count: usize) {
        while let Some(shared) = &mut self.shared
            && count > 0
        {
            let front = &mut shared.queue[0];
            let step = count.min(front.at - self.sent);
            self.sent += step;
            count -= step;
            if self.sent == front.at {
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
        self.sent += count;
        assert!(self.sent <= self.bytes.len(), "no more is sent than there is");
        if self.is_empty() {
            self.bytes.clear();
            self.sent = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::SHARED_FROM_BYTES;

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
                output.push_body(&body);
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
}

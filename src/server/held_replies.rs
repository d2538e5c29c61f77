//! Replies that must not leave yet, because what they acknowledge is not settled in the binlog.

use std::collections::VecDeque;

use crate::binlog::Position;
use crate::protocol::Reply;
use crate::session::Output;

/// Where in a connection's stream of replies the settled ones end. Without a binlog nobody holds anything.
#[derive(Debug, Default)]
pub struct HeldReplies {
    /// Ascending in every field.
    held: VecDeque<Held>,
    /// Bytes handed to the socket so far.
    sent: u64,
    /// The end of the last settled replies, in bytes and in replies since the connection began.
    settled_bytes: u64,
    settled_replies: u64,
}

/// Replies made while the log stood at `position`.
#[derive(Debug)]
struct Held {
    position: Position,
    end: u64,
    replies: u64,
}

impl HeldReplies {
    /// All that `output` has taken in since the last call rests on the log up to `position`.
    pub fn hold(&mut self, output: &Output, position: Position) {
        let end = self.sent + output.len() as u64;
        let replies = output.replies();
        match self.held.back_mut() {
            Some(last) if last.position == position => (last.end, last.replies) = (end, replies),
            Some(last) if last.end == end => {}
            None if self.settled_bytes == end => {}
            _ => self.held.push_back(Held { position, end, replies }),
        }
    }

    /// How many unsent bytes may leave now that the log is settled up to `settled`.
    pub fn sendable(&mut self, settled: Position) -> usize {
        while let Some(held) = self.held.front().filter(|held| held.position <= settled) {
            (self.settled_bytes, self.settled_replies) = (held.end, held.replies);
            self.held.pop_front();
        }
        (self.settled_bytes - self.sent) as usize
    }

    /// Whether replies wait for the log.
    pub fn any(&self) -> bool {
        !self.held.is_empty()
    }

    /// The socket has taken `count` bytes.
    pub fn advance(&mut self, count: usize) {
        self.sent += count as u64;
    }

    /// The log has failed: each reply that is not settled becomes INTERNAL_ERROR.
    pub fn refuse(&mut self, output: &mut Output) {
        let refused = output.replies() - self.settled_replies;
        output.truncate((self.settled_bytes - self.sent) as usize);
        for _ in 0..refused {
            if output.write(&Reply::InternalError).is_err() {
                // The connection ends all the same.
                break;
            }
        }
        self.held.clear();
        self.settled_bytes = self.sent + output.len() as u64;
        self.settled_replies = output.replies();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_leave_with_the_log_and_are_refused_one_for_one() {
        let (mut holds, mut output) = (HeldReplies::default(), Output::default());
        for position in [1, 1, 2] {
            output.write(&Reply::Deleted).unwrap();
            holds.hold(&output, Position(position));
        }
        assert_eq!(holds.sendable(Position(0)), 0);
        assert_eq!(holds.sendable(Position(1)), 2 * b"DELETED\r\n".len());
        output.advance(4);
        holds.advance(4);
        holds.refuse(&mut output);
        let left: Vec<u8> = output.slices(usize::MAX).iter().flat_map(|slice| slice.to_vec()).collect();
        assert_eq!(left, b"TED\r\nDELETED\r\nINTERNAL_ERROR\r\n");
        assert_eq!(holds.sendable(Position(0)), left.len());
        assert!(!holds.any());
    }
}

//! Replies that must not be sent yet, because the changes that they acknowledge are not settled in the binlog.
//!
//! Owns: for one connection, which unsent replies wait for which record.

use std::collections::VecDeque;

use crate::binlog::SequenceNumber;
use crate::protocol::Reply;
use crate::session::Output;

/// The end of the settled replies among the replies of a connection. Without a binlog no reply is held.
#[derive(Debug, Default)]
pub(crate) struct HeldReplies {
    /// Ascending in every field, replies modulo 2^32.
    held: VecDeque<Held>,
    /// Bytes handed to the socket so far.
    sent: u64,
    /// The end of the last settled replies, in bytes and in replies since the connection began; replies modulo 2^32.
    settled_bytes: u64,
    settled_replies: u32,
}

/// Replies that depend on the records up to `record`.
#[derive(Debug)]
struct Held {
    record: SequenceNumber,
    end: u64,
    replies: u32,
}

impl HeldReplies {
    /// A state in which everything in `output` may be sent.
    pub(crate) fn after(output: &Output) -> Self {
        let (settled_bytes, settled_replies) = (output.len() as u64, output.replies());
        Self { held: VecDeque::new(), sent: 0, settled_bytes, settled_replies }
    }

    /// Everything that was put into `output` since the last call depends on the records up to `record`, unless it
    /// consists of `settled` replies, which depend on no record.
    pub(crate) fn hold(&mut self, output: &Output, record: SequenceNumber, settled: u32) {
        let end = self.sent + output.len() as u64;
        let replies = output.replies();
        let (replies_before, record_before) = self
            .held
            .back()
            .map_or((self.settled_replies, SequenceNumber::default()), |held| (held.replies, held.record));
        let are_settled = settled > 0 && replies.wrapping_sub(replies_before) == settled;
        let record = if are_settled { record_before } else { record };
        match self.held.back_mut() {
            Some(last) if last.record == record => (last.end, last.replies) = (end, replies),
            Some(last) if last.end == end => {}
            None if self.settled_bytes == end => {}
            _ => self.held.push_back(Held { record, end, replies }),
        }
    }

    /// How many unsent bytes can be sent when the records up to `settled` are settled.
    pub(crate) fn sendable(&mut self, settled: SequenceNumber) -> usize {
        while let Some(held) = self.held.front().filter(|held| held.record <= settled) {
            (self.settled_bytes, self.settled_replies) = (held.end, held.replies);
            self.held.pop_front();
        }
        (self.settled_bytes - self.sent) as usize
    }

    /// Whether replies wait for the log.
    pub(crate) fn any(&self) -> bool {
        !self.held.is_empty()
    }

    /// Notes that the socket has taken `count` bytes.
    pub(crate) fn advance(&mut self, count: usize) {
        self.sent += count as u64;
    }

    /// Handles a failure of the log: each reply that is not settled becomes INTERNAL_ERROR.
    pub(crate) fn refuse(&mut self, output: &mut Output) {
        let refused = output.replies().wrapping_sub(self.settled_replies);
        output.truncate((self.settled_bytes - self.sent) as usize);
        for _ in 0..refused {
            if output.write(&Reply::InternalError).is_err() {
                // The connection ends in any case.
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
    fn settled_replies_wait_for_those_before_them_alone() {
        let (mut holds, mut output) = (HeldReplies::default(), Output::default());
        let mut say = |holds: &mut HeldReplies, record, settled| {
            output.write(&Reply::Deleted).unwrap();
            holds.hold(&output, SequenceNumber(record), settled);
            output.len()
        };
        let first = say(&mut holds, 7, 1);
        assert_eq!(holds.sendable(SequenceNumber(0)), first);
        let second = say(&mut holds, 8, 0);
        let third = say(&mut holds, 9, 1);
        assert_eq!(holds.sendable(SequenceNumber(7)), first, "{second}");
        assert_eq!(holds.sendable(SequenceNumber(8)), third);
    }

    #[test]
    fn replies_are_sent_with_the_log_and_refused_one_for_one() {
        let (mut holds, mut output) = (HeldReplies::default(), Output::default());
        for record in [1, 1, 2] {
            output.write(&Reply::Deleted).unwrap();
            holds.hold(&output, SequenceNumber(record), 0);
        }
        assert_eq!(holds.sendable(SequenceNumber(0)), 0);
        assert_eq!(holds.sendable(SequenceNumber(1)), 2 * b"DELETED\r\n".len());
        output.advance(4);
        holds.advance(4);
        holds.refuse(&mut output);
        let left: Vec<u8> = output.slices(usize::MAX).iter().flat_map(|slice| slice.to_vec()).collect();
        assert_eq!(left, b"TED\r\nDELETED\r\nINTERNAL_ERROR\r\n");
        assert_eq!(holds.sendable(SequenceNumber(0)), left.len());
        assert!(!holds.any());
    }
}

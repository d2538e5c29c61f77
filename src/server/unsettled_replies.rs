//! Replies that must not be sent yet, because the changes that they acknowledge are not settled in the binlog.
//!
//! Owns: for one connection, which unsent replies wait for which record.

use std::collections::VecDeque;

use crate::binlog::SequenceNumber;
use crate::exchange::Output;
use crate::protocol::Reply;

/// The end of the settled replies among the replies of a connection. Without a binlog every reply is settled.
#[derive(Debug, Default)]
pub(crate) struct UnsettledReplies {
    /// Ascending in every field, replies modulo 2^32.
    unsettled: VecDeque<Unsettled>,
    /// Bytes handed to the socket so far.
    sent: u64,
    /// The end of the last settled replies, in bytes and in replies since the connection began; replies modulo 2^32.
    settled_bytes: u64,
    settled_replies: u32,
}

/// Replies that depend on the records up to `record`.
#[derive(Debug)]
struct Unsettled {
    record: SequenceNumber,
    end: u64,
    replies: u32,
}

impl UnsettledReplies {
    /// A state in which everything in `output` may be sent.
    pub(crate) fn after(output: &Output) -> Self {
        let (settled_bytes, settled_replies) = (output.len() as u64, output.replies());
        Self { unsettled: VecDeque::new(), sent: 0, settled_bytes, settled_replies }
    }

    /// Everything that was put into `output` since the last call depends on the records up to `record`, unless it
    /// consists of `settled` replies, which depend on no record.
    pub(crate) fn note(&mut self, output: &Output, record: SequenceNumber, settled: u32) {
        let end = self.sent + output.len() as u64;
        let replies = output.replies();
        let (replies_before, record_before) = self
            .unsettled
            .back()
            .map_or((self.settled_replies, SequenceNumber::default()), |last| (last.replies, last.record));
        let are_settled = settled > 0 && replies.wrapping_sub(replies_before) == settled;
        let record = if are_settled { record_before } else { record };
        match self.unsettled.back_mut() {
            Some(last) if last.record == record => (last.end, last.replies) = (end, replies),
            Some(last) if last.end == end => {}
            None if self.settled_bytes == end => {}
            _ => self.unsettled.push_back(Unsettled { record, end, replies }),
        }
    }

    /// How many unsent bytes can be sent when the records up to `settled` are settled.
    pub(crate) fn sendable(&mut self, settled: SequenceNumber) -> usize {
        while let Some(first) = self.unsettled.front().filter(|first| first.record <= settled) {
            (self.settled_bytes, self.settled_replies) = (first.end, first.replies);
            self.unsettled.pop_front();
        }
        (self.settled_bytes - self.sent) as usize
    }

    /// Whether replies wait for the log.
    pub(crate) fn any(&self) -> bool {
        !self.unsettled.is_empty()
    }

    /// Asserts the invariants between two turns; `unsent` is the length of the output.
    pub(crate) fn check_invariants(&self, unsent: usize) {
        let end = self.sent + unsent as u64;
        assert!((self.sent..=end).contains(&self.settled_bytes), "settled replies are sent first");
        assert!(
            self.unsettled.iter().is_sorted_by_key(|one| (one.record, one.end)),
            "later replies wait longer"
        );
        let first = self.unsettled.front().map_or(end, |first| first.end);
        let last = self.unsettled.back().map_or(self.settled_bytes, |last| last.end);
        assert!(
            self.settled_bytes <= first && last == end,
            "each unsent reply is settled or waits for a record"
        );
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
        self.unsettled.clear();
        self.settled_bytes = self.sent + output.len() as u64;
        self.settled_replies = output.replies();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settled_replies_wait_for_those_before_them_alone() {
        let (mut replies, mut output) = (UnsettledReplies::default(), Output::default());
        let mut write = |replies: &mut UnsettledReplies, record, settled| {
            output.write(&Reply::Deleted).unwrap();
            replies.note(&output, SequenceNumber(record), settled);
            output.len()
        };
        let first = write(&mut replies, 7, 1);
        assert_eq!(replies.sendable(SequenceNumber(0)), first);
        let second = write(&mut replies, 8, 0);
        let third = write(&mut replies, 9, 1);
        assert_eq!(replies.sendable(SequenceNumber(7)), first, "{second}");
        assert_eq!(replies.sendable(SequenceNumber(8)), third);
    }

    #[test]
    fn replies_are_sent_with_the_log_and_refused_one_for_one() {
        let (mut replies, mut output) = (UnsettledReplies::default(), Output::default());
        for record in [1, 1, 2] {
            output.write(&Reply::Deleted).unwrap();
            replies.note(&output, SequenceNumber(record), 0);
        }
        assert_eq!(replies.sendable(SequenceNumber(0)), 0);
        assert_eq!(replies.sendable(SequenceNumber(1)), 2 * b"DELETED\r\n".len());
        output.advance(4);
        replies.advance(4);
        replies.refuse(&mut output);
        let left: Vec<u8> = output.slices(usize::MAX).iter().flat_map(|slice| slice.to_vec()).collect();
        assert_eq!(left, b"TED\r\nDELETED\r\nINTERNAL_ERROR\r\n");
        assert_eq!(replies.sendable(SequenceNumber(0)), left.len());
        assert!(!replies.any());
    }
}

//! The way of the replies from a connection's output to its socket.
//!
//! Owns: how much is sent in a turn, and which replies wait for the log.

use std::io::{self, ErrorKind};

use super::{Connection, Sending};
use crate::binlog::SequenceNumber;
use crate::clock::Timestamp;
use crate::poll_token::PollToken;
use crate::protocol::Reply;
use crate::queue::ClientId;
use crate::server::Executor;
use crate::stream::Stream;

impl<S: Stream> Connection<S> {
    /// Whether it is finished: nothing is left to execute or to send.
    pub(crate) fn is_finished(&self) -> bool {
        self.exchange.is_closing() && self.exchange.output.is_empty() && self.sending == Sending::Open
    }

    /// Ends a connection above the limit of its identity, with a reply that says so. If there is no memory for the
    /// reply, the connection ends without it.
    pub(crate) fn refuse_to_connect(&mut self, executor: &mut Executor) {
        executor.count_refused_connection();
        drop(self.exchange.output.write(&Reply::TooManyConnections));
        self.exchange.close();
    }

    /// Makes the replies since the last call wait until everything logged so far is settled, unless all of them are
    /// settled already.
    pub(crate) fn note_unsettled_replies(&mut self, executor: &mut Executor) {
        let settled = executor.persistence.take_settled_replies();
        if let Some(awaited) = executor.persistence.awaited() {
            self.unsettled.get_or_insert_default().note(&self.exchange.output, awaited, settled);
        }
    }

    /// Whether replies wait for the binlog.
    pub(crate) fn has_unsettled_replies(&self) -> bool {
        self.unsettled.as_ref().is_some_and(|unsettled| unsettled.any())
    }

    /// Handles a failure of the binlog: changes that it does not contain are not acknowledged, and the connection ends.
    pub(crate) fn refuse_unsettled(&mut self) {
        if let Some(unsettled) = &mut self.unsettled {
            unsettled.refuse(&mut self.exchange.output);
        }
        self.exchange.close();
    }

    /// How many bytes of the replies depend only on records up to `settled`.
    fn sendable(&mut self, settled: SequenceNumber) -> usize {
        let sendable = self.unsettled.as_mut().map_or(usize::MAX, |unsettled| unsettled.sendable(settled));
        sendable.min(self.exchange.output.len())
    }

    /// Whether it could send more with a larger budget.
    pub(crate) fn can_send(&mut self, settled: SequenceNumber) -> bool {
        self.sending == Sending::Open && self.sendable(settled) > 0
    }

    /// Sends as much as the socket takes, up to the budget, of the replies that depend only on the log up to `settled`;
    /// returns how many bytes that is.
    #[inline]
    pub(crate) fn send(
        &mut self,
        id: ClientId,
        settled: SequenceNumber,
        now: Timestamp,
    ) -> io::Result<usize> {
        let budget = self.budget.limits().send_bytes;
        let mut left = budget;
        while self.sending == Sending::Open && left > 0 {
            let sendable = self.sendable(settled).min(left);
            if sendable == 0 {
                break;
            }
            let output = &self.exchange.output;
            let sent = match output.as_slice() {
                Some(bytes) => self.stream.write(&bytes[..sendable]),
                None => self.stream.write_vectored(&output.slices(sendable)),
            };
            match sent {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => {
                    left -= sent;
                    self.note_activity(now);
                    self.exchange.output.advance(sent);
                    self.unsettled.iter_mut().for_each(|unsettled| unsettled.advance(sent));
                }
                Err(error) => self.cannot_send(id, error)?,
            }
        }
        if self.is_finished()
            && let Err(error) = self.stream.finish()
        {
            self.cannot_send(id, error)?;
        }
        Ok(budget - left)
    }

    /// Waits for room if the write failed because there was none. Any other error is returned, unless the write can be
    /// repeated.
    fn cannot_send(&mut self, id: ClientId, error: io::Error) -> io::Result<()> {
        if error.kind() == ErrorKind::WouldBlock {
            self.sending = Sending::Blocked;
            self.stream.await_writable(PollToken::Client(id), true);
        } else if error.kind() != ErrorKind::Interrupted {
            return Err(error);
        }
        Ok(())
    }
}

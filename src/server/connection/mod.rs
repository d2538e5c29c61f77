//! A connection: the socket of a client with its exchange.
//!
//! Owns: the readiness of the socket, the two system calls, the budget of the client in a turn, and which of the
//! server's lists must contain it after its commands. Events are edge-triggered, so their readiness is latched here:
//! the input is ready until a read finds nothing more, and the socket is full until the poll reports room again.
//! `sending` has the way of the replies. Driven by the server.

mod counted_bytes;
mod sending;

use std::io::ErrorKind;

use zeroize::Zeroize;

use self::counted_bytes::CountedBytes;
use super::Executor;
use super::budget::{Budget, RECORD_COST};
use super::buffers::BufferPool;
use super::client_lists::{ClientLists, Lists, WaitList, enlist};
use super::unsettled_replies::UnsettledReplies;
use crate::clock::{NS_PER_S, Timestamp};
use crate::commands;
use crate::exchange::{Activity, Exchange, MAX_OUTPUT_BYTES, Stop, Unfinished, Until, WaitKind};
use crate::executor::Continuation;
use crate::poll_token::PollToken;
use crate::protocol::{MAX_PUT_LINE_BYTES, Reply};
use crate::queue::{ClientId, WaitOutcome};
use crate::stats::ConnectionView;
use crate::stream::{Handle, Stream};
use crate::tls::Decryption;

/// Bytes read at a time when memory is low, because the server may have to keep what it has read.
const LOW_MEMORY_READ_BYTES: usize = 4 * 1024;

/// The events that the poll has reported about a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// There is something to read.
    pub readable: bool,
    /// The socket takes bytes again.
    pub writable: bool,
    /// The client will send no more.
    pub read_closed: bool,
    /// The connection is broken, or the client takes nothing more. There may still be input from it.
    pub failed: bool,
}

/// The state of the input, which decides whether to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InputState {
    /// There is nothing to read until the poll reports input.
    Quiet,
    /// There may be bytes.
    Ready,
    /// The client will send no more. Bytes that it has sent may still have to be read.
    HalfClosed,
    /// Everything that the client has sent has been read.
    Ended,
    /// A read has failed: the connection ends at once.
    Failed,
}

/// Whether the socket takes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    Open,
    /// The socket is full; the poll will report when it is not.
    Blocked,
}

// In a debug build, the sockets of mio are larger.
#[cfg(all(target_pointer_width = "64", not(debug_assertions)))]
const _: () =
    assert!(size_of::<Connection<crate::stream::Socket>>() <= 160, "a connection is a block of 160 bytes");

/// A client's socket and exchange.
#[derive(Debug)]
pub(crate) struct Connection<S> {
    stream: S,
    /// The decoder of the client's input, and the replies that have not been sent yet.
    pub exchange: Exchange<Continuation>,
    input: InputState,
    sending: Sending,
    budget: Budget,
    /// The server's lists that contain this connection.
    pub listed: Lists,
    /// When a byte last came or went.
    pub active_at: Timestamp,
    /// When it was made, in seconds: the block has room for only 32 bits.
    connected_s: u32,
    /// Which replies may be sent; only with a binlog.
    unsettled: Option<Box<UnsettledReplies>>,
    /// The generation of its [`ClientId`], because earlier clients had the same index.
    generation: u32,
    /// How many bytes of this connection are in the sum over all buffers.
    counted_bytes: CountedBytes,
}

impl<S: Stream> Connection<S> {
    /// The connection of a new client.
    pub(crate) fn new(id: ClientId, stream: S, now: Timestamp) -> Self {
        Self {
            stream,
            exchange: Exchange::default(),
            input: InputState::Quiet,
            sending: Sending::Open,
            budget: Budget::Burst,
            listed: Lists::default(),
            active_at: now,
            connected_s: whole_seconds(now),
            unsettled: None,
            generation: id.generation,
            counted_bytes: CountedBytes::default(),
        }
    }

    /// Whether this is the connection of that client.
    pub(crate) fn belongs_to(&self, id: ClientId) -> bool {
        self.generation == id.generation
    }

    /// The id of the client whose connection is at this index.
    pub(crate) fn id_at(&self, index: usize) -> ClientId {
        ClientId { index: index as u32, generation: self.generation }
    }

    /// Latches the poll's report for this client; returns whether the socket takes bytes again.
    #[inline]
    pub(crate) fn notice(&mut self, id: ClientId, readiness: Readiness) -> bool {
        let Readiness { readable, writable, read_closed, failed } = readiness;
        if !self.listed.contains(Lists::SCHEDULED) {
            self.budget = if self.has_work() { Budget::Sustained } else { Budget::Burst };
        }
        // Commands that the client sent before its connection broke are still executed; then a read or a write fails,
        // and the connection ends. On a unix socket, every client that closes has "failed".
        if (read_closed || failed) && matches!(self.input, InputState::Quiet | InputState::Ready) {
            self.input = InputState::HalfClosed;
        } else if self.input == InputState::Quiet && (readable || writable && self.stream.wants_write()) {
            self.input = InputState::Ready;
        }
        let has_room = self.sending == Sending::Blocked && (writable || failed);
        if has_room {
            self.sending = Sending::Open;
            self.stream.await_writable(PollToken::Client(id), false);
        }
        has_room
    }

    /// Whether the TLS handshake of the client is in progress.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.stream.is_handshaking()
    }

    /// Whether the client has not been identified yet.
    pub(crate) fn awaits_log_in(&self, executor: &Executor, id: ClientId) -> bool {
        self.is_handshaking() || executor.is_unknown(id)
    }

    /// Whether the client has shown a certificate.
    pub(crate) fn has_certificate(&self) -> bool {
        self.stream.peer_certificate().is_some()
    }

    /// Whether the certificate would be accepted now.
    pub(crate) fn is_certificate_good(&self) -> bool {
        self.stream.is_certificate_good()
    }

    /// Whether the last turn left something to read, execute or send.
    fn has_work(&self) -> bool {
        self.may_read() || self.exchange.has_pending() || !self.exchange.output.is_empty()
    }

    fn may_read(&self) -> bool {
        matches!(self.input, InputState::Ready | InputState::HalfClosed)
    }

    /// Whether there is something to do for it now, without another event. Such a connection is in the list of turns.
    #[inline]
    pub(crate) fn is_runnable(&self) -> bool {
        match self.exchange.unfinished() {
            None => (self.may_read() || self.exchange.has_pending()) && !self.exchange.is_blocked(),
            Some(command) => self.is_runnable_within(command),
        }
    }

    /// Whether there is something to do for it although a command of it has not ended.
    #[inline(never)]
    fn is_runnable_within(&self, command: &Unfinished<Continuation>) -> bool {
        match *command {
            Unfinished::Stalled { until: Until::NextTurn, .. } => true,
            // Its put is abandoned.
            Unfinished::Stalled { until: Until::PutPace, .. } => self.input == InputState::HalfClosed,
            Unfinished::Stalled { until: Until::BinlogRoom | Until::TubeList, .. } => false,
            Unfinished::Waiting(kind) if kind.is_abortable() => {
                !self.exchange.is_over_bound() && (self.may_read() || self.exchange.has_pending())
            }
            Unfinished::Waiting(_) => self.input == InputState::HalfClosed,
        }
    }

    /// Notes that it had more work than its budget allowed.
    pub(crate) fn exhaust_budget(&mut self) {
        self.budget = Budget::Sustained;
    }

    /// Whether it must end at once: its socket has failed, or there is no memory for it.
    pub(crate) fn has_failed(&self) -> bool {
        self.input == InputState::Failed || self.exchange.is_aborted()
    }

    /// Resumes an unfinished command, then reads once and executes commands, up to the budget. If the server is
    /// `GUARDED`, the access rules check each command.
    #[inline]
    pub(crate) fn serve<const GUARDED: bool>(
        &mut self,
        executor: &mut Executor,
        buffer: &mut [u8],
        id: ClientId,
        now: Timestamp,
    ) {
        self.resume(executor, id, now);
        // Input that was read before comes first: it may use up the whole budget.
        if let Some(mut pending) = self.exchange.take_pending() {
            let mut rest = pending.bytes();
            let stop = self.execute::<GUARDED>(executor, &mut rest, id, now);
            let left = rest.len();
            if GUARDED && executor.take_read_token() {
                pending.wipe(left);
            }
            self.exchange.put_back(pending, left, stop);
        } else {
            let mut filled = self.exchange.restore(buffer);
            if self.may_read() && (self.may_abort(executor, id) || self.unblock(executor, id, false)) {
                self.read(executor, buffer, &mut filled, now);
                if filled == 0 {
                    executor.count_input_without_request(0);
                }
                if GUARDED {
                    self.end_handshake(executor, id, now);
                }
                if self.input == InputState::Ended {
                    if self.exchange.is_waiting() {
                        self.cancel_wait(executor, id, &Reply::TimedOut);
                    }
                    // The rest of the input is an incomplete command, and will stay incomplete.
                    self.exchange.close();
                }
            }
            let mut rest = &buffer[..filled];
            let stop = self.execute::<GUARDED>(executor, &mut rest, id, now);
            self.exchange.keep(rest, stop);
            if GUARDED && executor.take_read_token() {
                buffer[..filled].zeroize();
            }
        }
        if GUARDED && self.exchange.stalled_until() == Some(Until::PutPace) && self.is_half_closed(executor) {
            self.resume(executor, id, now);
        }
    }

    /// Serves the client as `serve` does, while no new command may be executed: commands in progress continue, and
    /// waits end.
    #[cold]
    pub(crate) fn serve_paused(&mut self, executor: &mut Executor, id: ClientId, now: Timestamp) {
        self.resume(executor, id, now);
        self.end_wait_if_over(executor, id, false);
    }

    /// Resumes a stalled command.
    #[inline(always)]
    fn resume(&mut self, executor: &mut Executor, id: ClientId, now: Timestamp) {
        let Some(until) = self.exchange.stalled_until() else { return };
        if until == Until::PutPace && self.is_half_closed(executor) {
            executor.note_end(id);
        }
        if let Some(continuation) = self.exchange.take_continuation() {
            let outcome = commands::resume(executor, id, continuation, &mut self.exchange.output, now);
            self.exchange.apply(outcome);
        }
    }

    /// Executes the commands in `input`, up to the budget, and removes them from it.
    fn execute<const GUARDED: bool>(
        &mut self,
        executor: &mut Executor,
        input: &mut &[u8],
        id: ClientId,
        now: Timestamp,
    ) -> Stop {
        let end_of_budget = executor.measured_cost() + self.budget.limits().cost;
        let arrived = input.len();
        let mut has_budget = true;
        loop {
            // Also checked after the last request: the wait that it began may already be over.
            if !self.unblock(executor, id, !input.is_empty()) || !has_budget {
                return Stop::CutShort;
            }
            // Most inputs end with a request; then there is no further one to look for.
            if input.is_empty() {
                return Stop::WantsInput;
            }
            let Some(request) = self.exchange.next_request(input) else {
                // Only a line of `delete-batch` can be so long.
                if input.len() >= MAX_PUT_LINE_BYTES && executor.lacks_memory_for_long_line() {
                    self.exchange.give_up_line(input);
                }
                executor.count_input_without_request(arrived);
                return Stop::WantsInput;
            };
            let outcome = commands::execute::<GUARDED>(executor, id, request, &mut self.exchange.output, now);
            self.exchange.apply(outcome);
            has_budget = executor.measured_cost() < end_of_budget;
        }
    }

    /// Ends a wait that is over. Returns whether the next request may be executed; `has_input` says whether bytes of it
    /// have arrived.
    #[inline]
    fn unblock(&mut self, executor: &mut Executor, id: ClientId, has_input: bool) -> bool {
        !self.exchange.is_blocked() || self.end_wait_if_over(executor, id, has_input)
    }

    /// The one place where a wait ends because its client will send no more (protocol, "reserve"), or because it has
    /// sent something (protocol, "reserve-with-abort"). Returns whether requests may be executed now.
    #[cold]
    fn end_wait_if_over(&mut self, executor: &mut Executor, id: ClientId, has_input: bool) -> bool {
        let Some(wait) = self.exchange.wait_kind() else { return false };
        if wait.is_abortable() {
            return has_input && self.cancel_wait(executor, id, &Reply::Aborted);
        }
        self.is_half_closed(executor) && self.cancel_wait(executor, id, &Reply::TimedOut)
    }

    /// Whether the client will send no more than what has arrived.
    fn is_half_closed(&mut self, executor: &mut Executor) -> bool {
        if self.input == InputState::Ready {
            if self.stream.look_for_end() {
                self.input = InputState::HalfClosed;
            }
            if let Some(decryption) = self.stream.decryption() {
                executor.count_cost(1 + decryption.records * RECORD_COST);
            }
        }
        self.input == InputState::HalfClosed
    }

    /// Whether the client waits in a reserve that ends at its next byte, and has read enough of its replies that the
    /// server may read the byte.
    fn awaits_abort(&self) -> bool {
        self.exchange.wait_kind().is_some_and(WaitKind::is_abortable) && !self.exchange.is_over_bound()
    }

    /// As `awaits_abort`, if no answer is about to be delivered. Only a read shows whether there is a byte, even if the
    /// client will send no more.
    fn may_abort(&self, executor: &Executor, id: ClientId) -> bool {
        self.awaits_abort() && executor.queue().is_waiting(id)
    }

    /// Ends the wait, unless its answer is about to be delivered; returns whether requests may be executed now.
    fn cancel_wait(&mut self, executor: &mut Executor, id: ClientId, reply: &Reply<'_>) -> bool {
        if let Some(outcome) = commands::cancel_wait(executor, id, reply, &mut self.exchange.output) {
            self.exchange.take_wait();
            self.exchange.apply(outcome);
        }
        !self.exchange.is_blocked()
    }

    /// Identifies the client, if its certificate does; the certificate is known from the end of the handshake on.
    fn end_handshake(&mut self, executor: &mut Executor, id: ClientId, now: Timestamp) {
        if executor.awaits_certificate(id)
            && !self.is_handshaking()
            && !executor.end_handshake(id, self.stream.peer_certificate(), now)
        {
            self.refuse_to_connect(executor);
        }
    }

    /// Ends the wait without a job.
    pub(crate) fn end_wait(&mut self, executor: &mut Executor, id: ClientId) {
        self.cancel_wait(executor, id, &Reply::TimedOut);
    }

    /// Answers the wait, unless the exchange was closed in the meantime.
    pub(crate) fn answer_wait(
        &mut self,
        executor: &mut Executor,
        id: ClientId,
        end: WaitOutcome,
        now: Timestamp,
    ) {
        debug_assert!(
            self.exchange.is_waiting() || self.exchange.is_closing(),
            "the connection waits for an answer"
        );
        if let Some(kind) = self.exchange.take_wait() {
            let outcome = commands::answer_wait(executor, id, kind, end, &mut self.exchange.output, now);
            self.exchange.apply(outcome);
        }
    }

    /// Whether another program can take it over now.
    pub(crate) fn is_quiet(&self) -> bool {
        let can_continue = match self.exchange.unfinished() {
            Some(Unfinished::Stalled { continuation, .. }) => continuation.is_described(),
            Some(Unfinished::Waiting(_)) | None => true,
        };
        can_continue && !self.has_unsettled_replies()
    }

    /// The handle with which another program takes over its socket; `None` if it owes its client too much, or has TLS.
    pub(crate) fn handle(&self) -> Option<Handle> {
        self.stream.handle().filter(|_| self.exchange.output.len() <= MAX_OUTPUT_BYTES)
    }

    /// Continues an exchange that another program has described, and all of whose replies may be sent.
    pub(crate) fn adopt(&mut self, exchange: Exchange<Continuation>, connected_s: u32, has_binlog: bool) {
        self.connected_s = connected_s;
        if has_binlog && !exchange.output.is_empty() {
            self.unsettled = Some(Box::new(UnsettledReplies::after(&exchange.output)));
        }
        self.exchange = exchange;
    }

    /// When it was made, in whole seconds.
    pub(crate) fn connected_s(&self) -> u32 {
        self.connected_s
    }

    /// Values of the connection for `list-clients`.
    pub(crate) fn view(&self, now: Timestamp) -> ConnectionView {
        let idle_s = now.since_s(self.active_at);
        let activity = if self.is_handshaking() { Activity::Receiving } else { self.exchange.activity() };
        ConnectionView {
            address: self.stream.peer(),
            age_s: whole_seconds(now).wrapping_sub(self.connected_s).into(),
            idle_s,
            state: activity.as_str(),
            // While a client waits, the server may still send it earlier replies.
            waiting_s: if activity == Activity::Waiting { idle_s } else { 0 },
            memory_bytes: self.counted_bytes() as u64,
            commands: self.exchange.line_count(),
        }
    }

    /// How many of its bytes are in the sum over all buffers.
    pub(crate) fn counted_bytes(&self) -> usize {
        self.counted_bytes.get()
    }

    /// Files it after commands of its client: with those that await the same event as its stalled command, with those
    /// that have replies, and with those that can continue without an event. Notes the record for which its replies
    /// wait, and counts its memory. Returns whether it can continue.
    #[inline(always)]
    pub(crate) fn refile(
        &mut self,
        id: ClientId,
        lists: &mut ClientLists,
        executor: &mut Executor,
        buffers: &mut BufferPool,
    ) -> bool {
        if let Some(list) = self.exchange.stalled_until().and_then(WaitList::of_those_awaiting) {
            lists.wait(list, id, &mut self.listed);
        }
        self.note_unsettled_replies(executor);
        if self.exchange.output.is_empty() && !self.exchange.is_closing() {
            buffers.reclaim(&mut self.exchange.output);
        } else {
            lists.send(id, &mut self.listed);
        }
        self.count_bytes(executor.buffer_bytes());
        let can_continue = self.is_runnable();
        if can_continue {
            let queue = if self.is_handshaking() { &mut lists.handshaking } else { &mut lists.runnable };
            enlist(queue, Lists::SCHEDULED, id, &mut self.listed);
        }
        can_continue
    }

    /// Asserts the invariants of a connection between two turns.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub(crate) fn check_invariants(&self) {
        self.exchange.check_invariants();
        let output = &self.exchange.output;
        assert!(!self.has_failed(), "a connection that has failed is closed");
        assert!(!self.is_finished(), "a connection that is over is closed");
        assert!(
            self.input != InputState::Ended || self.exchange.is_closing(),
            "no command is executed after the end of the input"
        );
        let owes_something = !output.is_empty() || self.exchange.is_closing();
        assert!(self.sending == Sending::Open || owes_something, "a full socket has replies to wait for");
        assert_eq!(
            self.counted_bytes,
            CountedBytes::new(self.exchange.memory_bytes()),
            "the memory of the exchange is counted"
        );
        assert!(
            !self.is_runnable() || self.listed.contains(Lists::SCHEDULED),
            "a connection that can continue is in the list of turns"
        );
        if let Some(list) = self.exchange.stalled_until().and_then(WaitList::of_those_awaiting) {
            assert!(self.listed.contains(list.flag()) || self.listed.contains(Lists::SCHEDULED));
        }
        self.unsettled.iter().for_each(|unsettled| unsettled.check_invariants(output.len()));
        if self.has_unsettled_replies() {
            assert!(self.listed.contains(Lists::UNSETTLED_REPLIES) || self.listed.contains(Lists::UNSENT));
        } else if !output.is_empty() && self.sending == Sending::Open {
            assert!(self.listed.contains(Lists::UNSENT), "replies that may leave are to be sent");
        }
    }

    /// Reads once: into `buffer` after its first `filled` bytes, or directly into a large body.
    #[inline(always)]
    fn read(&mut self, executor: &mut Executor, buffer: &mut [u8], filled: &mut usize, now: Timestamp) {
        let (result, room) = if let Some((body, room)) = self.exchange.body_room() {
            let room = room.min(Budget::Sustained.limits().read_bytes);
            (self.stream.read_into(body, room), room)
        } else {
            let is_memory_low = self.exchange.is_memory_low;
            let max_bytes =
                if is_memory_low { LOW_MEMORY_READ_BYTES } else { self.budget.limits().read_bytes };
            let room = (buffer.len() - *filled).min(max_bytes);
            let result = self.stream.read(&mut buffer[*filled..*filled + room]);
            *filled += *result.as_ref().unwrap_or(&0);
            (result, room)
        };
        if matches!(result, Ok(1..)) {
            self.note_activity(now);
        }
        self.input = match (result, self.input) {
            (Ok(0), _) => InputState::Ended,
            // A short read has emptied the socket, and the next bytes cause a new event.
            (Ok(read), InputState::Ready) if read < room => InputState::Quiet,
            (Ok(_), input) => input,
            (Err(error), input) if error.kind() == ErrorKind::Interrupted => input,
            // There is no input, and none will come.
            (Err(error), InputState::HalfClosed) if error.kind() == ErrorKind::WouldBlock => {
                InputState::Ended
            }
            (Err(error), _) if error.kind() == ErrorKind::WouldBlock => InputState::Quiet,
            (Err(_), _) => InputState::Failed,
        };
        if let Some(decryption) = self.stream.decryption() {
            self.note_decryption(decryption, executor);
        }
    }

    /// Counts the records of a read, and notes what has come of the rest of the input.
    #[inline(never)]
    fn note_decryption(&mut self, decryption: Decryption, executor: &mut Executor) {
        // The cost of a request includes a record.
        executor.count_cost(decryption.records.saturating_sub(1) * RECORD_COST);
        if self.input == InputState::Quiet {
            // Neither the end within TLS, nor the bytes that the read has left, will cause an event.
            if decryption.has_ended {
                self.input = InputState::HalfClosed;
            } else if decryption.may_have_more {
                self.input = InputState::Ready;
            }
        }
    }

    /// Notes that a byte has come or gone.
    fn note_activity(&mut self, now: Timestamp) {
        self.active_at = now;
    }

    /// Updates this connection's part of `sum`, the bytes that all connections hold.
    pub(crate) fn count_bytes(&mut self, sum: &mut usize) {
        self.uncount_bytes(sum);
        self.counted_bytes = CountedBytes::new(self.exchange.memory_bytes());
        *sum += self.counted_bytes();
    }

    /// Takes this connection's part out of `sum`.
    pub(crate) fn uncount_bytes(&mut self, sum: &mut usize) {
        *sum -= std::mem::take(&mut self.counted_bytes).get();
    }
}

/// An instant as a connection keeps it.
fn whole_seconds(at: Timestamp) -> u32 {
    (at.0 / NS_PER_S) as u32
}

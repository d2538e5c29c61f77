//! The commands and the replies of a connection, without its socket.
//!
//! Owns: the unsent bytes, the received bytes that have not been parsed, the order of the commands without replies, and
//! which of them are sent again when the connection is lost. Never reads, writes or waits.

use std::collections::VecDeque;
use std::mem;
use std::time::{Duration, Instant};

use beanstalkd_protocol::{Command, FieldList, Received, Refusal, Reply, Verb, parse_dictionary};
use beanstalkd_types::seconds::Seconds;

use super::connection_state::{ConnectionState, StateChange};
use super::data::Extensions;
use super::input::{Input, MAX_KEPT_BYTES};
use super::request::{Repeat, Request, extension_of, is_reserve};
use crate::error::Error;

mod strays;

pub(crate) use strays::Strays;

/// The maximum number of bytes of commands without replies. A server whose replies are not read stops reading: then
/// these bytes must fit into the kernel's buffers, about 200 KB by default, or each side waits for the other.
const MAX_OUTSTANDING_BYTES: usize = 32 * 1024;

/// The sizes of a read: for one reply, and for many or a large one.
const MIN_READ_BYTES: usize = 4 * 1024;
const MAX_READ_BYTES: usize = 64 * 1024;

/// The first bytes of a TLS alert, with which a TLS server answers a plain command. No reply begins with them.
const TLS_ALERT: &[u8] = &[0x15, 0x03];

/// The use of the reply to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ReplyUse {
    /// The caller gets the reply.
    Awaited,
    /// There will be no reply: the connection was lost, and the command must not be sent again.
    Unconfirmed,
    /// There will be no reply: the server of the new connection lacks this extension, and would misunderstand the
    /// command.
    Unsupported(Box<str>),
    /// The caller no longer waits for the reply. A job in it is kept.
    Abandoned,
    /// The reply belongs to the greeting of a new connection.
    Greeting,
}

/// A command whose reply has not come.
#[derive(Debug)]
struct Sent {
    verb: Verb,
    bytes: usize,
    longest_wait: Option<Seconds>,
    repeat: Repeat,
    /// Boxed, because few commands change the state of the connection.
    change: Option<Box<StateChange>>,
    reply_use: ReplyUse,
    /// The extensions without which a server would misunderstand it.
    required_extensions: Vec<Box<str>>,
    /// Whether it was sent on a connection that was lost, so that a server may have executed it.
    may_be_done: bool,
}

/// A reply, and the fields in its RESERVED lines.
pub(crate) type Answer<'a> = (Reply<'a>, FieldList);

/// One side of a connection: commands go in and bytes come out; bytes go in and replies come out.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    input: Input,
    /// The length of the next reply, if it is known to be complete.
    next: Option<usize>,
    /// Encoded commands. The first `answered` bytes have replies, the first `written` ones were sent or will not be:
    /// `answered` ≤ `written` ≤ the length.
    output: Vec<u8>,
    answered: usize,
    written: usize,
    /// The commands without replies. Their bytes are exactly the bytes after `answered`. A command that will have no
    /// reply has no bytes.
    outstanding: VecDeque<Sent>,
    /// The state for the greeting of a new connection.
    pub state: ConnectionState,
    /// The jobs of reserves whose callers no longer waited.
    pub strays: Strays,
    /// Whether the connection has ever reserved a job.
    has_reserved: bool,
    /// The connection takes no more bytes, but there may be some to read: the last messages of the server before it
    /// closed the connection are a better reason than that.
    is_closed_for_writes: bool,
    /// Whether there is a command that may be sent again only until some time has passed: see [`Sent::is_limited`].
    has_limited: bool,
    /// When the driver began to wait for the next byte that is sent or received; `None` if it does not wait.
    waits_since: Option<Instant>,
}

impl Exchange {
    /// An exchange that begins with the greeting for `state`.
    pub(crate) fn new(state: ConnectionState) -> Self {
        let mut exchange = Self { state, ..Self::default() };
        exchange.greet();
        exchange
    }

    fn greet(&mut self) {
        let mut state = mem::take(&mut self.state);
        state.begin_again();
        state.for_each_command(|command| self.push_as(&Request::Line(command), ReplyUse::Greeting));
        self.state = state;
    }

    /// Adds a command.
    pub(crate) fn push(&mut self, request: &Request<'_>) {
        self.push_as(request, ReplyUse::Awaited);
    }

    fn push_as(&mut self, request: &Request<'_>, reply_use: ReplyUse) {
        let start = self.output.len();
        request.encode(&mut self.output);
        let change = match request {
            Request::Line(command) if reply_use == ReplyUse::Awaited => {
                StateChange::of(command).map(Box::new)
            }
            Request::Line(_) | Request::Put(..) | Request::Complete(..) | Request::PageAfter(..) => None,
        };
        self.outstanding.push_back(Sent {
            verb: request.verb(),
            bytes: self.output.len() - start,
            longest_wait: request.longest_wait(),
            repeat: request.repeat(),
            change,
            reply_use,
            required_extensions: request.required_extensions().map(Box::from).collect(),
            may_be_done: false,
        });
    }

    fn outstanding_bytes(&self) -> usize {
        self.output.len() - self.answered
    }

    /// Whether replies should be read before another command is added.
    pub(crate) fn is_full(&self) -> bool {
        self.outstanding_bytes() > MAX_OUTSTANDING_BYTES
    }

    /// Whether enough replies have been read after [`Self::is_full`], so that the next commands can be sent together.
    pub(crate) fn has_room(&self) -> bool {
        self.outstanding_bytes() <= MAX_OUTSTANDING_BYTES / 2 || self.is_idle()
    }

    /// Whether no command waits for a reply.
    fn is_idle(&self) -> bool {
        self.outstanding.is_empty()
    }

    /// Whether no command waits for a reply, and the connection has never reserved a job.
    pub(crate) fn is_unused(&self) -> bool {
        self.is_idle() && !self.has_reserved
    }

    /// Whether a caller waits for the result of a command. The results of earlier callers come before it.
    pub(crate) fn has_caller(&self) -> bool {
        let is_awaited =
            |reply_use: &ReplyUse| *reply_use == ReplyUse::Awaited || reply_use.is_without_reply();
        self.outstanding.back().is_some_and(|last| is_awaited(&last.reply_use))
    }

    /// Whether a reserve has no reply whose caller no longer waits for it.
    pub(crate) fn has_abandoned_reserve(&self) -> bool {
        let earlier = self
            .outstanding
            .iter()
            .take_while(|sent| matches!(sent.reply_use, ReplyUse::Greeting | ReplyUse::Abandoned));
        earlier.filter(|sent| sent.reply_use == ReplyUse::Abandoned).any(|sent| is_reserve(sent.verb))
    }

    /// Whether the server has accepted the whole greeting of a new connection.
    pub(crate) fn is_greeted(&self) -> bool {
        self.outstanding.iter().all(|sent| sent.reply_use != ReplyUse::Greeting)
    }

    /// The bytes that can be sent now. A command that exceeds the limit is sent alone.
    pub(crate) fn unsent(&self) -> &[u8] {
        if self.is_closed_for_writes {
            return &[];
        }
        let first = self.outstanding.front().map_or(0, |sent| sent.bytes);
        let end = self.end_of_sendable().min(self.answered + MAX_OUTSTANDING_BYTES.max(first));
        self.output.get(self.written..end).unwrap_or_default()
    }

    /// The end of the commands that need not wait for what the server offers.
    fn end_of_sendable(&self) -> usize {
        let mut end = self.answered;
        for sent in self.greeting() {
            end += sent.bytes;
            if sent.verb == Verb::Stats {
                return end;
            }
        }
        self.output.len()
    }

    /// The commands of the greeting that have no reply yet.
    fn greeting(&self) -> impl Iterator<Item = &Sent> {
        self.outstanding.iter().take_while(|sent| sent.reply_use == ReplyUse::Greeting)
    }

    /// Notes that this many unsent bytes were sent.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.written += bytes;
        self.waits_since.take_if(|_| bytes > 0);
    }

    /// Notes that the connection takes no more bytes.
    pub(crate) fn close_for_writes(&mut self) {
        self.is_closed_for_writes = true;
    }

    /// When the wait for the next byte began: now, if the driver did not wait.
    pub(crate) fn waits_since(&mut self, now: Instant) -> Instant {
        *self.waits_since.get_or_insert(now)
    }

    /// Notes that the driver no longer waits: its next wait has a beginning of its own.
    pub(crate) fn stop_waiting(&mut self) {
        self.waits_since = None;
    }

    /// How many seconds the server may wait before it sends the next reply; `None` if there is no limit.
    pub(crate) fn longest_wait(&self) -> Option<Seconds> {
        self.outstanding.front().map_or(Some(Seconds::ZERO), |sent| sent.longest_wait)
    }

    /// Room for a read, if this many bytes are missing.
    pub(crate) fn room(&mut self, missing: usize) -> &mut [u8] {
        let usual = if self.outstanding.len() > 1 { MAX_READ_BYTES } else { MIN_READ_BYTES };
        self.input.room(missing.clamp(usual, MAX_READ_BYTES))
    }

    /// Notes that this many bytes were received into that room.
    pub(crate) fn received(&mut self, bytes: usize) {
        self.input.received(bytes);
        self.waits_since.take_if(|_| bytes > 0);
    }

    /// Handles the received replies up to the next one for the caller, and returns how many bytes are missing for that
    /// one; 0 if it is complete.
    ///
    /// # Errors
    /// If the bytes do not follow the protocol, or if the server refuses a part of the greeting.
    pub(crate) fn receive_next(&mut self) -> Result<usize, Error> {
        loop {
            let reply_use = self.outstanding.front().map_or(ReplyUse::Awaited, |sent| sent.reply_use.clone());
            if reply_use.is_without_reply() {
                return Ok(0);
            }
            let input = self.input.unread();
            if input.is_empty() {
                return Ok(1);
            }
            if input.starts_with(TLS_ALERT) {
                return Err(Error::SpeaksTls);
            }
            let received = Reply::read(input)?;
            if let Received::Whole(reply, _) = &received
                && self.is_too_early()
            {
                return Err(Error::unasked(reply));
            }
            match (received, reply_use) {
                (Received::Needs(bytes), _) => return Ok(bytes - input.len()),
                (Received::Whole(_, taken), ReplyUse::Awaited) => {
                    self.next = Some(taken);
                    return Ok(0);
                }
                (Received::Whole(reply, taken), ReplyUse::Greeting) => {
                    let extensions = agreed(self.outstanding[0].verb, &reply)?;
                    // A server that was restarted without a log has nothing of the session.
                    if reply == Reply::Session(0) {
                        self.strays.clear();
                    }
                    self.take(taken);
                    if let Some(extensions) = extensions {
                        self.give_up_unsent(|sent| sent.use_with(&extensions));
                    }
                }
                (
                    Received::Whole(reply, taken),
                    ReplyUse::Abandoned | ReplyUse::Unconfirmed | ReplyUse::Unsupported(_),
                ) => {
                    self.strays.keep(&reply, self.state.fields());
                    self.has_reserved |= !self.strays.is_empty();
                    let is_done = reply.refusal().is_none();
                    let change = self.take(taken).and_then(|sent| sent.change);
                    change.filter(|_| is_done).into_iter().for_each(|change| self.state.apply(*change));
                }
            }
        }
    }

    /// Whether no reply can come yet, because the next command was not sent to its end.
    fn is_too_early(&self) -> bool {
        let first = self.outstanding.front();
        !self.is_closed_for_writes && first.is_some_and(|sent| self.answered + sent.bytes > self.written)
    }

    /// Marks the bytes of a reply as read and its command as answered.
    fn take(&mut self, taken: usize) -> Option<Sent> {
        self.input.skip(taken);
        let sent = self.outstanding.pop_front()?;
        self.answered += sent.bytes;
        // A connection that takes no more bytes can still have a reply to a command that was not sent to its end.
        self.written = self.written.max(self.answered);
        debug_assert!(self.written <= self.output.len(), "only bytes of commands have replies, or are sent");
        if self.answered == self.output.len() {
            self.output.clear();
            self.output.shrink_to(MAX_KEPT_BYTES);
            (self.answered, self.written) = (0, 0);
        } else if self.answered > 2 * MAX_OUTSTANDING_BYTES {
            self.output.drain(..self.answered);
            self.written -= self.answered;
            self.answered = 0;
        }
        Some(sent)
    }

    /// The command of the next reply.
    pub(crate) fn next_verb(&self) -> Option<Verb> {
        self.outstanding.front().map(|sent| sent.verb)
    }

    /// The next reply, which is complete if [`Self::receive_next`] has returned 0.
    ///
    /// # Errors
    /// If the bytes do not follow the protocol, or if there will be no reply.
    pub(crate) fn next_reply(&mut self) -> Result<Option<Answer<'_>>, Error> {
        let is_without_reply = self.outstanding.front().is_some_and(|sent| sent.reply_use.is_without_reply());
        if let Some(sent) = is_without_reply.then(|| self.outstanding.pop_front()).flatten() {
            return Err(match sent.reply_use {
                ReplyUse::Unsupported(word) => Error::Unsupported { extension: word.into() },
                ReplyUse::Unconfirmed | ReplyUse::Awaited | ReplyUse::Abandoned | ReplyUse::Greeting => {
                    Error::Unconfirmed { command: sent.verb.as_str() }
                }
            });
        }
        let Some(taken) = self.next.take() else { return Ok(None) };
        let sent = self.take(taken);
        // It is parsed a second time, because the borrow of the first would last as long as the reply.
        let Received::Whole(reply, _) = Reply::read(self.input.just_read(taken))? else { return Ok(None) };
        self.has_reserved |=
            matches!(reply, Reply::Reserved(..) | Reply::ReservedWith(..) | Reply::ReservedBatch(_));
        if let Some(sent) = sent {
            if sent.may_be_done && sent.repeat == Repeat::MayFindNothing && reply == Reply::NotFound {
                return Err(Error::Unconfirmed { command: sent.verb.as_str() });
            }
            if let (Some(change), None) = (sent.change, reply.refusal()) {
                self.state.apply(*change);
            }
        }
        Ok(Some((reply, self.state.fields())))
    }

    /// Marks all replies as abandoned. A command is not sent if none of its bytes was sent.
    pub(crate) fn abandon(&mut self) {
        self.next = None;
        while let Some(sent) = self.outstanding.back() {
            let is_unsent = self.output.len() - sent.bytes >= self.written;
            // The greeting of a new connection stays.
            if !sent.reply_use.is_without_reply() && (!is_unsent || sent.reply_use == ReplyUse::Greeting) {
                break;
            }
            self.output.truncate(self.output.len() - sent.bytes);
            self.outstanding.pop_back();
        }
        self.outstanding.retain(|sent| !sent.reply_use.is_without_reply());
        for sent in &mut self.outstanding {
            if sent.reply_use != ReplyUse::Greeting {
                sent.reply_use = ReplyUse::Abandoned;
            }
        }
        self.check_invariants();
    }

    /// Begins again on a new connection: with the greeting, then the commands that can be repeated, and the commands
    /// that the server cannot have received completely. `since_sent` is at least the time since any of them was sent.
    pub(crate) fn begin_again(&mut self, since_sent: Duration) {
        let old = mem::take(&mut self.output);
        let (mut at, written) = (mem::take(&mut self.answered), mem::take(&mut self.written));
        let outstanding = mem::take(&mut self.outstanding);
        self.input.clear();
        (self.next, self.waits_since, self.is_closed_for_writes) = (None, None, false);
        self.forget_strays();
        self.greet();
        for mut sent in outstanding {
            let end = at + sent.bytes;
            let encoded = &old[at..end];
            at = end;
            if matches!(sent.reply_use, ReplyUse::Greeting | ReplyUse::Abandoned) {
                continue;
            }
            sent.may_be_done |= end <= written;
            match sent.use_after(since_sent) {
                Some(reply_use) => sent.give_up(reply_use),
                None => self.output.extend_from_slice(encoded),
            }
            self.has_limited |= sent.is_limited();
            self.outstanding.push_back(sent);
        }
        self.check_invariants();
    }

    /// The connection is lost, and with it its reserved jobs, unless a session has them.
    pub(crate) fn forget_strays(&mut self) {
        if !self.state.has_session() {
            self.strays.clear();
        }
    }

    /// The connection is new. If one of the commands could be misunderstood, all wait until the server has said what it
    /// offers.
    pub(crate) fn ask_before_sending(&mut self) {
        if self
            .outstanding
            .iter()
            .all(|sent| sent.required_extensions.is_empty() || sent.reply_use.is_without_reply())
        {
            return;
        }
        let position = self.greeting().count();
        let at: usize = self.greeting().map(|sent| sent.bytes).sum();
        let commands = self.output.split_off(at);
        self.push_as(&Request::Line(Command::Stats), ReplyUse::Greeting);
        self.output.extend_from_slice(&commands);
        if let Some(question) = self.outstanding.pop_back() {
            self.outstanding.insert(position, question);
        }
        self.check_invariants();
    }

    /// Gives up the commands that were to be sent again for some time, if it is over before their first bytes are sent.
    /// `since_sent` is at least the time since any of them was sent.
    pub(crate) fn expire(&mut self, since_sent: impl FnOnce() -> Duration) {
        if !mem::take(&mut self.has_limited) {
            return;
        }
        let since_sent = since_sent();
        self.give_up_unsent(|sent| sent.use_after(since_sent));
        self.has_limited = self.outstanding.iter().any(Sent::is_limited);
    }

    /// Takes back the commands that have no byte sent on this connection, if `use_of` has another use for their
    /// replies.
    fn give_up_unsent(&mut self, mut use_of: impl FnMut(&Sent) -> Option<ReplyUse>) {
        let mut at = self.answered;
        for sent in &mut self.outstanding {
            let end = at + sent.bytes;
            if sent.reply_use == ReplyUse::Awaited
                && at >= self.written
                && let Some(reply_use) = use_of(sent)
            {
                self.output.drain(at..end);
                sent.give_up(reply_use);
            } else {
                at = end;
            }
        }
        self.check_invariants();
    }

    /// Asserts the invariants of the commands and their bytes; the cost grows with the number of commands.
    #[inline]
    fn check_invariants(&self) {
        debug_assert!(
            self.answered <= self.written && self.written <= self.output.len(),
            "only bytes of commands have replies, or are sent"
        );
        debug_assert_eq!(
            self.outstanding.iter().map(|sent| sent.bytes).sum::<usize>(),
            self.outstanding_bytes(),
            "the bytes after the answered ones are those of the commands without replies"
        );
    }
}

impl ReplyUse {
    fn is_without_reply(&self) -> bool {
        matches!(self, Self::Unconfirmed | Self::Unsupported(_))
    }
}

impl Sent {
    /// The use of the command's reply, if the command was sent so long ago that it must not be sent again.
    fn use_after(&self, since_sent: Duration) -> Option<ReplyUse> {
        let is_over = match self.repeat {
            Repeat::Always | Repeat::MayFindNothing => false,
            Repeat::Within(time) => since_sent >= Duration::from_nanos(time.as_ns()),
            Repeat::Never => true,
        };
        match self.reply_use {
            ReplyUse::Awaited => (self.may_be_done && is_over).then_some(ReplyUse::Unconfirmed),
            ReplyUse::Unconfirmed | ReplyUse::Unsupported(_) | ReplyUse::Abandoned | ReplyUse::Greeting => {
                Some(self.reply_use.clone())
            }
        }
    }

    /// The use of its reply if the server that offers these would misunderstand it.
    fn use_with(&self, extensions: &Extensions) -> Option<ReplyUse> {
        let word = self.required_extensions.iter().find(|word| !extensions.has(word))?;
        Some(if self.may_be_done { ReplyUse::Unconfirmed } else { ReplyUse::Unsupported(word.clone()) })
    }

    fn give_up(&mut self, reply_use: ReplyUse) {
        (self.reply_use, self.bytes) = (reply_use, 0);
    }

    /// Whether the command may be sent again only while the server refuses a duplicate.
    fn is_limited(&self) -> bool {
        self.reply_use == ReplyUse::Awaited && self.may_be_done && matches!(self.repeat, Repeat::Within(_))
    }
}

/// Reads the reply to this part of the greeting. Returns what the server offers, if that was the question.
fn agreed(verb: Verb, reply: &Reply<'_>) -> Result<Option<Extensions>, Error> {
    let refusal = reply.refusal();
    if verb == Verb::Stats {
        return match (reply, refusal) {
            (Reply::Data(data), _) => Ok(Some(Extensions::from_stats(&parse_dictionary(data)?))),
            // A server that does not say what it offers gets nothing that needs it.
            (_, Some(_)) => Ok(Some(Extensions::default())),
            (_, None) => Err(Error::of_reply(verb, reply)),
        };
    }
    if refusal.is_none() {
        return Ok(None);
    }
    let error = Error::of_reply(verb, reply);
    // Without this extension, as on a downgraded server, the jobs come without fields.
    if verb == Verb::ReserveFields && error.may_be_unsupported() {
        return Ok(None);
    }
    if refusal == Some(Refusal::UnknownCommand) && extension_of(verb).is_some() {
        return Err(Error::Unsupported { extension: verb.as_str().to_owned() });
    }
    Err(error)
}

#[cfg(test)]
mod tests;

//! The commands and the replies of a connection, without its socket.
//!
//! Owns: the bytes that are not sent yet, the bytes that are received and not read yet, the order of the commands that
//! have no reply yet, and what becomes of these when the connection is lost. Never: reads, writes or waits.

use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

use beanstalkd_protocol::{FieldList, Received, Reply, Verb};
use beanstalkd_types::job::{BodyRef, JobId};
use beanstalkd_types::seconds::Seconds;

use super::input::Input;
use super::request::{Repeat, Request};
use super::standing::{Change, Standing};
use crate::error::Error;

/// The greatest number of bytes of commands without replies. A server whose replies are not read stops reading: what is
/// sent then must fit into the kernel's buffers, about 200 KB by default, or each side waits for the other.
const MAX_OUTSTANDING_BYTES: usize = 32 * 1024;

/// Buffers that a large job has made larger than this are given back when they are empty.
pub(super) const MAX_KEPT_BYTES: usize = 1024 * 1024;

/// The sizes of a read: for one reply, and for many or a large one.
const MIN_READ_BYTES: usize = 4 * 1024;
const MAX_READ_BYTES: usize = 64 * 1024;

/// The first bytes of an alert of TLS, with which a server answers a command without TLS. No reply begins with them.
const TLS_ALERT: &[u8] = &[0x15, 0x03];

/// What is to become of the reply to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The caller gets it.
    Awaited,
    /// The caller gets it; the command was sent before, on a connection that was lost.
    Repeated,
    /// There will be none: the connection was lost, and the command is not sent again.
    Unconfirmed,
    /// The caller waits for it no longer. A job in it is kept.
    Abandoned,
    /// It belongs to what is said on each new connection.
    Greeting,
}

/// A command whose reply has not come.
#[derive(Debug)]
struct Sent {
    verb: Verb,
    bytes: usize,
    longest_wait: Option<Seconds>,
    repeat: Repeat,
    /// Boxed, because few commands change something.
    change: Option<Box<Change>>,
    fate: Fate,
}

/// A reply, and the fields that its RESERVED lines have.
pub(crate) type Answer<'a> = (Reply<'a>, FieldList);

/// A job that the server has assigned to a reserve whose caller no longer waited.
#[derive(Debug)]
struct Stray {
    id: JobId,
    body: Vec<u8>,
    values: String,
    /// The fields that the values are: the connection may have asked for others since.
    fields: FieldList,
}

/// One side of a connection: commands go in and bytes come out; bytes go in and replies come out.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    input: Input,
    /// The bytes of the next reply, if it is known to be there.
    next: Option<usize>,
    /// Encoded commands. The first `answered` bytes have replies, the first `written` ones were sent.
    output: Vec<u8>,
    answered: usize,
    written: usize,
    /// The commands whose replies have not come: those of the bytes behind `answered`.
    outstanding: VecDeque<Sent>,
    standing: Standing,
    strays: VecDeque<Stray>,
    /// The stray that the last reply borrows from.
    given: Option<Stray>,
    has_reserved: bool,
}

impl Exchange {
    /// An exchange that says `standing` first.
    pub fn new(standing: Standing) -> Self {
        let mut exchange = Self { standing, ..Self::default() };
        exchange.greet();
        exchange
    }

    fn greet(&mut self) {
        let standing = mem::take(&mut self.standing);
        standing.say(|command| self.push_as(&Request::Line(command), Fate::Greeting));
        self.standing = standing;
    }

    /// What a new connection would be told.
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Whether the connection has reserved a job, ever.
    pub fn has_reserved(&self) -> bool {
        self.has_reserved
    }

    /// Whether the request is a reserve, and there is a job that was assigned to an earlier one whose caller no longer
    /// waited.
    pub fn has_stray_for(&self, request: &Request<'_>) -> bool {
        let is_reserve = matches!(
            request.verb(),
            Verb::Reserve | Verb::ReserveWithTimeout | Verb::ReserveWithAbort | Verb::ReserveBatch
        );
        is_reserve && !self.strays.is_empty()
    }

    /// The reply with this job.
    ///
    /// # Errors
    /// If there is none.
    pub fn reply_of_stray(&mut self) -> Result<Answer<'_>, Error> {
        self.given = self.strays.pop_front();
        let Stray { id, body, values, fields } = self.given.as_ref().ok_or(Error::Closed)?;
        let body = BodyRef::Part(body);
        let reply = match values.as_str() {
            "" => Reply::Reserved(*id, body),
            values => Reply::ReservedWith(*id, body, values),
        };
        Ok((reply, *fields))
    }

    /// Adds a command.
    pub fn push(&mut self, request: &Request<'_>) {
        self.push_as(request, Fate::Awaited);
    }

    fn push_as(&mut self, request: &Request<'_>, fate: Fate) {
        let start = self.output.len();
        request.encode(&mut self.output);
        let change = match request {
            Request::Line(command) if fate == Fate::Awaited => Change::of(command).map(Box::new),
            _ => None,
        };
        self.outstanding.push_back(Sent {
            verb: request.verb(),
            bytes: self.output.len() - start,
            longest_wait: request.longest_wait(),
            repeat: request.repeat(),
            change,
            fate,
        });
    }

    fn outstanding_bytes(&self) -> usize {
        self.output.len() - self.answered
    }

    /// Whether replies should be read before another command is added.
    pub fn is_full(&self) -> bool {
        self.outstanding_bytes() > MAX_OUTSTANDING_BYTES
    }

    /// Whether enough replies were read after [`Self::is_full`], so that the next commands can be sent together.
    pub fn has_room(&self) -> bool {
        self.outstanding_bytes() <= MAX_OUTSTANDING_BYTES / 2 || self.outstanding.is_empty()
    }

    /// Whether no command waits for a reply.
    pub fn is_idle(&self) -> bool {
        self.outstanding.is_empty()
    }

    /// Whether the server has agreed to all that is said on a new connection.
    pub fn is_greeted(&self) -> bool {
        self.outstanding.iter().all(|sent| sent.fate != Fate::Greeting)
    }

    /// The bytes that can be sent now. A command that is larger than the room is sent alone.
    pub fn unsent(&self) -> &[u8] {
        let first = self.outstanding.front().map_or(0, |sent| sent.bytes);
        let end = self.output.len().min(self.answered + MAX_OUTSTANDING_BYTES.max(first));
        self.output.get(self.written..end).unwrap_or_default()
    }

    /// So many of them were sent.
    pub fn sent(&mut self, bytes: usize) {
        self.written += bytes;
    }

    /// How many seconds the server may wait before it sends the next reply; `None` if there is no limit.
    pub fn longest_wait(&self) -> Option<Seconds> {
        self.outstanding.front().map_or(Some(Seconds::ZERO), |sent| sent.longest_wait)
    }

    /// Room for the bytes of a read when so many are missing.
    pub fn room(&mut self, missing: usize) -> &mut [u8] {
        let usual = if self.outstanding.len() > 1 { MAX_READ_BYTES } else { MIN_READ_BYTES };
        self.input.room(missing.clamp(usual, MAX_READ_BYTES))
    }

    /// So many bytes were received into that room.
    pub fn received(&mut self, bytes: usize) {
        self.input.received(bytes);
    }

    /// How many bytes there have to be before the next reply can be read; 0 if it is there. Replies that are not for
    /// the caller are read on the way.
    ///
    /// # Errors
    /// If the bytes are none of the protocol, or if the server does not agree to what a new connection is told.
    pub fn missing(&mut self) -> Result<usize, Error> {
        loop {
            let fate = self.outstanding.front().map_or(Fate::Awaited, |sent| sent.fate);
            if fate == Fate::Unconfirmed {
                return Ok(0);
            }
            let input = self.input.unread();
            if input.is_empty() {
                return Ok(1);
            }
            if input.starts_with(TLS_ALERT) {
                return Err(Error::SpeaksTls);
            }
            match (Reply::read(input)?, fate) {
                (Received::Needs(bytes), _) => return Ok(bytes - input.len()),
                (Received::Whole(_, taken), Fate::Awaited | Fate::Repeated) => {
                    self.next = Some(taken);
                    return Ok(0);
                }
                (Received::Whole(reply, taken), Fate::Greeting) => {
                    let verb = self.outstanding[0].verb;
                    let error = reply.refusal().map(|_| Error::of_reply(verb, &reply));
                    // Without this extension, as in a server that was set back, the jobs come without fields.
                    if let Some(error) = error
                        && !(verb == Verb::ReserveFields && error.may_be_unsupported())
                    {
                        return Err(error);
                    }
                    self.take(taken);
                }
                (Received::Whole(reply, taken), Fate::Abandoned | Fate::Unconfirmed) => {
                    let fields = self.standing.fields();
                    let stray = |(id, body, values): (JobId, BodyRef<'_>, &str)| Stray {
                        id,
                        body: body.as_slice().to_vec(),
                        values: values.to_owned(),
                        fields,
                    };
                    match reply {
                        Reply::Reserved(id, body) => self.strays.push_back(stray((id, body, ""))),
                        Reply::ReservedWith(id, body, values) => {
                            self.strays.push_back(stray((id, body, values)));
                        }
                        Reply::ReservedBatch(jobs) => self.strays.extend(jobs.iter_with_values().map(stray)),
                        _ => {}
                    }
                    self.has_reserved |= !self.strays.is_empty();
                    let is_done = reply.refusal().is_none();
                    let change = self.take(taken).and_then(|sent| sent.change);
                    change.filter(|_| is_done).into_iter().for_each(|change| self.standing.apply(*change));
                }
            }
        }
    }

    /// Counts the bytes of a reply as read and its command as answered.
    fn take(&mut self, taken: usize) -> Option<Sent> {
        self.input.skip(taken);
        let sent = self.outstanding.pop_front()?;
        self.answered += sent.bytes;
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

    /// The next reply, which is there if [`Self::missing`] has said so.
    ///
    /// # Errors
    /// If the bytes are none of the protocol, or if there will be no reply.
    pub fn next_reply(&mut self) -> Result<Option<Answer<'_>>, Error> {
        if let Some(Sent { fate: Fate::Unconfirmed, verb, .. }) = self.outstanding.front() {
            let command = verb.as_str();
            self.outstanding.pop_front();
            return Err(Error::Unconfirmed { command });
        }
        let Some(taken) = self.next.take() else { return Ok(None) };
        let sent = self.take(taken);
        // It is read a second time because the borrow of the first would last as long as the reply.
        let Received::Whole(reply, _) = Reply::read(self.input.just_read(taken))? else { return Ok(None) };
        self.has_reserved |=
            matches!(reply, Reply::Reserved(..) | Reply::ReservedWith(..) | Reply::ReservedBatch(_));
        if let Some(sent) = sent {
            if sent.fate == Fate::Repeated && reply == Reply::NotFound {
                return Err(Error::Unconfirmed { command: sent.verb.as_str() });
            }
            if let (Some(change), None) = (sent.change, reply.refusal()) {
                self.standing.apply(*change);
            }
        }
        Ok(Some((reply, self.standing.fields())))
    }

    /// The caller waits for no reply any more. Commands of which nothing was sent are not sent.
    pub fn abandon(&mut self) {
        self.next = None;
        while let Some(sent) = self.outstanding.back() {
            let is_unsent = self.output.len() - sent.bytes >= self.written;
            // What is said on each new connection stays.
            if sent.fate != Fate::Unconfirmed && (!is_unsent || sent.fate == Fate::Greeting) {
                break;
            }
            self.output.truncate(self.output.len() - sent.bytes);
            self.outstanding.pop_back();
        }
        self.outstanding.retain(|sent| sent.fate != Fate::Unconfirmed);
        for sent in &mut self.outstanding {
            if sent.fate != Fate::Greeting {
                sent.fate = Fate::Abandoned;
            }
        }
    }

    /// Begins again on a new connection: says what the last one was told, then the commands that can be repeated, and
    /// those that the server cannot have got as a whole. `since_sent` is at least the time since any of them was sent.
    pub fn begin_again(&mut self, since_sent: Duration) {
        let old = mem::take(&mut self.output);
        let (mut at, written) = (mem::take(&mut self.answered), mem::take(&mut self.written));
        let outstanding = mem::take(&mut self.outstanding);
        self.input.clear();
        self.next = None;
        self.greet();
        for mut sent in outstanding {
            let end = at + sent.bytes;
            let encoded = &old[at..end];
            at = end;
            sent.fate = match (sent.fate, end <= written) {
                (Fate::Greeting | Fate::Abandoned, _) => continue,
                (Fate::Awaited | Fate::Repeated, true) => sent.fate_after_loss(since_sent),
                (fate, _) => fate,
            };
            match sent.fate {
                Fate::Unconfirmed => sent.bytes = 0,
                _ => self.output.extend_from_slice(encoded),
            }
            self.outstanding.push_back(sent);
        }
    }
}

impl Sent {
    /// What becomes of it if the server may have executed it.
    fn fate_after_loss(&self, since_sent: Duration) -> Fate {
        match self.repeat {
            Repeat::Always => self.fate,
            Repeat::MayFindNothing => Fate::Repeated,
            Repeat::Within(time) if since_sent < Duration::from_nanos(time.as_ns()) => self.fate,
            Repeat::Within(_) | Repeat::Never => Fate::Unconfirmed,
        }
    }
}

#[cfg(test)]
#[path = "exchange_tests.rs"]
mod tests;

//! The next step of a connection.
//!
//! Owns: the steps of a connection, when a step is late, and when the connection is opened again. Never takes a step
//! itself, and never reads the clock: a driver does, and reports the result.

use std::mem;
use std::time::{Duration, Instant};

use beanstalkd_protocol::{Command, Reply, Verb, parse_dictionary};
use beanstalkd_types::job::JobId;
use beanstalkd_types::seconds::Seconds;
use beanstalkd_types::tube_name::TubeName;

use super::backoff::Backoff;
use super::connector::Connector;
use super::data::Extensions;
use super::earlier_wait::EarlierWait;
use super::exchange::{Answer, Exchange};
use super::request::{Request, is_reserve};
use crate::error::Error;

/// A step for the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EngineStep {
    /// Nothing: the reply has arrived, or the server has accepted the greeting of a new connection.
    Done,
    /// Opens a connection, after the pause of [`Recovery::Reopen`], and calls [`Engine::opened`].
    Open,
    /// Writes bytes of [`Exchange::unsent`].
    Write,
    /// Reads, at least this many bytes if it can.
    Read(usize),
}

/// The goal for which the driver waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// The server has accepted the greeting of a new connection.
    Greeting,
    /// The next reply for the caller.
    Reply,
    /// No reserve of an earlier caller is without a reply, or the limit of [`Preliminary::EarlierReserve`] is over.
    EarlierReserve,
}

/// A request that the connection makes before a request of its caller.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Preliminary {
    /// Asks for the extensions of the server.
    Extensions,
    /// Uses the tube `default`.
    UseDefault,
    /// Waits for the reply to a reserve whose caller no longer waits, within the limit of the next one: its job
    /// answers that one. If both were sent, the next one would wait for a second job.
    EarlierReserve(Option<Duration>),
    /// Touches a job that may answer a reserve: it was assigned to an earlier one, whose caller no longer waited.
    Touch(JobId),
}

impl Preliminary {
    /// The goal for which the driver waits.
    pub(crate) fn goal(self) -> Goal {
        match self {
            Self::EarlierReserve(_) => Goal::EarlierReserve,
            Self::Extensions | Self::UseDefault | Self::Touch(_) => Goal::Reply,
        }
    }
}

/// What the driver does after a failed step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recovery {
    /// Opens the connection again after this pause.
    Reopen(Duration),
    /// Takes the next step: the connection is open, and only the limit of a wait for an earlier reserve is over.
    GoOn,
}

/// Whether a lost connection is opened again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Reopening {
    /// Never reopened: the commands are valid on this connection only.
    Never,
    /// Reopened once, without a pause; not after a time-out, because the next attempt may take as long.
    Once,
    /// Reopened as configured by [`Connector::reconnect`].
    #[default]
    Usual,
}

/// Who has said which extensions the server has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExtensionsSource {
    Server,
    /// The caller, whose word does not count for the next caller of a pool.
    Caller,
}

/// A connection without its socket.
#[derive(Debug, Default)]
pub(crate) struct Engine {
    pub exchange: Exchange,
    pub connector: Connector,
    /// The extensions of the server, if they are known.
    extensions: Option<(Extensions, ExtensionsSource)>,
    backoff: Backoff,
    /// The ordinal number of the open connection; `None` if none is open. Then the driver clears its stream, in `drive`
    /// and in `hang_up`; a stream that [`Self::begin`] gives up stays until the next one replaces it.
    number: Option<u64>,
    /// Whether a lost connection is opened again.
    pub reopening: Reopening,
    /// A shorter time-out than the connector's, for as long as a worker sets it.
    pub worker_timeout: Option<Duration>,
    /// How often it was opened.
    connections: u64,
    /// Whether a reply has not come in time, and none since: the server may have vanished. A new connection resets it.
    is_late: bool,
    /// When the connection began to send the commands that have no replies yet; `None` until the first step for them.
    began: Option<Instant>,
    /// The last wait for the reply to an earlier reserve.
    earlier: EarlierWait,
}

impl Engine {
    /// A connection that must be opened.
    pub(crate) fn new(connector: Connector) -> Result<Self, Error> {
        let exchange = Exchange::new(connector.first_state()?);
        Ok(Self { exchange, connector, ..Self::default() })
    }

    /// A connection that is open and cannot be opened again. It does not ask for extensions.
    pub(crate) fn of_open() -> Self {
        let connector = Connector { check_extensions: false, ..Connector::new() };
        // There is no address for a socket from the caller.
        Self { connector, number: Some(0), reopening: Reopening::Never, ..Self::default() }
    }

    /// The next step.
    ///
    /// # Errors
    /// If there is none: the received bytes do not follow the protocol, or the connection is lost permanently.
    pub(crate) fn step(&mut self, goal: Goal) -> Result<EngineStep, Error> {
        if !self.is_open() {
            return Ok(EngineStep::Open);
        }
        if self.is_reached(goal) {
            return Ok(EngineStep::Done);
        }
        let missing = self.exchange.receive_next()?;
        // `receive_next` may have handled the last reply of the greeting, or the one to an earlier reserve.
        if self.is_reached(goal) || goal == Goal::Reply && missing == 0 {
            return Ok(EngineStep::Done);
        }
        if self.exchange.unsent().is_empty() { Ok(EngineStep::Read(missing)) } else { Ok(EngineStep::Write) }
    }

    /// Whether the goal needs no further byte. For a reply, the next step says so.
    fn is_reached(&self, goal: Goal) -> bool {
        match goal {
            Goal::Greeting => self.exchange.is_greeted(),
            Goal::EarlierReserve => self.earlier.is_over() || !self.exchange.has_abandoned_reserve(),
            Goal::Reply => false,
        }
    }

    /// Whether a reply has not come in time, and none since.
    pub(crate) fn is_late(&self) -> bool {
        self.is_late
    }

    /// Whether the socket can be used.
    pub(crate) fn is_open(&self) -> bool {
        self.number.is_some()
    }

    /// Notes that the driver begins to take steps for this goal, before it sends any byte of the command.
    pub(crate) fn begin_steps(&mut self, goal: Goal, now: impl FnOnce() -> Instant) {
        match goal {
            // This goes on with the wait of an earlier caller; otherwise, a server that hangs would never be late.
            Goal::EarlierReserve => {}
            Goal::Greeting | Goal::Reply => self.exchange.stop_waiting(),
        }
        self.began.get_or_insert_with(now);
    }

    /// The time at which the step that begins now is late; `None` if there is no limit. The time-out counts from the
    /// last byte that was sent or received, so that a large body may take longer.
    pub(crate) fn deadline(&mut self, step: EngineStep, goal: Goal, now: Instant) -> Option<Instant> {
        let since = self.exchange.waits_since(now);
        let timeout = match step {
            EngineStep::Read(_) => self.timeout(goal),
            EngineStep::Done | EngineStep::Open | EngineStep::Write => self.max_timeout(),
        };
        let usual = timeout.and_then(|timeout| since.checked_add(timeout));
        match goal {
            Goal::EarlierReserve => {
                let timeout = self.max_timeout();
                self.earlier.deadline(usual, timeout, now)
            }
            Goal::Greeting | Goal::Reply => {
                self.earlier = EarlierWait::Idle;
                usual
            }
        }
    }

    /// Gives up the commands that were to be sent again for some time, if it is over.
    pub(crate) fn expire(&mut self, now: impl FnOnce() -> Instant) {
        let began = self.began;
        self.exchange.expire(|| began.map_or(Duration::ZERO, |began| now().saturating_duration_since(began)));
    }

    /// Notes that the connection is open.
    pub(crate) fn opened(&mut self) {
        self.connections += 1;
        (self.number, self.is_late) = (Some(self.connections), false);
        // Another server may have replaced the last one.
        self.extensions = None;
        if self.connector.check_extensions {
            self.exchange.ask_before_sending();
        }
    }

    /// Handles a failed step.
    ///
    /// # Errors
    /// If the connection must not be opened again: the same error.
    pub(crate) fn failed(&mut self, error: Error, now: Instant) -> Result<Recovery, Error> {
        // The server is not late: it may leave the earlier reserve without a reply for longer.
        if matches!(error, Error::TimedOut) && self.earlier.time_out() {
            return Ok(Recovery::GoOn);
        }
        if !error.ends_connection() && self.exchange.is_greeted() {
            if matches!(error, Error::TimedOut) {
                self.is_late = true;
                self.exchange.stop_waiting();
            }
            return Err(error);
        }
        self.hang_up();
        let Some(mut reconnect) = self.connector.reconnect.filter(|_| error.is_network_error()) else {
            return Err(error);
        };
        match self.reopening {
            Reopening::Never => return Err(error),
            Reopening::Once if error.is_late() => return Err(error),
            Reopening::Once => reconnect = reconnect.give_up_after(Duration::ZERO),
            Reopening::Usual => {}
        }
        let Some(pause) = self.backoff.next_pause(&reconnect) else { return Err(error) };
        // At least the time since any command without a reply was sent.
        let since_sent = self.began.map_or(Duration::ZERO, |began| now.saturating_duration_since(began));
        self.exchange.begin_again(since_sent);
        Ok(Recovery::Reopen(pause))
    }

    /// Gives the connection up: the next caller gets another one.
    pub(crate) fn hang_up(&mut self) {
        self.number = None;
        self.exchange.forget_strays();
    }

    /// Begins the command of a caller: earlier callers no longer wait.
    ///
    /// # Errors
    /// If the connection is lost permanently.
    pub(crate) fn begin(&mut self) -> Result<(), Error> {
        (self.backoff, self.began) = (Backoff::default(), None);
        self.earlier = EarlierWait::Idle;
        self.exchange.abandon();
        let can_open = self.reopening != Reopening::Never && self.connector.reconnect.is_some();
        // With a peer that has vanished, every command would time out.
        self.number.take_if(|_| self.is_late && can_open);
        match (self.is_open(), can_open) {
            (true, _) => {}
            (false, true) => self.exchange.begin_again(Duration::MAX),
            (false, false) => return Err(Error::Closed),
        }
        Ok(())
    }

    /// Begins a command of a caller, and adds this request.
    ///
    /// # Errors
    /// If the connection is lost permanently.
    pub(crate) fn begin_with(&mut self, request: &Request<'_>) -> Result<(), Error> {
        self.begin()?;
        self.exchange.push(request);
        Ok(())
    }

    /// The reply for which the driver has waited.
    pub(crate) fn reply(&mut self) -> Result<Answer<'_>, Error> {
        (self.backoff, self.is_late) = (Backoff::default(), false);
        self.exchange.next_reply()?.ok_or(Error::Closed)
    }

    /// The reply for which the driver has waited, with a refusal as an error.
    pub(crate) fn result(&mut self) -> Result<Reply<'_>, Error> {
        let verb = self.exchange.next_verb();
        let (reply, _) = self.reply()?;
        match verb.and_then(|verb| Error::refusal(verb, &reply)) {
            Some(refusal) => Err(Error::Refused(refusal)),
            None => Ok(reply),
        }
    }

    /// The time limit of a wait for the goal; `None` if there is no limit.
    pub(crate) fn timeout(&self, goal: Goal) -> Option<Duration> {
        let wait = match goal {
            Goal::Greeting => Some(Duration::ZERO),
            Goal::Reply | Goal::EarlierReserve => {
                self.exchange.longest_wait().map(|seconds| Duration::from_nanos(seconds.as_ns()))
            }
        };
        self.max_timeout()?.checked_add(wait?)
    }

    /// The time limit of a connect, and of a reply without its own wait; `None` if there is no limit.
    pub(crate) fn max_timeout(&self) -> Option<Duration> {
        match (self.connector.timeout, self.worker_timeout) {
            (Some(timeout), Some(max)) => Some(timeout.min(max)),
            (timeout, max) => timeout.or(max),
        }
    }

    /// Whether the server must report its extensions before the request may be sent.
    fn must_ask(&self, request: &Request<'_>) -> bool {
        self.extensions.is_none()
            && self.connector.check_extensions
            && request.required_extensions().next().is_some()
    }

    /// Whether the tube `default` must be used before the request may be sent.
    fn must_use_default(&self, request: &Request<'_>) -> bool {
        self.exchange.state.is_use_stale() && request.needs_used_tube()
    }

    /// What must be done before this request of a caller may be sent; `None` if there is nothing. Earlier callers no
    /// longer wait.
    ///
    /// # Errors
    /// If the request breaks a rule, or the server would misunderstand it.
    pub(crate) fn preliminary_of_call(
        &mut self,
        request: &Request<'_>,
    ) -> Result<Option<Preliminary>, Error> {
        self.check(request)?;
        self.exchange.abandon();
        Ok(self.next_preliminary(request))
    }

    /// As [`Self::preliminary_of_call`], for a request of a pipeline: its earlier requests keep their replies.
    ///
    /// # Errors
    /// If the request breaks a rule, or the server would misunderstand it.
    pub(crate) fn preliminary(&mut self, request: &Request<'_>) -> Result<Option<Preliminary>, Error> {
        self.check(request)?;
        Ok(self.next_preliminary(request))
    }

    fn next_preliminary(&self, request: &Request<'_>) -> Option<Preliminary> {
        // The earlier reserve comes first: a server may wait for a job before it replies to any of the others. A batch
        // that waits for no job has its own result, with or without jobs.
        let is_batch_now =
            request.verb() == Verb::ReserveBatch && request.longest_wait() == Some(Seconds::ZERO);
        if is_reserve(request.verb()) && !is_batch_now && self.exchange.has_abandoned_reserve() {
            let limit = request.longest_wait().map(|seconds| Duration::from_nanos(seconds.as_ns()));
            return Some(Preliminary::EarlierReserve(limit));
        }
        if let Some(id) = self.exchange.strays.first_for(request) {
            return Some(Preliminary::Touch(id));
        }
        if self.must_ask(request) {
            return Some(Preliminary::Extensions);
        }
        self.must_use_default(request).then_some(Preliminary::UseDefault)
    }

    /// Begins this request of the connection itself.
    ///
    /// # Errors
    /// If the connection is lost permanently.
    pub(crate) fn begin_as(&mut self, preliminary: Preliminary) -> Result<(), Error> {
        let default = TubeName::default_tube();
        let command = match preliminary {
            Preliminary::EarlierReserve(limit) => {
                self.begin()?;
                self.earlier = EarlierWait::within(limit);
                return Ok(());
            }
            Preliminary::Extensions => Command::Stats,
            Preliminary::UseDefault => Command::Use((&default).into()),
            Preliminary::Touch(id) => Command::Touch { id, for_s: None },
        };
        self.begin_with(&command.into())
    }

    /// Handles the reply to a request of the connection itself. Returns whether [`Strays::take`] answers the caller:
    /// the server still has the first job reserved, or there was none within the limit.
    ///
    /// [`Strays::take`]: super::exchange::Strays::take
    pub(crate) fn handle_answer(&mut self, preliminary: Preliminary) -> Result<bool, Error> {
        let verb = match preliminary {
            Preliminary::EarlierReserve(_) => {
                let is_over = mem::take(&mut self.earlier).is_over();
                self.is_late &= is_over;
                self.exchange.strays.has_timed_out = is_over;
                return Ok(is_over);
            }
            Preliminary::Extensions => Verb::Stats,
            Preliminary::UseDefault => Verb::Use,
            Preliminary::Touch(_) => Verb::Touch,
        };
        let (reply, _) = self.reply()?;
        match (preliminary, reply) {
            (Preliminary::Extensions, Reply::Data(data)) => {
                let extensions = Extensions::from_stats(&parse_dictionary(data)?);
                self.extensions = Some((extensions, ExtensionsSource::Server));
                Ok(false)
            }
            (Preliminary::UseDefault, Reply::Using(_)) => Ok(false),
            (Preliminary::Touch(_), Reply::Touched) => Ok(true),
            (Preliminary::Touch(id), Reply::NotFound) => {
                self.exchange.strays.remove(id);
                Ok(false)
            }
            (_, other) => Err(Error::of_reply(verb, &other)),
        }
    }

    pub(crate) fn set_extensions(&mut self, extensions: Extensions) {
        self.extensions = Some((extensions, ExtensionsSource::Caller));
    }

    pub(crate) fn extensions(&self) -> Option<&Extensions> {
        self.extensions.as_ref().map(|(extensions, _)| extensions)
    }

    /// Refuses a request that breaks a rule, or that this server would misunderstand, as far as its extensions are
    /// known.
    fn check(&self, request: &Request<'_>) -> Result<(), Error> {
        if let Some(rule) = request.broken_rule() {
            return Err(Error::Invalid(rule));
        }
        let Some(extensions) = self.extensions() else { return Ok(()) };
        match request.required_extensions().find(|word| !extensions.has(word)) {
            Some(word) => Err(Error::Unsupported { extension: word.to_owned() }),
            None => Ok(()),
        }
    }

    /// Whether the server should be asked for its extensions, because the error may mean that it lacks this one.
    pub(crate) fn may_lack_extension(&self, extension: Option<&str>, error: &Error) -> bool {
        extension.is_some() && self.connector.check_extensions && self.is_open() && error.may_be_unsupported()
    }

    /// The meaning of the error, as far as the extensions of the server are known.
    pub(crate) fn explain(&self, extension: Option<&'static str>, error: Error) -> Error {
        match (extension, self.extensions()) {
            (Some(word), Some(extensions)) if error.may_be_unsupported() && !extensions.has(word) => {
                Error::Unsupported { extension: word.to_owned() }
            }
            _ => error,
        }
    }

    /// Whether another caller of a pool can have the connection.
    pub(crate) fn can_be_lent(&self) -> bool {
        let first = self.connector.first_state().unwrap_or_default();
        self.is_open() && self.exchange.is_unused() && self.exchange.state.equals_except_used_tube(&first)
    }

    /// Gives the connection to another caller of a pool, with this time-out: what the last one has set does not count
    /// any more.
    pub(crate) fn lend(&mut self, timeout: Option<Duration>) {
        self.connector.timeout = timeout;
        self.exchange.state.forget_choice();
        self.extensions.take_if(|(_, source)| *source == ExtensionsSource::Caller);
    }

    /// The ordinal number of the open connection; `None` if none is open.
    pub(crate) fn number(&self) -> Option<u64> {
        self.number
    }
}

#[cfg(test)]
mod tests;

//! The decisions of a worker, without threads and tasks: the input and the result of a handler, and the outcome for the
//! job.
//!
//! Owns: the settings of a worker, and every decision about a job. Never waits, or talks to a server;
//! `blocking::worker` and `asynchronous::worker` do.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use beanstalkd_types::seconds::Seconds;
use beanstalkd_types::tube_name::TubeName;

use crate::address::Address;
use crate::connector::Connector;
use crate::core::data::{Job, JobInfo, TraceParent};
use crate::core::fields::Fields;
use crate::core::{Attempts, Reconnect};
use crate::error::Error;
use crate::span::Span;

/// The longest wait of one reserve. After each, a worker checks whether it should stop.
pub(crate) const MAX_WAIT: Seconds = Seconds::ONE;

/// How long a worker tries to connect before it checks whether it should stop.
const CONNECT_TURN: Duration = Duration::from_secs(2);

/// How long a worker waits before it checks again whether it should stop.
pub(crate) const STOP_TURN: Duration = Duration::from_millis(100);

/// How often the end of a job is tried on another connection of its session. If so many are lost, more do not help.
pub(crate) const MAX_SETTLES: usize = 5;

/// A job as a handler gets it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Delivery {
    /// The id.
    pub id: u64,
    /// The body.
    pub body: Vec<u8>,
    /// The priority.
    pub pri: u32,
    /// The time to run, in seconds.
    pub ttr: u64,
    /// Seconds since its put.
    pub age: u64,
    /// How often it was reserved, including this time. A lost connection counts here, but is not a failure.
    pub reserves: u64,
    /// The number of this attempt, from 1: one more than the failures in the counters of the job.
    pub attempt: u64,
    /// All counters of the job, and its tags; requested for each job only with [`Worker::with_info`].
    pub info: Option<JobInfo>,
    tube: String,
    trace: Option<TraceParent>,
    is_stopping: Arc<AtomicBool>,
}

impl Delivery {
    /// A job with its counters. Without them, all its fields must be present: see [`Worker::needs_info`].
    pub(crate) fn new(job: Job, info: Option<JobInfo>, retry: &Retry, stopper: &Stopper) -> Self {
        let Job { id, body, fields } = job;
        let (fields, buries) = match &info {
            Some(info) => (Fields::of_info(info), info.buries),
            None => (fields, 0),
        };
        let attempt = retry.failures(&fields, buries) + 1;
        let Fields { tube, attempts, age, pri, ttr, trace, .. } = fields;
        Self {
            id,
            body,
            pri: pri.unwrap_or_default(),
            ttr: ttr.unwrap_or_default(),
            age: age.unwrap_or_default(),
            reserves: attempts.unwrap_or_default(),
            attempt,
            info,
            tube: tube.unwrap_or_default(),
            trace,
            is_stopping: Arc::clone(&stopper.0),
        }
    }

    /// The name of its tube.
    pub fn tube(&self) -> &str {
        &self.tube
    }

    /// The span in which the job was put, from the tag `trc:`. A tracing library can use it as the parent of the job's
    /// own span.
    pub fn trace(&self) -> Option<&TraceParent> {
        self.trace.as_ref()
    }

    /// Whether the worker should stop. It waits for the handler; a slow handler can end early with [`Outcome::Again`].
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// How often the worker touches the job: three times in a TTR, in time for the shortest TTR of a second.
    pub(crate) fn touch_every(&self) -> Duration {
        Duration::from_millis((self.ttr.saturating_mul(1000) / 3).clamp(300, 60_000))
    }
}

/// The result of a handler. `Result<(), E>` can be used: `Ok` is [`Self::Done`], `Err` is [`Self::Failed`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The job is done, and will be deleted.
    Done,
    /// The job has failed for this reason: it is tried again, or buried, depending on [`Retry`].
    Failed(String),
    /// The job was not completed: it is tried again after this time, and this does not count as a failure.
    Again(Duration),
    /// Another attempt is useless, for this reason: the job is buried.
    Hopeless(String),
}

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::Done
    }
}

impl<E: fmt::Display> From<Result<(), E>> for Outcome {
    fn from(result: Result<(), E>) -> Self {
        match result {
            Ok(()) => Self::Done,
            Err(error) => Self::Failed(error.to_string()),
        }
    }
}

/// How often a job is tried, and the delays between. The default: five attempts, after 1, 2, 4 and 8 seconds.
///
/// The failures are those in the counters of the job: its releases and time-outs. A server with rules for tubes counts
/// by itself; then use [`Self::by_server`], which leaves the decision to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retry {
    /// The job is buried when it has failed this many times, at least once.
    pub max_attempts: u64,
    /// The delay after the first failure. It doubles with each one.
    pub first_delay: Duration,
    /// The longest delay.
    pub max_delay: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        let (first_delay, max_delay) = (Duration::from_secs(1), Duration::from_secs(3600));
        Self { max_attempts: 5, first_delay, max_delay }
    }
}

impl Retry {
    /// The default: five attempts.
    pub fn new() -> Self {
        Self::default()
    }

    /// This many attempts, at least one.
    #[must_use]
    pub fn max_attempts(self, max_attempts: u64) -> Self {
        Self { max_attempts: max_attempts.max(1), ..self }
    }

    /// The delay after the first failure, and the longest one.
    #[must_use]
    pub fn delays(self, first_delay: Duration, max_delay: Duration) -> Self {
        Self { first_delay, max_delay, ..self }
    }

    /// Releases each job without a delay: the rules of the server for its tube count the failures, delay the job, and
    /// bury it or move it.
    pub fn by_server() -> Self {
        Self { max_attempts: u64::MAX, first_delay: Duration::ZERO, max_delay: Duration::ZERO }
    }

    /// The failures since the job was last kicked. A bury was the end of a series: all its failures except the last
    /// were releases and time-outs.
    fn failures(&self, fields: &Fields, buries: u64) -> u64 {
        let before = if self.counts_buries() { buries.saturating_mul(self.max_attempts - 1) } else { 0 };
        given_back(fields).saturating_sub(before)
    }

    /// Whether the burials of a job show how many of its failures belong to an earlier series.
    fn counts_buries(&self) -> bool {
        self.max_attempts > 1 && self.max_attempts < u64::MAX
    }

    /// The delay after this many failures.
    fn delay(&self, failures: u64) -> Duration {
        let doublings = u32::try_from(failures.saturating_sub(1)).unwrap_or(31).min(31);
        self.first_delay.saturating_mul(1 << doublings).min(self.max_delay)
    }
}

/// How often a job was released, or its TTR has ended.
fn given_back(fields: &Fields) -> u64 {
    fields.releases.unwrap_or_default().saturating_add(fields.timeouts.unwrap_or_default())
}

/// The action for a job at the end of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settled {
    /// It is deleted.
    Deleted,
    /// It is tried again after this time.
    Released(Duration),
    /// It is released, and this does not count as a failure.
    GivenBack(Duration),
    /// It is buried.
    Buried,
    /// Its TTR had already ended, or another client has deleted it, or the connection that had reserved it was lost
    /// and no session has it. Another worker may have it.
    Lost,
    /// The server has not confirmed the action, because the connection was lost, or because the server could not do it
    /// then: it may have been executed, or the job becomes ready again.
    Unconfirmed,
}

impl Settled {
    /// The planned action.
    pub(crate) fn plan(outcome: &Outcome, delivery: &Delivery, retry: &Retry) -> Self {
        match outcome {
            Outcome::Done => Self::Deleted,
            Outcome::Failed(_) if delivery.attempt >= retry.max_attempts => Self::Buried,
            Outcome::Failed(_) => Self::Released(retry.delay(delivery.attempt)),
            Outcome::Again(delay) => Self::GivenBack(*delay),
            Outcome::Hopeless(_) => Self::Buried,
        }
    }

    /// The action that was executed, and the error if the connection is not to be used any more.
    pub(crate) fn after(self, result: Result<bool, Error>) -> (Self, Result<(), Error>) {
        match result {
            Ok(true) => (self, Ok(())),
            Ok(false) => (Self::Buried, Ok(())), // because of a limit of the server
            Err(Error::Unconfirmed { .. }) => (Self::Unconfirmed, Ok(())),
            // Without a session the server has released the job; with one, its TTR decides.
            Err(error) if error.is_of_network() => (Self::Unconfirmed, Ok(())),
            Err(error) if error.is_not_found() => (Self::Lost, Ok(())),
            Err(error) => (Self::Unconfirmed, Err(error)),
        }
    }
}

/// A time in seconds, as precise as the server supports: whole seconds, rounded up, without the extension `fractions`.
pub(crate) fn seconds(time: Duration, has_fractions: bool) -> Seconds {
    let precise = Seconds::of_ns(i64::try_from(time.as_nanos()).unwrap_or(i64::MAX));
    let rounded = || u32::try_from(precise.rounded_up()).map_or(Seconds::MAX, Seconds::from);
    if has_fractions { precise } else { rounded() }
}

/// An event of a worker, for logs, metrics and traces.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A handler begins.
    Began(&'a Delivery),
    /// An attempt has ended.
    Ended {
        /// The job.
        delivery: &'a Delivery,
        /// The result of the handler.
        outcome: &'a Outcome,
        /// The action for the job.
        settled: Settled,
        /// How long the handler took.
        took: Duration,
    },
    /// A job in progress could not be touched. If its TTR ends, another worker gets it.
    NotTouched(&'a Delivery, &'a Error),
    /// There is no connection to the server, or the worker has closed it because the server's answer does not follow
    /// the protocol; the worker tries again.
    Disconnected(&'a Error),
}

/// The numbers of ended attempts, by outcome.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the words of Settled")]
pub struct Report {
    pub deleted: u64,
    pub released: u64,
    pub given_back: u64,
    pub buried: u64,
    pub lost: u64,
    pub unconfirmed: u64,
}

/// The counters of a [`Report`].
#[derive(Debug, Default)]
pub(crate) struct WorkCounters([AtomicU64; 6]);

impl WorkCounters {
    fn count(&self, settled: Settled) {
        let index = match settled {
            Settled::Deleted => 0,
            Settled::Released(_) => 1,
            Settled::GivenBack(_) => 2,
            Settled::Buried => 3,
            Settled::Lost => 4,
            Settled::Unconfirmed => 5,
        };
        self.0[index].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn report(&self) -> Report {
        let [deleted, released, given_back, buried, lost, unconfirmed] =
            self.0.each_ref().map(|counter| counter.load(Ordering::Relaxed));
        Report { deleted, released, given_back, buried, lost, unconfirmed }
    }
}

/// Stops a worker. Clones stop the same one.
#[derive(Debug, Clone, Default)]
pub struct Stopper(Arc<AtomicBool>);

impl Stopper {
    /// Stops the worker: it runs no further job, and ends when its handlers have ended. A job that it was about to get
    /// is ready again.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the worker should stop.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

type Hook = Arc<dyn Fn(&Event<'_>) + Send + Sync>;
type SpanOf = Arc<dyn Fn(&Delivery) -> Span + Send + Sync>;

/// Takes jobs from the watched tubes and passes them to a handler: one job at a time in each of its slots, each of
/// which has a connection. It reserves a job only when a slot is free, touches it while the handler runs, and then
/// deletes, releases or buries it. A lost connection is opened again; with [`Connector::session`] its jobs stay
/// reserved, and the session of each slot has the given name and the slot's number.
///
/// ```no_run
/// use beanstalk_client::{Connector, Event, Retry, Worker};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let worker = Worker::new(Connector::new(), "127.0.0.1:11300".parse()?)
///     .watch("mail".parse()?)
///     .slots(8)
///     .retry(Retry::new().max_attempts(3))
///     .on_event(|event| {
///         if let Event::Ended { delivery, outcome, settled, took } = event {
///             println!("job {}: {outcome:?}, {settled:?} after {took:?}", delivery.id);
///         }
///     });
/// let stopper = worker.stopper(); // for a handler of signals
/// # drop(stopper);
/// let report = worker.run(|job| {
///     let text = std::str::from_utf8(&job.body)?;
///     println!("attempt {} of {text}", job.attempt);
///     Ok::<(), std::str::Utf8Error>(())
/// })?;
/// println!("{report:?}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Worker {
    pub(crate) connector: Connector,
    pub(crate) servers: Vec<Address>,
    pub(crate) tubes: Vec<TubeName>,
    pub(crate) slots: usize,
    pub(crate) retry: Retry,
    pub(crate) until_empty: bool,
    pub(crate) stopper: Stopper,
    pub(crate) counters: Arc<WorkCounters>,
    /// How long a server may be unreachable.
    patience: Duration,
    hook: Option<Hook>,
    span_of: Option<SpanOf>,
    /// Whether the handler needs all counters of each job.
    with_info: bool,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("servers", &self.servers)
            .field("tubes", &self.tubes)
            .finish_non_exhaustive()
    }
}

impl Worker {
    /// A worker with one slot. A server that is not there at the start is an error after a few attempts. It waits
    /// without a limit for one that goes away later, unless the connector has a [`Connector::reconnect`] that gives up.
    pub fn new(mut connector: Connector, server: Address) -> Self {
        let reconnect = connector.reconnect.unwrap_or(Reconnect::forever());
        connector.reconnect = Some(reconnect.give_up_after(reconnect.give_up_after.min(CONNECT_TURN)));
        Self {
            connector,
            servers: vec![server],
            tubes: Vec::new(),
            slots: 1,
            retry: Retry::default(),
            until_empty: false,
            stopper: Stopper::default(),
            counters: Arc::default(),
            patience: reconnect.give_up_after,
            hook: None,
            span_of: None,
            with_info: false,
        }
    }

    /// Takes jobs from this server, too, with the same number of slots.
    #[must_use]
    pub fn server(mut self, server: Address) -> Self {
        self.servers.push(server);
        self
    }

    /// Watches this tube; `default` is no longer watched unless it is named.
    #[must_use]
    pub fn watch(mut self, tube: TubeName) -> Self {
        self.tubes.push(tube);
        self
    }

    /// The number of jobs from each server at a time.
    #[must_use]
    pub fn slots(self, slots: usize) -> Self {
        Self { slots: slots.max(1), ..self }
    }

    /// Sets how often a job is tried.
    #[must_use]
    pub fn retry(self, retry: Retry) -> Self {
        Self { retry, ..self }
    }

    /// Ends when there is no ready job.
    #[must_use]
    pub fn until_empty(self) -> Self {
        Self { until_empty: true, ..self }
    }

    /// Sets the function for events, which is called by the thread or the task in which the event happens.
    #[must_use]
    pub fn on_event(self, hook: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        Self { hook: Some(Arc::new(hook)), ..self }
    }

    /// Asks for all counters of each job, and its tags: [`Delivery::info`]. This is one more command for each job.
    #[must_use]
    pub fn with_info(self) -> Self {
        Self { with_info: true, ..self }
    }

    /// Makes a span for each job. Its handler runs in it, and so do the events about the job.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let address = "127.0.0.1:11300".parse()?;
    /// let worker = beanstalk_client::Worker::new(beanstalk_client::Connector::new(), address).in_span(|job| {
    ///     let trace = job.trace().map(|trace| trace.as_str());
    ///     tracing::info_span!("job", id = job.id, tube = job.tube(), attempt = job.attempt, trace)
    /// });
    /// worker.run(|job| tracing::info!(bytes = job.body.len(), "in the span of its job"))?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "tracing")]
    #[must_use]
    pub fn in_span(self, span_of: impl Fn(&Delivery) -> tracing::Span + Send + Sync + 'static) -> Self {
        Self { span_of: Some(Arc::new(move |delivery| Span(span_of(delivery)))), ..self }
    }

    pub(crate) fn span(&self, delivery: &Delivery) -> Span {
        self.span_of.as_ref().map_or_else(Span::none, |span_of| span_of(delivery))
    }

    /// Whether the fields of a job lack values that a delivery has.
    pub(crate) fn needs_info(&self, fields: &Fields) -> bool {
        self.with_info || !fields.are_all() || self.retry.counts_buries() && given_back(fields) > 0
    }

    /// The handle that stops the worker.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Whether a session keeps its jobs when a connection is lost.
    pub(crate) fn has_session(&self) -> bool {
        self.connector.session.is_some()
    }

    pub(crate) fn tell(&self, event: &Event<'_>) {
        if let Event::Ended { settled, .. } = event {
            self.counters.count(*settled);
        }
        if let Some(hook) = &self.hook {
            hook(event);
        }
    }

    /// How long its reserve waits.
    pub(crate) fn turn(&self) -> Seconds {
        if self.until_empty { Seconds::ZERO } else { MAX_WAIT }
    }

    /// The pause after a reserve that was sent at `sent` and has timed out: without it, a server that answers TIMED_OUT
    /// too early would be asked in a busy loop.
    pub(crate) fn rest_of_turn(&self, sent: Instant) -> Duration {
        Duration::from_nanos(self.turn().as_ns()).saturating_sub(sent.elapsed())
    }

    /// The slots, each with its server and its connector, which has a separate session.
    pub(crate) fn slot_connectors(&self) -> Result<Vec<(Address, Connector)>, Error> {
        let slots =
            self.servers.iter().flat_map(|server| (0..self.slots).map(move |number| (server, number)));
        slots.map(|(server, number)| Ok((server.clone(), self.connector.numbered(number)?))).collect()
    }

    /// The pause before a slot continues with another connection, after this error and this time without an answer;
    /// `None` if it does not continue. `attempts` are those since the last answer.
    pub(crate) fn pause_after(
        &self,
        error: &Error,
        away: Duration,
        attempts: &mut Attempts,
    ) -> Option<Duration> {
        let may_help = error.is_of_network() || error.is_out_of_step() || error.is_temporary();
        if !may_help || away > self.patience || self.stopper.is_stopped() {
            return None;
        }
        self.tell(&Event::Disconnected(error));
        match error.is_of_network() {
            // The connection has already paused between its own attempts.
            true => Some(Duration::ZERO),
            // A server whose answers come at once but are wrong, or refuse, is not asked without a pause.
            false => attempts.next_pause(&self.connector.reconnect?.give_up_after(Duration::MAX)),
        }
    }
}

#[cfg(test)]
mod tests;

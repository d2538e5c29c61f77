//! The decisions of a worker, without threads and tasks: the input and the result of a handler, and the outcome for the
//! job.
//!
//! Owns: the settings of a worker, and every decision about a job. Never waits, or talks to a server: [`run`] says what
//! a slot does, and `blocking::worker` and `asynchronous::worker` do it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use beanstalkd_types::seconds::Seconds;
use beanstalkd_types::tube_name::TubeName;

use crate::address::Address;
use crate::core::data::{Job, JobInfo};
use crate::core::engine::Reopening;
use crate::core::fields::Fields;
use crate::core::put::PutOptions;
use crate::core::tag::TraceParent;
use crate::core::{Backoff, Connector, Reconnect, jittered};
use crate::error::Error;
use crate::lock;
use crate::span::Span;

mod retry;
pub(crate) mod run;
mod slot;

pub use retry::Retry;
use retry::{FailedJobs, FailureCounts, given_back};
pub(crate) use slot::WorkerSlot;

/// The longest wait of one reserve. After each, a worker checks whether it should stop.
pub(crate) const MAX_WAIT: Seconds = Seconds::ONE;

/// The longest total of a worker's pauses between attempts at a connection, after which it gives up a command. With a
/// server that hangs, each attempt also takes a time-out; a stopped worker gives up after the first of them.
const MAX_CONNECT_PAUSES: Duration = Duration::from_secs(2);

/// How long a worker waits before it checks again whether it should stop.
pub(crate) const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// How long a worker without a job waits for an overdue reply or for a connection. A hanging server can delay a stop by
/// this time.
pub(crate) const MAX_SILENCE: Duration = Duration::from_secs(10);

/// How long a stopped worker waits for the reply to a command after an overdue reply.
pub(crate) const MAX_LATE_WAIT: Duration = Duration::from_secs(1);

/// The maximum number of further connections of its session on which the end of a job is tried. If that many are lost,
/// another one does not help.
pub(crate) const MAX_SETTLES: usize = 5;

/// A job as a handler gets it.
#[derive(Debug)]
#[non_exhaustive]
pub struct WorkerJob {
    /// The id of the job.
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
    failure_counts: FailureCounts,
}

impl WorkerJob {
    /// A job with its counters. Without them, all its fields must be present: see [`Worker::needs_info`].
    pub(crate) fn new(job: Job, info: Option<JobInfo>, worker: &Worker, failures: &FailedJobs) -> Self {
        let Job { id, body, fields } = job;
        let fields = info.as_ref().map_or(fields, JobInfo::fields);
        let failure_counts = FailureCounts::of(&fields, info.as_ref());
        let attempt = failures.attempt(id, failure_counts, &worker.retry);
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
            is_stopping: Arc::clone(&worker.stopper.0),
            failure_counts,
        }
    }

    /// The name of the job's tube.
    pub fn tube(&self) -> &str {
        &self.tube
    }

    /// The span in which the job was put, from the tag `trc:`. A tracing library can use it as the parent of the job's
    /// own span.
    pub fn trace(&self) -> Option<&TraceParent> {
        self.trace.as_ref()
    }

    /// Whether the worker should stop. The worker waits for the handler; a slow handler can end early with
    /// [`Handled::Postpone`].
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// How often the worker touches the job: three times in a TTR, in time for the shortest TTR of a second, and at
    /// least once a minute.
    pub(crate) fn touch_every(&self) -> Duration {
        Duration::from_millis((self.ttr.saturating_mul(1000) / 3).clamp(300, 60_000))
    }
}

/// The result of a handler. `Result<(), E>` can be used: `Ok` is [`Self::Done`], `Err` is [`Self::Failed`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Handled {
    /// The job is done, and will be deleted.
    Done,
    /// The job is done: it will be deleted, and these are put, at most a hundred, all or nothing
    /// ([`Client::complete`](crate::Client::complete)). Puts without a tag `tub:` go to the tube `default`. If the
    /// server refuses them, or lacks `complete`, nothing is put, and the job has failed.
    DoneAndPut(Vec<(PutOptions, Vec<u8>)>),
    /// The job has failed for this reason: it is tried again, or buried, depending on [`Retry`].
    Failed(String),
    /// The job has failed for this reason, and is tried again after this time instead of the delay of [`Retry`]; it is
    /// buried after the last attempt.
    RetryAfter(Duration, String),
    /// The job was not completed: it is tried again after this time, and this does not count as a failure. A server
    /// without the extension `release-uncounted` counts a release, unless the time is zero and there is no session:
    /// then the worker closes the connection, which makes the job ready.
    Postpone(Duration),
    /// Another attempt is useless, for this reason: the job is buried.
    Bury(String),
}

impl From<()> for Handled {
    fn from((): ()) -> Self {
        Self::Done
    }
}

impl<E: fmt::Display> From<Result<(), E>> for Handled {
    fn from(result: Result<(), E>) -> Self {
        match result {
            Ok(()) => Self::Done,
            Err(error) => Self::Failed(error.to_string()),
        }
    }
}

/// The action for a job at the end of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settled {
    /// The job was deleted.
    Deleted,
    /// The job was deleted, and the jobs of [`Handled::DoneAndPut`] were put.
    Completed,
    /// The job was released and becomes ready after this time.
    Released(Duration),
    /// The job was released without counting a failure.
    GivenBack(Duration),
    /// The job was buried.
    Buried,
    /// The TTR of the job had already ended, or another client has deleted it, or the connection that had reserved it
    /// was lost and no session has it. Another worker may have it.
    Lost,
    /// The server has not confirmed the action, because the connection was lost, or because the server could not do it
    /// then: it may have been executed, or the job becomes ready again.
    Unconfirmed,
}

impl Settled {
    /// The planned action.
    pub(crate) fn plan(handled: &Handled, job: &WorkerJob, retry: &Retry) -> Self {
        match handled {
            Handled::Done => Self::Deleted,
            Handled::DoneAndPut(_) => Self::Completed,
            Handled::Failed(_) | Handled::RetryAfter(..) if job.attempt >= retry.max_attempts => Self::Buried,
            Handled::Failed(_) => Self::Released(retry.delay(job.attempt)),
            Handled::RetryAfter(delay, _) => Self::Released(*delay),
            Handled::Postpone(delay) => Self::GivenBack(*delay),
            Handled::Bury(_) => Self::Buried,
        }
    }

    /// The action that was executed, and the error if the connection is not to be used any more.
    pub(crate) fn after(self, result: Result<bool, Error>) -> (Self, Result<(), Error>) {
        match result {
            Ok(true) => (self, Ok(())),
            Ok(false) => (Self::Buried, Ok(())), // because of a limit of the server
            Err(Error::Unconfirmed { .. }) => (Self::Unconfirmed, Ok(())),
            // Without a session the server has released the job; with one, its TTR decides.
            Err(error) if error.is_network_error() => (Self::Unconfirmed, Ok(())),
            Err(error) if error.is_not_found() => (Self::Lost, Ok(())),
            Err(error) => (Self::Unconfirmed, Err(error)),
        }
    }
}

impl Handled {
    /// If the server has refused the puts of a job that is done, that is a failure of the job, of which nothing was
    /// executed.
    pub(crate) fn refused(&self, error: &Error) -> Option<Self> {
        let is_refusal = matches!(error, Error::Refused(_) | Error::Invalid(_) | Error::Unsupported { .. });
        let is_permanent = is_refusal && !error.is_not_found() && !error.is_temporary();
        let failed = || Self::Failed(format!("the next jobs cannot be put: {error}"));
        (is_permanent && matches!(self, Self::DoneAndPut(_))).then(failed)
    }

    /// The jobs that are put when this one is deleted.
    pub(crate) fn puts(&self) -> Vec<(PutOptions, &[u8])> {
        match self {
            Self::DoneAndPut(puts) => {
                puts.iter().map(|(options, body)| (options.clone(), &body[..])).collect()
            }
            Self::Done | Self::Failed(_) | Self::RetryAfter(..) | Self::Postpone(_) | Self::Bury(_) => {
                Vec::new()
            }
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
    Began(&'a WorkerJob),
    /// An attempt has ended.
    Ended {
        /// The job.
        job: &'a WorkerJob,
        /// The result of the handler.
        handled: &'a Handled,
        /// The action for the job.
        settled: Settled,
        /// How long the handler took.
        took: Duration,
    },
    /// A job in progress could not be touched. If its TTR ends, another worker gets it. If the server no longer has it
    /// reserved for this worker, it is not touched again.
    NotTouched(&'a WorkerJob, &'a Error),
    /// There is no connection to the server, or the worker has closed it because the server's answer does not follow
    /// the protocol; the worker tries again.
    Disconnected {
        /// The reason.
        error: &'a Error,
        /// The number of this report since the server last replied, from 1.
        attempt: u32,
    },
}

/// The numbers of ended attempts, by the action for their jobs.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the words of Settled")]
pub struct Report {
    pub deleted: u64,
    pub completed: u64,
    pub released: u64,
    pub given_back: u64,
    pub buried: u64,
    pub lost: u64,
    pub unconfirmed: u64,
}

impl Report {
    fn count(&mut self, settled: Settled) {
        let counter = match settled {
            Settled::Deleted => &mut self.deleted,
            Settled::Completed => &mut self.completed,
            Settled::Released(_) => &mut self.released,
            Settled::GivenBack(_) => &mut self.given_back,
            Settled::Buried => &mut self.buried,
            Settled::Lost => &mut self.lost,
            Settled::Unconfirmed => &mut self.unconfirmed,
        };
        *counter += 1;
    }
}

/// Stops a worker. Clones stop the same one.
#[derive(Debug, Clone, Default)]
pub struct Stopper(Arc<AtomicBool>);

impl Stopper {
    /// Stops the worker: it runs no further job, and ends when its handlers have ended. A job that it was about to get
    /// is ready again. If the server hangs, a slot without a job ends after about ten seconds; one that waits for the
    /// end of its job to be confirmed ends after the connector's time-out, or a second later if the reply to another
    /// command was already overdue. Only a slot that has not been connected yet can take longer: it makes a few
    /// attempts, of ten seconds each.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the worker should stop.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

type Hook = Arc<dyn Fn(&Event<'_>) + Send + Sync>;
type SpanOf = Arc<dyn Fn(&WorkerJob) -> Span + Send + Sync>;

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
///         if let Event::Ended { job, handled, settled, took } = event {
///             println!("job {}: {handled:?}, {settled:?} after {took:?}", job.id);
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
    /// The report so far, to which the slots add.
    report: Arc<Mutex<Report>>,
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
    /// A worker with one slot. A server that is not there at the start is an error after a few attempts, unless there
    /// are others ([`Self::server`]). It waits without a limit for a server that goes away later, unless the connector
    /// has a [`Connector::reconnect`] that gives up.
    pub fn new(mut connector: Connector, server: Address) -> Self {
        let reconnect = connector.reconnect.unwrap_or(Reconnect::forever());
        connector.reconnect = Some(reconnect.give_up_after(reconnect.give_up_after.min(MAX_CONNECT_PAUSES)));
        Self {
            connector,
            servers: vec![server],
            tubes: Vec::new(),
            slots: 1,
            retry: Retry::default(),
            until_empty: false,
            stopper: Stopper::default(),
            report: Arc::default(),
            patience: reconnect.give_up_after,
            hook: None,
            span_of: None,
            with_info: false,
        }
    }

    /// Takes jobs from this server, too, with the same number of slots. If one of several servers is not there at the
    /// start, the worker works for the others, reports [`Event::Disconnected`], and tries again; with
    /// [`Self::until_empty`] it returns the error when it has done the work of the others. If none is there, that is an
    /// error at once.
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

    /// Ends when there is no ready job. It waits neither for delayed jobs nor for jobs that are to be tried again after
    /// a delay.
    #[must_use]
    pub fn until_empty(self) -> Self {
        Self { until_empty: true, ..self }
    }

    /// Sets the function for events, which is called by the thread or the task in which the event happens.
    #[must_use]
    pub fn on_event(self, hook: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        Self { hook: Some(Arc::new(hook)), ..self }
    }

    /// Asks for all counters of each job, and its tags: [`WorkerJob::info`]. This is one more command for each job.
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
    pub fn in_span(self, span_of: impl Fn(&WorkerJob) -> tracing::Span + Send + Sync + 'static) -> Self {
        Self { span_of: Some(Arc::new(move |job| Span(span_of(job)))), ..self }
    }

    pub(crate) fn span(&self, job: &WorkerJob) -> Span {
        self.span_of.as_ref().map_or_else(Span::none, |span_of| span_of(job))
    }

    /// Whether the fields of a job lack values that a [`WorkerJob`] has.
    pub(crate) fn needs_info(&self, fields: &Fields) -> bool {
        self.with_info || !fields.are_all() || self.retry.counts_buries() && given_back(fields) > 0
    }

    /// The handle that stops the worker.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    pub(crate) fn report(&self) -> Report {
        *lock(&self.report)
    }

    /// Whether a session keeps its jobs when a connection is lost.
    pub(crate) fn has_session(&self) -> bool {
        self.connector.session.is_some()
    }

    pub(crate) fn emit(&self, event: &Event<'_>) {
        if let Event::Ended { settled, .. } = event {
            lock(&self.report).count(*settled);
        }
        if let Some(hook) = &self.hook {
            hook(event);
        }
    }

    /// How long a reserve waits for a job.
    pub(crate) fn reserve_timeout(&self) -> Seconds {
        if self.until_empty { Seconds::ZERO } else { MAX_WAIT }
    }

    /// The pause after a reserve that was sent at `sent` and has timed out: without it, a server that answers TIMED_OUT
    /// too early would be asked in a busy loop.
    pub(crate) fn rest_of_timeout(&self, sent: Instant) -> Duration {
        Duration::from_nanos(self.reserve_timeout().as_ns()).saturating_sub(sent.elapsed())
    }

    /// The pause before a slot continues with another connection, after this error and this time without an answer;
    /// `None` if it does not continue. `backoff` is that since the last answer.
    pub(crate) fn pause_after(
        &self,
        error: &Error,
        away: Duration,
        backoff: &mut Backoff,
    ) -> Option<Duration> {
        let is_wrong_answer = error.is_out_of_step() || matches!(error, Error::MalformedData(_));
        let may_help = error.is_network_error() || is_wrong_answer || error.is_temporary();
        if !may_help || away > self.patience || self.stopper.is_stopped() {
            return None;
        }
        self.emit(&Event::Disconnected { error, attempt: backoff.next() });
        Some(self.pause(backoff))
    }

    /// The pause before the next attempt at a connection.
    pub(crate) fn pause(&self, backoff: &mut Backoff) -> Duration {
        let reconnect = self.connector.reconnect.unwrap_or_default().give_up_after(Duration::MAX);
        backoff.next_pause(&reconnect).map_or(reconnect.max_pause, jittered)
    }

    /// Whether a command for a job that a connection has reserved is also for the next connection.
    pub(crate) fn reopening_for_job(&self) -> Reopening {
        if self.has_session() { Reopening::Once } else { Reopening::Never }
    }

    /// The pause before a command for a job is sent again on another connection of its session, after this error;
    /// `None` if it is not sent again.
    pub(crate) fn pause_for_job(&self, error: &Error, backoff: &mut Backoff) -> Option<Duration> {
        // An attempt at a server that hangs would take another time-out.
        let is_over = self.stopper.is_stopped() && error.is_late();
        if !self.has_session() || !error.is_network_error() || is_over {
            return None;
        }
        backoff.next_pause(&self.connector.reconnect.unwrap_or_default()).map(jittered)
    }
}

#[cfg(test)]
mod tests;

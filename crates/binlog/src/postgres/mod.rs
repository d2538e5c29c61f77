//! The log in PostgreSQL: the store for `-b postgresql://...`.
//!
//! Owns: the tables, the connections, the thread that commits, and the ownership of the queue. It is the second shell
//! of the binlog: it calls sockets, a thread and a clock, and decides nothing about the log. Driven by the log through
//! [`Storage`]. Files of the log are rows here; `doc/binlog.md` has the tables.
//!
//! Appended bytes stay in memory until the turn is over, and then go to the thread together with the tasks. The thread
//! commits everything that waits in one transaction.

use std::fmt;
use std::io;
use std::mem;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::LogPosition;
use super::ownership::OwnershipTimes;
use super::storage::{Completion, DatabaseFigures, Listing, Storage, StoreTask};
use crate::clock::Timestamp;
use crate::database_url::DatabaseUrl;
use crate::os::clock;

mod address;
mod backlog;
mod ballast;
mod claim;
mod commit_delay;
mod copying;
mod figures;
mod helper;
mod owner_name;
mod password;
mod purges;
mod queue_clock;
mod reading;
mod seen;
mod sql;
mod statements;
mod tls;
mod vacuum;
mod wire;

pub use self::copying::PostgresCopy;
pub use self::password::Password;

use self::address::addresses;
use self::backlog::StoreRequest;
use self::claim::{HostError, claim};
use self::figures::StoreFigures;
use self::helper::{LoopLink, PostgresHelper, Wake};
use self::owner_name::OwnerName;
use self::queue_clock::QueueClock;
use self::reading::Reading;
use self::seen::SeenDatabases;
use self::sql::SqlValue;
use self::wire::{DatabaseConnection, LogIn, StatementError, first_number};

/// The time limit for a connection to an address, unless the URL sets one.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The time limit for an answer of the database before another connection is tried, unless commands wait for a shorter
/// time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The clock for the decisions of owners: it cannot be set, and continues while the machine is suspended.
fn now() -> Timestamp {
    Timestamp(clock::boot_time_ns())
}

/// `timeout`, or less if `limit` comes first; never zero, which a socket would take as no limit.
fn within(limit: Option<Instant>, timeout: Duration) -> Duration {
    let left = limit.map_or(timeout, |limit| limit.saturating_duration_since(Instant::now()));
    timeout.min(left).max(Duration::from_millis(1))
}

/// The settings of the store.
#[derive(Clone, Debug)]
pub struct Settings {
    url: DatabaseUrl,
    log_in: LogIn,
    times: OwnershipTimes,
    allow_async: bool,
    seen: Arc<SeenDatabases>,
    owner: OwnerName,
}

impl Settings {
    /// The settings for the queue at `url`. Reads the file of authorities that the URL names.
    ///
    /// # Errors
    /// If a file cannot be used.
    pub fn new(
        url: DatabaseUrl,
        password: Password,
        times: OwnershipTimes,
        allow_async: bool,
    ) -> Result<Self, StoreError> {
        let log_in = LogIn {
            user: url.user.clone(),
            database: url.database.clone(),
            password,
            tls: tls::config(&url.tls)?,
            answer_timeout: ANSWER_TIMEOUT.min(Duration::from_nanos(times.store_timeout_ns) / 2),
            connect_timeout: url.connect_timeout.unwrap_or(CONNECT_TIMEOUT),
            limit: None,
        };
        let owner = OwnerName::of_this_process(times.takeover_after_ns);
        Ok(Self { url, log_in, times, allow_async, seen: Arc::default(), owner })
    }
}

/// The reason why the queue cannot be used.
#[derive(Debug)]
#[allow(missing_docs, reason = "the comment of a variant names its fields")]
pub enum StoreError {
    /// The server `owner` owns it.
    OwnedByAnother { owner: String },
    /// No host accepts writes now. The text names each host with its reason.
    Unreachable(String),
    /// The connection has failed after the log-in.
    Lost(String),
    /// Commits would not survive the loss of a machine.
    Unsafe(String),
    /// The database refuses an operation that the store needs.
    Refused(String),
    /// The tables are of another version of the server: of `found`, or 0 if it cannot be found.
    Version { found: i64 },
    /// A file that the URL names cannot be used.
    File(String),
}

impl StoreError {
    /// No host can be used; `text` names each with its reason.
    fn of_hosts(unfit: HostError, text: String) -> Self {
        match unfit {
            HostError::Unsafe(_) => Self::Unsafe(text),
            HostError::Failed(failure) if !failure.is_retryable() => Self::Refused(text),
            HostError::ReadOnly(_) | HostError::Failed(_) => Self::Unreachable(text),
        }
    }

    /// The host `at` cannot be used.
    fn at(at: &str, failure: StatementError) -> Self {
        let text = format!("{at}: {failure}");
        Self::of_hosts(HostError::Failed(failure), text)
    }
}

/// Of a statement.
impl From<StatementError> for StoreError {
    fn from(failure: StatementError) -> Self {
        if failure.is_retryable() {
            Self::Lost(failure.to_string())
        } else {
            Self::Refused(failure.to_string())
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OwnedByAnother { owner } => write!(
                out,
                "the queue belongs to {owner}; end that server first, or start with --wait-for-lock to take over \
                 from it"
            ),
            Self::Unreachable(text) => write!(out, "cannot connect to the database at {text}"),
            Self::Lost(text) => write!(out, "the connection to the database is lost: {text}"),
            Self::Unsafe(text) => write!(
                out,
                "an acknowledged change would not survive the loss of a database machine: {text}; set up synchronous \
                 replication, or start with --allow-async if that is acceptable"
            ),
            Self::Refused(text) => write!(out, "the database refuses: {text}"),
            Self::Version { found } => write!(
                out,
                "the tables have version {found}, expected {}: use the server that belongs to them",
                sql::VERSION
            ),
            Self::File(text) => out.write_str(text),
        }
    }
}

impl std::error::Error for StoreError {}

/// The log in PostgreSQL.
#[derive(Debug)]
pub struct PostgresStorage {
    /// For reading; closed when the loop starts.
    reading: Option<Reading>,
    thread: Option<StoreThread>,
    /// Requests that have not been passed to the thread yet.
    submitted: Vec<StoreRequest>,
    figures: Arc<StoreFigures>,
    /// `None` if this server does not own the queue.
    clock: Option<QueueClock>,
}

/// A running thread. Dropping this waits for its work, and releases the ownership of the queue.
struct StoreThread {
    /// `None` once no more can come.
    given: Option<Sender<StoreRequest>>,
    done: Receiver<Completion>,
    wake: Wake,
    /// Tasks whose outcomes have not been received.
    under_way: usize,
    handle: Option<JoinHandle<()>>,
}

impl fmt::Debug for StoreThread {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("StoreThread").field("under_way", &self.under_way).finish_non_exhaustive()
    }
}

impl PostgresStorage {
    /// Becomes the owner of the queue. Waits for an earlier owner: without a limit if `waits`, otherwise for the time
    /// in which a dead owner still counts as alive. This takes time and must not run in the loop.
    ///
    /// # Errors
    /// If another server owns the queue, or if the database cannot be used.
    pub fn claim(settings: &Settings, waits: bool) -> Result<Self, StoreError> {
        let refused = |error: io::Error| StoreError::Lost(error.to_string());
        // Everything that can fail for lack of a resource comes before the claim.
        let (start, to_start) = channel::<PostgresHelper>();
        let run = move || to_start.recv().map_or((), PostgresHelper::run);
        let handle = Builder::new().name("binlog".to_owned()).spawn(run).map_err(refused)?;
        let (claim, reading) = claim(settings, waits)?;
        let (reading, clock) = (Reading::of_owner(reading, &claim, settings), Some(claim.queue.clock));
        let (given, incoming) = channel();
        let (outgoing, done) = channel();
        let wake: Wake = Arc::new(Mutex::new(None));
        let figures = Arc::new(StoreFigures::new(claim.epoch, !settings.allow_async));
        let link = LoopLink { given: incoming, done: outgoing, wake: Arc::clone(&wake) };
        let helper = PostgresHelper::new(settings.clone(), claim, link, Arc::clone(&figures));
        // The thread waits for it.
        let _ = start.send(helper);
        let running = StoreThread { given: Some(given), done, wake, under_way: 0, handle: Some(handle) };
        Ok(Self { reading: Some(reading), thread: Some(running), submitted: Vec::new(), figures, clock })
    }

    /// The log of the queue, read-only. A standby of the database is sufficient.
    ///
    /// # Errors
    /// If no host can be reached.
    pub fn read_only(settings: &Settings) -> Result<Self, StoreError> {
        let mut last = StoreError::Unreachable("there is no host".to_owned());
        for (at, address) in addresses(&settings.url.hosts, settings.log_in.limit) {
            let address = address.map_err(StatementError::Lost);
            let connection = address.and_then(|address| DatabaseConnection::open(&address, &settings.log_in));
            let connection = connection.map_err(|failure| StoreError::at(&at, failure));
            match connection.and_then(|connection| Self::read_only_at(settings, connection)) {
                Ok(reading) => {
                    let figures = Arc::new(StoreFigures::new(0, false));
                    return Ok(Self { reading, thread: None, submitted: Vec::new(), figures, clock: None });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// `None` if the database has no such queue.
    fn read_only_at(
        settings: &Settings,
        mut connection: DatabaseConnection,
    ) -> Result<Option<Reading>, StoreError> {
        // One view of all rows, even if an owner changes them in the meantime.
        connection.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")?;
        if connection.query(sql::HAS_TABLES)?.is_empty() {
            return Ok(None);
        }
        connection.prepare(sql::READING)?;
        let rows = connection.run(&sql::QUEUE, &[SqlValue::Text(&settings.url.queue)])?;
        Ok(first_number(&rows).map(|queue| Reading::new(connection, queue)))
    }

    fn reading(&mut self) -> io::Result<&mut Reading> {
        self.reading.as_mut().ok_or_else(|| io::Error::other("the log is read at the start alone"))
    }
}

impl Storage for PostgresStorage {
    fn list(&mut self) -> io::Result<Listing> {
        // No server has used the queue yet.
        self.reading.as_mut().map_or(Ok(Listing::default()), Reading::list)
    }

    fn size(&mut self, file: u32) -> io::Result<u64> {
        self.reading()?.size(file)
    }

    fn read(&mut self, file: u32, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.reading()?.read(file, offset, bytes)
    }

    /// Does nothing: the one connection is open.
    fn prepare(&mut self, _: u32) -> io::Result<()> {
        Ok(())
    }

    fn append(&mut self, at: LogPosition, bytes: &[u8]) -> io::Result<()> {
        debug_assert!(
            !bytes.is_empty(),
            "an append proves the ownership in the statement that adds its rows"
        );
        if let Some(StoreRequest::Append { at: start, bytes: before }) = self.submitted.last_mut()
            && start.file == at.file
            && start.offset + before.len() as u64 == at.offset
        {
            before.try_reserve(bytes.len())?;
            before.extend_from_slice(bytes);
        } else {
            let mut copy = Vec::new();
            copy.try_reserve_exact(bytes.len())?;
            copy.extend_from_slice(bytes);
            self.submitted.push(StoreRequest::Append { at, bytes: copy });
        }
        Ok(())
    }

    fn release(&mut self, _: u32) {}

    fn lease_left_ns(&self) -> Option<u64> {
        Some(self.figures.lease().left_ns(now()))
    }

    fn clock_ns(&self) -> Option<u64> {
        self.clock.map(|clock| u64::try_from(clock.at(now())).unwrap_or(0))
    }

    fn is_full(&self) -> bool {
        self.figures.is_full.load(Relaxed)
    }

    fn database(&self) -> Option<DatabaseFigures> {
        Some(self.figures.read())
    }

    fn submit(&mut self, task: StoreTask) {
        self.submitted.push(StoreRequest::Task(task));
    }

    fn poll(&mut self) -> Option<Completion> {
        let running = self.thread.as_mut()?;
        let completion = running.done.try_recv().ok()?;
        running.under_way = running.under_way.saturating_sub(1);
        Some(completion)
    }

    fn begin(&mut self) {
        let Some(running) = &mut self.thread else { return };
        for request in self.submitted.drain(..) {
            if matches!(request, StoreRequest::Task(_)) {
                running.under_way += 1;
            }
            // The thread receives until this end is closed.
            let _ = running.given.as_ref().map(|given| given.send(request));
        }
    }

    fn has_tasks_to_begin(&self) -> bool {
        !self.submitted.is_empty()
    }

    fn is_busy(&self) -> bool {
        let is_task = |request: &StoreRequest| matches!(request, StoreRequest::Task(_));
        self.submitted.iter().any(is_task)
            || self.thread.as_ref().is_some_and(|running| running.under_way > 0)
    }

    fn wait(&mut self) -> Option<Completion> {
        self.begin();
        let running = self.thread.as_mut().filter(|running| running.under_way > 0)?;
        let completion = running.done.recv().ok()?;
        running.under_way -= 1;
        Some(completion)
    }

    fn start(&mut self, wake: Box<dyn Fn() + Send>) -> io::Result<()> {
        if let Some(reading) = self.reading.take() {
            reading.connection.close();
        }
        if let Some(running) = &self.thread {
            // Work that was completed before is polled in the first turn.
            wake();
            *running.wake.lock().unwrap_or_else(PoisonError::into_inner) = Some(wake);
        }
        self.begin();
        Ok(())
    }

    fn keep_tail(&mut self, file: u32, offset: u64) -> io::Result<u64> {
        self.reading()?.keep_tail(file, offset)
    }

    fn set_aside(&mut self, file: u32) -> io::Result<()> {
        self.reading()?.set_aside(file)
    }
}

impl Drop for PostgresStorage {
    fn drop(&mut self) {
        self.begin();
        self.reading = None;
    }
}

impl Drop for StoreThread {
    fn drop(&mut self) {
        self.given = None;
        if let Some(handle) = mem::take(&mut self.handle) {
            let _ = handle.join();
        }
    }
}

//! Connecting to the database, and becoming the owner of a queue.
//!
//! Owns: the choice of a host that accepts writes, the check that its commits are durable enough, the tables, and the
//! wait for an earlier owner. Driven by the store when it opens, and by a copy; the helper, the ballast and the vacuum
//! only connect with it.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use log::{info, warn};

use super::address::addresses;
use super::owner_name::OwnerName;
use super::queue_clock::ClockWatch;
use super::sql::{SqlValue, int};
use super::statements::OwnedQueue;
use super::wire::{DatabaseConnection, StatementError, first_number};
use super::{Settings, StoreError, now, sql};
use crate::clock::{NS_PER_S, Timestamp};
use crate::os::clock;
use crate::ownership::{OwnershipTimes, SeenRow, Watch};

/// How long a server waits before it tries to connect to the database again.
const TRY_AGAIN: Duration = Duration::from_millis(200);
/// How often a server that waits repeats what is wrong.
const REPORT_INTERVAL_NS: u64 = 60 * NS_PER_S;
/// The value in the statements for a heartbeat of NULL.
const NO_HEARTBEAT: i64 = -1;

/// A queue that this server owns.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) connection: DatabaseConnection,
    pub(super) queue: OwnedQueue,
    pub(super) epoch: u64,
    /// An instant before the takeover was sent.
    pub(super) sent_at: Timestamp,
    /// Removed files that may have rows.
    pub(super) removed: Vec<u32>,
}

/// The reason why a host cannot be used.
#[derive(Debug)]
pub(super) enum HostError {
    Failed(StatementError),
    /// The host does not accept the owner's writes, for this reason.
    ReadOnly(String),
    /// Commits on the host are not durable enough.
    Unsafe(String),
}

impl From<StatementError> for HostError {
    fn from(failure: StatementError) -> Self {
        Self::Failed(failure)
    }
}

impl fmt::Display for HostError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(failure) => failure.fmt(out),
            Self::ReadOnly(reason) => out.write_str(reason),
            Self::Unsafe(reason) => out.write_str(reason),
        }
    }
}

/// Connects to the first address that accepts writes and commits durably. The text of an error names all of them.
pub(super) fn connect(settings: &Settings) -> Result<DatabaseConnection, (HostError, String)> {
    let mut worst: Option<(HostError, String)> = None;
    for (at, address) in addresses(&settings.url.hosts, settings.log_in.limit) {
        let open = || DatabaseConnection::open(&address.map_err(StatementError::Lost)?, &settings.log_in);
        match open_for_writing(settings, open) {
            Ok(connection) => return Ok(connection),
            Err(unfit) => {
                let text = format!("{at}: {unfit}");
                worst = Some(match worst {
                    // A reason that an operator must fix is more useful than a host that is down or a standby.
                    Some((HostError::Unsafe(reason), all)) => {
                        (HostError::Unsafe(reason), format!("{all}; {text}"))
                    }
                    Some((_, all)) => (unfit, format!("{all}; {text}")),
                    None => (unfit, text),
                });
            }
        }
    }
    Err(worst.unwrap_or((HostError::ReadOnly(String::new()), String::new())))
}

fn open_for_writing(
    settings: &Settings,
    open: impl FnOnce() -> Result<DatabaseConnection, StatementError>,
) -> Result<DatabaseConnection, HostError> {
    let mut connection = open()?;
    let rows = connection.query(sql::HOST)?;
    let row = rows.first().ok_or_else(|| StatementError::Lost("no answer".to_owned()))?;
    if row.text(0) == "t" {
        return Err(HostError::ReadOnly("it accepts no writes: it is a standby".to_owned()));
    }
    if row.text(1) == "on" {
        return Err(HostError::ReadOnly(
            "it accepts no writes: default_transaction_read_only is on".to_owned(),
        ));
    }
    let names = row.text(3);
    settings.seen.note_names(names);
    if !settings.allow_async {
        let commit = row.text(2);
        if matches!(commit, "off" | "local") {
            return Err(HostError::Unsafe(format!("synchronous_commit is {commit}")));
        }
        if names.is_empty() {
            return Err(HostError::Unsafe("synchronous_standby_names is empty".to_owned()));
        }
        if row.number(4) == Some(0) {
            return Err(HostError::Unsafe("no synchronous standby is attached".to_owned()));
        }
        // A higher setting than `on` is the operator's choice; a lower one would not survive a power loss of both
        // machines. It is always set, so that it stays the same on this connection when the setting of the database
        // changes.
        let is_applied = commit == "remote_apply";
        connection.query(if is_applied { sql::SET_REMOTE_APPLY } else { sql::SET_SYNCHRONOUS })?;
    }
    check_epoch(settings, &mut connection)?;
    Ok(connection)
}

/// Fails if this server has seen a higher epoch of the queue: then this database lacks changes that were committed in
/// it.
fn check_epoch(settings: &Settings, connection: &mut DatabaseConnection) -> Result<(), HostError> {
    let seen = settings.seen.epoch();
    if seen == 0 {
        return Ok(());
    }
    let has_tables = !connection.query(sql::HAS_TABLES)?.is_empty();
    // The name has no character that needs escaping in SQL.
    let rows = if has_tables { connection.query(&sql::epoch_of(&settings.url.queue))? } else { Vec::new() };
    let found = rows.first().and_then(|row| row.natural(0)).unwrap_or(0);
    if found < seen {
        return Err(HostError::ReadOnly(format!(
            "it is an old copy, with epoch {found} of the queue and not {seen}"
        )));
    }
    Ok(())
}

/// Makes the tables if they do not exist, and fails if they have another version.
fn make_tables(connection: &mut DatabaseConnection) -> Result<(), StoreError> {
    if !connection.query(sql::LACKS_SCHEMA)?.is_empty() {
        connection.query(sql::CREATE_SCHEMA)?;
    }
    if connection.query(sql::HAS_TABLES)?.is_empty() {
        connection.query(sql::CREATE)?;
    }
    let versions = connection.query(sql::READ_VERSION)?;
    let found = first_number(&versions).unwrap_or(0);
    if found != sql::VERSION {
        return Err(StoreError::Version { found });
    }
    Ok(())
}

/// The connections of a server that waits. They are all that an owner needs, and are opened before the takeover: a
/// server that could not open one afterwards would end, although the other server has already lost the queue.
struct Open {
    connection: DatabaseConnection,
    reading: DatabaseConnection,
}

impl Open {
    fn new(settings: &Settings) -> Result<Self, StoreError> {
        let refused = |(unfit, text)| StoreError::of_hosts(unfit, text);
        let mut connection = connect(settings).map_err(refused)?;
        make_tables(&mut connection)?;
        connection.prepare(sql::PREPARED)?;
        connection.run(&sql::ADD_QUEUE, &[SqlValue::Text(&settings.url.queue)])?;
        Ok(Self { connection, reading: open_reading(settings)? })
    }

    /// Fails unless the connection for reading works, and sees the queue as the other one does: two hosts of the URL
    /// may both accept writes.
    fn check_reading(&mut self, settings: &Settings, queue: i64, epoch: i64) -> Result<(), StoreError> {
        let rows = self.reading.run(&sql::QUEUE, &[SqlValue::Text(&settings.url.queue)])?;
        let found = rows.first().map(|row| (row.number(0), row.number(1)));
        if found == Some((Some(queue), Some(epoch))) {
            return Ok(());
        }
        Err(StoreError::Lost("the hosts of the address are different databases".to_owned()))
    }
}

/// A connection that reads the log.
pub(super) fn open_reading(settings: &Settings) -> Result<DatabaseConnection, StoreError> {
    let mut reading = connect(settings).map_err(|(unfit, text)| StoreError::of_hosts(unfit, text))?;
    reading.prepare(sql::READING)?;
    reading.prepare(sql::KEEPING)?;
    Ok(reading)
}

/// The answer to a server that wants to become the owner.
enum ClaimAnswer {
    Claimed(Box<(Claim, DatabaseConnection)>),
    /// Another server owns the queue.
    OwnedByAnother(OwnerName),
}

/// Becomes the owner of the queue, and returns a second connection for reading its log. Waits for an earlier owner:
/// without a limit if `waits`, otherwise for the time in which a dead owner still counts as alive.
pub(super) fn claim(settings: &Settings, waits: bool) -> Result<(Claim, DatabaseConnection), StoreError> {
    let mut settings = settings.clone();
    let (mut watch, mut clocks) = (Watch::new(settings.times), ClockWatch::default());
    let mut open = None;
    let mut complaints = Complaints::default();
    let start = Instant::now();
    let times = settings.times;
    let store_timeout_ns = times.store_timeout_ns;
    // The claim waits for one more heartbeat, and needs a moment to read it.
    let owned_ns =
        |takeover_after_ns| takeover_after_ns + 4 * OwnershipTimes { takeover_after_ns, ..times }.beat_ns();
    let limit = |owned_ns| (!waits).then(|| start + Duration::from_nanos(store_timeout_ns + owned_ns));
    settings.log_in.limit = limit(owned_ns(times.takeover_after_ns));
    let mut owned_since = None;
    let is_over = |since: Instant, longest_ns| !waits && since.elapsed() >= Duration::from_nanos(longest_ns);
    loop {
        match try_to_claim(&settings, &mut open, &mut watch, &mut clocks) {
            Ok(ClaimAnswer::Claimed(claimed)) => {
                let (mut claim, mut reading) = *claimed;
                (claim.connection.limit, reading.limit) = (None, None);
                return Ok((claim, reading));
            }
            Ok(ClaimAnswer::OwnedByAnother(owner)) => {
                let owned_ns = owned_ns(owner.takeover_after_ns.max(times.takeover_after_ns));
                if is_over(*owned_since.get_or_insert_with(Instant::now), owned_ns) {
                    return Err(StoreError::OwnedByAnother { owner: owner.to_string() });
                }
                settings.log_in.limit = limit(owned_ns);
                complaints.report(format!("the queue belongs to {owner}"), false);
                thread::sleep(Duration::from_nanos(times.poll_ns()));
            }
            Err(error) => {
                let is_retryable = match &error {
                    StoreError::Unreachable(_) | StoreError::Lost(_) => true,
                    StoreError::Unsafe(_) => waits,
                    // The database accepted the log-in before: an operator may be replacing the password.
                    StoreError::Refused(_) => waits && owned_since.is_some(),
                    StoreError::OwnedByAnother { .. } | StoreError::Version { .. } | StoreError::File(_) => {
                        false
                    }
                };
                if !is_retryable || is_over(start, store_timeout_ns) {
                    return Err(error);
                }
                (open, owned_since) = (None, None);
                watch.lost();
                complaints.report(error.to_string(), true);
                thread::sleep(TRY_AGAIN);
            }
        }
    }
}

/// Reports the obstacles: each reason once, and errors once a minute.
#[derive(Default)]
struct Complaints {
    last: String,
    reported_at: Timestamp,
}

impl Complaints {
    fn report(&mut self, text: String, is_warning: bool) {
        if self.is_due(&text, is_warning, now()) {
            if is_warning { warn!("{text}; trying again") } else { info!("{text}; waiting for it") }
        }
    }

    fn is_due(&mut self, text: &str, is_warning: bool, now: Timestamp) -> bool {
        let is_due = text != self.last || is_warning && now.since_ns(self.reported_at) >= REPORT_INTERVAL_NS;
        if is_due {
            (self.last, self.reported_at) = (text.to_owned(), now);
        }
        is_due
    }
}

fn try_to_claim(
    settings: &Settings,
    kept: &mut Option<Open>,
    watch: &mut Watch,
    clocks: &mut ClockWatch,
) -> Result<ClaimAnswer, StoreError> {
    let mut open = match kept.take() {
        Some(open) => open,
        None => Open::new(settings)?,
    };
    let rows = open.connection.run(&sql::SEE_QUEUE, &[SqlValue::Text(&settings.url.queue)])?;
    let received_at = now();
    let row = rows.first().ok_or_else(|| StoreError::Lost("the queue has no row".to_owned()))?;
    let (queue, epoch) = (row.number(0).unwrap_or(0), row.number(1).unwrap_or(0));
    let (owner, heartbeat) = (OwnerName::from(row.text(2)), row.number(3));
    clocks.note(row.number(4), row.natural(5).unwrap_or(0).saturating_mul(1000), received_at);
    let seen = SeenRow {
        epoch: settings.seen.note(epoch),
        heartbeat,
        is_own: owner == settings.owner,
        takeover_after_ns: owner.takeover_after_ns,
    };
    if !watch.observe(seen, received_at) {
        *kept = Some(open);
        return Ok(ClaimAnswer::OwnedByAnother(owner));
    }
    open.check_reading(settings, queue, epoch)?;
    let sent_at = now();
    let clock = clocks.clock(clock::wall_time_ns(), sent_at);
    let queue = OwnedQueue { id: queue, clock, allow_async: settings.allow_async, ticket: 0 };
    let taken = take_over(&mut open.connection, settings, &queue, epoch, heartbeat)?;
    let Some((epoch, removed)) = taken else {
        *kept = Some(open);
        return Ok(ClaimAnswer::OwnedByAnother(owner));
    };
    let checked = open.check_reading(settings, queue.id, epoch);
    if let Err(error) = checked {
        // No server serves the queue now. The next attempt takes it over again.
        queue.release(&mut open.connection, u64::try_from(epoch).unwrap_or(0))?;
        return Err(error);
    }
    let (name, silence_ms) = (&owner, watch.unchanged_ns(received_at) / 1_000_000);
    match heartbeat.filter(|_| !seen.is_own) {
        Some(_) => info!(
            "took over from {name}, whose heartbeat has not changed for {}.{:03} s; epoch {epoch}",
            silence_ms / 1000,
            silence_ms % 1000
        ),
        None if name.as_str().is_empty() => {
            info!("this server is the first owner of the queue; epoch {epoch}")
        }
        None => info!("took over from {name}; epoch {epoch}"),
    }
    let Open { connection, reading } = open;
    let epoch = settings.seen.note(epoch);
    Ok(ClaimAnswer::Claimed(Box::new((Claim { connection, queue, epoch, sent_at, removed }, reading))))
}

/// Takes over if the row has not changed. Returns the new epoch and the removed files.
fn take_over(
    connection: &mut DatabaseConnection,
    settings: &Settings,
    queue: &OwnedQueue,
    epoch: i64,
    heartbeat: Option<i64>,
) -> Result<Option<(i64, Vec<u32>)>, StoreError> {
    let values = [
        int(queue.id),
        int(epoch),
        int(heartbeat.unwrap_or(NO_HEARTBEAT)),
        SqlValue::Text(settings.owner.as_str()),
        int(queue.allow_async),
        queue.time(),
    ];
    connection.add(&sql::TAKE_OVER, &values)?;
    connection.add(&sql::REMOVED, &values[..1])?;
    connection.end();
    connection.flush()?;
    let rows = connection.rows()?;
    // The row of the takeover has two columns, the rows of the files have one.
    let Some(epoch) = rows.first().filter(|row| row.columns.len() == 2).and_then(|row| row.number(0)) else {
        return Ok(None);
    };
    let files = rows[1..].iter().filter_map(|row| row.natural(0)?.try_into().ok());
    Ok(Some((epoch, files.collect())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_repeated_after_a_minute_and_another_message_is_not() {
        let at = |seconds| Timestamp(seconds * NS_PER_S);
        let mut complaints = Complaints::default();
        let mut due = |text: &str, is_warning, seconds| complaints.is_due(text, is_warning, at(seconds));
        assert!(due("silent", true, 100) && !due("silent", true, 159) && due("silent", true, 160));
        assert!(!due("silent", true, 161) && due("refused", true, 162));
        assert!(due("owned", false, 163) && !due("owned", false, 3600) && due("silent", true, 3601));
    }
}

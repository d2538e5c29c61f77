//! Reaching the database, and becoming the owner of a queue.
//!
//! Owns: which host takes writes, whether its commits are durable enough, the tables, and the wait for an earlier owner.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use log::{info, warn};

use super::address::addresses;
use super::sql;
use super::wire::{Failure, Row, Session, Value};
use super::{Settings, StoreError};
use crate::binlog::ownership::{Seen, Watch};
use crate::clock::Timestamp;

/// How often a server looks whether it may take over.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// The time since the start of this value, for the decisions of owners.
#[derive(Clone, Copy, Debug)]
pub(super) struct Since(Instant);

impl Since {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn now(self) -> Timestamp {
        Timestamp(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// A queue that this server owns.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) session: Session,
    pub(super) queue: i64,
    pub(super) epoch: u64,
    pub(super) owner: String,
    pub(super) since: Since,
}

/// Why a host cannot be used.
#[derive(Debug)]
pub(super) enum Unfit {
    Failed(Failure),
    /// It takes no writes, for this reason.
    ReadOnly(&'static str),
    /// Its commits are not as durable as they must be.
    Unsafe(String),
}

impl From<Failure> for Unfit {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(failure) => failure.fmt(out),
            Self::ReadOnly(reason) => write!(out, "it takes no writes: {reason}"),
            Self::Unsafe(reason) => out.write_str(reason),
        }
    }
}

/// The number in a column.
pub(super) fn number(row: &Row, column: usize) -> Option<i64> {
    std::str::from_utf8(row.get(column)?.as_deref()?).ok()?.parse().ok()
}

/// A number as the database has it.
pub(super) fn as_int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The text in a column; empty for NULL.
pub(super) fn text(row: &Row, column: usize) -> &str {
    let bytes = row.get(column).and_then(Option::as_deref).unwrap_or_default();
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// A connection to the first address that takes writes and commits durably. The text of an error names all of them.
pub(super) fn connect(settings: &Settings) -> Result<Session, (Unfit, String)> {
    let mut worst: Option<(Unfit, String)> = None;
    for (at, address) in addresses(&settings.url.hosts) {
        let open = || Session::open(&address?, &settings.log_in);
        match open_for_writing(settings, open) {
            Ok(session) => return Ok(session),
            Err(unfit) => {
                let text = format!("{at}: {unfit}");
                worst = Some(match worst {
                    // What an operator must mend says more than a host that is down or a standby.
                    Some((Unfit::Unsafe(reason), all)) => (Unfit::Unsafe(reason), format!("{all}; {text}")),
                    Some((_, all)) => (unfit, format!("{all}; {text}")),
                    None => (unfit, text),
                });
            }
        }
    }
    Err(worst.unwrap_or((Unfit::ReadOnly("there is no host"), String::new())))
}

fn open_for_writing(
    settings: &Settings,
    open: impl FnOnce() -> Result<Session, Failure>,
) -> Result<Session, Unfit> {
    let mut session = open()?;
    let rows = session.query(sql::HOST)?;
    let row = rows.first().ok_or_else(|| Failure::Lost("no answer".to_owned()))?;
    if text(row, 0) == "t" {
        return Err(Unfit::ReadOnly("it is a standby"));
    }
    if text(row, 1) == "on" {
        return Err(Unfit::ReadOnly("default_transaction_read_only is on"));
    }
    if !settings.allow_async {
        let commit = text(row, 2);
        if matches!(commit, "off" | "local") {
            return Err(Unfit::Unsafe(format!("synchronous_commit is {commit}")));
        }
        if text(row, 3).is_empty() {
            return Err(Unfit::Unsafe("synchronous_standby_names is empty".to_owned()));
        }
        if number(row, 4) == Some(0) {
            return Err(Unfit::Unsafe("no synchronous standby is attached".to_owned()));
        }
        // More than `on` is the operator's choice; less would not survive the loss of both machines' power. It is set in
        // any case, so that it stays for this connection when the setting of the database changes.
        let is_applied = commit == "remote_apply";
        session.query(if is_applied { sql::SET_REMOTE_APPLY } else { sql::SET_SYNCHRONOUS })?;
    }
    Ok(session)
}

/// Makes the tables if there are none, and fails if they are of another version.
fn make_tables(session: &mut Session) -> Result<(), StoreError> {
    if !session.query(sql::LACKS_SCHEMA)?.is_empty() {
        session.query(sql::CREATE_SCHEMA)?;
    }
    if session.query(sql::HAS_TABLES)?.is_empty() {
        session.query(sql::CREATE)?;
    }
    let versions = session.query(sql::READ_VERSION)?;
    match versions.first().and_then(|row| number(row, 0)) {
        Some(sql::VERSION) => Ok(()),
        found => Err(StoreError::Version { found: found.unwrap_or(0) }),
    }
}

/// What a try to become the owner has come to.
enum Attempt {
    Claimed(Box<Claim>),
    /// Another server owns the queue.
    Held(String),
}

/// Becomes the owner of the queue. Waits for an earlier owner: for ever if `waits`, else as long as a dead one is taken for
/// alive.
pub(super) fn claim(settings: &Settings, waits: bool) -> Result<Claim, StoreError> {
    let since = Since::start();
    let mut watch = Watch::new(settings.times);
    let mut session = None;
    let mut complaints = Complaints::default();
    let patience = if waits { None } else { Some(Instant::now()) };
    let is_over =
        |longest_ns: u64| patience.is_some_and(|start| start.elapsed() > Duration::from_nanos(longest_ns));
    loop {
        match attempt(settings, &mut session, &watch, since) {
            Ok(Attempt::Claimed(claim)) => return Ok(*claim),
            Ok(Attempt::Held(owner)) => {
                // A heartbeat needs a moment to be seen.
                if is_over(settings.times.takeover_after_ns + 2 * settings.times.beat_ns()) {
                    return Err(StoreError::Held { owner });
                }
                complaints.say(|| format!("the queue belongs to {owner}"), false);
            }
            Err(error) => {
                let may_pass = match &error {
                    StoreError::Unreachable(_) | StoreError::Lost(_) => true,
                    StoreError::Unsafe(_) => waits,
                    _ => false,
                };
                if !may_pass || is_over(settings.times.store_timeout_ns) {
                    return Err(error);
                }
                session = None;
                watch.lost(since.now());
                complaints.say(|| error.to_string(), true);
            }
        }
        thread::sleep(LOOK_AGAIN);
    }
}

/// Says what is in the way, once for each reason.
#[derive(Default)]
struct Complaints(String);

impl Complaints {
    fn say(&mut self, text: impl FnOnce() -> String, is_warning: bool) {
        let text = text();
        if text != self.0 {
            if is_warning {
                warn!("{text}; trying again")
            } else {
                info!("{text}; waiting for it")
            }
            self.0 = text;
        }
    }
}

fn attempt(
    settings: &Settings,
    session: &mut Option<Session>,
    watch: &Watch,
    since: Since,
) -> Result<Attempt, StoreError> {
    let mut open = match session.take() {
        Some(open) => open,
        None => {
            let mut open = connect(settings).map_err(|(unfit, text)| StoreError::of_hosts(unfit, text))?;
            make_tables(&mut open)?;
            open.prepare(sql::PREPARED)?;
            open.run("add_queue", &[Value::Text(&settings.url.queue)])?;
            open
        }
    };
    let rows = open.run("see_queue", &[Value::Text(&settings.url.queue)])?;
    let row = rows.first().ok_or_else(|| StoreError::Lost("the queue has no row".to_owned()))?;
    let (queue, epoch) = (number(row, 0).unwrap_or(0), number(row, 1).unwrap_or(0));
    let (owner, heartbeat) = (text(row, 2), text(row, 3));
    let age_ns = number(row, 4).map(|age_us| u64::try_from(age_us).unwrap_or(0).saturating_mul(1000));
    let seen = Seen { epoch: u64::try_from(epoch).unwrap_or(0), age_ns };
    if watch.may_take_over(seen, since.now()) {
        let values = [
            Value::Int(queue),
            Value::Int(epoch),
            Value::Text(heartbeat),
            Value::Text(&settings.owner),
            Value::Int(i64::from(settings.allow_async)),
        ];
        let taken = open.run("take_over", &values)?;
        if let Some(epoch) = taken.first().and_then(|row| number(row, 0)) {
            let was = if owner.is_empty() { "nobody" } else { owner };
            match age_ns {
                Some(age_ns) => info!(
                    "took over from {was}, whose heartbeat is {}.{:03} s old; epoch {epoch}",
                    age_ns / 1_000_000_000,
                    age_ns / 1_000_000 % 1000
                ),
                None => info!("took over from {was}; epoch {epoch}"),
            }
            let epoch = u64::try_from(epoch).unwrap_or(0);
            let owner = settings.owner.clone();
            return Ok(Attempt::Claimed(Box::new(Claim { session: open, queue, epoch, owner, since })));
        }
    }
    *session = Some(open);
    Ok(Attempt::Held(owner.to_owned()))
}

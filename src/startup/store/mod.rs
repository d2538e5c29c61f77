//! The store of the binlog: a directory or a database.
//!
//! Owns: how the server takes, awaits and opens a store, and the messages about it. Driven by `startup` and `main`.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use beanstalkd::http::StartupHealth;
use beanstalkd::options::{BinlogPlace, ExitReason};
use beanstalkd_binlog::{DirectoryStorage, Storage};
use beanstalkd_os::directory_lock::{DirectoryLock, LockError};
use beanstalkd_os::service_manager;
use beanstalkd_os::signals::Signals;
use log::{error, info, warn};

use super::refusal::refuse_lock;

#[cfg(feature = "postgres")]
pub mod database;
#[cfg(not(feature = "postgres"))]
pub mod no_database;
#[cfg(not(feature = "postgres"))]
pub use self::no_database as database;

/// How often a server that waits for its store checks for a signal to end.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// How long a server may need to become the owner of a queue in a database before it counts as a standby. The first
/// server of a queue is not reported as ready before it serves.
const STANDBY_AFTER: Duration = Duration::from_secs(2);

/// A place whose files (a password, authorities) have been read.
#[derive(Clone, Debug)]
pub enum Prepared {
    /// In a directory.
    Directory(std::path::PathBuf),
    /// In a database.
    Database(Box<database::Settings>),
}

/// Reads the files that the place needs.
pub fn prepare(place: &BinlogPlace) -> Result<Prepared, Box<dyn Error>> {
    Ok(match place {
        BinlogPlace::Directory(path) => Prepared::Directory(path.clone()),
        BinlogPlace::Database(url, options) => {
            Prepared::Database(Box::new(database::settings(url, options)?))
        }
    })
}

impl Prepared {
    /// The store, opened read-only.
    pub fn read_only(&self) -> Result<Box<dyn Storage>, Box<dyn Error>> {
        Ok(match self {
            Self::Directory(path) => Box::new(DirectoryStorage::read_only(path)),
            Self::Database(settings) => database::read_only(settings)?,
        })
    }
}

/// The result of taking a store.
pub enum Taken {
    /// No other server uses the store until this value is dropped. The number is the descriptor that holds its lock.
    Store(Box<dyn Storage>, Option<i32>),
    /// A signal to stop came first.
    Stopped,
}

impl Taken {
    /// The descriptor that holds the lock, if there is one.
    pub fn lock(&self) -> Option<i32> {
        match self {
            Self::Store(_, lock) => *lock,
            Self::Stopped => None,
        }
    }
}

/// Takes the store. A standby waits for it, and reports that to the service manager and at `/readyz`.
pub fn take(
    place: &BinlogPlace,
    prepared: Prepared,
    waits: bool,
    signals: &mut Signals,
    health: Option<&StartupHealth>,
) -> Result<Taken, ExitReason> {
    match prepared {
        Prepared::Directory(path) => take_directory(place, &path, waits, signals, health),
        Prepared::Database(settings) => {
            let status = waits.then(|| format!("standby: waiting for {place}"));
            if let Some(status) = &status {
                report_status(status, health);
            }
            let (outcome, waiting) = channel();
            let claim = move || drop(outcome.send(database::claim(&settings, waits)));
            let thread = std::thread::Builder::new().name("claim".to_owned()).spawn(claim);
            thread.map_err(|error| refuse(place, &error))?;
            let Some(store) = await_one(&waiting, signals, place, status.as_deref())? else {
                return Ok(Taken::Stopped);
            };
            Ok(Taken::Store(Box::new(store.map_err(|error| refuse(place, &error))?), None))
        }
    }
}

/// Takes the lock of the directory at `path`. A standby whose lock is that of another directory, which was at this path
/// before, waits for the lock of the present one.
fn take_directory(
    place: &BinlogPlace,
    path: &Path,
    waits: bool,
    signals: &mut Signals,
    health: Option<&StartupHealth>,
) -> Result<Taken, ExitReason> {
    let refuse = |error: LockError| refuse_lock(path, &error);
    loop {
        let taken = DirectoryLock::take(path);
        let must_wait = waits && matches!(taken, Err(LockError::Held { .. }));
        let lock = if must_wait {
            let (outcome, waiting) = channel();
            // If the receiver has been dropped, the process is ending.
            DirectoryLock::wait(path, move |lock| drop(outcome.send(lock))).map_err(refuse)?;
            // The file of the lock is open now: a directory that is moved away after this message is noticed.
            let status = format!("standby: waiting for the lock of {place}");
            report_status(&status, health);
            notify(service_manager::notify_standby(&status));
            let Some(lock) = await_one(&waiting, signals, place, None)? else {
                return Ok(Taken::Stopped);
            };
            lock
        } else {
            taken
        };
        let lock = lock.map_err(refuse)?;
        let descriptor = lock.descriptor();
        match DirectoryStorage::locked(path, lock) {
            Err(error @ LockError::Replaced { .. }) if must_wait => info!("{error}: trying again"),
            storage => {
                let storage = storage.map_err(refuse)?;
                if must_wait {
                    info!("the lock is free, taking over");
                }
                return Ok(Taken::Store(Box::new(storage), Some(descriptor)));
            }
        }
    }
}

/// Waits for the message of a thread; `None` if a signal to stop comes first. The loop obeys the other signals when it
/// starts. If the wait is long, the service manager gets `standby` as the status of a service that is ready.
fn await_one<T>(
    waiting: &Receiver<T>,
    signals: &mut Signals,
    place: &BinlogPlace,
    mut standby: Option<&str>,
) -> Result<Option<T>, ExitReason> {
    let start = Instant::now();
    loop {
        match waiting.recv_timeout(SIGNAL_CHECK_INTERVAL) {
            Ok(outcome) => return Ok(Some(outcome)),
            Err(RecvTimeoutError::Timeout) if signals.has_stop() => return Ok(None),
            Err(RecvTimeoutError::Timeout) if start.elapsed() >= STANDBY_AFTER => {
                if let Some(status) = standby.take() {
                    notify(service_manager::notify_standby(status));
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                error!("the thread that waits for the lock of {place} has ended without it");
                return Err(ExitReason::BinlogDirectory);
            }
        }
    }
}

fn report_status(status: &str, health: Option<&StartupHealth>) {
    info!("{status}");
    notify(service_manager::notify_status(status));
    if let Some(health) = health {
        health.set_reason(status);
    }
}

fn notify(sent: io::Result<()>) {
    if let Err(error) = sent {
        warn!("cannot notify the service manager: {error}");
    }
}

/// Reports that the store cannot be used.
pub fn refuse(place: &BinlogPlace, error: &dyn fmt::Display) -> ExitReason {
    error!("-b {place}: {error}");
    ExitReason::BinlogDirectory
}

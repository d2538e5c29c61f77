//! Ballast: reserved space in the database, for changes that must still be appended when its disk is full.
//!
//! Owns: a table of the queue whose contents are never read, the thread that makes it, and whether puts are refused. In
//! a directory, files are made before they are needed. A table grows with each row: if that fails, commands have
//! already been executed whose records are missing. Then this table is dropped, which frees its space for them and for
//! later deletes, and no put is accepted until there is space to make it again. The table is unlogged: it costs the
//! write-ahead log nothing, and is empty after a crash or a promotion, so it is checked on each new connection. Driven
//! by the helper.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use log::{info, warn};

use super::figures::StoreFigures;
use super::wire::{DatabaseConnection, StatementError, first_number};
use super::{Settings, claim, sql};

/// How long to wait before the next attempt to make the table.
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// Whether the ballast exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BallastState {
    Kept,
    /// The ballast must be made from this time on.
    Missing(Instant),
    /// The role may not make a table.
    Impossible,
}

/// The ballast of a queue.
#[derive(Debug)]
pub(super) struct Ballast {
    figures: Arc<StoreFigures>,
    queue: i64,
    state: BallastState,
    thread: Option<JoinHandle<Result<(), StatementError>>>,
}

impl Ballast {
    pub(super) fn new(figures: Arc<StoreFigures>, queue: i64) -> Self {
        Self { figures, queue, state: BallastState::Missing(Instant::now()), thread: None }
    }

    /// Checks the ballast again, because the new connection may be to another server of the database.
    pub(super) fn check_again(&mut self) {
        if self.state == BallastState::Kept {
            self.state = BallastState::Missing(Instant::now());
        }
    }

    /// Starts a thread that makes the table, if that is due. Does not wait for it.
    pub(super) fn tend(&mut self, settings: &Settings) {
        if let Some(thread) = self.thread.take_if(|thread| thread.is_finished()) {
            self.state = match thread.join() {
                Ok(Ok(())) => {
                    self.admit_puts();
                    BallastState::Kept
                }
                Ok(Err(StatementError::Refused { code, message })) if code == sql::INSUFFICIENT_PRIVILEGE => {
                    info!("cannot keep room in the database for the time when its disk is full: {message}");
                    BallastState::Impossible
                }
                Ok(Err(_)) | Err(_) => BallastState::Missing(Instant::now() + TRY_AGAIN),
            };
        }
        if let BallastState::Missing(from) = self.state
            && from <= Instant::now()
            && self.thread.is_none()
        {
            let (settings, queue) = (settings.clone(), self.queue);
            // If the thread cannot be started, the helper's next turn tries again.
            self.thread =
                Builder::new().name("ballast".to_owned()).spawn(move || make(&settings, queue)).ok();
        }
    }

    /// Drops the ballast, because the database has no space. Returns whether it has some now.
    pub(super) fn give_up(&mut self, connection: &mut DatabaseConnection, address: &str) -> bool {
        if !self.figures.is_full.swap(true, Relaxed) {
            warn!("{address}: the database has no room: puts are refused until it has");
        }
        let is_kept = self.state == BallastState::Kept;
        if is_kept {
            self.state = BallastState::Missing(Instant::now() + TRY_AGAIN);
        }
        is_kept && connection.query(&sql::drop_ballast(self.queue)).is_ok()
    }

    /// Notes that a transaction was committed. If there can be no ballast, this shows that there is space.
    pub(super) fn note_commit(&self) {
        if self.state == BallastState::Impossible {
            self.admit_puts();
        }
    }

    fn admit_puts(&self) {
        if self.figures.is_full.swap(false, Relaxed) {
            info!("the database has room again");
        }
    }
}

fn make(settings: &Settings, queue: i64) -> Result<(), StatementError> {
    let mut connection = claim::connect(settings).map_err(|(_, text)| StatementError::Lost(text))?;
    let size = connection.query(&sql::ballast_size(queue))?;
    if first_number(&size).unwrap_or(0) < sql::BALLAST_BYTES {
        connection.query(&sql::make_ballast(queue))?;
    }
    connection.close();
    Ok(())
}

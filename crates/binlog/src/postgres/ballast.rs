//! Room that is kept in the database for what must still be appended when its disk is full.
//!
//! Owns: a table of the queue whose bytes nobody reads, the thread that makes it, and whether puts are refused. A
//! directory has its files made before they are needed. A table grows with each row: when that fails, commands have
//! been done whose records are not there yet. Then this table is dropped, which gives its room to them and to later
//! deletes, and no put is taken until there is room to make it again. It is unlogged: it costs the write-ahead log
//! nothing, and is empty after a crash or a promotion, so it is looked at with each new connection. Driven by the
//! helper.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use log::{info, warn};

use super::figures::Figures;
use super::wire::{Session, StatementError, first_number};
use super::{Settings, claim, sql};

/// How long to wait before it is tried again to make the table.
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// Whether the room is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Kept,
    /// It is to be made from this time on.
    Missing(Instant),
    /// The role may not make a table.
    Impossible,
}

/// The room of a queue.
#[derive(Debug)]
pub(super) struct Ballast {
    figures: Arc<Figures>,
    queue: i64,
    state: State,
    thread: Option<JoinHandle<Result<(), StatementError>>>,
}

impl Ballast {
    pub(super) fn new(figures: Arc<Figures>, queue: i64) -> Self {
        Self { figures, queue, state: State::Missing(Instant::now()), thread: None }
    }

    /// There is a new connection, perhaps to another server of the database.
    pub(super) fn look_again(&mut self) {
        if self.state == State::Kept {
            self.state = State::Missing(Instant::now());
        }
    }

    /// Starts a thread that makes the table, if that is due. Does not wait for it.
    pub(super) fn look_after(&mut self, settings: &Settings) {
        if let Some(thread) = self.thread.take_if(|thread| thread.is_finished()) {
            self.state = match thread.join() {
                Ok(Ok(())) => {
                    self.let_puts_in();
                    State::Kept
                }
                Ok(Err(StatementError::Refused { code, message })) if code == sql::INSUFFICIENT_PRIVILEGE => {
                    info!("no room is kept for the time when the disk of the database is full: {message}");
                    State::Impossible
                }
                Ok(Err(_)) | Err(_) => State::Missing(Instant::now() + TRY_AGAIN),
            };
        }
        if let State::Missing(from) = self.state
            && from <= Instant::now()
            && self.thread.is_none()
        {
            let (settings, queue) = (settings.clone(), self.queue);
            // Without a thread, it is tried again in the next turn of the helper.
            self.thread =
                Builder::new().name("ballast".to_owned()).spawn(move || make(&settings, queue)).ok();
        }
    }

    /// The database has no room. Returns whether it has some now.
    pub(super) fn give_up(&mut self, session: &mut Session, place: &str) -> bool {
        if !self.figures.is_full.swap(true, Relaxed) {
            warn!("{place}: the database has no room: puts are refused until it has");
        }
        let is_kept = self.state == State::Kept;
        if is_kept {
            self.state = State::Missing(Instant::now() + TRY_AGAIN);
        }
        is_kept && session.query(&sql::drop_ballast(self.queue)).is_ok()
    }

    /// A transaction is committed. Where no room can be kept, this is the sign that there is some.
    pub(super) fn note_commit(&self) {
        if self.state == State::Impossible {
            self.let_puts_in();
        }
    }

    fn let_puts_in(&self) {
        if self.figures.is_full.swap(false, Relaxed) {
            info!("the database has room again");
        }
    }
}

fn make(settings: &Settings, queue: i64) -> Result<(), StatementError> {
    let mut session = claim::connect(settings).map_err(|(_, text)| StatementError::Lost(text))?;
    let size = session.query(&sql::ballast_size(queue))?;
    if first_number(&size).unwrap_or(0) < sql::BALLAST_BYTES {
        session.query(&sql::make_ballast(queue))?;
    }
    session.close();
    Ok(())
}

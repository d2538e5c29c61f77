//! Frees the space of deleted rows for new ones.
//!
//! Owns: when the table of the log is vacuumed, and the thread that does it through its own connection. Autovacuum
//! checks a table once a minute, and a busy queue deletes gigabytes in a minute. No commit waits for this thread.
//! Driven by the helper, which reports how many rows it has deleted.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use log::info;

use super::figures::StoreFigures;
use super::{Settings, claim, sql};

/// The table is vacuumed after this many deleted rows: at most 32 MiB.
const ROWS_PER_VACUUM: usize = 4096;
/// The time limit for a vacuum.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);

/// The vacuum that the tables of a busy queue need.
#[derive(Debug)]
pub(super) struct Vacuum {
    figures: Arc<StoreFigures>,
    /// Rows that were deleted since the last vacuum began.
    deleted: usize,
    /// The result of the thread is the reason if the vacuum failed.
    thread: Option<JoinHandle<Result<(), String>>>,
    /// The reason why one failed: reported once, because autovacuum does the same later.
    trouble: String,
}

impl Vacuum {
    pub(super) fn new(figures: Arc<StoreFigures>) -> Self {
        Self { figures, deleted: 0, thread: None, trouble: String::new() }
    }

    /// Notes that at most `rows` rows were deleted.
    pub(super) fn note_deleted(&mut self, rows: usize, settings: &Settings) {
        self.deleted += rows;
        if let Some(thread) = self.thread.take_if(|thread| thread.is_finished())
            && let Ok(Err(trouble)) = thread.join()
            && trouble != self.trouble
        {
            info!("the tables are left to autovacuum, and may grow by gigabytes under load: {trouble}");
            self.trouble = trouble;
        }
        if self.deleted < ROWS_PER_VACUUM || self.thread.is_some() {
            return;
        }
        self.deleted = 0;
        let (settings, figures) = (settings.clone(), Arc::clone(&self.figures));
        // If the thread cannot be started, the next attempt comes after the same number of rows.
        self.thread = Builder::new().name("vacuum".to_owned()).spawn(move || vacuum(settings, &figures)).ok();
    }
}

fn vacuum(mut settings: Settings, figures: &StoreFigures) -> Result<(), String> {
    settings.log_in.answer_timeout = ANSWER_TIMEOUT;
    settings.log_in.limit = None;
    let mut connection = claim::connect(&settings).map_err(|(_, text)| text)?;
    let size = connection.query(sql::TABLE_BYTES).map_err(|failure| failure.to_string())?;
    figures.table_bytes.store(size.first().and_then(|row| row.natural(0)).unwrap_or(0), Relaxed);
    // A role without the permission gets a warning, which counts as a failure here.
    connection.query(sql::VACUUM).map_err(|failure| failure.to_string())?;
    connection.close();
    Ok(())
}

//! Makes the space of deleted rows free for new ones.
//!
//! Owns: when the table of the log is vacuumed, and the thread that does it through a connection of its own. Autovacuum
//! looks at a table once a minute, and a busy queue deletes gigabytes in a minute. No commit waits for this thread.
//! Driven by the helper, which says how many rows it has deleted.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use log::info;

use super::figures::Figures;
use super::{Settings, claim, sql};

/// The table is vacuumed when this many rows were deleted: at most 32 MiB.
const ROWS_PER_VACUUM: usize = 4096;
/// How long the database may take for it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);

/// The vacuum that the tables of a busy queue need.
#[derive(Debug)]
pub(super) struct Vacuum {
    figures: Arc<Figures>,
    /// Rows that were deleted since the last vacuum began.
    deleted: usize,
    /// Its result is why it was not done.
    thread: Option<JoinHandle<Result<(), String>>>,
    /// Why one was not done: said once, because autovacuum does the same later.
    trouble: String,
}

impl Vacuum {
    pub(super) fn new(figures: Arc<Figures>) -> Self {
        Self { figures, deleted: 0, thread: None, trouble: String::new() }
    }

    /// At most `rows` rows were deleted.
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
        // Without a thread, the next one is tried after as many rows.
        self.thread = Builder::new().name("vacuum".to_owned()).spawn(move || vacuum(settings, &figures)).ok();
    }
}

fn vacuum(mut settings: Settings, figures: &Figures) -> Result<(), String> {
    settings.log_in.answer_timeout = ANSWER_TIMEOUT;
    settings.log_in.limit = None;
    let mut session = claim::connect(&settings).map_err(|(_, text)| text)?;
    let size = session.query(sql::TABLE_BYTES).map_err(|failure| failure.to_string())?;
    figures.table_bytes.store(size.first().and_then(|row| row.natural(0)).unwrap_or(0), Relaxed);
    // A role that may not do it gets a warning, which counts as a failure here.
    session.query(sql::VACUUM).map_err(|failure| failure.to_string())?;
    session.close();
    Ok(())
}

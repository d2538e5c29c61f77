//! The helper while the disk of the database is full.

use std::io::{Error, ErrorKind};
use std::thread;
use std::time::Duration;

use super::{PostgresHelper, Proof, Transaction};
use crate::LogPosition;
use crate::ownership::StepAnswer;
use crate::postgres::wire::StatementError;
use crate::storage::StoreTask;

/// How long a transaction waits for room before it is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(200);

impl PostgresHelper {
    /// Handles a pending transaction that has changed nothing, for lack of space. A new file need not be made; the puts
    /// for it are refused. Appended records belong to changes that were already made, and without its first file an
    /// owner cannot begin: these get the ballast's space, and are tried again. In the meantime no put comes, and a
    /// heartbeat, which needs no space, shows that the owner is alive. Returns the answer to that; `None` if nothing
    /// waits.
    pub(super) fn await_room(
        &mut self,
        epoch: u64,
        failure: &StatementError,
    ) -> Option<Result<StepAnswer, StatementError>> {
        let has_begun = self.backlog.end() != LogPosition::default();
        if has_begun && matches!(&self.under_way, Some((Transaction::Do(StoreTask::Make { .. }), _))) {
            self.owner.abandon();
            self.finish(Err(Error::new(ErrorKind::StorageFull, failure.to_string())));
            return None;
        }
        self.owner.note_lack_of_room();
        let address = self.queue_address();
        let connection = self.connection.open.as_mut()?;
        if !self.ballast.give_up(connection, &address) {
            thread::sleep(TRY_AGAIN);
        }
        Some(self.commit(epoch, Proof::HEARTBEAT))
    }
}

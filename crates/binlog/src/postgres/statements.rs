//! The statements of an owner about its queue.
//!
//! Owns: the proof that this server owns the queue, the statements of an append and of a task, and the order of their
//! values. Driven by the helper and by a copy.

use std::mem;

use super::queue_clock::QueueClock;
use super::sql::{SqlValue, int};
use super::wire::{DatabaseConnection, StatementError};
use super::{now, sql};
use crate::LogPosition;
use crate::storage::StoreTask;

/// The maximum number of bytes in one statement.
const MAX_CHUNK_BYTES: usize = 4 << 20;

/// The queue, as its owner identifies it.
#[derive(Debug)]
pub(super) struct OwnedQueue {
    pub(super) id: i64,
    pub(super) clock: QueueClock,
    /// Whether the database need not replicate.
    pub(super) allow_async: bool,
    /// The number of the last proof, which the database returns in its answer.
    pub(super) ticket: i64,
}

impl OwnedQueue {
    /// The values of a proof that the queue has this epoch, and that the database replicates.
    pub(super) fn proof(&mut self, epoch: u64) -> [SqlValue<'static>; 4] {
        self.ticket += 1;
        [int(self.id), int(epoch), int(self.allow_async), int(self.ticket)]
    }

    /// The time of its clock.
    pub(super) fn time(&self) -> SqlValue<'static> {
        int(self.clock.at(now()))
    }

    /// Releases the ownership of the queue.
    pub(super) fn release(
        &self,
        connection: &mut DatabaseConnection,
        epoch: u64,
    ) -> Result<(), StatementError> {
        connection.run(&sql::RELEASE, &[int(self.id), int(epoch), self.time()]).map(drop)
    }

    /// Adds an append to the transaction, together with `proof`, unless that is empty.
    pub(super) fn add_append(
        &self,
        connection: &mut DatabaseConnection,
        mut proof: &[SqlValue<'_>],
        at: LogPosition,
        bytes: &[u8],
    ) -> Result<(), StatementError> {
        let mut offset = at.offset;
        for chunk in bytes.chunks(MAX_CHUNK_BYTES) {
            let chunk_values = [int(at.file), int(offset), SqlValue::Bytes(chunk)];
            match mem::take(&mut proof) {
                [] => connection.add(&sql::APPEND, &[&[int(self.id)], &chunk_values[..]].concat())?,
                proof => connection.add(&sql::PROVE_AND_APPEND, &[proof, &chunk_values].concat())?,
            }
            offset += chunk.len() as u64;
        }
        Ok(())
    }

    /// Adds the changes of a task to the tables.
    pub(super) fn add_task(
        &self,
        connection: &mut DatabaseConnection,
        task: &StoreTask,
    ) -> Result<(), StatementError> {
        let queue = int(self.id);
        match *task {
            StoreTask::Sync(_) => {}
            StoreTask::Make { file, bytes, ref head } => {
                connection.add(&sql::CLEAR_FILE, &[queue, int(file)])?;
                connection.add(&sql::MAKE_FILE, &[queue, int(file), int(bytes)])?;
                let values = [queue, int(file), SqlValue::Int(0), SqlValue::Bytes(&head[..])];
                connection.add(&sql::APPEND, &values)?;
            }
            StoreTask::Shorten { file, bytes } => {
                for statement in [&sql::CUT_ROWS, &sql::CUT_ROW, &sql::SET_LENGTH] {
                    connection.add(statement, &[queue, int(file), int(bytes)])?;
                }
            }
            StoreTask::Remove { file } => connection.add(&sql::REMOVE_FILE, &[queue, int(file)])?,
        }
        Ok(())
    }
}

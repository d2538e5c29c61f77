//! Copies a log into a queue that has none, in one transaction: the database keeps nothing of an interrupted copy.
//!
//! Owns: the connection of an owner that serves no clients. The transaction locks the row of the queue, so that no
//! server takes over in the meantime.

use super::claim::{Claim, claim};
use super::sql::{SqlValue, Statement, int};
use super::wire::first_number;
use super::{Settings, StoreError, sql};

/// A queue into which a log is copied.
#[derive(Debug)]
pub struct PostgresCopy(Claim);

impl PostgresCopy {
    /// Becomes the owner of the queue.
    ///
    /// # Errors
    /// If another server owns it, if it has a log, or if the database cannot be used.
    pub fn begin(settings: &Settings) -> Result<Self, StoreError> {
        let (mut claim, _) = claim(settings, false)?;
        claim.connection.prepare(sql::COPYING)?;
        let queue = int(claim.queue.id);
        if first_number(&claim.connection.run(&sql::COUNT_FILES, &[queue])?) != Some(0) {
            claim.queue.release(&mut claim.connection, claim.epoch)?;
            return Err(StoreError::Refused("the queue has a log already".to_owned()));
        }
        claim.connection.query("BEGIN")?;
        let mut copy = Self(claim);
        copy.prove()?;
        // Rows of removed files may be left.
        copy.run(&sql::CLEAR_LOG, &[queue])?;
        copy.run(&sql::CLEAR_FILES, &[queue])?;
        Ok(copy)
    }

    fn run(&mut self, statement: &Statement, values: &[SqlValue<'_>]) -> Result<(), StoreError> {
        self.0.connection.run(statement, values)?;
        Ok(())
    }

    /// Fails if another server owns the queue, or if the database does not replicate.
    fn prove(&mut self) -> Result<(), StoreError> {
        let proof = self.0.queue.proof(self.0.epoch);
        self.run(&sql::PROVE, &proof)
    }

    /// Makes a file of `length` bytes.
    ///
    /// # Errors
    /// If the database refuses it.
    pub fn make(&mut self, file: u32, length: u64) -> Result<(), StoreError> {
        self.run(&sql::COPY_FILE, &[int(self.0.queue.id), int(file), int(length)])
    }

    /// Writes `bytes` at an offset of a file.
    ///
    /// # Errors
    /// If the database refuses it.
    pub fn write(&mut self, file: u32, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.run(&sql::APPEND, &[int(self.0.queue.id), int(file), int(offset), SqlValue::Bytes(bytes)])
    }

    /// Makes the copy visible, and releases the ownership of the queue.
    ///
    /// # Errors
    /// If the database refuses it.
    pub fn publish(mut self) -> Result<(), StoreError> {
        self.prove()?;
        let Claim { connection, queue, epoch, .. } = &mut self.0;
        queue.release(connection, *epoch)?;
        connection.query("COMMIT")?;
        Ok(())
    }
}

//! Copying a log into a queue that has none, in one transaction: the database keeps nothing of a copy that is broken off.
//!
//! Owns: the connection of an owner that serves nobody. The transaction holds the row of the queue, so that nobody takes
//! over meanwhile.

use super::claim::{Claim, as_int, claim, now, number};
use super::wire::Value;
use super::{Settings, StoreError, sql};

/// A queue into which a log is copied.
#[derive(Debug)]
pub struct PostgresCopy {
    claim: Claim,
    allow_async: bool,
}

impl PostgresCopy {
    /// Becomes the owner of the queue.
    ///
    /// # Errors
    /// If another server owns it, if it has a log, or if the database cannot be used.
    pub fn begin(settings: &Settings) -> Result<Self, StoreError> {
        let (mut claim, _) = claim(settings, false)?;
        claim.session.prepare(sql::COPYING)?;
        let mut copy = Self { claim, allow_async: settings.allow_async };
        let queue = Value::Int(copy.claim.queue);
        let files = copy.claim.session.run("count_files", &[queue])?;
        if files.first().and_then(|row| number(row, 0)) != Some(0) {
            copy.hand_over()?;
            return Err(StoreError::Refused("the queue has a log already".to_owned()));
        }
        copy.claim.session.query("BEGIN")?;
        copy.prove()?;
        // A copy of the version before may have left rows.
        copy.add(&[("clear_log", &[queue]), ("clear_files", &[queue])])?;
        Ok(copy)
    }

    /// Fails if another server owns the queue, or if the database does not replicate.
    fn prove(&mut self) -> Result<(), StoreError> {
        let Claim { session, queue, epoch, .. } = &mut self.claim;
        let proof = [
            Value::Int(*queue),
            Value::Int(as_int(*epoch)),
            Value::Int(self.allow_async.into()),
            Value::Int(1),
        ];
        session.run("prove", &proof)?;
        Ok(())
    }

    /// Adds `statements` to the transaction.
    fn add(&mut self, statements: &[(&str, &[Value<'_>])]) -> Result<(), StoreError> {
        let session = &mut self.claim.session;
        for (name, values) in statements {
            session.add(name, values, false)?;
        }
        session.end();
        session.flush()?;
        session.rows()?;
        Ok(())
    }

    /// Makes a file of `length` bytes.
    ///
    /// # Errors
    /// If the database refuses it.
    pub fn make(&mut self, file: u32, length: u64) -> Result<(), StoreError> {
        let values = [Value::Int(self.claim.queue), Value::Int(file.into()), Value::Int(as_int(length))];
        self.add(&[("copy_file", &values)])
    }

    /// Writes `bytes` at an offset of a file.
    ///
    /// # Errors
    /// If the database refuses it.
    pub fn write(&mut self, file: u32, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let queue = Value::Int(self.claim.queue);
        let values = [queue, Value::Int(file.into()), Value::Int(as_int(offset)), Value::Bytes(bytes)];
        self.add(&[("append", &values)])
    }

    /// Makes the copy visible, and hands the queue over.
    ///
    /// # Errors
    /// If the database refuses it.
    pub fn publish(mut self) -> Result<(), StoreError> {
        self.prove()?;
        self.hand_over()?;
        self.claim.session.query("COMMIT")?;
        Ok(())
    }

    fn hand_over(&mut self) -> Result<(), StoreError> {
        let Claim { session, queue, epoch, clock, .. } = &mut self.claim;
        session.run("hand_over", &[*queue, as_int(*epoch), clock.at(now())].map(Value::Int))?;
        Ok(())
    }
}

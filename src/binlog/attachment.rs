//! What stands before a record and belongs to it: the tags of a job, the cooldown that a delete starts, the group that it
//! frees.
//!
//! Owns: the layout of the markers that hold these, and of what they hold. Driven by the writer, which appends them in
//! one piece with their record, and by the replay, which uses them only if the record follows.

use crate::clock::Timestamp;

/// The cooldown of an idempotency key: the key still counts, though its job was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cooldown<'a> {
    /// The name of the job's tube.
    pub tube: &'a str,
    /// The key.
    pub key: &'a str,
    /// When it ends.
    pub until: Timestamp,
}

/// What a delete leads to. The log keeps it and the delete as one change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aftermath<'a> {
    /// The cooldown that it starts.
    pub cooldown: Option<Cooldown<'a>>,
    /// The group of which the job was the last member: the jobs that wait for it are free.
    pub freed_group: Option<&'a str>,
}

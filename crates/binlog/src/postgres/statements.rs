//! What a transaction of the owner does, as statements.
//!
//! Owns: the statements of an append and of a task, and the order of their values. Driven by the helper.

use std::mem;

use super::claim::as_int;
use super::wire::{Failure, Session, Value};
use crate::LogPosition;
use crate::storage::Task;

/// The bytes that are sent with one statement.
const CHUNK_BYTES: usize = 4 << 20;

/// Adds an append, and before it the proof that this server is the owner, if there is one to be added.
pub(super) fn add_append(
    session: &mut Session,
    mut proof: &[Value<'_>],
    queue: Value<'_>,
    at: LogPosition,
    bytes: &[u8],
) -> Result<(), Failure> {
    let mut offset = at.offset;
    for chunk in bytes.chunks(CHUNK_BYTES) {
        let place = [Value::Int(at.file.into()), Value::Int(as_int(offset)), Value::Bytes(chunk)];
        match mem::take(&mut proof) {
            [] => session.add("append", &[&[queue], &place[..]].concat(), false)?,
            proof => session.add("prove_and_append", &[proof, &place].concat(), false)?,
        }
        offset += chunk.len() as u64;
    }
    Ok(())
}

/// Adds what a task is in the tables.
pub(super) fn add_task(session: &mut Session, queue: Value<'_>, task: &Task) -> Result<(), Failure> {
    match task {
        Task::Sync(_) => {}
        Task::Make { file, bytes, head } => {
            let file = Value::Int((*file).into());
            session.add("clear_file", &[queue, file], false)?;
            session.add("make_file", &[queue, file, Value::Int(as_int(*bytes))], false)?;
            session.add("append", &[queue, file, Value::Int(0), Value::Bytes(&head[..])], false)?;
        }
        Task::Shorten { file, bytes } => {
            let values = [queue, Value::Int((*file).into()), Value::Int(as_int(*bytes))];
            for statement in ["cut_rows", "cut_row", "set_length"] {
                session.add(statement, &values, false)?;
            }
        }
        Task::Remove { file } => {
            session.add("remove_file", &[queue, Value::Int((*file).into())], false)?;
        }
    }
    Ok(())
}

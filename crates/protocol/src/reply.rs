//! Replies: from a [`Reply`] to bytes.

use std::collections::TryReserveError;

use super::CRLF;
use super::list::List;
use crate::job::{Body, BodyRef, JobId, Priority};

/// The longest reply of words and numbers alone.
const SHORT_BYTES: usize = 64;

/// What stands before a job that is reserved.
const RESERVED: &[u8] = b"RESERVED ";

/// What replies are written into: bytes, with large bodies between them.
pub trait ReplyBuffer {
    /// Makes sure that `count` bytes can be appended without another allocation.
    ///
    /// # Errors
    /// Where the allocator has no room; nothing has changed.
    fn reserve(&mut self, count: usize) -> Result<(), TryReserveError>;

    /// Where bytes are appended.
    fn bytes(&mut self) -> &mut Vec<u8>;

    /// Appends a body, which is copied where it is small: then room must have been reserved.
    ///
    /// # Errors
    /// Where the allocator has no room for its place; nothing has changed.
    fn push_body(&mut self, body: &Body) -> Result<(), TryReserveError>;
}

/// An answer to a command.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the protocol's own words; doc/protocol.md explains them")]
pub enum Reply<'a> {
    Inserted(JobId),
    /// The answer to a `put` that doubles this job, with the job's state, and its new priority if that is more urgent.
    Duplicate(JobId, &'static str, Option<Priority>),
    Using(&'a str),
    Reserved(JobId, BodyRef<'a>),
    DeadlineSoon,
    TimedOut,
    Deleted,
    Released,
    Buried,
    Touched,
    Watching(usize),
    NotIgnored,
    Found(JobId, BodyRef<'a>),
    /// The answer to `kick`: how many jobs it moved.
    Kicked(u64),
    /// The answer to `kick-job`.
    KickedJob,
    Paused,
    NotFound,
    /// Stats or a short list, in YAML.
    Data(&'a [u8]),
    /// A long list, in YAML.
    List(&'a List),
    OutOfMemory,
    InternalError,
    /// The answer to `put` that is refused, and to `drain`.
    Draining,
    NotDraining,
    /// How many jobs a flush has deleted.
    Flushed(u64),
    Moved,
    /// The answer to `move` where this job of the other tube has the same key.
    Exists(JobId),
    Reprioritized,
    /// Each job as in [`Reply::Reserved`], behind their number.
    ReservedBatch(&'a [(JobId, BodyRef<'a>)]),
    /// How many jobs were deleted, and for how many ids there was none.
    DeletedBatch(u64, u64),
    /// How many jobs the client holds.
    TouchedAll(u64),
    Aborted,
    /// The answer to `auth` with a token that somebody has.
    Authenticated,
    /// The answer to any other `auth`.
    Unauthorized,
    /// The client's identity has as many connections as it may have; the connection closes.
    TooManyConnections,
    /// The client's identity may not do this.
    Forbidden,
    BadFormat,
    UnknownCommand,
    ExpectedCrlf,
    JobTooBig,
}

impl Reply<'_> {
    /// Appends the reply to `output`.
    ///
    /// # Errors
    /// Where the allocator has no room. Nothing more may be sent then: a part of the reply may stand there.
    pub fn write(&self, output: &mut impl ReplyBuffer) -> Result<(), TryReserveError> {
        output.reserve(SHORT_BYTES)?;
        let last: &[u8] = match *self {
            Self::Inserted(id) => return numbered(output, b"INSERTED ", id.0),
            Self::Duplicate(id, state, priority) => {
                duplicate(output.bytes(), id, state, priority);
                b""
            }
            Self::Exists(id) => return numbered(output, b"EXISTS ", id.0),
            Self::Using(tube) => {
                output.reserve(SHORT_BYTES + tube.len())?;
                let bytes = output.bytes();
                bytes.extend_from_slice(b"USING ");
                bytes.extend_from_slice(tube.as_bytes());
                CRLF
            }
            Self::Watching(count) => return numbered(output, b"WATCHING ", count as u64),
            Self::Flushed(count) => return numbered(output, b"FLUSHED ", count),
            Self::ReservedBatch(jobs) => return batch(output, jobs),
            Self::TouchedAll(count) => return numbered(output, b"TOUCHED_ALL ", count),
            Self::DeletedBatch(deleted, missing) => {
                let bytes = output.bytes();
                bytes.extend_from_slice(b"DELETED_BATCH ");
                bytes.extend_from_slice(itoa::Buffer::new().format(deleted).as_bytes());
                return numbered(output, b" ", missing);
            }
            Self::Kicked(count) => return numbered(output, b"KICKED ", count),
            Self::Reserved(id, body) => return job(output, RESERVED, id, body),
            Self::Found(id, body) => return job(output, b"FOUND ", id, body),
            Self::Data(data) => {
                output.reserve(SHORT_BYTES + data.len())?;
                numbered(output, b"OK ", data.len() as u64)?;
                output.bytes().extend_from_slice(data);
                CRLF
            }
            Self::List(list) => return write_list(output, list),
            Self::DeadlineSoon => b"DEADLINE_SOON\r\n",
            Self::TimedOut => b"TIMED_OUT\r\n",
            Self::Deleted => b"DELETED\r\n",
            Self::Released => b"RELEASED\r\n",
            Self::Buried => b"BURIED\r\n",
            Self::Touched => b"TOUCHED\r\n",
            Self::NotIgnored => b"NOT_IGNORED\r\n",
            Self::KickedJob => b"KICKED\r\n",
            Self::Paused => b"PAUSED\r\n",
            Self::NotFound => b"NOT_FOUND\r\n",
            Self::OutOfMemory => b"OUT_OF_MEMORY\r\n",
            Self::InternalError => b"INTERNAL_ERROR\r\n",
            Self::Draining => b"DRAINING\r\n",
            Self::NotDraining => b"NOT_DRAINING\r\n",
            Self::Moved => b"MOVED\r\n",
            Self::Reprioritized => b"REPRIORITIZED\r\n",
            Self::Aborted => b"ABORTED\r\n",
            Self::Authenticated => b"AUTHENTICATED\r\n",
            Self::Unauthorized => b"UNAUTHORIZED\r\n",
            Self::TooManyConnections => b"TOO_MANY_CONNECTIONS\r\n",
            Self::Forbidden => b"FORBIDDEN\r\n",
            Self::BadFormat => b"BAD_FORMAT\r\n",
            Self::UnknownCommand => b"UNKNOWN_COMMAND\r\n",
            Self::ExpectedCrlf => b"EXPECTED_CRLF\r\n",
            Self::JobTooBig => b"JOB_TOO_BIG\r\n",
        };
        output.bytes().extend_from_slice(last);
        Ok(())
    }
}

fn duplicate(bytes: &mut Vec<u8>, id: JobId, state: &str, priority: Option<Priority>) {
    bytes.extend_from_slice(b"INSERTED ");
    bytes.extend_from_slice(itoa::Buffer::new().format(id.0).as_bytes());
    bytes.push(b' ');
    bytes.extend_from_slice(state.as_bytes());
    if let Some(Priority(priority)) = priority {
        bytes.push(b' ');
        bytes.extend_from_slice(itoa::Buffer::new().format(priority).as_bytes());
    }
    bytes.extend_from_slice(CRLF);
}

/// A reply whose last word is a number.
fn numbered(output: &mut impl ReplyBuffer, word: &[u8], number: u64) -> Result<(), TryReserveError> {
    let bytes = output.bytes();
    bytes.extend_from_slice(word);
    bytes.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    bytes.extend_from_slice(CRLF);
    Ok(())
}

fn job(
    output: &mut impl ReplyBuffer,
    word: &[u8],
    id: JobId,
    body: BodyRef<'_>,
) -> Result<(), TryReserveError> {
    output.reserve(SHORT_BYTES + body.copied_len())?;
    let bytes = output.bytes();
    bytes.extend_from_slice(word);
    bytes.extend_from_slice(itoa::Buffer::new().format(id.0).as_bytes());
    bytes.push(b' ');
    bytes.extend_from_slice(itoa::Buffer::new().format(body.len()).as_bytes());
    bytes.extend_from_slice(CRLF);
    match body {
        BodyRef::Whole(body) => output.push_body(body)?,
        BodyRef::Part(part) => output.bytes().extend_from_slice(part),
    }
    output.bytes().extend_from_slice(CRLF);
    Ok(())
}

/// How long [`Reply::Reserved`] is without the body, in bytes.
#[must_use]
pub fn reserved_len(id: JobId, body: BodyRef<'_>) -> usize {
    let digits = |number: u64| number.checked_ilog10().unwrap_or(0) as usize + 1;
    RESERVED.len() + digits(id.0) + 1 + digits(body.len() as u64) + 2 * CRLF.len()
}

fn batch(output: &mut impl ReplyBuffer, jobs: &[(JobId, BodyRef<'_>)]) -> Result<(), TryReserveError> {
    let own: usize = jobs.iter().map(|&(id, body)| reserved_len(id, body) + body.copied_len()).sum();
    output.reserve(SHORT_BYTES + own)?;
    numbered(output, b"RESERVED_BATCH ", jobs.len() as u64)?;
    jobs.iter().try_for_each(|&(id, body)| job(output, RESERVED, id, body))
}

fn write_list(output: &mut impl ReplyBuffer, list: &List) -> Result<(), TryReserveError> {
    let copied: usize = list.pieces().iter().map(Body::copied_len).sum();
    output.reserve(SHORT_BYTES + copied)?;
    numbered(output, b"OK ", list.byte_len() as u64)?;
    for piece in list.pieces() {
        output.push_body(piece)?;
    }
    output.bytes().extend_from_slice(CRLF);
    Ok(())
}

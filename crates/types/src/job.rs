//! A job's id, priority, state and body, and the record of a job that survives a restart.
//!
//! Owns: the types that `queue`, `protocol` and `binlog` share. Never decides anything about a job.

use std::collections::TryReserveError;
use std::fmt;
use std::rc::{Rc, Weak};
use std::str::FromStr;

use crate::clock::Timestamp;
use crate::seconds::Seconds;

/// A job's number: unique, ascending from 1 in the order of the accepted `put` commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

impl From<u64> for JobId {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl From<JobId> for u64 {
    fn from(id: JobId) -> Self {
        id.0
    }
}

/// How urgent a job is: jobs with a smaller priority are reserved first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(pub u32);

impl Priority {
    /// Jobs with a priority below this one count as urgent in the stats.
    pub const URGENT_BELOW: Self = Self(1024);

    /// Whether the stats count a job of this priority as urgent.
    #[must_use]
    pub fn is_urgent(self) -> bool {
        self < Self::URGENT_BELOW
    }
}

/// A job's position in the order of its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Whether the job is held. Held jobs come after the delayed ones.
    pub is_held: bool,
    /// The number that decides the order: a ready job's priority, the deadline of a delayed or reserved job in
    /// nanoseconds since 1970, a buried job's number in the order of burial.
    pub number: u64,
    /// The job, which decides among jobs with the same number.
    pub id: JobId,
}

/// A job's state in its life cycle (protocol, "Jobs and tubes").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobState {
    /// The job waits in its tube's ready queue.
    Ready,
    /// A client has reserved the job, until the job's deadline.
    Reserved,
    /// The job becomes ready at its deadline.
    Delayed,
    /// The job is set aside until it is kicked.
    Buried,
}

/// Whether a release counts, both in the counters of releases and as a failure of the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counting {
    /// It counts.
    #[default]
    Counted,
    /// It does not count.
    Uncounted,
}

impl JobState {
    /// All states, in the order of the stats.
    pub const ALL: [Self; 4] = [Self::Ready, Self::Reserved, Self::Delayed, Self::Buried];

    /// The state with this word.
    #[must_use]
    pub fn parse(word: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str().as_bytes() == word)
    }

    /// The word for the state in `stats-job`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Reserved => "reserved",
            Self::Buried => "buried",
            Self::Delayed => "delayed",
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl FromStr for JobState {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        Self::parse(word.as_bytes())
            .ok_or_else(|| format!("\"{word}\" is not a state: expected ready, reserved, delayed or buried"))
    }
}

/// How often each event has happened to a job. A counter stops at its largest value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counters {
    /// Times reserved.
    pub reserves: u32,
    /// Times the reservation timed out.
    pub timeouts: u32,
    /// Times released by a client.
    pub releases: u32,
    /// Times buried.
    pub buries: u32,
    /// Times kicked.
    pub kicks: u32,
}

/// Everything that the binlog stores about a job, except its tube and its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobRecord {
    /// The job's id.
    pub id: JobId,
    /// Its priority.
    pub priority: Priority,
    /// The delay of its last put or release. The queue keeps only whole seconds.
    pub delay_s: Seconds,
    /// Time to run; at least 1 second.
    pub ttr_s: Seconds,
    /// When it was put.
    pub created_at: Timestamp,
    /// When the delay or the reservation ends; 0 in the other states.
    pub deadline_at: Timestamp,
    /// How often each event has happened to it.
    pub counters: Counters,
    /// Its state.
    pub state: JobState,
}

/// Bodies of at least this many bytes are shared between the job and the replies that carry them; shorter
/// bodies are copied into replies. From this size on, giving the kernel one more buffer costs less than the copy.
pub const SHARED_FROM_BYTES: usize = 8 * 1024;

/// A job's body: immutable bytes, without the trailing CRLF. It is two words wide in both variants, because
/// every job has one.
#[derive(Clone)]
pub struct Body(Bytes);

#[derive(Clone)]
enum Bytes {
    Owned(Box<[u8]>),
    Shared(Rc<Vec<u8>>),
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Body>() == 16, "a body takes two words of every job");

impl Body {
    /// A body with a copy of `bytes`.
    ///
    /// # Errors
    /// If the allocator has no memory for them.
    pub fn copy_of(bytes: &[u8]) -> Result<Self, TryReserveError> {
        let mut copy = Vec::new();
        copy.try_reserve_exact(bytes.len())?;
        copy.extend_from_slice(bytes);
        Ok(Self::from(copy))
    }

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Bytes::Owned(bytes) => bytes,
            Bytes::Shared(bytes) => bytes,
        }
    }

    /// The length in bytes, without the trailing CRLF.
    #[must_use]
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// How many bytes of the body are copied into a reply: all or none.
    #[must_use]
    pub fn copied_len(&self) -> usize {
        match &self.0 {
            Bytes::Owned(bytes) => bytes.len(),
            Bytes::Shared(_) => 0,
        }
    }

    /// Whether the body is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, for changes in place; `None` if the body may be shared.
    pub fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        match &mut self.0 {
            Bytes::Owned(bytes) => Some(bytes),
            Bytes::Shared(_) => None,
        }
    }

    /// The bytes of a body, with room for `more` bytes after them, if both together are too short to be shared;
    /// otherwise the body itself.
    ///
    /// # Errors
    /// If the allocator has no memory.
    pub fn try_extend(self, more: usize) -> Result<Result<Vec<u8>, Self>, TryReserveError> {
        match self.0 {
            Bytes::Owned(bytes) if bytes.len() + more < SHARED_FROM_BYTES => {
                let mut bytes = Vec::from(bytes);
                bytes.try_reserve_exact(more)?;
                Ok(Ok(bytes))
            }
            bytes => Ok(Err(Self(bytes))),
        }
    }

    /// A second reference to the same bytes, if they are shared; `None` if they must be copied.
    #[must_use]
    pub fn share(&self) -> Option<Self> {
        match &self.0 {
            Bytes::Owned(_) => None,
            Bytes::Shared(bytes) => Some(Self(Bytes::Shared(Rc::clone(bytes)))),
        }
    }

    /// A weak reference, which shows how long others keep the bytes; `None` if the bytes are never shared.
    #[must_use]
    #[inline]
    pub fn watch(&self) -> Option<Weak<Vec<u8>>> {
        match &self.0 {
            Bytes::Owned(_) => None,
            Bytes::Shared(bytes) => Some(Rc::downgrade(bytes)),
        }
    }
}

/// A job's body as it is read. The memory of a job with tags can hold other bytes after the body; they are not part of
/// it.
#[derive(Clone, Copy, Debug)]
pub enum BodyRef<'a> {
    /// The whole memory is the body.
    Whole(&'a Body),
    /// The body is the first bytes of the memory, which are never shared.
    Part(&'a [u8]),
}

impl<'a> BodyRef<'a> {
    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &'a [u8] {
        match self {
            Self::Whole(body) => body.as_slice(),
            Self::Part(bytes) => bytes,
        }
    }

    /// The length in bytes, without the trailing CRLF.
    #[must_use]
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Whether the body is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A copy of the body in memory of its own.
    ///
    /// # Errors
    /// If the allocator has no memory.
    pub fn to_owned(&self) -> Result<Body, TryReserveError> {
        match self {
            Self::Whole(body) => Ok((*body).clone()),
            Self::Part(bytes) => Body::copy_of(bytes),
        }
    }

    /// How many bytes of the body are copied into a reply: all or none.
    #[must_use]
    pub fn copied_len(&self) -> usize {
        match self {
            Self::Whole(body) => body.copied_len(),
            Self::Part(bytes) => bytes.len(),
        }
    }
}

impl PartialEq for BodyRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for BodyRef<'_> {}

impl<'a> From<&'a Body> for BodyRef<'a> {
    fn from(body: &'a Body) -> Self {
        Self::Whole(body)
    }
}

/// No bytes.
impl Default for Body {
    #[inline]
    fn default() -> Self {
        Self(Bytes::Owned(Box::default()))
    }
}

impl From<Vec<u8>> for Body {
    #[inline]
    fn from(bytes: Vec<u8>) -> Self {
        if bytes.len() < SHARED_FROM_BYTES {
            Self(Bytes::Owned(bytes.into_boxed_slice()))
        } else {
            Self(Bytes::Shared(Rc::new(bytes)))
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Body({})", self.as_slice().escape_ascii())
    }
}

impl PartialEq for Body {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Body {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_large_bodies_are_shared() {
        let small = Body::copy_of(&[7; SHARED_FROM_BYTES - 1]).unwrap();
        let large = Body::copy_of(&[7; SHARED_FROM_BYTES]).unwrap();
        assert!(small.share().is_none());
        assert_eq!(large.share().unwrap(), large);
    }
}

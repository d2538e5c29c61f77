//! What a job is: its id, priority, state, body, and the record of it that outlives a restart.
//!
//! Owns: the types that `queue`, `protocol` and `binlog` share. Never decides anything about a job.

use std::collections::TryReserveError;
use std::fmt;
use std::rc::{Rc, Weak};

use crate::clock::Timestamp;

/// A job's number: unique, ascending from 1 in the order of the accepted `put` commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// How urgent a job is: the smaller, the sooner it is reserved.
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

/// Where in its life a job is (protocol, "Job Lifecycle").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JobState {
    /// Waits in its tube's ready queue.
    Ready,
    /// Held by a client until its deadline.
    Reserved,
    /// Set aside until a kick.
    Buried,
    /// Becomes ready at its deadline.
    Delayed,
}

impl JobState {
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

/// What has happened to a job so far; each counter stops at its largest value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counters {
    /// Times reserved.
    pub reserves: u32,
    /// Times the reservation ran out.
    pub timeouts: u32,
    /// Times released by a client.
    pub releases: u32,
    /// Times buried.
    pub buries: u32,
    /// Times kicked.
    pub kicks: u32,
}

/// All that the binlog keeps of a job besides its tube and its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobRecord {
    /// The job's number.
    pub id: JobId,
    /// Its priority.
    pub priority: Priority,
    /// The delay it was last put or released with, in seconds.
    pub delay_s: u32,
    /// Time to run, in seconds; at least 1.
    pub ttr_s: u32,
    /// When it was put.
    pub created_at: Timestamp,
    /// When the delay or the reservation ends; 0 in the other states.
    pub deadline_at: Timestamp,
    /// Its history in numbers.
    pub counters: Counters,
    /// Its state.
    pub state: JobState,
}

/// Bodies from this many bytes on are shared between the job and the replies that carry them; shorter
/// ones are copied into replies. The constant is where handing the kernel another buffer
/// costs less than the copy.
pub const SHARED_FROM_BYTES: usize = 8 * 1024;

/// A job's body: immutable bytes, without the trailing CRLF. Two words wide whatever its kind, because
/// every job holds one.
#[derive(Clone)]
pub struct Body(Bytes);

#[derive(Clone)]
enum Bytes {
    Owned(Box<[u8]>),
    Shared(Rc<Vec<u8>>),
}

const _: () = assert!(size_of::<Body>() == 16, "a body takes two words of every job");

impl Body {
    /// A body with a copy of `bytes`.
    ///
    /// # Errors
    /// Where the allocator has no room for them.
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

    /// Length in bytes, without the trailing CRLF.
    #[must_use]
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Whether the body is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A second holder of the same bytes where they are shared; `None` where they are to be copied.
    #[must_use]
    pub fn share(&self) -> Option<Self> {
        match &self.0 {
            Bytes::Owned(_) => None,
            Bytes::Shared(bytes) => Some(Self(Bytes::Shared(Rc::clone(bytes)))),
        }
    }

    /// Tells, without holding the bytes, how long others do; `None` where they are never shared.
    #[must_use]
    pub fn watch(&self) -> Option<Weak<Vec<u8>>> {
        match &self.0 {
            Bytes::Owned(_) => None,
            Bytes::Shared(bytes) => Some(Rc::downgrade(bytes)),
        }
    }
}

impl From<Vec<u8>> for Body {
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

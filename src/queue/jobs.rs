//! The jobs: compact records that are found by id.
//!
//! Owns: every job's record, body and history. Ten million jobs may wait, so a record has 56 bytes. What only some
//! jobs have (counters, the client that reserved it) is in a second record, made when first needed.

use std::collections::TryReserveError;

use super::arena::{Arena, Slot};
use super::keys::{Packed, TubeKey};
use crate::clock::Timestamp;
use crate::id_map::IdMap;
use crate::job::{Body, Counters, JobId, JobState, Priority};

/// Which collection has the job, with what is needed to remove it from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In its tube's ready queue since this instant.
    Ready(Packed),
    /// Among its tube's delayed jobs until this instant.
    Delayed(Packed),
    /// With the client that its history names, until this instant.
    Reserved(Packed),
    /// Among its tube's buried jobs, with this number in the order of burial.
    Buried(Packed),
}

impl Place {
    pub fn state(self) -> JobState {
        match self {
            Self::Ready(_) => JobState::Ready,
            Self::Delayed(_) => JobState::Delayed,
            Self::Reserved(_) => JobState::Reserved,
            Self::Buried(_) => JobState::Buried,
        }
    }

    /// The end of the delay or of the reservation.
    pub fn deadline(self) -> Option<Timestamp> {
        match self {
            Self::Delayed(until) | Self::Reserved(until) => Some(Timestamp(until.into())),
            Self::Ready(_) | Self::Buried(_) => None,
        }
    }
}

#[derive(Debug)]
pub struct Job {
    pub created_at: Timestamp,
    pub body: Body,
    pub place: Place,
    pub priority: Priority,
    pub delay_s: u32,
    pub ttr_s: u32,
    pub tube: TubeKey,
    /// Made at the first event that it must count.
    history: Option<Slot>,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Job>() == 56, "a job takes 56 bytes beside its body");

impl Job {
    pub fn new(
        created_at: Timestamp,
        priority: Priority,
        delay_s: u32,
        ttr_s: u32,
        tube: TubeKey,
        body: Body,
    ) -> Self {
        let place = Place::Ready(created_at.0.into());
        Self { created_at, body, place, priority, delay_s, ttr_s, tube, history: None }
    }

    /// What is needed to take it out of the collection that has it.
    pub fn link(&self) -> Link {
        Link { place: self.place, priority: self.priority, tube: self.tube, history: self.history }
    }
}

/// Where a job is, copied from its record.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub place: Place,
    pub priority: Priority,
    pub tube: TubeKey,
    pub history: Option<Slot>,
}

/// The second record of a job. A job that was never reserved, buried or kicked has none.
#[derive(Clone, Copy, Debug, Default)]
pub struct History {
    pub counters: Counters,
    /// The index of the client that has reserved the job; set exactly while the job is reserved.
    pub holder: Option<u32>,
}

/// All jobs.
#[derive(Debug, Default)]
pub struct Jobs {
    records: Arena<Job>,
    histories: Arena<History>,
    index: IdMap<Slot>,
    body_bytes: usize,
}

impl Jobs {
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// The memory of all bodies and records, in bytes; the queues' keys and the index are counted at their usual
    /// size.
    pub fn bytes(&self) -> usize {
        const KEYS_PER_JOB: usize = 24;
        self.body_bytes + self.len() * (size_of::<Job>() + KEYS_PER_JOB)
    }

    pub fn ids(&self) -> impl Iterator<Item = JobId> {
        self.index.iter().map(|(id, _)| id)
    }

    /// The memory of the histories, in bytes.
    pub fn history_bytes(&self) -> usize {
        self.histories.bytes()
    }

    /// Makes sure that there is room for the next `insert`, and that a job's history, which is made when
    /// a command can no longer be refused, needs at most one new chunk.
    pub fn reserve(&mut self) -> Result<(), TryReserveError> {
        let chunks = self.records.chunks();
        self.records.reserve()?;
        if self.records.chunks() > chunks {
            self.histories.reserve_chunks(self.records.chunks())?;
        }
        Ok(())
    }

    pub fn insert(&mut self, id: JobId, job: Job) {
        self.body_bytes += job.body.len();
        let slot = self.records.insert(job);
        let old = self.index.insert(id, slot);
        assert!(old.is_none(), "an id is given once");
    }

    pub fn remove(&mut self, id: JobId) -> Option<Job> {
        let job = self.records.remove(self.index.remove(id)?);
        if let Some(history) = job.history {
            self.histories.remove(history);
        }
        self.body_bytes -= job.body.len();
        Some(job)
    }

    pub fn get(&self, id: JobId) -> Option<&Job> {
        self.index.get(id).map(|&slot| self.records.get(slot))
    }

    /// The job with an id that comes from one of the queues, so that the job must exist.
    pub fn held(&mut self, id: JobId) -> &mut Job {
        let slot = *self.index.get(id).expect("what a queue holds is there");
        self.records.get_mut(slot)
    }

    /// Ends a reservation in the job's history; returns the index of the client that had it.
    pub fn take_holder(&mut self, history: Option<Slot>) -> u32 {
        let holder = history.and_then(|slot| self.histories.get_mut(slot).holder.take());
        holder.expect("a reserved job has a holder")
    }

    pub fn history(&self, job: &Job) -> History {
        job.history.map_or_else(History::default, |slot| *self.histories.get(slot))
    }

    /// The job with an id that comes from one of the queues, with its history, which is made if there is none yet.
    pub fn held_with_history(&mut self, id: JobId) -> (&mut Job, &mut History) {
        let slot = *self.index.get(id).expect("what a queue holds is there");
        let job = self.records.get_mut(slot);
        let history = *job.history.get_or_insert_with(|| self.histories.insert(History::default()));
        (job, self.histories.get_mut(history))
    }
}

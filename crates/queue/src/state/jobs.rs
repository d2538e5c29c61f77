//! The jobs: compact records that are found by id.
//!
//! Owns: every job's record, body and history. Ten million jobs may wait, so a record has 56 bytes. Values that only
//! some jobs have (counters, the client that reserved it) are in a second record, which is created when it is first
//! needed.

use std::collections::TryReserveError;
use std::num::NonZeroU8;

use beanstalkd_structures::{Arena, IdMap, RecordAddress};
use bitflags::bitflags;

use crate::clock::Timestamp;
use crate::job::{Body, BodyRef, Counters, JobId, JobState, Priority};
use crate::seconds::Seconds;
use crate::state::keys::{ClientKey, CompactU64, TubeKey};
use crate::state::stored_body;
use crate::tags::JobTags;

/// The collection of a job, with the value that is needed to remove it from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Collection {
    /// In its tube's ready queue since this instant.
    Ready(CompactU64),
    /// With the client that its history names, until this instant.
    Reserved(CompactU64),
    /// Among its tube's buried jobs, with this number in the order of burial.
    Buried(CompactU64),
    /// Among its tube's delayed jobs until this instant.
    Delayed(CompactU64),
}

impl Collection {
    pub(crate) fn state(self) -> JobState {
        match self {
            Self::Ready(_) => JobState::Ready,
            Self::Delayed(_) => JobState::Delayed,
            Self::Reserved(_) => JobState::Reserved,
            Self::Buried(_) => JobState::Buried,
        }
    }

    /// The value that it has for the job.
    #[inline]
    pub(crate) fn number(self) -> CompactU64 {
        let (Self::Ready(number) | Self::Reserved(number) | Self::Buried(number) | Self::Delayed(number)) =
            self;
        number
    }

    /// The end of the delay or of the reservation.
    pub(crate) fn deadline(self) -> Option<Timestamp> {
        match self {
            Self::Delayed(until) | Self::Reserved(until) => Some(Timestamp::from(until)),
            Self::Ready(_) | Self::Buried(_) => None,
        }
    }
}

bitflags! {
    /// The marks of a job that has tags, is in a tube with a rule, or for whose end a client waits. Any other job has
    /// none of these.
    ///
    /// `PARKED`, `IN_ROTATION` and `HELD` say, together with its [`Collection`], in which collections of its tube the
    /// job is; `FIRST` and `INDEXED` say where it is in the line of its concurrency key. A job can have these
    /// combinations of the five, except in the middle of a move:
    ///
    /// | job | line of its key | tube |
    /// |---|---|---|
    /// | ready, without a key | none | none, `IN_ROTATION`, or `IN_ROTATION` and `PARKED` |
    /// | ready, first of its line | `FIRST`, or `FIRST` and `INDEXED` | none, one or both of `IN_ROTATION` and `PARKED` |
    /// | ready, behind the first | none | `PARKED` |
    /// | delayed | none | none, or `HELD` |
    /// | reserved or buried | none | none |
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Marks: u16 {
        /// The job has tags. They are kept separately unless `BEHIND_BODY` is set, too.
        const TAGGED = 1;
        /// The tags are stored after the body.
        const BEHIND_BODY = 1 << 1;
        /// A ready job is among its tube's parked jobs: it may not be reserved now.
        const PARKED = 1 << 2;
        /// A ready job with a concurrency key is the first of its line.
        const FIRST = 1 << 3;
        /// A delayed job is among its tube's held jobs.
        const HELD = 1 << 4;
        /// A reserved job has received a more urgent priority in the meantime.
        const UPGRADED = 1 << 5;
        /// The job has a concurrency key.
        const KEYED = 1 << 6;
        /// The job expires if no client reserves it.
        const EXPIRES = 1 << 7;
        /// The rule of its tube counts the job.
        const RULED = 1 << 8;
        /// A rule of its tube limits its age.
        const AGES = 1 << 9;
        /// Only the rotation of its tube keeps this ready job back.
        const IN_ROTATION = 1 << 10;
        /// A client waits until the job is deleted or buried.
        const AWAITED = 1 << 11;
        /// The first job of a line is in the ordered indexes, and not in the entry of its key.
        const INDEXED = 1 << 12;
    }
}

impl Marks {
    /// The marks that a job has because of its tags.
    pub(crate) fn of_tags(tags: &JobTags<'_>, are_separate: bool) -> Self {
        let mut marks = Self::empty();
        marks.set(Self::TAGGED, !tags.is_empty());
        marks.set(Self::BEHIND_BODY, !tags.is_empty() && !are_separate);
        marks.set(Self::KEYED, tags.concurrency.is_some());
        marks
    }

    /// Whether a job with these marks is ready and parked, because its key has no free slot or because another job of
    /// the key goes first.
    #[inline]
    pub(crate) fn lack_slot(self) -> bool {
        self & (Self::PARKED | Self::IN_ROTATION) == Self::PARKED
    }

    /// Whether a job in this state can have these marks.
    pub(crate) fn are_possible_in(self, state: JobState) -> bool {
        let place = self & (Self::FIRST | Self::INDEXED | Self::PARKED | Self::IN_ROTATION | Self::HELD);
        match state {
            JobState::Ready if place.contains(Self::FIRST) => {
                self.contains(Self::KEYED) && !place.contains(Self::HELD)
            }
            JobState::Ready if self.contains(Self::KEYED) => place == Self::PARKED,
            JobState::Ready => place.is_empty() || place - Self::PARKED == Self::IN_ROTATION,
            JobState::Delayed => Self::HELD.contains(place),
            JobState::Reserved | JobState::Buried => place.is_empty(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Job {
    pub created_at: Timestamp,
    /// The body, followed by the tags if the marks say so.
    pub body: Body,
    /// The value of its [`Collection`].
    number: CompactU64,
    /// The state in the lowest two bits; above it the upper bits of the thousandths of its time to run, because a
    /// record has no byte left for a fraction. The fraction of a delay is only in the instant at which it ends. The
    /// highest bit is set, so that a free entry among the records needs no word of its own.
    state_bits: NonZeroU8,
    pub marks: Marks,
    /// The lower bits of the thousandths of its time to run.
    ttr_thousandths: u8,
    pub priority: Priority,
    /// The delay of its last put or release, in whole seconds.
    pub delay_s: u32,
    /// The whole seconds of its time to run.
    whole_ttr_s: u32,
    pub tube: TubeKey,
    /// Created at the first event that it must count.
    history: Option<RecordAddress>,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(
    size_of::<Option<Job>>() == 56,
    "a job takes 56 bytes beside its body, and a free slot takes no more"
);

const STATE_BITS: u8 = 0b11;
const ALWAYS_SET: NonZeroU8 = NonZeroU8::new(1 << 7).expect("it is not 0");
const READY: u8 = JobState::Ready as u8;
const RESERVED: u8 = JobState::Reserved as u8;
const DELAYED: u8 = JobState::Delayed as u8;

impl Job {
    pub(crate) fn new(
        created_at: Timestamp,
        priority: Priority,
        delay: Seconds,
        ttr: Seconds,
        tube: TubeKey,
        body: Body,
    ) -> Self {
        let number = created_at.0.into();
        let [ttr_thousandths, upper] = ttr.thousandths().to_le_bytes();
        Self {
            created_at,
            body,
            number,
            state_bits: ALWAYS_SET | (upper << STATE_BITS.count_ones() | READY),
            marks: Marks::empty(),
            ttr_thousandths,
            priority,
            delay_s: delay.whole(),
            whole_ttr_s: ttr.whole(),
            tube,
            history: None,
        }
    }

    /// The collection that has the job.
    #[inline]
    pub(crate) fn collection(&self) -> Collection {
        match self.state() {
            JobState::Ready => Collection::Ready(self.number),
            JobState::Reserved => Collection::Reserved(self.number),
            JobState::Buried => Collection::Buried(self.number),
            JobState::Delayed => Collection::Delayed(self.number),
        }
    }

    /// Sets its collection.
    #[inline]
    pub(crate) fn set_collection(&mut self, collection: Collection) {
        self.state_bits = ALWAYS_SET | (self.state_bits.get() & !STATE_BITS | collection.state() as u8);
        self.number = collection.number();
    }

    #[inline]
    pub(crate) fn state(&self) -> JobState {
        match self.state_bits.get() & STATE_BITS {
            READY => JobState::Ready,
            RESERVED => JobState::Reserved,
            DELAYED => JobState::Delayed,
            _ => JobState::Buried,
        }
    }

    /// The job's time to run.
    #[inline]
    pub(crate) fn ttr(&self) -> Seconds {
        let upper = (self.state_bits.get() & !ALWAYS_SET.get()) >> STATE_BITS.count_ones();
        Seconds::new(self.whole_ttr_s, u16::from_le_bytes([self.ttr_thousandths, upper]))
    }

    /// Whether one of these marks is set.
    #[inline]
    pub(crate) fn has(&self, marks: Marks) -> bool {
        self.marks.intersects(marks)
    }

    /// The body as clients see it.
    #[inline]
    pub(crate) fn body(&self) -> BodyRef<'_> {
        if self.has(Marks::BEHIND_BODY) {
            BodyRef::Part(stored_body::split(self.body.as_slice()).0)
        } else {
            BodyRef::Whole(&self.body)
        }
    }

    /// The fields that are needed to take it out of its collection.
    pub(crate) fn link(&self) -> Link {
        Link {
            collection: self.collection(),
            marks: self.marks,
            priority: self.priority,
            tube: self.tube,
            history: self.history,
        }
    }
}

/// The collection of a job, and what is needed to take the job out of it, copied from its record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub collection: Collection,
    pub marks: Marks,
    pub priority: Priority,
    pub tube: TubeKey,
    pub history: Option<RecordAddress>,
}

/// The second record of a job. A job that was never reserved, buried or kicked has none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct History {
    pub counters: Counters,
    /// The index of the client that has reserved the job; set exactly while the job is reserved.
    pub holder: Option<ClientKey>,
}

/// The memory of a job in the queues, in bytes, in the usual case.
const KEY_BYTES_PER_JOB: usize = 20;

/// All jobs.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    records: Arena<Job>,
    histories: Arena<History>,
    index: IdMap<RecordAddress>,
    /// The job that was stored or changed last: the next call is often about it.
    last: Option<(JobId, RecordAddress)>,
    body_bytes: usize,
}

impl Jobs {
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// The memory of the jobs, in bytes: bodies and records, with the queues' keys and the index in the usual case.
    pub(crate) fn job_bytes(&self) -> usize {
        const INDEX_BYTES_PER_JOB: usize = 4;
        self.body_bytes + self.len() * (size_of::<Job>() + KEY_BYTES_PER_JOB + INDEX_BYTES_PER_JOB)
    }

    /// The memory of all this, in bytes, including what deleted jobs have left in the store and in the index.
    pub(crate) fn bytes(&self) -> usize {
        self.body_bytes
            + self.len() * KEY_BYTES_PER_JOB
            + self.records.bytes()
            + self.histories.bytes()
            + self.index.bytes()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = JobId> {
        self.index.iter().map(|(id, _)| id)
    }

    /// All jobs, by ascending id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (JobId, &Job)> {
        self.index.iter().map(|(id, &address)| (id, self.records.get(address)))
    }

    /// Makes sure that there is room for the next `insert`, and that a job's history, which is created when a command
    /// can no longer be refused, needs at most one new chunk.
    pub(crate) fn try_reserve(&mut self) -> Result<(), TryReserveError> {
        let chunks = self.records.chunks();
        self.records.try_reserve()?;
        if self.records.chunks() > chunks {
            self.histories.try_reserve_chunks(self.records.chunks())?;
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn insert(&mut self, id: JobId, job: Job) {
        self.body_bytes += job.body.len();
        let address = self.records.insert(job);
        let old = self.index.insert(id, address);
        self.last = Some((id, address));
        assert!(old.is_none(), "an id is given once");
    }

    #[inline]
    pub(crate) fn remove(&mut self, id: JobId) -> Option<Job> {
        let job = self.records.remove(self.index.remove(id)?);
        self.last = self.last.filter(|&(last, _)| last != id);
        if let Some(history) = job.history {
            self.histories.remove(history);
        }
        self.body_bytes -= job.body.len();
        Some(job)
    }

    /// The job with this id. Always inlined: otherwise each command of the server would pay a call for it.
    #[inline(always)]
    pub(crate) fn get(&self, id: JobId) -> Option<&Job> {
        self.address(id).map(|address| self.records.get(address))
    }

    /// The job with the smallest id that is not below `from`.
    pub(crate) fn first_from(&self, from: JobId) -> Option<JobId> {
        self.index.first_from(from)
    }

    #[inline]
    fn address(&self, id: JobId) -> Option<RecordAddress> {
        match self.last {
            Some((last, address)) if last == id => Some(address),
            _ => self.index.get(id).copied(),
        }
    }

    /// The job with an id that comes from one of the queues, so that the job must exist.
    #[inline]
    #[track_caller]
    pub(crate) fn expect(&self, id: JobId) -> &Job {
        self.get(id).expect("the queue has this job")
    }

    /// As `expect`, for changes. The next call is likely to be about the same job, so this notes its address.
    pub(crate) fn expect_mut(&mut self, id: JobId) -> &mut Job {
        let address = self.address(id).expect("the queue has this job");
        self.last = Some((id, address));
        self.records.get_mut(address)
    }

    /// Sets the body of the job, followed by its tags if the marks will say so; returns the job.
    pub(crate) fn set_body(&mut self, id: JobId, body: Body) -> &mut Job {
        let added = body.len();
        let before = std::mem::replace(&mut self.expect_mut(id).body, body);
        self.body_bytes += added;
        self.body_bytes -= before.len();
        self.expect_mut(id)
    }

    /// Sets the counters of a restored job.
    pub(crate) fn set_counters(&mut self, id: JobId, counters: Counters) {
        if counters != Counters::default() {
            self.expect_with_history(id).1.counters = counters;
        }
    }

    /// Ends a reservation in the job's history; returns the index of the client that had it.
    pub(crate) fn take_holder(&mut self, history: Option<RecordAddress>) -> ClientKey {
        let holder = history.and_then(|address| self.histories.get_mut(address).holder.take());
        holder.expect("a reserved job has a holder")
    }

    #[inline]
    pub(crate) fn history(&self, job: &Job) -> History {
        job.history.map_or_else(History::default, |address| *self.histories.get(address))
    }

    /// The job with an id that comes from one of the queues, with its history, which is created if it does not exist.
    pub(crate) fn expect_with_history(&mut self, id: JobId) -> (&mut Job, &mut History) {
        let address = self.address(id).expect("the queue has this job");
        self.last = Some((id, address));
        let job = self.records.get_mut(address);
        let history = *job.history.get_or_insert_with(|| self.histories.insert(History::default()));
        (job, self.histories.get_mut(history))
    }
}

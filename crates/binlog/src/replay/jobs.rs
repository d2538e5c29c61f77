//! The jobs during the replay, record by record.
//!
//! Owns: the live jobs so far, their tubes and bodies, the file of each, the order of burial. A valid full record
//! replaces an earlier one; an invalid one changes nothing. `tagged` handles the effects of tags. Driven by the replay,
//! file by file.

use std::collections::{BTreeSet, HashSet, TryReserveError};
use std::num::NonZeroU32;
use std::sync::Arc;

use beanstalkd_structures::IdMap;

use super::Source;
use super::completing::{Completing, OfComplete};
use super::logged_tubes::LoggedTubes;
use super::tagged::{Attachment, FoundSideEffects, FoundTags, PendingAttachments, Tagged};
use crate::attachment::{AttachmentKind, LoggedReservation, Part, parts, tag_record_bytes};
use crate::clock::{NS_PER_S, Timestamp};
use crate::files::Files;
use crate::format::{DeleteKind, DiskRecord, LoggedState, SHORT_BYTES, TRAILER};
use crate::item::Item;
use crate::job::{Body, Counters, JobId, JobRecord, JobState, Priority};
use crate::marker::CLOCK_STEP_NS;
use crate::record::Layout;
use crate::seconds::Seconds;
use crate::wall_clock::{WallOffset, WallTime};
use crate::{LogPosition, OpenError};

/// The times at the start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartTimes {
    pub(crate) wall: WallOffset,
    pub(crate) now: Timestamp,
    /// A time that had passed when the log was written.
    pub(crate) known: WallTime,
}

impl StartTimes {
    /// Whether the wall clock has been set back since the log was written.
    pub(crate) fn is_set_back(self) -> bool {
        self.wall.to_disk(self.now).plus_ns(CLOCK_STEP_NS) <= self.known
    }

    /// The clock for ends of cooldowns and of reservations: if the wall clock has been set back, one that goes on from
    /// the last time in the log. So nothing lasts longer than it would have lasted then.
    pub(crate) fn going_on(self) -> WallOffset {
        let known = WallOffset(self.known.0.saturating_sub_unsigned(self.now.0));
        if self.is_set_back() { known } else { self.wall }
    }
}

/// A job as replayed so far.
#[derive(Debug)]
pub(crate) struct ReplayedJob {
    pub(crate) body: Body,
    pub(crate) created_at: WallTime,
    /// When its delay ends; for a buried job, when it was buried: only the order of these times counts.
    pub(crate) deadline_at: WallTime,
    /// One more than the index of its counters in [`LoggedJobs::histories`]; `None` if all counters are zero.
    pub(crate) history: Option<NonZeroU32>,
    pub(crate) priority: Priority,
    /// The whole seconds of its delay.
    pub(crate) delay_s: u32,
    /// The whole seconds of its time to run.
    pub(crate) whole_ttr_s: u32,
    /// The fraction of a second in its time to run.
    pub(crate) ttr_thousandths: u16,
    /// The number of its tube.
    pub(crate) tube: u32,
    pub(crate) state: JobState,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Option<ReplayedJob>>() == 56, "every job passes through this table at start");

impl ReplayedJob {
    /// When it was buried, if it is buried: only the order counts.
    pub(crate) fn buried_at(&self) -> Option<WallTime> {
        (self.state == JobState::Buried).then_some(self.deadline_at)
    }

    /// Whether it was ever reserved.
    pub(crate) fn was_reserved(&self, histories: &Histories) -> bool {
        histories.get(self.history).reserves > 0
    }

    /// When the delay of a delayed job ends. If the wall clock has been set back since the log was written, delays that
    /// had ended stay ended, and no delay is longer than the job's own.
    fn end_of_delay(&self, times: StartTimes) -> Timestamp {
        let written = times.wall.to_memory(self.deadline_at);
        if self.deadline_at <= times.known {
            return written.min(times.now);
        }
        // The record has only the whole seconds of the delay, so the job's own delay can be almost a second longer.
        let latest = times.now.plus_seconds(self.delay_s);
        if written < latest + NS_PER_S { written } else { latest }
    }

    /// Whether its delay ends earlier than the log says.
    pub(crate) fn ends_earlier(&self, times: StartTimes) -> bool {
        let written = times.wall.to_memory(self.deadline_at);
        self.state == JobState::Delayed && self.end_of_delay(times) < written
    }

    /// The record for restoring the job: a reserved job becomes ready. If the wall clock has been set back, the job is
    /// as new as if it had been put now.
    pub(crate) fn to_record(&self, id: JobId, histories: &Histories, times: StartTimes) -> JobRecord {
        JobRecord {
            id,
            priority: self.priority,
            delay_s: self.delay_s.into(),
            ttr_s: Seconds::new(self.whole_ttr_s, self.ttr_thousandths),
            created_at: times.wall.to_memory(self.created_at).min(times.now),
            deadline_at: match self.state {
                JobState::Delayed => self.end_of_delay(times),
                JobState::Ready | JobState::Reserved | JobState::Buried => Timestamp(0),
            },
            counters: histories.get(self.history),
            state: self.state,
        }
    }
}

/// The counters of the jobs that have any: most jobs have only zeros. Replaced counters stay until the end of the
/// replay; they need little memory compared with their records.
#[derive(Debug, Default)]
pub(crate) struct Histories(Vec<Counters>);

impl Histories {
    /// The counters of a job.
    pub(crate) fn get(&self, history: Option<NonZeroU32>) -> Counters {
        let at = history.map(|number| number.get() as usize - 1);
        at.and_then(|at| self.0.get(at)).copied().unwrap_or_default()
    }

    /// Stores the counters of a job, and replaces the counters at `before`.
    fn keep(
        &mut self,
        before: Option<NonZeroU32>,
        counters: Counters,
    ) -> Result<Option<NonZeroU32>, OpenError> {
        if let Some(kept) = before.and_then(|number| self.0.get_mut(number.get() as usize - 1)) {
            *kept = counters;
            return Ok(before);
        }
        if counters == Counters::default() {
            return Ok(None);
        }
        self.0.try_reserve(1)?;
        self.0.push(counters);
        Ok(u32::try_from(self.0.len()).ok().and_then(NonZeroU32::new))
    }
}

/// A reservation from the log that belongs to the session `name` of `identity`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the other fields say everything")]
pub struct RestoredReservation {
    pub id: JobId,
    pub until: Timestamp,
    /// How long the session lasts without a client, in milliseconds.
    pub grace_ms: u32,
    pub identity: Arc<str>,
    pub name: Arc<str>,
}

/// A session's reservation during the replay.
#[derive(Debug)]
struct ReplayedReservation {
    until: WallTime,
    reserves: u32,
    grace_ms: u32,
    identity: Arc<str>,
    name: Arc<str>,
}

/// A record that counts although its attachments are lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LostAttachments {
    pub(crate) at: LogPosition,
    pub(crate) id: JobId,
    /// Whether it is a delete; otherwise it is a full record.
    pub(crate) is_delete: bool,
}

/// All jobs so far. Each kind of record adds to one of the fields.
#[derive(Debug, Default)]
pub(crate) struct LoggedJobs {
    pub(crate) alive: IdMap<ReplayedJob>,
    pub(crate) histories: Histories,
    /// The files read so far, and the file of each job's full record.
    pub(crate) files: Files,
    pub(crate) tubes: LoggedTubes,
    /// The time of the latest burial; `None` if no job has ever been buried, as in most logs.
    pub(crate) latest_burial: Option<WallTime>,
    /// Larger than every id seen.
    pub(crate) next_id: u64,
    /// Short records of unknown jobs: the jobs were deleted, or migrated out of removed files.
    pub(crate) ignored: u64,
    /// Jobs whose state depends on records after a damaged one.
    pub(crate) rescued: BTreeSet<JobId>,
    /// Cooldowns whose state depends on records after a damaged one, by the job whose delete started each.
    pub(crate) rescued_cooldowns: BTreeSet<JobId>,
    pub(crate) tagged: Tagged,
    /// The sessions that have reserved jobs, until a record changes the job.
    sessions: IdMap<ReplayedReservation>,
    /// The identities and the names of these sessions: many jobs share one.
    names: HashSet<Arc<str>>,
    pending: PendingAttachments,
    /// The puts of a `complete` whose delete has not been read yet, one directly after the other.
    pub(super) completing: Completing,
    pub(crate) lost: Vec<LostAttachments>,
}

impl LoggedJobs {
    /// Applies the record in `bytes`. Returns false, with nothing changed, if the record is not plausible.
    pub(crate) fn apply(&mut self, layout: &Layout, bytes: &[u8], source: Source) -> Result<bool, OpenError> {
        if !layout.is_plausible_except_name(bytes) {
            return Ok(false);
        }
        let (id, in_complete) = (layout.id(), layout.is_part_of_complete());
        if !in_complete {
            self.completing.clear();
        }
        let applied = if layout.is_full() {
            self.apply_full(layout, bytes, source)?
        } else {
            self.apply_short(id, &layout.record, source)?
        };
        debug_assert!(
            !layout.is_full() || !applied || in_complete || self.files.file_of(id) == Some(source.file),
            "a job is in the file of its newest full record"
        );
        if applied {
            if !self.sessions.is_empty() && !layout.is_delete_of_kind(DeleteKind::Departure) {
                self.end_session_unless_reserved(id, &layout.record);
            }
            self.next_id = self.next_id.max(id.0.saturating_add(1));
            if source.beyond {
                self.rescued.insert(id);
            }
        }
        Ok(applied)
    }

    /// Ends a session's reservation because the job has this record, unless the record belongs to the same reservation.
    fn end_session_unless_reserved(&mut self, id: JobId, record: &DiskRecord) {
        let reservation = self.sessions.get(id);
        if reservation.is_some_and(|reservation| !record.is_reservation(reservation.reserves)) {
            self.sessions.remove(id);
        }
    }

    /// The session that has reserved job `id`.
    pub(crate) fn session_of(&self, id: JobId, wall: WallOffset) -> Option<LoggedReservation<'_>> {
        let &ReplayedReservation { until, reserves, grace_ms, ref identity, ref name } =
            self.sessions.get(id)?;
        Some(LoggedReservation { until: wall.to_memory(until), reserves, grace_ms, identity, name })
    }

    /// The reservations of sessions.
    pub(crate) fn take_sessions(&mut self, wall: WallOffset) -> Vec<RestoredReservation> {
        let alive = &self.alive;
        let reservations = std::mem::take(&mut self.sessions).into_entries();
        reservations
            .filter(|&(id, _)| alive.get(id).is_some())
            .map(|(id, ReplayedReservation { until, grace_ms, identity, name, .. })| RestoredReservation {
                id,
                until: wall.to_memory(until),
                grace_ms,
                identity,
                name,
            })
            .collect()
    }

    /// The one copy of this name of a session or an identity.
    fn shared_name(&mut self, name: &str) -> Result<Arc<str>, TryReserveError> {
        if let Some(shared) = self.names.get(name) {
            return Ok(Arc::clone(shared));
        }
        if self.names.len() == self.names.capacity() {
            self.names.retain(|name| Arc::strong_count(name) > 1);
            self.names.try_reserve(self.names.len() + 1)?;
        }
        let shared = Arc::from(name);
        self.names.insert(Arc::clone(&shared));
        Ok(shared)
    }

    fn apply_full(&mut self, layout: &Layout, bytes: &[u8], source: Source) -> Result<bool, OpenError> {
        let record = &layout.record;
        if record.is_part_of_complete() {
            return self.put_aside(layout, bytes, source);
        }
        let Some(tags) = self.tags_of(layout.id(), record, source)? else { return Ok(false) };
        self.store_full(layout, bytes, source, tags)
    }

    fn store_full(
        &mut self,
        layout: &Layout,
        bytes: &[u8],
        source: Source,
        tags: FoundTags,
    ) -> Result<bool, OpenError> {
        let (id, record) = (layout.id(), &layout.record);
        let Some(LoggedState::Live(state)) = record.logged_state() else { return Ok(false) };
        let Some(tube) = self.tubes.number(layout.name(bytes))? else { return Ok(false) };
        let end = layout.total - TRAILER.len();
        let body = Body::copy_of(&bytes[layout.body_at..end])?;
        let deadline_at = match state {
            JobState::Buried => {
                let before = self.alive.get(id).and_then(ReplayedJob::buried_at);
                self.burial(record, before, true, source)
            }
            JobState::Ready | JobState::Reserved | JobState::Delayed => record.deadline_at,
        };
        let job = ReplayedJob {
            body,
            created_at: record.created_at,
            deadline_at,
            history: self.histories.keep(None, record.counters)?,
            priority: Priority(record.priority),
            delay_s: record.delay_s().whole(),
            whole_ttr_s: record.ttr_s().whole(),
            ttr_thousandths: record.ttr_s().thousandths(),
            tube,
            state,
        };
        self.alive.insert(id, job);
        let tags_len = self.tagged.set(id, tags)?;
        self.files.place(Item::Job(id), source.file, layout.total as u64 + tag_record_bytes(tags_len));
        debug_assert_eq!(self.alive.len() as u64, self.files.job_count(), "each live job is in a file");
        Ok(true)
    }

    /// Keeps a full record of a `complete` until the delete. Its tags must be there; no part of it is recovered alone.
    fn put_aside(&mut self, layout: &Layout, bytes: &[u8], source: Source) -> Result<bool, OpenError> {
        if !layout.is_plausible(bytes) {
            return Ok(false);
        }
        let id = layout.id();
        let tags = if layout.record.has_tags() {
            match self.tagged.find(id, self.pending.take(id, source.position())) {
                FoundTags::Here(tags) => FoundTags::Here(tags),
                FoundTags::None | FoundTags::Earlier | FoundTags::Lost => return Ok(false),
            }
        } else {
            FoundTags::None
        };
        self.completing.push(layout, bytes, source, tags)?;
        Ok(true)
    }

    /// The tags of the full record at `source`; `None` if the record does not count because they are lost.
    fn tags_of(
        &mut self,
        id: JobId,
        record: &DiskRecord,
        source: Source,
    ) -> Result<Option<FoundTags>, OpenError> {
        if !record.has_tags() {
            return Ok(Some(FoundTags::None));
        }
        let attachments = self.pending.take(id, source.position());
        let tags = self.tagged.find(id, attachments);
        if let FoundTags::Lost = tags {
            if !source.recovers {
                return Ok(None);
            }
            self.note_lost(id, source, false)?;
        }
        Ok(Some(tags))
    }

    fn note_lost(&mut self, id: JobId, source: Source, is_delete: bool) -> Result<(), OpenError> {
        self.lost.try_reserve(1)?;
        self.lost.push(LostAttachments { at: source.position(), id, is_delete });
        Ok(())
    }

    /// Handles a part of an attachment.
    pub(crate) fn attach(&mut self, part: &Part, source: Source) -> Result<(), OpenError> {
        let Some(Attachment { kind, job, bytes }) = self.pending.add(part, source.position())? else {
            return Ok(());
        };
        match kind {
            AttachmentKind::Cooldown => self.start_cooldown(job, bytes, source),
            AttachmentKind::Frees => self.free_group(&bytes, source),
            AttachmentKind::Session => self.reserve_for_session(job, bytes, source)?,
            AttachmentKind::Forgets => {
                self.tagged.cooldowns.remove(job);
                self.files.remove(Item::Cooldown(job));
                if source.beyond {
                    self.rescued_cooldowns.insert(job);
                }
            }
            AttachmentKind::Tags
            | AttachmentKind::DeleteCooldown
            | AttachmentKind::DeleteFrees
            | AttachmentKind::Completes => {}
        }
        Ok(())
    }

    /// Notes that a session has reserved the job, whatever its state was.
    fn reserve_for_session(&mut self, id: JobId, bytes: Box<[u8]>, source: Source) -> Result<(), OpenError> {
        let Some(reservation) = LoggedReservation::decode(&bytes) else { return Ok(()) };
        if let Some(job) = self.alive.get_mut(id) {
            let counters = Counters { reserves: reservation.reserves, ..self.histories.get(job.history) };
            job.history = self.histories.keep(job.history, counters)?;
            job.state = JobState::Ready;
            debug_assert!(self.files.file_of(id).is_some(), "a live job is in a file");
            self.files.update(id);
        }
        let LoggedReservation { until, reserves, grace_ms, identity, name } = reservation;
        let (identity, name) = (self.shared_name(identity)?, self.shared_name(name)?);
        self.sessions.insert(id, ReplayedReservation { until, reserves, grace_ms, identity, name });
        if source.beyond {
            self.rescued.insert(id);
        }
        Ok(())
    }

    /// Starts a cooldown, which shows that its job was deleted: a power loss can preserve the cooldown, which is
    /// repeated while it lasts, and lose the record of the delete.
    fn start_cooldown(&mut self, id: JobId, bytes: Box<[u8]>, source: Source) {
        let record_bytes = parts(bytes.len()) * SHORT_BYTES;
        if self.tagged.cooldowns.insert(id, bytes) {
            if self.alive.remove(id).is_some() {
                self.files.remove(Item::Job(id));
                self.tagged.forget(id);
                self.sessions.remove(id);
            }
            self.files.place(Item::Cooldown(id), source.file, record_bytes);
            debug_assert!(
                self.alive.get(id).is_none() && self.files.file_of(id).is_none(),
                "a job whose delete has started a cooldown is gone"
            );
            self.next_id = self.next_id.max(id.0.saturating_add(1));
            if source.beyond {
                self.rescued_cooldowns.insert(id);
            }
        }
    }

    fn free_group(&mut self, group: &[u8], source: Source) {
        let freed = self.tagged.free_group(group);
        if source.beyond {
            self.rescued.extend(freed);
        }
    }

    /// Handles a wall clock that was set back to `after`: delays that had ended by `before`, and reservations, must not
    /// last longer because of that.
    pub(crate) fn note_set_back(&mut self, before: WallTime, after: WallTime) {
        let is_over = |job: &ReplayedJob| job.state == JobState::Delayed && job.deadline_at <= before;
        let over: Vec<JobId> = self
            .alive
            .iter()
            .filter(|(_, job)| is_over(job) && job.deadline_at > after)
            .map(|(id, _)| id)
            .collect();
        for id in over {
            if let Some(job) = self.alive.get_mut(id) {
                job.deadline_at = after;
            }
        }
        let reserved: Vec<JobId> = self.sessions.iter().map(|(id, _)| id).collect();
        for id in reserved {
            if let Some(reservation) = self.sessions.get_mut(id) {
                reservation.until = reservation.until.plus_ns(after.0.saturating_sub(before.0));
            }
        }
    }

    /// Drops the cooldowns that have ended.
    pub(crate) fn end_cooldowns(&mut self, now: WallTime) -> Result<(), OpenError> {
        let mut ended = Vec::new();
        for (id, cooldown) in self.tagged.cooldowns.iter() {
            if cooldown.until <= now {
                ended.try_reserve(1)?;
                ended.push(id);
            }
        }
        for id in ended {
            self.tagged.cooldowns.remove(id);
            self.files.remove(Item::Cooldown(id));
        }
        debug_assert_eq!(
            self.tagged.cooldowns.len(),
            self.files.cooldown_count(),
            "each cooldown is in a file"
        );
        Ok(())
    }

    fn apply_short(&mut self, id: JobId, record: &DiskRecord, source: Source) -> Result<bool, OpenError> {
        let state = match record.logged_state() {
            Some(LoggedState::Live(state)) => state,
            Some(LoggedState::Deleted(kind)) => return self.apply_delete(id, kind, source),
            None => return Ok(false),
        };
        let Some(job) = self.alive.get(id) else {
            self.ignored += 1;
            return Ok(true);
        };
        if usize::try_from(record.body_size) != Ok(job.body.len() + TRAILER.len()) {
            return Ok(false);
        }
        let deadline_at = match state {
            JobState::Buried => self.burial(record, None, false, source),
            JobState::Ready | JobState::Reserved | JobState::Delayed => record.deadline_at,
        };
        if let Some(job) = self.alive.get_mut(id) {
            job.created_at = record.created_at;
            job.deadline_at = deadline_at;
            job.history = self.histories.keep(job.history, record.counters)?;
            job.priority = Priority(record.priority);
            job.delay_s = record.delay_s().whole();
            job.whole_ttr_s = record.ttr_s().whole();
            job.ttr_thousandths = record.ttr_s().thousandths();
            job.state = state;
        }
        debug_assert!(self.files.file_of(id).is_some(), "a live job is in a file");
        self.files.update(id);
        Ok(true)
    }

    fn apply_delete(&mut self, id: JobId, kind: DeleteKind, source: Source) -> Result<bool, OpenError> {
        let (mut side_effects, mut completed) = (FoundSideEffects::default(), Vec::new());
        match kind {
            // The full record after it, if it was written, says what happened.
            DeleteKind::Departure => return Ok(true),
            DeleteKind::Completion => {
                let attachments = self.pending.take(id, source.position());
                let parts = attachments.iter().map(|one| parts(one.bytes.len())).sum::<u64>();
                let start = LogPosition { offset: source.offset - parts * SHORT_BYTES, ..source.position() };
                let Some(found) = FoundSideEffects::of(attachments) else { return Ok(false) };
                let Some(puts) = found.completes.and_then(|count| self.completing.take(count, start)) else {
                    return Ok(false);
                };
                (side_effects, completed) = (found, puts);
            }
            DeleteKind::WithSideEffects => {
                match FoundSideEffects::of(self.pending.take(id, source.position())) {
                    Some(found) => side_effects = found,
                    None if source.recovers => self.note_lost(id, source, true)?,
                    None => return Ok(false),
                }
            }
            DeleteKind::Plain => {}
        }
        if self.alive.remove(id).is_none() {
            self.ignored += 1;
        }
        self.files.remove(Item::Job(id));
        self.tagged.forget(id);
        debug_assert_eq!(self.alive.len() as u64, self.files.job_count(), "a deleted job is in no file");
        if let Some(bytes) = side_effects.cooldown {
            self.start_cooldown(id, bytes, source);
        }
        if let Some(group) = side_effects.freed_group {
            self.free_group(&group, source);
        }
        for OfComplete { layout, bytes, source, tags, .. } in completed {
            self.store_full(&layout, &bytes, source, tags)?;
        }
        Ok(true)
    }

    /// When the job of `record`, which is buried, was buried. C leaves the end of the reservation in the record, which
    /// is close to that time. C writes a short record at the burial, so that it comes after all others, even if the job
    /// was buried before: C does not log the reservation in between. A full record is a copy, and leaves a job that was
    /// buried `before` at its position.
    fn burial(
        &mut self,
        record: &DiskRecord,
        before: Option<WallTime>,
        is_full: bool,
        source: Source,
    ) -> WallTime {
        let time = if source.is_ours {
            record.deadline_at
        } else if is_full {
            before.unwrap_or(record.deadline_at)
        } else {
            record.deadline_at.max(self.latest_burial.unwrap_or_default().plus_ns(1))
        };
        self.latest_burial = Some(self.latest_burial.unwrap_or_default().max(time));
        time
    }
}

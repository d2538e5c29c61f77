//! Changes that the log lacks because there was no room: deaths of jobs, and reservations of sessions.
//!
//! Owns: the list of these jobs, and the rules that all of it is logged when there is room, a share in each turn, and
//! that the replies of the commands that caused it wait until then. No room was reserved for these changes, because
//! only the queue finds out that a job is dead, and because a touch cannot be undone. A reserve with a session reserves
//! room before; if it has waited, the reservation is undone on a full disk.

use std::collections::BTreeSet;

use super::{Persistence, append_state, whole};
use crate::binlog::{Binlog, LoggedReservation, NoRoom};
use crate::clock::Timestamp;
use crate::exchange::Until;
use crate::executor::Executor;
use crate::executor::outcome::{Caller, Outcome, answer, stall};
use crate::job::{JobId, JobState};
use crate::protocol::Reply;
use crate::queue::{JobView, Queue, SessionKey, SessionReservation};

/// The changes that the log lacks.
#[derive(Debug, Default)]
pub(super) struct Postponed {
    /// Jobs that rules have sent to dead tubes. In the log they are still in their old tubes.
    pub(super) deaths: BTreeSet<JobId>,
    /// Jobs of sessions.
    session_reservations: BTreeSet<JobId>,
    /// Whether some of these wait for the next file, which is being made. On a full disk no reply waits for them.
    awaits_file: bool,
    progress: CatchUp,
}

/// The progress through the changes that the log lacks, once it has room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CatchUp {
    /// Nothing is left, or there is no room for it.
    #[default]
    Idle,
    /// The next turn continues.
    Unfinished,
    /// It has ended: commands that have waited for it can continue.
    Ended,
}

/// The maximum cost of the postponed changes that a turn logs, in bytes: 512 small ones, which takes about 300
/// microseconds.
const CATCH_UP_BYTES: usize = 128 * 1024;
/// The cost of a change beside the body that it contains, in bytes.
const CHANGE_BYTES: usize = 256;

impl Postponed {
    pub(super) fn is_empty(&self) -> bool {
        self.deaths.is_empty() && self.session_reservations.is_empty()
    }

    /// Whether the death of the job waits for the next file. Then a change of its state is logged together with it:
    /// alone, the change would leave a job in its old tube that has failed too often.
    #[inline]
    pub(super) fn awaits_death(&self, id: JobId) -> bool {
        self.awaits_file && self.deaths.contains(&id)
    }
}

/// Logs a job's new state, or postpones that.
pub(super) fn log_update(binlog: &mut Binlog, job: &JobView<'_>, is_reservation: bool, now: Timestamp) {
    match binlog.reserve_update() {
        Ok(()) => append_state(binlog, job, is_reservation, now),
        Err(no_room) => {
            // On a full disk, the room that comes is for other changes than reservations of ready jobs.
            let is_unneeded = is_reservation && no_room == NoRoom::Full;
            binlog.postpone_update(&job.record, job.body.len(), is_unneeded, now);
        }
    }
}

impl Persistence {
    /// Refuses room for changes of jobs as long as a postponed change waits for the next file: it could be a change of
    /// the same job.
    pub(super) fn await_file(&self) -> Result<(), NoRoom> {
        if self.postponed.awaits_file { Err(NoRoom::Pending) } else { Ok(()) }
    }

    /// Whether the log lacks the death of the job or its reservation by a session.
    pub(crate) fn lacks_death_or_session_of(&self, queue: &Queue, id: JobId) -> bool {
        !self.postponed.is_empty() && (self.postponed.awaits_death(id) || self.lacks_session_of(queue, id))
    }

    /// Whether the log lacks the reservation of the job by a session, and has no room for it, because the disk is full.
    pub(crate) fn refuses(&self, queue: &Queue, id: JobId) -> bool {
        !self.postponed.awaits_file && self.lacks_session_of(queue, id)
    }

    /// The session may have lost the job since.
    fn lacks_session_of(&self, queue: &Queue, id: JobId) -> bool {
        self.postponed.session_reservations.contains(&id) && queue.session_reservation(id).is_some()
    }

    /// Forgets the reservation of the job by a session, which was undone.
    pub(crate) fn forget_session_reservation(&mut self, id: JobId) {
        self.postponed.session_reservations.remove(&id);
    }

    /// Logs that a job has failed and is in a dead tube, as soon as there is room.
    pub(super) fn log_death(&mut self, queue: &Queue, id: JobId, now: Timestamp) {
        let logged = self.append_death(queue, id, now);
        let Err(no_room) = logged else { return };
        self.postponed.deaths.insert(id);
        match no_room {
            NoRoom::Pending => self.postponed.awaits_file = true,
            NoRoom::Full => {
                if let (Some(binlog), Some(job)) = (self.log.binlog_mut(), queue.job(id)) {
                    log_update(binlog, &job, false, now);
                }
            }
        }
    }

    fn append_death(&mut self, queue: &Queue, id: JobId, now: Timestamp) -> Result<(), NoRoom> {
        if let (Some(binlog), Some(job)) = (self.log.binlog_mut(), queue.job(id)) {
            let job = whole(queue, &job, &mut self.tags);
            binlog.reserve_move(job.tube.as_bytes().len(), job.body.len(), &job.tags, None)?;
            binlog.append_moved(&job, now);
        }
        self.postponed.deaths.remove(&id);
        Ok(())
    }

    /// Logs that a session has reserved the job, if one has, as soon as there is room.
    pub(super) fn log_session_reservation(
        &mut self,
        queue: &Queue,
        id: JobId,
        now: Timestamp,
    ) -> Result<(), NoRoom> {
        if self.postponed.awaits_death(id) {
            self.postponed.session_reservations.insert(id);
            return Err(NoRoom::Pending);
        }
        self.log_session_reservation_by(queue, id, Binlog::append_session_reservation)?;
        // The record contains only the fact that the job is reserved.
        if let Some(binlog) = self.log.binlog_mut().filter(|binlog| binlog.lacks_state_of(id))
            && let Some(job) = queue.job(id)
        {
            log_update(binlog, &job, false, now);
        }
        Ok(())
    }

    pub(super) fn log_session_reservation_by(
        &mut self,
        queue: &Queue,
        id: JobId,
        append: impl FnOnce(&mut Binlog, JobId, &LoggedReservation<'_>) -> Result<(), NoRoom>,
    ) -> Result<(), NoRoom> {
        let logged = match (self.log.binlog_mut(), queue.session_reservation(id)) {
            (Some(binlog), Some(SessionReservation { key, grace_ms, until, reserves })) => {
                let SessionKey { identity, name } = key;
                append(binlog, id, &LoggedReservation { until, reserves, grace_ms, identity, name })
            }
            (None, _) | (_, None) => Ok(()),
        };
        match logged {
            Ok(()) => self.postponed.session_reservations.remove(&id),
            Err(_) => self.postponed.session_reservations.insert(id),
        };
        self.postponed.awaits_file |= logged == Err(NoRoom::Pending);
        logged
    }

    /// Logs a turn's share of the postponed changes, as far as there is room now.
    pub(super) fn catch_up(&mut self, queue: &Queue, now: Timestamp) {
        self.catch_up_within(CATCH_UP_BYTES, queue, now);
    }

    /// Logs all postponed changes, as far as there is room now: no client is served meanwhile.
    pub(super) fn catch_up_at_once(&mut self, queue: &Queue, now: Timestamp) {
        self.catch_up_within(usize::MAX, queue, now);
    }

    /// Logs postponed changes that cost at most `left` bytes and one change. A death contains the state of its job, so
    /// it comes first.
    fn catch_up_within(&mut self, mut left: usize, queue: &Queue, now: Timestamp) {
        let awaited_file = std::mem::take(&mut self.postponed.awaits_file);
        while left > 0
            && let Some(&id) = self.postponed.deaths.first()
        {
            if let Err(no_room) = self.append_death(queue, id, now) {
                self.postponed.awaits_file = no_room == NoRoom::Pending;
                break;
            }
            let body_bytes = queue.job(id).map_or(0, |job| job.body.len());
            left = left.saturating_sub(CHANGE_BYTES + body_bytes);
        }
        let Some(binlog) = self.log.binlog_mut() else { return };
        while left > 0
            && let Some(id) = binlog.next_postponed()
            && let Some(job) = queue.job(id).filter(|_| !self.postponed.awaits_death(id))
        {
            append_state(binlog, &job, job.record.state == JobState::Reserved, now);
            left = left.saturating_sub(CHANGE_BYTES);
        }
        while left > 0
            && let Some(&id) = self.postponed.session_reservations.first()
            && self.log_session_reservation(queue, id, now).is_ok()
        {
            left = left.saturating_sub(CHANGE_BYTES);
        }
        // Commands that have waited for the file still wait: what is left may be about their jobs.
        self.postponed.awaits_file |= left == 0 && awaited_file;
        self.postponed.progress = match (left, self.postponed.progress) {
            (0, _) => CatchUp::Unfinished,
            (_, CatchUp::Unfinished | CatchUp::Ended) => CatchUp::Ended,
            (_, CatchUp::Idle) => CatchUp::Idle,
        };
    }

    /// When the log has something to do.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        let binlog = self.log.binlog()?;
        if self.is_catching_up() { Some(Timestamp::AT_ONCE) } else { binlog.next_deadline() }
    }

    /// Whether the next turn has postponed changes to log.
    #[inline]
    pub(super) fn is_catching_up(&self) -> bool {
        self.postponed.progress == CatchUp::Unfinished
    }

    /// Whether the postponed changes have been logged in several turns, which have just ended. Returns this once.
    pub(crate) fn take_end_of_catch_up(&mut self) -> bool {
        let has_ended = self.postponed.progress == CatchUp::Ended;
        if has_ended {
            self.postponed.progress = CatchUp::Idle;
        }
        has_ended
    }
}

impl Executor {
    /// Answers a command for whose changes no room was reserved, about one job or about many: the reply waits until the
    /// log has them. On a full disk it does not wait: they are logged when there is room.
    pub(crate) fn answer_when_logged(
        &mut self,
        caller: &mut Caller<'_>,
        reply: Reply<'static>,
        of: Option<JobId>,
    ) -> Outcome {
        self.persistence.log_changes(&mut self.queue, caller.now);
        if self.persistence.postponed.awaits_file
            && of.is_none_or(|id| self.persistence.lacks_death_or_session_of(&self.queue, id))
        {
            return stall(Until::BinlogRoom, move |executor, caller| {
                executor.answer_when_logged(caller, reply, of)
            });
        }
        answer(caller.output, &reply)
    }
}

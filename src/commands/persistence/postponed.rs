//! Changes that the log lacks because there was no room: deaths of jobs, and reservations of sessions.
//!
//! Owns: the list of these jobs, and the rules that all of it is logged when there is room, and that the replies of the
//! commands that caused it wait until then. No room was reserved for these changes, because only the queue finds out
//! that a job is dead, and because a touch cannot be undone. A reserve with a session reserves room before.

use std::collections::BTreeSet;

use super::{Persistence, append_state, whole};
use crate::binlog::{Binlog, LoggedReservation, NoRoom};
use crate::clock::Timestamp;
use crate::commands::Caller;
use crate::commands::{Executor, Outcome, answer, stall};
use crate::exchange::Until;
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
    /// Whether there may be jobs whose state must be logged with their next change, because the disk was full.
    lacks_states: bool,
}

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

    /// Logs a job's new state, or postpones that.
    pub(super) fn log_update(
        &mut self,
        binlog: &mut Binlog,
        job: &JobView<'_>,
        is_reservation: bool,
        now: Timestamp,
    ) {
        match binlog.reserve_update() {
            Ok(()) => append_state(binlog, job, is_reservation, now),
            Err(no_room) => {
                self.lacks_states |= no_room == NoRoom::Full;
                binlog.postpone_update(&job.record, job.body.len(), no_room, now);
            }
        }
    }
}

impl Persistence {
    /// Refuses room for changes of jobs as long as a postponed change waits for the next file: it could be about one of
    /// them.
    pub(super) fn await_file(&self) -> Result<(), NoRoom> {
        if self.postponed.awaits_file { Err(NoRoom::Pending) } else { Ok(()) }
    }

    /// Whether the log lacks the death of the job or its reservation by a session.
    pub(crate) fn lacks(&self, id: JobId) -> bool {
        !self.postponed.is_empty()
            && (self.postponed.session_reservations.contains(&id) || self.postponed.awaits_death(id))
    }

    /// Logs that a job has failed and is in a dead tube, as soon as there is room.
    pub(super) fn log_death(&mut self, queue: &Queue, id: JobId, now: Timestamp) {
        let logged = self.append_death(queue, id, now);
        let Err(no_room) = logged else { return };
        self.postponed.deaths.insert(id);
        match no_room {
            NoRoom::Pending => self.postponed.awaits_file = true,
            NoRoom::Full => {
                if let (Some(binlog), Some(job)) = (&mut self.binlog, queue.job(id)) {
                    self.postponed.log_update(binlog, &job, false, now);
                }
            }
        }
    }

    fn append_death(&mut self, queue: &Queue, id: JobId, now: Timestamp) -> Result<(), NoRoom> {
        if let (Some(binlog), Some(job)) = (&mut self.binlog, queue.job(id)) {
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
        if self.postponed.lacks_states
            && let (Some(binlog), Some(job)) = (&mut self.binlog, queue.job(id))
        {
            self.postponed.log_update(binlog, &job, false, now);
        }
        Ok(())
    }

    pub(super) fn log_session_reservation_by(
        &mut self,
        queue: &Queue,
        id: JobId,
        append: impl FnOnce(&mut Binlog, JobId, &LoggedReservation<'_>) -> Result<(), NoRoom>,
    ) -> Result<(), NoRoom> {
        let logged = match (&mut self.binlog, queue.session_reservation(id)) {
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

    /// Logs postponed changes, as far as there is room now. A death contains the state of its job, so it comes first.
    pub(super) fn catch_up(&mut self, queue: &Queue, now: Timestamp) {
        self.postponed.awaits_file = false;
        while let Some(&id) = self.postponed.deaths.first() {
            if let Err(no_room) = self.append_death(queue, id, now) {
                self.postponed.awaits_file = no_room == NoRoom::Pending;
                break;
            }
        }
        let Some(binlog) = &mut self.binlog else { return };
        while let Some(id) = binlog.next_postponed()
            && let Some(job) = queue.job(id).filter(|_| !self.postponed.awaits_death(id))
        {
            append_state(binlog, &job, job.record.state == JobState::Reserved, now);
        }
        while let Some(&id) = self.postponed.session_reservations.first()
            && self.log_session_reservation(queue, id, now).is_ok()
        {}
    }
}

impl Executor {
    /// Answers a command for whose changes no room was reserved, about one job or about many: the reply waits until the
    /// log has them. On a full disk it does not wait: they are logged when there is room.
    pub(in crate::commands) fn answer_when_logged(
        &mut self,
        caller: &mut Caller<'_>,
        reply: Reply<'static>,
        of: Option<JobId>,
    ) -> Outcome {
        self.persistence.log_changes(&mut self.queue, caller.now);
        if self.persistence.postponed.awaits_file && of.is_none_or(|id| self.persistence.lacks(id)) {
            return stall(Until::BinlogRoom, move |server, caller| {
                server.answer_when_logged(caller, reply, of)
            });
        }
        answer(caller.output, &reply)
    }
}

//! The commands that reserve one job: `reserve`, with a time-out or an abort, and `reserve-job`; and `reserve-mode`.
//!
//! Owns: the replies for the results of a reserve, at once or after a wait. The queue chooses the job. A reserve
//! without a session needs no room in the log, because a restart makes the job ready again.

use super::watch::WatchRights;
use crate::clock::{NS_PER_MS, Timestamp};
use crate::exchange::{Output, Until, WaitKind};
use crate::executor::{Caller, Executor, Outcome, answer, lacks_room, stall, wait};
use crate::job::{BodyRef, JobId};
use crate::protocol::{ModeWord, Reply};
use crate::queue::{ClientId, Reserve, ReserveMode};
use crate::seconds::Seconds;

impl Executor {
    /// If the server is `GUARDED`, tubes from which the client may not reserve leave its watch list first.
    pub(super) fn reserve<const GUARDED: bool, const ABORTABLE: bool>(
        &mut self,
        client: ClientId,
        timeout_s: Option<Seconds>,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        let continuation = move |executor: &mut Self, Caller { client, output, now, .. }: &mut Caller<'_>| {
            executor.reserve::<GUARDED, ABORTABLE>(*client, timeout_s, output, *now)
        };
        if GUARDED {
            match self.drop_unwatchable(client) {
                WatchRights::Allowed => {}
                WatchRights::Forbidden => return answer(output, &Reply::Forbidden),
                WatchRights::Unfinished => return stall(Until::NextTurn, continuation),
            }
        }
        if let Err(no_room) = self.room_for_session_reservation(client) {
            return lacks_room(no_room, output, continuation);
        }
        match self.queue.reserve(client, timeout_s, now) {
            Reserve::Job(id) => self.answer_reserved(client, id, output, now),
            Reserve::DeadlineSoon => answer(output, &Reply::DeadlineSoon),
            Reserve::TimedOut => answer(output, &Reply::TimedOut),
            Reserve::Waiting => wait(WaitKind::Job { is_abortable: ABORTABLE }),
            Reserve::Unfinished => stall(Until::NextTurn, continuation),
        }
    }

    /// Begins a reserve again, with what is left of its time-out, because its client has waited for a job and lost it
    /// before the reply.
    pub(super) fn reserve_again(&mut self, caller: &mut Caller<'_>, is_abortable: bool) -> Outcome {
        let Caller { client, ref mut output, now, .. } = *caller;
        let until = self.queue.waited_until(client);
        // Rounded up: the wait does not end before its time.
        let left_ns = until.since_ns(now).saturating_add(NS_PER_MS - 1);
        let timeout_s =
            (until != Timestamp::NEVER).then(|| Seconds::of_ns(i64::try_from(left_ns).unwrap_or(i64::MAX)));
        match (self.is_guarded(), is_abortable) {
            (false, false) => self.reserve::<false, false>(client, timeout_s, output, now),
            (false, true) => self.reserve::<false, true>(client, timeout_s, output, now),
            (true, false) => self.reserve::<true, false>(client, timeout_s, output, now),
            (true, true) => self.reserve::<true, true>(client, timeout_s, output, now),
        }
    }

    pub(super) fn reserve_job(&mut self, caller: &mut Caller<'_>, id: JobId) -> Outcome {
        if let Err(no_room) = self.room_for_session_reservation(caller.client) {
            return lacks_room(no_room, caller.output, move |executor, caller| {
                executor.reserve_job(caller, id)
            });
        }
        if !self.queue.reserve_job(caller.client, id, caller.now) {
            return answer(caller.output, &Reply::NotFound);
        }
        debug_assert!(self.queue.has_reserved(caller.client, id), "the client has reserved the job");
        self.answer_reserved(caller.client, id, caller.output, caller.now)
    }

    pub(super) fn answer_reserved(
        &mut self,
        client: ClientId,
        id: JobId,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        if let Some(fields) = self.fields_of(client) {
            // Records may be the reason for the present values of the fields.
            return self.answer_with_fields(&mut Caller::new(client, output, now), id, fields);
        }
        self.note_reserved(id);
        answer(output, &self.reserved_body(id).map_or(Reply::InternalError, |body| Reply::Reserved(id, body)))
    }

    /// The body of a job that the client has reserved, or that was flushed since.
    #[inline(always)]
    pub(super) fn reserved_body(&self, id: JobId) -> Option<BodyRef<'_>> {
        self.queue.body(id).or_else(|| self.flushed.find(id).map(|job| BodyRef::from(&job.body)))
    }

    /// The command `reserve-mode`.
    pub(super) fn set_mode(&mut self, caller: &mut Caller<'_>, word: ModeWord) -> Outcome {
        if self.queue.make_room_for_mode(caller.client).is_err() {
            return answer(caller.output, &Reply::OutOfMemory);
        }
        let mode = match word {
            ModeWord::Fifo | ModeWord::Default => ReserveMode::Fifo,
            ModeWord::Weighted => ReserveMode::Weighted,
            ModeWord::WeightedFair => ReserveMode::WeightedFair,
        };
        self.queue.set_reserve_mode(caller.client, mode);
        answer(caller.output, &Reply::Using(word.as_str()))
    }
}

//! The commands for workers: watch lists, and those that C does not have: batches, `touch-all`, `reserve-mode`.
//!
//! Owns: how many jobs a batch reserves, deletes or touches in a turn. A `reserve-batch` first reserves its jobs, in as
//! many turns as that takes, and then answers in one piece, because the reply begins with their number. Driven by
//! `execute`.

use super::execute::{Executor, answer};
use crate::access::Need;
use crate::clock::Timestamp;
use crate::job::{BodyRef, JobId};
use crate::protocol::{Command, IdList, ModeWord, Reply, reserved_len};
use crate::queue::{ClientId, Reserve, ReserveMode};
use crate::session::{Batch, DeleteBatch, Outcome, Output, StalledCommand, TouchAll, Until, Waiting};

/// What a batch may cost in a turn, in simple requests: some 100 microseconds.
const WORK_PER_TURN: u64 = 400;
/// Reservations that a `touch-all` touches in a turn.
const TOUCHES_PER_TURN: usize = 400;
/// Jobs whose replies cost as much to write as a simple request.
const REPLIES_PER_WORK: u64 = 4;

impl Executor {
    /// The commands `watch` and `ignore`.
    pub(super) fn change_watched(&mut self, client: ClientId, command: Command<'_>) -> Reply<'static> {
        let watched = match command {
            Command::Watch { tube, weight } => Some(self.queue.watch_with_weight(client, tube, weight)),
            Command::Ignore(tube) => self.queue.ignore(client, tube),
            _ => return Reply::InternalError,
        };
        self.count_watched(client);
        watched.map_or(Reply::NotIgnored, Reply::Watching)
    }

    /// The client's watch list may have another length.
    pub(super) fn count_watched(&mut self, client: ClientId) {
        if let Some(guard) = &mut self.guard {
            guard.set_watched(client, self.queue.watched_count(client));
        }
    }

    pub(super) fn work_command(
        &mut self,
        client: ClientId,
        command: Command<'_>,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        match command {
            Command::ReserveWithAbort { timeout_s } => {
                self.reserve(client, timeout_s, Waiting::Abortable, output, now)
            }
            Command::ReserveBatch { most, timeout_s } => {
                self.reserve_batch(client, Box::new(Batch::new(most, timeout_s)), output, now)
            }
            Command::DeleteBatch(ids) => self.begin_delete_batch(client, ids, output, now),
            Command::TouchAll => self.touch_all(client, TouchAll { at: now, after: None, passed: 0 }, output),
            Command::ReserveMode(word) => {
                let mode = match word {
                    ModeWord::Fifo | ModeWord::Default => ReserveMode::Fifo,
                    ModeWord::Weighted => ReserveMode::Weighted,
                    ModeWord::WeightedFair => ReserveMode::WeightedFair,
                };
                self.queue.set_reserve_mode(client, mode);
                answer(output, &Reply::Using(word.as_str()))
            }
            _ => answer(output, &Reply::InternalError),
        }
    }

    /// Reserves a turn's share of a batch, and answers if that was all, or all that the output has room for.
    pub(super) fn reserve_batch(
        &mut self,
        client: ClientId,
        mut batch: Box<Batch>,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        let end = self.spent() + WORK_PER_TURN;
        let is_tight = self.is_short_of_memory();
        while has_room_in(&batch, output, is_tight) {
            if self.spent() >= end {
                return Outcome::stall(StalledCommand::ReserveBatch(batch), Until::NextTurn);
            }
            let is_first = batch.ids.is_empty();
            if batch.ids.try_reserve(1).is_err() {
                if is_first {
                    return answer(output, &Reply::OutOfMemory);
                }
                break;
            }
            let timeout_s = batch.timeout_s.filter(|_| is_first);
            match self.queue.reserve(client, Some(timeout_s.unwrap_or(0)), now) {
                Reserve::Job(id) => self.add_to(&mut batch, id),
                Reserve::Unfinished => {
                    return Outcome::stall(StalledCommand::ReserveBatch(batch), Until::NextTurn);
                }
                Reserve::Waiting => return Outcome::Wait(Waiting::Batch(batch.most)),
                Reserve::DeadlineSoon if timeout_s.is_some() => return answer(output, &Reply::DeadlineSoon),
                Reserve::TimedOut if timeout_s.is_some() => return answer(output, &Reply::TimedOut),
                Reserve::DeadlineSoon | Reserve::TimedOut => break,
            }
            self.persistence.log_changes(&mut self.queue, now);
            self.work += 1;
        }
        self.answer_batch(client, &batch.ids, output)
    }

    fn add_to(&self, batch: &mut Batch, id: JobId) {
        if let Some(body) = self.queue.body(id) {
            let head = reserved_len(id, body);
            batch.own_bytes += head + body.copied_len();
            batch.all_bytes += head + body.len();
        }
        batch.ids.push(id);
    }

    /// A batch that has waited for its first job has got it. The rest follows in the next turn, which has time for it.
    pub(super) fn continue_batch(&mut self, most: u32, id: JobId) -> Outcome {
        let mut batch = Box::new(Batch::new(most, None));
        self.add_to(&mut batch, id);
        Outcome::stall(StalledCommand::ReserveBatch(batch), Until::NextTurn)
    }

    /// The jobs that the client has lost while the others were reserved, to a flush or to their time to run, are left out.
    fn answer_batch(&mut self, client: ClientId, ids: &[JobId], output: &mut Output) -> Outcome {
        let mut jobs: Vec<(JobId, BodyRef<'_>)> = Vec::new();
        if jobs.try_reserve_exact(ids.len()).is_err() {
            return Outcome::Abort;
        }
        jobs.extend(ids.iter().filter_map(|&id| Some((id, self.queue.held_body(client, id)?))));
        let outcome = answer(output, &Reply::ReservedBatch(&jobs));
        self.work += jobs.len() as u64 / REPLIES_PER_WORK;
        outcome
    }

    fn begin_delete_batch(
        &mut self,
        client: ClientId,
        list: IdList<'_>,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        let mut ids = Vec::new();
        if ids.try_reserve_exact(list.count()).is_err() {
            return answer(output, &Reply::OutOfMemory);
        }
        ids.extend(list.iter());
        let batch = Box::new(DeleteBatch { ids: ids.into_iter(), deleted: 0, missing: 0 });
        self.delete_batch(client, batch, output, now)
    }

    /// Deletes a turn's share of a batch, and answers if that was the rest. A delete needs no room in the binlog.
    pub(super) fn delete_batch(
        &mut self,
        client: ClientId,
        mut batch: Box<DeleteBatch>,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        let end = self.spent() + WORK_PER_TURN;
        while self.spent() < end {
            let Some(id) = batch.ids.next() else {
                return answer(output, &Reply::DeletedBatch(batch.deleted, batch.missing));
            };
            match self.may_delete(client, id).then(|| self.delete(client, id, now)) {
                Some(Reply::Deleted) => batch.deleted += 1,
                _ => batch.missing += 1,
            }
            self.persistence.log_changes(&mut self.queue, now);
            self.work += 1;
        }
        Outcome::stall(StalledCommand::DeleteBatch(batch), Until::NextTurn)
    }

    /// Touches a turn's share of what the client has reserved, and answers if that was the rest. The times to run start again
    /// at the instant of the command. Jobs of tubes from which the client may not reserve any more are passed over.
    pub(super) fn touch_all(
        &mut self,
        client: ClientId,
        mut touch: TouchAll,
        output: &mut Output,
    ) -> Outcome {
        let mut left = TOUCHES_PER_TURN;
        let grants = self.guard.as_ref().map(|guard| guard.grants(client));
        let may_touch = |tube: &str| match grants {
            None => true,
            Some(grants) => grants.is_some_and(|grants| grants.on(tube).meets(Need::RESERVE)),
        };
        touch.after =
            self.queue.touch_after(client, touch.after, &mut left, &mut touch.passed, may_touch, touch.at);
        self.work += (TOUCHES_PER_TURN - left) as u64;
        if touch.after.is_some() {
            return Outcome::stall(StalledCommand::TouchAll(touch), Until::NextTurn);
        }
        let touched = self.queue.reservation_count(client) as u64 - touch.passed;
        answer(output, &Reply::TouchedAll(touched))
    }
}

/// Whether the batch may have another job. The first may have any size, as in a `reserve`.
fn has_room_in(batch: &Batch, output: &Output, is_tight: bool) -> bool {
    batch.ids.is_empty()
        || batch.ids.len() < batch.most as usize
            && !output.would_exceed(is_tight, batch.own_bytes, batch.all_bytes)
}

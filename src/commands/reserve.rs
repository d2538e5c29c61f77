//! The commands that reserve one job: `reserve`, with a time-out or an abort, and `reserve-job`; and `reserve-mode`.

use super::watch::WatchList;
use super::{Executor, Outcome, answer, stall};
use crate::clock::Timestamp;
use crate::job::{BodyRef, JobId};
use crate::protocol::{ModeWord, Reply};
use crate::queue::{ClientId, Reserve, ReserveMode, WaitOutcome};
use crate::session::{Output, Until, Waiting};

impl Executor {
    /// If the server is `GUARDED`, tubes from which the client may not reserve leave its watch list first.
    pub(super) fn reserve<const GUARDED: bool>(
        &mut self,
        client: ClientId,
        timeout_s: Option<u32>,
        waiting: Waiting,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        let rest = move |server: &mut Self, client, output: &mut Output, now| {
            server.reserve::<GUARDED>(client, timeout_s, waiting, output, now)
        };
        if GUARDED {
            match self.drop_unwatchable(client) {
                WatchList::Allowed => {}
                WatchList::Forbidden => return answer(output, &Reply::Forbidden),
                WatchList::Unfinished => return stall(Until::NextTurn, rest),
            }
        }
        match self.queue.reserve(client, timeout_s, now) {
            Reserve::Job(id) => self.answer_reserved(id, output),
            Reserve::DeadlineSoon => answer(output, &Reply::DeadlineSoon),
            Reserve::TimedOut => answer(output, &Reply::TimedOut),
            Reserve::Waiting => Outcome::Wait(waiting),
            Reserve::Unfinished => stall(Until::NextTurn, rest),
        }
    }

    pub(super) fn reserve_job(
        &mut self,
        client: ClientId,
        id: JobId,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        if !self.queue.reserve_job(client, id, now) {
            return answer(output, &Reply::NotFound);
        }
        self.answer_reserved(id, output)
    }

    /// Answers a reserve that has waited.
    pub(super) fn end_wait(&mut self, waiting: Waiting, wait: WaitOutcome, output: &mut Output) -> Outcome {
        match wait {
            WaitOutcome::Reserved(id) => match waiting {
                Waiting::Batch(most) => self.continue_batch(most, id),
                Waiting::Plain | Waiting::Abortable => self.answer_reserved(id, output),
            },
            WaitOutcome::TimedOut => answer(output, &Reply::TimedOut),
            WaitOutcome::DeadlineSoon => answer(output, &Reply::DeadlineSoon),
        }
    }

    fn answer_reserved(&mut self, id: JobId, output: &mut Output) -> Outcome {
        self.note_reserved(id);
        let body = self.queue.body(id).or_else(|| self.flushed_body(id).map(BodyRef::from));
        answer(output, &body.map_or(Reply::InternalError, |body| Reply::Reserved(id, body)))
    }

    /// The command `reserve-mode`.
    pub(super) fn set_mode(&mut self, client: ClientId, word: ModeWord, output: &mut Output) -> Outcome {
        if self.queue.reserve_mode(client).is_err() {
            return answer(output, &Reply::OutOfMemory);
        }
        let mode = match word {
            ModeWord::Fifo | ModeWord::Default => ReserveMode::Fifo,
            ModeWord::Weighted => ReserveMode::Weighted,
            ModeWord::WeightedFair => ReserveMode::WeightedFair,
        };
        self.queue.set_reserve_mode(client, mode);
        answer(output, &Reply::Using(word.as_str()))
    }
}

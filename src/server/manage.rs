//! The commands for operators: flushes, `move`, `reprioritize`, drain mode.
//!
//! Owns: how many jobs a flush deletes in a turn. `list_jobs` has the lists. Driven by `execute`.

use super::execute::{Executor, answer, lacks_room};
use crate::clock::Timestamp;
use crate::job::{Body, JobId, Priority};
use crate::protocol::{Command, Reply, Verb};
use crate::queue::{BeginFlush, ClientId, FlushStep, Flushed};
use crate::session::{Outcome, Output, StalledCommand, Until};

/// Jobs and clients that a flush looks at in a turn: some 200 microseconds.
const LOOKS_PER_TURN: usize = 500;
/// The cost of a flush in a turn, in simple requests: freeing large bodies takes longer than finding them.
const WORK_PER_TURN: u64 = 1000;

impl Executor {
    pub(super) fn manage(
        &mut self,
        client: ClientId,
        command: Command<'_>,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        match command {
            Command::FlushTube(tube) => self.flush(client, tube, false, output, now),
            Command::FlushBuried(tube) => self.flush(client, tube, true, output, now),
            Command::Move { id, tube } => self.move_job(client, id, tube, output, now),
            Command::Reprioritize { id, priority } => self.reprioritize(id, priority, output, now),
            Command::ListJobs { tube, state, limit, after } => {
                let after = after.map(|cursor| (cursor.is_held, cursor.position, cursor.id));
                self.list_jobs(client, (tube, state), limit as usize, after, output, now)
            }
            Command::PeekReserved => self.peek_reserved(client, output, now),
            Command::Drain => {
                self.draining = true;
                answer(output, &Reply::Draining)
            }
            Command::Undrain => {
                self.draining = false;
                answer(output, &Reply::NotDraining)
            }
            // Only a server with access rules has the command.
            Command::Auth(_) => {
                self.commands.uncount(Verb::Auth);
                self.malformed += 1;
                answer(output, &Reply::UnknownCommand)
            }
            _ => answer(output, &Reply::InternalError),
        }
    }

    pub(super) fn flush(
        &mut self,
        client: ClientId,
        tube: &str,
        is_buried: bool,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        let flushed = if is_buried { Flushed::Buried } else { Flushed::All };
        match self.queue.begin_flush(client, tube, flushed, now) {
            BeginFlush::Begun => self.go_on_flushing(client, 0, output, now),
            BeginFlush::NoTube => answer(output, &Reply::Flushed(0)),
            BeginFlush::TooMany => {
                Outcome::stall(StalledCommand::BeginFlush(tube.into(), is_buried), Until::NextTurn)
            }
        }
    }

    /// Continues the client's flush, which has deleted `flushed` jobs.
    pub(super) fn go_on_flushing(
        &mut self,
        client: ClientId,
        flushed: u64,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        let end = self.spent() + WORK_PER_TURN;
        let (deleted, is_done) = self.flush_slice(client, end, now);
        let flushed = flushed + deleted;
        if is_done {
            self.queue.end_flush(client, now);
            return answer(output, &Reply::Flushed(flushed));
        }
        Outcome::stall(StalledCommand::Flush { flushed }, Until::NextTurn)
    }

    /// Deletes jobs of a client's flush until the turn's work reaches `end`. Returns how many, and whether the flush is done.
    /// A delete needs no room in the binlog.
    pub(super) fn flush_slice(&mut self, client: ClientId, end: u64, now: Timestamp) -> (u64, bool) {
        let (mut looks, mut deleted) = (LOOKS_PER_TURN, 0);
        while self.spent() < end {
            let before = looks;
            let step = self.queue.next_to_flush(client, &mut looks);
            self.work += (before - looks) as u64;
            match step {
                FlushStep::Job(id) => {
                    self.delete_in_any_state(id, now);
                    deleted += 1;
                }
                FlushStep::Cooldown(id) => {
                    self.queue.end_cooldown(id);
                    self.persistence.log_changes(&mut self.queue, now);
                    self.work += 1;
                }
                FlushStep::Unfinished => break,
                FlushStep::Done => return (deleted, true),
            }
        }
        (deleted, false)
    }

    /// Deletes a job, even one that a client has reserved.
    pub(super) fn delete_in_any_state(&mut self, id: JobId, now: Timestamp) {
        self.keep_for_delivery(id);
        let body = self.queue.flush_job(id, now);
        self.persistence.log_changes(&mut self.queue, now);
        if let Some(watch) = body.watch() {
            self.detach_body(watch, body);
        }
    }

    /// Keeps the body of a job that is about to be flushed where a client may have to be told that it has reserved it.
    fn keep_for_delivery(&mut self, id: JobId) {
        if self.queue.has_deliveries() && !self.queue.is_unreserved(id) {
            self.flushed_bodies
                .extend(self.queue.body(id).and_then(|body| Some((id, body.to_owned().ok()?))));
        }
    }

    /// The body of a job that was flushed in this turn, for a client that had reserved it before.
    #[cold]
    pub(super) fn flushed_body(&self, id: JobId) -> Option<&Body> {
        self.flushed_bodies.iter().find(|(flushed, _)| *flushed == id).map(|(_, body)| body)
    }

    pub(super) fn move_job(
        &mut self,
        client: ClientId,
        id: JobId,
        tube: &str,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        let Some(job) = self.queue.job(id).filter(|_| self.queue.is_movable(client, id)) else {
            return answer(output, &Reply::NotFound);
        };
        if let Some(double) = self.queue.double_in(id, tube, now) {
            return answer(output, &Reply::Exists(double));
        }
        if job.tube.as_str() != tube
            && let Err(no_room) = self.persistence.room_for_move(&self.queue, id, tube)
        {
            return lacks_room(no_room, StalledCommand::Move(id, tube.into()), output);
        }
        self.queue.move_job(id, tube, now);
        answer(output, &Reply::Moved)
    }

    pub(super) fn reprioritize(
        &mut self,
        id: JobId,
        priority: Priority,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        if !self.queue.is_unreserved(id) {
            return answer(output, &Reply::NotFound);
        }
        if let Err(no_room) = self.persistence.room_for_update() {
            return lacks_room(no_room, StalledCommand::Reprioritize(id, priority), output);
        }
        self.queue.reprioritize(id, priority, now);
        answer(output, &Reply::Reprioritized)
    }
}

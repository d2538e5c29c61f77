//! Flushes: the deletion of the jobs that a tube had when the command came, a few at a time.
//!
//! Owns: the beginning of a flush, and the steps of its walk, whose position is in `state/flushes.rs`. Driven by the
//! server, which deletes the jobs one by one.

use std::collections::BTreeSet;

use crate::clock::Timestamp;
use crate::job::{Body, JobId};
use crate::rules::Ending;
use crate::state::clients::Clients;
use crate::state::flushes::{Flush, FlushScope, FlushStage, Flushes};
use crate::{ClientId, Queue};

/// The maximum number of running flushes: each is asked when a job changes its state.
const MAX_FLUSHES: usize = 32;

/// Whether a flush has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the other variants say everything")]
pub enum BeginFlush {
    Begun,
    NoTube,
    /// Too many flushes are running: the command must wait until one of them ends.
    TooMany,
}

/// The next step of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the other variants say everything")]
pub enum FlushStep {
    /// Delete this job.
    Job(JobId),
    /// End the cooldown of this deleted job.
    Cooldown(JobId),
    /// The call has used up its probes.
    Unfinished,
    Done,
}

impl Queue {
    /// Begins to flush the tube with this name. A client flushes one tube at a time.
    pub fn begin_flush(&mut self, client: ClientId, name: &str, scope: FlushScope) -> BeginFlush {
        let Some(tube) = self.tubes.find(name) else { return BeginFlush::NoTube };
        if self.flushes.0.len() == MAX_FLUSHES {
            return BeginFlush::TooMany;
        }
        debug_assert!(self.is_connected(client), "the client of a flush is connected");
        debug_assert!(
            !self.flushes.0.iter().any(|flush| flush.client == client),
            "a client flushes one tube"
        );
        self.flushes.0.push(Flush {
            client,
            tube: Some(tube),
            scope,
            next_id: self.numbers.next_id,
            next_burial: self.numbers.next_burial,
            stage: match scope {
                FlushScope::All => FlushStage::Held(None),
                FlushScope::Buried => FlushStage::Buried(None),
                FlushScope::Cooldowns => FlushStage::Cooldowns(None),
            },
            moved: BTreeSet::new(),
            came: BTreeSet::new(),
        });
        BeginFlush::Begun
    }

    /// Finds the next job that the client's flush deletes, with at most `left` probes of jobs and clients; subtracts
    /// the probes made.
    pub fn next_to_flush(&mut self, client: ClientId, left: &mut usize) -> FlushStep {
        let Self {
            flushes: Flushes(flushes), jobs, tubes, clients: Clients { records: clients, .. }, ..
        } = self;
        let Some(flush) = flushes.iter_mut().find(|flush| flush.client == client) else {
            return FlushStep::Done;
        };
        while let Some(key) = flush.tube {
            if *left == 0 {
                return FlushStep::Unfinished;
            }
            *left -= 1;
            let found = match flush.moved.pop_first() {
                Some(id) => Some(id),
                None => match flush.stage {
                    FlushStage::Reserved { client, after } => {
                        let has_more = tubes.get(key).reserved > 0 && client < clients.capacity();
                        let next = clients.get(client).and_then(|client| client.reserved.next_after(after));
                        flush.stage = match next {
                            // Every later reservation has been noted.
                            _ if !has_more => FlushStage::Cooldowns(None),
                            Some(_) => FlushStage::Reserved { client, after: next },
                            None => FlushStage::Reserved { client: client + 1, after: None },
                        };
                        next.filter(|_| has_more).map(|reservation| reservation.id)
                    }
                    FlushStage::Cooldowns(after) => {
                        let tagged = tubes.get(key).tag_state();
                        let next = tagged.and_then(|tagged| tagged.cooldowns.next_after(after));
                        flush.stage = match next.filter(|id| id.0 < flush.next_id) {
                            Some(id) if flush.came.contains(&id) => FlushStage::Cooldowns(Some(id)),
                            Some(id) => return FlushStep::Cooldown(id),
                            None => FlushStage::Over,
                        };
                        None
                    }
                    FlushStage::Over => return FlushStep::Done,
                    FlushStage::Ready(_)
                    | FlushStage::Delayed(_)
                    | FlushStage::Held(_)
                    | FlushStage::Buried(_) => flush.step(tubes.get(key)),
                },
            };
            if let Some(id) = found
                && jobs.get(id).is_some_and(|job| flush.takes(id, job))
            {
                return FlushStep::Job(id);
            }
        }
        FlushStep::Done
    }

    /// Deletes a job that `next_to_flush` has found, even if a client has reserved it, and returns its body.
    pub fn flush_job(&mut self, id: JobId, now: Timestamp) -> Body {
        let (job, history) = self.jobs.expect_with_history(id);
        let (link, holder) = (job.link(), history.holder);
        let (_, body) = self.end(id, link, Ending::Flushed, now);
        if !link.marks.is_empty() {
            self.serve_waiting(None, now);
        }
        self.remove_tube_if_idle(link.tube);
        if let Some(holder) = holder {
            self.end_session_if_idle(holder);
        }
        body
    }

    /// Ends the client's flush. Jobs that became free and had to wait for it continue.
    pub fn end_flush(&mut self, client: ClientId, now: Timestamp) {
        self.flushes.end(client);
        self.serve_waiting(None, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Priority;
    use crate::tags::{Idempotency, TagSet};
    use crate::testing::{NOW, TestJob, con};

    #[test]
    fn a_flush_finds_a_reservation_that_is_shortened_behind_its_walk() {
        let mut queue = Queue::default();
        let [worker, flusher] = [(); 2].map(|()| queue.connect());
        let ids = [(); 3].map(|()| TestJob::default().put(&mut queue, worker, NOW));
        assert!(ids.into_iter().all(|id| queue.reserve_job(worker, id, NOW)));
        assert_eq!(queue.begin_flush(flusher, "default", FlushScope::All), BeginFlush::Begun);
        while queue.figures().jobs.reserved > 0 {
            match queue.next_to_flush(flusher, &mut 1) {
                FlushStep::Job(id) => {
                    queue.flush_job(id, NOW);
                    queue.touch(worker, ids[2], Some(1.into()), NOW);
                }
                FlushStep::Unfinished | FlushStep::Cooldown(_) => {}
                FlushStep::Done => panic!("{} jobs are left", queue.figures().jobs.reserved),
            }
        }
    }

    #[test]
    fn a_flush_finds_a_ready_job_that_gets_a_priority_behind_its_walk() {
        let mut queue = Queue::default();
        let [producer, flusher] = [(); 2].map(|()| queue.connect());
        let ids =
            [(); 2].map(|()| TestJob { priority: 5, ..TestJob::default() }.put(&mut queue, producer, NOW));
        assert_eq!(queue.begin_flush(flusher, "default", FlushScope::All), BeginFlush::Begun);
        assert_eq!(queue.next_to_flush(flusher, &mut 100), FlushStep::Job(ids[0]));
        queue.flush_job(ids[0], NOW);
        assert!(queue.set_priority(ids[1], Priority(1), NOW));
        assert_eq!(queue.next_to_flush(flusher, &mut 100), FlushStep::Job(ids[1]));
    }

    #[test]
    fn a_job_that_is_put_later_stays_even_if_its_id_was_taken_before() {
        let mut queue = Queue::default();
        let [producer, flusher] = [(); 2].map(|()| queue.connect());
        let idp = |key: &'static str| TagSet {
            idempotency: Some(Idempotency { key: key.try_into().unwrap(), cooldown_s: 60.into() }),
            ..TagSet::NONE
        };
        let before = queue.allocate_id();
        let late = [(); 4].map(|()| queue.allocate_id());
        TestJob::default().put_as(before, &mut queue, producer, NOW);
        let deleted = TestJob { tags: idp("a"), ..TestJob::default() }.put(&mut queue, producer, NOW);
        assert!(queue.delete(producer, deleted, NOW).is_some());
        assert_eq!(queue.begin_flush(flusher, "default", FlushScope::All), BeginFlush::Begun);
        let kinds = [(0, TagSet::NONE), (9, TagSet::NONE), (0, con("a", 1)), (0, idp("b"))];
        for (id, (delay_s, tags)) in late.into_iter().zip(kinds) {
            TestJob { delay_s, tags, ..TestJob::default() }.put_as(id, &mut queue, producer, NOW);
        }
        assert_eq!(queue.next_to_flush(flusher, &mut 100), FlushStep::Job(before));
        queue.flush_job(before, NOW);
        assert!(queue.delete(producer, late[3], NOW).is_some());
        assert_eq!(queue.next_to_flush(flusher, &mut 100), FlushStep::Cooldown(deleted));
        queue.end_cooldown(deleted);
        assert_eq!(queue.next_to_flush(flusher, &mut 100), FlushStep::Done);
        assert!(queue.cooldown(late[3]).is_some());
    }

    #[test]
    fn a_flush_ends_with_its_client_and_with_its_tube() {
        let mut queue = Queue::default();
        let [flusher, producer] = [(); 2].map(|()| queue.connect());
        queue.use_tube(producer, "gone");
        let id = TestJob::default().put(&mut queue, producer, NOW);
        queue.use_tube(producer, "default");
        for scope in [FlushScope::All, FlushScope::Buried] {
            assert_eq!(queue.begin_flush(flusher, "gone", scope), BeginFlush::Begun);
            assert_eq!(queue.flushes.0.len(), 1);
            queue.end_flush(flusher, NOW);
        }
        assert_eq!(queue.begin_flush(flusher, "gone", FlushScope::All), BeginFlush::Begun);
        assert!(queue.delete(producer, id, NOW).is_some());
        queue.use_tube(producer, "next");
        TestJob::default().put(&mut queue, producer, NOW);
        assert_eq!(queue.next_to_flush(flusher, &mut 100), FlushStep::Done, "its tube is gone");
        queue.disconnect(flusher, NOW);
        assert_eq!(queue.flushes.0.len(), 0);
        assert_eq!(queue.begin_flush(producer, "nobody", FlushScope::All), BeginFlush::NoTube);
    }
}

//! The acknowledged changes, and the checks that they hold.
//!
//! Owns: for each job, its acknowledged changes and the client that has reserved it. Pure: clients report what they
//! send and read, in this order. It fails if an INSERTED job is missing, if a DELETED job comes back, if one owner
//! gives a job to two clients at once, if an id is assigned twice, or if a server replies that is no longer the owner
//! ([`Fence`]).

use std::collections::{BTreeMap, BTreeSet};

use crate::fence::{Fence, Process};

/// A number for each send, which shows whether a reply belongs to a later command. With a clock, its nanoseconds.
pub type Tick = u64;

#[derive(Debug)]
struct Job {
    body: String,
    /// Whether a put was answered with its id.
    inserted: bool,
    /// When a delete was answered.
    deleted_at: Option<Tick>,
    /// A delete was sent and not answered: the job may be there or not.
    delete_unknown: bool,
    /// The client that has reserved it, and the process that gave it to this client.
    holder: Option<(String, usize)>,
}

/// All acknowledged changes.
#[derive(Debug, Default)]
pub struct History {
    now: Tick,
    jobs: BTreeMap<u64, Job>,
    /// Puts that were sent and have no id yet. The job may be there or not.
    puts: BTreeSet<String>,
    ids_by_body: BTreeMap<String, u64>,
    problems: Vec<String>,
    /// Which process may reply.
    pub fence: Fence,
}

impl History {
    /// Something is about to be sent.
    pub fn tick(&mut self) -> Tick {
        self.tick_at(0)
    }

    /// Something is about to be sent at this time of a clock.
    pub fn tick_at(&mut self, time_ns: u64) -> Tick {
        self.now = time_ns.max(self.now + 1);
        self.now
    }

    /// `process` has sent a reply that cannot have been true before `asked_at`.
    pub fn answered(&mut self, process: &Process, asked_at: Tick, now: Tick, what: &str) {
        self.problems.extend(self.fence.answered(process, asked_at, now, what).err());
    }

    /// A fault that no other check finds.
    pub fn broken(&mut self, problem: String) {
        self.problems.push(problem);
    }

    /// A put of a body that no other put has is about to be sent.
    pub fn putting(&mut self, body: &str) {
        self.puts.insert(body.to_owned());
    }

    /// It was answered INSERTED.
    pub fn inserted(&mut self, body: &str, id: u64) {
        self.bind(id, body, "INSERTED");
        if let Some(job) = self.jobs.get_mut(&id) {
            if job.inserted {
                self.problems.push(format!("id {id} was given twice: to {} and to {body}", job.body));
            }
            job.inserted = true;
        }
    }

    /// It was refused with a reply that promises that nothing was changed.
    pub fn refused(&mut self, body: &str) {
        self.puts.remove(body);
    }

    /// A job was reserved with a command that was sent at `asked_at` to the process `owner`.
    pub fn reserved(&mut self, client: usize, owner: &str, id: u64, body: &str, asked_at: Tick) {
        self.bind(id, body, "RESERVED");
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if job.deleted_at.is_some_and(|deleted_at| deleted_at < asked_at) {
            self.problems.push(format!("job {id} was DELETED and came back: {body}"));
        }
        if let Some((other, holder)) = &job.holder
            && other == owner
            && *holder != client
        {
            self.problems.push(format!("job {id} was given to clients {holder} and {client} by {owner}"));
        }
        job.holder = Some((owner.to_owned(), client));
    }

    /// The client gives the job back: it is about to say so.
    pub fn giving_back(&mut self, id: u64) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.holder = None;
        }
    }

    /// A delete is about to be sent.
    pub fn deleting(&mut self, id: u64) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.delete_unknown = true;
        }
    }

    /// It was answered DELETED.
    pub fn deleted(&mut self, id: u64) {
        let now = self.tick();
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if job.deleted_at.replace(now).is_some() {
            self.problems.push(format!("job {id} was DELETED twice"));
        }
    }

    /// It was answered NOT_FOUND, by the process from which the client has reserved the job through the same
    /// connection.
    pub fn held_job_not_found(&mut self, id: u64) {
        self.problems.push(format!("job {id} is missing: its holder got NOT_FOUND"));
    }

    /// The client has lost its connection, or is about to close it.
    pub fn disconnected(&mut self, client: usize) {
        for job in self.jobs.values_mut() {
            if job.holder.as_ref().is_some_and(|(_, holder)| *holder == client) {
                job.holder = None;
            }
        }
    }

    /// All jobs that are left were taken out; ends the round. What is known of ids stays.
    pub fn drained(&mut self, found: &BTreeMap<u64, String>) {
        for (&id, body) in found {
            self.bind(id, body, "left");
        }
        for (id, job) in &mut self.jobs {
            let is_there = found.contains_key(id);
            if is_there && job.deleted_at.is_some() {
                self.problems.push(format!("job {id} was DELETED and is left: {}", job.body));
            }
            if !is_there && job.inserted && !job.delete_unknown {
                self.problems.push(format!("job {id} was INSERTED and is missing: {}", job.body));
            }
            // The drain has deleted the jobs that were left. No job of this round may come back in the next one.
            job.deleted_at.get_or_insert(self.now);
            (job.delete_unknown, job.holder) = (true, None);
        }
        self.puts.clear();
    }

    /// How many jobs were INSERTED, and how many DELETED.
    pub fn counts(&self) -> (usize, usize) {
        let count = |holds: &dyn Fn(&Job) -> bool| self.jobs.values().filter(|job| holds(job)).count();
        (count(&|job| job.inserted), count(&|job| job.deleted_at.is_some()))
    }

    /// The faults since the last call.
    pub fn problems(&mut self) -> Vec<String> {
        std::mem::take(&mut self.problems)
    }

    /// A reply has said that the job `id` has `body`.
    fn bind(&mut self, id: u64, body: &str, reply: &str) {
        if let Some(job) = self.jobs.get(&id) {
            if job.body != body {
                self.problems
                    .push(format!("id {id} was given twice: to {} and to {body} ({reply})", job.body));
            }
            return;
        }
        if let Some(other) = self.ids_by_body.get(body) {
            self.problems.push(format!("one put has made the jobs {other} and {id}: {body}"));
        } else if !self.puts.remove(body) {
            self.problems.push(format!("{reply} {id}: nobody has put it, or its put was refused: {body}"));
        }
        let body = body.to_owned();
        self.ids_by_body.insert(body.clone(), id);
        let job = Job { body, inserted: false, deleted_at: None, delete_unknown: false, holder: None };
        self.jobs.insert(id, job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_job() -> History {
        let mut history = History::default();
        history.putting("a");
        history.inserted("a", 1);
        history
    }

    fn left(history: &mut History, jobs: &[(u64, &str)]) -> String {
        history.drained(&jobs.iter().map(|&(id, body)| (id, body.to_owned())).collect());
        history.problems().join("; ")
    }

    #[test]
    fn what_was_promised_and_holds_is_no_problem() {
        let mut history = with_job();
        history.putting("b");
        let asked_at = history.tick();
        history.reserved(0, "one", 1, "a", asked_at);
        history.giving_back(1);
        history.reserved(1, "one", 1, "a", asked_at);
        // Another owner gives the job again, because reservations end at a takeover.
        history.reserved(2, "two", 1, "a", asked_at);
        assert_eq!(left(&mut history, &[(1, "a"), (2, "b")]), "");
        assert_eq!(history.counts(), (1, 2));
    }

    #[test]
    fn a_delete_without_an_answer_may_have_been_done_or_not() {
        for jobs in [&[(1, "a")][..], &[]] {
            let mut history = with_job();
            history.deleting(1);
            assert_eq!(left(&mut history, jobs), "");
        }
    }

    #[test]
    fn each_broken_promise_is_found() {
        assert!(left(&mut with_job(), &[]).contains("INSERTED and is missing"));

        let mut history = with_job();
        history.deleting(1);
        history.deleted(1);
        assert!(left(&mut history, &[(1, "a")]).contains("DELETED and is left"));
        let asked_at = history.tick() + 1;
        history.reserved(0, "one", 1, "a", asked_at);
        assert!(history.problems().concat().contains("came back"));

        let mut history = with_job();
        history.reserved(0, "one", 1, "a", 1);
        history.reserved(1, "one", 1, "a", 2);
        assert!(history.problems().concat().contains("to clients 0 and 1"));

        let mut history = with_job();
        history.putting("b");
        history.inserted("b", 1);
        assert!(history.problems().concat().contains("given twice"));
        history.reserved(0, "one", 7, "c", 1);
        assert!(history.problems().concat().contains("nobody has put it"));
        history.reserved(0, "one", 8, "a", 1);
        assert!(history.problems().concat().contains("one put has made"));
        history.deleted(1);
        history.deleted(1);
        assert!(history.problems().concat().contains("DELETED twice"));
    }
}

//! The history of a server's jobs as its clients have seen it, and whether it is consistent.
//!
//! Owns: for each put, the acknowledged changes of its job. A put has a key, and its body is computed from the key, so
//! that each body shows whether it is intact and from which put it is. Pure: clients report what they are about to
//! send and what they have read, in this order. A problem is a job that was acknowledged and is missing, is damaged,
//! comes back after its delete, or belongs to two clients at once; a put that has made two jobs; and an id that two
//! puts have.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::random::Random;

/// A number for each event, which shows whether a reply belongs to a later command. With a clock, its nanoseconds.
pub type Tick = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The put was sent and not answered. The job may exist or not.
    Unknown,
    /// The put was acknowledged, or a client has seen the job.
    Kept,
    /// The job was deleted, refused, or sent only in part. Since this tick it must not exist.
    Gone(Tick),
}

#[derive(Debug)]
struct Job {
    id: Option<u64>,
    fate: Fate,
    /// How many deletes are sent and not answered. During a delete the job may exist or not.
    deletes: u32,
    /// Its index in `kept`, while it is there.
    index: usize,
    /// Whether `pick` leaves it out.
    is_apart: bool,
}

/// The jobs of all clients.
#[derive(Debug, Default)]
pub struct History {
    now: Tick,
    /// By key.
    jobs: Vec<Job>,
    /// The keys of the jobs that must exist, unless a delete is not answered.
    kept: Vec<usize>,
    keys: HashMap<u64, usize>,
    /// The reserved jobs: the client of each, and the owner of the queue that gave it to this client.
    reserved_by: BTreeMap<u64, (usize, String)>,
    problems: Vec<String>,
}

impl History {
    /// A command is about to be sent.
    pub fn tick(&mut self) -> Tick {
        self.tick_at(0)
    }

    /// A command is about to be sent at this time of a clock.
    pub fn tick_at(&mut self, time_ns: u64) -> Tick {
        self.now = time_ns.max(self.now + 1);
        self.now
    }

    /// Notes a fault that no other check finds.
    pub fn report(&mut self, problem: String) {
        self.problems.push(problem);
    }

    /// The problems since the last call.
    pub fn problems(&mut self) -> Vec<String> {
        std::mem::take(&mut self.problems)
    }

    /// A put is about to be sent. Its body is computed from the key that this returns.
    pub fn putting(&mut self) -> u64 {
        self.jobs.push(Job { id: None, fate: Fate::Unknown, deletes: 0, index: 0, is_apart: false });
        self.jobs.len() as u64 - 1
    }

    /// Like [`History::putting`], for a job that [`History::pick`] must not return.
    pub fn putting_apart(&mut self) -> u64 {
        let key = self.putting();
        self.jobs[key as usize].is_apart = true;
        key
    }

    /// The put was answered INSERTED. Another client may have deleted the job since.
    pub fn inserted(&mut self, key: u64, id: u64) {
        self.bind(key as usize, id);
        self.keep(key as usize);
    }

    /// The put was refused with a reply that promises that nothing was changed, or will be sent only in part.
    pub fn refused(&mut self, key: u64) {
        self.lose(key as usize, 0);
    }

    /// A reply to a command that was sent at `asked_at` has the job. Returns whether it is intact and not deleted.
    pub fn seen(&mut self, id: u64, body: &[u8], asked_at: Tick) -> bool {
        let Some(key) = key_of(body).filter(|&key| key < self.jobs.len() as u64) else {
            let start = body[..body.len().min(40)].escape_ascii();
            self.report(format!("job {id} is damaged, or nobody has put it: {start}"));
            return false;
        };
        let key = key as usize;
        self.bind(key, id);
        match self.jobs[key].fate {
            Fate::Gone(since) => {
                if since < asked_at {
                    self.report(format!("job {id}, key {key}, was deleted or refused, and is back"));
                }
                return false;
            }
            Fate::Kept | Fate::Unknown => self.keep(key),
        }
        true
    }

    /// A reply to a command that was sent at `asked_at` names the job as one that exists.
    pub fn named(&mut self, id: u64, asked_at: Tick) {
        let fate = self.keys.get(&id).map(|&key| self.jobs[key].fate);
        if matches!(fate, Some(Fate::Gone(since)) if since < asked_at) {
            self.report(format!("job {id} was deleted or refused, and a reply names it"));
        }
    }

    /// The job was reserved by a command that was sent at `asked_at` to this owner of the queue. Returns whether it is
    /// intact and not deleted.
    pub fn reserved(&mut self, client: usize, owner: &str, id: u64, body: &[u8], asked_at: Tick) -> bool {
        let is_good = self.seen(id, body, asked_at);
        if is_good {
            let holder = self.reserved_by.insert(id, (client, owner.to_owned()));
            if let Some((other, _)) = holder.filter(|(other, of)| *other != client && of == owner) {
                self.report(format!("job {id} was given to clients {other} and {client} by {owner:?}"));
            }
        }
        is_good
    }

    /// The client is about to send that it does not need the job any more.
    pub fn giving_back(&mut self, id: u64) {
        self.reserved_by.remove(&id);
    }

    /// The client has lost its connection, or is about to close it.
    pub fn disconnected(&mut self, client: usize) {
        self.reserved_by.retain(|_, (holder, _)| *holder != client);
    }

    /// The jobs that the client has reserved.
    pub fn reservations(&self, client: usize) -> impl Iterator<Item = u64> {
        self.reserved_by.iter().filter(move |(_, (holder, _))| *holder == client).map(|(&id, _)| id)
    }

    /// The client comes back to its session, which has these jobs. It must have those that the client had reserved,
    /// except those that it was about to delete.
    pub fn came_back(&mut self, client: usize, found: &BTreeSet<u64>) {
        let before: BTreeSet<u64> = self.reservations(client).collect();
        for id in before.difference(found) {
            let (now, key) = (self.tick(), self.keys[id]);
            if std::mem::take(&mut self.jobs[key].deletes) == 0 {
                self.report(format!("client {client} does not have job {id} any more"));
            }
            self.lose(key, now);
        }
        for &id in found {
            let fate = self.keys.get(&id).map(|&key| {
                self.jobs[key].deletes = 0;
                self.jobs[key].fate
            });
            let other =
                self.reserved_by.insert(id, (client, String::new())).filter(|(other, _)| *other != client);
            if other.is_some() || fate != Some(Fate::Kept) {
                self.report(format!("client {client} has job {id} of {other:?}, which is {fate:?}"));
            }
        }
    }

    /// A delete is about to be sent.
    pub fn deleting(&mut self, id: u64) {
        self.job(id).deletes += 1;
    }

    /// The delete was answered DELETED.
    pub fn deleted(&mut self, id: u64) {
        let (now, key) = (self.tick(), self.keys[&id]);
        self.jobs[key].deletes -= 1;
        if !self.lose(key, now) {
            self.report(format!("job {id} was deleted twice"));
        }
    }

    /// The delete was answered NOT_FOUND.
    pub fn not_deleted(&mut self, id: u64) {
        self.job(id).deletes -= 1;
    }

    /// Whether the job must exist.
    pub fn is_safe(&self, id: u64) -> bool {
        let job = self.keys.get(&id).map(|&key| &self.jobs[key]);
        job.is_some_and(|job| job.fate == Fate::Kept && job.deletes == 0)
    }

    /// The key of the put that has made the job.
    pub fn key(&self, id: u64) -> Option<u64> {
        self.keys.get(&id).map(|&key| key as u64)
    }

    /// Whether the job of the put with this key exists, as far as is known.
    pub fn is_kept(&self, key: u64) -> bool {
        self.jobs[key as usize].fate == Fate::Kept
    }

    /// A random job that must exist, or `None` if this one is not to be picked.
    pub fn pick(&self, random: &mut Random) -> Option<u64> {
        let key = *self.kept.get(random.below(self.kept.len().max(1) as u64) as usize)?;
        let job = &self.jobs[key];
        job.id.filter(|_| job.deletes == 0 && !job.is_apart)
    }

    /// The number of jobs that must exist.
    pub fn kept_count(&self) -> usize {
        self.kept.len()
    }

    /// The number of puts.
    pub fn put_count(&self) -> usize {
        self.jobs.len()
    }

    /// The number of puts that have made a job.
    pub fn job_count(&self) -> usize {
        self.keys.len()
    }

    /// The ids of the jobs that must exist, ascending.
    pub fn ids(&self) -> BTreeSet<u64> {
        self.kept.iter().filter_map(|&key| self.jobs[key].id).collect()
    }

    /// Compares the history with all jobs that exist, while no client is connected. After that no fate is unknown.
    pub fn settle(&mut self, found: &BTreeMap<u64, Vec<u8>>) {
        for (&id, body) in found {
            self.seen(id, body, Tick::MAX);
        }
        self.reserved_by.clear();
        let now = self.tick();
        for key in 0..self.jobs.len() {
            let job = &mut self.jobs[key];
            let is_unsure = std::mem::take(&mut job.deletes) > 0;
            if job.id.is_some_and(|id| found.contains_key(&id)) {
                continue;
            }
            let id = job.id;
            if job.fate == Fate::Kept && !is_unsure {
                self.report(format!("job {id:?}, key {key}, is lost"));
            }
            self.lose(key, now);
        }
    }

    /// Like [`History::settle`], after a restart that the sessions of clients have outlived: each client still has
    /// exactly the jobs of its session.
    pub fn settle_sessions(&mut self, found: &BTreeMap<u64, Vec<u8>>, sessions: &[BTreeSet<u64>]) {
        for (&id, body) in found {
            self.seen(id, body, Tick::MAX);
        }
        let come_back = |history: &mut Self| {
            sessions.iter().enumerate().for_each(|(client, jobs)| history.came_back(client, jobs));
        };
        come_back(self);
        // This ends all reservations.
        self.settle(found);
        come_back(self);
    }

    /// Compares the history with all jobs that existed, which a client has deleted.
    pub fn drained(&mut self, found: &BTreeMap<u64, Vec<u8>>) {
        self.settle(found);
        let now = self.tick();
        for key in self.kept.clone() {
            self.lose(key, now);
        }
    }

    fn job(&mut self, id: u64) -> &mut Job {
        &mut self.jobs[self.keys[&id]]
    }

    /// A reply has said that the job of this key has this id.
    fn bind(&mut self, key: usize, id: u64) {
        let other = *self.keys.entry(id).or_insert(key);
        if other != key {
            self.report(format!("id {id} was given twice: to the puts {other} and {key}"));
        }
        let before = *self.jobs[key].id.get_or_insert(id);
        if before != id {
            self.report(format!("the put {key} has made the jobs {before} and {id}"));
        }
    }

    fn keep(&mut self, key: usize) {
        let job = &mut self.jobs[key];
        if job.fate == Fate::Unknown {
            (job.fate, job.index) = (Fate::Kept, self.kept.len());
            self.kept.push(key);
        }
    }

    /// Returns whether the job was there, or may have been.
    fn lose(&mut self, key: usize, since: Tick) -> bool {
        let job = &mut self.jobs[key];
        let before = job.fate;
        if let Fate::Gone(_) = before {
            return false;
        }
        job.fate = Fate::Gone(since);
        let index = job.index;
        if let Some(id) = job.id {
            self.reserved_by.remove(&id);
        }
        if before == Fate::Kept {
            self.kept.swap_remove(index);
            if let Some(&moved) = self.kept.get(index) {
                self.jobs[moved].index = index;
            }
        }
        true
    }
}

/// The body of the put with this key: `length` bytes, or more if its heading is longer.
pub fn body(key: u64, length: usize) -> Vec<u8> {
    let mut body = format!("{key}:{length}:").into_bytes();
    let mut random = Random::new(key);
    while body.len() < length {
        let bytes = random.next().to_le_bytes();
        let left = length - body.len();
        body.extend_from_slice(&bytes[..left.min(8)]);
    }
    body
}

/// The key in an intact body; `None` if the body is damaged.
pub fn key_of(found: &[u8]) -> Option<u64> {
    let mut words = found.splitn(3, |&byte| byte == b':');
    let mut number = || std::str::from_utf8(words.next()?).ok()?.parse().ok();
    let (key, length): (u64, u64) = (number()?, number()?);
    let is_whole = length <= 1 << 30 && body(key, length as usize) == found;
    is_whole.then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A history with a job that was put with a body of the key 0.
    fn with_job() -> History {
        let mut history = History::default();
        let key = history.putting();
        history.inserted(key, 1);
        history
    }

    fn left(history: &mut History, jobs: &[(u64, u64)]) -> String {
        history.drained(&jobs.iter().map(|&(id, key)| (id, body(key, 20))).collect());
        history.problems().join("; ")
    }

    fn reserve(history: &mut History, client: usize, owner: &str, id: u64, key: u64) -> bool {
        let asked_at = history.tick();
        history.reserved(client, owner, id, &body(key, 20), asked_at)
    }

    #[test]
    fn a_consistent_history_has_no_problem() {
        let mut history = with_job();
        history.putting();
        assert!(reserve(&mut history, 0, "one", 1, 0));
        history.giving_back(1);
        assert!(reserve(&mut history, 1, "one", 1, 0));
        // Another owner gives the job again, because reservations end at a takeover.
        assert!(reserve(&mut history, 2, "two", 1, 0));
        history.disconnected(2);
        assert!(reserve(&mut history, 0, "two", 1, 0));
        assert_eq!((history.kept_count(), history.put_count(), history.is_safe(1)), (1, 2, true));
        assert_eq!(left(&mut history, &[(1, 0), (2, 1)]), "");
        assert_eq!(left(&mut history, &[]), "");
    }

    #[test]
    fn a_delete_without_an_answer_may_have_been_done_or_not() {
        for jobs in [&[(1, 0)][..], &[]] {
            let mut history = with_job();
            history.deleting(1);
            assert!(!history.is_safe(1) && history.pick(&mut Random::new(1)).is_none());
            assert_eq!(left(&mut history, jobs), "");
        }
    }

    #[test]
    fn a_job_that_is_deleted_before_its_reply_is_read_is_not_back() {
        let mut history = with_job();
        let asked_at = history.tick();
        history.deleting(1);
        history.deleted(1);
        assert!(!history.seen(1, &body(0, 20), asked_at));
        assert_eq!(history.problems(), [""; 0]);
        let asked_at = history.tick();
        assert!(!history.seen(1, &body(0, 20), asked_at));
        assert!(history.problems().concat().contains("is back"));
    }

    #[test]
    fn each_inconsistency_is_found() {
        assert!(left(&mut with_job(), &[]).contains("is lost"));

        let mut history = with_job();
        history.deleting(1);
        history.deleted(1);
        history.deleting(1);
        history.deleted(1);
        assert!(history.problems().concat().contains("deleted twice"));
        assert!(left(&mut history, &[(1, 0)]).contains("is back"));

        let mut history = with_job();
        reserve(&mut history, 0, "one", 1, 0);
        reserve(&mut history, 1, "one", 1, 0);
        assert!(history.problems().concat().contains("to clients 0 and 1"));

        let mut history = with_job();
        let key = history.putting();
        history.inserted(key, 1);
        assert!(history.problems().concat().contains("given twice"));
        reserve(&mut history, 0, "one", 7, 2);
        assert!(history.problems().concat().contains("nobody has put it"));
        reserve(&mut history, 0, "one", 8, 0);
        assert!(history.problems().concat().contains("has made the jobs 1 and 8"));
        assert!(!history.seen(1, b"0:20:damaged", 0));
        assert!(history.problems().concat().contains("is damaged"));

        let mut history = with_job();
        let key = history.putting();
        history.refused(key);
        history.named(1, Tick::MAX);
        history.named(7, Tick::MAX);
        assert_eq!(history.problems(), [""; 0]);
        assert!(left(&mut history, &[(1, 0), (2, key)]).contains("refused, and is back"));
        history.named(1, Tick::MAX);
        assert!(history.problems().concat().contains("and a reply names it"));
    }

    #[test]
    fn a_job_apart_is_never_picked() {
        let mut history = with_job();
        assert_eq!(history.pick(&mut Random::new(1)), Some(1));
        history.refused(0);
        let key = history.putting_apart();
        history.inserted(key, 2);
        assert_eq!((history.pick(&mut Random::new(1)), history.is_kept(key)), (None, true));
        assert!(history.is_safe(2) && !history.is_safe(3));
    }

    #[test]
    fn a_session_keeps_the_jobs_of_its_client() {
        let mut history = with_job();
        reserve(&mut history, 0, "", 1, 0);
        history.came_back(0, &BTreeSet::from([1]));
        assert_eq!(history.problems(), [""; 0]);
        history.came_back(1, &BTreeSet::from([1]));
        assert!(history.problems().concat().contains("client 1 has job 1 of Some((0"));
        history.deleting(1);
        history.came_back(1, &BTreeSet::new());
        assert_eq!(history.problems(), [""; 0], "it has deleted the job");

        let mut history = with_job();
        reserve(&mut history, 0, "", 1, 0);
        history.came_back(0, &BTreeSet::new());
        assert!(history.problems().concat().contains("does not have job"));
    }
}

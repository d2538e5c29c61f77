//! The rule `fair`: jobs of the same priority are reserved by turns of their concurrency keys, not by age.
//!
//! Owns: the row of keys of each tube with the rule. Only jobs that no other rule keeps back are in it, so that no
//! blocked job is ever looked at. A key stands in the row while it has such a job, at the place of its turn; a key
//! that comes, and one of which a job was reserved, goes to the end. So between two turns of a key, each key that had a
//! job of the same priority all the time has had one. Jobs without a key are one key. Of a key, the most urgent and
//! oldest job goes first.
//!
//! Of all these jobs, only the one whose turn it is stands in the tube's ready queue. The others are parked like those
//! that have no slot, and are marked (`marks::IN_ROW`, the first one, too), so that all that chooses among the heads of
//! tubes knows nothing of turns. A tube without the rule has no row. A reload adds and takes jobs one by one, in the
//! slices of its walk.

use std::collections::{BTreeMap, BTreeSet};

use beanstalkd_structures::{Key, OrderedQueue};

use super::Rule;
use super::index::{Hash, Ranked, hash_of};
use crate::Queue;
use crate::job::{JobId, JobState};
use crate::state::jobs::marks;
use crate::state::keys::{Packed, ReadyKey, TubeKey};

/// What a job in a row takes there, in bytes, if its key has no other.
pub(crate) const BYTES_PER_JOB: usize = 72;

/// Jobs that are looked at in order to say whose turn it is: as many as cost little for a command that only asks.
const MAX_PROBES: usize = 100;

/// A key in the order of its turn: by the priority of its first job, then by the number of the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    priority: u32,
    number: Packed,
    job: Packed,
}

impl Turn {
    fn new(first: ReadyKey, number: u64) -> Self {
        Self { priority: first.priority().0, number: number.into(), job: first.job().0.into() }
    }
}

impl Key for Turn {
    fn id(self) -> u64 {
        self.job.into()
    }
}

/// The row of a tube.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// The jobs, by the hashes of their keys, and then by priority and age. Two keys with the same hash would share
    /// their turns. The hash is seeded, so that nobody can choose such keys; of 100,000 keys in a row, two have the
    /// same with a chance of one in 50,000.
    jobs: OrderedQueue<Ranked>,
    /// The number of the turn of each key with jobs.
    numbers: BTreeMap<Hash, u64>,
    /// The first job of each key.
    row: OrderedQueue<Turn>,
    next_number: u64,
    /// The job in the tube's ready queue.
    head: Option<ReadyKey>,
    /// The key that has just lost its last job, though not to a client, and its number: if its next job comes at once,
    /// the key keeps its place.
    leaving: Option<(Hash, u64)>,
    /// Whether the rule is gone: the walk of a reload takes the jobs out.
    pub(crate) is_ending: bool,
}

impl Turns {
    fn ranked(hash: Hash, key: ReadyKey) -> Ranked {
        Ranked::new(hash, key.priority().0, key.job())
    }

    fn first_of(&self, hash: Hash) -> Option<ReadyKey> {
        Ranked::first_of(&self.jobs, hash)
    }

    fn next_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn insert(&mut self, hash: Hash, key: ReadyKey) {
        let (first, leaving) = (self.first_of(hash), self.leaving.take());
        self.jobs.insert(Self::ranked(hash, key));
        match first {
            None => {
                let kept = leaving.filter(|&(left, _)| left == hash).map(|(_, number)| number);
                let number = kept.unwrap_or_else(|| self.next_number());
                self.numbers.insert(hash, number);
                self.row.insert(Turn::new(key, number));
            }
            Some(first) if key < first => {
                let number = self.numbers[&hash];
                self.row.remove(Turn::new(first, number));
                self.row.insert(Turn::new(key, number));
            }
            Some(_) => {}
        }
    }

    /// Takes a job out. If a client has got it, its key goes to the end of the row.
    fn remove(&mut self, hash: Hash, key: ReadyKey, is_reserved: bool) {
        let found = self.jobs.remove(Self::ranked(hash, key));
        assert!(found.is_some(), "a job in the row is indexed");
        let number = self.numbers[&hash];
        let was_first = self.row.remove(Turn::new(key, number)).is_some();
        self.leaving = None;
        match self.first_of(hash) {
            None => {
                self.numbers.remove(&hash);
                self.leaving = (!is_reserved).then_some((hash, number));
            }
            Some(next) if was_first => {
                let number = if is_reserved { self.next_number() } else { number };
                self.numbers.insert(hash, number);
                self.row.insert(Turn::new(next, number));
            }
            Some(_) => {}
        }
        self.head = self.head.filter(|&head| head != key);
    }

    /// The job whose turn it is.
    fn first(&self) -> Option<ReadyKey> {
        self.row
            .first()
            .map(|turn| ReadyKey::new(crate::job::Priority(turn.priority), JobId(turn.job.into())))
    }
}

impl Rule for Turns {
    #[inline]
    fn check(queue: &Queue) {
        let all = queue.jobs.ids().filter_map(|id| Some((id, queue.jobs.get(id)?)));
        let mut in_rows: BTreeMap<TubeKey, BTreeSet<Ranked>> = BTreeMap::new();
        for (id, job) in all.filter(|(_, job)| job.has(marks::IN_ROW)) {
            assert!(job.place().state() == JobState::Ready, "{id:?} is in the row");
            let key = Turns::ranked(queue.turn_hash(id), ReadyKey::new(job.priority, id));
            in_rows.entry(job.tube).or_default().insert(key);
        }
        for tube in queue.tubes.iter() {
            let Some(turns) = tube.ruled.as_ref().and_then(|ruled| ruled.turns.as_ref()) else { continue };
            let key = queue.tubes.find(tube.name.as_str()).expect("a listed tube is found by its name");
            let in_row = in_rows.remove(&key).unwrap_or_default();
            assert!(turns.jobs.iter().eq(in_row), "{}: the row has its jobs", tube.name);
            assert_eq!(turns.head, turns.first(), "the job whose turn it is stands in the ready queue");
            assert!(turns.head.is_none_or(|head| tube.ready.contains(head)));
            let mut row: Vec<Turn> = turns
                .numbers
                .iter()
                .map(|(&hash, &number)| Turn::new(turns.first_of(hash).expect("it has jobs"), number))
                .collect();
            row.sort_unstable();
            assert!(turns.row.iter().eq(row), "each key stands once in the row, with its first job");
            if !queue.changes_rules() {
                assert!(!turns.is_ending && tube.ready.len() <= 1, "{}: one job at a time", tube.name);
            }
        }
        assert!(in_rows.is_empty(), "only a fair tube has a row");
    }
}

impl Queue {
    /// Whether jobs of this tube that nothing keeps back come into a row.
    pub(crate) fn takes_turns(&self, tube: TubeKey) -> bool {
        let turns = self.tubes.get(tube).ruled.as_ref().and_then(|ruled| ruled.turns.as_ref());
        turns.is_some_and(|turns| !turns.is_ending)
    }

    /// Whether another job of the tube goes before this ready one, because it is its turn. Jobs whose keys are used up
    /// may still stand in the row, if the keys are used in several tubes; what stands behind very many is not found.
    pub(crate) fn is_passed_over(&self, id: JobId, tube: TubeKey) -> bool {
        let turns = self.tubes.get(tube).ruled.as_ref().and_then(|ruled| ruled.turns.as_ref());
        let Some(turns) = turns.filter(|turns| !turns.is_ending) else { return false };
        let mut firsts = turns.row.iter().take(MAX_PROBES).map(|turn| JobId(turn.job.into()));
        firsts.find(|&first| self.may_be_reserved(first)).is_some_and(|first| first != id)
    }

    /// By which the key of the job is found; 0 of a job without one.
    fn turn_hash(&self, id: JobId) -> Hash {
        let tag = self.tags(id).and_then(|tags| tags.concurrency);
        Hash::new(tag.map_or(0, |tag| hash_of(&self.rules.hasher, tag.key)))
    }

    fn turns(&mut self, tube: TubeKey) -> &mut Turns {
        let ruled = self.tubes.get_mut(tube).ruled.as_mut();
        ruled.and_then(|ruled| ruled.turns.as_mut()).expect("a tube with a row has its rule")
    }

    /// A job that is in no collection and that nothing keeps back comes to those that may be reserved.
    #[cold]
    pub(crate) fn show_ready(&mut self, key: ReadyKey, tube: TubeKey) {
        if !self.takes_turns(tube) {
            self.tubes.get_mut(tube).ready.insert(key);
            return;
        }
        let hash = self.turn_hash(key.job());
        self.jobs.expect_mut(key.job()).marks |= marks::IN_ROW | marks::PARKED;
        self.tubes.get_mut(tube).rules_mut().parked.insert(key);
        self.turns(tube).insert(hash, key);
        self.rules.tubes.index_bytes += BYTES_PER_JOB;
        self.show_head(tube);
    }

    /// A job leaves the row, in which it is. It stays in the collection that has it, and parked if it was.
    pub(crate) fn leave_row(&mut self, key: ReadyKey, tube: TubeKey, is_reserved: bool) {
        let hash = self.turn_hash(key.job());
        self.jobs.expect_mut(key.job()).marks &= !marks::IN_ROW;
        self.turns(tube).remove(hash, key, is_reserved);
        self.rules.tubes.index_bytes -= BYTES_PER_JOB;
        self.show_head(tube);
    }

    /// A client takes this job, which was the first of the tube's ready queue.
    #[cold]
    pub(crate) fn took_turn(&mut self, key: ReadyKey, tube: TubeKey) {
        if self.jobs.expect_mut(key.job()).has(marks::IN_ROW) {
            self.leave_row(key, tube, true);
        }
    }

    /// Takes a job of the row out of those that may be reserved; it is in no collection then.
    pub(crate) fn take_out_of_row(&mut self, key: ReadyKey, tube: TubeKey) {
        self.leave_row(key, tube, false);
        let job = self.jobs.expect_mut(key.job());
        let is_parked = job.has(marks::PARKED);
        job.marks &= !marks::PARKED;
        let record = self.tubes.get_mut(tube);
        let queue = if is_parked { &mut record.rules_mut().parked } else { &mut record.ready };
        let found = queue.remove(key);
        assert!(found.is_some(), "a job in the row is ready");
    }

    /// The job whose turn it is stands in the ready queue from now on.
    fn show_head(&mut self, tube: TubeKey) {
        let turns = self.turns(tube);
        let (before, first) = (turns.head, turns.first());
        if before == first {
            return;
        }
        turns.head = first;
        if let Some(before) = before {
            let record = self.tubes.get_mut(tube);
            record.ready.remove(before);
            record.rules_mut().parked.insert(before);
            self.jobs.expect_mut(before.job()).marks |= marks::PARKED;
        }
        if let Some(first) = first {
            let record = self.tubes.get_mut(tube);
            record.rules_mut().parked.remove(first);
            record.ready.insert(first);
            self.jobs.expect_mut(first.job()).marks &= !marks::PARKED;
            self.announce_head(tube);
        }
    }

    /// The tube has another first job, which may be older than the one before. What opens a tube announces it, too.
    fn announce_head(&mut self, tube: TubeKey) {
        if self.tubes.get(tube).is_open() {
            self.announce(tube);
        }
    }

    /// A reload has come to this job: it comes into the row of its tube, or leaves it.
    pub(crate) fn turn_by_rule(&mut self, id: JobId) {
        let job = self.jobs.get(id).expect("the walk has found it");
        let (key, tube) = (ReadyKey::new(job.priority, id), job.tube);
        let is_shown = job.has(marks::IN_ROW) || !job.has(marks::PARKED);
        if job.place().state() != JobState::Ready || !is_shown {
            return;
        }
        match (self.takes_turns(tube), job.has(marks::IN_ROW)) {
            (true, false) => {
                self.tubes.get_mut(tube).ready.remove(key);
                self.show_ready(key, tube);
            }
            (false, true) => {
                self.take_out_of_row(key, tube);
                self.tubes.get_mut(tube).ready.insert(key);
                self.announce_head(tube);
            }
            (true, true) | (false, false) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{NS_PER_S, Timestamp};
    use crate::job::{Body, Priority};
    use crate::tags::{Concurrency, EncodedTags, TagSet};
    use crate::{ClientId, NewJob, Reserve, TubeRule};

    const NOW: Timestamp = Timestamp(1_700_000_000 * NS_PER_S);

    fn fair(is_fair: bool) -> Vec<TubeRule> {
        vec![TubeRule { is_fair, ..TubeRule::new("*") }]
    }

    fn set_rules(queue: &mut Queue, rules: Vec<TubeRule>) {
        queue.set_tube_rules(rules, NOW);
        while queue.next_deadline() == Some(Timestamp::default()) {
            queue.advance(NOW);
        }
    }

    fn put(queue: &mut Queue, client: ClientId, key: &str, priority: u32) -> JobId {
        let id = queue.take_id();
        let new = NewJob { id, priority: Priority(priority), delay_s: 0.into(), ttr_s: 100.into() };
        let body = Body::copy_of(b"x").unwrap();
        let (name, limit) = key.split_once(':').unwrap_or((key, "1"));
        if name.is_empty() {
            queue.put(client, new, body, NOW);
            return id;
        }
        let concurrency = Some(Concurrency { key: name.into(), limit: limit.parse().unwrap() });
        let (mut bytes, tags) = (Vec::new(), TagSet { concurrency, ..TagSet::default() });
        tags.encode(&mut bytes).unwrap();
        queue.put_tagged(client, new, body, &EncodedTags::of(&bytes, tags), NOW).unwrap();
        id
    }

    /// The keys of the jobs in the order in which they are reserved; each is deleted before the next if `deletes`.
    fn keys_in_order(queue: &mut Queue, client: ClientId, deletes: bool) -> Vec<String> {
        let mut keys = Vec::new();
        while let Reserve::Job(id) = queue.reserve(client, Some(0.into()), NOW) {
            let tags = queue.job(id).unwrap().tags.unwrap_or_default();
            keys.push(tags.concurrency.map_or_else(String::new, |tag| tag.key.to_string()));
            if deletes {
                queue.delete(client, id, NOW);
            }
            if keys.len() < 50 {
                queue.check_invariants();
            }
        }
        keys
    }

    #[test]
    fn keys_take_turns_and_jobs_without_a_key_are_one() {
        let mut queue = Queue::default();
        set_rules(&mut queue, fair(true));
        let client = queue.connect();
        for key in ["a:9", "a:9", "a:9", "", "", "b", "a:8", "", "c", "b"] {
            put(&mut queue, client, key, 5);
        }
        let order = keys_in_order(&mut queue, client, true);
        assert_eq!(order, ["a", "", "b", "c", "a", "", "b", "a", "", "a"]);
    }

    #[test]
    fn priorities_go_before_turns_and_a_used_up_key_loses_none_for_others() {
        let mut queue = Queue::default();
        set_rules(&mut queue, fair(true));
        let client = queue.connect();
        for (key, priority) in [("a", 5), ("a", 5), ("b:9", 5), ("b:9", 5), ("", 5), ("b:9", 1)] {
            put(&mut queue, client, key, priority);
        }
        assert_eq!(keys_in_order(&mut queue, client, false), ["b", "a", "", "b", "b"]);
    }

    #[test]
    fn a_quiet_key_waits_for_one_round_beside_a_flood() {
        let mut queue = Queue::default();
        set_rules(&mut queue, fair(true));
        let client = queue.connect();
        for flooded in ["flood:1000000", ""] {
            for _ in 0..3_000 {
                put(&mut queue, client, flooded, 5);
            }
        }
        for _ in 0..20 {
            let quiet = put(&mut queue, client, "quiet", 5);
            let rounds = (1..).find(|_| queue.reserve(client, None, NOW) == Reserve::Job(quiet)).unwrap();
            assert!(rounds <= 3, "{rounds} reserves");
            queue.delete(client, quiet, NOW);
        }
    }

    #[test]
    fn keys_that_come_anew_do_not_overtake_and_a_key_with_many_limits_has_one_turn() {
        let mut queue = Queue::default();
        set_rules(&mut queue, fair(true));
        let client = queue.connect();
        let limits: Vec<_> = (1..50).map(|limit| format!("greedy:{limit}")).collect();
        for key in &limits {
            put(&mut queue, client, key, 5);
        }
        let quiet = put(&mut queue, client, "quiet", 5);
        put(&mut queue, client, "newer", 5);
        assert!(matches!(queue.reserve(client, None, NOW), Reserve::Job(_)));
        for number in 0..50 {
            put(&mut queue, client, &format!("new-{number}"), 5);
        }
        assert_eq!(queue.reserve(client, None, NOW), Reserve::Job(quiet));
    }

    #[test]
    fn a_reload_switches_it_on_and_off_in_slices_and_loses_nothing() {
        let mut queue = Queue::default();
        let client = queue.connect();
        for number in 0..2_000 {
            put(&mut queue, client, ["a:99999", "", "b:99999"][number % 7 % 3], 5);
        }
        for is_fair in [true, false, true, false] {
            queue.set_tube_rules(fair(is_fair), NOW);
            let mut slices = 0;
            while queue.next_deadline() == Some(Timestamp::default()) {
                queue.advance(NOW);
                queue.check_invariants();
                if slices == 3 {
                    assert!(
                        matches!(queue.reserve(client, None, NOW), Reserve::Job(_)),
                        "it goes on meanwhile"
                    );
                }
                slices += 1;
            }
            assert!(slices > 4, "{slices} slices");
            assert_eq!(queue.figures().jobs.total(), 2_000);
        }
        assert_eq!(keys_in_order(&mut queue, client, false).len(), 1_996);
    }
}

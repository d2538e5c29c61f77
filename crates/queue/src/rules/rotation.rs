//! The rule `fair`: jobs of the same priority are reserved round-robin by their concurrency keys, not by age.
//!
//! Owns: which jobs are in the rotation of keys of each tube with the rule (`state/rotation.rs`). Only jobs that no
//! other rule keeps back are in it, so that no blocked job is ever examined. A key is in the rotation while it has such
//! a job, and keeps its position there; a new key goes to the end, and so does a key of which a job was reserved. So
//! between two reservations with a key, each other key that always had a job of the same priority has had one. All jobs
//! without a key share a position. Within a key, the most urgent and oldest job goes first.
//!
//! Of all these jobs, only the first is in the tube's ready queue. The others are parked like jobs without a slot, and
//! are marked (`Marks::IN_ROTATION`, as is the first one), so that the choice among the heads of tubes need not know
//! rotations. A tube without the rule has no rotation. A reload adds and removes jobs one by one, in the slices of its
//! walk.

use std::collections::{BTreeMap, BTreeSet};

use super::Rule;
use crate::Queue;
use crate::job::{JobId, JobState};
use crate::state::index::{Hash, Ranked};
use crate::state::jobs::Marks;
use crate::state::keys::{ReadyKey, TubeKey, hash_of};
use crate::state::rotation::{KeyPosition, Rotation, RotationEntry};

/// The maximum number of jobs that are examined to find the next one: few enough to cost little in a command that only
/// reads.
const MAX_PROBES: usize = 100;

impl Rule for Rotation {
    #[inline]
    fn check(queue: &Queue) {
        let all = queue.jobs.ids().filter_map(|id| Some((id, queue.jobs.get(id)?)));
        let mut in_rotations: BTreeMap<TubeKey, BTreeSet<Ranked>> = BTreeMap::new();
        for (id, job) in all.filter(|(_, job)| job.has(Marks::IN_ROTATION)) {
            let key = Ranked::ready(queue.rotation_hash(id), ReadyKey::new(job.priority, id));
            in_rotations.entry(job.tube).or_default().insert(key);
        }
        for tube in queue.tubes.iter() {
            let Some(rotation) = tube.rotation() else { continue };
            let key = queue.tubes.find(tube.name.as_str()).expect("a listed tube is found by its name");
            let in_rotation = in_rotations.remove(&key).unwrap_or_default();
            let jobs = || rotation.jobs.iter();
            assert!(jobs().map(|job| job.ranked).eq(in_rotation), "{}: the rotation has its jobs", tube.name);
            assert!(rotation.leaving.is_none(), "{}: a key that has left loses its position", tube.name);
            assert_eq!(rotation.head, rotation.positions.first(), "the ready queue has the first job");
            assert!(rotation.head.is_none_or(|head| tube.ready.contains(head.ready_key())));
            let is_first = |job: &RotationEntry| rotation.first_of(job.ranked.hash()) == Some(*job);
            let mut positions: Vec<_> = jobs().filter(is_first).map(RotationEntry::position).collect();
            positions.sort_unstable();
            assert!(
                rotation.positions.iter().eq(positions),
                "each key is in the rotation once, with its first job"
            );
            if !queue.is_reloading_rules() {
                assert!(!rotation.is_ending && tube.ready.len() <= 1, "{}: one job at a time", tube.name);
            }
        }
        assert!(in_rotations.is_empty(), "only a fair tube has a rotation");
    }
}

impl Queue {
    /// Whether jobs of this tube that no rule keeps back go into a rotation.
    pub(crate) fn uses_rotation(&self, tube: TubeKey) -> bool {
        self.tubes.get(tube).rotation().is_some_and(|rotation| !rotation.is_ending)
    }

    /// Whether another job of the tube is reserved before this ready one, by the order of the rotation. Jobs whose keys
    /// are used up may still be in the rotation, if the keys are used in several tubes; a job after very many of them
    /// is not found.
    pub(crate) fn is_passed_over(&self, id: JobId, tube: TubeKey) -> bool {
        let Some(rotation) = self.tubes.get(tube).rotation().filter(|rotation| !rotation.is_ending) else {
            return false;
        };
        let mut firsts =
            rotation.positions.iter().take(MAX_PROBES).map(|position| position.ready_key().job());
        firsts.find(|&first| self.may_be_reserved(first)).is_some_and(|first| first != id)
    }

    /// The hash by which the key of the job is found; 0 for a job without one.
    fn rotation_hash(&self, id: JobId) -> Hash {
        Hash::new(self.concurrency(id).map_or(0, |tag| hash_of(&self.rules.hasher, tag.key.as_bytes())))
    }

    fn rotation_mut(&mut self, tube: TubeKey) -> &mut Rotation {
        let ruled = self.tubes.get_mut(tube).ruled.as_mut();
        ruled.and_then(|ruled| ruled.rotation.as_mut()).expect("a tube with a rotation has its rule")
    }

    /// Adds a job that is in no collection, and that no rule keeps back, to the jobs that may be reserved.
    #[cold]
    pub(crate) fn show_ready(&mut self, key: ReadyKey, tube: TubeKey) {
        if !self.uses_rotation(tube) {
            self.tubes.get_mut(tube).ready.insert(key);
            return;
        }
        let hash = self.rotation_hash(key.job());
        debug_assert!(!self.jobs.expect(key.job()).has(Marks::PARKED), "the job is in no collection");
        self.tubes.get_mut(tube).insert_parked(key, self.jobs.expect_mut(key.job()));
        self.join_rotation(key, tube, hash);
    }

    /// Adds a parked job of the tube to the rotation of its key; it stays parked.
    pub(super) fn join_rotation(&mut self, key: ReadyKey, tube: TubeKey, hash: Hash) {
        let job = self.jobs.expect_mut(key.job());
        debug_assert!(job.marks.lack_slot(), "a job that enters the rotation is parked and not in it");
        job.marks |= Marks::IN_ROTATION;
        self.rotation_mut(tube).insert(hash, key);
        self.rules.tubes.rotating_jobs += 1;
        self.show_head(tube);
        debug_assert!(self.is_linked_as(key.job(), JobState::Ready), "a job in the rotation is ready");
    }

    /// Removes a job from the rotation. It stays in its collection, and parked if it was.
    fn leave_rotation(&mut self, key: ReadyKey, tube: TubeKey, is_reserved: bool) {
        let head = self.rotation_mut(tube).head.filter(|head| head.ready_key() == key);
        let hash = head.map_or_else(|| self.rotation_hash(key.job()), KeyPosition::hash);
        debug_assert!(
            self.jobs.expect(key.job()).has(Marks::IN_ROTATION),
            "a job leaves the rotation in which it is"
        );
        self.jobs.expect_mut(key.job()).marks &= !Marks::IN_ROTATION;
        self.rotation_mut(tube).remove(hash, key, is_reserved);
        self.rules.tubes.rotating_jobs -= 1;
        self.show_head(tube);
    }

    /// Moves the key of this job, which a client has reserved, to the end of the rotation, if the job is in it. It was
    /// the first of the tube's ready queue.
    #[cold]
    pub(crate) fn advance_rotation(&mut self, key: ReadyKey, tube: TubeKey) {
        if self.jobs.expect_mut(key.job()).has(Marks::IN_ROTATION) {
            self.leave_rotation(key, tube, true);
        }
    }

    /// Takes a job of the rotation out of the jobs that may be reserved; then it is in no collection.
    pub(crate) fn remove_from_rotation(&mut self, key: ReadyKey, tube: TubeKey) {
        self.leave_rotation(key, tube, false);
        let (record, job) = (self.tubes.get_mut(tube), self.jobs.expect_mut(key.job()));
        if job.has(Marks::PARKED) {
            record.remove_parked(key, job);
        } else {
            let found = record.ready.remove(key);
            assert!(found.is_some(), "a job in the rotation is ready");
        }
        debug_assert!(!self.is_linked(key.job()), "a job that was taken out is in no collection");
    }

    /// Forgets the position of the key that has just left, because no other job takes it at once.
    pub(crate) fn forget_position(&mut self, tube: TubeKey) {
        if let Some(ruled) = &mut self.tubes.get_mut(tube).ruled
            && let Some(rotation) = &mut ruled.rotation
        {
            rotation.leaving = None;
        }
    }

    /// Moves the first job of the rotation into the ready queue.
    fn show_head(&mut self, tube: TubeKey) {
        let rotation = self.rotation_mut(tube);
        let (before, first) = (rotation.head, rotation.positions.first());
        if before == first {
            return;
        }
        rotation.head = first;
        let [before, first] = [before, first].map(|position| position.map(KeyPosition::ready_key));
        if let Some(before) = before {
            let record = self.tubes.get_mut(tube);
            let found = record.ready.remove(before);
            debug_assert!(found.is_some(), "the ready queue has the job that was first");
            record.insert_parked(before, self.jobs.expect_mut(before.job()));
            debug_assert!(
                self.is_linked_as(before.job(), JobState::Ready),
                "the job is ready and parked behind another"
            );
        }
        if let Some(first) = first {
            let record = self.tubes.get_mut(tube);
            record.remove_parked(first, self.jobs.expect_mut(first.job()));
            record.ready.insert(first);
            debug_assert!(self.is_linked_as(first.job(), JobState::Ready), "the first job can be reserved");
            self.announce_head(tube);
        }
    }

    /// Announces the tube's new first job, which may be older than the one before. Code that opens a tube announces it,
    /// too.
    fn announce_head(&mut self, tube: TubeKey) {
        if self.tubes.get(tube).is_open() {
            self.announce(tube);
        }
    }

    /// Called when a reload comes to this job: it joins the rotation of its tube, or leaves it.
    pub(crate) fn rotate_by_rule(&mut self, id: JobId) {
        let job = self.jobs.expect(id);
        let (key, tube) = (ReadyKey::new(job.priority, id), job.tube);
        let is_shown = job.has(Marks::IN_ROTATION) || !job.has(Marks::PARKED);
        if job.state() != JobState::Ready || !is_shown {
            return;
        }
        match (self.uses_rotation(tube), job.has(Marks::IN_ROTATION)) {
            (true, false) => {
                self.tubes.get_mut(tube).ready.remove(key);
                self.show_ready(key, tube);
            }
            (false, true) => {
                self.remove_from_rotation(key, tube);
                self.forget_position(tube);
                self.tubes.get_mut(tube).ready.insert(key);
                self.announce_head(tube);
            }
            (true, true) | (false, false) => {}
        }
        debug_assert!(self.is_linked_as(id, JobState::Ready), "the job is still ready");
        debug_assert_eq!(
            self.uses_rotation(tube),
            self.jobs.expect(id).has(Marks::IN_ROTATION),
            "as its rule says"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::job::Priority;
    use crate::tags::TagSet;
    use crate::testing::{NOW, TestJob, con};
    use crate::{ClientId, Reserve, ReserveMode, TubeRule};

    fn fair(is_fair: bool) -> Vec<TubeRule> {
        vec![TubeRule { is_fair, ..TubeRule::new("*") }]
    }

    fn put(queue: &mut Queue, client: ClientId, key: &str, priority: u32) -> JobId {
        let (name, limit) = key.split_once(':').unwrap_or((key, "1"));
        let tags = if name.is_empty() { TagSet::default() } else { con(name, limit.parse().unwrap()) };
        TestJob { priority, tags, ..TestJob::default() }.put(queue, client, NOW)
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
    fn keys_rotate_and_jobs_without_a_key_are_one() {
        let mut queue = Queue::default();
        queue.apply_rules(fair(true), NOW);
        let client = queue.connect();
        for key in ["a:9", "a:9", "a:9", "", "", "b", "a:8", "", "c", "b"] {
            put(&mut queue, client, key, 5);
        }
        let order = keys_in_order(&mut queue, client, true);
        assert_eq!(order, ["a", "", "b", "c", "a", "", "b", "a", "", "a"]);
    }

    #[test]
    fn priorities_go_before_the_rotation_and_a_used_up_key_loses_none_for_others() {
        let mut queue = Queue::default();
        queue.apply_rules(fair(true), NOW);
        let client = queue.connect();
        for (key, priority) in [("a", 5), ("a", 5), ("b:9", 5), ("b:9", 5), ("", 5), ("b:9", 1)] {
            put(&mut queue, client, key, priority);
        }
        assert_eq!(keys_in_order(&mut queue, client, false), ["b", "a", "", "b", "b"]);
    }

    #[test]
    fn a_quiet_key_waits_for_one_round_beside_a_flood() {
        let mut queue = Queue::default();
        queue.apply_rules(fair(true), NOW);
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
    fn a_key_loses_its_position_without_jobs_and_keeps_it_at_a_change_of_priority() {
        for is_deleted in [true, false] {
            let mut queue = Queue::default();
            queue.apply_rules(fair(true), NOW);
            let client = queue.connect();
            let first = put(&mut queue, client, "a:9", 5);
            put(&mut queue, client, "b:9", 5);
            if is_deleted {
                queue.delete(client, first, NOW);
                put(&mut queue, client, "a:9", 5);
            } else {
                assert!(queue.set_priority(first, Priority(7), NOW));
                assert!(queue.set_priority(first, Priority(5), NOW));
            }
            let expected = if is_deleted { ["b", "a"] } else { ["a", "b"] };
            assert_eq!(keys_in_order(&mut queue, client, true), expected);
        }
    }

    #[test]
    fn new_keys_do_not_overtake_and_a_key_with_many_limits_has_one_position() {
        let mut queue = Queue::default();
        queue.apply_rules(fair(true), NOW);
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
    fn keys_rotate_in_each_reserve_mode_for_clients_that_watch_few_tubes_and_many() {
        let modes = [ReserveMode::Fifo, ReserveMode::Weighted, ReserveMode::WeightedFair];
        for (mode, watched) in modes.into_iter().flat_map(|mode| [(mode, 2), (mode, 60)]) {
            let mut queue = Queue::default();
            queue.apply_rules(fair(true), NOW);
            let client = queue.connect();
            (0..watched).for_each(|tube| _ = queue.watch_with_weight(client, &format!("t{tube}"), 7));
            queue.set_reserve_mode(client, mode);
            for number in 0..300 {
                queue.use_tube(client, &format!("t{}", number % 2));
                put(&mut queue, client, ["a:99", "b:99", "c:99"][number / 100], 5);
            }
            let mut orders = [String::new(), String::new()];
            for number in 0..300 {
                let id = loop {
                    match queue.reserve(client, Some(0.into()), NOW) {
                        Reserve::Job(id) => break id,
                        Reserve::Unfinished => {}
                        other => panic!("{other:?}"),
                    }
                };
                let job = queue.job(id).unwrap();
                let key = job.tags.unwrap_or_default().concurrency.expect("each has a key").key;
                orders[usize::from(job.tube.as_str() == "t1")] += key.as_str();
                if number % 3 > 0 {
                    queue.delete(client, id, NOW);
                }
            }
            assert_eq!(orders, [(); 2].map(|()| "abc".repeat(50)), "{mode:?}, {watched} tubes");
            queue.check_invariants();
        }
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
            while queue.next_deadline() == Some(Timestamp::AT_ONCE) {
                queue.advance(NOW);
                queue.check_invariants();
                if slices == 3 {
                    assert!(
                        matches!(queue.reserve(client, None, NOW), Reserve::Job(_)),
                        "the reload continues in the meantime"
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

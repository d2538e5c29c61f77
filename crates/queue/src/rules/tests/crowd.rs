//! Rules for tubes at full size: a million jobs, 100,000 keys, 200,000 tubes. The tests count steps, never time.

use crate::clock::NS_PER_S;
use crate::rules::*;
use crate::testing::{NOW, TestJob, con, steps};
use crate::{ClientId, Rate, Reserve, TubeRule};

/// A fair tube that also has a rate, and several jobs for each of many keys; one job of each key may be reserved.
struct Crowd {
    queue: Queue,
    client: ClientId,
}

impl Crowd {
    fn new(keys: u32, jobs_of_each: u32, limit: u32) -> Self {
        let rate = Some(Rate { tokens: u32::MAX, period_ns: NS_PER_S, burst: u32::MAX });
        let mut queue = Queue::default();
        queue.apply_rules(vec![TubeRule { is_fair: true, rate, ..TubeRule::new("*") }], NOW);
        let client = queue.connect();
        let mut crowd = Self { queue, client };
        for _ in 0..jobs_of_each {
            (0..keys).for_each(|key| _ = crowd.put(&format!("key-{key}"), limit));
        }
        crowd
    }

    fn put(&mut self, key: &str, limit: u32) -> JobId {
        let job = TestJob { priority: 5, tags: con(key, limit), ..TestJob::default() };
        job.put(&mut self.queue, self.client, NOW)
    }

    /// Reserves a job, and deletes it if `deletes`; returns it, and how many steps that took.
    fn serve(&mut self, deletes: bool) -> (JobId, u64) {
        let before = steps::all() + self.queue.cost();
        let Reserve::Job(id) = self.queue.reserve(self.client, Some(0.into()), NOW) else {
            panic!("a job is free")
        };
        if deletes {
            self.queue.delete(self.client, id, NOW).expect("it is there");
            self.queue.finish_slices(NOW);
        }
        (id, steps::all() + self.queue.cost() - before)
    }

    /// The maximum number of steps that any of `jobs` jobs took.
    fn most(&mut self, jobs: u32, deletes: bool) -> u64 {
        (0..jobs).map(|_| self.serve(deletes).1).max().expect("some jobs")
    }
}

#[test]
fn a_quiet_key_waits_for_one_round_beside_a_flood_which_is_not_probed() {
    let few = Crowd::new(1, 1_000, u32::MAX).most(500, true);
    let mut crowd = Crowd::new(1, 1_000_000, u32::MAX);
    for number in 0..50 {
        let quiet = crowd.put("quiet", 1);
        let rounds = (1..).find(|_| crowd.serve(number % 2 == 0).0 == quiet).unwrap();
        assert!(rounds <= 2, "{rounds} rounds");
        crowd.queue.delete(crowd.client, quiet, NOW);
    }
    let many = crowd.most(5_000, true);
    assert!(many <= 4 * few, "{many} steps beside a million jobs, {few} beside a thousand");
}

#[test]
fn a_million_jobs_of_100_000_keys_cost_as_their_logarithm_and_blocked_ones_nothing() {
    const KEYS: u32 = 100_000;
    let few = Crowd::new(100, 10, 1).most(100, true);
    let mut crowd = Crowd::new(KEYS, 10, 1);
    // Nine of ten jobs are blocked from the start, and more with each reservation.
    let held = crowd.most(50_000, false);
    let quiet = crowd.put("quiet", 1);
    let served = crowd.most(10_000, true);
    assert!(held.max(served) <= 4 * few, "{held} and {served} steps, {few} for a thousand jobs of 100 keys");
    let rounds = (1..).find(|_| crowd.serve(false).0 == quiet).unwrap();
    assert!(rounds <= KEYS, "{rounds} reserves: a round is one of each key");
    assert_eq!(crowd.queue.figures().jobs.total(), 1_000_000 + 1 - 10_000);
    let before = steps::all();
    while crowd.queue.reserve(crowd.client, Some(0.into()), NOW) != Reserve::TimedOut {}
    let cost = crowd.queue.cost();
    let blocked = steps::all();
    (0..10)
        .for_each(|_| assert_eq!(crowd.queue.reserve(crowd.client, Some(0.into()), NOW), Reserve::TimedOut));
    assert_eq!(
        (steps::all() - blocked, crowd.queue.cost() - cost),
        (0, 0),
        "all are blocked: nothing is probed"
    );
    assert!(blocked - before <= u64::from(KEYS) * few);
}

#[test]
fn a_reload_with_200_000_tubes_and_many_entries_goes_on_in_steps_of_the_same_size() {
    const TUBES: u32 = 200_000;
    const MAX_STEPS: u64 = 4_500;
    let mut queue = Queue::default();
    let producer = queue.connect();
    for tube in 0..TUBES {
        queue.use_tube(producer, &format!("tube-{tube}"));
        TestJob::default().put(&mut queue, producer, NOW);
    }
    let entry =
        |number: u32| TubeRule { max_reserved: Some(1), ..TubeRule::new(&format!("*-{number}-none")) };
    let last = TubeRule { max_jobs: Some(1), is_fair: true, ..TubeRule::new("tube-*") };
    for entries in [0, 1, 40] {
        let rules: Vec<TubeRule> =
            (1..entries).map(entry).chain((entries > 0).then(|| last.clone())).collect();
        let (before, mut slices) = (steps::all(), 0);
        queue.set_tube_rules(rules, NOW);
        assert!(steps::all() - before <= MAX_STEPS, "{} steps at once", steps::all() - before);
        while queue.next_deadline() == Some(Timestamp::AT_ONCE) {
            let before = steps::all() + queue.cost();
            queue.advance(NOW);
            let step = steps::all() + queue.cost() - before;
            assert!(step <= MAX_STEPS, "{step} steps in one slice, {entries} entries");
            slices += 1;
            if slices == 100 {
                let worker = queue.connect();
                queue.watch(worker, "tube-7");
                let found = queue.reserve(worker, Some(0.into()), NOW);
                assert!(matches!(found, Reserve::Job(_)), "other commands are served");
                queue.disconnect(worker, NOW);
            }
        }
        let rule = queue.tube("tube-199999", NOW).unwrap().rule;
        assert_eq!(rule.is_some(), entries > 0);
        assert_eq!(queue.is_tube_full_for("tube-0", 1), entries > 0);
    }
}

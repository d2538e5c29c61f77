//! Tests of the reserve modes: the share of each tube, the cost, and that a seed replays the choices.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use beanstalkd_types::random::Generator;

use crate::clock::{NS_PER_MS, NS_PER_S, Timestamp};
use crate::job::JobId;
use crate::testing::{NOW, TestJob};
use crate::{ClientId, Queue, Reserve, ReserveMode};

/// A queue with tubes that never run out of jobs, and one client that puts them.
struct Supply {
    queue: Queue,
    producer: ClientId,
}

impl Supply {
    fn new(seed: u64) -> Self {
        let mut queue = Queue::default();
        queue.seed(seed);
        let producer = queue.connect();
        Self { queue, producer }
    }

    fn put(&mut self, tube: usize, priority: u32, now: Timestamp) -> JobId {
        self.queue.use_tube(self.producer, &format!("t{tube}"));
        let job = TestJob { priority, ttr_s: 1000, ..TestJob::default() };
        job.put(&mut self.queue, self.producer, now)
    }

    /// A client that watches these tubes, and only these, in this mode.
    fn worker(&mut self, weights: &[u16], mode: ReserveMode) -> ClientId {
        let worker = self.queue.connect();
        for (tube, &weight) in weights.iter().enumerate() {
            self.queue.watch_with_weight(worker, &format!("t{tube}"), weight);
        }
        assert!(self.queue.ignore(worker, "default").is_some());
        self.queue.set_reserve_mode(worker, mode);
        worker
    }

    fn reserve(&mut self, worker: ClientId, now: Timestamp) -> Option<JobId> {
        loop {
            match self.queue.reserve(worker, Some(0.into()), now) {
                Reserve::Job(id) => return Some(id),
                Reserve::Unfinished => {}
                Reserve::TimedOut => return None,
                other => panic!("{other:?}"),
            }
        }
    }

    fn tube_of(&self, id: JobId) -> usize {
        let name = self.queue.job(id).expect("it is there").tube.as_str();
        name[1..].parse().expect("tubes have numbers")
    }
}

/// How many of `draws` jobs come from each tube, if each tube always has jobs.
fn jobs_by_tube(weights: &[u16], draws: usize, seed: u64) -> Vec<usize> {
    let mut supply = Supply::new(seed);
    let worker = supply.worker(weights, ReserveMode::Weighted);
    for tube in 0..weights.len() {
        supply.put(tube, 0, NOW);
    }
    let mut counts = vec![0; weights.len()];
    for _ in 0..draws {
        let id = supply.reserve(worker, NOW).expect("each tube has a job");
        let tube = supply.tube_of(id);
        counts[tube] += 1;
        supply.queue.delete(worker, id, NOW);
        supply.put(tube, 0, NOW);
    }
    supply.queue.check_invariants();
    counts
}

/// The largest relative deviation of a tube from its share.
fn worst_deviation(found: &[f64], weights: &[u16]) -> f64 {
    let (all, sum) = (found.iter().sum::<f64>(), weights.iter().map(|&w| f64::from(w)).sum::<f64>());
    let shares = found.iter().zip(weights).map(|(&found, &weight)| (found / all) / (f64::from(weight) / sum));
    shares.map(|share| (share - 1.0).abs()).fold(0.0, f64::max)
}

fn assert_in_proportion(found: &[f64], weights: &[u16], tolerance: f64) {
    let worst = worst_deviation(found, weights);
    assert!(worst < tolerance, "{found:?} for {weights:?}: {worst}");
}

#[test]
fn a_weighted_client_gets_jobs_in_proportion_to_the_weights() {
    let few = [1, 2, 6, 1, 30];
    let many: Vec<u16> = (0..40).map(|tube| 1 + tube % 7).collect();
    for weights in [&few[..], &many] {
        let counts = jobs_by_tube(weights, 80_000, 7);
        let counts: Vec<f64> = counts.into_iter().map(|count| count as f64).collect();
        assert_in_proportion(&counts, weights, 0.1);
    }
}

#[test]
fn a_seed_replays_a_run_and_another_one_does_not() {
    let many = [3; 40];
    for weights in [&[1, 1, 1][..], &many] {
        let run = |seed| jobs_by_tube(weights, 500, seed);
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }
}

#[test]
fn the_most_urgent_job_of_a_drawn_tube_is_taken_and_a_paused_tube_is_not_drawn() {
    let many = [5; 30];
    for weights in [&[9999, 1, 1][..], &many] {
        let mut supply = Supply::new(3);
        let worker = supply.worker(weights, ReserveMode::Weighted);
        for tube in 0..3 {
            for priority in [8, 3, 5] {
                supply.put(tube, priority, NOW);
            }
        }
        assert!(supply.queue.pause_tube("t0", 10.into(), NOW));
        let mut priorities = [Vec::new(), Vec::new(), Vec::new()];
        while let Some(id) = supply.reserve(worker, NOW) {
            let priority = supply.queue.job(id).expect("it is there").record.priority.0;
            priorities[supply.tube_of(id)].push(priority);
            supply.queue.check_invariants();
        }
        assert_eq!(priorities, [vec![], vec![3, 5, 8], vec![3, 5, 8]]);
        supply.queue.advance(NOW + 10 * NS_PER_S);
        let later = NOW + 10 * NS_PER_S;
        assert_eq!((0..4).filter_map(|_| supply.reserve(worker, later)).count(), 3, "the pause is over");
    }
}

/// A mix in which some workers serve tubes for a while, with its own clock.
#[derive(Clone, Copy)]
struct Mix<'a> {
    /// The mean run time of the jobs of each tube, in milliseconds: each job takes half to one and a half of it.
    run_ms: &'a [u64],
    weights: &'a [u16],
    workers: usize,
    /// The duration, in seconds of all workers together.
    seconds: u64,
}

/// The seconds of work that go to each tube.
fn work_by_tube(mix: Mix<'_>, mode: ReserveMode, seed: u64) -> Vec<f64> {
    let Mix { run_ms, weights, workers: count, seconds } = mix;
    let mut supply = Supply::new(seed);
    let workers: Vec<_> = (0..count).map(|_| supply.worker(weights, mode)).collect();
    for tube in 0..run_ms.len() {
        for _ in 0..=count {
            supply.put(tube, 0, NOW);
        }
    }
    let end = NOW + seconds * NS_PER_S / count as u64;
    let mut worked_ns = vec![0; run_ms.len()];
    let mut random = Generator::new(seed);
    // For each busy worker: the end of its job, and the job.
    let mut busy: BinaryHeap<Reverse<(Timestamp, usize, Option<JobId>)>> =
        (0..count).map(|worker| Reverse((NOW, worker, None))).collect();
    while let Some(Reverse((now, worker, done))) = busy.pop()
        && now < end
    {
        if let Some(id) = done {
            let tube = supply.tube_of(id);
            assert!(supply.queue.delete(workers[worker], id, now).is_some());
            supply.put(tube, 0, now);
        }
        let id = supply.reserve(workers[worker], now).expect("each tube has a job");
        let tube = supply.tube_of(id);
        let run_ns = run_ms[tube] * NS_PER_MS / 2 + random.draw() % (run_ms[tube] * NS_PER_MS);
        worked_ns[tube] += run_ns;
        busy.push(Reverse((now + run_ns, worker, Some(id))));
    }
    supply.queue.check_invariants();
    worked_ns.into_iter().map(|ns| ns as f64 / NS_PER_S as f64).collect()
}

#[test]
fn a_fair_client_shares_its_time_by_weight_however_long_the_jobs_of_a_tube_take() {
    let mixes = [
        Mix { run_ms: &[1, 100, 5, 20, 2, 50], weights: &[1, 3, 1, 3, 2, 2], workers: 4, seconds: 1_600 },
        Mix { run_ms: &[1, 10, 100, 30, 3], weights: &[1; 5], workers: 1, seconds: 1_600 },
        Mix { run_ms: &[5, 100], weights: &[1, 1], workers: 9, seconds: 1_600 },
        // The usual run time of a job says nothing about its weight.
        Mix { run_ms: &[100, 60, 1], weights: &[1, 1, 4], workers: 3, seconds: 1_600 },
        Mix { run_ms: &[100, 60, 1], weights: &[40, 20, 1], workers: 3, seconds: 1_600 },
    ];
    for mix in mixes {
        for seed in [11, 12, 13] {
            let worked = work_by_tube(mix, ReserveMode::WeightedFair, seed);
            assert_in_proportion(&worked, mix.weights, 0.05);
        }
        let unfair = work_by_tube(Mix { seconds: 200, ..mix }, ReserveMode::Weighted, 11);
        let worst = worst_deviation(&unfair, mix.weights);
        assert!(worst > 0.5, "without it, the long jobs have the time: {unfair:?}");
    }
}

#[test]
fn a_fair_client_of_many_tubes_shares_its_time_as_well() {
    let run_ms: Vec<u64> = (0..20).map(|tube| [1, 2, 10, 30, 100][tube % 5]).collect();
    let weights: Vec<u16> = (0..20).map(|tube| [1, 2, 1, 2, 3][tube % 5]).collect();
    let mix = Mix { run_ms: &run_ms, weights: &weights, workers: 4, seconds: 1_600 };
    for seed in [11, 12] {
        let worked = work_by_tube(mix, ReserveMode::WeightedFair, seed);
        // Tubes of a kind are summed up: each alone has too few jobs for a precise figure.
        let kinds: Vec<f64> = (0..5).map(|kind| worked.iter().skip(kind).step_by(5).sum()).collect();
        assert_in_proportion(&kinds, &weights[..5], 0.05);
        assert_in_proportion(&worked, &weights, 0.15);
    }
}

#[test]
fn a_weighted_reserve_over_many_tubes_probes_few_of_them() {
    const TUBES: usize = 20_000;
    for mode in [ReserveMode::Weighted, ReserveMode::WeightedFair] {
        let mut supply = Supply::new(5);
        let worker = supply.worker(&[2; TUBES], mode);
        for tube in 0..TUBES {
            supply.put(tube, 0, NOW);
        }
        let mut calls = 0;
        let first = loop {
            let before = supply.queue.cost();
            let found = supply.queue.reserve(worker, None, NOW);
            assert!(supply.queue.cost() - before <= 512, "a call probes a share of them");
            calls += 1;
            if let Reserve::Job(id) = found {
                break id;
            }
        };
        assert!(calls > 10 && supply.queue.delete(worker, first, NOW).is_some());
        let start = supply.queue.cost();
        for _ in 0..1_000 {
            let id = supply.reserve(worker, NOW).expect("there are jobs");
            assert!(supply.queue.delete(worker, id, NOW).is_some());
        }
        let cost = supply.queue.cost() - start;
        assert!(cost < 4_000, "1,000 reserves have cost {cost}");
        supply.queue.check_invariants();
    }
}

#[test]
fn a_client_goes_from_mode_to_mode_and_changes_what_it_watches() {
    let mut supply = Supply::new(9);
    let worker = supply.worker(&[4; 30], ReserveMode::Weighted);
    let mut generator = Generator::new(77);
    let mut random = |below: u64| generator.draw() % below;
    for _ in 0..20_000 {
        let tube = random(40) as usize;
        match random(9) {
            0 => _ = supply.queue.ignore(worker, &format!("t{tube}")),
            1 => _ = supply.queue.watch(worker, &format!("t{tube}")),
            2 | 3 => {
                let _ = supply.queue.watch_with_weight(worker, &format!("t{tube}"), 1 + random(9999) as u16);
            }
            4 | 5 => _ = supply.put(tube, random(3) as u32, NOW),
            6 if random(10) == 0 => {
                let modes = [ReserveMode::Fifo, ReserveMode::Weighted, ReserveMode::WeightedFair];
                supply.queue.set_reserve_mode(worker, modes[random(3) as usize]);
            }
            _ => {
                if let Some(id) = supply.reserve(worker, NOW) {
                    supply.queue.delete(worker, id, NOW);
                }
            }
        }
        supply.queue.check_invariants();
    }
    supply.queue.set_reserve_mode(worker, ReserveMode::Fifo);
    supply.queue.disconnect(worker, NOW);
    supply.queue.check_invariants();
}

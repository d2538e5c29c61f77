//! The tag `con` with many jobs, tubes and clients.

use super::put;
use crate::rules::*;
use crate::seconds::Seconds;
use crate::state::keys::TubeKey;
use crate::testing::{NOW, con, steps};
use crate::{ClientId, Delivery, Reserve, WaitOutcome};

/// The numbers of tubes are assigned one after another, so a client can choose two tubes for which any fixed hash has
/// the same 16 bits, such as these.
#[test]
fn the_jobs_of_a_key_in_one_tube_cost_nothing_in_another_one() {
    const JOBS: u32 = 3_000;
    const TUBES: [u32; 2] = [2, 46_370];
    let mut queue = Queue::default();
    let (producer, worker) = (queue.connect(), queue.connect());
    let names = TUBES.map(|number| format!("t{number}"));
    for number in 1..=TUBES[1] {
        queue.watch(producer, &format!("t{number}"));
    }
    assert_eq!([0, 1].map(|at| queue.tubes.find(&names[at]).unwrap()), TUBES.map(TubeKey));
    queue.use_tube(producer, &names[0]);
    (0..JOBS).for_each(|_| _ = put(&mut queue, producer, 5, con("k", 100_000)));
    queue.use_tube(producer, &names[1]);
    queue.watch(worker, &names[1]);
    let before = steps::probes();
    let ids: Vec<JobId> = (0..200).map(|_| put(&mut queue, producer, 9, con("k", 100_000))).collect();
    for &id in &ids[..100] {
        assert_eq!(queue.reserve(worker, None, NOW), Reserve::Job(id));
        assert!(queue.delete(worker, id, NOW).is_some());
    }
    let probes = steps::probes() - before;
    assert!(probes < 3 * 200, "{probes} probes at jobs for 400 commands");
    queue.check_invariants();
}

/// How many jobs a reserve of this tube can see.
fn visible(queue: &Queue, tube: &str) -> usize {
    queue.tubes.get(queue.tubes.find(tube).unwrap()).ready.len()
}

#[test]
fn a_reserve_sees_one_job_of_a_key_however_many_wait_and_none_once_it_is_used_up() {
    const JOBS: usize = 100_000;
    let mut queue = Queue::default();
    let (producer, worker, other) = (queue.connect(), queue.connect(), queue.connect());
    let ids: Vec<JobId> = (0..JOBS).map(|_| put(&mut queue, producer, 0, con("k", 1))).collect();
    assert_eq!((visible(&queue, "default"), queue.figures().jobs.ready), (1, JOBS as u64));
    assert_eq!(queue.reserve(worker, None, NOW), Reserve::Job(ids[0]));
    assert_eq!(visible(&queue, "default"), 0);
    let last = put(&mut queue, producer, 9, TagSet::default());
    let cost = queue.cost();
    assert_eq!(
        queue.reserve(other, Some(0.into()), NOW),
        Reserve::Job(last),
        "the only one that may be reserved"
    );
    assert_eq!(queue.reserve(other, Some(0.into()), NOW), Reserve::TimedOut);
    assert!(!queue.reserve_job(other, ids[1], NOW), "nor by its id");
    assert_eq!(queue.cost(), cost, "nothing is passed over");
    assert!(queue.delete(worker, ids[0], NOW).is_some());
    assert!(queue.cost() <= cost + 2, "one job takes the slot");
    assert_eq!(queue.reserve(other, Some(0.into()), NOW), Reserve::Job(ids[1]));
    assert_eq!(
        queue.peek(producer, JobState::Ready),
        Some(ids[2]),
        "a client that probes sees the parked ones"
    );
    queue.check_invariants();
}

/// A queue with a job of one key in each of many tubes, `t0` and so on, each more urgent than the one before; a further
/// one, in the tube "default", is reserved.
struct KeyInManyTubes {
    queue: Queue,
    producer: ClientId,
    holder: ClientId,
    reserved: JobId,
}

impl KeyInManyTubes {
    const TUBES: u32 = 20_000;
    /// The maximum cost of one call: a share, a delivery and a few steps.
    const MAX_COST: u64 = 300;

    fn new() -> Self {
        let mut queue = Queue::default();
        let (producer, holder) = (queue.connect(), queue.connect());
        let reserved = put(&mut queue, producer, 0, con("k", 1));
        for tube in 0..Self::TUBES {
            queue.use_tube(producer, &format!("t{tube}"));
            put(&mut queue, producer, Self::TUBES - tube, con("k", 1));
        }
        let mut many = Self { queue, producer, holder, reserved };
        assert!(many.costs_little(|queue| queue.reserve_job(holder, reserved, NOW)));
        many
    }

    fn client(&mut self, tubes: impl IntoIterator<Item = u32>) -> ClientId {
        let client = self.queue.connect();
        tubes.into_iter().for_each(|tube| {
            self.queue.watch(client, &format!("t{tube}"));
        });
        self.queue.ignore(client, "default");
        client
    }

    fn costs_little<T>(&mut self, call: impl FnOnce(&mut Queue) -> T) -> T {
        let before = self.queue.cost();
        let result = call(&mut self.queue);
        let cost = self.queue.cost() - before;
        assert!(cost <= Self::MAX_COST, "{cost} in one call");
        result
    }

    /// The result of a reserve, and how many calls it needs; nothing else happens in the meantime.
    fn reserve(&mut self, client: ClientId, timeout_s: Option<Seconds>) -> (Reserve, usize) {
        let before = self.queue.cost();
        for calls in 1.. {
            let found = self.queue.reserve(client, timeout_s, NOW);
            if found != Reserve::Unfinished {
                return (found, calls);
            }
            assert!(self.queue.cost() - before <= 1_100 * calls as u64);
        }
        unreachable!("it ends")
    }

    fn free(&mut self) {
        let (holder, reserved) = (self.holder, self.reserved);
        assert!(self.costs_little(|queue| queue.delete(holder, reserved, NOW)).is_some());
    }

    /// Ends everything in progress; returns the number of slices.
    fn finish(&mut self) -> usize {
        let mut slices = 0;
        while self.queue.next_deadline() == Some(Timestamp::AT_ONCE) {
            self.costs_little(|queue| queue.advance(NOW));
            slices += 1;
        }
        self.queue.check_invariants();
        slices
    }

    fn delivered(&mut self) -> Option<(ClientId, JobId)> {
        let Delivery { client, outcome: WaitOutcome::Reserved(id) } = self.queue.poll_delivery()? else {
            panic!("nobody waits in vain")
        };
        Some((client, id))
    }

    /// The job of tube `t<tube>`.
    fn job_in(tube: u32) -> JobId {
        JobId(u64::from(tube) + 2)
    }
}

#[test]
fn a_key_of_many_tubes_is_used_up_at_once_and_free_again_in_slices() {
    let mut many = KeyInManyTubes::new();
    let all = many.client(0..KeyInManyTubes::TUBES);
    let (found, calls) = many.reserve(all, Some(0.into()));
    assert_eq!((found, calls > 30), (Reserve::TimedOut, true), "each tube is probed once");
    assert!(many.reserve(all, Some(0.into())).1 == 1);
    let one = many.client([7]);
    assert_eq!(many.reserve(one, Some(0.into())), (Reserve::TimedOut, 1));
    many.free();
    many.queue.check_invariants();
    let newer = many.queue.connect();
    many.queue.watch(many.holder, "t7");
    assert_eq!(
        many.queue.reserve(many.holder, Some(0.into()), NOW),
        Reserve::Unfinished,
        "it has begun the walk"
    );
    assert_eq!(
        many.queue.reserve(newer, Some(0.into()), NOW),
        Reserve::TimedOut,
        "other commands are served"
    );
    assert!(many.finish() > 50);
    let last = KeyInManyTubes::job_in(KeyInManyTubes::TUBES - 1);
    assert_eq!(many.reserve(many.holder, Some(0.into())), (Reserve::Job(KeyInManyTubes::job_in(7)), 1));
    assert_eq!(many.reserve(all, Some(0.into())).0, Reserve::TimedOut);
    assert!(many.queue.delete(many.holder, KeyInManyTubes::job_in(7), NOW).is_some());
    many.finish();
    assert_eq!(many.reserve(all, Some(0.into())).0, Reserve::Job(last), "the most urgent of all");
    many.queue.check_invariants();
}

#[test]
fn a_slot_goes_to_a_client_that_waits_before_one_that_comes_while_it_is_offered() {
    let mut many = KeyInManyTubes::new();
    let all = many.client(0..KeyInManyTubes::TUBES);
    assert_eq!(many.reserve(all, Some(0.into())).0, Reserve::TimedOut);
    let waiting = [many.client([3]), many.client([5, 1_000])];
    for client in waiting {
        assert_eq!(many.reserve(client, None), (Reserve::Waiting, 1));
    }
    many.free();
    assert_eq!(many.delivered(), None, "that takes some slices");
    let rivals = [many.client([19_000]), many.client([1]), many.client([2])];
    assert_eq!(many.reserve(rivals[0], None).0, Reserve::Waiting);
    assert_eq!(many.reserve(rivals[1], Some(0.into())).0, Reserve::TimedOut, "the slot is kept");
    many.queue.use_tube(many.producer, "t1");
    let urgent = put(&mut many.queue, many.producer, 0, con("k", 1));
    let free = put(&mut many.queue, many.producer, 9, TagSet::default());
    assert_eq!(many.reserve(rivals[1], Some(0.into())).0, Reserve::Job(free));
    assert!(many.finish() > 20);
    assert_eq!(many.delivered(), Some((waiting[1], KeyInManyTubes::job_in(1_000))));
    assert_eq!(many.delivered(), None);
    assert!(many.queue.delete(waiting[1], KeyInManyTubes::job_in(1_000), NOW).is_some());
    many.finish();
    assert_eq!(many.delivered(), Some((rivals[0], KeyInManyTubes::job_in(19_000))), "the most urgent");
    assert!(many.queue.delete(rivals[0], KeyInManyTubes::job_in(19_000), NOW).is_some());
    many.finish();
    assert_eq!(many.delivered(), Some((waiting[0], KeyInManyTubes::job_in(3))));
    assert!(!many.queue.reserve_job(rivals[2], urgent, NOW));
    assert!(many.queue.delete(waiting[0], KeyInManyTubes::job_in(3), NOW).is_some());
    assert!(
        many.queue.reserve_job(rivals[2], urgent, NOW),
        "by its id a job may have a slot that is offered"
    );
    many.finish();
    assert_eq!(many.reserve(rivals[1], Some(0.into())).0, Reserve::TimedOut);
}

#[test]
fn no_slot_is_lost_if_clients_leave_or_jobs_change_while_it_is_offered() {
    let mut many = KeyInManyTubes::new();
    let all = many.client(0..KeyInManyTubes::TUBES);
    assert_eq!(many.reserve(all, Some(0.into())).0, Reserve::TimedOut);
    let waiting = many.client([3]);
    assert_eq!(many.reserve(waiting, None).0, Reserve::Waiting);
    many.queue.disconnect(many.holder, NOW);
    for tube in [0, 10, 19_998] {
        many.queue.advance(NOW);
        assert!(many.queue.delete(many.producer, KeyInManyTubes::job_in(tube), NOW).is_some());
        assert!(many.queue.set_priority(KeyInManyTubes::job_in(tube + 1), Priority(0), NOW));
        assert!(many.queue.move_job(KeyInManyTubes::job_in(tube + 1), "elsewhere", NOW));
        many.queue.pause_tube("t8", 5.into(), NOW);
    }
    many.queue.check_invariants();
    assert!(many.queue.stop_waiting(waiting));
    many.finish();
    many.queue.watch(waiting, "elsewhere");
    assert_eq!(many.reserve(waiting, None).0, Reserve::Job(KeyInManyTubes::job_in(1)));
    assert_eq!(many.queue.figures().jobs.ready, u64::from(KeyInManyTubes::TUBES) - 3);
}

#[test]
fn keys_that_are_freed_together_are_offered_together() {
    let slices = crate::Slices { given_back: 1, ..crate::Slices::default() };
    let mut queue = Queue::new(crate::PoisonLimits::default(), slices);
    let (producer, holder, waiting) = (queue.connect(), queue.connect(), queue.connect());
    let keys = ["a", "b", "c", "d"];
    let taken = keys.map(|key| put(&mut queue, producer, 0, con(key, 1)));
    taken.iter().for_each(|&id| assert!(queue.reserve_job(holder, id, NOW)));
    queue.use_tube(producer, "t");
    let jobs = [8, 5, 7, 6]
        .iter()
        .zip(keys)
        .map(|(&priority, key)| put(&mut queue, producer, priority, con(key, 1)));
    let jobs: Vec<JobId> = jobs.collect();
    queue.watch(waiting, "t");
    queue.ignore(waiting, "default");
    assert_eq!(queue.reserve(waiting, None, NOW), Reserve::Waiting);
    queue.slices = crate::Slices { given_back: 4, ..crate::Slices::default() };
    queue.disconnect(holder, NOW);
    while queue.next_deadline() == Some(Timestamp::AT_ONCE) {
        queue.check_invariants();
        queue.advance(NOW);
    }
    let Some(Delivery { client, outcome: WaitOutcome::Reserved(id) }) = queue.poll_delivery() else {
        panic!("somebody waits")
    };
    assert_eq!((client, id), (waiting, jobs[1]), "the most urgent");
    queue.check_invariants();
}

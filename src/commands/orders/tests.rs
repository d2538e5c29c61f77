//! Orders of the API, carried out by an executor without connections.

use super::jobs::JobsOrder;
use crate::clock::{NS_PER_S, Timestamp};
use crate::executor::{Continuation, Executor, ExecutorConfig};
use crate::job::Counting;
use crate::job::{Body, JobId, JobState, Priority};
use crate::orders::selection::{AsOf, Filter, JobWalk};
use crate::orders::{Control, JobAction, Order, Progress, PutOrder, Selection, Task, TaskId};
use crate::queue::{ClientId, FlushScope, NewJob, Release, Reserve, TubeRule};
use crate::refusal::{ChangeRefusal, PutRefusal};
use crate::seconds::Seconds;
use crate::stats::ServerInfo;
use crate::tags::{Idempotency, JobTags, TagSet};
use crate::tube_name::TubeName;

const NOW: Timestamp = Timestamp(1_700_000_000 * NS_PER_S);

/// How much a slice may exceed its bound: the cost of the last job, with a large body to free.
const SLACK: u64 = 64;

pub(super) struct Harness {
    pub(super) executor: Executor,
    client: ClientId,
    pub(super) now: Timestamp,
    /// The highest cost of a slice.
    longest: u64,
}

impl Harness {
    pub(super) fn new() -> Self {
        let config = ExecutorConfig { max_job_bytes: 65_535, ..ExecutorConfig::default() };
        let info = ServerInfo { started_at: NOW, ..ServerInfo::default() };
        let mut executor = Executor::new(config, info);
        executor.accept_orders(0);
        let client = executor.connect();
        executor.queue.use_tube(client, "t");
        executor.queue.watch(client, "t");
        Self { executor, client, now: NOW, longest: 0 }
    }

    pub(super) fn put(&mut self, priority: u32, delay_s: u32, body: &str) -> JobId {
        let id = self.executor.queue.allocate_id();
        let new = NewJob { id, priority: Priority(priority), delay_s: delay_s.into(), ttr_s: 60.into() };
        self.executor.queue.put(self.client, new, Body::copy_of(body.as_bytes()).unwrap(), self.now);
        id
    }

    fn state(&self, id: JobId) -> Option<JobState> {
        self.executor.queue.job(id).map(|job| job.record.state)
    }

    fn counted(&self, action: JobAction, state: JobState, contains: Option<&str>, expected: u64) -> Order {
        let as_of = AsOf { next_id: self.executor.queue.next_id(), at: self.now };
        let filter = Filter { contains: contains.map(Into::into), ..Filter::all(as_of) };
        let walk = JobWalk::new(TubeName::parse(b"t").unwrap(), state, filter, None);
        Order::Change(action, Selection::Counted(Box::new(walk), expected))
    }

    pub(super) fn slice(&mut self) {
        let before = self.executor.counted_cost();
        self.now = self.now + 1_000_000;
        self.executor.carry_out_orders(self.now);
        self.longest = self.longest.max(self.executor.counted_cost() - before);
        self.executor.queue.check_invariants();
    }

    pub(super) fn task(&self, id: TaskId) -> Task {
        self.executor.tasks().get(id).unwrap().clone()
    }

    /// Carries the order out, and returns its task when it has ended.
    fn execute(&mut self, order: Order) -> Task {
        let id = self.executor.order(order, self.now).unwrap();
        while self.executor.has_orders() {
            self.slice();
        }
        assert!(self.task(id).is_over());
        assert!(self.longest <= 512 + SLACK, "a slice has cost {}", self.longest);
        self.task(id)
    }
}

#[test]
fn an_order_deletes_a_job_that_a_client_has_reserved() {
    let mut harness = Harness::new();
    let id = harness.put(0, 0, "x");
    harness.executor.queue.reserve(harness.client, Some(0.into()), NOW);
    assert_eq!(harness.state(id), Some(JobState::Reserved));
    let kept = harness
        .execute(Order::Change(JobAction::Priority(Priority(1)), Selection::Jobs(vec![id].into_iter())));
    assert_eq!((kept.done, kept.refusal), (0, Some(ChangeRefusal::Reserved)));
    let task = harness.execute(Order::Change(JobAction::Delete, Selection::Jobs(vec![id].into_iter())));
    assert_eq!((task.done, task.progress), (1, Progress::Done));
    assert!(!harness.executor.queue.has_reserved(harness.client, id) && harness.state(id).is_none());
    let task = harness.execute(Order::Change(JobAction::Delete, Selection::Jobs(vec![id].into_iter())));
    assert_eq!((task.done, task.skipped, task.refusal), (0, 1, Some(ChangeRefusal::NotFound)));
}

#[test]
fn many_jobs_are_changed_in_slices_and_each_of_them_once() {
    for action in [
        JobAction::Priority(Priority(500)),
        JobAction::Delay(Seconds::new(7, 250)),
        JobAction::Move(TubeName::parse(b"other").unwrap()),
        JobAction::Delete,
    ] {
        let mut harness = Harness::new();
        let ids: Vec<JobId> = (0..1500).map(|number| harness.put(number, 0, "body")).collect();
        let order = harness.counted(action.clone(), JobState::Ready, None, 1500);
        let late = harness.put(0, 0, "body");
        let task = harness.execute(order);
        // The job that already has the priority is not changed.
        let changed = if matches!(action, JobAction::Priority(_)) { 1499 } else { 1500 };
        assert_eq!((task.done, task.skipped, task.progress), (changed, 0, Progress::Done), "{action:?}");
        let late = harness.executor.queue.job(late).expect("what came later is left");
        assert_eq!((late.record.priority, late.record.state), (Priority(0), JobState::Ready));
        for id in ids {
            let Some(job) = harness.executor.queue.job(id) else {
                assert_eq!(action, JobAction::Delete);
                continue;
            };
            match &action {
                JobAction::Priority(priority) => assert_eq!(job.record.priority, *priority),
                JobAction::Delay(_) => assert_eq!(job.record.deadline_at, NOW + 7_250_000_000),
                JobAction::Move(tube) => assert_eq!(job.tube, tube),
                JobAction::Kick | JobAction::Delete | JobAction::Redrive(_) => {
                    panic!("a deleted job is there")
                }
            }
        }
    }
}

#[test]
fn delayed_jobs_get_another_delay_although_that_changes_their_order() {
    let mut harness = Harness::new();
    let ids: Vec<JobId> = (1..=600).map(|delay| harness.put(0, delay * 10, "x")).collect();
    let order = harness.counted(JobAction::Delay(3001.into()), JobState::Delayed, None, 600);
    assert_eq!(harness.execute(order).done, 600);
    for id in &ids {
        assert_eq!(harness.executor.queue.job(*id).unwrap().record.deadline_at, NOW + 3001 * NS_PER_S);
    }
    let order = harness.counted(JobAction::Delay(Seconds::ZERO), JobState::Delayed, None, 600);
    assert_eq!(harness.execute(order).done, 600);
    assert!(ids.iter().all(|id| harness.state(*id) == Some(JobState::Ready)));
}

#[test]
fn an_order_skips_jobs_whose_time_is_over() {
    for action in [
        JobAction::Kick,
        JobAction::Priority(Priority(5)),
        JobAction::Delay(7.into()),
        JobAction::Move(TubeName::parse(b"other").unwrap()),
    ] {
        let mut harness = Harness::new();
        let rule = TubeRule { max_age_s: Some(1), ..TubeRule::new("t") };
        harness.executor.queue.set_tube_rules(vec![rule], harness.now);
        (0..3_000).for_each(|_| _ = harness.put(0, 0, "x"));
        let ids: Vec<JobId> = (0..3).map(|_| harness.put(0, 99, "x")).collect();
        harness.now = harness.now.plus_seconds(2);
        harness.executor.advance(harness.now);
        assert!(ids.iter().all(|id| harness.state(*id) == Some(JobState::Delayed)), "a turn ends fewer jobs");
        let task = harness.execute(Order::Change(action.clone(), Selection::Jobs(ids.clone().into_iter())));
        assert_eq!(
            (task.done, task.skipped, task.refusal),
            (0, 3, Some(ChangeRefusal::NotFound)),
            "{action:?}"
        );
        assert!(ids.iter().all(|id| harness.state(*id).is_none()), "{action:?}");
    }
}

#[test]
fn no_more_jobs_are_changed_than_were_counted() {
    let mut harness = Harness::new();
    for number in 0..100 {
        harness.put(0, 0, if number % 10 == 0 { "a needle" } else { "straw" });
    }
    let order = harness.counted(JobAction::Delete, JobState::Ready, Some("needle"), 4);
    assert_eq!(harness.execute(order).done, 4);
    let order = harness.counted(JobAction::Delete, JobState::Ready, Some("needle"), 100);
    assert_eq!(harness.execute(order).done, 6);
    assert_eq!(harness.executor.queue.figures().jobs.total(), 90);
}

#[test]
fn a_search_of_large_bodies_takes_many_slices() {
    let mut harness = Harness::new();
    let body = "x".repeat(10 << 20) + "needle";
    for _ in 0..3 {
        harness.put(0, 0, &body);
    }
    let order = harness.counted(JobAction::Priority(Priority(9)), JobState::Ready, Some("needle"), 3);
    let started = harness.now;
    assert_eq!(harness.execute(order).done, 3);
    assert!(harness.now.since_ns(started) / 1_000_000 > 3 * 80, "a slice searches 128 KiB");
}

/// A harness with this many dead jobs in its tube `t`, which came from `source`.
fn with_dead(count: usize) -> (Harness, Vec<JobId>) {
    let mut harness = Harness::new();
    let rule = TubeRule { max_attempts: Some(1), dead_tube: Some("t".into()), ..TubeRule::new("source") };
    harness.executor.queue.set_tube_rules(vec![rule], harness.now);
    let Harness { client, now, .. } = harness;
    harness.executor.queue.use_tube(client, "source");
    harness.executor.queue.watch(client, "source");
    let ids: Vec<JobId> = (0..count).map(|_| harness.put(0, 0, "x")).collect();
    for &id in &ids {
        assert_eq!(harness.executor.queue.reserve(client, Some(0.into()), now), Reserve::Job(id));
    }
    for &id in &ids {
        let release = Release { priority: Priority(0), delay_s: 0.into(), counting: Counting::Counted };
        harness.executor.queue.release(client, id, release, now);
    }
    harness.executor.queue.use_tube(client, "t");
    (harness, ids)
}

impl Harness {
    fn dead(&self, rate: Option<u32>, expected: u64) -> Order {
        let as_of = AsOf { next_id: self.executor.queue.next_id(), at: self.now };
        let filter = Filter { is_dead: true, ..Filter::all(as_of) };
        let walk = JobWalk::new(TubeName::parse(b"t").unwrap(), JobState::Ready, filter, None);
        let action = JobAction::Redrive(rate.and_then(std::num::NonZeroU32::new));
        Order::Change(action, Selection::Counted(Box::new(walk), expected))
    }

    fn is_dead(&self, id: JobId) -> bool {
        let job = self.executor.queue.job(id).unwrap();
        assert_eq!(job.tube.as_str(), if job.failures() > 0 { "t" } else { "source" });
        job.tags.is_some_and(|tags| tags.dead().is_some())
    }
}

#[test]
fn dead_jobs_are_sent_back_and_others_stay() {
    let (mut harness, ids) = with_dead(700);
    let alive = harness.put(0, 0, "alive");
    let order = harness.dead(None, 700);
    let task = harness.execute(order);
    assert_eq!((task.action, task.done, task.skipped, task.progress), ("redrive", 700, 0, Progress::Done));
    assert!(ids.iter().all(|&id| !harness.is_dead(id)));
    assert_eq!(harness.executor.queue.job(alive).unwrap().tube.as_str(), "t");
    let task = harness
        .execute(Order::Change(JobAction::Redrive(None), Selection::Jobs(vec![alive, ids[0]].into_iter())));
    assert_eq!((task.done, task.skipped, task.refusal), (0, 2, Some(ChangeRefusal::NotDead)));
}

#[test]
fn a_dead_job_that_finds_its_tube_full_stays_dead() {
    let (mut harness, ids) = with_dead(3);
    let rule = TubeRule { max_jobs: Some(2), ..TubeRule::new("source") };
    harness.executor.queue.set_tube_rules(vec![rule], harness.now);
    let order = harness.dead(None, 3);
    let task = harness.execute(order);
    assert_eq!((task.done, task.skipped, task.refusal), (2, 1, Some(PutRefusal::TubeFull.into())));
    assert_eq!(ids.iter().filter(|&&id| harness.is_dead(id)).count(), 1);
}

#[test]
fn a_refused_put_counts_at_the_server_unless_its_tube_is_full() {
    let mut harness = Harness::new();
    harness.executor.queue.set_tube_rules(vec![TubeRule { max_jobs: Some(1), ..TubeRule::new("t") }], NOW);
    let put = |body: &[u8]| {
        Order::Put(PutOrder {
            tube: TubeName::parse(b"t").unwrap(),
            body: Body::copy_of(body).unwrap(),
            priority: Priority(0),
            delay_s: 0.into(),
            ttr_s: 60.into(),
            tags: Vec::new(),
        })
    };
    assert_eq!(harness.execute(put(b"x")).progress, Progress::Done);
    assert_eq!(harness.execute(put(b"x")).progress, Progress::Failed(PutRefusal::TubeFull.into()));
    assert_eq!(harness.executor.counters.refused_puts.total, 0);
    assert_eq!(harness.executor.queue.tube("t", harness.now).unwrap().rejected, 1);
    harness.executor.set_draining(true);
    assert_eq!(harness.execute(put(b"x")).progress, Progress::Failed(PutRefusal::Draining.into()));
    assert_eq!(harness.executor.counters.refused_puts.total, 1);
    assert_eq!(
        harness.execute(put(&[b'x'; 65_536])).progress,
        Progress::Failed(PutRefusal::JobTooBig.into())
    );
    assert_eq!(harness.executor.counters.refused_puts.total, 2);
}

#[test]
fn a_move_needs_as_much_memory_as_the_command() {
    let mut harness = Harness::new();
    let id = harness.put(0, 0, "x");
    let existing = TubeName::default_tube();
    let order = || Order::Change(JobAction::Move(existing.clone()), Selection::Jobs(vec![id].into_iter()));
    harness.executor.watch_memory(|| true);
    assert_eq!(harness.execute(order()).progress, Progress::Failed(PutRefusal::OutOfMemory.into()));
    assert_eq!(harness.executor.queue.job(id).unwrap().tube.as_str(), "t");
    harness.executor.watch_memory(|| false);
    assert_eq!(harness.execute(order()).done, 1);
    assert_eq!(harness.executor.queue.job(id).unwrap().tube.as_str(), existing.as_str());
}

#[test]
fn a_rate_is_kept_whatever_the_turns_are_and_waits_without_turns() {
    for (rate, step_ns) in
        [(1, 700_000_000), (10, 1), (10, 37_000_000), (1000, 1_000_000), (1000, 900_000_000)]
    {
        let (mut harness, ids) = with_dead(50);
        let began_at = harness.now;
        let order = harness.dead(Some(rate), 50);
        let task = harness.executor.order(order, harness.now).unwrap();
        let burst = 2 + u64::from(rate) / 10;
        while !harness.task(task).is_over() {
            harness.slice();
            let left = ids.iter().filter(|&&id| harness.is_dead(id)).count() as u64;
            let allowed = harness.now.since_ns(began_at) * u64::from(rate) / NS_PER_S + burst;
            assert!(50 - left <= allowed, "{} in {} ns", 50 - left, harness.now.since_ns(began_at));
            if !harness.executor.has_orders() && !harness.task(task).is_over() {
                let next =
                    harness.executor.next_order_at().expect("the order has a time at which it continues");
                assert!(next > harness.now, "no turn comes for nothing");
                harness.now = next + step_ns;
            }
        }
        assert_eq!(harness.task(task).done, 50);
        assert_eq!(harness.executor.next_order_at(), None);
        let least_ns = 50_u64.saturating_sub(burst) * NS_PER_S / u64::from(rate);
        assert!(harness.now.since_ns(began_at) >= least_ns, "it has taken its time");
    }
}

#[test]
fn an_order_that_waits_for_its_rate_can_be_stopped() {
    for by_hand_over in [false, true] {
        let (mut harness, ids) = with_dead(5);
        let order = harness.dead(Some(1), 5);
        let task = harness.executor.order(order, harness.now).unwrap();
        harness.slice();
        let are_running = |harness: &Harness| harness.executor.orders.as_ref().unwrap().are_running();
        assert!(!harness.executor.has_orders() && are_running(&harness), "it waits");
        harness.executor.wake_orders();
        assert!(!harness.executor.has_orders(), "it does not wait for room in the log");
        if by_hand_over {
            harness.executor.stop_waiting_orders();
        } else {
            harness.executor.stop(task);
        }
        while harness.executor.has_orders() {
            harness.slice();
        }
        assert_eq!((harness.task(task).progress, harness.task(task).done), (Progress::Stopped, 1));
        assert!(!are_running(&harness));
        assert_eq!(ids.iter().filter(|&&id| harness.is_dead(id)).count(), 4);
    }
}

#[test]
fn a_flush_has_a_client_until_it_ends_or_is_stopped() {
    for stop in [false, true] {
        let mut harness = Harness::new();
        for _ in 0..3000 {
            harness.put(0, 0, "x");
        }
        let flush = Order::Flush(TubeName::parse(b"t").unwrap(), FlushScope::All);
        let id = harness.executor.order(flush, harness.now).unwrap();
        harness.slice();
        harness.slice();
        assert_eq!(harness.executor.queue.figures().clients, 1, "the client of the order is not counted");
        if stop {
            harness.executor.stop(id);
        }
        while harness.executor.has_orders() {
            harness.slice();
        }
        let (task, left) = (harness.task(id), harness.executor.queue.figures().jobs.total() as u64);
        assert_eq!(task.done + left, 3000);
        assert_eq!(task.progress, if stop { Progress::Stopped } else { Progress::Done });
        assert_eq!(left > 0, stop);
        assert_eq!(harness.executor.queue.figures().clients, 1);
    }
}

fn new(tube: &TubeName, bytes: usize, priority: u32, tags: TagSet<'_>) -> crate::orders::PutOrder {
    let mut encoded = Vec::new();
    JobTags::from(tags).encode(&mut encoded).unwrap();
    crate::orders::PutOrder {
        tube: tube.clone(),
        body: Body::from(vec![0; bytes]),
        priority: Priority(priority),
        delay_s: 0.into(),
        ttr_s: 0.into(),
        tags: encoded,
    }
}

#[test]
fn an_order_to_put_a_job_with_a_key_in_use_names_the_first_job_and_stores_nothing() {
    let mut harness = Harness::new();
    let tube = TubeName::parse(b"t").unwrap();
    let key = Idempotency { key: "k".try_into().unwrap(), cooldown_s: 60.into() };
    let tags = TagSet { idempotency: Some(key), ..TagSet::default() };
    let first = harness.execute(Order::Put(new(&tube, 1, 5, tags)));
    assert_eq!((first.progress, first.done, first.skipped), (Progress::Done, 1, 0));
    let id = first.job.unwrap();
    for priority in [9, 3] {
        let again = harness.execute(Order::Put(new(&tube, 2, priority, tags)));
        assert_eq!((again.progress, again.job, again.done, again.skipped), (Progress::Done, Some(id), 0, 1));
    }
    assert_eq!(harness.executor.queue.figures().jobs.total(), 1);
    assert_eq!(harness.executor.queue.job(id).unwrap().record.priority, Priority(3), "the more urgent one");
    harness.execute(Order::Change(JobAction::Delete, Selection::Jobs(vec![id].into_iter())));
    let later = harness.execute(Order::Put(new(&tube, 1, 5, tags)));
    assert_eq!((later.done, later.skipped), (1, 0), "an order frees the key at once, as a flush does");
}

#[test]
fn an_order_forgets_the_keys_of_deleted_jobs_and_leaves_the_jobs() {
    let mut harness = Harness::new();
    let tube = TubeName::parse(b"t").unwrap();
    let key = Idempotency { key: "k".try_into().unwrap(), cooldown_s: 60.into() };
    let tags = TagSet { idempotency: Some(key), ..TagSet::default() };
    let first = harness.execute(Order::Put(new(&tube, 1, 5, tags))).job.unwrap();
    assert!(harness.executor.queue.delete(harness.client, first, harness.now).is_some());
    harness.execute(Order::Put(new(&tube, 1, 5, TagSet::default())));
    assert_eq!(harness.executor.queue.figures().cooldowns.count, 1);
    let forgotten = harness.execute(Order::Flush(tube.clone(), FlushScope::Cooldowns));
    assert_eq!((forgotten.progress, forgotten.done), (Progress::Done, 1));
    assert_eq!(
        (harness.executor.queue.figures().cooldowns.count, harness.executor.queue.figures().jobs.total()),
        (0, 1)
    );
    let again = harness.execute(Order::Put(new(&tube, 1, 5, tags)));
    assert_eq!((again.done, again.skipped), (1, 0), "the key is free");
}

#[test]
fn an_order_for_a_missing_tube_fails_and_changes_nothing() {
    let mut harness = Harness::new();
    let nothing = TubeName::parse(b"nothing").unwrap();
    for order in
        [Order::Pause(nothing.clone(), Seconds::ONE), Order::Flush(nothing.clone(), FlushScope::Buried)]
    {
        assert_eq!(harness.execute(order).progress, Progress::Failed(ChangeRefusal::NoTube));
    }
    let new = |bytes: usize| new(&nothing, bytes, 1, TagSet::default());
    assert_eq!(
        harness.execute(Order::Put(new(70_000))).progress,
        Progress::Failed(PutRefusal::JobTooBig.into())
    );
    harness.execute(Order::Drain(true));
    assert_eq!(harness.execute(Order::Put(new(1))).progress, Progress::Failed(PutRefusal::Draining.into()));
    assert!(harness.executor.queue.tube_name("nothing").is_none());
    harness.execute(Order::Drain(false));
    let task = harness.execute(Order::Put(new(1)));
    assert_eq!(harness.executor.queue.job(task.job.unwrap()).unwrap().tube, &nothing);
    assert_eq!(harness.executor.queue.figures().clients, 1);
}

#[test]
fn a_job_that_waited_for_room_is_changed_even_at_the_end_of_a_turn() {
    for left in 0..4 {
        let mut harness = Harness::new();
        let ids: Vec<_> = (0..3).map(|_| harness.put(1, 0, "x")).collect();
        let order = Order::Change(JobAction::Kick, Selection::Jobs(Vec::new().into_iter()));
        let task = harness.executor.order(order, harness.now).unwrap();
        // The same state as when the log had no room for the first job.
        let mut jobs = ids.clone().into_iter();
        let awaiting_room = jobs.next();
        let (action, jobs) = (JobAction::Priority(Priority(9)), Selection::Jobs(jobs));
        let order = JobsOrder { action, jobs, came_at: harness.now, awaiting_room, pace: None };
        let end = harness.executor.measured_cost() + left;
        let orders = harness.executor.orders.as_mut().unwrap();
        let mut running = orders.running.pop_front().unwrap();
        running.continuation = Continuation::new(|executor, caller| executor.change_jobs(caller, order));
        harness.executor.continue_order(running, end, harness.now);
        while harness.executor.has_orders() {
            harness.slice();
        }
        let task = harness.task(task);
        assert_eq!((task.done, task.skipped, task.progress), (3, 0, Progress::Done), "{left} left");
        for id in ids {
            assert_eq!(harness.executor.queue.job(id).unwrap().record.priority, Priority(9), "{left} left");
        }
    }
}

use super::*;
use crate::clock::NS_PER_S;
use crate::job::{Priority, SHARED_FROM_BYTES};
use crate::queue::{Delivery, PoisonLimits, Reserve, WaitOutcome};
use crate::tags::{After, Concurrency, Idempotency};

const NOW: Timestamp = Timestamp(1_700_000_000 * NS_PER_S);

fn con(key: &str, limit: u32) -> TagSet<'_> {
    TagSet { concurrency: Some(Concurrency { key, limit }), ..TagSet::default() }
}

fn grp(name: &str) -> TagSet<'_> {
    TagSet { group: Some(name), ..TagSet::default() }
}

fn aft(name: &str) -> TagSet<'_> {
    TagSet { after: Some(After { group: name, is_free: false }), ..TagSet::default() }
}

fn put_body(queue: &mut Queue, client: ClientId, priority: u32, tags: TagSet<'_>, body: &[u8]) -> JobId {
    let new = NewJob { id: queue.take_id(), priority: Priority(priority), delay_s: 0, ttr_s: 10 };
    let body = Body::copy_of(body).unwrap();
    if tags.is_empty() {
        queue.put(client, new, body, NOW);
    } else {
        let mut bytes = Vec::new();
        tags.encode(&mut bytes).unwrap();
        queue.put_tagged(client, new, body, &mut bytes, NOW).unwrap();
    }
    new.id
}

fn put(queue: &mut Queue, client: ClientId, priority: u32, tags: TagSet<'_>) -> JobId {
    put_body(queue, client, priority, tags, b"x")
}

/// How many jobs a reserve of this tube can see.
fn visible(queue: &Queue, tube: &str) -> usize {
    queue.tubes.get(queue.tubes.find(tube).unwrap()).ready.len()
}

#[test]
fn a_reserve_sees_one_job_of_a_key_however_many_wait_and_none_once_it_is_used_up() {
    const JOBS: usize = 100_000;
    let mut queue = Queue::new(PoisonLimits::default());
    let (producer, worker, other) = (queue.connect(), queue.connect(), queue.connect());
    let ids: Vec<JobId> = (0..JOBS).map(|_| put(&mut queue, producer, 0, con("k", 1))).collect();
    assert_eq!((visible(&queue, "default"), queue.counts().ready), (1, JOBS as u64));
    assert_eq!(queue.reserve(worker, None, NOW), Reserve::Job(ids[0]));
    assert_eq!(visible(&queue, "default"), 0);
    let last = put(&mut queue, producer, 9, TagSet::default());
    let work = queue.work();
    assert_eq!(queue.reserve(other, Some(0), NOW), Reserve::Job(last), "the only one that may be reserved");
    assert_eq!(queue.reserve(other, Some(0), NOW), Reserve::TimedOut);
    assert!(!queue.reserve_job(other, ids[1], NOW), "nor by its id");
    assert_eq!(queue.work(), work, "nothing is passed over");
    assert!(queue.delete(worker, ids[0], NOW).is_some());
    assert!(queue.work() <= work + 2, "one job takes the place");
    assert_eq!(queue.reserve(other, Some(0), NOW), Reserve::Job(ids[1]));
    assert_eq!(queue.first_ready(producer), Some(ids[2]), "whoever looks sees the parked ones");
    queue.check_invariants();
}

#[test]
fn a_free_place_costs_a_step_for_each_tube_and_goes_to_the_most_urgent_job() {
    const TUBES: u32 = 1_000;
    let mut queue = Queue::new(PoisonLimits::default());
    let (producer, worker) = (queue.connect(), queue.connect());
    for tube in 0..TUBES {
        queue.use_tube(producer, &format!("t{tube}"));
        put(&mut queue, producer, TUBES - tube, con("k", 1));
        put(&mut queue, producer, 0, con("k", 2));
    }
    let first = put(&mut queue, producer, 0, con("k", 1));
    assert!(queue.reserve_job(worker, first, NOW));
    let workers: Vec<ClientId> = (0..3).map(|_| queue.connect()).collect();
    for &worker in &workers {
        for tube in [3, 998, 5] {
            queue.watch(worker, &format!("t{tube}"));
        }
    }
    let reserve = |queue: &mut Queue, worker| match queue.reserve(worker, None, NOW) {
        Reserve::Job(id) => Some(queue.job(id).unwrap().record.priority.0),
        other => {
            assert_eq!(other, Reserve::Waiting);
            None
        }
    };
    assert_eq!(reserve(&mut queue, workers[0]), Some(0), "its limit is 2");
    assert_eq!(reserve(&mut queue, workers[1]), None);
    queue.check_invariants();
    let work = queue.work();
    assert!(queue.delete(worker, first, NOW).is_some());
    assert!(queue.work() - work <= u64::from(2 * TUBES) + 64, "{}", queue.work() - work);
    let Some(Delivery { client, outcome: WaitOutcome::Reserved(id) }) = queue.poll_delivery() else {
        panic!("the place goes to whoever waits")
    };
    assert_eq!((client, queue.job(id).unwrap().record.priority.0), (workers[1], 0));
    queue.check_invariants();
}

#[test]
fn the_jobs_of_a_group_are_let_go_in_slices_and_a_new_member_does_not_hold_them_again() {
    const HELD: u64 = 100_000;
    let mut queue = Queue::new(PoisonLimits::default());
    let client = queue.connect();
    let member = put(&mut queue, client, 0, grp("g"));
    for _ in 0..HELD {
        put(&mut queue, client, 0, aft("g"));
    }
    assert_eq!((queue.counts().delayed, queue.group("g").unwrap().waiting), (HELD, HELD));
    let before = queue.work();
    assert!(queue.delete(client, member, NOW).is_some());
    assert!(queue.work() - before <= 256 && queue.counts().delayed > HELD / 2);
    let next = put(&mut queue, client, 0, grp("g"));
    let late = put(&mut queue, client, 0, aft("g"));
    let mut written = Vec::new();
    queue.write_tags(JobId(HELD), &mut written);
    assert!(TagSet::decode(&written).unwrap().after.unwrap().is_free, "the log knows that it is free");
    let mut calls = 0;
    while queue.next_deadline() == Some(Timestamp::default()) {
        let before = queue.work();
        queue.advance(NOW);
        assert!(queue.work() - before <= 2_048);
        calls += 1;
    }
    assert!(calls > 50, "{calls} slices are too few");
    assert_eq!((queue.counts().ready, queue.counts().delayed), (HELD + 1, 1));
    assert!(queue.is_held(late) && !queue.is_kickable(late));
    assert!(queue.delete(client, next, NOW).is_some());
    assert!(!queue.is_held(late));
    queue.check_invariants();
}

#[test]
fn a_held_job_is_deleted_moved_and_flushed_while_others_of_its_group_are_let_go() {
    let mut queue = Queue::new(PoisonLimits::default());
    let shares = crate::queue::Shares { given_back: 1, ..crate::queue::Shares::default() };
    queue.set_shares(shares);
    let client = queue.connect();
    let member = put(&mut queue, client, 0, grp("g"));
    let held: Vec<JobId> = (0..6).map(|_| put(&mut queue, client, 0, aft("g"))).collect();
    assert!(queue.delete(client, member, NOW).is_some());
    assert_eq!(queue.counts().ready, 1);
    assert!(queue.delete(client, held[1], NOW).is_some());
    queue.move_job(held[2], "other", NOW);
    assert!(!queue.is_held(held[2]));
    drop(queue.flush_job(held[3], NOW));
    queue.check_invariants();
    while queue.next_deadline() == Some(Timestamp::default()) {
        queue.advance(NOW);
        queue.check_invariants();
    }
    assert_eq!((queue.counts().ready, queue.counts().delayed), (4, 0));
}

#[test]
fn tags_of_large_bodies_are_kept_beside_them_and_do_the_same() {
    let mut queue = Queue::new(PoisonLimits::default());
    let client = queue.connect();
    let tags = TagSet {
        idempotency: Some(Idempotency { key: "k", cooldown_s: 5 }),
        after: Some(After { group: "g", is_free: false }),
        ..con("c", 1)
    };
    let member = put(&mut queue, client, 0, grp("g"));
    for len in [0, SHARED_FROM_BYTES - 1, SHARED_FROM_BYTES, 100_000] {
        let (body, member) =
            (vec![b'b'; len], if len == 0 { member } else { put(&mut queue, client, 9, grp("g")) });
        let id = put_body(&mut queue, client, 0, tags, &body);
        assert!(queue.is_held(id));
        assert_eq!(queue.duplicate(client, &tags, NOW), Some(Duplicate::Of(id, JobState::Delayed)));
        assert!(queue.delete(client, member, NOW).is_some());
        let job = queue.job(id).unwrap();
        assert_eq!((job.body.as_slice(), job.body.len()), (&*body, len));
        assert!(job.tags.unwrap().after.unwrap().is_free);
        queue.check_invariants();
        assert!(queue.delete(client, id, NOW).is_some());
        assert_eq!(queue.duplicate(client, &tags, NOW), Some(Duplicate::OfDeleted(id)));
        queue.advance(NOW.plus_seconds(5));
        assert_eq!(queue.duplicate(client, &tags, NOW), None);
        queue.check_invariants();
    }
    assert_eq!(queue.tagged.bytes(), 0, "nothing is left");
}

#[test]
fn a_restart_gives_back_keys_cooldowns_holds_and_expiries() {
    let mut queue = Queue::new(PoisonLimits::default());
    let client = queue.connect();
    let record = |id, state, deadline_at: Timestamp, reserves| JobRecord {
        id: JobId(id),
        priority: Priority(0),
        delay_s: 0,
        ttr_s: 1,
        created_at: NOW,
        deadline_at,
        counters: crate::job::Counters { reserves, ..crate::job::Counters::default() },
        state,
    };
    let restore = |queue: &mut Queue, record: JobRecord, tags: TagSet<'_>| {
        let mut bytes = Vec::new();
        tags.encode(&mut bytes).unwrap();
        queue.restore_tagged(&record, "default", Body::copy_of(b"x").unwrap(), &bytes, NOW).unwrap();
    };
    let key = |key| Idempotency { key, cooldown_s: 0 };
    let unique = TagSet { idempotency: Some(key("k")), ..TagSet::default() };
    let expiring = TagSet { expires_after_s: Some(1), ..TagSet::default() };
    restore(
        &mut queue,
        record(1, JobState::Buried, Timestamp::default(), 0),
        TagSet { group: Some("g"), ..unique },
    );
    restore(&mut queue, record(2, JobState::Delayed, NOW, 0), aft("g"));
    restore(&mut queue, record(3, JobState::Delayed, NOW, 0), aft("gone"));
    restore(&mut queue, record(4, JobState::Ready, NOW, 0), expiring);
    restore(&mut queue, record(5, JobState::Reserved, NOW, 1), expiring);
    restore(&mut queue, record(7, JobState::Ready, NOW, 0), unique);
    queue.restore_cooldown(JobId(6), "quiet", "old", NOW.plus_seconds(5));
    queue.finish_restore();
    queue.advance(NOW);
    queue.check_invariants();
    assert!(queue.is_held(JobId(2)) && !queue.is_held(JobId(3)));
    assert_eq!(queue.duplicate(client, &unique, NOW), Some(Duplicate::Of(JobId(1), JobState::Buried)));
    queue.use_tube(client, "quiet");
    let old = TagSet { idempotency: Some(key("old")), ..TagSet::default() };
    assert_eq!(queue.duplicate(client, &old, NOW), Some(Duplicate::OfDeleted(JobId(6))));
    queue.advance(NOW.plus_seconds(2));
    assert!(queue.job(JobId(4)).is_none() && queue.job(JobId(5)).is_some(), "what was reserved stays");
    assert_eq!(queue.counters().expirations, 1);
    assert_eq!(queue.take_id(), JobId(8));
    queue.check_invariants();
}

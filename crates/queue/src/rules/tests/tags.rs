//! The rules for tags.

use super::put;
use crate::job::{JobRecord, Priority, SHARED_FROM_BYTES};
use crate::rules::*;
use crate::tags::{After, Idempotency, JobTags};
use crate::testing::{NOW, TestJob, con};
use crate::{AwaitedEnd, ClientId, CooldownSums, Duplicate, GroupView, WaitJob, WaitOutcome};

fn grp(name: &str) -> TagSet<'_> {
    TagSet { group: Some(name.try_into().unwrap()), ..TagSet::default() }
}

fn aft(name: &str) -> TagSet<'_> {
    TagSet { after: Some(After { group: name.try_into().unwrap(), is_free: false }), ..TagSet::default() }
}

#[test]
fn the_jobs_of_a_group_are_freed_in_slices_and_a_new_member_does_not_hold_them() {
    const HELD: u64 = 100_000;
    let mut queue = Queue::default();
    let client = queue.connect();
    let member = put(&mut queue, client, 0, grp("g"));
    for _ in 0..HELD {
        put(&mut queue, client, 0, aft("g"));
    }
    assert_eq!((queue.figures().jobs.delayed, queue.group("g").unwrap().waiting), (HELD, HELD));
    let before = queue.cost();
    assert!(queue.delete(client, member, NOW).is_some());
    assert!(queue.cost() - before <= 256 && queue.figures().jobs.delayed > HELD / 2);
    let next = put(&mut queue, client, 0, grp("g"));
    let late = put(&mut queue, client, 0, aft("g"));
    let mut room = Vec::new();
    let written = queue.tags_for_log(JobId(HELD), &mut room);
    assert!(JobTags::decode(written).unwrap().after.unwrap().is_free, "the log knows that it is free");
    let mut calls = 0;
    while queue.next_deadline() == Some(Timestamp::AT_ONCE) {
        let before = queue.cost();
        queue.advance(NOW);
        assert!(queue.cost() - before <= 2_048);
        calls += 1;
    }
    assert!(calls > 50, "{calls} slices are too few");
    assert_eq!((queue.figures().jobs.ready, queue.figures().jobs.delayed), (HELD + 1, 1));
    assert!(queue.is_held(late) && !queue.is_kickable(late));
    assert!(!queue.reserve_job(client, late, NOW), "no client gets a held job by its id");
    assert!(queue.delete(client, next, NOW).is_some());
    assert!(!queue.is_held(late));
    queue.check_invariants();
}

#[test]
fn buried_members_count_in_their_group_until_they_are_kicked_or_deleted() {
    let mut queue = Queue::default();
    let client = queue.connect();
    let ids = [0, 0].map(|priority| put(&mut queue, client, priority, grp("g")));
    for id in ids {
        assert!(queue.reserve_job(client, id, NOW));
        queue.bury(client, id, Priority(0), NOW);
    }
    assert_eq!(queue.group("g").unwrap().buried, 2);
    assert!(queue.kick(ids[0], NOW));
    assert_eq!(queue.group("g").unwrap().buried, 1);
    assert!(queue.delete(client, ids[1], NOW).is_some());
    assert_eq!(queue.group("g").unwrap().buried, 0);
}

#[test]
fn a_client_that_waits_for_a_job_without_tags_gets_the_answer_at_its_burial_or_end() {
    let mut queue = Queue::default();
    let [worker, waiting] = [(); 2].map(|()| queue.connect());
    let id = TestJob::default().put(&mut queue, worker, NOW);
    let outcome_of = |queue: &mut Queue, change: fn(&mut Queue, ClientId, JobId)| {
        assert_eq!(queue.wait_job(waiting, id, None, NOW), WaitJob::Waiting);
        change(queue, worker, id);
        queue.poll_delivery().map(|delivery| delivery.outcome)
    };
    assert!(queue.reserve_job(worker, id, NOW));
    let buried = outcome_of(&mut queue, |queue, worker, id| queue.bury(worker, id, Priority(0), NOW));
    assert_eq!(buried, Some(WaitOutcome::Ended(id, AwaitedEnd::Buried)));
    assert!(queue.kick(id, NOW));
    let deleted = outcome_of(&mut queue, |queue, worker, id| drop(queue.delete(worker, id, NOW)));
    assert_eq!(deleted, Some(WaitOutcome::Ended(id, AwaitedEnd::Deleted)));
}

#[test]
fn a_held_job_is_deleted_moved_and_flushed_while_others_of_its_group_are_freed() {
    let slices = crate::Slices { given_back: 1, ..crate::Slices::default() };
    let mut queue = Queue::new(crate::PoisonLimits::default(), slices);
    let client = queue.connect();
    let member = put(&mut queue, client, 0, grp("g"));
    let held: Vec<JobId> = (0..6).map(|_| put(&mut queue, client, 0, aft("g"))).collect();
    assert!(queue.delete(client, member, NOW).is_some());
    assert_eq!(queue.figures().jobs.ready, 1);
    assert!(queue.delete(client, held[1], NOW).is_some());
    assert!(queue.move_job(held[2], "other", NOW));
    assert!(!queue.is_held(held[2]));
    drop(queue.flush_job(held[3], NOW));
    queue.check_invariants();
    while queue.next_deadline() == Some(Timestamp::AT_ONCE) {
        queue.advance(NOW);
        queue.check_invariants();
    }
    assert_eq!((queue.figures().jobs.ready, queue.figures().jobs.delayed), (4, 0));
}

#[test]
fn tags_of_large_bodies_are_kept_beside_them_and_do_the_same() {
    let mut queue = Queue::default();
    let client = queue.connect();
    let tags = TagSet {
        idempotency: Some(Idempotency { key: "k".try_into().unwrap(), cooldown_s: 5.into() }),
        after: Some(After { group: "g".try_into().unwrap(), is_free: false }),
        ..con("c", 1)
    };
    let member = put(&mut queue, client, 0, grp("g"));
    for len in [0, SHARED_FROM_BYTES - 1, SHARED_FROM_BYTES, 100_000] {
        let (body, member) =
            (vec![b'b'; len], if len == 0 { member } else { put(&mut queue, client, 9, grp("g")) });
        let id = TestJob { body: &body, tags, ..TestJob::default() }.put(&mut queue, client, NOW);
        assert!(queue.is_held(id));
        assert_eq!(queue.duplicate(client, None, &tags, NOW), Some(Duplicate::Of(id, JobState::Delayed)));
        assert!(queue.delete(client, member, NOW).is_some());
        let job = queue.job(id).unwrap();
        assert_eq!((job.body.as_slice(), job.body.len()), (&*body, len));
        assert!(job.tags.unwrap().after.unwrap().is_free);
        queue.check_invariants();
        assert!(queue.delete(client, id, NOW).is_some());
        assert_eq!(queue.duplicate(client, None, &tags, NOW), Some(Duplicate::OfDeleted(id)));
        queue.advance(NOW.plus_seconds(5));
        assert_eq!(queue.duplicate(client, None, &tags, NOW), None);
        queue.check_invariants();
    }
    assert_eq!(queue.rules.bytes(), queue.rules.groups.ended.bytes(), "nothing else is left");
}

#[test]
fn a_restart_gives_back_keys_cooldowns_holds_and_expiries() {
    let mut queue = Queue::default();
    let client = queue.connect();
    let record = |id, state, deadline_at: Timestamp, reserves| JobRecord {
        id: JobId(id),
        priority: Priority(0),
        delay_s: 0.into(),
        ttr_s: 1.into(),
        created_at: NOW,
        deadline_at,
        counters: crate::job::Counters { reserves, ..crate::job::Counters::default() },
        state,
    };
    let restore = |queue: &mut Queue, record: JobRecord, tags: TagSet<'_>| {
        let mut bytes = Vec::new();
        JobTags::from(tags).encode(&mut bytes).unwrap();
        queue.restore(&record, "default", Body::copy_of(b"x").unwrap(), &bytes, NOW).unwrap();
    };
    let key = |key: &'static str| Idempotency { key: key.try_into().unwrap(), cooldown_s: 0.into() };
    let unique = TagSet { idempotency: Some(key("k")), ..TagSet::default() };
    let expiring = TagSet { expires_after_s: Some(1.into()), ..TagSet::default() };
    restore(
        &mut queue,
        record(1, JobState::Buried, Timestamp::default(), 0),
        TagSet { group: Some("g".try_into().unwrap()), ..unique },
    );
    restore(&mut queue, record(2, JobState::Delayed, NOW, 0), aft("g"));
    restore(&mut queue, record(3, JobState::Delayed, NOW, 0), aft("gone"));
    restore(&mut queue, record(4, JobState::Ready, NOW, 0), expiring);
    restore(&mut queue, record(5, JobState::Reserved, NOW, 1), expiring);
    restore(&mut queue, record(7, JobState::Ready, NOW, 0), unique);
    queue.restore_cooldown(JobId(6), "quiet", "old", NOW.plus_seconds(5), NOW);
    queue.finish_restore(0, NOW);
    queue.advance(NOW);
    queue.check_invariants();
    assert!(queue.is_held(JobId(2)) && !queue.is_held(JobId(3)));
    assert_eq!(queue.duplicate(client, None, &unique, NOW), Some(Duplicate::Of(JobId(1), JobState::Buried)));
    queue.use_tube(client, "quiet");
    let old = TagSet { idempotency: Some(key("old")), ..TagSet::default() };
    assert_eq!(queue.duplicate(client, None, &old, NOW), Some(Duplicate::OfDeleted(JobId(6))));
    queue.advance(NOW.plus_seconds(2));
    assert!(queue.job(JobId(4)).is_none() && queue.job(JobId(5)).is_some(), "what was reserved stays");
    assert_eq!(queue.figures().events.expirations, 1);
    assert_eq!(queue.allocate_id(), JobId(8));
    queue.check_invariants();
}

/// The bytes that count for an owner after these puts, and after `then`.
fn owned(tags: &[TagSet<'_>], then: impl FnOnce(&mut Queue, ClientId, &[JobId])) -> u64 {
    let mut queue = Queue::default();
    let client = queue.connect();
    queue.use_tube(client, "t");
    let mut expected = 0;
    let ids: Vec<JobId> = tags
        .iter()
        .map(|&tags| {
            expected += queue.owned_bytes_of_put(client, None, 1, &tags);
            let job = TestJob { tags, owner: Some("me".try_into().unwrap()), ..TestJob::default() };
            let id = job.put(&mut queue, client, NOW);
            assert_eq!(queue.owned_bytes("me"), expected, "a put counts what it was said to");
            id
        })
        .collect();
    then(&mut queue, client, &ids);
    queue.check_invariants();
    queue.owned_bytes("me")
}

#[test]
fn the_tags_of_a_job_and_the_tubes_and_groups_that_it_makes_count_for_its_owner() {
    let long = "n".repeat(180);
    let idp = |cooldown_s| TagSet {
        idempotency: Some(Idempotency { key: (&*long).try_into().unwrap(), cooldown_s }),
        ..TagSet::default()
    };
    let plain = owned(&[TagSet::default()], |_, _, _| {});
    assert!((500..700).contains(&plain), "{plain}: a job and its tube");
    let second = owned(&[TagSet::default(); 2], |_, _, _| {}) - plain;
    assert!((129..200).contains(&second), "{second}: a job alone");
    for (tags, least) in [(idp(0.into()), 190), (con(&long, 1), 200), (grp(&long), 380), (idp(9.into()), 500)]
    {
        let more = owned(&[TagSet::default(), tags], |_, _, _| {}) - plain - second;
        assert!((least..least + 300).contains(&more), "{more} for {tags:?}");
        let left = owned(&[tags; 1], |queue, client, ids| _ = queue.delete(client, ids[0], NOW));
        let cooldown = if tags == idp(9.into()) { 192 + 180 } else { 0 };
        assert_eq!(left, cooldown, "what the job leaves behind of {tags:?}");
    }
    let ended = owned(&[idp(9.into())], |queue, client, ids| {
        queue.delete(client, ids[0], NOW);
        queue.advance(NOW.plus_seconds(9));
    });
    assert_eq!(ended, 0);
    let moved = owned(&[TagSet::default()], |queue, _, ids| assert!(queue.move_job(ids[0], "default", NOW)));
    assert_eq!(moved, second, "nobody has made the tube default");
}

#[test]
fn a_cooldown_is_no_longer_than_the_limit_and_has_its_bytes_from_the_put_on() {
    let mut queue = Queue::default();
    let client = queue.connect();
    let tags = TagSet {
        idempotency: Some(Idempotency { key: "key".try_into().unwrap(), cooldown_s: (u32::MAX).into() }),
        ..TagSet::default()
    };
    assert_eq!(queue.cooldown_bytes_with(&tags), 195);
    let id = put(&mut queue, client, 0, tags);
    assert_eq!((queue.figures().reserved_cooldown_bytes, queue.cooldown_bytes_with(&tags)), (195, 390));
    // The job was put before there was a limit.
    queue.limit_cooldowns(Some(60));
    assert!(queue.delete(client, id, NOW).is_some());
    assert_eq!(queue.figures().cooldowns, CooldownSums { count: 1, bytes: 195 });
    assert_eq!(queue.tube("default", NOW).unwrap().cooldowns, queue.figures().cooldowns);
    assert_eq!(queue.figures().reserved_cooldown_bytes, 0);
    queue.advance(NOW.plus_seconds(60));
    assert_eq!(queue.figures().cooldowns, CooldownSums::default());
    queue.check_invariants();
}

#[test]
fn a_thousand_groups_that_have_ended_are_remembered() {
    let mut queue = Queue::default();
    let client = queue.connect();
    for number in 0..1500 {
        let id = put(&mut queue, client, 0, grp(&format!("g{number}")));
        assert!(queue.delete(client, id, NOW).is_some());
        assert_eq!(queue.group("g475").is_some(), (475..1499).contains(&number), "{number}");
    }
    queue.check_invariants();
    assert_eq!(queue.group("g1499"), Some(GroupView { pending: 0, buried: 0, waiting: 0 }));
    assert_eq!(queue.group("none"), None);
    put(&mut queue, client, 0, grp("g1499"));
    assert_eq!(queue.group("g1499").map(|group| group.pending), Some(1));
}

#[test]
fn a_group_that_ends_again_is_the_last_to_be_forgotten() {
    let mut queue = Queue::default();
    let client = queue.connect();
    let mut end = |name: &str| {
        let id = put(&mut queue, client, 0, grp(name));
        assert!(queue.delete(client, id, NOW).is_some());
        queue.check_invariants();
        ["again", "once"].map(|name| queue.group(name).is_some())
    };
    for name in ["again", "once", "again"] {
        end(name);
    }
    for number in 0..1500 {
        let expected = [number < 1023, number < 1022];
        assert_eq!(end(&format!("g{number}")), expected, "{number}");
    }
}

#[test]
fn a_key_has_one_cooldown_in_a_tube_which_lasts_as_long_as_the_longest() {
    let mut queue = Queue::default();
    let client = queue.connect();
    let tags = |cooldown_s: u32| TagSet {
        idempotency: Some(Idempotency { key: "k".try_into().unwrap(), cooldown_s: cooldown_s.into() }),
        ..TagSet::default()
    };
    let mut last = JobId(0);
    for cooldown_s in [60, 90, 30] {
        queue.use_tube(client, "from");
        last = TestJob { tags: tags(cooldown_s), ..TestJob::default() }.put(&mut queue, client, NOW);
        assert!(queue.move_job(last, "to", NOW));
        queue.delete(client, last, NOW).expect("it is ready");
        queue.check_invariants();
    }
    queue.use_tube(client, "to");
    assert_eq!(queue.figures().cooldowns.count, 1);
    let end = NOW.plus_seconds(90);
    queue.advance(end.minus_ns(1));
    assert_eq!(queue.duplicate(client, None, &tags(0), end.minus_ns(1)), Some(Duplicate::OfDeleted(last)));
    queue.advance(end);
    assert_eq!(queue.duplicate(client, None, &tags(0), end), None);
}

#[test]
fn a_restored_cooldown_is_no_longer_than_the_limit() {
    let mut queue = Queue::default();
    queue.limit_cooldowns(Some(60));
    // The wall clock was set back by a year.
    queue.restore_cooldown(JobId(6), "default", "old", NOW.plus_seconds(31_536_000), NOW);
    assert_eq!(queue.next_deadline(), Some(NOW.plus_seconds(60)));
}

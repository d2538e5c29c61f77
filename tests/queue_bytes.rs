//! Whether `Queue::bytes`, which `--max-memory` limits, covers the memory that the queue allocates.

#![allow(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use beanstalkd_queue::{ClientId, NewJob, Queue, Rate, Reserve, TubeRule};
use beanstalkd_types::clock::Timestamp;
use beanstalkd_types::job::{Body, JobId, JobState, Priority};
use beanstalkd_types::tags::{After, Concurrency, EncodedTags, Idempotency, JobTags, TagSet};

const NOW: Timestamp = Timestamp(1_700_000_000_000_000_000);

/// The system's allocator, with a count of the bytes in use.
struct Counting(AtomicUsize);

// SAFETY: every call is passed on unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.0.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        self.0.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller's.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting(AtomicUsize::new(0));

fn in_use() -> usize {
    ALLOCATOR.0.load(Ordering::Relaxed)
}

fn put(queue: &mut Queue, client: ClientId) {
    let id = queue.allocate_id();
    let new = NewJob { id, priority: Priority(id.0 as u32 % 7), delay_s: 0.into(), ttr_s: 1_000.into() };
    queue.put(client, new, Body::copy_of(b"x").unwrap(), NOW);
}

fn put_tagged(queue: &mut Queue, client: ClientId, new: NewJob, body: Body, tags: TagSet<'_>) {
    let (mut bytes, tags) = (Vec::new(), JobTags::from(tags));
    tags.encode(&mut bytes).unwrap();
    queue.put_tagged(client, None, new, body, &EncodedTags::of(&bytes, tags), NOW).unwrap();
}

fn set_rules(queue: &mut Queue, rule: TubeRule) {
    queue.set_tube_rules(vec![rule], NOW);
    while queue.next_deadline() == Some(Timestamp::AT_ONCE) {
        queue.advance(NOW);
    }
}

/// Compares the bytes that are allocated for a queue after `fill` with the bytes that it counts, both above those of an
/// empty queue.
fn measure(name: &str, fill: fn(&mut Queue)) {
    let before = in_use();
    let mut queue = Queue::default();
    let empty = queue.bytes();
    fill(&mut queue);
    let (allocated, counted) = (in_use() - before, queue.bytes() - empty);
    println!("{name}: {allocated} bytes allocated, {counted} counted");
    assert!(allocated <= counted + 64 * 1024, "{name}: {allocated} bytes allocated, {counted} counted");
    assert!(counted < 8 * allocated, "{name}: {allocated} bytes allocated, {counted} counted");
}

type Tags = for<'a> fn(&'a str) -> TagSet<'a>;

fn idp(key: &str) -> TagSet<'_> {
    TagSet {
        idempotency: Some(Idempotency { key: key.try_into().unwrap(), cooldown_s: 0.into() }),
        ..TagSet::default()
    }
}

fn con(key: &str) -> TagSet<'_> {
    TagSet { concurrency: Some(Concurrency { key: key.try_into().unwrap(), limit: 1 }), ..TagSet::default() }
}

fn grp(name: &str) -> TagSet<'_> {
    TagSet { group: Some(name.try_into().unwrap()), ..TagSet::default() }
}

fn aft(name: &str) -> TagSet<'_> {
    TagSet { after: Some(After { group: name.try_into().unwrap(), is_free: false }), ..TagSet::default() }
}

fn exp(_: &str) -> TagSet<'_> {
    TagSet { expires_after_s: Some(1_000_000_000.into()), ..TagSet::default() }
}

fn four(name: &str) -> TagSet<'_> {
    TagSet {
        concurrency: con(name).concurrency,
        group: grp(name).group,
        expires_after_s: Some(1_000_000.into()),
        ..idp(name)
    }
}

/// The most that a job with one tag of 16 bytes may take beside its body, in bytes.
const MAX_WITH_A_TAG: usize = 110;

/// Jobs with one tag of 16 bytes each, of every kind, with as many different names as there are jobs, with one for ten
/// of them, and with the same for all.
fn tagged_jobs() {
    const JOBS: usize = 100_000;
    const BODY: &[u8] = b"0123456789";
    let kinds: [(&str, usize, Option<Tags>); 12] = [
        ("no tag", 1, None),
        ("idp", 1, Some(idp)),
        ("con, each its own", 1, Some(con)),
        ("con, one for ten", 10, Some(con)),
        ("con, the same", JOBS, Some(con)),
        ("grp, one for ten", 10, Some(grp)),
        ("grp, the same", JOBS, Some(grp)),
        ("aft, one for a hundred", 100, Some(aft)),
        ("aft, the same", JOBS, Some(aft)),
        ("exp", 1, Some(exp)),
        ("four, each its own", 1, Some(four)),
        ("four, one for ten", 10, Some(four)),
    ];
    for (kind, alike, tags) in kinds {
        let before = in_use();
        let mut queue = Queue::default();
        let (client, empty) = (queue.connect(), queue.bytes());
        let is_aft = kind.starts_with("aft");
        for job in 0..JOBS + if is_aft { JOBS / alike } else { 0 } {
            let is_member = is_aft && job < JOBS / alike;
            let name = format!("{:012}", if is_member { job } else { job / alike });
            let name =
                if is_aft && !is_member { format!("{:012}", (job - JOBS / alike) / alike) } else { name };
            let id = queue.allocate_id();
            let new = NewJob { id, priority: Priority(0), delay_s: 0.into(), ttr_s: 1_000.into() };
            let body = Body::copy_of(BODY).unwrap();
            let Some(tags) = (if is_member { Some(grp as Tags) } else { tags }) else {
                queue.put(client, new, body, NOW);
                continue;
            };
            put_tagged(&mut queue, client, new, body, tags(&name));
        }
        let (allocated, counted) = (in_use() - before, queue.bytes() - empty);
        let each = allocated / queue.figures().jobs.total() - BODY.len();
        println!(
            "{kind}: {each} bytes for a job beside its body, {} counted",
            counted / queue.figures().jobs.total() - BODY.len()
        );
        assert!(allocated <= counted + 64 * 1024, "{kind}: {allocated} bytes allocated, {counted} counted");
        assert!(each <= MAX_WITH_A_TAG || kind.starts_with("four"), "{kind}: {each} bytes for a job");
        let shown = queue.figures().job_bytes / queue.figures().jobs.total() - BODY.len();
        assert!(
            shown * 10 >= each * 9 && shown <= 2 * each,
            "{kind}: {each} bytes for a job, {shown} in job-bytes"
        );
    }
}

const RULED_TUBES: usize = 10_000;

/// The bytes that are allocated for tubes with this rule, and those that are counted. Each tube has a job, with a key
/// if `is_keyed`, or is watched after its job has gone, if `is_left`.
fn bytes_of_tubes(rule: Option<&TubeRule>, is_keyed: bool, is_left: bool) -> (usize, usize) {
    let before = in_use();
    let mut queue = Queue::default();
    if let Some(rule) = rule {
        set_rules(&mut queue, rule.clone());
    }
    let (client, empty) = (queue.connect(), queue.bytes());
    for tube in 0..RULED_TUBES {
        let name = format!("tube-{tube:05}");
        queue.use_tube(client, &name);
        queue.watch(client, &name);
        let id = queue.allocate_id();
        let new = NewJob { id, priority: Priority(0), delay_s: 0.into(), ttr_s: 1_000.into() };
        let body = Body::copy_of(b"x").unwrap();
        if is_keyed {
            put_tagged(&mut queue, client, new, body, con(&name));
        } else {
            queue.put(client, new, body, NOW);
        }
        if is_left {
            assert!(queue.reserve_job(client, id, NOW) && queue.delete(client, id, NOW).is_some());
        }
    }
    (in_use() - before, queue.bytes() - empty)
}

/// The memory that a rule adds to each tube is counted, and is not much more than counted.
fn ruled_tubes() {
    let rate = Some(Rate { tokens: 1, period_ns: 3_600_000_000_000, burst: 1 });
    let all = TubeRule::new("*");
    let kinds = [
        ("max-jobs", TubeRule { max_jobs: Some(9), ..all.clone() }),
        ("rate", TubeRule { rate, ..all.clone() }),
        ("max-age", TubeRule { max_age_s: Some(9), ..all.clone() }),
        ("fair", TubeRule { is_fair: true, ..all.clone() }),
        ("fair, max-age and rate", TubeRule { is_fair: true, max_age_s: Some(9), rate, ..all }),
    ];
    for (is_keyed, is_left) in [(false, false), (false, true), (true, false), (true, true)] {
        let plain = bytes_of_tubes(None, is_keyed, is_left);
        for (kind, rule) in &kinds {
            let ruled = bytes_of_tubes(Some(rule), is_keyed, is_left);
            let [allocated, counted] = [ruled.0 - plain.0, ruled.1 - plain.1].map(|more| more / RULED_TUBES);
            let name = format!("{kind}, with keys: {is_keyed}, jobs have gone: {is_left}");
            println!("{name}: {allocated} bytes more for a tube than without a rule, {counted} counted");
            let is_right = allocated <= counted && counted <= allocated / 8 * 9 + 32;
            assert!(is_right, "{name}: {allocated} bytes more for a tube, {counted} counted");
        }
    }
}

/// Whether the job with this id stays.
type Stays = fn(id: u64, k: u64) -> bool;

/// A number that looks like chance.
fn mixed(id: u64) -> u64 {
    let id = (id ^ id >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    id ^ id >> 29
}

/// Jobs of which few stay, in every pattern: what they leave behind counts, to an eighth. In one order each job that
/// goes is deleted before the next put, in the others when all are there, by age or at random.
fn jobs_of_which_few_stay() {
    let patterns: [(&str, Stays); 4] = [
        ("every k-th", |id, k| id.is_multiple_of(k)),
        ("the last of k", |id, k| id % k == k - 1),
        ("one of k at random", |id, k| mixed(id).is_multiple_of(k)),
        ("runs of nine", |id, k| id % (9 * k) < 9),
    ];
    for (pattern, stays) in patterns {
        for k in [1, 2, 3, 5, 8, 9, 16, 33, 63, 64, 65, 100, 146, 300, 455, 999, 1_000] {
            for order in ["at once", "by age", "at random"] {
                let before = in_use();
                let mut queue = Queue::default();
                let (client, empty) = (queue.connect(), queue.bytes());
                let count = 10_000 + 150 * k;
                let mut gone: Vec<u64> = Vec::new();
                for id in 1..=count {
                    put(&mut queue, client);
                    if order != "at once" && !stays(id, k) {
                        gone.push(id);
                    } else if !stays(id, k) {
                        assert!(queue.delete(client, JobId(id), NOW).is_some());
                    }
                }
                if order == "at random" {
                    gone.sort_unstable_by_key(|&id| mixed(id + 7));
                }
                gone.iter().for_each(|&id| assert!(queue.delete(client, JobId(id), NOW).is_some()));
                drop(gone);
                let (allocated, counted) = (in_use() - before, queue.bytes() - empty);
                let (left, name) = (queue.figures().jobs.total(), format!("{pattern}, k = {k}, {order}"));
                println!("{name}: {left} jobs, {allocated} bytes allocated, {counted} counted");
                assert!(allocated <= counted / 8 * 9 + 64 * 1024, "{name}: {allocated}, {counted} counted");
                // The records of jobs that went together stand in chunks, and one that stays keeps its chunk.
                let most = if order == "at once" { 180 } else { 180 + 60 * k.min(146) as usize };
                assert!(allocated <= most * left + 64 * 1024, "{name}: {} each", allocated / left);
            }
        }
    }
}

fn watch(queue: &mut Queue, client: ClientId, tubes: usize) {
    (0..tubes).for_each(|tube| _ = queue.watch(client, &format!("tube-{tube}")));
}

/// This is one test, because the memory in use is that of the whole process.
#[test]
fn counted_bytes_cover_allocated_bytes() {
    measure("a client that watches 30,000 tubes", |queue| {
        let client = queue.connect();
        watch(queue, client, 30_000);
    });
    measure(
        "ten clients that watch the same 3,000 tubes with jobs; one of them has tried to reserve",
        |queue| {
            let producer = queue.connect();
            let clients: Vec<ClientId> = (0..10).map(|_| queue.connect()).collect();
            clients.iter().for_each(|&client| watch(queue, client, 3_000));
            for tube in 0..3_000 {
                queue.use_tube(producer, &format!("tube-{tube}"));
                put(queue, producer);
            }
            while queue.reserve(clients[0], None, NOW) == Reserve::Unfinished {}
        },
    );
    measure("ten clients that watch the same 3,000 tubes, which have jobs already", |queue| {
        let producer = queue.connect();
        for tube in 0..3_000 {
            queue.use_tube(producer, &format!("tube-{tube}"));
            put(queue, producer);
        }
        for _ in 0..10 {
            let client = queue.connect();
            watch(queue, client, 3_000);
        }
    });
    measure("2,000 clients that watch 16 tubes and wait", |queue| {
        for _ in 0..2_000 {
            let client = queue.connect();
            watch(queue, client, 15);
            assert_eq!(queue.reserve(client, Some(9.into()), NOW), Reserve::Waiting);
        }
    });
    measure("2,000 clients that watch 20 tubes and wait", |queue| {
        for _ in 0..2_000 {
            let client = queue.connect();
            watch(queue, client, 19);
            assert_eq!(queue.reserve(client, Some(9.into()), NOW), Reserve::Waiting);
        }
    });
    measure("a client that has reserved 30,000 jobs", |queue| {
        let client = queue.connect();
        for _ in 0..30_000 {
            put(queue, client);
            assert!(matches!(queue.reserve(client, None, NOW), Reserve::Job(_)));
        }
    });
    measure("5,000 tubes of which a job was reserved and deleted, of which 4,096 have times", |queue| {
        let client = queue.connect();
        for tube in 0..5_000 {
            queue.use_tube(client, &format!("tube-{tube}"));
            put(queue, client);
            put(queue, client);
            let id = queue.peek(client, JobState::Ready).unwrap();
            assert!(queue.reserve_job(client, id, NOW) && queue.delete(client, id, NOW).is_some());
        }
        assert_eq!(queue.tubes_from(0, NOW).filter(|tube| tube.times.is_some()).count(), 4_096);
    });
    measure("30,000 tubes with a job each", |queue| {
        let client = queue.connect();
        for tube in 0..30_000 {
            queue.use_tube(client, &format!("tube-{tube}"));
            put(queue, client);
        }
    });
    measure("30,000 tubes with a job and a rule each", |queue| {
        set_rules(queue, TubeRule { max_jobs: Some(9), ..TubeRule::new("*") });
        let client = queue.connect();
        for tube in 0..30_000 {
            queue.use_tube(client, &format!("tube-{tube}"));
            put(queue, client);
        }
    });
    measure("30,000 jobs of a tube with max-age", |queue| {
        set_rules(queue, TubeRule { max_age_s: Some(9), ..TubeRule::new("*") });
        let client = queue.connect();
        (0..30_000).for_each(|_| put(queue, client));
    });
    measure("30,000 jobs without a key of a fair tube", |queue| {
        set_rules(queue, TubeRule { is_fair: true, ..TubeRule::new("*") });
        let client = queue.connect();
        (0..30_000).for_each(|_| put(queue, client));
    });
    measure("30,000 jobs with 30,000 keys of a fair tube", |queue| {
        set_rules(queue, TubeRule { is_fair: true, ..TubeRule::new("*") });
        let client = queue.connect();
        for number in 0..30_000 {
            let key = format!("key-{number}");
            let id = queue.allocate_id();
            let new = NewJob { id, priority: Priority(0), delay_s: 0.into(), ttr_s: 1_000.into() };
            put_tagged(queue, client, new, Body::copy_of(b"x").unwrap(), con(&key));
        }
    });
    measure("30,000 cooldowns", |queue| {
        let client = queue.connect();
        for number in 0..30_000 {
            let key = format!("{number:0>100}");
            let id = queue.allocate_id();
            let new = NewJob { id, priority: Priority(0), delay_s: 0.into(), ttr_s: 1_000.into() };
            let tags = TagSet {
                idempotency: Some(Idempotency { key: (&*key).try_into().unwrap(), cooldown_s: 60.into() }),
                ..TagSet::default()
            };
            put_tagged(queue, client, new, Body::copy_of(b"x").unwrap(), tags);
            assert!(queue.delete(client, id, NOW).is_some());
        }
    });
    ruled_tubes();
    tagged_jobs();
    jobs_of_which_few_stay();
    // Removed tubes leave places in registries, a small part of the bytes that were counted for them.
    let before = in_use();
    let mut queue = Queue::default();
    let client = queue.connect();
    watch(&mut queue, client, 30_000);
    (0..30_000).for_each(|tube| _ = queue.ignore(client, &format!("tube-{tube}")));
    let left = in_use() - before;
    assert!(left < 30_000 * 48, "{left} bytes are left of 30,000 tubes");
}

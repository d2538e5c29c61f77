//! Scans of the jobs in a state: their results, and the work of each call.

use super::*;
use crate::clock::NS_PER_S;
use crate::job::{Body, JobId, JobState, Priority};
use crate::orders::selection::{AsOf, Filter, JobWalk, WalkBudget, WalkStep};
use crate::queue::{ClientId, NewJob, Reserve};
use crate::tags::{EncodedTags, JobTags, TagFilter, TagSet};
use crate::tube_name::TubeName;

const NOW: Timestamp = Timestamp(1_700_000_000 * NS_PER_S);

struct Tube {
    queue: Queue,
    client: ClientId,
}

impl Tube {
    fn new() -> Self {
        let mut queue = Queue::default();
        let client = queue.connect();
        Self { queue, client }
    }

    fn put(&mut self, priority: u32, delay_s: u32, body: &[u8], at: Timestamp) -> JobId {
        let id = self.queue.allocate_id();
        self.put_as(id, (priority, delay_s), body, at);
        id
    }

    /// A put that has taken its id before.
    fn put_as(&mut self, id: JobId, (priority, delay_s): (u32, u32), body: &[u8], at: Timestamp) {
        let new = NewJob { id, priority: Priority(priority), delay_s: delay_s.into(), ttr_s: 100.into() };
        self.queue.put(self.client, new, Body::copy_of(body).unwrap(), at);
    }

    fn all(&self) -> Filter {
        Filter::all(AsOf { next_id: self.queue.next_id(), at: NOW })
    }

    /// The result of a scan, and the number of calls. Each call does at most its budget.
    fn find(&self, state: JobState, filter: Filter, budget: WalkBudget) -> (Vec<JobId>, usize) {
        let (mut found, mut calls) = (Vec::new(), 0);
        let mut walk = JobWalk::new(TubeName::default_tube(), state, filter, None);
        loop {
            calls += 1;
            let (mut left, before) = (budget, walk.probed());
            loop {
                match walk.next(&self.queue, &mut left) {
                    WalkStep::Job(id) => found.push(id),
                    WalkStep::Unfinished => break,
                    WalkStep::Done => return (found, calls),
                }
            }
            assert!(walk.probed() - before <= budget.jobs as u64, "no more jobs than its budget");
        }
    }
}

#[test]
fn every_state_is_walked_in_shares() {
    let mut tube = Tube::new();
    for number in 0..3000 {
        tube.put(number % 7, (number % 3) * 50, b"x", NOW);
    }
    for _ in 0..500 {
        let Reserve::Job(id) = tube.queue.reserve(tube.client, Some(0.into()), NOW) else {
            panic!("a job is ready")
        };
        if id.0 % 2 == 0 {
            tube.queue.bury(tube.client, id, Priority(1), NOW);
        }
    }
    let counts = tube.queue.figures().jobs;
    for (state, count) in [
        (JobState::Ready, counts.ready),
        (JobState::Reserved, counts.reserved),
        (JobState::Delayed, counts.delayed),
        (JobState::Buried, counts.buried),
    ] {
        let (mut found, calls) = tube.find(state, tube.all(), WalkBudget { jobs: 16, bytes: 1000 });
        assert_eq!(found.len() as u64, count, "{state:?}");
        assert!(calls as u64 > count / 16, "{state:?}: {calls} calls");
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len() as u64, count, "{state:?}: each once");
    }
}

#[test]
fn a_job_that_moves_does_not_move_the_cursor() {
    let mut tube = Tube::new();
    let ids: Vec<JobId> = (0..50).map(|_| tube.put(5, 0, b"x", NOW)).collect();
    let walk_after =
        |tube: &Tube, after| JobWalk::new(TubeName::default_tube(), JobState::Ready, tube.all(), after);
    let (mut walk, mut left) = (walk_after(&tube, None), WalkBudget::TURN);
    for &id in &ids[..9] {
        assert_eq!(walk.next(&tube.queue, &mut left), WalkStep::Job(id));
    }
    assert!(tube.queue.set_priority(ids[9], Priority(9), NOW));
    assert_eq!(walk.next(&tube.queue, &mut left), WalkStep::Job(ids[9]), "it is on the page");
    let mut rest = walk_after(&tube, walk.cursor().map(|cursor| cursor.position));
    assert_eq!(rest.next(&tube.queue, &mut left), WalkStep::Job(ids[10]));
}

#[test]
fn a_filter_selects_the_jobs_that_match_it() {
    let mut tube = Tube::new();
    let old = tube.put(1, 0, b"apple pie", Timestamp(NOW.0 - 100 * NS_PER_S));
    let young = tube.put(2, 0, b"apple", Timestamp(NOW.0 - 10 * NS_PER_S));
    let all = tube.all();
    let late = tube.put(3, 0, b"apple", NOW);
    let find = |filter| tube.find(JobState::Ready, filter, WalkBudget::TURN).0;
    assert_eq!(find(all.clone()), [old, young]);
    assert_eq!(find(tube.all()), [old, young, late]);
    assert_eq!(find(Filter { older_than_s: Some(100), ..all.clone() }), [old]);
    assert_eq!(find(Filter { younger_than_s: Some(100), ..all.clone() }), [young]);
    assert_eq!(find(Filter { older_than_s: Some(u64::MAX), ..all.clone() }), []);
    assert_eq!(find(Filter { min_priority: Some(2), ..all.clone() }), [young]);
    assert_eq!(find(Filter { max_priority: Some(1), ..all.clone() }), [old]);
    assert_eq!(find(Filter { contains: Some("pie".into()), ..all.clone() }), [old]);
    assert_eq!(find(Filter { contains: Some("apple pies".into()), ..all }), []);
}

#[test]
fn a_job_that_is_put_later_does_not_count_even_if_its_id_was_taken_before() {
    let mut tube = Tube::new();
    let late = tube.queue.allocate_id();
    let counted = tube.put(9, 0, b"old", NOW);
    let all = tube.all();
    tube.put_as(late, (0, 0), b"new", NOW + 1);
    assert_eq!(tube.find(JobState::Ready, all, WalkBudget::TURN).0, [counted]);
}

#[test]
fn a_filter_by_tag_matches_only_jobs_with_the_tag() {
    let mut tube = Tube::new();
    tube.put(1, 0, b"plain", NOW);
    let mut ids = Vec::new();
    for group in ["a", "b"] {
        let id = tube.queue.allocate_id();
        let tags = JobTags::from(TagSet { group: Some(group.try_into().unwrap()), ..TagSet::default() });
        let new = NewJob { id, priority: Priority(1), delay_s: 0.into(), ttr_s: 100.into() };
        let mut bytes = Vec::new();
        tags.encode(&mut bytes).unwrap();
        let tags = EncodedTags::of(&bytes, tags);
        tube.queue.put_tagged(tube.client, None, new, Body::copy_of(b"x").unwrap(), &tags, NOW).unwrap();
        ids.push(id);
    }
    let find = |tag| {
        let tag = TagFilter::parse(tag);
        tube.find(JobState::Ready, Filter { tag, ..tube.all() }, WalkBudget::TURN).0
    };
    assert_eq!(find("grp"), ids);
    assert_eq!(find("grp:b"), ids[1..]);
    assert_eq!(find("aft"), []);
}

#[test]
fn a_text_is_found_across_the_end_of_a_share() {
    let budget = WalkBudget { jobs: 10, bytes: 8 };
    for start in 0..40 {
        let mut tube = Tube::new();
        let mut body = vec![b'n'; 50];
        body[start..start + 6].copy_from_slice(b"needle");
        let with = tube.put(0, 0, &body, NOW);
        tube.put(0, 0, &[b'n'; 50], NOW);
        let filter = Filter { contains: Some("needle".into()), ..tube.all() };
        let (found, calls) = tube.find(JobState::Ready, filter, budget);
        assert_eq!(found, [with], "at {start}");
        assert!(calls >= 5, "a budget searches only some bytes");
    }
}

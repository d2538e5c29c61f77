//! Attacks on the rules for tubes, in which several rules, a reload or a pause coincide.

use crate::clock::NS_PER_S;
use crate::description::{Reader, Writer};
use crate::job::{Counting, Priority};
use crate::rules::idle_tubes::MAX_KEPT_TUBES;
use crate::rules::*;
use crate::tags::EncodedTags;
use crate::testing::{NOW, TestJob, con};
use crate::{
    ClientId, CompletedPut, Delivery, Planned, Rate, Release, Released, Reserve, TubeRule, WaitOutcome,
};

/// A queue with rules, and the time.
struct Rig {
    queue: Queue,
    now: Timestamp,
}

fn rate(tokens: u32, period_s: u64, burst: u32) -> Option<Rate> {
    Some(Rate { tokens, period_ns: period_s * NS_PER_S, burst })
}

fn release(delay_s: impl Into<crate::seconds::Seconds>) -> Release {
    Release { priority: Priority(0), delay_s: delay_s.into(), counting: Counting::Counted }
}

impl Rig {
    fn new(rules: Vec<TubeRule>) -> Self {
        let mut rig = Self { queue: Queue::default(), now: NOW };
        rig.set_rules(rules);
        rig
    }

    fn set_rules(&mut self, rules: Vec<TubeRule>) {
        self.queue.set_tube_rules(rules, self.now);
        self.settle();
    }

    /// Handles everything that is due now.
    fn settle(&mut self) {
        while self.queue.next_deadline().is_some_and(|at| at <= self.now) {
            self.queue.advance(self.now);
            self.queue.check_invariants();
        }
    }

    fn wait(&mut self, ns: u64) {
        self.now = self.now + ns;
        self.settle();
    }

    /// A client that uses and watches only this tube.
    fn client(&mut self, tube: &str) -> ClientId {
        let client = self.queue.connect();
        self.queue.use_tube(client, tube);
        self.queue.watch(client, tube);
        self.queue.ignore(client, "default");
        client
    }

    fn put(&mut self, client: ClientId, key: Option<(&str, u32)>) -> JobId {
        let tags = key.map_or_else(TagSet::default, |(key, limit)| con(key, limit));
        TestJob { priority: 5, tags, ..TestJob::default() }.put(&mut self.queue, client, self.now)
    }

    fn reserve(&mut self, client: ClientId) -> Option<JobId> {
        match self.queue.reserve(client, Some(0.into()), self.now) {
            Reserve::Job(id) => Some(id),
            Reserve::TimedOut => None,
            other => panic!("{other:?}"),
        }
    }

    fn begin_wait(&mut self, client: ClientId) {
        assert_eq!(self.queue.reserve(client, None, self.now), Reserve::Waiting);
    }

    fn delivered(&mut self) -> Vec<(ClientId, JobId)> {
        std::iter::from_fn(|| self.queue.poll_delivery())
            .map(|Delivery { client, outcome }| match outcome {
                WaitOutcome::Reserved(id) => (client, id),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    fn tube_of(&self, id: JobId) -> &str {
        self.queue.job(id).unwrap().tube.as_str()
    }
}

#[test]
fn a_reload_that_takes_a_rule_away_wakes_all_that_wait_however_many() {
    let blocking = [
        TubeRule { rate: rate(1, 3600, 1), ..TubeRule::new("t") },
        TubeRule { max_reserved: Some(1), ..TubeRule::new("t") },
    ];
    let other = TubeRule { max_jobs: Some(1), ..TubeRule::new("t") };
    for (rule, after) in [(0, vec![]), (1, vec![]), (0, vec![other.clone()]), (1, vec![other])] {
        let mut rig = Rig::new(vec![blocking[rule].clone()]);
        let clients: Vec<ClientId> = (0..600).map(|_| rig.client("t")).collect();
        let jobs: Vec<JobId> = (0..600).map(|_| rig.put(clients[0], None)).collect();
        let first = rig.reserve(clients[0]);
        assert_eq!(first, Some(jobs[0]));
        clients[1..].iter().for_each(|&client| rig.begin_wait(client));
        rig.set_rules(after);
        let expected: Vec<_> = clients.iter().copied().zip(jobs).skip(1).collect();
        assert_eq!(rig.delivered(), expected, "each gets one, in the order in which they came");
    }
}

#[test]
fn a_client_that_leaves_with_all_that_a_tube_may_have_reserved_wakes_as_many_others() {
    let mut rig = Rig::new(vec![TubeRule { max_reserved: Some(300), ..TubeRule::new("t") }]);
    let holder = rig.client("t");
    (0..700).for_each(|_| _ = rig.put(holder, None));
    assert_eq!((0..400).filter_map(|_| rig.reserve(holder)).count(), 300);
    let clients: Vec<ClientId> = (0..400).map(|_| rig.client("t")).collect();
    clients.iter().for_each(|&client| rig.begin_wait(client));
    rig.queue.disconnect(holder, rig.now);
    rig.settle();
    let served: Vec<ClientId> = rig.delivered().into_iter().map(|(client, _)| client).collect();
    assert_eq!(served, clients[..300]);
}

#[test]
fn a_pause_and_a_token_that_end_together_or_in_turn_wake_the_client_that_waits() {
    for (pause_ms, by_command) in [(999, false), (1_000, false), (1_001, false), (9_000, true)] {
        for watched in [1, 40] {
            let mut rig = Rig::new(vec![TubeRule { rate: rate(1, 1, 1), ..TubeRule::new("t") }]);
            let client = rig.client("t");
            (1..watched).for_each(|number| _ = rig.queue.watch(client, &format!("other-{number}")));
            let [first, second] = [(); 2].map(|()| rig.put(client, None));
            assert_eq!(rig.reserve(client), Some(first));
            rig.queue.pause_tube(
                "t",
                crate::seconds::Seconds::new(pause_ms / 1000, pause_ms as u16 % 1000),
                rig.now,
            );
            while rig.queue.reserve(client, None, rig.now) != Reserve::Waiting {}
            rig.wait(999_000_000);
            assert_eq!(rig.delivered(), []);
            rig.wait(1_000_000);
            if by_command {
                assert_eq!(rig.delivered(), []);
                rig.queue.pause_tube("t", 0.into(), rig.now);
                rig.settle();
            }
            rig.wait(1_000_000);
            assert_eq!(rig.delivered(), [(client, second)], "{pause_ms} ms");
        }
    }
}

#[test]
fn a_wait_behind_a_rule_ends_at_the_margin_of_a_reservation() {
    let mut rig = Rig::new(vec![TubeRule { max_reserved: Some(1), ..TubeRule::new("t") }]);
    let client = rig.client("t");
    let [first, _] = [(); 2].map(|()| rig.put(client, None));
    assert_eq!(rig.reserve(client), Some(first));
    rig.begin_wait(client);
    rig.wait(99 * NS_PER_S);
    let outcome = rig.queue.poll_delivery().map(|delivery| delivery.outcome);
    assert_eq!(outcome, Some(WaitOutcome::DeadlineSoon));
    assert_eq!(rig.queue.reserve(client, None, rig.now), Reserve::DeadlineSoon);
}

#[test]
fn the_failures_of_a_job_go_with_it_and_a_delay_of_its_own_however_short_is_kept() {
    let backoff = |name: &str| TubeRule { backoff_s: Some(10), ..TubeRule::new(name) };
    let mut rig = Rig::new(vec![backoff("a"), TubeRule { backoff_s: Some(3), ..backoff("b") }]);
    let client = rig.client("a");
    let id = rig.put(client, None);
    let own = crate::seconds::Seconds::new(0, 1);
    let steps = [
        ("a", 10_000, None),
        ("a", 1, Some(own)),
        ("b", 12_000, None),
        ("plain", 0, None),
        ("a", 160_000, None),
    ];
    for (tube, expected_ms, delay) in steps {
        assert!(rig.queue.move_job(id, tube, rig.now));
        assert!(rig.queue.reserve_job(client, id, rig.now));
        assert_eq!(
            rig.queue.release(client, id, release(delay.unwrap_or_default()), rig.now),
            Released::Queued
        );
        let record = rig.queue.job(id).unwrap().record;
        let delayed_ns =
            if record.state == JobState::Delayed { record.deadline_at.since_ns(rig.now) } else { 0 };
        // Of several delays that begin at the same instant, each is a nanosecond longer.
        assert_eq!(delayed_ns / 1_000_000, expected_ms, "in {tube}");
    }
}

#[test]
fn backoffs_at_the_bounds_of_32_bits_neither_overflow_nor_end_at_once() {
    for (backoff_s, max_backoff_s) in
        [(u32::MAX, None), (1 << 31, Some(u32::MAX)), (1, Some(u32::MAX)), (u32::MAX, Some(1))]
    {
        let rule = TubeRule {
            backoff_s: Some(backoff_s),
            max_backoff_s,
            max_attempts: Some(u32::MAX),
            ..TubeRule::new("*")
        };
        let mut rig = Rig::new(vec![rule]);
        let client = rig.client("t");
        let id = rig.put(client, None);
        for failures in 1..70u32 {
            assert!(rig.queue.reserve_job(client, id, rig.now));
            assert_eq!(rig.queue.release(client, id, release(0), rig.now), Released::Queued);
            let expected = u128::from(backoff_s) << (failures - 1).min(90);
            let expected = expected.min(max_backoff_s.unwrap_or(u32::MAX).into()) as u64;
            let until = rig.queue.job(id).unwrap().record.deadline_at;
            assert_eq!(until.since_ns(rig.now) / NS_PER_S, expected, "{failures} failures");
        }
    }
}

#[test]
fn a_dead_job_waits_behind_the_rules_of_its_dead_tube_and_wakes_clients_there() {
    let dying = TubeRule { max_attempts: Some(1), dead_tube: Some("dead".into()), ..TubeRule::new("t") };
    for rule in [
        TubeRule { rate: rate(1, 1, 1), ..TubeRule::new("dead") },
        TubeRule { max_reserved: Some(1), ..TubeRule::new("dead") },
        TubeRule { is_fair: true, max_age_s: Some(1), ..TubeRule::new("dead") },
        TubeRule {
            max_attempts: Some(1),
            dead_tube: Some("t".into()),
            max_age_s: Some(1),
            ..TubeRule::new("dead")
        },
    ] {
        let mut rig = Rig::new(vec![dying.clone(), rule.clone()]);
        let (client, other) = (rig.client("t"), rig.client("dead"));
        let ids = [(); 3].map(|()| rig.put(client, Some(("k", 9))));
        for id in ids {
            assert!(rig.queue.reserve_job(client, id, rig.now));
            assert_eq!(rig.queue.release(client, id, release(7), rig.now), Released::Queued);
            rig.settle();
            assert_eq!(rig.tube_of(id), "dead");
        }
        let mut seen = Vec::new();
        for _ in ids {
            let id = rig.reserve(other).unwrap_or_else(|| {
                rig.begin_wait(other);
                if let Some(&held) = seen.last().filter(|_| rule.max_reserved.is_some()) {
                    // The holder waits, so another client deletes the job.
                    assert!(rig.queue.delete(other, held, rig.now).is_some());
                    seen.pop();
                }
                rig.wait(NS_PER_S);
                rig.delivered()[0].1
            });
            seen.push(id);
        }
        // Whatever happens to a dead job in its dead tube, it stays there, and does not age.
        for &id in &seen {
            assert_eq!(rig.queue.release(other, id, release(0), rig.now), Released::Queued);
        }
        rig.wait(1_000 * NS_PER_S);
        for id in seen {
            assert_eq!((rig.tube_of(id), rig.queue.job(id).unwrap().failures()), ("dead", 1));
        }
    }
}

#[test]
fn three_tubes_in_a_circle_of_ages_and_attempts_hold_a_dead_job_once() {
    let names = ["a", "b", "c"];
    let rules = (0..3).map(|at| TubeRule {
        max_attempts: Some(1),
        max_age_s: Some(10),
        dead_tube: Some(names[(at + 1) % 3].into()),
        ..TubeRule::new(names[at])
    });
    let mut rig = Rig::new(rules.collect());
    let client = rig.client("a");
    let id = rig.put(client, None);
    rig.wait(10 * NS_PER_S);
    assert_eq!(rig.tube_of(id), "b");
    for _ in 0..5 {
        rig.wait(100 * NS_PER_S);
        assert!(rig.queue.reserve_job(client, id, rig.now));
        rig.queue.release(client, id, release(0), rig.now);
        assert_eq!(rig.tube_of(id), "b");
        assert!(rig.queue.move_job(id, "c", rig.now));
        rig.wait(100 * NS_PER_S);
        assert_eq!(rig.tube_of(id), "c", "dead in whatever tube");
        assert!(rig.queue.move_job(id, "b", rig.now));
    }
    assert!(rig.queue.move_job(id, "a", rig.now));
    assert_eq!(
        (rig.queue.job(id).unwrap().failures(), rig.queue.next_deadline()),
        (0, Some(rig.now + 10 * NS_PER_S))
    );
}

#[test]
fn a_reserve_with_small_slices_ends_few_overdue_jobs() {
    let mut rig = Rig::new(vec![TubeRule { max_age_s: Some(10), ..TubeRule::new("t") }]);
    rig.queue.slices = crate::Slices { probed_tubes: 2, ..crate::Slices::default() };
    let client = rig.client("t");
    for _ in 0..100 {
        rig.put(client, None);
    }
    rig.now = rig.now + 10 * NS_PER_S;
    rig.queue.advance(rig.now);
    let left = rig.queue.figures().jobs.total();
    assert!(left > 5, "advance ends a part of the jobs");
    for ended in [2, 4] {
        assert_eq!(rig.queue.reserve(client, Some(0.into()), rig.now), Reserve::Unfinished);
        assert_eq!(rig.queue.figures().jobs.total(), left - ended);
    }
}

#[test]
fn a_reload_that_lowers_limits_removes_nothing_and_a_new_order_of_entries_counts() {
    let few = TubeRule { max_jobs: Some(2), max_attempts: Some(2), ..TubeRule::new("t*") };
    let many = TubeRule { max_jobs: Some(9), ..TubeRule::new("*") };
    let mut rig = Rig::new(vec![many.clone(), few.clone()]);
    let client = rig.client("t");
    let ids = [(); 4].map(|()| rig.put(client, None));
    rig.queue.count_refused(client, None);
    assert!(!rig.queue.is_full_for(client, None, 1));
    rig.set_rules(vec![few.clone(), many.clone()]);
    assert_eq!(
        rig.queue.tube("t", rig.now).unwrap().rule.map(|rule| rule.pattern.to_string()),
        Some("t*".to_owned())
    );
    for left in [3, 2] {
        assert!(rig.queue.is_full_for(client, None, 0));
        assert!(rig.queue.delete(client, ids[left], rig.now).is_some());
    }
    assert!(rig.queue.is_full_for(client, None, 0), "two are as many as it takes");
    assert!(rig.queue.move_job(ids[1], "elsewhere", rig.now));
    assert!(!rig.queue.is_full_for(client, None, 0));
    // A job that has failed more often than a newer rule allows is dead with its next failure, not before.
    rig.set_rules(vec![]);
    for _ in 0..5 {
        assert!(rig.queue.reserve_job(client, ids[0], rig.now));
        rig.queue.release(client, ids[0], release(0), rig.now);
    }
    rig.set_rules(vec![few]);
    assert_eq!(rig.queue.job(ids[0]).unwrap().record.state, JobState::Ready);
    assert!(rig.queue.reserve_job(client, ids[0], rig.now));
    assert_eq!(rig.queue.release(client, ids[0], release(0), rig.now), Released::Buried);
}

#[test]
fn all_rules_that_keep_jobs_back_must_allow_a_reservation() {
    let rule = TubeRule { rate: rate(1, 1, 3), max_reserved: Some(2), is_fair: true, ..TubeRule::new("t") };
    let mut rig = Rig::new(vec![rule]);
    let client = rig.client("t");
    let [a1, a2, b1, b2] = [("a", 1), ("a", 1), ("b", 2), ("b", 2)].map(|key| rig.put(client, Some(key)));
    assert_eq!([(); 3].map(|()| rig.reserve(client)), [Some(a1), Some(b1), None], "max-reserved");
    assert!(!rig.queue.reserve_job(client, b2, rig.now), "by its id, neither");
    assert!(rig.queue.delete(client, b1, rig.now).is_some());
    assert!(!rig.queue.reserve_job(client, a2, rig.now), "the key is used up");
    assert_eq!(rig.reserve(client), Some(b2), "the last token");
    assert!(rig.queue.delete(client, b2, rig.now).is_some());
    assert!(rig.queue.delete(client, a1, rig.now).is_some());
    assert_eq!(rig.reserve(client), None, "no token");
    rig.begin_wait(client);
    rig.queue.pause_tube("t", 2.into(), rig.now);
    rig.wait(NS_PER_S);
    assert_eq!(rig.delivered(), [], "paused");
    rig.wait(NS_PER_S);
    assert_eq!(rig.delivered(), [(client, a2)]);
}

#[test]
fn clients_that_come_and_go_while_a_gate_is_closed_leave_no_token_behind() {
    let mut rig = Rig::new(vec![TubeRule { rate: rate(1, 1, 1), ..TubeRule::new("t") }]);
    let [first, second, third] = [(); 3].map(|()| rig.client("t"));
    let ids = [(); 3].map(|()| rig.put(first, None));
    assert_eq!(rig.reserve(first), Some(ids[0]));
    [second, third].into_iter().for_each(|client| rig.begin_wait(client));
    rig.queue.stop_waiting(second);
    rig.queue.disconnect(second, rig.now);
    rig.queue.ignore(first, "t");
    rig.wait(NS_PER_S);
    assert_eq!(rig.delivered(), [(third, ids[1])]);
    rig.begin_wait(third);
    rig.queue.watch(first, "t");
    rig.begin_wait(first);
    // A job that comes while no reservation is permitted goes to no client, although clients wait.
    let urgent = rig.put(third, None);
    rig.wait(NS_PER_S - 1);
    assert_eq!(rig.delivered(), []);
    rig.wait(1);
    assert_eq!(rig.delivered(), [(third, ids[2])]);
    rig.wait(NS_PER_S);
    assert_eq!(rig.delivered(), [(first, urgent)]);
}

/// The instant at which its gate opens is the one at which its bucket is full.
#[test]
fn a_tube_whose_gate_opens_when_all_have_left_it_goes() {
    for reserved in [None, Some(1)] {
        let rule = TubeRule { rate: rate(1, 1, 1), max_reserved: reserved, ..TubeRule::new("t") };
        let mut rig = Rig::new(vec![rule]);
        let client = rig.client("t");
        let id = rig.put(client, None);
        assert_eq!(rig.reserve(client), Some(id));
        assert!(rig.queue.delete(client, id, rig.now).is_some());
        rig.queue.disconnect(client, rig.now);
        rig.settle();
        assert!(rig.queue.tube_name("t").is_some(), "it remembers its tokens");
        rig.wait(NS_PER_S);
        assert!(rig.queue.tube_name("t").is_none(), "nothing keeps it");
    }
}

/// As in a reload, but nothing else of the old rule is known to the new program.
#[test]
fn another_program_with_another_rate_goes_on_with_the_tokens_that_are_left() {
    let ruled = |rate| TubeRule { rate, ..TubeRule::new("t") };
    for (before, after, left, next) in [
        (rate(1, 1, 50), rate(3600, 3600, 50), 10, 1),
        (rate(3600, 3600, 50), rate(1, 1, 50), 10, 1),
        (rate(1, 1, 50), rate(1, 1, 5), 0, 1),
        (rate(1, 1, 50), rate(7, 1, 100), 60, 7),
        (rate(1, 1, 50), None, 100, 50),
    ] {
        let mut rig = Rig::new(vec![ruled(before)]);
        let client = rig.client("t");
        let ids = [(); 200].map(|()| rig.put(client, None));
        assert_eq!(ids.map(|_| rig.reserve(client)).iter().flatten().count(), 50, "the bucket is empty");
        rig.wait(10 * NS_PER_S);
        let mut bytes = Vec::new();
        rig.queue.describe(&mut Writer::new(&mut |part| bytes.extend(part)));
        let mut next_rig = Rig::new(vec![ruled(after)]);
        next_rig.now = rig.now;
        let mut reader = Reader::new(&bytes);
        next_rig.queue.read_description(&mut reader, rig.now).unwrap();
        let client = next_rig.client("t");
        let got = |rig: &mut Rig| (0..100).map_while(|_| rig.reserve(client)).count();
        assert_eq!(got(&mut next_rig), left, "{before:?} {after:?}");
        next_rig.wait(NS_PER_S);
        assert_eq!(got(&mut next_rig), next, "{before:?} {after:?}, a second later");
    }
}

/// A client waits for the jobs behind a closed gate, and the new program reads a file that lets it have them.
#[test]
fn another_program_without_the_rule_or_with_a_wider_one_wakes_all_that_wait() {
    let max_reserved = |most| TubeRule { max_reserved: Some(most), ..TubeRule::new("t") };
    let ruled = |rate| TubeRule { rate, ..TubeRule::new("t") };
    let after = [
        vec![],
        vec![TubeRule { pattern: "another".into(), ..max_reserved(1) }],
        vec![TubeRule { max_jobs: Some(1), ..TubeRule::new("t") }],
        vec![TubeRule { is_fair: true, ..TubeRule::new("t") }],
        vec![max_reserved(1000)],
        vec![ruled(rate(1000, 1, 1000))],
    ];
    for (before, after) in [max_reserved(1), ruled(rate(1, 3600, 1))]
        .iter()
        .flat_map(|before| after.iter().map(move |after| (before, after)))
    {
        let mut rig = Rig::new(vec![before.clone()]);
        let clients: Vec<ClientId> = (0..600).map(|_| rig.client("t")).collect();
        let jobs: Vec<JobId> = (0..600).map(|_| rig.put(clients[0], None)).collect();
        assert_eq!(rig.reserve(clients[0]), Some(jobs[0]));
        clients[1..].iter().for_each(|&client| rig.begin_wait(client));
        let mut bytes = Vec::new();
        rig.queue.describe(&mut Writer::new(&mut |part| bytes.extend(part)));
        let mut next = Rig::new(after.clone());
        next.queue.read_description(&mut Reader::new(&bytes), rig.now).expect("the gate opens later");
        let clients: Vec<ClientId> = next.queue.described_clients().collect();
        next.wait(3 * NS_PER_S);
        let expected: Vec<_> = clients.into_iter().zip(jobs).skip(1).collect();
        assert_eq!(next.delivered(), expected, "{before:?} {after:?}");
        assert!(!next.queue.is_reloading_rules(), "it is quiet, so that it can be handed over again");
        let is_ruled = next.queue.tube("t", next.now).unwrap().rule.is_some();
        assert_eq!(is_ruled, after.iter().any(|rule| &*rule.pattern == "t"));
    }
}

/// The rule for the bytes of a tube knows each of its jobs when the reload has come to the job.
#[test]
fn a_complete_in_the_middle_of_a_reload_counts_its_job_as_the_rule_does() {
    let mut rig = Rig::new(Vec::new());
    let others = rig.client("others");
    for _ in 0..1000 {
        rig.put(others, None);
    }
    let client = rig.client("t");
    let id = rig.put(client, None);
    assert_eq!(rig.reserve(client), Some(id));
    rig.queue.set_tube_rules(vec![TubeRule { max_bytes: Some(1), ..TubeRule::new("t") }], rig.now);
    let new = TestJob::default().with_id(rig.queue.allocate_id());
    let put = CompletedPut { new, tags: &EncodedTags::NONE, tube: None, body_bytes: 1 };
    let mut steps = 0;
    while rig.queue.rules.tubes.is_reloading() {
        let plan: Vec<_> = rig.queue.plan_complete(client, id, [put].into_iter(), rig.now).collect();
        assert_eq!(plan, [Ok(Planned::New)], "step {steps}");
        rig.queue.advance(rig.now);
        steps += 1;
    }
    assert!(steps > 2, "the reload takes several steps");
}

#[test]
fn a_move_of_a_reserved_job_does_not_end_its_reservation_and_keeps_the_gate_closed() {
    let mut rig = Rig::new(vec![TubeRule { max_reserved: Some(1), ..TubeRule::new("t") }]);
    let mover = rig.client("others");
    let moved = [(); 2].map(|()| rig.put(mover, None));
    assert_eq!(moved.map(|_| rig.reserve(mover)), moved.map(Some));
    let client = rig.client("t");
    let id = rig.put(client, None);
    for moved in moved {
        assert!(rig.queue.move_job(moved, "t", rig.now));
        rig.settle();
        assert_eq!(rig.reserve(client), None, "one is reserved, or more");
    }
    rig.begin_wait(client);
    assert!(rig.queue.delete(mover, moved[0], rig.now).is_some());
    rig.settle();
    assert_eq!(rig.delivered(), [], "one is still reserved");
    assert!(rig.queue.delete(mover, moved[1], rig.now).is_some());
    rig.settle();
    assert_eq!(rig.delivered(), [(client, id)]);
}

/// A client that may put into tubes of a slow rate leaves as many as it likes.
#[test]
fn a_client_cannot_fill_the_memory_with_tubes_that_only_their_buckets_keep() {
    let slow = |pattern| TubeRule { rate: rate(1, 3600, 1), ..TubeRule::new(pattern) };
    let mut rig = Rig::new(vec![slow("api"), slow("t-*")]);
    let client = rig.client("api");
    let leave = |rig: &mut Rig, tube: &str| {
        rig.queue.use_tube(client, tube);
        let id = rig.put(client, None);
        let is_reserved = rig.queue.reserve_job(client, id, rig.now);
        assert!(rig.queue.delete(client, id, rig.now).is_some());
        rig.queue.use_tube(client, "default");
        is_reserved
    };
    rig.queue.ignore(client, "api");
    rig.queue.watch(client, "default");
    rig.queue.ignore(client, "api");
    assert!(leave(&mut rig, "api"));
    let tubes = |rig: &Rig| rig.queue.figures().tubes;
    for number in 0..3 * MAX_KEPT_TUBES {
        assert!(leave(&mut rig, &format!("t-{number}")));
        assert!(tubes(&rig) <= MAX_KEPT_TUBES + 3, "{number}");
    }
    assert!(!leave(&mut rig, "api"), "the tubes of one entry do not fill the bucket of another");
    let last = format!("t-{}", 3 * MAX_KEPT_TUBES - 1);
    assert!(!leave(&mut rig, &last), "the newest ones are kept");
    assert!(leave(&mut rig, "t-0"), "the oldest ones are not");
    for rules in [vec![slow("x-*")], vec![slow("*")]] {
        rig.set_rules(rules);
        assert!(tubes(&rig) <= MAX_KEPT_TUBES + 3);
        rig.queue.check_invariants();
    }
    rig.set_rules(Vec::new());
    assert_eq!(tubes(&rig), 1);
}

/// Tubes whose buckets have become full make no room for a tube whose bucket is empty.
#[test]
fn a_bucket_is_kept_while_any_number_of_others_become_full() {
    const BURST: usize = 100;
    const ROUNDS: usize = 10;
    let mut rig = Rig::new(vec![TubeRule { rate: rate(1, 1, BURST as u32), ..TubeRule::new("t-*") }]);
    let client = rig.queue.connect();
    let take = |rig: &mut Rig, tube: &str| {
        rig.queue.use_tube(client, tube);
        let id = rig.put(client, None);
        rig.queue.watch(client, tube);
        let is_reserved = rig.queue.reserve_job(client, id, rig.now);
        rig.queue.ignore(client, tube);
        assert!(rig.queue.delete(client, id, rig.now).is_some());
        rig.queue.use_tube(client, "default");
        is_reserved
    };
    let taken = |rig: &mut Rig| (0..2 * BURST).take_while(|_| take(rig, "t-a")).count();
    assert_eq!(taken(&mut rig), BURST);
    for _ in 0..ROUNDS {
        (0..MAX_KEPT_TUBES / 8).for_each(|number| assert!(take(&mut rig, &format!("t-{number}"))));
        rig.now = rig.now + NS_PER_S;
        while rig.queue.next_deadline().is_some_and(|at| at <= rig.now) {
            rig.queue.advance(rig.now);
        }
        rig.queue.check_invariants();
        assert_eq!(rig.queue.figures().tubes, 2, "only the empty bucket keeps a tube");
    }
    assert_eq!(taken(&mut rig), ROUNDS, "one token for each second");
}

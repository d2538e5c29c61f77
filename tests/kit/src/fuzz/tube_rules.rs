//! Arbitrary bytes as a file of rules for tubes.

use beanstalkd::tube_rules::{parse, report};
use beanstalkd_queue::{ClientId, NewJob, Queue, Release, Reserve, TubeRule};
use beanstalkd_types::clock::{NS_PER_S, Timestamp};
use beanstalkd_types::job::{Body, Counting, Priority};

const START: Timestamp = Timestamp(1_700_000_000 * NS_PER_S);

/// Reads `input`. An error has a line and a column in the text; a valid file has a report, and a queue follows it.
pub fn check(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match parse(text) {
        Ok(rules) => {
            assert!(report(&rules).lines().count() >= rules.len().max(1));
            follow(rules);
        }
        Err(error) => {
            assert!((1..=text.matches('\n').count() + 1).contains(&error.line), "{error}");
            assert!(
                error.column >= 1 && !error.message.is_empty() && !error.message.contains('\n'),
                "{error}"
            );
        }
    }
}

/// Under the rules, jobs are put and reserved, and fail; time passes; at the end the rules are removed. Jobs are lost
/// only by their age.
fn follow(rules: Vec<TubeRule>) {
    let ends_jobs = rules.iter().any(|rule| rule.max_age_s.is_some());
    let mut queue = Queue::default();
    let client = queue.connect();
    let mut puts = put(&mut queue, client, START);
    queue.set_tube_rules(rules, START);
    let mut now = START;
    for round in 0..4 {
        settle(&mut queue, now);
        puts += put(&mut queue, client, now);
        while let Reserve::Job(id) = queue.reserve(client, Some(0.into()), now) {
            let counting = if round == 2 { Counting::Uncounted } else { Counting::Counted };
            queue.release(client, id, Release { priority: Priority(1), delay_s: 1.into(), counting }, now);
        }
        now = now.plus_seconds(2);
    }
    settle(&mut queue, now);
    queue.set_tube_rules(Vec::new(), now);
    settle(&mut queue, now);
    assert!(queue.figures().jobs.total() == puts || ends_jobs);
}

fn put(queue: &mut Queue, client: ClientId, now: Timestamp) -> usize {
    for tube in ["default", "d", "a"] {
        queue.use_tube(client, tube);
        queue.watch(client, tube);
        let new =
            NewJob { id: queue.allocate_id(), priority: Priority(1), delay_s: 0.into(), ttr_s: 1.into() };
        queue.put(client, new, Body::copy_of(b"x").expect("there is memory"), now);
    }
    3
}

fn settle(queue: &mut Queue, now: Timestamp) {
    while queue.next_deadline().is_some_and(|at| at <= now) {
        queue.advance(now);
    }
    queue.check_invariants();
}

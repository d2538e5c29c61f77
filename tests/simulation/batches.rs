//! Directed tests of the commands for workers that C does not have: batches, `touch-all`, and `reserve-with-abort`.

use std::cell::Cell;

use beanstalkd_types::clock::NS_PER_S;
use beanstalkd_types::job::JobId;

use beanstalkd_testkit::simulated::SimulatedServer;

/// A server for jobs of a megabyte.
fn start() -> SimulatedServer {
    SimulatedServer::with_max_job_bytes(1 << 20)
}

/// The bytes of `count` puts with this body.
fn puts(count: usize, body: &str) -> String {
    format!("put 0 0 100 {}\r\n{body}\r\n", body.len()).repeat(count)
}

/// The reply with a batch of these jobs, each with this body.
fn batch(ids: impl IntoIterator<Item = u64>, body: &str) -> String {
    let jobs: Vec<String> =
        ids.into_iter().map(|id| format!("RESERVED {id} {}\r\n{body}\r\n", body.len())).collect();
    format!("RESERVED_BATCH {}\r\n{}", jobs.len(), jobs.concat())
}

#[test]
fn batches_are_done_in_slices_between_which_others_are_answered() {
    const JOBS: u64 = 1_000;
    let mut harness = start();
    let [greedy, modest] = harness.connect_each();
    harness.say(&greedy, puts(JOBS as usize, ""));
    let mut ids = String::new();
    (1..=JOBS).for_each(|id| ids += &format!(" {id}"));
    let (reserve, delete) = (format!("reserve-batch {JOBS}\r\n"), format!("delete-batch{ids}\r\n"));
    for (line, answer) in [
        (&reserve, batch(1..=JOBS, "")),
        (&"touch-all\r\n".to_owned(), format!("TOUCHED_ALL {JOBS}\r\n")),
        (&delete, format!("DELETED_BATCH {JOBS} 0\r\n")),
        (&delete, format!("DELETED_BATCH 0 {JOBS}\r\n")),
    ] {
        greedy.send(line);
        let (mut turns, mut reply, mut before) = (0, String::new(), harness.queue().figures().events);
        while reply.is_empty() {
            modest.send("peek-buried\r\n");
            harness.one_turn([&greedy, &modest]);
            assert_eq!(modest.received(), "NOT_FOUND\r\n");
            let now = harness.queue().figures().events;
            let done = now.reserves + now.deletes - before.reserves - before.deletes;
            assert!(done <= 401, "{done} jobs in a turn");
            (before, reply) = (now, greedy.received());
            turns += 1;
        }
        assert!((2..=10).contains(&turns), "{turns} turns");
        harness.turn([]);
        assert_eq!(reply + &greedy.received(), answer);
    }
    assert_eq!(harness.queue().figures().jobs.total(), 0);
}

#[test]
fn all_times_to_run_start_again_when_touch_all_comes_however_many_turns_it_takes() {
    const JOBS: u64 = 1_000;
    let mut harness = start();
    let client = harness.connect();
    harness.say(&client, puts(JOBS as usize, ""));
    harness.say(&client, format!("reserve-batch {JOBS}\r\n"));
    harness.pass(10 * NS_PER_S);
    let came = harness.now;
    client.send("touch-all\r\n");
    harness.one_turn([&client]);
    assert_eq!(client.received(), "", "it takes several turns");
    for _ in 0..9 {
        harness.now = harness.now.plus_seconds(1);
        harness.one_turn([]);
    }
    assert_eq!(client.received(), format!("TOUCHED_ALL {JOBS}\r\n"));
    let queue = harness.queue();
    let end = |id| queue.job(JobId(id)).expect("it is reserved").record.deadline_at;
    assert!((1..=JOBS).all(|id| end(id) == came.plus_seconds(100)));
}

#[test]
fn a_batch_waits_its_turn_for_the_first_job_and_takes_the_others_at_once() {
    let mut harness = start();
    let [first, batcher, last, producer] = harness.connect_each();
    for (client, line) in
        [(&first, "reserve\r\n"), (&batcher, "reserve-batch 3 60\r\n"), (&last, "reserve\r\n")]
    {
        assert_eq!(harness.say(client, line), "", "it waits");
    }
    producer.send(puts(6, "x"));
    harness.turn([&producer]);
    assert_eq!(first.received(), "RESERVED 1 1\r\nx\r\n");
    assert_eq!(batcher.received(), batch([2, 4, 5], "x"));
    assert_eq!(last.received(), "RESERVED 3 1\r\nx\r\n");
    assert_eq!(harness.say(&batcher, "reserve-batch 1000\r\n"), batch([6], "x"));
    assert_eq!(harness.say(&batcher, "reserve-batch 1000\r\n"), "RESERVED_BATCH 0\r\n");
}

#[test]
fn a_batch_takes_nothing_from_a_paused_tube_and_goes_on_when_the_pause_is_over() {
    let mut harness = start();
    let [batcher, waiting, producer] = harness.connect_each();
    assert!(harness.say(&producer, puts(3, "x") + "pause-tube default 5\r\n").ends_with("PAUSED\r\n"));
    assert_eq!(harness.say(&batcher, "reserve-batch 9\r\n"), "RESERVED_BATCH 0\r\n");
    assert_eq!(harness.say(&batcher, "reserve-batch 9 0\r\n"), "TIMED_OUT\r\n");
    assert_eq!(harness.say(&batcher, "reserve-batch 9 60\r\n"), "");
    assert_eq!(harness.say(&waiting, "reserve\r\n"), "");
    harness.pass(5 * NS_PER_S);
    assert_eq!(
        (batcher.received(), waiting.received()),
        (batch([1, 3], "x"), "RESERVED 2 1\r\nx\r\n".into())
    );
}

#[test]
fn a_batch_that_waits_ends_like_any_reserve() {
    let mut harness = start();
    let [batcher, producer] = harness.connect_each();
    assert_eq!(harness.say(&batcher, "reserve-batch 9 2\r\n"), "");
    harness.pass(2 * NS_PER_S);
    assert_eq!(batcher.received(), "TIMED_OUT\r\n");
    harness.say(&producer, "put 0 0 10 1\r\nx\r\n");
    assert_eq!(harness.say(&batcher, "reserve-batch 9 100\r\n"), batch([1], "x"));
    assert_eq!(harness.say(&batcher, "reserve-batch 9 100\r\n"), "");
    harness.pass(9 * NS_PER_S);
    assert_eq!(batcher.received(), "DEADLINE_SOON\r\n");
    assert_eq!(harness.say(&batcher, "reserve-batch 9 100\r\n"), "DEADLINE_SOON\r\n");
    assert_eq!(harness.say(&batcher, "reserve-batch 9\r\n"), "RESERVED_BATCH 0\r\n", "it does not wait");
    assert_eq!(harness.say(&batcher, "touch-all\r\n"), "TOUCHED_ALL 1\r\n");
    assert_eq!(harness.say(&batcher, "reserve-batch 9 100\r\n"), "");
    batcher.end();
    harness.turn([&batcher]);
    assert_eq!((batcher.received().as_str(), harness.client_count()), ("TIMED_OUT\r\n", 1));
}

#[test]
fn a_batch_whose_only_job_is_flushed_meanwhile_is_empty() {
    let mut harness = start();
    let [batcher, producer] = harness.connect_each();
    assert_eq!(harness.say(&batcher, "reserve-batch 9 60\r\nlist-tube-used\r\n"), "");
    assert_eq!(
        harness.say(&producer, puts(1, "x") + "flush-tube default\r\n"),
        "INSERTED 1\r\nFLUSHED 1\r\n"
    );
    assert_eq!(batcher.received(), "RESERVED_BATCH 0\r\nUSING default\r\n");
}

#[test]
fn a_batch_whose_only_job_times_out_meanwhile_gets_it_once() {
    for max_jobs in [1, 9] {
        let mut harness = start();
        let [batcher, producer] = harness.connect_each();
        assert_eq!(harness.say(&batcher, format!("reserve-batch {max_jobs} 60\r\n")), "");
        producer.send("put 0 0 1 1\r\nx\r\n");
        harness.one_turn([&producer]);
        assert_eq!(batcher.received(), "", "the batch goes on in the next turn");
        harness.pass(NS_PER_S);
        assert_eq!(batcher.received(), batch([1], "x"), "of {max_jobs}");
        assert_eq!(harness.say(&batcher, "delete 1\r\n"), "DELETED\r\n");
    }
}

#[test]
fn a_batch_that_loses_jobs_between_its_turns_has_each_of_the_others_once() {
    const JOBS: u64 = 1_000;
    let mut harness = start();
    let [batcher, producer] = harness.connect_each();
    harness.say(&producer, "put 0 0 1 0\r\n\r\n".repeat(JOBS as usize));
    batcher.send(format!("reserve-batch {JOBS} 60\r\n"));
    harness.one_turn([&batcher]);
    let lost = harness.queue().figures().jobs.reserved;
    assert!((1..JOBS).contains(&lost), "the batch goes on");
    harness.pass(NS_PER_S);
    assert_eq!(batcher.received(), batch(1..=JOBS - lost, ""));
    assert_eq!(harness.say(&batcher, "touch-all\r\n"), format!("TOUCHED_ALL {}\r\n", JOBS - lost));
}

#[test]
fn a_batch_ends_although_its_jobs_time_out_faster_than_it_gets_them() {
    const JOBS: usize = 1_000;
    let mut harness = start();
    let [batcher, producer] = harness.connect_each();
    harness.say(&producer, "put 0 0 1 0\r\n\r\n".repeat(JOBS));
    batcher.send(format!("reserve-batch {JOBS}\r\n"));
    harness.one_turn([&batcher]);
    let has_ended = (0..5).any(|_| {
        harness.now = harness.now + NS_PER_S * 6 / 10;
        harness.one_turn([]);
        !batcher.received().is_empty()
    });
    assert!(has_ended, "it reserves the same jobs again and again");
}

#[test]
fn the_jobs_of_a_client_that_leaves_during_a_batch_are_ready_again() {
    let mut harness = start();
    let [batcher, producer] = harness.connect_each();
    harness.say(&producer, puts(900, ""));
    batcher.send("reserve-batch 1000\r\n");
    harness.one_turn([&batcher]);
    assert!((1..900).contains(&harness.queue().figures().jobs.reserved));
    batcher.break_off();
    harness.turn([&batcher]);
    assert_eq!((harness.client_count(), harness.queue().figures().jobs.ready), (1, 900));
}

#[test]
fn a_batch_is_cut_short_where_the_output_has_no_room_for_more() {
    for (body_bytes, least, most) in [(200, 280, 320), (20_000, 50, 60), (100_000, 10, 12)] {
        let mut harness = start();
        let [batcher, producer] = harness.connect_each();
        let body = "x".repeat(body_bytes);
        for _ in 0..400 {
            harness.say(&producer, puts(1, &body));
        }
        let reply = harness.say(&batcher, "reserve-batch 1000\r\n");
        let count: u64 = reply["RESERVED_BATCH ".len()..].split("\r\n").next().unwrap().parse().unwrap();
        assert!((least..=most).contains(&count), "{count} bodies of {body_bytes} bytes");
        assert_eq!(reply, batch(1..=count, &body));
        let next = harness.say(&batcher, "reserve-batch 2\r\n");
        assert_eq!(next, batch([count + 1, count + 2], &body), "the rest is still there");
        harness.queue().check_invariants();
    }
}

thread_local! {
    static IS_EXHAUSTED: Cell<bool> = const { Cell::new(false) };
}

#[test]
fn while_memory_is_short_nothing_is_reserved_and_all_can_be_deleted_and_touched() {
    let mut harness = start();
    harness.executor_mut().watch_memory(|| IS_EXHAUSTED.get());
    let client = harness.connect();
    harness.say(&client, puts(5, "x") + "reserve-batch 2\r\n");
    IS_EXHAUSTED.set(true);
    for line in ["reserve-batch 9\r\n", "reserve-batch 9 60\r\n", "reserve-with-abort\r\n"] {
        assert_eq!(harness.say(&client, line), "OUT_OF_MEMORY\r\n");
    }
    assert_eq!(harness.say(&client, "reserve-mode weighted\r\n"), "OUT_OF_MEMORY\r\n");
    assert_eq!(harness.say(&client, "watch default 7\r\n"), "OUT_OF_MEMORY\r\n");
    assert_eq!(
        harness.say(&client, "touch-all\r\ndelete-batch 1 2 3\r\n"),
        "TOUCHED_ALL 2\r\nDELETED_BATCH 3 0\r\n"
    );
    IS_EXHAUSTED.set(false);
    assert_eq!(harness.say(&client, "reserve-batch 9\r\n"), batch([4, 5], "x"));
}

#[test]
fn the_next_byte_ends_an_abortable_reserve_and_is_executed() {
    let mut harness = start();
    let [worker, producer] = harness.connect_each();
    assert_eq!(harness.say(&worker, "reserve-with-abort\r\n"), "");
    assert_eq!(harness.say(&worker, "w"), "ABORTED\r\n", "one byte will do");
    assert_eq!(harness.say(&worker, "atch a\r\n"), "WATCHING 2\r\n");
    let pipelined = "reserve-with-abort\r\nlist-tube-used\r\n";
    assert_eq!(harness.say(&worker, pipelined), "ABORTED\r\nUSING default\r\n");
    assert_eq!(harness.say(&worker, "reserve-with-abort 9\r\nreserve-with-abort 9\r\n"), "ABORTED\r\n");
    harness.pass(9 * NS_PER_S);
    assert_eq!(worker.received(), "TIMED_OUT\r\n");
    assert_eq!(
        harness.say(&worker, "reserve-with-abort 0\r\nlist-tube-used\r\n"),
        "TIMED_OUT\r\nUSING default\r\n"
    );
    harness.say(&producer, "put 0 0 10 1\r\nx\r\n");
    let answer = "RESERVED 1 1\r\nx\r\nUSING default\r\n";
    assert_eq!(harness.say(&worker, pipelined), answer, "a job that is there comes first");
    assert_eq!(harness.say(&worker, "reserve-with-abort\r\n"), "");
    harness.pass(9 * NS_PER_S);
    assert_eq!(worker.received(), "DEADLINE_SOON\r\n");
    assert_eq!(
        harness.say(&worker, "reserve-with-abort\r\nlist-tube-used\r\n"),
        "DEADLINE_SOON\r\nUSING default\r\n"
    );
}

#[test]
fn a_job_and_a_byte_in_the_same_turn_come_in_the_order_in_which_they_are_read() {
    for job_first in [true, false] {
        let mut harness = start();
        let [worker, producer] = harness.connect_each();
        assert_eq!(harness.say(&worker, "reserve-with-abort\r\n"), "");
        worker.send("list-tube-used\r\n");
        producer.send(puts(1, "x"));
        let both = if job_first { [&producer, &worker] } else { [&worker, &producer] };
        harness.turn(both);
        let (answer, ready) = if job_first { ("RESERVED 1 1\r\nx\r\n", 0) } else { ("ABORTED\r\n", 1) };
        assert_eq!(worker.received(), format!("{answer}USING default\r\n"));
        assert_eq!(harness.queue().figures().jobs.ready, ready);
    }
}

#[test]
fn the_end_of_what_a_client_sends_ends_an_abortable_reserve_as_any_other() {
    for (last, answer) in [("", "TIMED_OUT\r\n"), ("list-tube-used\r\n", "ABORTED\r\nUSING default\r\n")] {
        let mut harness = start();
        let worker = harness.connect();
        assert_eq!(harness.say(&worker, "reserve-with-abort\r\n"), "");
        worker.send(last).end();
        harness.turn([&worker]);
        assert_eq!((worker.received().as_str(), harness.client_count()), (answer, 0), "{last:?}");
        let all_at_once = harness.connect();
        all_at_once.send("reserve-with-abort\r\n").send(last).end();
        harness.turn([&all_at_once]);
        assert_eq!((all_at_once.received().as_str(), harness.client_count()), (answer, 0), "{last:?}");
    }
    // A job that becomes ready in the same turn is the only reply.
    let mut harness = start();
    let [worker, producer] = harness.connect_each();
    assert_eq!(harness.say(&worker, "reserve-with-abort\r\n"), "");
    producer.send(puts(1, "x"));
    worker.end();
    harness.turn([&producer, &worker]);
    assert_eq!(worker.received(), "RESERVED 1 1\r\nx\r\n");
    assert_eq!((harness.client_count(), harness.queue().figures().jobs.ready), (1, 1));
}

#[test]
fn an_abortable_reserve_of_a_client_that_owes_reading_is_aborted_when_it_has_read() {
    let mut harness = start();
    let [worker, producer] = harness.connect_each();
    let body = "x".repeat(1 << 20);
    harness.say(&producer, puts(2, &body));
    let slow = harness.connect_with_room(1000);
    slow.send("reserve\r\nreserve\r\nreserve-with-abort\r\n").send("list-tube-used\r\n");
    harness.turn([&slow]);
    let mut received = slow.received();
    while !received.ends_with("USING default\r\n") {
        let before = received.len();
        harness.turn([&slow]);
        received += &slow.received();
        assert!(received.len() > before, "it goes on as it is read");
    }
    assert!(received.ends_with("x\r\nABORTED\r\nUSING default\r\n"));
    harness.turn([&worker]);
}

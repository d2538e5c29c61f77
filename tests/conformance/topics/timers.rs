//! Delays, pauses and time-outs, and their ends.

use crate::case::{Case, code, script};
use crate::mark;
use beanstalkd_testkit::client::pairs_of;
use rustix::process::Signal;

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        script(
            "a_delayed_job_becomes_ready",
            "a: put 3 1 60 1 | x -> INSERTED 1
             a: stats-job 1 => state: delayed, delay: 1, time-left: 0
             a: reserve-with-timeout 0 -> TIMED_OUT
             until a: stats-job 1 => state: ready
             a: stats-job 1 => delay: 1, time-left: 0, kicks: 0
             a: stats => current-jobs-delayed: 0, current-jobs-ready: 1, current-jobs-urgent: 1",
        ),
        script(
            "a_delay_that_ends_serves_a_waiting_client",
            "a: put 0 1 60 1 | x -> INSERTED 1
             b: reserve -> RESERVED 1 1 | x",
        ),
        script(
            "a_release_with_a_delay_comes_back",
            "a: put 0 0 60 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             a: release 1 5 1 -> RELEASED
             a: reserve -> RESERVED 1 1 | x
             a: stats-job 1 => reserves: 2, releases: 1, pri: 5",
        ).mark(mark::RELEASE),
        script(
            "delays_end_soonest_first",
            "a: put 0 2 60 1 | x -> INSERTED 1
             a: put 9 1 60 1 | y -> INSERTED 2
             b: reserve -> RESERVED 2 1 | y
             b: reserve -> RESERVED 1 1 | x",
        ),
        script(
            "a_job_deleted_in_its_delay_does_not_come_back",
            "a: put 0 1 60 1 | x -> INSERTED 1
             a: delete 1 -> DELETED
             a: reserve-with-timeout 2 -> TIMED_OUT",
        ),
        script(
            "a_delayed_job_outlives_its_producer",
            "a: put 0 1 60 1 | x -> INSERTED 1
             a: <close>
             b: reserve -> RESERVED 1 1 | x",
        ),
        script(
            "a_paused_tube_gives_no_job",
            "a: put 0 0 60 1 | x -> INSERTED 1
             a: pause-tube default 600 -> PAUSED
             a: reserve-with-timeout 0 -> TIMED_OUT
             a: stats-tube default => pause: 600, pause-time-left: 540..599, cmd-pause-tube: 1, current-jobs-ready: 1
             a: stats => cmd-pause-tube: 1",
        ).mark(mark::PAUSE),
        script(
            "a_pause_that_ends_serves_a_waiting_client",
            "a: put 0 0 60 1 | x -> INSERTED 1
             a: pause-tube default 1 -> PAUSED
             b: reserve -> RESERVED 1 1 | x
             b: stats-tube default => pause: 0, pause-time-left: 0",
        ).mark(mark::PAUSE),
        script(
            "a_put_into_a_paused_tube_waits_for_its_end",
            "a: pause-tube default 1 -> PAUSED
             b: reserve ->
             waiting 1
             a: put 0 0 60 1 | x -> INSERTED 1
             waiting 1
             b: -> RESERVED 1 1 | x",
        ).mark(mark::PAUSE),
        script(
            "a_pause_of_0_ends_at_once",
            "a: put 0 0 60 1 | x -> INSERTED 1
             a: pause-tube default 600 -> PAUSED
             b: reserve ->
             waiting 1
             a: pause-tube default 0 -> PAUSED
             b: -> RESERVED 1 1 | x
             a: stats-tube default => pause: 0, cmd-pause-tube: 2",
        ).mark(mark::PAUSE),
        script(
            "a_pause_of_0_is_over_for_the_next_command",
            "a: put 0 0 60 1 | x -> INSERTED 1
             a: pause-tube default 0 | reserve-with-timeout 0 -> PAUSED | RESERVED 1 1 | x",
        ).habit(),
        script(
            "a_pause_of_0_ends_a_longer_one_for_the_next_command",
            "a: put 0 0 60 1 | x -> INSERTED 1
             a: pause-tube default 600 -> PAUSED
             a: pause-tube default 0 | reserve-with-timeout 0 -> PAUSED | RESERVED 1 1 | x",
        ).habit(),
        script(
            "a_shorter_pause_replaces_a_longer_one",
            "a: put 0 0 60 1 | x -> INSERTED 1
             a: pause-tube default 600 -> PAUSED
             a: pause-tube default 1 -> PAUSED
             a: reserve -> RESERVED 1 1 | x",
        ).mark(mark::PAUSE),
        script(
            "a_longer_pause_replaces_a_shorter_one",
            "a: put 0 0 60 1 | x -> INSERTED 1
             a: pause-tube default 1 -> PAUSED
             a: pause-tube default 600 -> PAUSED
             a: reserve-with-timeout 2 -> TIMED_OUT
             a: stats-tube default => pause: 600",
        ).mark(mark::PAUSE),
        script(
            "other_tubes_are_not_paused",
            "a: pause-tube default 600 -> PAUSED
             a: use t -> USING t
             a: put 9 0 60 1 | x -> INSERTED 1
             a: use default -> USING default
             a: put 0 0 60 1 | y -> INSERTED 2
             b: watch t -> WATCHING 2
             b: reserve -> RESERVED 1 1 | x
             b: reserve-with-timeout 0 -> TIMED_OUT",
        ).mark(mark::PAUSE),
        script(
            "pause_needs_a_tube_that_exists",
            r"a: pause-tube t 10 -> NOT_FOUND
              a: stats => cmd-pause-tube: 1, current-tubes: 1
              a: list-tubes -> OK 14 | ---\n- default\n",
        ).mark(mark::PAUSE),
        script(
            "a_job_can_be_deleted_in_a_pause",
            "a: put 0 0 60 1 | x -> INSERTED 1
             a: pause-tube default 600 -> PAUSED
             a: delete 1 -> DELETED",
        ).mark(mark::PAUSE),
        script(
            "a_release_into_a_paused_tube",
            "a: put 0 0 60 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             a: pause-tube default 600 -> PAUSED
             a: release 1 0 0 -> RELEASED
             a: stats-job 1 => state: ready
             a: reserve-with-timeout 0 -> TIMED_OUT",
        ).mark(mark::PAUSE),
        script(
            "a_delay_that_ends_in_a_paused_tube",
            "a: put 0 1 60 1 | x -> INSERTED 1
             a: pause-tube default 600 -> PAUSED
             b: reserve ->
             waiting 1
             until a: stats-job 1 => state: ready
             waiting 1",
        ).mark(mark::PAUSE),
        script(
            "time_outs_of_many_lengths",
            "a: reserve-with-timeout 2 ->
             b: reserve-with-timeout 1 ->
             c: reserve-with-timeout 100 ->
             waiting 3
             b: -> TIMED_OUT
             a: -> TIMED_OUT
             waiting 1",
        ).mark(mark::RESERVE),
        script(
            "a_paused_tube_may_vanish_and_starts_unpaused",
            "a: use t -> USING t
             a: pause-tube t 600 -> PAUSED
             a: use default -> USING default
             a: stats-tube t -> NOT_FOUND
             a: use t -> USING t
             a: stats-tube t => pause: 0, pause-time-left: 0, cmd-pause-tube: 0",
        ).habit(),
        script(
            "ages_and_times_left_round_down",
            "a: put 0 2 60 1 | x -> INSERTED 1
             a: stats-job 1 => age: 0, time-left: 1
             until a: stats-job 1 => age: 1, time-left: 0
             until a: stats-job 1 => age: 2, state: ready",
        ).habit(),
        script(
            "time_left_of_the_longest_delay",
            "a: put 0 4294967295 60 1 | x -> INSERTED 1
             a: stats-job 1 => delay: 4294967295, time-left: 4294967235..4294967294
             a: pause-tube default 4294967295 -> PAUSED
             a: stats-tube default => pause: 4294967295, pause-time-left: 4294967235..4294967294",
        ).mark(mark::PAUSE),
        script(
            "uptime_counts_seconds",
            "until a: stats => uptime: 1
             until a: stats => uptime: 2",
        ).fresh()
        .mark(mark::STATS),
        script(
            "the_longest_ttr",
            "a: put 0 0 4294967295 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             a: stats-job 1 => ttr: 4294967295, time-left: 4294967235..4294967294
             a: reserve-with-timeout 0 -> TIMED_OUT",
        ),
    ];
    cases.push(code("ten_delayed_jobs_of_the_same_second_come_by_priority", |bench| {
        // The pause ends after the delays, so that all jobs are ready when the first is reserved.
        for id in 1..=10 {
            let put = format!("put {} 1 60 1\r\nx\r\n", 10 - id);
            bench.client("a")?.exchange(put.as_bytes(), format!("INSERTED {id}\r\n").as_bytes())?;
        }
        bench.steps("a: pause-tube default 2 -> PAUSED")?;
        for id in (1..=10).rev() {
            let reserved = format!("RESERVED {id} 1\r\nx\r\n");
            bench.client("b")?.exchange(b"reserve\r\n", reserved.as_bytes())?;
        }
        bench.finish()
    }));
    cases.push(
        code("no_time_is_ever_negative", |bench| {
            bench.steps(
                "a: put 0 1 1 1 | x -> INSERTED 1
                 a: put 0 0 1 1 | y -> INSERTED 2
                 a: reserve-job 2 -> RESERVED 2 1 | y
                 a: pause-tube default 1 -> PAUSED",
            )?;
            loop {
                let client = bench.client("b")?;
                let mut replies = client.ask(b"stats-job 1\r\n")?;
                replies.extend(client.ask(b"stats-job 2\r\n")?);
                replies.extend(client.ask(b"stats-tube default\r\n")?);
                let pairs = pairs_of(&replies);
                if pairs.iter().any(|(_, value)| value.starts_with('-') || value.len() > 18) {
                    return Err(client.failure("expected no negative time"));
                }
                if pairs.contains(&("age".to_owned(), "2".to_owned())) {
                    return Ok(());
                }
            }
        })
        .mark(mark::PROTOCOL)
        .deviation("lost-expiries"),
    );
    cases.push(
        code("a_reserve_resumed_after_a_stop_is_answered_once", |bench| {
            // The margin and the TTR of the client's own job, and the delay of the other job, all end while the process
            // is stopped.
            bench.steps(
                "a: put 0 0 2 1 | x -> INSERTED 1
                 a: reserve -> RESERVED 1 1 | x
                 b: use t -> USING t
                 b: put 0 1 60 1 | y -> INSERTED 2
                 a: watch t -> WATCHING 2
                 a: ignore default -> WATCHING 1
                 a: reserve ->
                 waiting 1",
            )?;
            bench.server().signal(Signal::STOP)?;
            std::thread::sleep(std::time::Duration::from_secs(3));
            bench.server().signal(Signal::CONT)?;
            let client = bench.client("a")?;
            let reply = client.read_reply()?;
            if reply != b"RESERVED 2 1\r\ny\r\n" && reply != b"DEADLINE_SOON\r\n" {
                return Err(client.failure("expected the job or DEADLINE_SOON"));
            }
            // The job must be reserved if the client got it, and ready if not.
            let state = if reply.starts_with(b"RES") { "reserved" } else { "ready" };
            bench.play(&format!(
                "a: list-tube-used -> USING default
                 b: stats-job 1 => state: ready
                 b: stats-job 2 => state: {state}"
            ))
        })
        .ours()
        .deviation("stopped-reserve"),
    );
    cases
}

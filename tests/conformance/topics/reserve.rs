//! reserve and its variants: which client gets which job, which clients wait, and what the owner of a job may do.

use crate::case::{Case, Needs, code, script};
use crate::mark;

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        script(
            "with_timeout_0_answers_at_once",
            "a: reserve-with-timeout 0 -> TIMED_OUT
             a: put 0 0 10 1 | x -> INSERTED 1
             a: reserve-with-timeout 0 -> RESERVED 1 1 | x
             a: reserve-with-timeout 0 -> TIMED_OUT",
        ),
        script(
            "with_timeout_1_waits_and_times_out",
            "a: reserve-with-timeout 1 ->
             waiting 1
             a: -> TIMED_OUT
             waiting 0",
        ),
        script(
            "a_wait_that_timed_out_gets_no_job_later",
            "a: reserve-with-timeout 1 -> TIMED_OUT
             b: put 0 0 10 1 | x -> INSERTED 1
             b: stats-job 1 => state: ready
             a: list-tube-used -> USING default",
        ),
        script(
            "a_waiting_client_is_counted_in_each_tube_it_watches",
            "a: watch t -> WATCHING 2
             a: reserve ->
             waiting 1
             b: stats-tube t => current-waiting: 1, current-watching: 1
             b: stats-tube default => current-waiting: 1
             b: use t -> USING t
             b: put 0 0 10 1 | x -> INSERTED 1
             a: -> RESERVED 1 1 | x
             b: stats-tube t => current-waiting: 0
             b: stats-tube default => current-waiting: 0",
        )
        .mark(mark::STATS_TUBE),
        script(
            "a_waiting_client_that_leaves_gets_nothing",
            "a: reserve ->
             waiting 1
             a: <close>
             waiting 0
             b: put 0 0 10 1 | x -> INSERTED 1
             b: stats-job 1 => state: ready, reserves: 0",
        ),
        script(
            "a_job_goes_to_one_of_many_waiting",
            "a: reserve ->
             b: reserve ->
             c: reserve ->
             waiting 3
             d: put 0 0 10 1 | x -> INSERTED 1
             waiting 2
             d: stats => current-jobs-reserved: 1
             a: <close>
             b: <close>
             c: <close>",
        ),
        script(
            "a_client_waiting_elsewhere_is_left_alone",
            "a: watch t -> WATCHING 2
             a: ignore default -> WATCHING 1
             a: reserve ->
             waiting 1
             b: put 0 0 10 1 | x -> INSERTED 1
             b: stats-job 1 => state: ready
             waiting 1",
        ),
        script(
            "release_serves_a_waiting_client",
            "a: put 0 0 10 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             b: reserve ->
             waiting 1
             a: release 1 0 0 -> RELEASED
             b: -> RESERVED 1 1 | x
             a: delete 1 -> NOT_FOUND
             b: delete 1 -> DELETED",
        )
        .mark(mark::RELEASE),
        script(
            "kick_serves_a_waiting_client",
            "a: put 0 600 10 1 | x -> INSERTED 1
             b: reserve ->
             waiting 1
             a: kick 1 -> KICKED 1
             b: -> RESERVED 1 1 | x",
        )
        .mark(mark::KICK),
        script(
            "kick_job_serves_a_waiting_client",
            "a: put 0 600 10 1 | x -> INSERTED 1
             b: reserve ->
             waiting 1
             a: kick-job 1 -> KICKED
             b: -> RESERVED 1 1 | x",
        )
        .mark(mark::KICK_JOB),
        script(
            "the_close_of_an_owner_releases_its_jobs",
            "a: put 0 0 600 1 | x -> INSERTED 1
             a: put 0 0 600 1 | y -> INSERTED 2
             b: reserve -> RESERVED 1 1 | x
             b: reserve -> RESERVED 2 1 | y
             b: <close>
             until a: stats => current-jobs-ready: 2, current-jobs-reserved: 0
             a: stats-job 1 => state: ready, reserves: 1, releases: 0, timeouts: 0
             a: reserve -> RESERVED 1 1 | x",
        )
        .habit(),
        script(
            "the_close_of_an_owner_serves_a_waiting_client",
            "a: put 0 0 600 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             b: reserve ->
             waiting 1
             a: <close>
             b: -> RESERVED 1 1 | x",
        )
        .habit(),
        script(
            "the_jobs_of_an_owner_that_leaves_serve_a_waiting_client_by_priority",
            "a: put 9 0 600 1 | x -> INSERTED 1
             a: put 5 0 600 1 | y -> INSERTED 2
             a: put 7 0 600 1 | z -> INSERTED 3
             a: reserve-job 1 -> RESERVED 1 1 | x
             a: reserve-job 2 -> RESERVED 2 1 | y
             a: reserve-job 3 -> RESERVED 3 1 | z
             b: reserve ->
             waiting 1
             a: <close>
             b: -> RESERVED 2 1 | y",
        )
        .ours()
        .deviation("returned-one-by-one"),
        script(
            "quit_of_an_owner_releases_its_jobs",
            "a: put 0 0 600 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             a: quit -> <closed>
             b: reserve -> RESERVED 1 1 | x",
        )
        .habit(),
        script(
            "a_client_may_hold_many_jobs",
            "a: put 0 0 600 1 | x -> INSERTED 1
             a: put 0 0 600 1 | y -> INSERTED 2
             a: put 0 0 600 1 | z -> INSERTED 3
             a: reserve -> RESERVED 1 1 | x
             a: reserve -> RESERVED 2 1 | y
             a: reserve -> RESERVED 3 1 | z
             a: delete 2 -> DELETED
             a: release 1 0 0 -> RELEASED
             a: bury 3 0 -> BURIED
             a: stats => current-jobs-reserved: 0, current-jobs-ready: 1, current-jobs-buried: 1",
        ),
        script(
            "release_changes_priority_and_counts",
            "a: put 2000 0 600 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             a: release 1 1023 0 -> RELEASED
             a: stats-job 1 => state: ready, pri: 1023, releases: 1, reserves: 1
             a: stats => current-jobs-urgent: 1
             a: reserve -> RESERVED 1 1 | x
             a: release 1 1024 0 -> RELEASED
             a: stats-job 1 => releases: 2, reserves: 2
             a: stats => current-jobs-urgent: 0",
        )
        .mark(mark::RELEASE),
        script(
            "release_with_a_delay_keeps_it",
            "a: put 0 0 600 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             a: release 1 7 300 -> RELEASED
             a: stats-job 1 => state: delayed, pri: 7, delay: 300, time-left: 240..299
             a: kick 1 -> KICKED 1
             a: stats-job 1 => state: ready, delay: 300, kicks: 1",
        )
        .mark(mark::RELEASE),
        script(
            "bury_changes_priority_and_counts",
            "a: put 0 0 600 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             a: bury 1 4294967295 -> BURIED
             a: stats-job 1 => state: buried, pri: 4294967295, buries: 1
             a: kick 1 -> KICKED 1
             a: stats-job 1 => state: ready, pri: 4294967295, buries: 1, kicks: 1",
        )
        .mark(mark::BURY),
        script(
            "reserve_job_takes_a_job_out_of_an_unwatched_tube",
            "a: use t -> USING t
             a: put 9 0 600 1 | x -> INSERTED 1
             b: reserve-job 1 -> RESERVED 1 1 | x
             b: list-tubes-watched -> OK 14 | ---\\n- default\\n
             a: stats-job 1 => state: reserved, reserves: 1",
        )
        .mark(mark::RESERVE_JOB),
        script(
            "reserve_job_takes_a_job_of_a_paused_tube",
            "a: put 0 0 600 1 | x -> INSERTED 1
             a: pause-tube default 600 -> PAUSED
             a: reserve-job 1 -> RESERVED 1 1 | x",
        )
        .mark(mark::RESERVE_JOB),
        script(
            "reserve_job_of_a_delayed_job_ends_its_delay",
            "a: put 0 600 100 1 | x -> INSERTED 1
             a: reserve-job 1 -> RESERVED 1 1 | x
             a: stats-job 1 => state: reserved, time-left: 40..99, delay: 600
             a: release 1 0 0 -> RELEASED
             a: stats-job 1 => state: ready",
        )
        .mark(mark::RESERVE_JOB),
        script(
            "reserve_job_never_waits",
            "a: reserve-job 7 -> NOT_FOUND
             a: stats => current-waiting: 0",
        )
        .mark(mark::RESERVE_JOB),
        script(
            "a_reserve_makes_a_worker",
            "a: stats => current-workers: 0
             a: reserve-with-timeout 0 -> TIMED_OUT
             a: stats => current-workers: 1
             b: put 0 0 600 1 | x -> INSERTED 1
             b: reserve-job 1 -> RESERVED 1 1 | x
             b: stats => current-workers: 2, current-producers: 1",
        )
        .mark(mark::STATS),
        script(
            "a_reserve_refused_makes_no_worker",
            "a: reserve-foo -> BAD_FORMAT
             a: reserve-job 1 -> NOT_FOUND
             a: reserve-with-timeout x -> BAD_FORMAT
             a: stats => current-workers: 0",
        )
        .habit()
        .needs(Needs::Since113),
        script(
            "a_released_job_can_be_reserved_by_its_releaser",
            "a: put 0 0 600 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             a: release 1 0 0 -> RELEASED
             a: reserve -> RESERVED 1 1 | x
             a: stats-job 1 => reserves: 2, releases: 1",
        )
        .mark(mark::RELEASE),
        script(
            "the_first_to_wait_is_the_first_served",
            "a: reserve ->
             waiting 1
             b: reserve ->
             waiting 2
             c: reserve ->
             waiting 3
             d: reserve ->
             waiting 4
             z: put 0 0 60 1 | 1 -> INSERTED 1
             a: -> RESERVED 1 1 | 1
             z: put 0 0 60 1 | 2 -> INSERTED 2
             b: -> RESERVED 2 1 | 2
             z: put 0 0 60 1 | 3 -> INSERTED 3
             c: -> RESERVED 3 1 | 3
             z: put 0 0 60 1 | 4 -> INSERTED 4
             d: -> RESERVED 4 1 | 4",
        )
        .ours()
        .deviation("waiters-order"),
        script(
            "the_first_to_wait_is_the_first_served_across_tubes",
            "a: watch t -> WATCHING 2
             a: reserve ->
             waiting 1
             b: watch t -> WATCHING 2
             b: ignore default -> WATCHING 1
             b: reserve ->
             waiting 2
             c: reserve ->
             waiting 3
             z: use t -> USING t
             z: put 0 0 60 1 | 1 -> INSERTED 1
             a: -> RESERVED 1 1 | 1
             z: put 0 0 60 1 | 2 -> INSERTED 2
             b: -> RESERVED 2 1 | 2
             z: use default -> USING default
             z: put 0 0 60 1 | 3 -> INSERTED 3
             c: -> RESERVED 3 1 | 3",
        )
        .ours()
        .deviation("waiters-order"),
        script(
            "one_of_many_waiting_that_times_out_leaves_the_order",
            "a: reserve ->
             waiting 1
             b: reserve-with-timeout 1 ->
             waiting 2
             c: reserve ->
             waiting 3
             b: -> TIMED_OUT
             b: reserve ->
             waiting 3
             z: put 0 0 60 1 | 1 -> INSERTED 1
             z: put 0 0 60 1 | 2 -> INSERTED 2
             z: put 0 0 60 1 | 3 -> INSERTED 3
             a: -> RESERVED 1 1 | 1
             c: -> RESERVED 2 1 | 2
             b: -> RESERVED 3 1 | 3",
        )
        .ours()
        .deviation("waiters-order"),
    ];
    cases.push(code("fifty_waiting_clients_each_get_one_job", |bench| {
        let mut waiting = Vec::new();
        for _ in 0..50 {
            let mut client = bench.connect()?;
            client.send(b"reserve\r\n")?;
            waiting.push(client);
        }
        bench.steps("waiting 50")?;
        let producer = bench.client("z")?;
        for id in 1..=50 {
            producer.exchange(b"put 0 0 60 1\r\nx\r\n", format!("INSERTED {id}\r\n").as_bytes())?;
        }
        let mut ids = Vec::new();
        for client in &mut waiting {
            ids.push(client.read_reply()?);
        }
        ids.sort();
        ids.dedup();
        if ids.len() != 50 {
            return Err(producer_failure(bench, "a job went to two clients")?);
        }
        bench.play("waiting 0")
    }));
    cases
}

fn producer_failure(
    bench: &mut crate::case::Bench,
    problem: &str,
) -> Result<beanstalkd_testkit::client::Failure, beanstalkd_testkit::client::Failure> {
    Ok(bench.client("z")?.failure(problem))
}

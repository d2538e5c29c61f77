//! The TTR (time to run): expiry, touch, and DEADLINE_SOON.

use crate::case::{Case, code, script, with_mark};
use crate::mark;

pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = expiries().into_iter().map(|case| case.deviation("lost-expiries")).collect();
    cases.extend(with_mark(mark::MARGIN, soon()));
    cases.extend(with_mark(mark::TOUCH, touches()));
    cases
}

/// The end of a TTR.
fn expiries() -> Vec<Case> {
    vec![
        script(
            "a_job_past_its_ttr_is_ready_again",
            "a: put 7 0 1 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             until b: stats-job 1 => state: ready
             b: stats-job 1 => pri: 7, timeouts: 1, reserves: 1, releases: 0
             b: stats => job-timeouts: 1, current-jobs-ready: 1, current-jobs-reserved: 0
             b: stats-tube default => current-jobs-ready: 1, current-jobs-reserved: 0, current-jobs-urgent: 1",
        ),
        script(
            "a_job_past_its_ttr_serves_a_waiting_client",
            "a: put 0 0 1 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             b: reserve -> RESERVED 1 1 | x
             b: stats-job 1 => state: reserved, timeouts: 1, reserves: 2",
        ),
        script(
            "a_former_owner_may_do_nothing",
            "a: put 0 0 1 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             until b: stats-job 1 => state: ready
             a: release 1 0 0 -> NOT_FOUND
             a: bury 1 0 -> NOT_FOUND
             a: touch 1 -> NOT_FOUND
             a: delete 1 -> DELETED",
        ),
        script(
            "a_former_owner_may_not_delete_what_another_reserved",
            "a: put 0 0 1 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             b: reserve -> RESERVED 1 1 | x
             a: delete 1 -> NOT_FOUND
             b: delete 1 -> DELETED",
        ),
        script(
            "each_expiry_is_counted",
            "a: put 0 0 1 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             until b: stats-job 1 => state: ready, timeouts: 1
             a: reserve -> RESERVED 1 1 | x
             until b: stats-job 1 => state: ready, timeouts: 2
             b: stats => job-timeouts: 2",
        ),
        script(
            "jobs_of_one_owner_expire_one_by_one",
            "a: put 0 0 2 1 | x -> INSERTED 1
             a: put 0 0 100 1 | y -> INSERTED 2
             a: reserve -> RESERVED 1 1 | x
             a: reserve -> RESERVED 2 1 | y
             until b: stats-job 1 => state: ready
             b: stats-job 2 => state: reserved",
        ),
        script(
            "an_expiry_in_a_paused_tube_serves_nobody",
            "a: put 0 0 1 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             a: pause-tube default 600 -> PAUSED
             b: reserve ->
             waiting 1
             until c: stats-job 1 => state: ready
             waiting 1",
        ).mark(mark::PAUSE),
        script(
            "a_job_reserved_by_id_expires_too",
            "a: put 0 600 1 1 | x -> INSERTED 1
             a: reserve-job 1 -> RESERVED 1 1 | x
             until b: stats-job 1 => state: ready, timeouts: 1",
        ),
        script(
            "release_bury_and_delete_end_the_ttr",
            "a: put 0 0 1 1 | x -> INSERTED 1
             a: put 1 0 1 1 | y -> INSERTED 2
             a: reserve | reserve -> RESERVED 1 1 | x | RESERVED 2 1 | y
             a: bury 1 0 | delete 2 -> BURIED | DELETED
             b: reserve-with-timeout 2 -> TIMED_OUT
             b: stats-job 1 => state: buried, timeouts: 0
             b: stats => job-timeouts: 0",
        ),
        code("no_expiry_is_lost_on_idle_connections", |bench| {
            const OWNERS: usize = 40;
            let mut owners = (0..OWNERS).map(|_| bench.connect()).collect::<Result<Vec<_>, _>>()?;
            for (id, owner) in (1..).zip(&mut owners) {
                // Each has a separate tube: the first job may expire before the last is reserved.
                owner.exchange(format!("use t{id}\r\n").as_bytes(), format!("USING t{id}\r\n").as_bytes())?;
                owner.exchange(format!("watch t{id}\r\n").as_bytes(), b"WATCHING 2\r\n")?;
                owner.exchange(b"put 0 0 1 1\r\nx\r\n", format!("INSERTED {id}\r\n").as_bytes())?;
                owner.exchange(b"reserve\r\n", format!("RESERVED {id} 1\r\nx\r\n").as_bytes())?;
            }
            bench.play(&format!("until a: stats => current-jobs-ready: {OWNERS}, job-timeouts: {OWNERS}"))
        }),
        script(
            "an_expiry_while_its_owner_waits_elsewhere",
            "a: put 0 0 1 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             a: watch t -> WATCHING 2
             a: ignore default -> WATCHING 1
             a: reserve -> DEADLINE_SOON
             until b: stats-job 1 => state: ready",
        ),
        script(
            "a_release_starts_a_new_ttr_with_the_next_reserve",
            "a: put 0 0 2 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             a: release 1 0 0 -> RELEASED
             a: reserve -> RESERVED 1 1 | x
             a: stats-job 1 => timeouts: 0, reserves: 2
             until b: stats-job 1 => state: ready, timeouts: 1",
        ),
        code("a_body_being_sent_is_not_changed_by_the_expiry_of_its_job", |bench| {
            let size = 8_000_000;
            let body = "o".repeat(size);
            let client = bench.client("a")?;
            client.exchange(format!("put 0 0 1 {size}\r\n{body}\r\n").as_bytes(), b"INSERTED 1\r\n")?;
            client.send(b"reserve\r\n")?;
            bench.steps("until b: stats-job 1 => state: ready, timeouts: 1")?;
            let b = bench.client("b")?;
            b.exchange(b"delete 1\r\n", b"DELETED\r\n")?;
            let other = "n".repeat(size);
            b.exchange(format!("put 0 0 600 {size}\r\n{other}\r\n").as_bytes(), b"INSERTED 2\r\n")?;
            bench.client("a")?.expect(format!("RESERVED 1 {size}\r\n{body}\r\n").as_bytes())?;
            bench.finish()
        }).mark(mark::BODIES)
        .flags(&["-z", "20000000"]),
    ]
}

/// DEADLINE_SOON. A step that must come before the margin begins, or before the job expires, is sent in one write
/// with the reserve, so that a machine that stalls cannot come between the two.
fn soon() -> Vec<Case> {
    let with_put =
        |name: &str, steps: &str| script(name, format!("a: put 0 0 1 1 | x -> INSERTED 1\n{steps}"));
    vec![
        with_put(
            "with_a_ttr_of_1_the_next_reserve_gets_deadline_soon_at_once",
            "a: reserve | reserve -> RESERVED 1 1 | x | DEADLINE_SOON",
        ),
        with_put(
            "a_reserve_with_timeout_0_gets_deadline_soon_too",
            "a: reserve | reserve-with-timeout 0 | reserve-with-timeout 10 \
             -> RESERVED 1 1 | x | DEADLINE_SOON | DEADLINE_SOON",
        ),
        with_put(
            "not_where_a_watched_tube_has_a_ready_job",
            "a: put 0 0 100 1 | y -> INSERTED 2
             a: reserve | reserve | reserve -> RESERVED 1 1 | x | RESERVED 2 1 | y | DEADLINE_SOON",
        )
        .habit(),
        with_put(
            "a_ready_job_in_an_unwatched_tube_does_not_count",
            "a: use t -> USING t
             a: put 0 0 100 1 | y -> INSERTED 2
             a: reserve | reserve -> RESERVED 1 1 | x | DEADLINE_SOON",
        ),
        with_put(
            "not_once_the_job_is_gone",
            "a: reserve | delete 1 | reserve-with-timeout 0 -> RESERVED 1 1 | x | DELETED | TIMED_OUT",
        ),
        with_put(
            "not_once_the_job_is_buried",
            "a: reserve | bury 1 0 | reserve-with-timeout 0 -> RESERVED 1 1 | x | BURIED | TIMED_OUT",
        ),
        script(
            "not_to_another_client",
            // When the job expires, it is ready in a tube that the other client does not watch.
            "a: use t | watch t -> USING t | WATCHING 2
             a: put 0 0 1 1 | x -> INSERTED 1
             a: reserve | reserve-with-timeout 0 -> RESERVED 1 1 | x | DEADLINE_SOON
             b: reserve-with-timeout 0 -> TIMED_OUT",
        ),
        with_put(
            "not_to_reserve_job",
            "a: put 0 0 100 1 | y -> INSERTED 2
             a: reserve | reserve-job 2 | reserve-job 3 \
             -> RESERVED 1 1 | x | RESERVED 2 1 | y | NOT_FOUND",
        )
        .mark(mark::RESERVE_JOB),
        with_put(
            "a_job_of_a_paused_tube_is_neither_given_nor_waited_for",
            "a: put 0 0 100 1 | y -> INSERTED 2
             a: reserve | pause-tube default 600 | reserve -> RESERVED 1 1 | x | PAUSED | DEADLINE_SOON
             a: stats-job 2 => state: ready",
        ),
        script(
            "the_margin_is_a_second_and_no_more",
            "a: put 0 0 2 1 | x -> INSERTED 1
             a: reserve | reserve-with-timeout 0 -> RESERVED 1 1 | x | TIMED_OUT
             until a: stats-job 1 => time-left: 0
             a: reserve-with-timeout 0 -> DEADLINE_SOON",
        ),
        script(
            "a_job_with_time_left_does_not_count",
            "a: put 0 0 100 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             a: reserve-with-timeout 0 -> TIMED_OUT
             a: reserve-with-timeout 1 -> TIMED_OUT",
        ),
        script(
            "comes_to_a_client_that_waits_when_the_margin_begins",
            "a: put 0 0 3 1 | x -> INSERTED 1
             a: reserve | reserve -> RESERVED 1 1 | x
             waiting 1
             a: -> DEADLINE_SOON
             waiting 0
             a: touch 1 -> TOUCHED",
        )
        .deviation("lost-expiries"),
        script(
            "comes_before_a_later_time_out",
            "a: put 0 0 2 1 | x -> INSERTED 1
             a: reserve | reserve-with-timeout 100 -> RESERVED 1 1 | x | DEADLINE_SOON",
        )
        .deviation("lost-expiries"),
        script(
            "is_decided_by_the_soonest_of_many_jobs",
            "a: put 0 0 100 1 | x -> INSERTED 1
             a: put 0 0 1 1 | y -> INSERTED 2
             a: put 0 0 100 1 | z -> INSERTED 3
             a: reserve | reserve | reserve | reserve-with-timeout 0 | delete 2 | reserve-with-timeout 0 \
             -> RESERVED 1 1 | x | RESERVED 2 1 | y | RESERVED 3 1 | z | DEADLINE_SOON | DELETED | TIMED_OUT",
        ),
        script(
            "a_job_put_by_another_ends_the_wait_before_the_margin",
            "a: put 0 0 5 1 | x -> INSERTED 1
             a: reserve | reserve -> RESERVED 1 1 | x
             waiting 1
             b: put 0 0 100 1 | y -> INSERTED 2
             a: -> RESERVED 2 1 | y",
        ),
    ]
}

fn touches() -> Vec<Case> {
    vec![
        script(
            "touch_starts_the_ttr_again",
            "a: put 0 0 2 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             until a: stats-job 1 => time-left: 0
             a: touch 1 -> TOUCHED
             a: stats-job 1 => time-left: 1, state: reserved, timeouts: 0
             until a: stats-job 1 => time-left: 0
             a: touch 1 -> TOUCHED
             a: stats-job 1 => time-left: 1, state: reserved, timeouts: 0",
        ),
        script(
            "touch_ends_the_margin",
            "a: put 0 0 2 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             until a: stats-job 1 => time-left: 0
             a: reserve-with-timeout 0 | touch 1 | reserve-with-timeout 0 -> DEADLINE_SOON | TOUCHED | TIMED_OUT",
        ),
        // Without a wait, because C sometimes loses a time-out during a wait, which the case would have to excuse.
        script(
            "after_a_touch_the_margin_is_that_of_the_job_that_now_ends_first",
            "a: put 0 0 3 1 | x -> INSERTED 1
             a: put 0 0 4 1 | y -> INSERTED 2
             a: reserve | reserve -> RESERVED 1 1 | x | RESERVED 2 1 | y
             until a: stats-job 1 => time-left: 0
             a: touch 1 -> TOUCHED
             until a: stats-job 2 => time-left: 0, state: reserved
             a: reserve-with-timeout 0 | touch 2 | touch 1 | reserve-with-timeout 0 \
             -> DEADLINE_SOON | TOUCHED | TOUCHED | TIMED_OUT",
        ),
        script(
            "touch_of_one_job_leaves_the_others",
            "a: put 0 0 1 1 | x -> INSERTED 1
             a: put 0 0 1 1 | y -> INSERTED 2
             a: reserve | reserve | touch 2 | reserve-with-timeout 0 \
             -> RESERVED 1 1 | x | RESERVED 2 1 | y | TOUCHED | DEADLINE_SOON",
        ),
        script(
            "a_touched_job_expires_in_the_end",
            "a: put 0 0 1 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             a: touch 1 -> TOUCHED
             until b: stats-job 1 => state: ready, timeouts: 1",
        )
        .deviation("lost-expiries"),
        script(
            "touch_changes_the_order_in_which_jobs_expire",
            "a: put 0 0 3 1 | x -> INSERTED 1
             a: put 0 0 4 1 | y -> INSERTED 2
             a: reserve | reserve -> RESERVED 1 1 | x | RESERVED 2 1 | y
             until a: stats-job 1 => time-left: 0
             a: touch 1 -> TOUCHED
             until b: stats-job 2 => state: ready
             a: touch 1 -> TOUCHED",
        )
        .deviation("lost-expiries"),
    ]
}

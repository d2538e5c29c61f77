//! The commands for workers that C does not have: batches, `touch-all`, weights and reserve modes, and
//! `reserve-with-abort`.

use crate::case::{Case, Needs, code, script};

/// Malformed lines of these commands.
const MALFORMED: [&str; 42] = [
    "reserve-batch",
    "reserve-batch\\s",
    "reserve-batch1",
    "reserve-batch 0",
    "reserve-batch 1001",
    "reserve-batch abc",
    "reserve-batch -1",
    "reserve-batch 1 x",
    "reserve-batch 1 2147483648",
    "reserve-batch 1 1 1",
    "delete-batch",
    "delete-batch\\s",
    "delete-batch abc",
    "delete-batch -1",
    "delete-batch 1,2",
    "delete-batch 1 x",
    "delete-batch 18446744073709551616",
    "touch-all 1",
    "touch-allx",
    "touch 1\\s",
    "touch 1 x",
    "touch 1 -1",
    "touch 1 4294967296",
    "touch 1 5 5",
    "release 1 0 0\\s",
    "release 1 0 0 counted",
    "release 1 0 0 UNCOUNTED",
    "release 1 0 0 uncounted x",
    "watch t 0",
    "watch t 10000",
    "watch t -1",
    "watch t 1 1",
    "watch t x",
    "reserve-mode",
    "reserve-mode\\s",
    "reserve-mode fair",
    "reserve-mode FIFO",
    "reserve-mode fifo fifo",
    "reserve-with-abort\\s",
    "reserve-with-abortx",
    "reserve-with-abort x",
    "reserve-with-abort 2147483648",
];

/// Steps that put three jobs, of which job 2 is the most urgent.
const THREE: &str = "a: put 5 0 60 1 | x -> INSERTED 1
    a: put 1 0 60 2 | yy -> INSERTED 2
    a: put 5 0 60 3 | zzz -> INSERTED 3";

pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = MALFORMED
        .iter()
        .map(|line| {
            script(
                format!("[{line}]_is_of_bad_format"),
                format!(
                    "{THREE}\na: {line} -> BAD_FORMAT\na: list-tubes-watched -> OK 14 | ---\\n- default\\n"
                ),
            )
        })
        .collect();
    cases.extend(batches());
    cases.extend(deletes());
    cases.extend(touches());
    cases.extend(modes());
    cases.extend(aborts());
    cases.into_iter().map(|case| case.needs(Needs::Work).ours()).collect()
}

/// A case that begins with [`THREE`].
fn after(name: &str, steps: &str) -> Case {
    script(name, format!("{THREE}\n{steps}"))
}

fn batches() -> Vec<Case> {
    vec![
        after(
            "a_batch_has_the_most_urgent_jobs_in_order",
            "b: reserve-batch 2 -> RESERVED_BATCH 2
             b: -> RESERVED 2 2 | yy
             b: -> RESERVED 1 1 | x
             b: reserve-batch 1000 -> RESERVED_BATCH 1
             b: -> RESERVED 3 3 | zzz
             b: stats => cmd-reserve-batch: 2, current-jobs-reserved: 3, current-workers: 1, job-reserves: 3",
        ),
        after(
            "a_batch_has_no_more_jobs_than_were_asked_for",
            "a: put 4294967295 0 60 1 | w -> INSERTED 4
             b: reserve-batch 3 -> RESERVED_BATCH 3
             b: -> RESERVED 2 2 | yy
             b: -> RESERVED 1 1 | x
             b: -> RESERVED 3 3 | zzz
             b: peek-ready -> FOUND 4 1 | w",
        ),
        script(
            "a_batch_of_nothing_is_empty_at_once",
            "a: reserve-batch 5 -> RESERVED_BATCH 0
             a: reserve-batch 5 0 -> TIMED_OUT",
        ),
        script("a_batch_of_nothing_with_a_time_out_waits", "a: reserve-batch 5 1 -> TIMED_OUT"),
        script(
            "a_batch_that_waits_gets_the_next_job",
            "b: reserve-batch 5 60 ->
             waiting 1
             a: put 0 0 60 1 | x -> INSERTED 1
             b: -> RESERVED_BATCH 1
             b: -> RESERVED 1 1 | x",
        ),
        script(
            "a_batch_does_not_wait_while_a_reservation_is_about_to_end",
            "a: put 0 0 1 1 | x -> INSERTED 1
             b: reserve-batch 2 -> RESERVED_BATCH 1
             b: -> RESERVED 1 1 | x
             b: reserve-batch 2 60 -> DEADLINE_SOON
             b: reserve-batch 2 -> RESERVED_BATCH 0",
        ),
        script(
            "a_half_close_while_a_batch_waits_is_timed_out",
            "b: reserve-batch 5 60 ->
             waiting 1
             b: <half-close>
             b: -> TIMED_OUT
             b: -> <closed>",
        ),
        after(
            "a_batch_takes_from_all_watched_tubes_but_those_that_are_paused",
            "a: use t -> USING t
             a: put 0 0 60 1 | t -> INSERTED 4
             a: pause-tube default 100 -> PAUSED
             b: watch t -> WATCHING 2
             b: reserve-batch 9 -> RESERVED_BATCH 1
             b: -> RESERVED 4 1 | t
             a: pause-tube default 0 -> PAUSED
             b: reserve-batch 9 -> RESERVED_BATCH 3
             b: -> RESERVED 2 2 | yy
             b: -> RESERVED 1 1 | x
             b: -> RESERVED 3 3 | zzz",
        ),
    ]
}

fn deletes() -> Vec<Case> {
    vec![
        after(
            "a_batch_of_deletes_says_how_many_there_were",
            "a: delete-batch 1 3 99 -> DELETED_BATCH 2 1
             a: delete-batch 1 2 2 -> DELETED_BATCH 1 2
             a: stats => cmd-delete-batch: 2, cmd-delete: 0, job-deletes: 3, current-jobs-ready: 0",
        ),
        after(
            "jobs_in_every_state_are_deleted_but_those_that_others_have_reserved",
            "b: reserve -> RESERVED 2 2 | yy
             b: bury 2 0 -> BURIED
             b: reserve -> RESERVED 1 1 | x
             a: reserve -> RESERVED 3 3 | zzz
             a: put 0 600 60 1 | d -> INSERTED 4
             a: delete-batch 4 3 2 1 -> DELETED_BATCH 3 1
             b: delete-batch 1 -> DELETED_BATCH 1 0",
        ),
        code("a_thousand_ids_of_twenty_digits_find_room_in_a_line_and_one_more_does_not", |bench| {
            let client = bench.client("a")?;
            let line = |count| format!("delete-batch{}\r\n", " 18446744073709551615".repeat(count));
            client.exchange(line(1000).as_bytes(), b"DELETED_BATCH 0 1000\r\n")?;
            client.exchange(line(1001).as_bytes(), b"BAD_FORMAT\r\n")?;
            client
                .exchange(format!("delete-batch{}\r\n", " 1".repeat(1001)).as_bytes(), b"BAD_FORMAT\r\n")?;
            client
                .exchange(format!("delete-batchx{}\r\n", " 1".repeat(200)).as_bytes(), b"BAD_FORMAT\r\n")?;
            client.exchange(format!("delete {}1\r\n", "0".repeat(300)).as_bytes(), b"BAD_FORMAT\r\n")
        }),
    ]
}

fn touches() -> Vec<Case> {
    vec![
        after(
            "touch_all_touches_the_jobs_that_the_client_has_reserved",
            "a: touch-all -> TOUCHED_ALL 0
             a: reserve -> RESERVED 2 2 | yy
             b: reserve -> RESERVED 1 1 | x
             a: reserve -> RESERVED 3 3 | zzz
             a: touch-all -> TOUCHED_ALL 2
             a: delete 2 -> DELETED
             a: touch-all -> TOUCHED_ALL 1
             a: stats => cmd-touch-all: 3, cmd-touch: 0",
        ),
        script(
            "touch_all_starts_the_times_to_run_again",
            "a: put 0 0 2 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             a: reserve-with-timeout 2 -> DEADLINE_SOON
             a: touch-all -> TOUCHED_ALL 1
             a: reserve-with-timeout 0 -> TIMED_OUT",
        ),
        after(
            "touch_with_seconds_gives_the_reservation_so_long_and_the_ttr_stays",
            "a: reserve -> RESERVED 2 2 | yy
             a: touch 2 1000 -> TOUCHED
             a: stats-job 2 => ttr: 60, time-left: 990..1000
             a: touch 2 4294967295 -> TOUCHED
             a: stats-job 2 => ttr: 60, time-left: 4294967200..4294967295
             a: touch 2 -> TOUCHED
             a: stats-job 2 => ttr: 60, time-left: 50..60
             a: touch 2 1000 -> TOUCHED
             a: touch-all -> TOUCHED_ALL 1
             a: stats-job 2 => time-left: 50..60
             a: touch 2 1000 -> TOUCHED
             a: release 2 1 0 -> RELEASED
             a: reserve -> RESERVED 2 2 | yy
             a: stats-job 2 => time-left: 50..60
             b: touch 2 1000 -> NOT_FOUND
             a: touch 1 1000 -> NOT_FOUND
             a: stats => cmd-touch: 7",
        ),
        after(
            "touch_with_no_second_gives_one",
            "a: reserve -> RESERVED 2 2 | yy
             a: touch 2 0 -> TOUCHED
             a: reserve-with-timeout 60 -> RESERVED 1 1 | x
             a: reserve-with-timeout 60 -> RESERVED 3 3 | zzz
             a: reserve-with-timeout 60 -> DEADLINE_SOON
             until a: stats-job 2 => state: ready
             a: stats-job 2 => timeouts: 1",
        ),
        after(
            "an_uncounted_release_counts_as_no_release",
            "a: reserve -> RESERVED 2 2 | yy
             a: release 2 7 0 uncounted -> RELEASED
             a: stats-job 2 => state: ready, pri: 7, reserves: 1, releases: 0
             a: stats-tube default => job-releases: 0
             a: reserve-job 2 -> RESERVED 2 2 | yy
             a: release 2 7 100 uncounted -> RELEASED
             a: stats-job 2 => state: delayed, delay: 100, releases: 0
             a: reserve-job 2 -> RESERVED 2 2 | yy
             a: release 2 7 0 -> RELEASED
             a: stats-job 2 => releases: 1
             a: release 2 7 0 uncounted -> NOT_FOUND
             a: stats => cmd-release: 4, job-releases: 1",
        ),
        after(
            "the_limit_of_releases_does_not_apply_to_an_uncounted_one",
            "a: reserve-job 1 -> RESERVED 1 1 | x
             a: release 1 0 0 -> RELEASED
             a: reserve-job 1 -> RESERVED 1 1 | x
             a: release 1 0 0 uncounted -> RELEASED
             a: reserve-job 1 -> RESERVED 1 1 | x
             a: release 1 0 0 uncounted -> RELEASED
             a: reserve-job 1 -> RESERVED 1 1 | x
             a: release 1 0 0 -> BURIED
             a: kick-job 1 -> KICKED
             a: reserve-job 1 -> RESERVED 1 1 | x
             a: release 1 0 0 uncounted -> RELEASED
             a: stats-job 1 => state: ready, releases: 2",
        )
        .flags(&["--max-releases", "2"]),
    ]
}

fn modes() -> Vec<Case> {
    let word = |word: &str| {
        script(
            format!("the_mode_{word}_is_answered_with_its_word"),
            format!("a: reserve-mode {word} -> USING {word}"),
        )
    };
    vec![
        word("fifo"),
        word("default"),
        word("weighted"),
        word("weighted-fair"),
        script(
            "a_weight_does_not_change_how_many_tubes_are_watched",
            "a: watch t 5 -> WATCHING 2
             a: watch t 7 -> WATCHING 2
             a: watch t -> WATCHING 2
             a: watch default 9999 -> WATCHING 2
             a: ignore default -> WATCHING 1
             a: ignore t -> NOT_IGNORED
             a: stats => cmd-watch: 4",
        ),
        after(
            "of_one_tube_every_mode_takes_the_most_urgent_job",
            "b: reserve-mode weighted -> USING weighted
             b: reserve -> RESERVED 2 2 | yy
             b: reserve-mode weighted-fair -> USING weighted-fair
             b: reserve-batch 9 -> RESERVED_BATCH 2
             b: -> RESERVED 1 1 | x
             b: -> RESERVED 3 3 | zzz
             b: stats => cmd-reserve-mode: 2",
        ),
        script(
            "clients_that_wait_in_a_weighted_mode_are_served_in_order",
            "a: reserve-mode weighted -> USING weighted
             a: watch t 100 -> WATCHING 2
             a: reserve ->
             waiting 1
             b: reserve ->
             waiting 2
             c: put 0 0 60 1 | x -> INSERTED 1
             a: -> RESERVED 1 1 | x
             c: put 0 0 60 1 | y -> INSERTED 2
             b: -> RESERVED 2 1 | y",
        ),
        code("a_tube_of_a_large_weight_is_chosen_more_often", |bench| {
            let client = bench.client("a")?;
            client.exchange(b"watch heavy 9999\r\n", b"WATCHING 2\r\n")?;
            client.exchange(b"reserve-mode weighted\r\n", b"USING weighted\r\n")?;
            for tube in ["default", "heavy"] {
                client
                    .exchange(format!("use {tube}\r\n").as_bytes(), format!("USING {tube}\r\n").as_bytes())?;
                for _ in 0..50 {
                    client.ask(b"put 0 0 60 1\r\nx\r\n")?;
                }
            }
            for _ in 0..20 {
                client.ask(b"reserve\r\n")?;
            }
            // The probability that four of them are from the other tube is less than 10^-12.
            let stats = String::from_utf8_lossy(&client.ask(b"stats-tube heavy\r\n")?).into_owned();
            let reserved = stats.lines().find_map(|line| line.strip_prefix("current-jobs-reserved: "));
            match reserved.and_then(|count| count.parse::<u32>().ok()) {
                Some(17..) => Ok(()),
                count => Err(client.failure(&format!("{count:?} of 20 jobs are of the heavy tube"))),
            }
        }),
    ]
}

fn aborts() -> Vec<Case> {
    vec![
        script(
            "an_abortable_reserve_ends_at_the_next_command",
            "a: reserve-with-abort ->
             waiting 1
             a: watch t ->
             a: -> ABORTED
             a: -> WATCHING 2
             a: stats => cmd-reserve-with-abort: 1, current-waiting: 0",
        ),
        script(
            "an_abortable_reserve_with_a_time_out_times_out",
            "a: reserve-with-abort 1 -> TIMED_OUT
             a: reserve-with-abort 0 -> TIMED_OUT",
        ),
        after("an_abortable_reserve_takes_a_ready_job", "b: reserve-with-abort -> RESERVED 2 2 | yy"),
        script(
            "an_abortable_reserve_that_waits_gets_the_next_job",
            "b: reserve-with-abort ->
             waiting 1
             a: put 0 0 60 1 | x -> INSERTED 1
             b: -> RESERVED 1 1 | x",
        ),
        script(
            "a_half_close_while_an_abortable_reserve_waits_is_timed_out",
            "b: reserve-with-abort ->
             waiting 1
             b: <half-close>
             b: -> TIMED_OUT
             b: -> <closed>",
        ),
        code("bytes_that_are_pipelined_after_an_abortable_reserve_end_it", |bench| {
            let client = bench.client("a")?;
            client.exchange(b"reserve-with-abort\r\nlist-tube-used\r\n", b"ABORTED\r\nUSING default\r\n")?;
            client.send(b"reserve-with-abort\r\nlist-tube")?;
            client.exchange(b"", b"ABORTED\r\n")?;
            client.exchange(b"-used\r\n", b"USING default\r\n")
        }),
    ]
}

//! Restarts with `-b`: which jobs come back, and in which state.

use crate::case::{Case, Needs, code, script};
use beanstalkd_testkit::client::Failure;
use rustix::process::Signal;

const BINLOG: &[&str] = &["-b", "{dir}", "-f0"];

/// For each case: its name, the steps before a restart, and the steps after it.
const LIVES: &[(&str, &str, &str)] = &[
    (
        "a_ready_job_comes_back",
        "a: put 1023 0 77 5 | hello -> INSERTED 1",
        "a: stats-job 1 => state: ready, pri: 1023, ttr: 77, delay: 0, tube: default
         a: stats => current-jobs-ready: 1, current-jobs-urgent: 1
         a: reserve -> RESERVED 1 5 | hello",
    ),
    (
        "a_delayed_job_comes_back_delayed",
        "a: put 5 600 77 5 | hello -> INSERTED 1",
        "a: stats-job 1 => state: delayed, pri: 5, ttr: 77, delay: 600
         a: stats => current-jobs-delayed: 1, current-jobs-ready: 0
         a: peek-delayed -> FOUND 1 5 | hello",
    ),
    (
        "a_buried_job_comes_back_buried",
        "a: put 5 0 77 5 | hello -> INSERTED 1
         a: reserve -> RESERVED 1 5 | hello
         a: bury 1 9 -> BURIED",
        "a: stats-job 1 => state: buried, pri: 9
         a: stats => current-jobs-buried: 1
         a: peek-buried -> FOUND 1 5 | hello
         a: kick 1 -> KICKED 1
         a: reserve -> RESERVED 1 5 | hello",
    ),
    (
        "a_reserved_job_comes_back_ready",
        "a: put 5 0 77 5 | hello -> INSERTED 1
         a: reserve -> RESERVED 1 5 | hello",
        "a: stats-job 1 => state: ready, pri: 5
         a: reserve -> RESERVED 1 5 | hello",
    ),
    (
        "a_deleted_job_does_not_come_back",
        "a: put 5 0 77 5 | hello -> INSERTED 1
         a: put 5 0 77 5 | world -> INSERTED 2
         a: delete 1 -> DELETED",
        "a: peek 1 -> NOT_FOUND
         a: peek 2 -> FOUND 2 5 | world
         a: stats => current-jobs-ready: 1",
    ),
    (
        "a_job_deleted_by_its_owner_does_not_come_back",
        "a: put 5 0 77 5 | hello -> INSERTED 1
         a: reserve -> RESERVED 1 5 | hello
         a: delete 1 -> DELETED",
        "a: peek 1 -> NOT_FOUND
         a: stats => current-jobs-ready: 0",
    ),
    (
        "a_job_released_with_a_delay_comes_back_delayed",
        "a: put 5 0 77 5 | hello -> INSERTED 1
         a: reserve -> RESERVED 1 5 | hello
         a: release 1 7 600 -> RELEASED",
        "a: stats-job 1 => state: delayed, pri: 7, delay: 600",
    ),
    (
        "a_kicked_job_comes_back_ready",
        "a: put 5 600 77 5 | hello -> INSERTED 1
         a: kick 1 -> KICKED 1",
        "a: stats-job 1 => state: ready, kicks: 1",
    ),
    (
        "tubes_come_back_with_their_jobs",
        "a: use t -> USING t
         a: put 5 0 77 1 | x -> INSERTED 1
         a: use u -> USING u
         a: put 5 600 77 1 | y -> INSERTED 2",
        r"a: list-tubes -> OK 22 | ---\n- default\n- t\n- u\n
          a: stats-tube t => current-jobs-ready: 1, current-using: 0
          a: stats-tube u => current-jobs-delayed: 1
          a: delete 1 -> DELETED
          a: delete 2 -> DELETED
          a: list-tubes -> OK 14 | ---\n- default\n",
    ),
    (
        "jobs_come_back_in_their_order",
        "a: put 9 0 77 1 | a -> INSERTED 1
         a: put 3 0 77 1 | b -> INSERTED 2
         a: put 3 0 77 1 | c -> INSERTED 3",
        "a: reserve -> RESERVED 2 1 | b
         a: reserve -> RESERVED 3 1 | c
         a: reserve -> RESERVED 1 1 | a",
    ),
    (
        "a_body_of_any_bytes_comes_back",
        r"a: put 0 0 60 8 | \0\r\n\xff\x00\r\r\n -> INSERTED 1
          a: put 0 0 60 0 | \r\n\c -> INSERTED 2",
        r"a: peek 1 -> FOUND 1 8 | \0\r\n\xff\x00\r\r\n
          a: peek 2 -> FOUND 2 0 | \r\n\c",
    ),
    (
        "ids_continue_after_the_highest_that_exists",
        "a: put 0 0 60 1 | x -> INSERTED 1
         a: put 0 0 60 1 | x -> INSERTED 2",
        "a: put 0 0 60 1 | x -> INSERTED 3",
    ),
    (
        "a_refused_put_leaves_nothing",
        r"a: put 0 0 60 1 | xyz\c -> EXPECTED_CRLF
          a: put 0 0 60 100000 ->",
        "a: stats => current-jobs-ready: 0, total-jobs: 0",
    ),
    (
        "an_unfinished_body_leaves_nothing",
        r"a: put 0 0 60 10 | hello\c ->",
        "a: stats => current-jobs-ready: 0",
    ),
    (
        "commands_count_from_0_again",
        "a: put 0 0 60 1 | x -> INSERTED 1",
        "a: stats => cmd-put: 0, total-jobs: 0",
    ),
];

/// Like [`LIVES`], for facts that C's binlog does not keep.
const LIVES_OF_OURS: &[(&str, &str, &str)] = &[
    (
        "ids_are_never_given_twice",
        "a: put 0 0 60 1 | x -> INSERTED 1
         a: put 0 0 60 1 | x -> INSERTED 2
         a: delete 2 -> DELETED
         a: delete 1 -> DELETED",
        "a: put 0 0 60 1 | x -> INSERTED 3",
    ),
    (
        "release_without_a_delay_comes_back_with_its_priority",
        "a: put 5 0 77 1 | x -> INSERTED 1
         a: reserve -> RESERVED 1 1 | x
         a: release 1 7 0 -> RELEASED",
        "a: stats-job 1 => state: ready, pri: 7, releases: 1",
    ),
    (
        "buried_jobs_come_back_in_the_order_of_their_burying",
        "a: put 0 0 77 1 | a -> INSERTED 1
         a: put 0 0 77 1 | b -> INSERTED 2
         a: put 0 0 77 1 | c -> INSERTED 3
         a: reserve | reserve | reserve -> RESERVED 1 1 | a | RESERVED 2 1 | b | RESERVED 3 1 | c
         a: bury 2 0 | bury 3 0 | bury 1 0 -> BURIED | BURIED | BURIED",
        "a: kick 1 -> KICKED 1
         a: stats-job 2 => state: ready, buries: 1
         a: kick 1 -> KICKED 1
         a: stats-job 3 => state: ready, buries: 1
         a: stats-job 1 => state: buried, buries: 1",
    ),
    (
        "a_new_priority_leaves_a_buried_job_at_its_place",
        "a: put 9 0 77 1 idp:k | a -> INSERTED 1
         a: put 9 0 77 1 | b -> INSERTED 2
         a: put 9 0 77 1 | c -> INSERTED 3
         a: reserve | reserve | reserve -> RESERVED 1 1 | a | RESERVED 2 1 | b | RESERVED 3 1 | c
         a: bury 1 9 | bury 2 9 | bury 3 9 -> BURIED | BURIED | BURIED
         a: reprioritize 2 7 -> REPRIORITIZED
         a: put 5 0 77 1 idp:k | d -> INSERTED 1 BURIED 5",
        "a: kick 1 -> KICKED 1
         a: stats-job 1 => state: ready, pri: 5
         a: kick 1 -> KICKED 1
         a: stats-job 2 => state: ready, pri: 7
         a: stats-job 3 => state: buried, pri: 9",
    ),
];

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for signal in [Signal::TERM, Signal::KILL] {
        for (name, before, after) in LIVES {
            cases.push(life(name, before, after, signal).needs(Needs::Persistence));
        }
        for (name, before, after) in LIVES_OF_OURS {
            cases.push(life(name, before, after, signal).deviation("binlog-gaps").ours());
        }
    }
    cases.push(
        code("a_thousand_jobs_over_many_files_come_back", |bench| {
            let body = "y".repeat(1000);
            let client = bench.client("a")?;
            for id in 1..=1000 {
                let put = format!("put {id} 0 60 1000\r\n{body}\r\n");
                client.exchange(put.as_bytes(), format!("INSERTED {id}\r\n").as_bytes())?;
            }
            for id in (1..=1000).step_by(2) {
                client.exchange(format!("delete {id}\r\n").as_bytes(), b"DELETED\r\n")?;
            }
            bench.server_mut().restart(Signal::TERM)?;
            bench.steps("b: stats => current-jobs-ready: 500")?;
            for id in (2..=1000).step_by(2) {
                let reserved = format!("RESERVED {id} 1000\r\n{body}\r\n");
                bench.client("b")?.exchange(b"reserve\r\n", reserved.as_bytes())?;
            }
            Ok(())
        })
        .needs(Needs::Persistence)
        .flags(&["-b", "{dir}", "-f0", "-s", "65536"]),
    );
    cases.push(
        script(
            "stats_job_names_the_file_of_the_job",
            "a: put 5 0 77 5 | hello -> INSERTED 1
             a: stats-job 1 => file: 1",
        )
        .needs(Needs::Persistence)
        .flags(BINLOG),
    );
    cases.push(
        code("three_restarts_in_a_row", |bench| {
            bench.steps("a: put 0 0 60 1 | x -> INSERTED 1")?;
            for id in 2..5 {
                bench.server_mut().restart(Signal::TERM)?;
                let name = format!("after-{id}");
                bench.steps(&format!(
                    "{name}: stats => current-jobs-ready: {}
                     {name}: put 0 0 60 1 | x -> INSERTED {id}",
                    id - 1
                ))?;
            }
            Ok(())
        })
        .needs(Needs::Persistence)
        .flags(BINLOG),
    );
    cases.push(
        code("a_job_of_the_largest_size_and_those_after_it_come_back", |bench| {
            let body = "y".repeat(65_535);
            let put = format!("put 0 0 60 65535\r\n{body}\r\n");
            bench.client("a")?.exchange(put.as_bytes(), b"INSERTED 1\r\n")?;
            bench.steps("a: put 1 0 60 1 | x -> INSERTED 2")?;
            bench.server_mut().restart(Signal::TERM)?;
            bench.play("b: stats => current-jobs-ready: 2")
        })
        .ours()
        .flags(BINLOG)
        .deviation("largest-job"),
    );
    for (name, asked, size) in [
        ("a_binlog_size_of_0_gives_files_of_4096", "0", 4096),
        ("a_binlog_size_of_1_gives_files_of_4096", "1", 4096),
        ("a_binlog_size_of_4095_gives_files_of_4096", "4095", 4096),
        ("a_binlog_size_of_4096_gives_files_of_4096", "4096", 4096),
        ("a_binlog_size_of_4097_gives_files_of_8192", "4097", 8192),
        ("a_binlog_size_of_10000_gives_files_of_12288", "10000", 12_288),
    ] {
        let case = code(name, move |bench| {
            bench.steps(&format!("a: stats => binlog-current-index: 1, binlog-max-size: {asked}"))?;
            let path = bench.server().directory().join("binlog.1");
            let found = std::fs::metadata(path)?.len();
            if found == size { Ok(()) } else { Err(Failure::new(format!("binlog.1 has {found} bytes"))) }
        })
        .needs(Needs::Persistence)
        .flags(&["-b", "{dir}", "-s", asked]);
        cases.push(if asked == "0" { case.ours().deviation("binlog-size-0") } else { case });
    }
    cases
}

/// A case with a restart between its two halves.
pub fn life(name: &str, before: &'static str, after: &'static str, signal: Signal) -> Case {
    let end = if signal == Signal::KILL { "kill" } else { "stop" };
    code(format!("{name}_after_a_{end}"), move |bench| {
        bench.steps(before)?;
        bench.settle()?;
        bench.server_mut().restart(signal)?;
        // The clients were connected to the first process.
        bench.forget_clients();
        bench.play(after)
    })
    .flags(BINLOG)
}

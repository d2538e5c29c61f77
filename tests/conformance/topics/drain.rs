//! Drain mode: after SIGUSR1 the server refuses new jobs, and executes all other commands.

use crate::case::{Bench, Case, Needs, code};
use beanstalkd_testkit::client::Failure;
use rustix::process::Signal;

/// For each case: its name, the steps before drain mode, and the steps in drain mode.
const CASES: &[(&str, &str, &str)] = &[
    (
        "refuses_a_put",
        "",
        "a: put 0 0 60 1 | x -> DRAINING
         a: stats => current-jobs-ready: 0, total-jobs: 0, cmd-put: 1",
    ),
    (
        "takes_the_body_of_a_refused_put",
        "",
        "a: put 0 0 60 14 | list-tube-used -> DRAINING
         a: list-tube-used -> USING default",
    ),
    ("refuses_a_delayed_put", "", "a: put 0 60 60 1 | x -> DRAINING"),
    ("checks_the_trailer_first", "", r"a: put 0 0 60 1 | xyz\c -> EXPECTED_CRLF"),
    ("checks_the_header_first", "", "a: put 0 0 60 x -> BAD_FORMAT"),
    ("checks_the_size_first", "", "a: put 0 0 60 21 | 123456789012345678901 -> JOB_TOO_BIG"),
    (
        "executes_all_other_commands",
        "a: put 0 0 60 1 | x -> INSERTED 1",
        "a: reserve-with-timeout 0 -> RESERVED 1 1 | x
         a: touch 1 -> TOUCHED
         a: release 1 0 0 -> RELEASED
         a: reserve -> RESERVED 1 1 | x
         a: bury 1 0 -> BURIED
         a: kick 1 -> KICKED 1
         a: peek-ready -> FOUND 1 1 | x
         a: use t -> USING t
         a: watch t -> WATCHING 2
         a: pause-tube t 1 -> PAUSED
         a: delete 1 -> DELETED",
    ),
    ("is_shown_in_stats", "a: stats => draining: false", "a: stats => draining: true"),
    (
        "makes_a_producer_of_a_refused_client",
        "",
        "a: put 0 0 60 1 | x -> DRAINING
         a: stats => current-producers: 1",
    ),
    ("reaches_a_put_whose_body_is_on_its_way", r"a: put 0 0 60 5 | hel\c ->", "a: lo -> DRAINING"),
    (
        "leaves_a_waiting_client_waiting",
        "a: reserve ->\nwaiting 1",
        "waiting 1\nb: put 0 0 60 1 | x -> DRAINING",
    ),
];

/// The cases about which the protocol document says nothing.
const HABITS: &[&str] = &[
    "checks_the_trailer_first",
    "checks_the_header_first",
    "checks_the_size_first",
    "makes_a_producer_of_a_refused_client",
    "reaches_a_put_whose_body_is_on_its_way",
];

pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = CASES
        .iter()
        .map(|(name, before, steps)| {
            let case = code(*name, |bench| {
                bench.steps(before)?;
                drain(bench)?;
                bench.play(steps)
            });
            let case = case.needs(Needs::Drain).flags(&["-z", "20"]);
            if HABITS.contains(name) { case.habit() } else { case }
        })
        .collect();
    cases.extend([
        code("goes_on_after_a_second_sigusr1", |bench| {
            drain(bench)?;
            drain(bench)?;
            bench.play("a: put 0 0 60 1 | x -> DRAINING")
        })
        .needs(Needs::Drain),
        code("uses_an_id_up_for_each_refused_put", |bench| {
            drain(bench)?;
            bench.steps("a: put 0 0 60 1 | x -> DRAINING")?;
            undrain(bench)?;
            bench.play("a: put 0 0 60 1 | x -> INSERTED 2")
        })
        .ours()
        .needs(Needs::Extension),
        code("ends_with_sigusr2", |bench| {
            drain(bench)?;
            undrain(bench)?;
            bench.play("a: put 0 0 60 1 | x -> INSERTED 1")
        })
        .ours()
        .needs(Needs::Extension),
        code("begins_right_after_the_start", |bench| {
            // The signal comes as soon as the server accepts connections, before it has answered a command.
            for _ in 0..20 {
                bench.server_mut().restart(Signal::KILL)?;
                bench.server().signal(Signal::USR1)?;
                bench.play("until a: stats => draining: true")?;
            }
            Ok(())
        })
        .needs(Needs::Drain)
        .deviation("early-drain-signal"),
    ]);
    cases
}

fn drain(bench: &mut Bench) -> Result<(), Failure> {
    // A reply shows that the server has set its signal handlers by now.
    bench.settle()?;
    bench.server().signal(Signal::USR1)?;
    bench.steps("until control: stats => draining: true")
}

fn undrain(bench: &mut Bench) -> Result<(), Failure> {
    bench.server().signal(Signal::USR2)?;
    bench.steps("until control: stats => draining: false")
}

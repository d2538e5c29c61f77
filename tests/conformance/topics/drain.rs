//! Drain mode: SIGUSR1 refuses new jobs and nothing else.

use crate::case::{Bench, Case, Needs, code};
use beanstalkd_testkit::client::Failure;
use rustix::process::Signal;

/// What goes before, and what holds in drain mode.
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
        "leaves_all_other_commands",
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
        "makes_a_producer_of_who_is_refused",
        "",
        "a: put 0 0 60 1 | x -> DRAINING
         a: stats => current-producers: 1",
    ),
    ("reaches_a_put_whose_body_is_on_its_way", r"a: put 0 0 60 5 | hel\c ->", "a: lo -> DRAINING"),
    (
        "of_a_server_with_a_waiting_client",
        "a: reserve ->\nwaiting 1",
        "waiting 1\nb: put 0 0 60 1 | x -> DRAINING",
    ),
];

/// Those of which the protocol document says nothing.
const HABITS: &[&str] = &[
    "checks_the_trailer_first",
    "checks_the_header_first",
    "checks_the_size_first",
    "makes_a_producer_of_who_is_refused",
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
        code("of_a_draining_server_is_drain", |bench| {
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
        code("of_a_server_that_just_started", |bench| {
            // As soon as it accepts, and thus before any command was answered.
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

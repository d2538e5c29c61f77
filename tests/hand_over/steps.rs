//! An event at each step of a hand-over: a kill, a stop, another signal, other settings, another time. A step is a
//! system call (see `tracer`); meanwhile clients put, reserve with sessions and delete.
//!
//! `HANDOVER_STEPS` is the number of steps that a test tries with each kind of log, `SEED` chooses them.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use beanstalkd_testkit::PATIENCE;
use beanstalkd_testkit::panicking::{scale, wait_for_some, wait_until};
use beanstalkd_testkit::stepping_clock;
use rustix::process::Signal;

use super::LOGS;
use super::certificates;
use super::known::{Known, WORKERS, produce, work};
use super::service::{Service, in_time};
use super::tracer::{Step, Tracer, Whose};

/// The number of steps with each kind of log, unless `HANDOVER_STEPS` is set.
const STEPS: usize = 5;

/// A server, and the knowledge of its clients.
struct World {
    service: Service,
    flags: Vec<&'static str>,
    known: Arc<Known>,
    clients: Vec<JoinHandle<()>>,
    /// The number of calls of each process in a hand-over, and of the server's calls before it runs the other program.
    calls: [u64; 2],
    calls_to_exec: u64,
    rounds: Cell<u64>,
}

impl World {
    fn new(log: &[&'static str], more: &[&'static str], prepare: impl Fn(&Path)) -> Self {
        Self::started(log, more, prepare, "exec \"$@\"")
    }

    fn started(log: &[&'static str], more: &[&'static str], prepare: impl Fn(&Path), script: &str) -> Self {
        let flags = [log, &["-s", "65536"], more].concat();
        let service = Service::started(&flags, prepare, script);
        let known = Arc::new(Known::new(!log.is_empty()));
        let (clients, rounds) = (Vec::new(), Cell::new(0));
        let mut world = Self { service, flags, known, clients, calls: [0; 2], calls_to_exec: 0, rounds };
        world.begin();
        // No process makes this many calls.
        let tracer = world.hand_over(Step { whose: Whose::Server, number: u64::MAX, script: "" });
        world.calls = [Whose::Server, Whose::Tried].map(|whose| tracer.count(whose));
        world.calls_to_exec = tracer.count_to_exec();
        world
    }

    /// Starts the clients.
    fn begin(&mut self) {
        self.known.begin();
        let known = || Arc::clone(&self.known);
        let (producer, of_producer) = (self.service.connect(), known());
        self.clients.push(thread::spawn(move || produce(producer, &of_producer)));
        for number in 0..WORKERS {
            let (worker, of_worker) = (self.service.connect(), known());
            self.clients.push(thread::spawn(move || work(worker, number, &of_worker)));
        }
    }

    /// Ends the clients whose connections the server has not closed.
    fn end(&mut self) {
        self.known.end();
        self.clients.drain(..).for_each(|client| client.join().expect("no client has been disturbed"));
    }

    /// One of the steps; the rounds are spread evenly over all of them.
    fn step(&self, whose: Whose, script: &'static str) -> Step<'static> {
        self.step_among(whose, 0, self.calls[usize::from(whose == Whose::Tried)], script)
    }

    /// One of the `count` steps after `before`, chosen in the same way.
    fn step_among(&self, whose: Whose, before: u64, count: u64, script: &'static str) -> Step<'static> {
        let rounds = scale("HANDOVER_STEPS", STEPS) as u64;
        let round = self.rounds.replace(self.rounds.get() + 1) % rounds;
        let shift = scale("SEED", 1) as u64 * 7919 % count.div_ceil(rounds);
        Step { whose, number: before + 1 + (round * count / rounds + shift) % count, script }
    }

    /// Requests a hand-over to a new file; returns when the hand-over or the step is done.
    fn hand_over(&self, step: Step<'_>) -> Tracer {
        while self.service.next_message().is_some() {}
        self.service.replace();
        let mut tracer = Tracer::start(self.service.pid(), self.service.directory(), step);
        wait_for_some(
            || format!("{step:?}: {}", self.service.log()),
            || (tracer.has_ended() || self.is_handed_over()).then_some(()),
        );
        tracer
    }

    fn is_handed_over(&self) -> bool {
        std::iter::from_fn(|| self.service.next_message())
            .any(|message| self.service.is_result(&message, "READY=1"))
    }

    /// Whether the server has the program that is on the disk.
    fn has_program(&self) -> bool {
        let running = fs::read_link(format!("/proc/{}/exe", self.service.pid()));
        running.is_ok_and(|path| path == self.service.program())
    }

    /// Waits until the server runs the program that is on the disk. If the server has reported a failure, requests the
    /// hand-over once more.
    fn await_program(&self, step: Step<'_>) {
        let start = Instant::now();
        while !self.has_program() {
            assert!(start.elapsed() < PATIENCE, "{step:?}: {}", self.service.log());
            self.service.signal(Signal::HUP);
            while self.service.next_message().is_some() {}
            thread::sleep(Duration::from_millis(20));
        }
        // It serves, so it has already reported that it is ready.
        self.service.connect().ask("list-tube-used");
        let is_undisturbed = self.clients.iter().all(|client| !client.is_finished());
        assert!(is_undisturbed, "{step:?}: a client has lost its connection");
    }

    /// Requires that the server ends in order at a step that stops it. The hand-over may be over before that. A second
    /// signal would end the server at once.
    fn stop_at(&mut self, step: Step<'_>) {
        let status = if self.hand_over(step).end() { self.service.wait() } else { self.service.stop() };
        assert!(status.success(), "{step:?}: {status}, {}", self.service.log());
    }

    /// Stops the server, starts it again on its log, and checks that everything that was acknowledged is there.
    fn restart_and_check(&mut self, context: &str) {
        let flags = self.flags.clone();
        self.service.kill_and_restart(&flags);
        self.end();
        self.known.check(self.service.connect(), context);
        self.begin();
    }
}

fn for_each_log(round: impl Fn(&mut World)) {
    for_each_log_with(&[], |_| (), round);
}

fn for_each_log_with(more: &[&'static str], prepare: impl Fn(&Path), round: impl Fn(&mut World)) {
    for log in LOGS {
        let mut world = World::new(log, more, &prepare);
        for _ in 0..scale("HANDOVER_STEPS", STEPS) {
            round(&mut world);
        }
        world.restart_and_check("at the end");
        world.end();
    }
}

/// Kills the server at steps of one of the two programs; the next start has all that was acknowledged.
fn kill_the_server_at_steps(whose: Whose) {
    for_each_log(|world| {
        let step = world.step(whose, "kill -9 $server");
        let came = world.hand_over(step).end();
        eprintln!(
            "{came} {} {step:?} of {:?}: {:?}",
            world.flags.join(" "),
            world.calls,
            world.service.log().lines().last()
        );
        world.restart_and_check(&format!("{step:?}"));
    });
}

#[test]
fn a_kill_at_any_step_of_the_server_loses_and_doubles_nothing() {
    kill_the_server_at_steps(Whose::Server);
}

#[test]
fn a_kill_at_any_step_of_the_tried_program_disturbs_nobody() {
    for_each_log(|world| {
        let step = world.step(Whose::Tried, "kill -9 $tried");
        drop(world.hand_over(step));
        world.await_program(step);
    });
}

#[test]
fn a_kill_of_the_server_at_any_step_of_the_tried_program_loses_and_doubles_nothing() {
    kill_the_server_at_steps(Whose::Tried);
}

#[test]
fn a_stop_at_any_step_ends_the_server_in_order() {
    for_each_log(|world| {
        let step = world.step(Whose::Server, "kill -TERM $server");
        world.stop_at(step);
        assert!(!world.service.directory().join("socket").exists(), "{step:?}: its socket is gone");
        world.restart_and_check(&format!("{step:?}"));
    });
}

/// The system refuses to run the tried program; the stop may have arrived by then.
#[test]
fn a_stop_at_the_last_steps_before_a_program_that_cannot_run_ends_in_order() {
    const LAST_STEPS: u64 = 60;
    for_each_log(|world| {
        let before = world.calls_to_exec.saturating_sub(LAST_STEPS);
        let script = "chmod a-x program; kill -TERM $server";
        let step = world.step_among(Whose::Server, before, LAST_STEPS, script);
        world.stop_at(step);
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(world.service.program(), executable).unwrap();
        world.restart_and_check(&format!("{step:?}"));
    });
}

#[test]
fn a_drain_at_any_step_is_not_lost() {
    for_each_log(|world| {
        let step = world.step(Whose::Server, "kill -USR1 $server");
        if !world.hand_over(step).end() {
            world.service.signal(Signal::USR1);
        }
        let mut client = world.service.connect();
        let mut expect = |draining: &str| {
            wait_until(&format!("draining is {draining}, {step:?}"), || {
                client.data("stats")["draining"] == draining
            });
        };
        expect("true");
        world.await_program(step);
        expect("true");
        world.service.signal(Signal::USR2);
        expect("false");
    });
}

/// Two packages, one right after the other, of which the second has other rules for tubes.
#[test]
fn another_program_and_other_rules_at_any_step_are_in_force_at_the_end() {
    const SCRIPT: &str = "cp program again; mv again program; mv other-rules rules; kill -HUP $server";
    let rules_for = |pattern: &str| format!("[[tube]]\nname = \"{pattern}\"\nmax-jobs = 100000\n");
    let prepare = |directory: &Path| fs::write(directory.join("rules"), rules_for("default")).unwrap();
    for_each_log_with(&["--tubes", "{dir}/rules"], prepare, |world| {
        let step = world.step(Whose::Server, SCRIPT);
        let pattern = format!("{}*", &"default"[..1 + step.number as usize % 7]);
        let path = |name: &str| world.service.directory().join(name);
        fs::write(path("other-rules"), rules_for(&pattern)).unwrap();
        let tracer = world.hand_over(step);
        if tracer.end() {
            // No second signal.
            wait_until(&format!("the last program runs, {step:?}"), || {
                while world.service.next_message().is_some() {}
                world.has_program()
            });
        } else {
            fs::rename(path("other-rules"), path("rules")).unwrap();
            world.service.signal(Signal::HUP);
        }
        world.await_program(step);
        let mut client = world.service.connect();
        wait_until(&format!("the rules are in force, {step:?}"), || {
            client.data("stats-tube default")["rule"] == pattern
        });
    });
}

/// Like the next test, with a certificate and its key: a program may read one of them before the change and one after.
#[test]
fn another_certificate_at_any_step_is_in_force_at_the_end() {
    const SCRIPT: &str = "mv renewed/cert.pem renewed/key.pem .; kill -HUP $server";
    for_each_log_with(&certificates::FLAGS, certificates::prepare, |world| {
        let step = world.step(Whose::Server, SCRIPT);
        let renewed = certificates::renewed();
        let directory = world.service.directory().join("renewed");
        fs::create_dir_all(&directory).unwrap();
        renewed.write(&directory).unwrap();
        if !world.hand_over(step).end() {
            renewed.write(world.service.directory()).unwrap();
            world.service.signal(Signal::HUP);
        }
        world.await_program(step);
        wait_until(&format!("the certificate is in force, {step:?}"), || {
            certificates::shown(&world.service) == renewed.certificate
        });
    });
}

#[test]
fn a_wall_clock_that_is_set_at_any_step_moves_no_deadline() {
    for (direction, script) in
        [(stepping_clock::FORTH, ": >STEP_FORTH"), (stepping_clock::BACK, ": >STEP_BACK")]
    {
        for log in LOGS {
            let prepare = |directory: &Path| {
                let variables = stepping_clock::variables(directory);
                fs::write(directory.join("clock"), variables.map(|line| format!("export {line}\n")).concat())
                    .unwrap();
            };
            let mut world = World::started(log, &[], prepare, ". ./clock; exec \"$@\"");
            let mut client = world.service.connect();
            client.ask("use other");
            let delayed = client.put(5_000, 5_000, b"x");
            let reserved = client.put(0, 5_000, b"x");
            assert!(client.ask(&format!("reserve-job {reserved}")).starts_with("RESERVED"));
            client.body(1);
            for _ in 0..scale("HANDOVER_STEPS", STEPS) / 2 {
                let step = world.step(Whose::Server, script);
                drop(world.hand_over(step));
                world.await_program(step);
                for id in [delayed, reserved] {
                    let left: u64 = client.data(&format!("stats-job {id}"))["time-left"].parse().unwrap();
                    assert!((4_000..=5_000).contains(&left), "{left} with {step:?}");
                }
                fs::remove_file(world.service.directory().join(direction)).ok();
            }
            world.end();
        }
    }
}

/// As if the server were so large that its description takes longer than a trial may take.
#[test]
fn the_time_of_the_description_is_not_time_of_the_trial() {
    in_time(|| {
        let service = Service::start(&[]);
        let begin = |number, script| {
            service.replace();
            let step = Step { whose: Whose::Server, number, script };
            Tracer::start(service.pid(), service.directory(), step)
        };
        let calls = {
            let tracer = begin(u64::MAX, "");
            service.await_hand_over();
            tracer.count_to_trial()
        };
        // Some calls before the one that starts the other program.
        let tracer = begin(calls - 10, "sleep 6");
        service.message_with("READY=1");
        assert!(tracer.end(), "the server has made this call");
    });
}

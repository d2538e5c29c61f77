//! One conformance suite for every beanstalkd.
//!
//! Black-box tests over raw bytes against a server binary: `SERVER=/path/to/beanstalkd`, or ours without
//! it; `TRANSPORT=tcp` reaches it over loopback TCP instead of unix sockets. Each topic is a file that
//! lists its cases; [`judge`] decides which of them apply to the server at hand.

mod case;
mod deviations;
mod judge;
#[path = "../support/mod.rs"]
mod support;

mod topics;

use judge::{Record, Subject};
use libtest_mimic::Arguments;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use support::server::Transport;

/// Cases mostly wait for deadlines of seconds, so far more of them run at a time than there are cores.
const THREADS: usize = 64;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    let binary = std::env::var_os("SERVER")
        .filter(|path| !path.is_empty())
        .map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_beanstalkd")), PathBuf::from);
    let transport = match std::env::var("TRANSPORT").as_deref() {
        Ok("tcp") => Transport::Tcp,
        _ => Transport::Unix,
    };
    let subject = match Subject::identify(&binary, transport) {
        Ok(subject) => Arc::new(subject),
        Err(error) => {
            eprintln!("{}: {error}", binary.display());
            return ExitCode::FAILURE;
        }
    };
    let record = Arc::new(Mutex::new(Record::default()));
    let mut trials = Vec::new();
    for (topic, cases) in topics::all() {
        trials.extend(cases.into_iter().map(|case| judge::trial(topic, case, &subject, &record)));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list {
        judge::summarize(&subject, &record.lock().expect("all trials have ended"));
    }
    conclusion.exit_code()
}

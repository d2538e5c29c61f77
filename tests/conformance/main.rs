//! One conformance suite for every beanstalkd.
//!
//! Black-box tests over raw bytes against a server binary: `SERVER=/path/to/beanstalkd`, or without it ours and
//! then Debian's; `TRANSPORT=tcp` reaches it over loopback TCP instead of unix sockets. Each topic is a file that
//! lists its cases; [`judge`] decides which of them apply to the server at hand.

mod case;
mod deviations;
mod judge;
#[path = "../support/mod.rs"]
mod support;

mod topics;

use judge::{Record, Subject};
use libtest_mimic::Arguments;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use support::server::Transport;

/// Cases mostly wait for deadlines of seconds, so far more of them run at a time than there are cores.
const THREADS: usize = 64;

fn main() -> ExitCode {
    let binaries = match std::env::var_os("SERVER").filter(|path| !path.is_empty()) {
        Some(path) => vec![PathBuf::from(path)],
        None => [Some(PathBuf::from(env!("CARGO_BIN_EXE_beanstalkd"))), support::debian_server()]
            .into_iter()
            .flatten()
            .collect(),
    };
    let transport = match std::env::var("TRANSPORT").as_deref() {
        Ok("tcp") => Transport::Tcp,
        _ => Transport::Unix,
    };
    let passes: Vec<bool> = binaries.iter().map(|binary| judge_server(binary, transport)).collect();
    if passes.iter().all(|&passes| passes) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs all cases that apply to the server, and tells which hold; whether none has failed.
fn judge_server(binary: &Path, transport: Transport) -> bool {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    let subject = match Subject::identify(binary, transport) {
        Ok(subject) => Arc::new(subject),
        Err(error) => {
            eprintln!("{}: {error}", binary.display());
            return false;
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
    !conclusion.has_failed()
}

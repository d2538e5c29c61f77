//! One conformance suite for every beanstalkd.
//!
//! Black-box tests over raw bytes. The environment names the server and the cases:
//!
//! - `SERVER=/path/to/beanstalkd`: the program that each case starts; by default ours, and then Debian's if it is
//!   installed. With `TRANSPORT=tcp` it listens on loopback TCP instead of unix sockets, and with `TRANSPORT=tls` it
//!   speaks TLS there, with the flags of this server.
//! - `ADDRESS=host:port` or `ADDRESS=unix:/path`: a server that is running already.
//! - `KIND=c-1.12`, `c-1.13`, `ours` or `neutral`: the kind of server whose listed deviations are excused; by
//!   default `neutral` if `SERVER` or `ADDRESS` is set.
//! - `MARKS=promised,habit`: only the cases with these marks.
//! - `OFFERS=manage,work,tags`: a neutral server has the commands for operators, those for workers, and
//!   the tags of `put`.
//! - `JUNIT=file`: the result of each case, as JUnit XML.
//! - `WRITE=1`: write the files in `doc/corpus` and end.
//!
//! Each topic is a file that lists its cases. [`judge`] decides which of them apply to the server.

mod case;
mod corpus;
mod deviations;
mod judge;
mod mark;
mod report;
mod running;

mod topics;

use beanstalkd_testkit::pace::Pace;
use beanstalkd_testkit::server::{Address, Transport};
use beanstalkd_testkit::written::is_requested;
use case::Needs;
use judge::{Kind, Outcome, Reach, Subject};
use libtest_mimic::Arguments;
use mark::Mark;
use std::collections::BTreeSet;
use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

/// Cases that run at the same time: far more than there are cores, because most cases wait for deadlines of seconds.
const THREADS: usize = 64;

/// The exit code if a setting is wrong, or a server cannot be started or reached.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    if is_requested() {
        corpus::write();
        return ExitCode::SUCCESS;
    }
    let subjects = match subjects() {
        Ok(subjects) => subjects,
        Err(problem) => {
            eprintln!("conformance: {problem}");
            return ExitCode::from(USAGE);
        }
    };
    let mut all_pass = true;
    let mut results = Vec::new();
    for subject in subjects {
        let name = format!("{} ({})", subject.version, subject.name);
        let (passes, outcomes) = judge_server(subject);
        all_pass &= passes;
        results.push((name, outcomes));
    }
    if let Some(path) = setting("JUNIT")
        && let Err(error) = std::fs::write(&path, report::junit(&results))
    {
        eprintln!("conformance: JUNIT={path}: {error}");
        return ExitCode::from(USAGE);
    }
    if all_pass { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The values of the words in this setting, which are separated by commas; empty if it is not set.
fn values_of<T: Copy + Ord>(name: &str, known: &[(&str, T)]) -> Result<BTreeSet<T>, String> {
    let words = setting(name).unwrap_or_default();
    let value = |word: &str| known.iter().find(|(known, _)| *known == word).map(|(_, value)| *value);
    let expected = || known.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
    let values = words.split_terminator(',').map(|word| {
        value(word)
            .ok_or_else(|| format!("{name}={word}: expected some of {}, separated by commas", expected()))
    });
    values.collect()
}

fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The servers to test.
fn subjects() -> Result<Vec<Subject>, String> {
    let marks = values_of("MARKS", &Mark::WORDS.map(|word| (word, word)))?;
    let offers = values_of("OFFERS", &Needs::OFFERED.map(|(word, needs, _)| (word, needs)))?;
    let kind = match setting("KIND") {
        None => None,
        Some(name) => Some(Kind::named(&name).ok_or_else(|| {
            let names: Vec<&str> = Kind::NAMES.iter().map(|(name, _)| *name).collect();
            format!("KIND={name}: expected one of {}", names.join(", "))
        })?),
    };
    let transport = match setting("TRANSPORT").as_deref() {
        None | Some("unix") => Transport::Unix,
        Some("tcp") => Transport::Tcp,
        Some("tls") => Transport::Tls,
        Some(other) => return Err(format!("TRANSPORT={other}: expected unix, tcp or tls")),
    };
    // The error names the server that could not be started.
    let program = |path: PathBuf| Subject::program(&path, transport).map_err(|error| error.to_string());
    let chosen = |subject: Subject, usual: Kind| {
        let (marks, offers) = (marks.clone(), offers.clone());
        Subject { kind: kind.unwrap_or(usual), marks, offers, ..subject }
    };
    match (setting("SERVER"), setting("ADDRESS")) {
        (Some(_), Some(_)) => Err("SERVER and ADDRESS are both set: set one of them".to_owned()),
        (Some(path), None) => Ok(vec![chosen(program(path.into())?, Kind::Neutral)]),
        (None, Some(name)) => {
            let wrong = |error: std::io::Error| format!("ADDRESS={name}: {error}");
            let subject = Subject::running(address(&name).map_err(wrong)?, &name).map_err(wrong)?;
            Ok(vec![chosen(subject, Kind::Neutral)])
        }
        (None, None) => {
            let ours = program(env!("CARGO_BIN_EXE_beanstalkd").into())?;
            let mut subjects = vec![chosen(ours, Kind::Ours)];
            if let Some(debian) = beanstalkd_testkit::debian_server() {
                let debian = program(debian)?;
                let usual = Kind::of_c(&debian.version);
                subjects.push(chosen(debian, usual));
            }
            Ok(subjects)
        }
    }
}

fn address(name: &str) -> std::io::Result<Address> {
    if let Some(path) = name.strip_prefix("unix:") {
        return Ok(Address::Unix(path.into()));
    }
    let first = name.to_socket_addrs()?.next();
    first.map(Address::Tcp).ok_or_else(|| std::io::Error::other("the name has no address"))
}

/// Runs all cases that apply to the server. Returns whether none has failed, and all results.
fn judge_server(subject: Subject) -> (bool, Vec<Outcome>) {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    if matches!(subject.reach, Reach::Running(_)) {
        // Cases that share a server run one after another.
        arguments.test_threads = Some(1);
    }
    let subject = Arc::new(subject);
    let record = Arc::new(Mutex::new(Vec::new()));
    let wanted = |title: &str| arguments.filter.as_deref().is_none_or(|word| title.contains(word));
    let mut trials = Vec::new();
    // Cases of deadlines with `-f0` wait for the disk.
    let pace = Pace::watch_disk(&std::env::temp_dir()).expect("there is room for a file");
    for (topic, cases) in topics::all() {
        trials.extend(
            cases.into_iter().map(|case| judge::trial(topic, case, &subject, &record, &pace, wanted)),
        );
    }
    if subject.kind == Kind::Ours && subject.transport() == Some(Transport::Unix) {
        trials.push(corpus::comparison());
        // The report counts the cases of the suite alone.
        let uncounted = Arc::new(Mutex::new(Vec::new()));
        let trial = |case| judge::trial("corpus", case, &subject, &uncounted, &pace, wanted);
        trials.extend(corpus::cases().into_iter().map(trial));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    let outcomes = std::mem::take(&mut *record.lock().expect("all trials have ended"));
    if !arguments.list {
        report::print(&subject, &outcomes);
    }
    (!conclusion.has_failed(), outcomes)
}

//! Which server is under test, by which cases it is judged, and what came of it.
//!
//! Owns: the identity of the server, the rules from [`Needs`] to "judged" or "skipped", and the
//! summary. Driven by `main`.

use crate::case::{Bench, Case, Needs};
use crate::deviations::{DEVIATIONS, Deviation};
use crate::support::server::{Server, Transport, run_to_end};
use libtest_mimic::{Failed, Trial};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long a reply may take where the server is known to owe it for ever.
const PATIENCE_WITH_DEVIATIONS: Duration = Duration::from_secs(4);

/// How often a case is tried that a stalled machine can spoil. A server that is wrong is so each time.
const TIMED_ATTEMPTS: usize = 3;

/// The servers that the suite knows apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// C beanstalkd before 1.13.
    C112,
    /// C beanstalkd from 1.13 on.
    C113,
    /// Ours, and whoever claims version 2 or later.
    Ours,
}

/// The server under test.
pub struct Subject {
    /// Its program.
    pub binary: PathBuf,
    /// What `-v` says.
    pub version: String,
    /// How it is judged.
    pub kind: Kind,
    /// What it is reached by.
    pub transport: Transport,
}

impl Subject {
    /// Asks the program who it is.
    pub fn identify(binary: &Path, transport: Transport) -> std::io::Result<Self> {
        let directory = tempfile::tempdir()?;
        let version = run_to_end(binary, &["-v".into()], directory.path())?.stdout.trim().to_owned();
        let kind = kind_of(&version)
            .ok_or_else(|| std::io::Error::other(format!("`-v` names no version: {version}")))?;
        Ok(Self { binary: binary.into(), version, kind, transport })
    }

    fn skips(&self, needs: Needs) -> bool {
        match needs {
            Needs::Protocol | Needs::Persistence | Needs::Drain => false,
            Needs::Since113 => self.kind == Kind::C112,
            Needs::Extension => self.kind != Kind::Ours,
        }
    }
}

fn kind_of(version: &str) -> Option<Kind> {
    let numbers = version.split_ascii_whitespace().nth(1)?;
    let mut numbers = numbers.split(|c: char| !c.is_ascii_digit());
    let major: u32 = numbers.next()?.parse().ok()?;
    let minor: u32 = numbers.next()?.parse().ok()?;
    Some(match (major, minor) {
        (2.., _) => Kind::Ours,
        (1, 13..) => Kind::C113,
        _ => Kind::C112,
    })
}

/// What came of the cases, filled while they run on many threads.
#[derive(Default)]
pub struct Record {
    passed: usize,
    failed: usize,
    skipped: BTreeMap<Needs, usize>,
    /// By deviation: cases in which it showed, and cases of it.
    shown: BTreeMap<&'static str, (usize, usize)>,
}

/// The trial that judges `subject` by `case`.
pub fn trial(topic: &str, case: Case, subject: &Arc<Subject>, record: &Arc<Mutex<Record>>) -> Trial {
    let name = format!("{topic}::{}", case.name);
    if subject.skips(case.needs) {
        *record.lock().expect("no holder panics").skipped.entry(case.needs).or_default() += 1;
        return Trial::test(name, || Ok(())).with_ignored_flag(true);
    }
    let (subject, record) = (Arc::clone(subject), Arc::clone(record));
    Trial::test(name, move || {
        let deviates = case.deviation.map(listed).filter(|listed| listed.servers.contains(&subject.kind));
        let attempts = if case.timed && deviates.is_none() { TIMED_ATTEMPTS } else { 1 };
        let outcome = attempt(attempts, || run(&case, &subject, deviates.is_some()));
        let mut record = record.lock().expect("no holder panics");
        match (outcome, deviates) {
            (outcome, Some(deviation)) => {
                let (shown, cases) = record.shown.entry(deviation.name).or_default();
                *shown += usize::from(outcome.is_err());
                *cases += 1;
                Ok(())
            }
            (Ok(()), None) => {
                record.passed += 1;
                Ok(())
            }
            (Err(problem), None) => {
                record.failed += 1;
                Err(Failed::from(problem))
            }
        }
    })
}

/// The first outcome that is good, or the last.
fn attempt(attempts: usize, run: impl Fn() -> Result<(), String>) -> Result<(), String> {
    (1..attempts).find_map(|_| run().ok()).map_or_else(run, Ok)
}

fn run(case: &Case, subject: &Subject, deviates: bool) -> Result<(), String> {
    let server = Server::start(&subject.binary, subject.transport, &case.flags)
        .map_err(|error| format!("the server does not start: {error}"))?;
    let mut bench = Bench::new(server, deviates.then_some(PATIENCE_WITH_DEVIATIONS));
    let outcome = (case.run)(&mut bench);
    outcome.map_err(|failure| match bench.server.stderr() {
        said if said.is_empty() => failure.0,
        said => format!("{}\n    the server's standard error: {said}", failure.0),
    })
}

fn listed(name: &'static str) -> &'static Deviation {
    DEVIATIONS
        .iter()
        .find(|deviation| deviation.name == name)
        .unwrap_or_else(|| panic!("the deviation {name} is not in the table"))
}

/// Prints which cases the server passed, skipped and failed, and which deviations it showed.
pub fn summarize(subject: &Subject, record: &Record) {
    let skipped: usize = record.skipped.values().sum();
    println!(
        "{} ({}, judged as {:?}): {} passed, {} failed, {skipped} skipped",
        subject.version,
        subject.binary.display(),
        subject.kind,
        record.passed,
        record.failed,
    );
    for (needs, count) in &record.skipped {
        println!("  skipped {count}: needs {needs:?}");
    }
    println!("Deviations listed for this server, in how many of their cases they showed:");
    for deviation in DEVIATIONS.iter().filter(|deviation| deviation.servers.contains(&subject.kind)) {
        let (shown, cases) = record.shown.get(deviation.name).copied().unwrap_or_default();
        println!(
            "  {shown:>3}/{cases:<3} {:<10} {}: {}",
            format!("{:?}", deviation.class),
            deviation.name,
            deviation.line
        );
    }
}

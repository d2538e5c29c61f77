//! The server under test, the choice of cases that apply to it, and the result of each case.
//!
//! Owns: the identity of the server, and the rules by which a case is run or skipped. Driven by `main`; `report` prints
//! the results.

use crate::case::{Bench, Case, Needs};
use crate::deviations::{DEVIATIONS, Deviation};
use crate::mark::Mark;
use beanstalkd_testkit::client::Failure;
use beanstalkd_testkit::pace::Pace;
use beanstalkd_testkit::server::{Address, Server, Transport, run_to_end};
use libtest_mimic::{Failed, Trial};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a reply may take in a case with a deviation, because a listed server may never send it.
const PATIENCE_WITH_DEVIATIONS: Duration = Duration::from_secs(4);

/// The kinds of servers that are judged differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// C beanstalkd before 1.13.
    C112,
    /// C beanstalkd from 1.13 on.
    C113,
    /// Ours.
    Ours,
    /// Any other server. No deviation is excused.
    Neutral,
}

impl Kind {
    /// All kinds, with their names in `KIND`.
    pub const NAMES: [(&'static str, Self); 4] =
        [("c-1.12", Self::C112), ("c-1.13", Self::C113), ("ours", Self::Ours), ("neutral", Self::Neutral)];

    /// The kind of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }

    /// The name of this kind.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// The kind of a C server, from the output of its `-v`.
    pub fn of_c(version: &str) -> Self {
        let numbers = version.split_ascii_whitespace().nth(1).unwrap_or_default();
        let mut numbers = numbers.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(1)), Some(Ok(13..))) => Self::C113,
            _ => Self::C112,
        }
    }
}

/// How the server is reached.
pub enum Reach {
    /// Each case starts this program.
    Program(PathBuf, Transport),
    /// It is running already.
    Running(Address),
}

/// The server under test.
pub struct Subject {
    /// How the suite reaches it.
    pub reach: Reach,
    /// The path of its program, or its address.
    pub name: String,
    /// The version that it reports.
    pub version: String,
    /// Its kind, which decides which deviations are excused.
    pub kind: Kind,
    /// The names of the marks whose cases are run; empty for all.
    pub marks: BTreeSet<&'static str>,
    /// The features that it has although its kind does not say so.
    pub offers: BTreeSet<Needs>,
}

impl Subject {
    /// A program. Its `-v` shows its version.
    pub fn program(binary: &Path, transport: Transport) -> io::Result<Self> {
        let directory = tempfile::tempdir()?;
        let said = run_to_end(binary, &["-v".into()], directory.path())?.stdout;
        let version = said.lines().next().unwrap_or_default().trim().to_owned();
        let reach = Reach::Program(binary.into(), transport);
        let name = binary.display().to_string();
        Ok(Self::new(reach, name, version))
    }

    /// A server that is running already. It must have no jobs.
    pub fn running(address: Address, name: &str) -> io::Result<Self> {
        let mut client = address.connect()?;
        let jobs = client.job_count().map_err(|failure| io::Error::other(failure.to_string()))?;
        if jobs > 0 {
            return Err(io::Error::other(format!(
                "the server has {jobs} jobs, and the suite would delete them: use an empty server"
            )));
        }
        Ok(Self::new(Reach::Running(address), name.to_owned(), "a running server".to_owned()))
    }

    /// A server of which nothing else is known: no deviation is excused, and all marks count.
    fn new(reach: Reach, name: String, version: String) -> Self {
        Self { reach, name, version, kind: Kind::Neutral, marks: BTreeSet::new(), offers: BTreeSet::new() }
    }

    /// How cases reach the program that they start; none if the server was running before.
    pub fn transport(&self) -> Option<Transport> {
        match self.reach {
            Reach::Program(_, transport) => Some(transport),
            Reach::Running(_) => None,
        }
    }

    /// The reason why the case does not apply to the server, if it does not. It completes the sentence "the case …".
    fn skips(&self, case: &Case, mark: Mark) -> Option<&'static str> {
        if !self.marks.is_empty() && !self.marks.contains(mark.word()) {
            return Some("has a mark that MARKS does not name");
        }
        if matches!(self.reach, Reach::Running(_)) && !case.anywhere {
            return Some("needs a process that it starts itself");
        }
        match (self.kind, case.needs, mark) {
            (Kind::C112, Needs::Since113, _) => Some("needs version 1.13"),
            (Kind::Ours, Needs::Manage | Needs::Work | Needs::Tags, _) => None,
            (_, needs @ (Needs::Manage | Needs::Work | Needs::Tags), _) => {
                let lacking = Needs::OFFERED.iter().find(|(_, offered, _)| *offered == needs);
                lacking.filter(|_| !self.offers.contains(&needs)).map(|(.., reason)| *reason)
            }
            (Kind::Neutral, _, Mark::Ours)
            | (Kind::C112 | Kind::C113 | Kind::Neutral, Needs::Extension, _) => {
                Some("is a decision of our server")
            }
            (_, Needs::Protocol | Needs::Since113 | Needs::Persistence | Needs::Drain, _)
            | (Kind::Ours, Needs::Extension, _) => None,
        }
    }
}

/// The result of a case.
pub enum Verdict {
    Passed,
    Failed(Failure),
    /// The case names a listed deviation. The flag tells whether it showed.
    Excused(&'static Deviation, bool),
    Skipped(&'static str),
}

/// A case and its result.
pub struct Outcome {
    pub topic: &'static str,
    pub name: String,
    pub mark: Mark,
    pub verdict: Verdict,
    pub took: Duration,
}

/// The results of the cases, which many threads add.
pub type Record = Mutex<Vec<Outcome>>;

/// The trial of `case` on `subject`. `wanted` tells whether it will be run. A case that measures time fails only if the
/// machine has kept `pace` in the meantime; otherwise it runs again.
pub fn trial(
    topic: &'static str,
    case: Case,
    subject: &Arc<Subject>,
    record: &Arc<Record>,
    pace: &Pace,
    wanted: impl Fn(&str) -> bool,
) -> Trial {
    let title = format!("{topic}::{}", case.name);
    let mark = case.mark.unwrap_or_else(|| panic!("{title} has no mark, and neither has its topic"));
    let outcome = move |name, verdict, took| Outcome { topic, name, mark, verdict, took };
    if let Some(reason) = subject.skips(&case, mark) {
        if wanted(&title) {
            let skipped = outcome(case.name, Verdict::Skipped(reason), Duration::ZERO);
            record.lock().expect("no thread panics while it holds the lock").push(skipped);
        }
        return Trial::test(title, || Ok(())).with_ignored_flag(true);
    }
    let (subject, record, pace) = (Arc::clone(subject), Arc::clone(record), pace.clone());
    Trial::test(title, move || {
        let excuse = case.deviation.map(listed).filter(|listed| listed.servers.contains(&subject.kind));
        let start = Instant::now();
        let once = || run(&case, &subject, excuse.is_some());
        let result = if case.timed && excuse.is_none() { pace.judge(once) } else { once() };
        let verdict = match (result, excuse) {
            (result, Some(deviation)) => Verdict::Excused(deviation, result.is_err()),
            (Ok(()), None) => Verdict::Passed,
            (Err(failure), None) => Verdict::Failed(failure),
        };
        let failed = matches!(verdict, Verdict::Failed(_));
        let outcome = outcome(case.name.clone(), verdict, start.elapsed());
        record.lock().expect("no thread panics while it holds the lock").push(outcome);
        // `report` prints the details at the end, grouped by cause.
        if failed { Err(Failed::without_message()) } else { Ok(()) }
    })
}

fn run(case: &Case, subject: &Subject, excused: bool) -> Result<(), Failure> {
    let mut bench = match &subject.reach {
        Reach::Program(binary, transport) => {
            let server = Server::start(binary, *transport, &case.flags)
                .map_err(|error| Failure::new(format!("the server does not start: {error}")))?;
            Bench::new(server, excused.then_some(PATIENCE_WITH_DEVIATIONS))
        }
        Reach::Running(address) => Bench::at(address.clone())?,
    };
    (case.run)(&mut bench).map_err(|mut failure| {
        let said = bench.stderr();
        failure.conversation.extend(said.lines().map(|line| format!("the server's standard error: {line}")));
        failure
    })
}

fn listed(name: &'static str) -> &'static Deviation {
    DEVIATIONS
        .iter()
        .find(|deviation| deviation.name == name)
        .unwrap_or_else(|| panic!("the deviation {name} is not in the table in deviations.rs"))
}

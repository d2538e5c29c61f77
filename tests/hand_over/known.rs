//! Clients that put, reserve with sessions and delete until the test ends them or the server has ended, and the history
//! to which they report.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use beanstalkd_testkit::client::jobs_of_list;
use beanstalkd_testkit::history::History;
use beanstalkd_testkit::panicking::Client;
use beanstalkd_testkit::printable;
use beanstalkd_testkit::random::Random;
use beanstalkd_testkit::sent::{JobCommand, SentCommand};

/// The number of workers; each has a session.
pub const WORKERS: usize = 2;
/// Producers stop above this many jobs.
const ENOUGH: usize = 200;
/// Workers keep this many jobs at most.
const MAX_RESERVED: usize = 4;

/// The common knowledge of the clients.
pub struct Known {
    history: Mutex<History>,
    is_over: AtomicBool,
    has_log: bool,
}

impl Known {
    pub fn new(has_log: bool) -> Self {
        Self { history: Mutex::default(), is_over: AtomicBool::new(false), has_log }
    }

    pub fn begin(&self) {
        self.is_over.store(false, Ordering::Relaxed);
    }

    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().expect("no client has been disturbed")
    }

    /// Sends commands in one write, and reports their replies; `None` if the server is gone.
    fn ask(&self, client: &mut Client, worker: usize, commands: Vec<JobCommand>) -> Option<()> {
        let sent = commands.into_iter().map(|command| SentCommand::new(&mut self.history(), command));
        let sent: Vec<SentCommand> = sent.collect();
        let bytes: Vec<u8> = sent.iter().flat_map(|sent| sent.bytes.clone()).collect();
        client.0.send(&bytes).ok()?;
        for sent in sent {
            let reply = client.0.try_reply().unwrap_or_else(|failure| panic!("{failure}"))?;
            let mut history = self.history();
            let is_right = sent.answered(&mut history, worker, "", &reply)
                || reply == b"DRAINING\r\n" && sent.refused(&mut history);
            assert!(is_right, "{sent:?} is answered {}", printable(&reply));
            assert_eq!(history.problems(), [""; 0]);
        }
        Some(())
    }

    /// Checks that a server that was started on the log has every acknowledged job once. Called when no client is
    /// connected.
    pub fn check(&self, mut client: Client, context: &str) {
        let mut history = self.history();
        if !self.has_log {
            *history = History::default();
            assert_eq!(client.data("stats-tube default")["current-jobs-ready"], "0", "{context}");
            return;
        }
        let by_session = client.0.jobs_by_session(&["default"]).unwrap();
        let jobs_of = |worker| by_session.get(&session_of(worker)).cloned().unwrap_or_default();
        let sessions: Vec<BTreeSet<u64>> = (0..WORKERS).map(jobs_of).collect();
        history.settle_sessions(&bodies(&mut client), &sessions);
        assert_eq!(history.problems(), [""; 0], "{context}");
    }
}

fn session_of(worker: usize) -> String {
    format!("w{worker}")
}

/// The bodies of the existing jobs by id.
fn bodies(client: &mut Client) -> BTreeMap<u64, Vec<u8>> {
    let mut found = BTreeMap::new();
    for state in ["ready", "reserved"] {
        let list = client.find(&format!("list-jobs default {state} 1000")).unwrap_or_default();
        for (id, _) in jobs_of_list(&String::from_utf8(list).unwrap()) {
            let body = client.find(&format!("peek {id}")).expect("it is in the list");
            assert!(found.insert(id, body).is_none(), "job {id} is there twice");
        }
    }
    found
}

/// Puts jobs, several at once. Like each client, it returns when the test asks it to, or when the server has ended.
pub fn produce(mut client: Client, known: &Known) {
    while !known.is_over() {
        thread::sleep(Duration::from_millis(2));
        if known.history().kept_count() > ENOUGH {
            continue;
        }
        let puts = (0..3).map(|_| JobCommand::Put(known.history().putting(), 1)).collect();
        if known.ask(&mut client, WORKERS, puts).is_none() {
            return;
        }
    }
}

/// Reserves jobs, and touches, releases or deletes them.
pub fn work(mut client: Client, worker: usize, known: &Known) {
    let mut random = Random::new(worker as u64);
    let (reserved, session) = (known.history().reservations(worker).count(), session_of(worker));
    if client.0.send(format!("session {session} 600\r\n").as_bytes()).is_err() {
        return;
    }
    let Some(answer) = client.try_line() else { return };
    assert_eq!(answer, format!("SESSION {reserved}"), "{session}");
    while !known.is_over() {
        thread::sleep(Duration::from_millis(1));
        let own: Vec<u64> = known.history().reservations(worker).collect();
        let command = if own.is_empty() || own.len() < MAX_RESERVED && random.once_in(2) {
            JobCommand::Reserve
        } else {
            random.pick(&[JobCommand::Touch, JobCommand::Release, JobCommand::Delete, JobCommand::Delete])(
                random.pick(&own),
            )
        };
        if known.ask(&mut client, worker, vec![command]).is_none() {
            return;
        }
    }
}

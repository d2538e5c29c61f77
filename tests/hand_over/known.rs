//! Clients that put, reserve with sessions and delete until the test ends them or the server has ended, and the history
//! to which they report.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use beanstalkd_testkit::client::jobs_of_list;
use beanstalkd_testkit::history::{History, body};
use beanstalkd_testkit::panicking::Client;
use beanstalkd_testkit::random::Random;

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
        let keys = [(); 3].map(|()| known.history().putting());
        let put = |key| {
            let body = body(key, 1);
            [format!("put 0 0 600 {}\r\n", body.len()).as_bytes(), &body, b"\r\n"].concat()
        };
        if client.0.send(&keys.map(put).concat()).is_err() {
            return;
        }
        for key in keys {
            let Some(line) = client.try_line() else { return };
            let mut history = known.history();
            if line == "DRAINING" {
                history.refused(key);
                continue;
            }
            let id = line.strip_prefix("INSERTED ").unwrap_or_else(|| panic!("a put is answered {line}"));
            history.inserted(key, id.parse().unwrap());
            assert_eq!(history.problems(), [""; 0]);
        }
    }
}

/// Reserves jobs, and touches, releases or deletes them.
pub fn work(mut client: Client, worker: usize, known: &Known) {
    let mut random = Random::new(worker as u64);
    let reserved = known.history().reservations(worker).count();
    let session = session_of(worker);
    let Some(answer) = ask(&mut client, &format!("session {session} 600")) else { return };
    assert_eq!(answer, format!("SESSION {reserved}"), "{session}");
    while !known.is_over() {
        thread::sleep(Duration::from_millis(1));
        let own: Vec<u64> = known.history().reservations(worker).collect();
        let answer = if own.is_empty() || own.len() < MAX_RESERVED && random.once_in(2) {
            reserve(&mut client, worker, known)
        } else {
            treat(&mut client, random.pick(&own), random.below(4), known)
        };
        if answer.is_none() {
            return;
        }
    }
}

fn reserve(client: &mut Client, worker: usize, known: &Known) -> Option<()> {
    let asked_at = known.history().tick();
    let line = ask(client, "reserve-with-timeout 0")?;
    if line == "TIMED_OUT" {
        return Some(());
    }
    let words = line.strip_prefix("RESERVED ").and_then(|rest| rest.split_once(' '));
    let (id, _) = words.unwrap_or_else(|| panic!("a reserve is answered {line}"));
    let body = client.try_line()?;
    let mut history = known.history();
    history.reserved(worker, "", id.parse().unwrap(), body.as_bytes(), asked_at);
    assert_eq!(history.problems(), [""; 0]);
    Some(())
}

fn treat(client: &mut Client, id: u64, how: u64, known: &Known) -> Option<()> {
    match how {
        0 => assert_eq!(ask(client, &format!("touch {id}"))?, "TOUCHED"),
        1 => {
            known.history().giving_back(id);
            assert_eq!(ask(client, &format!("release {id} 0 0"))?, "RELEASED");
        }
        _ => {
            known.history().deleting(id);
            assert_eq!(ask(client, &format!("delete {id}"))?, "DELETED", "a worker has {id}");
            known.history().deleted(id);
        }
    }
    Some(())
}

/// The reply, unless the server is gone.
fn ask(client: &mut Client, line: &str) -> Option<String> {
    client.0.send(format!("{line}\r\n").as_bytes()).ok()?;
    client.try_line()
}

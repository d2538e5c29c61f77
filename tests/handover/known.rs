//! Clients that put, reserve with sessions and delete until the test ends them or the server has ended, and their
//! common knowledge of the jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use beanstalkd_testkit::client::jobs_of_list;
use beanstalkd_testkit::panicking::Client;
use beanstalkd_testkit::random::Random;

/// Producers stop above this many jobs.
const ENOUGH: usize = 200;
/// Workers keep this many jobs at most.
const MAX_RESERVED: usize = 4;

/// The jobs, according to the replies.
#[derive(Default)]
struct Jobs {
    /// Every id that was given.
    put: BTreeSet<u64>,
    /// Puts that have no reply.
    unsure_puts: usize,
    /// Jobs that are not known to have ended.
    there: BTreeSet<u64>,
    /// Jobs with a delete that has no reply.
    unsure: BTreeSet<u64>,
    gone: BTreeSet<u64>,
    /// The jobs of each session.
    reserved: BTreeMap<&'static str, BTreeSet<u64>>,
}

/// The common knowledge of the clients.
pub struct Known {
    jobs: Mutex<Jobs>,
    is_over: AtomicBool,
    has_log: bool,
}

impl Known {
    pub fn new(has_log: bool) -> Self {
        Self { jobs: Mutex::default(), is_over: AtomicBool::new(false), has_log }
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

    fn jobs(&self) -> std::sync::MutexGuard<'_, Jobs> {
        self.jobs.lock().expect("no client has been disturbed")
    }

    /// Checks that a server that was started on the log has every acknowledged job once. Called when no client is
    /// connected.
    pub fn check(&self, mut client: Client, context: &str) {
        let mut jobs = self.jobs();
        if !self.has_log {
            *jobs = Jobs::default();
            assert_eq!(client.data("stats-tube default")["current-jobs-ready"], "0", "{context}");
            return;
        }
        let found = jobs_of(&mut client);
        for (name, reserved) in &jobs.reserved {
            let lost: Vec<_> =
                reserved.iter().filter(|id| found.get(id).is_none_or(|at| at != name)).collect();
            assert!(lost.is_empty(), "{context}: the session {name} has lost {lost:?}");
        }
        let lost: Vec<_> = jobs.there.iter().filter(|id| !found.contains_key(id)).collect();
        assert!(lost.is_empty(), "{context}: {lost:?} are lost");
        let back: Vec<_> = jobs.gone.iter().filter(|id| found.contains_key(id)).collect();
        assert!(back.is_empty(), "{context}: {back:?} were deleted");
        let is_new = |id: &u64| !jobs.there.contains(id) && !jobs.unsure.contains(id);
        let new = found.keys().filter(|&id| is_new(id)).count();
        assert!(new <= jobs.unsure_puts, "{context}: {new} jobs that nobody knows of");
        let deleted: Vec<u64> =
            std::mem::take(&mut jobs.unsure).into_iter().filter(|id| !found.contains_key(id)).collect();
        jobs.gone.extend(deleted);
        jobs.put.extend(found.keys());
        jobs.there = found.keys().copied().collect();
        jobs.unsure_puts = 0;
        for (name, reserved) in &mut jobs.reserved {
            *reserved = found.iter().filter(|(_, at)| at == name).map(|(&id, _)| id).collect();
        }
    }
}

/// The existing jobs, each with the name of its session or an empty name.
fn jobs_of(client: &mut Client) -> BTreeMap<u64, String> {
    let mut found = BTreeMap::new();
    for state in ["ready", "reserved"] {
        let list = client.find(&format!("list-jobs default {state} 1000")).unwrap_or_default();
        for (id, session) in jobs_of_list(&String::from_utf8(list).unwrap()) {
            assert!(found.insert(id, session.to_owned()).is_none(), "job {id} is there twice");
        }
    }
    found
}

/// Puts jobs, several at once. Like each client, it returns when the test asks it to, or when the server has ended.
pub fn produce(mut client: Client, known: &Known) {
    while !known.is_over() {
        thread::sleep(Duration::from_millis(2));
        if known.jobs().there.len() > ENOUGH {
            continue;
        }
        const COUNT: usize = 3;
        known.jobs().unsure_puts += COUNT;
        if client.try_send(&b"put 0 0 600 4\r\nbody\r\n".repeat(COUNT)).is_err() {
            return;
        }
        for _ in 0..COUNT {
            let Some(line) = reply(&mut client) else { return };
            if line == "DRAINING" {
                known.jobs().unsure_puts -= 1;
                continue;
            }
            let id = line.strip_prefix("INSERTED ").unwrap_or_else(|| panic!("a put is answered {line}"));
            let id = id.parse().unwrap();
            let mut jobs = known.jobs();
            assert!(jobs.put.insert(id), "{id} was given twice");
            jobs.unsure_puts -= 1;
            // A worker may have been faster.
            if !jobs.gone.contains(&id) && !jobs.unsure.contains(&id) {
                jobs.there.insert(id);
            }
        }
    }
}

/// Reserves jobs, and touches, releases or deletes them.
pub fn work(mut client: Client, name: &'static str, known: &Known) {
    let mut random = Random::new(name.len() as u64);
    let reserved = known.jobs().reserved.entry(name).or_default().len();
    let Some(answer) = ask(&mut client, &format!("session {name} 600")) else { return };
    assert_eq!(answer, format!("SESSION {reserved}"), "{name}");
    while !known.is_over() {
        thread::sleep(Duration::from_millis(1));
        let own: Vec<u64> = known.jobs().reserved[name].iter().copied().collect();
        let answer = if own.is_empty() || own.len() < MAX_RESERVED && random.once_in(2) {
            reserve(&mut client, name, known)
        } else {
            treat(&mut client, name, random.pick(&own), random.below(4), known)
        };
        if answer.is_none() {
            return;
        }
    }
}

fn reserve(client: &mut Client, name: &'static str, known: &Known) -> Option<()> {
    let line = ask(client, "reserve-with-timeout 0")?;
    if line == "TIMED_OUT" {
        return Some(());
    }
    let id = line.strip_prefix("RESERVED ").and_then(|rest| rest.strip_suffix(" 4"));
    let id = id.unwrap_or_else(|| panic!("a reserve is answered {line}")).parse().unwrap();
    let mut jobs = known.jobs();
    assert!(!jobs.gone.contains(&id), "{id} was deleted, and goes to {name}");
    let is_reserved = jobs.reserved.values().any(|reserved| reserved.contains(&id));
    assert!(!is_reserved, "{id} goes to {name}, and a session has it");
    jobs.reserved.get_mut(name)?.insert(id);
    drop(jobs);
    let body = reply(client)?;
    assert_eq!(body, "body");
    Some(())
}

fn treat(client: &mut Client, name: &'static str, id: u64, how: u64, known: &Known) -> Option<()> {
    match how {
        0 => assert_eq!(ask(client, &format!("touch {id}"))?, "TOUCHED"),
        1 => {
            known.jobs().reserved.get_mut(name)?.remove(&id);
            assert_eq!(ask(client, &format!("release {id} 0 0"))?, "RELEASED");
        }
        _ => {
            let mut jobs = known.jobs();
            jobs.reserved.get_mut(name)?.remove(&id);
            jobs.there.remove(&id);
            jobs.unsure.insert(id);
            drop(jobs);
            assert_eq!(ask(client, &format!("delete {id}"))?, "DELETED", "{name} has {id}");
            let mut jobs = known.jobs();
            jobs.unsure.remove(&id);
            jobs.gone.insert(id);
        }
    }
    Some(())
}

/// The reply, unless the server is gone.
fn ask(client: &mut Client, line: &str) -> Option<String> {
    client.try_send(format!("{line}\r\n").as_bytes()).ok()?;
    reply(client)
}

fn reply(client: &mut Client) -> Option<String> {
    client.try_line()
}

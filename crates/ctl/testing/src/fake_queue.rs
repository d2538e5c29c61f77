//! The queue of the fake server: a list of jobs, which every command searches from end to end.

use std::collections::HashMap;
use std::fmt::Write as _;

/// A job of the fake server.
#[derive(Clone)]
pub(crate) struct FakeJob {
    pub id: u64,
    pub tube: String,
    pub state: &'static str,
    pub pri: u32,
    pub delay: u32,
    pub ttr: u32,
    pub body: Vec<u8>,
    pub tags: Vec<String>,
    /// The connection that has reserved it.
    pub holder: Option<usize>,
    pub reserves: u32,
    pub releases: u32,
    pub buries: u32,
    pub kicks: u32,
}

impl FakeJob {
    fn tag(&self, word: &str) -> Option<&str> {
        self.tags.iter().find_map(|tag| tag.strip_prefix(word))
    }

    pub(crate) fn is_held(&self) -> bool {
        self.tag("aft:").is_some()
    }

    /// The keys of `stats-job` after those of C.
    fn tag_keys(&self) -> Vec<(&'static str, String)> {
        let split = |word| {
            let value: &str = self.tag(word).unwrap_or_default();
            let (key, number) = value.split_once(':').unwrap_or((value, ""));
            (key.to_owned(), number.to_owned())
        };
        let (idp, idp_seconds) = split("idp:");
        let (con, limit) = split("con:");
        let or = |text: String, default: &str| if text.is_empty() { default.to_owned() } else { text };
        let con_default = if con.is_empty() { "0" } else { "1" };
        vec![
            ("idempotency-key", format!("\"{idp}\"")),
            ("idempotency-ttl", or(idp_seconds, "0")),
            ("group", format!("\"{}\"", split("grp:").0)),
            ("after-group", format!("\"{}\"", split("aft:").0)),
            ("concurrency-key", format!("\"{con}\"")),
            ("concurrency-limit", or(limit, con_default)),
            ("held", self.is_held().to_string()),
            ("expires-in", or(split("exp:").0, "0")),
        ]
    }

    pub(crate) fn stats(&self) -> String {
        let mut text = format!("---\nid: {}\ntube: \"{}\"\nstate: {}\n", self.id, self.tube, self.state);
        for (key, value) in self.numbers() {
            let _ = writeln!(text, "{key}: {value}");
        }
        for (key, value) in self.tag_keys() {
            let _ = writeln!(text, "{key}: {value}");
        }
        text
    }

    fn numbers(&self) -> [(&'static str, u32); 10] {
        let left = if self.state == "delayed" { self.delay } else { 0 };
        [
            ("pri", self.pri),
            ("age", 100),
            ("delay", self.delay),
            ("ttr", self.ttr),
            ("time-left", left),
            ("reserves", self.reserves),
            ("timeouts", 0),
            ("releases", self.releases),
            ("buries", self.buries),
            ("kicks", self.kicks),
        ]
    }

    /// A line of `list-jobs`.
    pub(crate) fn line(&self) -> String {
        let mut text = format!("- {{id: {}, bytes: {}", self.id, self.body.len());
        for (key, value) in self.numbers() {
            let _ = write!(text, ", {key}: {value}");
        }
        if !self.tags.is_empty() {
            for (key, value) in self.tag_keys() {
                let _ = write!(text, ", {key}: {value}");
            }
        }
        text.push_str("}\n");
        text
    }
}

/// The state of the fake server.
#[derive(Default)]
pub(crate) struct FakeQueue {
    pub jobs: Vec<FakeJob>,
    pub last_id: u64,
    pub draining: bool,
    pub paused: HashMap<String, u32>,
    /// The used tube of each connection that has sent `use`.
    pub used: HashMap<usize, String>,
}

impl FakeQueue {
    pub(crate) fn tubes(&self) -> Vec<String> {
        let mut tubes = vec!["default".to_owned()];
        for tube in self.jobs.iter().map(|job| &job.tube).chain(self.used.values()) {
            if !tubes.contains(tube) {
                tubes.push(tube.clone());
            }
        }
        tubes
    }

    pub(crate) fn count(&self, tube: Option<&str>, state: &str) -> usize {
        let of_tube = |job: &&FakeJob| tube.is_none_or(|tube| job.tube == tube);
        self.jobs.iter().filter(of_tube).filter(|job| job.state == state).count()
    }

    /// The jobs of a tube in a state, in the order in which they would be served.
    pub(crate) fn in_order(&self, tube: &str, state: &str) -> Vec<&FakeJob> {
        let mut jobs: Vec<_> =
            self.jobs.iter().filter(|job| job.tube == tube && job.state == state).collect();
        jobs.sort_by_key(|job| match state {
            "ready" => (u64::from(job.pri), job.id),
            "delayed" => (u64::from(job.delay), job.id),
            _ => (0, job.id),
        });
        jobs
    }

    pub(crate) fn find(&mut self, id: u64) -> Option<&mut FakeJob> {
        self.jobs.iter_mut().find(|job| job.id == id)
    }

    /// Removes the jobs that `chosen` names, and tells how many.
    pub(crate) fn remove(&mut self, mut chosen: impl FnMut(&FakeJob) -> bool) -> usize {
        let before = self.jobs.len();
        self.jobs.retain(|job| !chosen(job));
        before - self.jobs.len()
    }

    /// Makes the jobs that a connection has reserved ready again.
    pub(crate) fn release_all(&mut self, holder: usize) {
        for job in self.jobs.iter_mut().filter(|job| job.holder == Some(holder)) {
            (job.holder, job.state) = (None, "ready");
        }
        self.used.remove(&holder);
    }
}

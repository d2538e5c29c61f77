//! Starts the servers of these tests, and reads their jobs.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use beanstalkd_types::tags::{Name, TagSet};

use beanstalkd_model::words_of;
pub use beanstalkd_testkit::client::body_of as body;
use beanstalkd_testkit::client::{Client, Failure, pairs_of};
use beanstalkd_testkit::server::{Server, Transport};

/// Commands that are sent before their replies are read.
const DEPTH: usize = 200;

/// The program under test.
pub fn ours() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_beanstalkd"))
}

/// Our server with its binlog in its own directory.
pub fn start(flags: &[&str]) -> Server {
    start_program(ours(), "{dir}", flags)
}

/// `program` with its binlog in `directory`, in which `{dir}` stands for the server's own.
pub fn start_program(program: &Path, directory: &str, flags: &[&str]) -> Server {
    try_to_start(program, directory, flags).unwrap()
}

/// Like [`start_program`], for a program that may fail. The error contains its standard error.
pub fn try_to_start(program: &Path, directory: &str, flags: &[&str]) -> io::Result<Server> {
    let flags: Vec<String> = ["-b", directory].iter().chain(flags).map(|&flag| flag.to_owned()).collect();
    Server::start(program, Transport::Unix, &flags)
}

/// A job with the figures that a client can see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenJob {
    pub tube: String,
    pub state: String,
    pub priority: u64,
    pub delay: u64,
    pub ttr: u64,
    pub age: u64,
    pub time_left: u64,
    pub reserves: u64,
    pub timeouts: u64,
    pub releases: u64,
    pub buries: u64,
    pub kicks: u64,
    pub tags: SeenTags,
    pub body: Vec<u8>,
}

/// The tags of a job as a client sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenTags {
    /// The keys and groups with their numbers, as `stats-job` has them.
    names: [String; 6],
    held: bool,
    expires: bool,
}

impl SeenTags {
    /// These tags as a client sees them.
    pub fn of(tags: &TagSet<'_>, held: bool, was_reserved: bool) -> Self {
        let (key, limited) = (tags.idempotency, tags.concurrency);
        let text = |name: Option<Name<'_>>| name.map_or("", Name::as_str).to_owned();
        let names = [
            text(key.map(|tag| tag.key)),
            key.map_or(0, |tag| tag.cooldown_s.whole()).to_string(),
            text(tags.group),
            text(tags.after.map(|after| after.group)),
            text(limited.map(|tag| tag.key)),
            limited.map_or(0, |tag| tag.limit).to_string(),
        ];
        Self { names, held, expires: tags.expires_after_s.is_some() && !was_reserved }
    }

    /// Other servers have no tags.
    fn seen(stats: &BTreeMap<String, String>) -> Self {
        const KEYS: [&str; 6] = [
            "idempotency-key",
            "idempotency-ttl",
            "group",
            "after-group",
            "concurrency-key",
            "concurrency-limit",
        ];
        if !stats.contains_key(KEYS[0]) {
            return Self::of(&TagSet::default(), false, false);
        }
        let names = KEYS.map(|key| stats[key].clone());
        Self { names, held: stats["held"] == "true", expires: stats["expires-in"] != "0" }
    }
}

/// The existing jobs among `ids`.
pub fn see_jobs(
    client: &mut Client,
    ids: impl IntoIterator<Item = u64>,
) -> Result<BTreeMap<u64, SeenJob>, Failure> {
    let ids: Vec<u64> = ids.into_iter().collect();
    let mut jobs = BTreeMap::new();
    for ids in ids.chunks(DEPTH) {
        let commands: String = ids.iter().map(|id| format!("stats-job {id}\r\npeek {id}\r\n")).collect();
        client.send(commands.as_bytes())?;
        for &id in ids {
            let (stats, found) = (client.read_reply()?, client.read_reply()?);
            if stats.starts_with(b"OK ") {
                jobs.insert(id, seen_job(&pairs_of(&stats).into_iter().collect(), body(&found).to_vec()));
            }
        }
    }
    Ok(jobs)
}

fn seen_job(stats: &BTreeMap<String, String>, body: Vec<u8>) -> SeenJob {
    let number = |key: &str| stats[key].parse().unwrap();
    SeenJob {
        tube: stats["tube"].clone(),
        state: stats["state"].clone(),
        priority: number("pri"),
        delay: number("delay"),
        ttr: number("ttr"),
        age: number("age"),
        time_left: number("time-left"),
        reserves: number("reserves"),
        timeouts: number("timeouts"),
        releases: number("releases"),
        buries: number("buries"),
        kicks: number("kicks"),
        tags: SeenTags::seen(stats),
        body,
    }
}

/// A `put` of `body` with tags.
pub fn put_with(priority: u32, delay: u32, ttr: u32, tags: &TagSet<'_>, body: &[u8]) -> Vec<u8> {
    let line = format!("put {priority} {delay} {ttr} {}{}\r\n", body.len(), words_of(tags, None));
    [line.as_bytes(), body, b"\r\n"].concat()
}

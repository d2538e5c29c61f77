//! A server under strace: its system calls in their order, and failures injected into them.
//!
//! Owns: the command line of strace, and the reading of what it writes. The server itself is the child: strace
//! stands beside it, so that signals and exit codes are the server's own.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::jobs::{ours, try_to_start};
use beanstalkd_testkit::server::Server;

/// Whether there is strace, after saying that a test is skipped without it.
///
/// # Panics
///
/// Where `CI` is set: there it has to be.
pub fn has_strace() -> bool {
    let found = std::process::Command::new("strace").arg("-V").output().is_ok();
    assert!(found || std::env::var_os("CI").is_none(), "there is no strace, and CI needs it");
    if !found {
        println!("skipped: there is no strace");
    }
    found
}

/// A server that is traced.
pub struct Traced {
    pub server: Server,
    log: PathBuf,
    _directory: tempfile::TempDir,
}

/// What a process did, as far as durability is concerned.
#[derive(Debug, PartialEq, Eq)]
enum Event {
    Write { file: String, tags: Vec<String> },
    SyncBegins { thread: String, file: String },
    SyncEnds { thread: String, good: bool },
    Reply { ids: Vec<u64> },
}

impl Traced {
    /// Starts our server under strace, with `injection` as strace's `-e inject=` if it is not empty. The error
    /// holds what a server has said that ended at its start.
    pub fn start(flags: &[&str], injection: &str) -> io::Result<Self> {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("trace");
        let mut script = "#!/bin/sh\nexec strace -D -f -y -qq -s 1000000 \
                          -e trace=pwrite64,fdatasync,fsync,write,writev,sendto,sendmsg"
            .to_owned();
        if !injection.is_empty() {
            write!(script, " -e inject={injection}").unwrap();
        }
        writeln!(script, " -o {} {} \"$@\"", log.display(), ours().display()).unwrap();
        let wrapper = directory.path().join("traced");
        std::fs::write(&wrapper, script).unwrap();
        std::fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o700)).unwrap();
        let server = try_to_start(&wrapper, "{dir}", flags)?;
        Ok(Self { server, log, _directory: directory })
    }

    /// Holds every `INSERTED` that left the server, which has ended, against the syncs before it. `tags` tells what the
    /// body of each id begins with: words that stand nowhere else. Returns how many were checked.
    pub fn check_replies_follow_syncs(&self, tags: &BTreeMap<u64, String>) -> usize {
        // strace writes each line before it lets the call return to the server: of a server that has ended, all.
        let text = String::from_utf8_lossy(&std::fs::read(&self.log).unwrap()).into_owned();
        let (mut written, mut syncing) = (BTreeMap::<String, BTreeSet<String>>::new(), BTreeMap::new());
        let mut durable = BTreeSet::new();
        let mut checked = 0;
        for event in text.lines().flat_map(parse) {
            match event {
                Event::Write { file, tags } => written.entry(file).or_default().extend(tags),
                Event::SyncBegins { thread, file } => {
                    syncing.insert(thread, written.get(&file).cloned().unwrap_or_default());
                }
                Event::SyncEnds { thread, good } => {
                    let covered = syncing.remove(&thread).unwrap_or_default();
                    if good {
                        durable.extend(covered);
                    }
                }
                Event::Reply { ids } => {
                    for id in ids {
                        // Replies that no client has read are not in the table.
                        if let Some(tag) = tags.get(&id) {
                            assert!(durable.contains(tag), "INSERTED {id} left before {tag} was synced");
                            checked += 1;
                        }
                    }
                }
            }
        }
        checked
    }
}

/// What a line of strace tells: `PID call(FD<PATH>, ...) = RESULT`, or the two halves of it.
fn parse(line: &str) -> Vec<Event> {
    let Some((thread, call)) = line.split_once(char::is_whitespace) else { return Vec::new() };
    let (thread, call) = (thread.to_owned(), call.trim_start());
    let is_sync = ["fdatasync", "fsync"].iter().any(|name| call.starts_with(name));
    let ends = || Event::SyncEnds { thread: thread.clone(), good: call.trim_end().ends_with("= 0") };
    if call.starts_with("<... f") {
        return vec![ends()];
    }
    let path =
        || call.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map_or("", |(path, _)| path);
    if is_sync {
        let begins = Event::SyncBegins { thread: thread.clone(), file: path().to_owned() };
        return if call.contains("<unfinished") { vec![begins] } else { vec![begins, ends()] };
    }
    if call.starts_with("pwrite64") {
        // A write that has not returned yet when a sync begins is not followed by a reply before the next sync.
        let failed = call.contains("(INJECTED)");
        let tags =
            call.split("tag-").skip(1).map(|rest| rest.split(';').next().unwrap_or_default().to_owned());
        return vec![Event::Write { file: path().to_owned(), tags: tags.filter(|_| !failed).collect() }];
    }
    let ids = call.split("INSERTED ").skip(1).filter_map(|rest| {
        rest.split(|character: char| !character.is_ascii_digit()).next().and_then(|id| id.parse().ok())
    });
    let ids: Vec<u64> = ids.collect();
    if ids.is_empty() { Vec::new() } else { vec![Event::Reply { ids }] }
}

#[test]
fn a_trace_is_read_as_it_is_written() {
    let write = "7 pwrite64(5<d/binlog.1>, \"\\7default tag-a;x tag-b;\\r\\n\", 9, 88) = 9";
    let tags = vec!["a".to_owned(), "b".to_owned()];
    assert_eq!(parse(write), [Event::Write { file: "d/binlog.1".into(), tags }]);
    let begins = Event::SyncBegins { thread: "8".into(), file: "d/binlog.1".into() };
    let ends = |good| Event::SyncEnds { thread: "8".into(), good };
    assert_eq!(parse("8 fdatasync(6<d/binlog.1>) = 0"), [begins, ends(true)]);
    assert_eq!(parse("8 <... fdatasync resumed>) = -1 EIO (Input/output error) (INJECTED)"), [ends(false)]);
    assert_eq!(
        parse("7 sendto(9<socket:[1]>, \"INSERTED 1\\r\\nINSERTED 23\\r\\n\", 24, 0, NULL, 0) = 24"),
        [Event::Reply { ids: vec![1, 23] }]
    );
}

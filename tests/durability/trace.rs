//! A server under strace: its system calls in their order, and failures injected into them.
//!
//! Owns: the command line of strace, and the parser of its output. The server itself is the child process, and strace
//! is attached to it, so that signals and exit codes are the server's own.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::jobs::{ours, try_to_start};
use beanstalkd_testkit::server::Server;

/// A server under strace.
pub struct Traced {
    pub server: Server,
    log: PathBuf,
    _directory: tempfile::TempDir,
}

/// A system call that matters for durability.
#[derive(Debug, PartialEq, Eq)]
enum Event {
    Write { file: String, tags: Vec<String> },
    SyncBegins { thread: String, file: String },
    SyncEnds { thread: String, good: bool },
    Reply { ids: Vec<u64> },
}

impl Traced {
    /// Starts our server under strace, with `injection` as strace's `-e inject=` if it is not empty. The error
    /// has the standard error of a server that exited at its start.
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

    /// Checks that every `INSERTED` that the server sent follows the sync of its job. The server must have exited.
    /// `tags` has a unique text for each id, with which the job's body begins. Returns the number of checked replies.
    pub fn check_replies_follow_syncs(&self, tags: &BTreeMap<u64, String>) -> usize {
        let (mut written, mut syncing) = (BTreeMap::<String, BTreeSet<String>>::new(), BTreeMap::new());
        let mut durable = BTreeSet::new();
        let mut checked = 0;
        for event in self.events() {
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
                        // Replies that no client has read are not in `tags`.
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

    /// The paths that the server has synced. It must have exited.
    pub fn synced_paths(&self) -> BTreeSet<String> {
        let synced = self.events().into_iter().filter_map(|event| match event {
            Event::SyncBegins { file, .. } => Some(file),
            _ => None,
        });
        synced.collect()
    }

    /// strace writes each line before the call returns to the server, so the trace of an exited server is complete.
    fn events(&self) -> Vec<Event> {
        let text = std::fs::read(&self.log).unwrap();
        String::from_utf8_lossy(&text).lines().flat_map(parse).collect()
    }
}

/// Parses a line of strace: `PID call(FD<PATH>, ...) = RESULT`, or one half of such a line.
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
        // If a write returns after a sync began, its reply comes only after the next sync.
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
fn the_parser_understands_the_lines_of_strace() {
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

//! The tools for operators: checks, dumps, the refusal of damaged files, repair, and locks.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::jobs::{body, ours, see_jobs, start, start_program};
use beanstalkd_testkit::client::{id_of, put_command};
use beanstalkd_testkit::panicking::is_root;
use beanstalkd_testkit::server::{Ended, Server, run_to_end};

/// Exit code of a server that refuses a damaged binlog.
const DAMAGED: i32 = 65;
/// Exit code of a server whose directory is locked.
const LOCKED: i32 = 10;

/// Runs our program with `arguments` to its end.
fn run(arguments: &[&str]) -> Ended {
    let own = tempfile::tempdir().unwrap();
    let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
    run_to_end(ours(), &arguments, own.path()).unwrap()
}

/// Every file of the binlog with its content.
fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.filter(|path| path.is_file());
    files.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

/// A server that was killed, with ten jobs in its binlog: ready, delayed and buried ones, with bodies of bytes and
/// text.
fn killed_server() -> Server {
    let mut server = start(&["-f", "0", "-s", "4096"]);
    let mut client = server.connect().unwrap();
    client.exchange(b"use tools\r\n", b"USING tools\r\n").unwrap();
    client.exchange(b"watch tools\r\n", b"WATCHING 2\r\n").unwrap();
    for id in 1..=8 {
        let reply =
            client.ask(&put_command(id, 0, 60, format!("say \"{id}\" \\ é\t\r\n\u{1}").as_bytes())).unwrap();
        assert_eq!(id_of(&reply, "INSERTED"), Some(id.into()));
    }
    client.exchange(&put_command(9, 0, 60, b"\xff\x00\xfe"), b"INSERTED 9\r\n").unwrap();
    client.exchange(&put_command(10, 1000, 60, b""), b"INSERTED 10\r\n").unwrap();
    assert_eq!(id_of(&client.ask(b"reserve\r\n").unwrap(), "RESERVED"), Some(1));
    client.exchange(b"bury 1 7\r\n", b"BURIED\r\n").unwrap();
    server.stop(Signal::KILL).unwrap();
    server
}

/// Changes a byte in the record that contains `needle`, in the oldest file of the binlog. Returns the file's path.
fn damage(directory: &Path, needle: &[u8]) -> PathBuf {
    let path = directory.join("binlog.1");
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(needle.len()).position(|window| window == needle).unwrap();
    bytes[at] ^= 0x20;
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn check_and_dump_change_nothing() {
    let server = killed_server();
    let directory = server.directory().to_str().unwrap();
    let before = contents(server.directory());
    let checked = run(&["--check", directory]);
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    assert!(checked.stdout.contains("10 jobs") && checked.stdout.contains("0 damaged"), "{}", checked.stdout);

    let dumped = run(&["--dump", directory]);
    assert_eq!(dumped.status.code(), Some(0), "{dumped:?}");
    assert_eq!(dumped.stdout.lines().count(), 10);
    assert!(contents(server.directory()) == before, "check and dump change no file");

    damage(server.directory(), b"say \"5\"");
    let before = contents(server.directory());
    let checked = run(&["--check", directory]);
    assert_eq!(checked.status.code(), Some(1), "{checked:?}");
    assert!(checked.stdout.contains("binlog.1") && checked.stdout.contains("error:"), "{}", checked.stdout);
    assert!(contents(server.directory()) == before, "a check of a damaged binlog changes no file");
}

/// A mistyped path must not be reported as an undamaged binlog.
#[test]
fn a_directory_without_a_binlog_is_not_sound() {
    let directory = tempfile::tempdir().unwrap();
    for flag in ["--check", "--dump"] {
        for (path, status) in [(directory.path().to_owned(), 1), (directory.path().join("missing"), LOCKED)] {
            let looked = run(&[flag, path.to_str().unwrap()]);
            assert_eq!(looked.status.code(), Some(status), "{looked:?}");
            assert!(looked.stdout.is_empty(), "{looked:?}");
            assert!(
                looked.stderr.contains(path.to_str().unwrap()) && looked.stderr.contains(flag),
                "{looked:?}"
            );
        }
    }
}

/// Python parses each line, and prints it in a form that is easy to compare.
#[test]
fn each_line_of_a_dump_is_json() {
    const READER: &str = "import sys, json, base64
for line in sys.stdin:
    job = json.loads(line)
    body = job['body'].encode() if job['encoding'] == 'utf-8' else base64.b64decode(job['body'])
    print(job['id'], job['tube'], job['state'], job['pri'], job['delay'], job['ttr'], job['buries'], body.hex())
";
    let server = killed_server();
    let dumped = run(&["--dump", server.directory().to_str().unwrap()]);
    let lines = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(lines.path(), dumped.stdout).unwrap();
    let reader = Command::new("python3")
        .args(["-c", READER])
        .stdin(Stdio::from(lines.reopen().unwrap()))
        .output()
        .expect("python3 can be started; `make check` needs it too");
    assert!(reader.status.success(), "{}", String::from_utf8_lossy(&reader.stderr));
    let hex = |id: u64| {
        let body = format!("say \"{id}\" \\ é\t\r\n\u{1}");
        body.bytes().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let ready = |id: u64| format!("{id} tools ready {id} 0 60 0 {}\n", hex(id));
    let expected = format!("1 tools buried 7 0 60 1 {}\n", hex(1))
        + &(2..=8).map(ready).collect::<String>()
        + "9 tools ready 9 0 60 0 ff00fe\n10 tools delayed 10 1000 60 0 \n";
    assert_eq!(String::from_utf8_lossy(&reader.stdout), expected);
}

#[test]
fn a_damaged_binlog_is_refused_without_recover() {
    let server = killed_server();
    let directory = server.directory().to_str().unwrap();
    let path = damage(server.directory(), b"say \"5\"");
    let before = contents(server.directory());
    for _ in 0..2 {
        let own = tempfile::tempdir().unwrap();
        let listen = format!("unix:{}", own.path().join("socket").display());
        let refused = run(&["-b", directory, "-f", "0", "-l", &listen]);
        assert_eq!(refused.status.code(), Some(DAMAGED), "{refused:?}");
        let name = path.file_name().unwrap().to_str().unwrap();
        let next_steps = ["--check", "--recover", "backup"];
        let named = [name, "error"].into_iter().chain(next_steps);
        assert!(named.into_iter().all(|word| refused.stderr.contains(word)), "{}", refused.stderr);
        assert!(contents(server.directory()) == before, "a refused start changes no file");
    }
    let recovered = start_program(ours(), directory, &["-f", "0", "--recover"]);
    let mut client = recovered.connect().unwrap();
    let jobs = see_jobs(&mut client, 1..=10).unwrap();
    assert_eq!(
        jobs.keys().copied().collect::<Vec<_>>(),
        [1, 2, 3, 4, 6, 7, 8, 9, 10],
        "all jobs except the damaged one come back"
    );
    assert_eq!(jobs[&1].state, "buried");
    assert!(recovered.stderr().contains("lost.1."), "{}", recovered.stderr());
    // Only the names are read, because the server is renaming the file that it makes ahead.
    let mut entries = std::fs::read_dir(server.directory()).unwrap().map(|entry| entry.unwrap().path());
    assert!(entries.any(|path| path.to_string_lossy().contains("/lost.1.")));
    assert_eq!(client.ask(&put_command(0, 0, 60, b"new")).unwrap(), b"INSERTED 11\r\n");
}

#[test]
fn a_torn_tail_is_kept_in_a_file_and_reported() {
    let killed = killed_server();
    let directory = killed.directory().to_str().unwrap();
    // A torn record at the end that no marker calls durable, as a loss of power leaves it.
    let path = killed.directory().join("binlog.1");
    let mut bytes = std::fs::read(&path).unwrap();
    let end = bytes.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    bytes[end..end + 40].fill(0xa5);
    std::fs::write(&path, &bytes).unwrap();
    let mut server = start_program(ours(), directory, &["-f", "0"]);
    assert_eq!(server.connect().unwrap().job_count().unwrap(), 10);
    let said = server.stderr();
    // Only the names are read, because the server is renaming the file that it makes ahead.
    let entries = std::fs::read_dir(killed.directory()).unwrap().map(|entry| entry.unwrap().path());
    let lost: Vec<PathBuf> = entries.filter(|path| path.to_string_lossy().contains("/lost.1.")).collect();
    assert_eq!(lost.len(), 1, "{said}");
    let name = lost[0].file_name().unwrap().to_str().unwrap();
    assert!(said.contains(name) && said.contains("torn at"), "{said}");
    assert!(std::fs::read(&lost[0]).unwrap().windows(40).any(|window| window == [0xa5; 40]));
    server.restart(Signal::TERM).unwrap();
    assert!(!server.stderr().contains("torn"), "{}", server.stderr());
    assert_eq!(run(&["--check", directory]).status.code(), Some(0));
}

/// Runs a server on the binlog in `directory`, which must refuse it, and returns what it says.
fn refusal(directory: &Path, flags: &[&str]) -> String {
    let own = tempfile::tempdir().unwrap();
    let listen = format!("unix:{}", own.path().join("socket").display());
    let flags = [&["-b", directory.to_str().unwrap(), "-l", &listen], flags].concat();
    let refused = run(&flags);
    assert_eq!(refused.status.code(), Some(LOCKED), "{refused:?}");
    refused.stderr
}

#[test]
fn a_file_of_the_binlog_that_cannot_be_read_is_named_and_not_its_directory() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("binlog.1");
    std::os::unix::fs::symlink("nowhere", &file).unwrap();
    let said = refusal(directory.path(), &[]);
    assert!(said.contains(&format!("{} is a link to a path", file.display())), "{said}");
    if !is_root() {
        return;
    }
    for name in ["binlog.1", "lock"] {
        std::fs::remove_file(directory.path().join(name)).unwrap();
    }
    std::fs::write(&file, "").unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o400)).unwrap();
    std::os::unix::fs::chown(directory.path(), Some(65534), None).unwrap();
    let said = refusal(directory.path(), &["-u", "nobody"]);
    assert!(said.contains(&format!("{} belongs to root:root", file.display())), "{said}");
}

/// A program that opens a pipe to read from it waits until another one opens it to write.
#[test]
fn a_pipe_in_the_place_of_a_file_is_refused_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("binlog.1");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for flag in ["--check", "--dump"] {
        let looked = run(&[flag, directory.path().to_str().unwrap()]);
        assert_eq!(looked.status.code(), Some(LOCKED), "{looked:?}");
        assert!(looked.stderr.contains("binlog.1: cannot read this file: it is a pipe"), "{looked:?}");
    }
}

#[test]
fn a_second_server_on_the_directory_ends_with_10() {
    let server = start(&["-f", "0"]);
    // Its socket takes connections before it has locked the directory.
    server.connect().unwrap().exchange(b"list-tube-used\r\n", b"USING default\r\n").unwrap();
    let own = tempfile::tempdir().unwrap();
    let listen = format!("unix:{}", own.path().join("socket").display());
    let second = run(&["-b", server.directory().to_str().unwrap(), "-l", &listen]);
    assert_eq!(second.status.code(), Some(LOCKED), "{second:?}");
    assert!(second.stderr.contains("is locked by process"), "{}", second.stderr);
}

#[test]
fn a_job_larger_than_the_current_limit_is_kept() {
    let server = start(&["-f", "0", "-z", "100000"]);
    let large = vec![b'x'; 100_000];
    let directory = server.directory().to_str().unwrap().to_owned();
    let mut first = server;
    let mut client = first.connect().unwrap();
    client.exchange(&put_command(0, 0, 60, &large), b"INSERTED 1\r\n").unwrap();
    client.exchange(&put_command(1, 0, 60, b"x"), b"INSERTED 2\r\n").unwrap();
    first.stop(Signal::TERM).unwrap();
    let second = start_program(ours(), &directory, &["-f", "0", "-z", "10"]);
    let mut client = second.connect().unwrap();
    client.exchange(&put_command(0, 0, 60, b"eleven bytes"), b"JOB_TOO_BIG\r\n").unwrap();
    let reply = client.ask(b"reserve\r\n").unwrap();
    assert!(reply.starts_with(b"RESERVED 1 100000\r\n") && body(&reply) == large);
    client.exchange(b"reserve\r\n", b"RESERVED 2 1\r\nx\r\n").unwrap();
}

#[test]
fn ids_are_never_given_twice_however_the_server_ends() {
    let mut server = start(&["-f", "0", "-s", "4096"]);
    let mut highest = 0;
    for round in 0..12 {
        let mut client = server.connect().unwrap();
        for _ in 0..round * 7 {
            let id = id_of(&client.ask(&put_command(0, 0, 60, b"x")).unwrap(), "INSERTED").unwrap();
            assert!(id > highest, "expected a new id, but {id} was given before");
            highest = id;
            client.exchange(format!("delete {id}\r\n").as_bytes(), b"DELETED\r\n").unwrap();
        }
        server.restart(if round % 2 == 0 { Signal::KILL } else { Signal::TERM }).unwrap();
    }
}

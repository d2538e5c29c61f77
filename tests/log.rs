//! What the log looks like to those who read it: people, the journal, and machines.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

/// The log of a server that cannot start, because its binlog's directory is missing.
fn log_of(options: &[&str], journal: bool) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let file = File::create(&path).unwrap();
    let metadata = file.metadata().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_beanstalkd"));
    command.arg("-l").arg(format!("unix:{}", directory.path().join("socket").display()));
    command.arg("-b").arg(directory.path().join("missing")).arg("-c").args(options);
    command.env_remove("RUST_LOG").env_remove("JOURNAL_STREAM");
    // Whoever inherits the variable with another stderr must not take it for the journal.
    let inode = metadata.ino() + u64::from(!journal);
    command.env("JOURNAL_STREAM", format!("{}:{inode}", metadata.dev()));
    assert_eq!(command.stderr(file).status().unwrap().code(), Some(10));
    std::fs::read_to_string(path).unwrap()
}

/// The starts of the lines that tell of the version, the warning about `-c`, and the failure.
fn lines(log: &str) -> [&str; 3] {
    ["beanstalkd 2.0, pid ", "-c flag was removed", "missing"]
        .map(|part| log.lines().find(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}: {log}")))
}

#[test]
fn people_get_times_and_levels() {
    let log = log_of(&[], false);
    for (line, level) in lines(&log).into_iter().zip(["info", "warn", "error"]) {
        let mut words = line.split(' ');
        let time = words.next().unwrap();
        assert!(time.ends_with('Z') && time.contains('T'), "{line}");
        assert_eq!(words.next(), Some(level), "{line}");
    }
}

#[test]
fn the_journal_gets_priorities_alone() {
    let log = log_of(&[], true);
    let [start, warning, failure] = lines(&log);
    assert!(start.starts_with("<6>beanstalkd "), "{log}");
    assert!(warning.starts_with("<4>-c flag was removed"), "{log}");
    assert!(failure.starts_with("<3>"), "{log}");
}

#[test]
fn machines_get_an_object_a_line() {
    let log = log_of(&["--log-format", "json"], false);
    assert!(log.lines().all(|line| line.starts_with("{\"time\":\"") && line.ends_with("\"}")), "{log}");
    for (line, level) in lines(&log).into_iter().zip(["info", "warn", "error"]) {
        assert!(line.contains(&format!("\"level\":\"{level}\",\"target\":\"beanstalkd")), "{line}");
    }
}

#[test]
fn a_server_that_cannot_lock_its_binlog_never_says_that_it_listens() {
    assert!(!log_of(&[], false).contains("listening"));
}

#[test]
fn a_wrong_command_line_is_one_line_that_names_the_help() {
    for arguments in [&["-q"][..], &["-f", "abc"], &["--recover"], &["--metrics", "127.0.0.1"], &["word"]] {
        for journal in [false, true] {
            let file = tempfile::NamedTempFile::new().unwrap();
            let metadata = file.as_file().metadata().unwrap();
            let mut command = Command::new(env!("CARGO_BIN_EXE_beanstalkd"));
            let inode = metadata.ino() + u64::from(!journal);
            command.args(arguments).env("JOURNAL_STREAM", format!("{}:{inode}", metadata.dev()));
            let status = command.stderr(file.reopen().unwrap()).status().unwrap();
            assert_eq!(status.code(), Some(5), "{arguments:?}");
            let said = std::fs::read_to_string(file.path()).unwrap();
            assert_eq!(said.lines().count(), 1, "{said}");
            assert!(said.contains(arguments[0]) && said.contains("--help"), "{said}");
            assert_eq!(said.starts_with("<3>"), journal, "{said}");
        }
    }
}

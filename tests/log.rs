//! The formats of the log: text, text for the journal, and JSON.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

use beanstalkd_testkit::panicking::{Server, is_root};
use beanstalkd_testkit::server::run_to_end;
use beanstalkd_testkit::server_under_test;

/// The standard error of a server that exits with `code`. `journal` tells the server that its standard error is the
/// journal, or another file.
fn log_until_end(directory: &Path, arguments: &[&str], journal: bool, code: i32) -> String {
    let metadata = File::create(directory.join("stderr")).unwrap().metadata().unwrap();
    // A program that inherits the variable, but has another standard error, must not write for the journal.
    let inode = metadata.ino() + u64::from(!journal);
    let stream = format!("JOURNAL_STREAM={}:{inode}", metadata.dev());
    let program = server_under_test();
    let line = ["-u", "RUST_LOG", &stream, program.to_str().unwrap()];
    let line: Vec<OsString> = line.iter().chain(arguments).map(OsString::from).collect();
    let ended = run_to_end(Path::new("env"), &line, directory).unwrap();
    assert_eq!(ended.status.code(), Some(code), "{arguments:?}");
    ended.stderr
}

/// The log of a server that cannot start, because its binlog's directory, `missing`, does not exist.
fn log_of(options: &[&str], journal: bool) -> String {
    let directory = tempfile::tempdir().unwrap();
    let line = ["-l", "unix:socket", "-b", "missing", "-c"];
    log_until_end(directory.path(), &[&line, options].concat(), journal, 10)
}

/// The lines that name the version, `-c`, and the missing directory.
fn lines(log: &str) -> [&str; 3] {
    ["beanstalkd 2.0", "-c ", "missing"]
        .map(|part| log.lines().find(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}: {log}")))
}

#[test]
fn the_text_format_has_times_and_levels() {
    let log = log_of(&[], false);
    for (line, level) in lines(&log).into_iter().zip(["info", "warn", "error"]) {
        let mut words = line.split(' ');
        let time = words.next().unwrap();
        assert!(time.ends_with('Z') && time.contains('T'), "{line}");
        assert_eq!(words.next(), Some(level), "{line}");
    }
}

#[test]
fn the_journal_gets_priorities_without_times() {
    let log = log_of(&[], true);
    let [start, warning, failure] = lines(&log);
    assert!(start.starts_with("<6>beanstalkd "), "{log}");
    assert!(warning.starts_with("<4>-c "), "{log}");
    assert!(failure.starts_with("<3>"), "{log}");
}

#[test]
fn the_json_format_has_an_object_in_each_line() {
    let log = log_of(&["--log-format", "json"], false);
    assert!(log.lines().all(|line| line.starts_with("{\"time\":\"") && line.ends_with("\"}")), "{log}");
    for (line, level) in lines(&log).into_iter().zip(["info", "warn", "error"]) {
        assert!(line.contains(&format!("\"level\":\"{level}\",\"target\":\"beanstalkd")), "{line}");
    }
}

#[test]
fn a_server_names_its_address_when_it_serves_and_not_when_it_cannot_lock_its_binlog() {
    let server = Server::start_in(&["env", "-u", "RUST_LOG"], &[]);
    let address = format!("unix:{}", server.socket_path().display());
    assert!(server.log().contains(&address), "{}", server.log());
    let log = log_of(&[], false);
    assert!(!log.contains("unix:socket"), "{log}");
}

#[test]
fn a_wrong_command_line_is_one_line_that_names_the_help() {
    let directory = tempfile::tempdir().unwrap();
    for arguments in [&["-q"][..], &["-f", "abc"], &["--recover"], &["--metrics", "127.0.0.1"], &["word"]] {
        for journal in [false, true] {
            let said = log_until_end(directory.path(), arguments, journal, 5);
            assert_eq!(said.lines().count(), 1, "{said}");
            assert!(said.contains(arguments[0]) && said.contains("--help"), "{said}");
            assert_eq!(said.starts_with("<3>"), journal, "{said}");
        }
    }
}

#[test]
fn a_directory_that_cannot_be_used_is_blamed_on_its_cause() {
    let log = log_of(&[], false);
    assert!(log.contains("missing does not exist") && !log.contains("sandbox"), "{log}");
    if !is_root() {
        return;
    }
    // All can pass through the outer directory, and only root can write to the inner one.
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let inner = directory.path().join("inner");
    DirBuilder::new().mode(0o750).create(&inner).unwrap();
    let arguments = ["-l", "unix:socket", "-u", "nobody", "-b", inner.to_str().unwrap()];
    let log = log_until_end(directory.path(), &arguments, false, 10);
    let cause = "inner belongs to root:root and has the mode 750, and the server runs as nobody";
    assert!(log.contains(cause) && !log.contains("sandbox"), "{log}");
}

#[test]
fn the_help_that_was_asked_for_is_on_the_standard_output() {
    let directory = tempfile::tempdir().unwrap();
    let said = log_until_end(directory.path(), &["--help"], false, 0);
    assert_eq!(said, "");
    let help = std::fs::read_to_string(directory.path().join("stdout")).unwrap();
    assert!(help.starts_with("Use: ") && help.contains("--listen"), "{help}");
}

#[test]
fn files_that_a_reload_would_refuse_are_named_without_a_server() {
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("rules.toml");
    let arguments = ["-l", "unix:socket", "-b", "missing", "--access", "rules.toml", "--check-files"];
    std::fs::write(&rules, "[identities.team]\nproduces = [\"mail\"]\n").unwrap();
    let said = log_until_end(directory.path(), &arguments, false, 5);
    assert!(said.contains("error --access rules.toml: ") && said.contains("line 2"), "{said}");
    // This one is enough for a start, but not for a reload.
    std::fs::write(&rules, "").unwrap();
    let said = log_until_end(directory.path(), &arguments, false, 5);
    assert!(said.contains("error --access rules.toml: "), "{said}");
    std::fs::write(&rules, "[identities.team]\ntokens = []\n").unwrap();
    log_until_end(directory.path(), &arguments, false, 0);
    assert!(!directory.path().join("socket").exists());
}

#[test]
fn commands_are_logged_with_their_jobs_and_tubes() {
    let mut server = Server::start(&["-VV"]);
    let mut client = server.connect();
    client.ask("use mail");
    let id = client.put(0, 60, b"secret");
    client.ask(&format!("delete {id}"));
    client.ask("pause-tube mail 0");
    server.signal(rustix::process::Signal::TERM);
    server.end();
    let log = server.log();
    for words in
        ["command use mail", "command put mail", &format!("command delete {id}"), "command pause-tube mail"]
    {
        assert!(log.lines().any(|line| line.ends_with(words)), "{words}: {log}");
    }
    assert!(!log.contains("secret"), "{log}");
}

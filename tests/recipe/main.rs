//! The recipe of doc/architecture.md, followed: a command is added to a copy of the source, in one file with its `mod`
//! line, and one row in each of the two tables. The server that is built from the copy has the command, counts it,
//! names it among its extensions, and refuses it to a client without the role.
//!
//! Fails if a command needs a change in any other file of the server: either the copy does not compile, or the server
//! does not know enough of the command. Owns: the command, in `ready_age.rs` beside this file.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use beanstalkd_testkit::panicking::Client;
use beanstalkd_testkit::server::{Address, Server, Transport};

/// The file of the command.
const FILE: (&str, &str) = ("src/commands/ready_age.rs", include_str!("ready_age.rs"));

/// A line that the command needs in a file that exists.
struct Insertion {
    path: &'static str,
    line: &'static str,
    /// The beginning of the line before which it stands. Only one line of the file begins so.
    before: &'static str,
}

const INSERTIONS: [Insertion; 3] = [
    Insertion {
        path: "crates/protocol/src/command.rs",
        line: r#"    "ready-age " ReadyAge(tube: TubeNameRef<'a>) Ours => |rest| name(rest).map(Command::ReadyAge);"#,
        before: r#"    "auth ""#,
    },
    Insertion { path: "src/commands/mod.rs", line: "mod ready_age;", before: "mod auth;" },
    Insertion {
        path: "src/commands/mod.rs",
        line: "    Command::ReadyAge(tube) => needs(Roles::SEE_JOBS, Named(tube), Free), \
            executor.answer_data(executor.ready_age(&tube, caller.now), caller.output);",
        before: "    Command::Quit => ",
    },
];

/// The files from which the server is built.
const SOURCE: [&str; 6] = ["Cargo.toml", "Cargo.lock", "crates", "doc", "src", "tests"];

/// Access rules by which an anonymous client may see the jobs of one tube, and only put jobs into the other.
const RULES: &str = "[strangers]\nproduce = [\"seen\", \"unseen\"]\nobserve = [\"seen\"]\n";

fn insert(text: &str, insertion: &Insertion) -> String {
    let Insertion { path, line, before } = insertion;
    let is_anchor = |line: &&str| line.starts_with(before);
    let count = text.lines().filter(is_anchor).count();
    assert_eq!(count, 1, "one line of {path} begins with `{before}`: mend `before` of tests/recipe/main.rs");
    let lines = text.lines().flat_map(|next| is_anchor(&next).then_some(*line).into_iter().chain([next]));
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

fn files_in(path: &Path, found: &mut Vec<PathBuf>) {
    if !path.is_dir() {
        return found.push(path.to_owned());
    }
    // Programs of their own, such as the benchmark of the client library, have a `target` in their directories.
    if path.file_name() != Some(OsStr::new("target")) {
        fs::read_dir(path).unwrap().for_each(|entry| files_in(&entry.unwrap().path(), found));
    }
}

/// Copies the source to `copy`.
fn copy_source(root: &Path, copy: &Path) {
    let mut files = Vec::new();
    SOURCE.iter().for_each(|name| files_in(&root.join(name), &mut files));
    for file in files {
        let to = copy.join(file.strip_prefix(root).unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(&file, to).unwrap();
    }
}

/// Lends what was compiled for the tests to the target directory of the copy: all but the crates of the workspace.
/// Cargo and rustc replace libraries, so links to them are enough. They write over the other files, so these are
/// copied, with their times, by which cargo knows what is fresh.
fn lend_dependencies(built: &Path, target: &Path) {
    for name in ["build", ".fingerprint"] {
        fs::create_dir_all(target).unwrap();
        let status = Command::new("cp").arg("-Rp").arg(built.join(name)).arg(target).status().unwrap();
        assert!(status.success(), "cp of {name}: {status}");
    }
    let deps = target.join("deps");
    fs::create_dir(&deps).unwrap();
    for entry in fs::read_dir(built.join("deps")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.starts_with("lib") && !name.starts_with("libbeanstalk") {
            fs::hard_link(&path, deps.join(name)).unwrap();
        }
    }
}

/// Builds the server, and returns its path.
fn build(copy: &Path) -> PathBuf {
    let target = copy.join("target");
    // Dependencies whose optional parts only the tests use are compiled again.
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--frozen", "--quiet", "--workspace", "--bin", "beanstalkd"])
        .current_dir(copy)
        .env("CARGO_TARGET_DIR", &target)
        .env("CARGO_INCREMENTAL", "0")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    target.join("debug/beanstalkd")
}

fn start(binary: &Path, flags: &[&str]) -> (Server, Client) {
    let flags: Vec<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
    let server = Server::start(binary, Transport::Unix, &flags).unwrap();
    let Address::Unix(path) = server.address() else { unreachable!("it listens on a unix socket") };
    (server, Client::to_unix(&path).unwrap())
}

#[test]
fn a_command_is_one_file_and_one_row_in_each_table() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let server = std::env::current_exe().unwrap();
    let built = server.parent().unwrap().parent().unwrap();
    // Beside what was built: links do not lead to another file system.
    let copy = tempfile::Builder::new().prefix("recipe-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();

    copy_source(root, copy.path());
    let mut changed = vec![FILE.0];
    fs::write(copy.path().join(FILE.0), FILE.1).unwrap();
    for insertion in &INSERTIONS {
        let path = copy.path().join(insertion.path);
        fs::write(&path, insert(&fs::read_to_string(&path).unwrap(), insertion)).unwrap();
        changed.push(insertion.path);
    }
    changed.dedup();
    assert_eq!(
        changed,
        ["src/commands/ready_age.rs", "crates/protocol/src/command.rs", "src/commands/mod.rs"]
    );
    lend_dependencies(built, &copy.path().join("target/debug"));
    let binary = build(copy.path());

    let (_server, mut client) = start(&binary, &[]);
    assert_eq!(client.ask("ready-age absent"), "NOT_FOUND");
    assert_eq!(client.ask("ready-age"), "UNKNOWN_COMMAND");
    assert_eq!(client.ask("ready-age -"), "BAD_FORMAT");
    client.put(0, 60, b"x");
    assert_eq!(client.data("ready-age default")["age"], "0");
    assert_eq!(client.stat("cmd-ready-age"), 2, "a line that is no command is not counted");
    let extensions = client.data("stats")["extensions"].clone();
    assert!(extensions.split(' ').any(|word| word == "ready-age"), "{extensions}");

    let rules = copy.path().join("rules.toml");
    fs::write(&rules, RULES).unwrap();
    let (_guarded, mut client) = start(&binary, &["--access", rules.to_str().unwrap()]);
    for tube in ["seen", "unseen"] {
        assert_eq!(client.ask(&format!("use {tube}")), format!("USING {tube}"));
        client.put(0, 60, b"x");
    }
    assert_eq!(client.data("ready-age seen")["age"], "0");
    assert_eq!(client.ask("ready-age unseen"), "FORBIDDEN");
}

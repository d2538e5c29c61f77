//! The first programs of README.md and doc/clients.md, which a user would start again after a takeover.

use std::cell::RefCell;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use beanstalkd_testkit::panicking::wait_for_some;
use tempfile::TempDir;

/// The directory into which `make clients` installs the libraries for Python and Node.
const CLIENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/clients");

/// A program of the documents that puts a job, reserves and deletes it, and its output.
pub struct Program {
    pub language: &'static str,
    command: Command,
    output: String,
    _directory: TempDir,
}

impl Program {
    /// The programs whose language and client library are installed, for the server at `address`.
    pub fn all(address: SocketAddr) -> Vec<Self> {
        let python = Path::new(CLIENTS).join("python/bin/python");
        let modules = Path::new(CLIENTS).join("node/node_modules");
        let mut found = Vec::new();
        let mut add = |is_there: bool, language, interpreter: &Path| {
            if is_there {
                found.push(Self::of(language, interpreter, &modules, address));
            } else {
                beanstalkd_testkit::skip(&format!("the client for {language} is not installed"));
            }
        };
        add(python.exists(), "python", &python);
        add(modules.join("node-beanstalk").is_dir(), "js", Path::new("node"));
        add(succeeds("php", &["-r", "require_once 'Pheanstalk/autoload.php';"]), "php", Path::new("php"));
        add(succeeds("ruby", &["-e", "require 'beaneater'"]), "ruby", Path::new("ruby"));
        found
    }

    fn of(language: &'static str, interpreter: &Path, modules: &Path, address: SocketAddr) -> Self {
        let documents = ["README.md", "doc/clients.md"];
        let text = documents
            .map(|name| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap());
        let text = text.concat();
        let between = |text: &str, start: &str| {
            let (_, rest) = text.split_once(start).unwrap_or_else(|| panic!("the documents have no {start}"));
            let (block, rest) = rest.split_once("```").expect("the block ends");
            (block.to_owned(), rest.to_owned())
        };
        let (program, rest) = between(&text, &format!("```{language} run\n"));
        let (output, _) = between(&rest, "```text output\n");
        assert!(program.contains("127.0.0.1") && program.contains("11300"), "{program}");
        let program = program.replace("127.0.0.1", &address.ip().to_string());
        let program = program.replace("11300", &address.port().to_string());
        let directory = tempfile::tempdir().unwrap();
        let path: PathBuf = directory.path().join("program");
        fs::write(&path, program).unwrap();
        // Debian installs this library where PHP finds it, and not into the directory of the program.
        let vendor = directory.path().join("vendor");
        fs::create_dir(&vendor).unwrap();
        let autoload = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/autoload.php");
        std::os::unix::fs::symlink(autoload, vendor.join("autoload.php")).unwrap();
        let mut command = Command::new(interpreter);
        command.arg(&path).current_dir(directory.path()).env("NODE_PATH", modules);
        Self { language, command, output, _directory: directory }
    }

    /// Runs the program until it has printed the output in the document: it may meet the takeover, and then its user
    /// starts it again. The program for Node ends without an error in that case.
    pub fn run(&mut self) {
        let last = RefCell::new(None);
        wait_for_some(
            || format!("{}: {:?}", self.language, last.borrow()),
            || {
                let ended = self.command.output().unwrap();
                let has_succeeded = ended.status.success() && ended.stdout == self.output.as_bytes();
                *last.borrow_mut() = Some(ended);
                has_succeeded.then_some(())
            },
        );
    }
}

fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    let ended = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    ended.is_ok_and(|status| status.success())
}

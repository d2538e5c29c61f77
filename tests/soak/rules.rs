//! The rules for tubes, and their reload while clients work.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use beanstalkd_testkit::PATIENCE;
use beanstalkd_testkit::client::{Client, Failure, pairs_of};
use beanstalkd_testkit::server::{POLL_INTERVAL, Server};
use rustix::process::Signal;

/// A tube with limits.
pub const RULED: &str = "ruled";
/// A tube whose jobs are dead after [`MAX_ATTEMPTS`] failures, and go to [`DEAD`].
pub const RETRIED: &str = "retried";
pub const DEAD: &str = "dead";
/// The larger of the two limits in the versions of the file.
pub const MAX_JOBS: usize = 30;
pub const MAX_RESERVED: usize = 3;
pub const MAX_ATTEMPTS: u32 = 3;

/// The patterns of the tube with limits in the two versions of the file, and these limits.
const VERSIONS: [(&str, usize, usize); 2] =
    [("ruled", MAX_JOBS, MAX_RESERVED), ("rule?", MAX_JOBS / 2, MAX_RESERVED - 1)];

/// The file of rules.
pub struct Rules {
    directory: tempfile::TempDir,
    version: usize,
}

impl Rules {
    /// Writes the first version.
    pub fn new() -> Self {
        let rules = Self { directory: tempfile::tempdir().expect("there is room"), version: 0 };
        rules.write();
        rules
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("tubes.toml")
    }

    fn write(&self) {
        let (pattern, max_jobs, max_reserved) = VERSIONS[self.version];
        let text = format!(
            "[[tube]]\nname = \"{pattern}\"\nmax-jobs = {max_jobs}\nmax-reserved = {max_reserved}\n\
             [[tube]]\nname = \"{RETRIED}\"\nmax-attempts = {MAX_ATTEMPTS}\ndead-tube = \"{DEAD}\"\n"
        );
        let next: &Path = &self.directory.path().join("next");
        fs::write(next, text).and_then(|()| fs::rename(next, self.path())).expect("there is room");
    }

    /// Writes the other version, and waits until the server follows it.
    pub fn change(&mut self, server: &Server, control: &mut Client) -> Result<(), Failure> {
        self.version = 1 - self.version;
        self.write();
        server.signal(Signal::HUP)?;
        let start = Instant::now();
        control.ask(format!("use {RULED}\r\n").as_bytes())?;
        loop {
            let stats = pairs_of(&control.ask(format!("stats-tube {RULED}\r\n").as_bytes())?);
            if stats.iter().any(|(key, rule)| key == "rule" && rule == VERSIONS[self.version].0) {
                break;
            }
            if start.elapsed() > PATIENCE {
                return Err(control.failure("the server does not follow the new rules"));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        control.ask(b"use default\r\n").map(drop)
    }
}

//! A second process for tests: it starts the test binary again and runs a single test in it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{self, Command, ExitStatus, Stdio};

/// Comes before the child's messages in the output of the test harness.
const PREFIX: &str = "child says: ";
const ARGUMENT: &str = "BEANSTALKD_TEST_ARGUMENT";

/// A process that runs one of this binary's ignored tests; killed when dropped.
pub(crate) struct Child {
    process: process::Child,
    output: BufReader<process::ChildStdout>,
}

impl Child {
    /// Runs the ignored test `name` in a new process, which can read `argument`.
    pub(crate) fn start(name: &str, argument: &OsStr) -> Self {
        Self::spawn(Command::new(env::current_exe().unwrap()), name, argument)
    }

    /// Runs the ignored test `name` through `wrapper`, a program that runs the command line after its own arguments.
    pub(crate) fn start_in(mut wrapper: Command, name: &str, argument: &OsStr) -> Self {
        wrapper.arg(env::current_exe().unwrap());
        Self::spawn(wrapper, name, argument)
    }

    fn spawn(mut command: Command, name: &str, argument: &OsStr) -> Self {
        command
            .args(["--ignored", "--exact", "--nocapture", "--test-threads=1", name])
            .env(ARGUMENT, argument)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, output }
    }

    /// The child's next message.
    pub(crate) fn line(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the child ended");
            if let Some((_, said)) = line.trim_end().split_once(PREFIX) {
                return said.to_owned();
            }
        }
    }

    /// The child's process id.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Ends the child as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Lets the child continue after `wait_for_parent`, and waits until it ends.
    pub(crate) fn finish(&mut self) -> ExitStatus {
        self.process.wait().unwrap()
    }

    /// In the child: the argument that the parent passed.
    pub(crate) fn argument() -> OsString {
        env::var_os(ARGUMENT).expect("this test is run by others")
    }

    /// In the child: sends a message to the parent.
    pub(crate) fn say(text: &str) {
        println!("{PREFIX}{text}");
        std::io::stdout().flush().unwrap();
    }

    /// In the child: waits until the parent lets it continue.
    pub(crate) fn wait_for_parent() {
        let _ = std::io::stdin().read(&mut [0]).unwrap();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

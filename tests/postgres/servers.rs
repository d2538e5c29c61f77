//! The servers of these tests, and the commands of their clients.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use beanstalkd_testkit::client::{Client, inserted_id, put_command};
use beanstalkd_testkit::launched::Launched;
use beanstalkd_testkit::postgres::{Cluster, PASSWORD, TAKEOVER_AFTER, installation};
use beanstalkd_testkit::printable;
use beanstalkd_testkit::server::{Server, Transport};
use tempfile::TempDir;

/// The program under test.
pub fn ours() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_beanstalkd"))
}

/// The servers of a test. They read the password of their role from one file, in a directory that they share.
pub struct Servers {
    directory: TempDir,
}

impl Servers {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("password"), format!("{PASSWORD}\n")).unwrap();
        Self { directory }
    }

    pub fn password_file(&self) -> String {
        self.directory.path().join("password").to_str().unwrap().to_owned()
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The flags that every server of these tests has, and further ones.
    pub fn flags(&self, url: &str, flags: &[&str]) -> Vec<String> {
        let takeover_after_s = TAKEOVER_AFTER.as_secs().to_string();
        let password = self.password_file();
        let own = ["-b", url, "--takeover-after", &takeover_after_s, "--store-password-file", &password];
        own.iter().chain(flags).map(|&flag| flag.to_owned()).collect()
    }

    /// A server of the queue at `url`, which answers.
    pub fn serve(&self, url: &str, flags: &[&str]) -> Server {
        self.try_to_serve(url, flags).unwrap()
    }

    pub fn try_to_serve(&self, url: &str, flags: &[&str]) -> io::Result<Server> {
        Server::start(ours(), Transport::Unix, &self.flags(url, flags))
    }

    /// A server that has the tables made, puts a job and ends.
    pub fn use_once(&self, url: &str) {
        put(&mut self.serve(url, &["--allow-async"]).connect().unwrap(), "job");
    }

    /// A server whose log is in a directory.
    pub fn serve_directory(&self, directory: &str) -> Server {
        self.serve_directory_with(directory, &[])
    }

    /// A server whose log is in a directory, with further flags.
    pub fn serve_directory_with(&self, directory: &str, flags: &[&str]) -> Server {
        let flags: Vec<String> = ["-b", directory].iter().chain(flags).map(|&flag| flag.to_owned()).collect();
        Server::start(ours(), Transport::Unix, &flags).unwrap()
    }

    /// A server that need not answer yet.
    pub fn launch(&self, url: &str, flags: &[&str]) -> Launched {
        self.launch_with(url, flags, &[])
    }

    /// Like `launch`, with these environment variables.
    pub fn launch_with(&self, url: &str, flags: &[&str], variables: &[(&str, &str)]) -> Launched {
        let mut command = Command::new(ours());
        command.args(self.flags(url, flags)).args(["-l", "unix:socket"]).envs(variables.iter().copied());
        Launched::start(&mut command, tempfile::tempdir().unwrap())
    }

    /// The output of the program, and whether it succeeds.
    pub fn run(&self, arguments: &[&str]) -> (bool, String) {
        let output = Command::new(ours())
            .args(arguments)
            .args(["--store-password-file", &self.password_file()])
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).unwrap())
    }
}

/// A cluster, the URL of a queue in it, and the servers of a test; `None` after saying why the test is skipped.
pub fn mail_queue() -> Option<(Cluster, String, Servers)> {
    let cluster = Cluster::start(&installation()?).unwrap();
    let url = cluster.url("mail");
    Some((cluster, url, Servers::new()))
}

/// Puts a job, and returns its id.
pub fn put(client: &mut Client, body: &str) -> u64 {
    let reply = client.ask(&put_command(0, 0, 100, body.as_bytes())).unwrap();
    inserted_id(&reply).unwrap_or_else(|| panic!("put: {}", printable(&reply)))
}

/// Whether the job exists, with this body.
pub fn has(client: &mut Client, id: u64, body: &str) -> bool {
    let reply = client.ask(format!("peek {id}\r\n").as_bytes()).unwrap();
    reply.starts_with(b"FOUND") && String::from_utf8_lossy(&reply).contains(body)
}

/// A figure of `stats`.
pub fn figure(client: &mut Client, key: &str) -> String {
    client.pairs("stats").unwrap()[key].clone()
}

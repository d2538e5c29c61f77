//! Plays a script into two servers, one step at a time, and compares the replies to each client.
//!
//! Owns: a side (a server, its clients, and a connection of the runner) and the comparison. Some events cause no reply,
//! such as a client that begins to wait or a connection that ends. The runner waits for these in `stats`.

use crate::normalize::normalize;
use crate::script::{Action, CLIENTS, MAX_JOB_BYTES, Step, concatenated};
use beanstalkd_testkit::client::{Client, Failure};
use beanstalkd_testkit::copy_built_server;
use beanstalkd_testkit::launched::hand_over;
use beanstalkd_testkit::server::{POLL_INTERVAL, Server, Transport};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long an awaited event may take. This is short, because each attempt at a shorter script may wait this long.
const PATIENCE: Duration = Duration::from_secs(4);

/// The number of steps between hand-overs of the second server to another program.
const STEPS_BETWEEN_HAND_OVERS: usize = 8;

/// A disturbance of the second server alone, if it is ours. Its replies must be the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Nothing.
    Plain,
    /// Another program takes it over, again and again.
    HandOvers,
    /// Each of its clients has a session, without a grace.
    Sessions,
}

/// A difference between two servers.
pub struct Difference {
    /// The step at which they differ.
    pub step: usize,
    /// The replies of the first server.
    pub a: String,
    /// The replies of the second server.
    pub b: String,
}

/// The servers that are compared.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The program of the first server.
    pub a: PathBuf,
    /// The program of the second server.
    pub b: PathBuf,
    /// The disturbance of the second server.
    pub treatment: Treatment,
}

/// Plays `script` into a fresh server of each program.
pub fn play(script: &[Step], pair: &Pair) -> std::io::Result<Option<Difference>> {
    let Pair { a, b, treatment } = pair;
    let (mut a, mut b) = (Side::start(a, Treatment::Plain)?, Side::start(b, *treatment)?);
    for (number, step) in script.iter().enumerate() {
        if *treatment == Treatment::HandOvers && number % STEPS_BETWEEN_HAND_OVERS == 1 {
            hand_over(&b.server)?;
        }
        if let Action::Wait(time) = step.action {
            std::thread::sleep(time);
            continue;
        }
        let (replies_a, replies_b) = (a.perform(step), b.perform(step));
        if replies_a != replies_b || replies_a.is_err() {
            let shown = |replies: Result<Vec<String>, String>| match replies {
                Ok(replies) => replies.join("\n      "),
                Err(failure) => failure,
            };
            return Ok(Some(Difference { step: number, a: shown(replies_a), b: shown(replies_b) }));
        }
    }
    Ok(None)
}

struct Side {
    server: Server,
    treatment: Treatment,
    /// The directory of a program that is replaced.
    _programs: tempfile::TempDir,
    /// The runner's own connection, which asks only for `stats`.
    control: Client,
    clients: [Option<Client>; CLIENTS],
    /// The client that waits in a reserve, at most one, and the replies that it must get after that.
    waiting: Option<Waiting>,
}

struct Waiting {
    client: usize,
    replies_behind: usize,
}

impl Side {
    fn start(binary: &Path, treatment: Treatment) -> std::io::Result<Self> {
        let mut flags = vec!["-z".to_owned(), MAX_JOB_BYTES.to_string()];
        let programs = tempfile::tempdir()?;
        let mut program = binary.to_owned();
        if treatment == Treatment::HandOvers {
            // Only a server that reads files again obeys SIGHUP. This one has no rule.
            flags.extend(["--tubes", "/dev/null"].map(str::to_owned));
            program = programs.path().join("program");
            copy_built_server(&program)?;
        }
        let server = Server::start(&program, Transport::Unix, &flags)?;
        let control = server.connect()?;
        Ok(Self {
            server,
            treatment,
            _programs: programs,
            control,
            clients: [const { None }; CLIENTS],
            waiting: None,
        })
    }

    /// Performs a step, and returns the replies in normal form.
    fn perform(&mut self, step: &Step) -> Result<Vec<String>, String> {
        self.act(step).map_err(|failure| format!("failure: {failure}"))
    }

    fn act(&mut self, step: &Step) -> Result<Vec<String>, Failure> {
        let mut replies = Vec::new();
        match &step.action {
            Action::Send { commands, writes } => match &mut self.waiting {
                Some(waiting) if waiting.client == step.client => {
                    waiting.replies_behind += commands.iter().map(|command| command.replies).sum::<usize>();
                    self.send(step.client, &concatenated(commands), writes)?;
                }
                Some(_) => {
                    for command in commands {
                        self.send(step.client, &command.bytes, &[])?;
                        self.receive(step.client, command.replies, &mut replies)?;
                        self.receive_after_wait(&mut replies)?;
                    }
                }
                None => {
                    self.send(step.client, &concatenated(commands), writes)?;
                    let count = commands.iter().map(|command| command.replies).sum();
                    self.receive(step.client, count, &mut replies)?;
                }
            },
            Action::Reserve(line) if self.waiting.is_none() => {
                self.reserve(step.client, line, &mut replies)?
            }
            Action::Reserve(_) => {}
            // When a client leaves, C releases its jobs one by one and serves waiting clients after each, in the order
            // of the reserves. This server releases all of them, and then serves the most urgent first.
            Action::HalfClose | Action::Close
                if self.waiting.is_some() && self.asked("current-jobs-reserved")? > 1 => {}
            // If a waiting client closes, C executes its later commands over TCP, but not over a unix socket.
            Action::Close if self.waiting.as_ref().is_some_and(|waiting| waiting.replies_behind > 0) => {}
            Action::Wait(_) => unreachable!("time passes for both servers at once"),
            Action::HalfClose => self.half_close(step.client, &mut replies)?,
            Action::Close => {
                self.clients[step.client] = None;
                self.forget(step.client)?;
            }
        }
        self.receive_after_wait(&mut replies)?;
        Ok(replies)
    }

    fn client(&mut self, number: usize) -> Result<&mut Client, Failure> {
        if self.clients[number].is_none() {
            let mut client = self.server.connect()?;
            client.set_patience(PATIENCE);
            if self.treatment == Treatment::Sessions {
                let reply = client.ask(format!("session client-{number} 0\r\n").as_bytes())?;
                assert_eq!(reply, b"SESSION 0\r\n");
            }
            self.clients[number] = Some(client);
        }
        Ok(self.clients[number].as_mut().expect("connected above"))
    }

    fn send(&mut self, client: usize, bytes: &[u8], writes: &[usize]) -> Result<(), Failure> {
        let mut rest = bytes;
        for &length in writes {
            let (write, tail) = rest.split_at(length);
            self.client(client)?.send(write)?;
            // The server must have read this part before the rest comes.
            self.asked("current-waiting")?;
            rest = tail;
        }
        self.client(client)?.send(rest)
    }

    /// Reads `count` replies to a client.
    fn receive(&mut self, client: usize, count: usize, replies: &mut Vec<String>) -> Result<(), Failure> {
        for _ in 0..count {
            let reply = self.client(client)?.read_reply()?;
            replies.push(format!("client {client}: {}", normalize(&reply, count == 1)));
        }
        Ok(())
    }

    /// Sends a reserve and finds out whether it waits.
    fn reserve(&mut self, client: usize, line: &str, replies: &mut Vec<String>) -> Result<(), Failure> {
        self.client(client)?.send(format!("{line}\r\n").as_bytes())?;
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if self.asked("current-waiting")? == 1 {
                self.waiting = Some(Waiting { client, replies_behind: 0 });
                replies.push(format!("client {client} waits"));
                return Ok(());
            }
            if self.client(client)?.has_reply_within(POLL_INTERVAL)? {
                return self.receive(client, 1, replies);
            }
        }
        Err(self.client(client)?.failure("neither waits nor is answered"))
    }

    /// Reads the replies to a client whose wait is over.
    fn receive_after_wait(&mut self, replies: &mut Vec<String>) -> Result<(), Failure> {
        if self.waiting.is_some() && self.asked("current-waiting")? == 0 {
            let Waiting { client, replies_behind } = self.waiting.take().expect("checked above");
            self.receive(client, 1 + replies_behind, replies)?;
        }
        Ok(())
    }

    fn half_close(&mut self, client: usize, replies: &mut Vec<String>) -> Result<(), Failure> {
        let connection = self.client(client)?;
        connection.half_close()?;
        let behind = match &self.waiting {
            Some(waiting) if waiting.client == client => 1 + waiting.replies_behind,
            _ => 0,
        };
        self.receive(client, behind, replies)?;
        self.client(client)?.expect_closed()?;
        self.clients[client] = None;
        self.forget(client)
    }

    /// Waits until the server has forgotten a connection that is closed.
    fn forget(&mut self, client: usize) -> Result<(), Failure> {
        if self.waiting.as_ref().is_some_and(|waiting| waiting.client == client) {
            self.waiting = None;
        }
        let open = 1 + self.clients.iter().flatten().count() as u64;
        let start = Instant::now();
        while self.asked("current-connections")? != open {
            if start.elapsed() > PATIENCE {
                return Err(Failure::new(format!("there are never {open} connections")));
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }

    /// A number of the server's stats.
    fn asked(&mut self, key: &str) -> Result<u64, Failure> {
        let reply = self.control.ask(b"stats\r\n")?;
        let text = String::from_utf8_lossy(&reply);
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
        value.and_then(|value| value.parse().ok()).ok_or_else(|| Failure::new(format!("stats without {key}")))
    }
}

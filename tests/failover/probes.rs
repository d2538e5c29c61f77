//! Clients that send commands without a pause and without a record in the log: only the lease of the server decides
//! whether it replies.
//!
//! Each client keeps its connection until the server closes it, and sends further commands while no reply comes.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use beanstalkd_testkit::PATIENCE;
use beanstalkd_testkit::client::{Client, id_of};
use beanstalkd_testkit::history::Tick;
use beanstalkd_testkit::random::Random;
use beanstalkd_testkit::server::Address;

use crate::clients::Shared;
use crate::fence::Process;
use crate::world::{CLIENT_PATIENCE, World};

/// The pause between two commands of a probe, and before another try to connect.
const PACE: Duration = Duration::from_millis(10);
/// The maximum number of commands that wait for their reply.
const MAX_PENDING: usize = 50;
/// The time-out of the probe that waits in a reserve.
const WAIT: Duration = Duration::from_secs(1);
/// The put that makes the job of the probes, and later changes nothing.
const PUT: &str = "put 9 0 3600 5 idp:probe\r\nprobe\r\n";

/// Probes at work.
pub struct Probes {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Probes {
    /// Starts the probes of both servers.
    pub fn start(shared: &Arc<Shared>, world: &World, random: &mut Random) -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let mut threads = Vec::new();
        for (server, admin) in world.admins().into_iter().enumerate() {
            let [tcp, unix, tls] = world.listeners(server);
            let kinds = [(&tcp, Kind::Asks), (&unix, Kind::Asks), (&tls, Kind::Asks)];
            for (address, kind) in kinds.into_iter().chain([(&tcp, Kind::Waits), (&tcp, Kind::Api(admin))]) {
                let address = address.clone();
                let (shared, is_over) = (Arc::clone(shared), Arc::clone(&is_over));
                let probe = Probe { address, shared, is_over, random: Random::new(random.next()) };
                threads.push(thread::spawn(move || probe.run(kind)));
            }
        }
        Self { is_over, threads }
    }

    /// Ends the probes.
    pub fn stop(self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("a probe does not panic");
        }
    }
}

/// The task of a probe.
#[derive(Clone, Copy)]
enum Kind {
    /// Sends commands, and does not wait for their replies.
    Asks,
    /// Waits for a job that never comes.
    Waits,
    /// Sends requests to the API at this address.
    Api(SocketAddr),
}

/// The connection is lost.
struct Lost;

struct Probe {
    address: Address,
    shared: Arc<Shared>,
    is_over: Arc<AtomicBool>,
    random: Random,
}

impl Probe {
    fn run(mut self, kind: Kind) {
        while !self.is_over() {
            // The API of a server that is not the owner does not answer either.
            if let Some((mut client, process)) = self.shared.meet(&self.address) {
                let _ = match kind {
                    Kind::Asks => self.ask(&mut client, &process),
                    Kind::Waits => self.wait(&mut client, &process),
                    Kind::Api(admin) => self.ask_api(admin),
                };
            }
            thread::sleep(PACE);
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn ask(&mut self, client: &mut Client, process: &Process) -> Result<(), Lost> {
        let Some(id) = self.prepare(client, process)? else { return Ok(()) };
        let mut pending: VecDeque<(Tick, String, &str)> = VecDeque::new();
        while !self.is_over() {
            if pending.len() < MAX_PENDING {
                let (command, expected) = self.command(id);
                let asked_at = self.shared.tick().1;
                client.send(command.as_bytes()).map_err(|_| Lost)?;
                pending.push_back((asked_at, command, expected));
            }
            while client.has_reply_within(PACE).map_err(|_| Lost)? {
                let Some((asked_at, command, expected)) = pending.pop_front() else {
                    self.shared.observed().history.report(format!("{} has answered unasked", process.id));
                    return Err(Lost);
                };
                let reply = client.read_reply().map_err(|_| Lost)?;
                self.note(process, asked_at, command.trim_end(), expected, &reply);
            }
        }
        Ok(())
    }

    /// Uses the tubes of the probes. Returns the id of their job, if the server has room for it.
    fn prepare(&self, client: &mut Client, process: &Process) -> Result<Option<u64>, Lost> {
        for command in ["use probe\r\n", "watch nothing\r\n", "ignore default\r\n", PUT] {
            let asked_at = self.shared.tick().1;
            let reply = client.ask(command.as_bytes()).map_err(|_| Lost)?;
            self.shared.answered(process, asked_at, command);
            if command == PUT {
                return Ok(id_of(&reply, "INSERTED"));
            }
        }
        Ok(None)
    }

    /// A command that changes nothing, and how its reply begins.
    fn command(&mut self, id: u64) -> (String, &'static str) {
        match self.random.below(12) {
            0..3 => (PUT.to_owned(), "INSERTED"),
            3 => (format!("peek {id}\r\n"), "FOUND"),
            4 => (format!("stats-job {id}\r\n"), "OK"),
            5 => ("reserve-with-timeout 0\r\n".to_owned(), "TIMED_OUT"),
            6 => ("list-tubes\r\n".to_owned(), "OK"),
            7 => ("stats-tube probe\r\n".to_owned(), "OK"),
            8 => ("kick 0\r\n".to_owned(), "KICKED 0"),
            9 => (format!("delete {}\r\n", u64::MAX), "NOT_FOUND"),
            10 => ("peek-ready\r\n".to_owned(), "FOUND"),
            _ => ("watch nothing\r\n".to_owned(), "WATCHING 1"),
        }
    }

    /// A reply TIMED_OUT means that there was no job until the end of the time-out.
    fn wait(&mut self, client: &mut Client, process: &Process) -> Result<(), Lost> {
        client.ask(b"watch nothing\r\nignore default\r\n").map_err(|_| Lost)?;
        client.read_reply().map_err(|_| Lost)?;
        let command = format!("reserve-with-timeout {}\r\n", WAIT.as_secs());
        // The server's clock and ours may count the milliseconds in different ways.
        let wait_ns = (WAIT - PACE).as_nanos() as Tick;
        while !self.is_over() {
            let asked_at = self.shared.tick().1;
            client.send(command.as_bytes()).map_err(|_| Lost)?;
            while !client.has_reply_within(PACE).map_err(|_| Lost)? {
                if self.is_over() {
                    return Ok(());
                }
            }
            let reply = client.read_reply().map_err(|_| Lost)?;
            self.note(process, asked_at + wait_ns, command.trim_end(), "TIMED_OUT", &reply);
        }
        Ok(())
    }

    fn note(&self, process: &Process, asked_at: Tick, command: &str, expected: &str, reply: &[u8]) {
        let reply = String::from_utf8_lossy(reply);
        let line = reply.lines().next().unwrap_or_default();
        self.shared.answered(process, asked_at, &format!("{line} to {command:?}"));
        // Refusals do not depend on the queue.
        if !line.starts_with(expected) && !["INTERNAL_ERROR", "OUT_OF_MEMORY"].contains(&line) {
            let problem = format!("{}: {command:?}: expected {expected}, got {line}", process.id);
            self.shared.observed().history.report(problem);
        }
    }

    /// Sends requests again and again through one connection, which leads to one process.
    fn ask_api(&mut self, admin: SocketAddr) -> Result<(), Lost> {
        let stream = TcpStream::connect_timeout(&admin, CLIENT_PATIENCE).map_err(|_| Lost)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(|_| Lost)?;
        let mut reader = BufReader::new(stream);
        let asked_at = self.shared.tick().1;
        let server = self.get(&mut reader, "server")?;
        // A server that is not the owner has no id here.
        let Some(id) = value(&server, "id") else { return Ok(()) };
        let epoch = value(&server, "store-epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
        let process = Process { id, epoch };
        self.shared.answered(&process, asked_at, "GET server");
        while !self.is_over() {
            let what = self.random.pick(&["server", "tubes/probe", "tubes/probe/jobs?state=ready"]);
            let asked_at = self.shared.tick().1;
            let answer = self.get(&mut reader, what)?;
            if answer.starts_with("HTTP/1.1 200") {
                self.shared.answered(&process, asked_at, &format!("GET {what}"));
            }
            thread::sleep(PACE);
        }
        Ok(())
    }

    /// The response to a GET; waits for it while the connection lasts.
    fn get(&self, reader: &mut BufReader<TcpStream>, what: &str) -> Result<String, Lost> {
        let request = format!("GET /api/v1/{what} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        reader.get_mut().write_all(request.as_bytes()).map_err(|_| Lost)?;
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            head += &read_line(reader)?;
        }
        let mut body = Vec::new();
        if let Some((_, rest)) = head.split_once("Content-Length: ") {
            let length = rest.lines().next().unwrap_or_default();
            read_bytes(reader, length.parse().map_err(|_| Lost)?, &mut body)?;
        } else {
            // In chunks, of which the last one is empty.
            let mut length = 1;
            while length > 0 {
                length = usize::from_str_radix(read_line(reader)?.trim_end(), 16).map_err(|_| Lost)?;
                read_bytes(reader, length, &mut body)?;
                read_line(reader)?;
            }
        }
        Ok(head + &String::from_utf8_lossy(&body))
    }
}

fn read_line(reader: &mut BufReader<TcpStream>) -> Result<String, Lost> {
    let mut line = String::new();
    let count = reader.read_line(&mut line).map_err(|_| Lost)?;
    if count == 0 { Err(Lost) } else { Ok(line) }
}

fn read_bytes(reader: &mut BufReader<TcpStream>, count: usize, to: &mut Vec<u8>) -> Result<(), Lost> {
    let start = to.len();
    to.resize(start + count, 0);
    reader.read_exact(&mut to[start..]).map_err(|_| Lost)
}

/// The value of a key in flat JSON.
fn value(json: &str, key: &str) -> Option<String> {
    let (_, rest) = json.split_once(&format!("\"{key}\":"))?;
    let end = rest.find([',', '}'])?;
    Some(rest[..end].trim().trim_matches('"').to_owned())
}

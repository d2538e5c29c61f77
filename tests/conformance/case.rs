//! A case: its name, its requirements to a server, and its conversation with the server.
//!
//! Owns: the notation of scripts, and the bench on which a case runs (a separate server, and clients by
//! name). Never decides whether a case applies to a server: `judge` does.
//!
//! A script has one step in each line. `a`, `b`, … name clients, which connect when they are first named:
//!
//! ```text
//! a: put 0 0 60 1 | x -> INSERTED 1      send a line and a body, require this reply
//! a: reserve ->                          send a line, require no reply yet
//! a: -> RESERVED 1 1 | x                 require these bytes next
//! a: -> <closed>                         require that the server closes the connection
//! a: stats-job 1 => state: ready, pri: 0 require these pairs in the reply (quotes are dropped)
//! a: stats-job 1 => time-left: 40..99    the same, for a number within a range
//! until a: stats-job 1 => state: ready   the same, sent again until it holds
//! waiting 2                              wait until two clients wait in a reserve
//! a: <half-close>                        close the sending half of the connection
//! a: <close>                             close the connection
//! ```
//!
//! ` | ` is a CRLF, and each side ends with one unless it ends with `\c`. Escapes: `\r \n \t \0 \s` (a
//! space), `\p` (a vertical bar), `\\` and `\xHH`. At the end of a script each client closes its sending half, and
//! the server must close each connection without sending more, except TIMED_OUT to a client that still waits.

use crate::mark::Mark;
use crate::running::Origin;
use beanstalkd_testkit::client::{Client, Failure, pairs_of};
use beanstalkd_testkit::server::{Address, POLL_INTERVAL, Server};
use beanstalkd_testkit::{PATIENCE, printable};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long a reply of a running server may take. It is short, because cases use such a server one after the other.
const PATIENCE_WITH_RUNNING: Duration = Duration::from_secs(10);

/// How long the processor time of an idle server is measured.
const IDLE_TIME: Duration = Duration::from_secs(2);

/// The message if a case that needs the process runs with a server that was running before.
const NOT_OWN: &str = "cases that need the process do not apply to a running server";

/// The features that a server must have for a case to apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Needs {
    /// The protocol alone.
    Protocol,
    /// A change that version 1.13 of C made.
    Since113,
    /// A binlog (`-b`).
    Persistence,
    /// SIGUSR1 puts the server into drain mode.
    Drain,
    /// An addition of our server to the protocol or to C's flags.
    Extension,
    /// The management commands (`flush-tube`, `list-jobs`, …), which other servers may offer as well.
    Manage,
    /// The commands for workers. A server that offers them can be judged by their cases.
    Work,
    /// The tags of `put`. A server that offers them can be judged by their cases.
    Tags,
}

impl Needs {
    /// The features that `OFFERS` can name, with their words there, and the reason why a case is skipped without them.
    pub const OFFERED: [(&str, Self, &str); 3] = [
        ("manage", Self::Manage, "needs the management commands (set OFFERS=manage if the server has them)"),
        ("work", Self::Work, "needs the commands for workers (set OFFERS=work if the server has them)"),
        ("tags", Self::Tags, "needs the tags of put (set OFFERS=tags if the server has them)"),
    ];
}

type Run = Box<dyn Fn(&mut Bench) -> Result<(), Failure> + Send>;

/// A case of the suite.
pub struct Case {
    /// The name, unique within the topic.
    pub name: String,
    /// The features that the server must have.
    pub needs: Needs,
    /// The reason for the required behaviour; the topic sets it if the case does not.
    pub mark: Option<Mark>,
    /// Whether the case applies to a server that was running before the suite.
    pub anywhere: bool,
    /// The listed deviation that the case shows, if any.
    pub deviation: Option<&'static str>,
    /// Whether the case measures seconds of the server's clock, so that it fails if the machine stalls for a second.
    /// Then it runs again.
    pub timed: bool,
    /// The server's flags, apart from its address.
    pub flags: Vec<String>,
    /// The conversation.
    pub run: Run,
    /// The conversation in the notation, unless it is code.
    pub script: Option<String>,
}

/// A case whose conversation is a script.
pub fn script(name: impl Into<String>, text: impl Into<String>) -> Case {
    let text = text.into();
    let script = Some(text.clone());
    Case { anywhere: true, script, ..code(name, move |bench| bench.play(&text)) }
}

/// A case whose conversation needs a loop or a calculation.
pub fn code(
    name: impl Into<String>,
    run: impl Fn(&mut Bench) -> Result<(), Failure> + Send + 'static,
) -> Case {
    Case {
        name: name.into(),
        needs: Needs::Protocol,
        mark: None,
        anywhere: false,
        deviation: None,
        timed: false,
        flags: Vec::new(),
        run: Box::new(run),
        script: None,
    }
}

impl Case {
    /// Declares the required features.
    pub fn needs(mut self, needs: Needs) -> Self {
        self.needs = needs;
        self
    }

    /// Sets the listed deviation that the case shows.
    pub fn deviation(mut self, name: &'static str) -> Self {
        self.deviation = Some(name);
        self
    }

    /// Starts the server with these flags.
    pub fn flags(mut self, flags: &[&str]) -> Self {
        self.flags = flags.iter().map(|&flag| flag.to_owned()).collect();
        self.anywhere = false;
        self
    }

    /// Sets the reason for the required behaviour.
    pub fn mark(mut self, mark: Mark) -> Self {
        self.mark = Some(mark);
        self
    }

    /// Sets the reason: C does so, and the protocol document does not mention it.
    pub fn habit(self) -> Self {
        self.mark(Mark::Habit)
    }

    /// Sets the reason: our server does so, and C does not.
    pub fn ours(self) -> Self {
        self.mark(Mark::Ours)
    }

    /// Requires a server that has just started.
    pub fn fresh(mut self) -> Self {
        self.anywhere = false;
        self
    }
}

/// Sets `mark` for those cases that have none.
pub fn with_mark(mark: Mark, cases: Vec<Case>) -> Vec<Case> {
    cases.into_iter().map(|case| Case { mark: case.mark.or(Some(mark)), ..case }).collect()
}

/// A server, and the clients of a case.
pub struct Bench {
    host: Host,
    clients: BTreeMap<String, Client>,
    /// Clients that have sent a line whose reply the script has not required yet.
    owing: BTreeSet<String>,
    patience: Option<Duration>,
}

/// The owner of the server.
enum Host {
    /// The case has started it.
    Own(Box<Server>),
    /// It was running before the suite, and other cases use it too.
    Running { address: Address, origin: Origin, first: Cell<Option<Client>> },
}

impl Bench {
    /// A bench with a separate server. `patience` is how long a reply may take, if not the usual time.
    pub fn new(server: Server, patience: Option<Duration>) -> Self {
        Self::around(Host::Own(Box::new(server)), patience)
    }

    /// A bench with a server that was running before.
    pub fn at(address: Address) -> Result<Self, Failure> {
        let mut first = address.connect()?;
        let origin = Origin::prepare(&mut first)?;
        let host = Host::Running { address, origin, first: Cell::new(Some(first)) };
        Ok(Self::around(host, Some(PATIENCE_WITH_RUNNING)))
    }

    fn around(host: Host, patience: Option<Duration>) -> Self {
        Self { host, clients: BTreeMap::new(), owing: BTreeSet::new(), patience }
    }

    /// The case's own server.
    ///
    /// # Panics
    ///
    /// If the server was running before. Cases that need the process do not apply to such a server.
    pub fn server(&self) -> &Server {
        match &self.host {
            Host::Own(server) => server,
            Host::Running { .. } => unreachable!("{NOT_OWN}"),
        }
    }

    /// The case's own server, to restart it.
    pub fn server_mut(&mut self) -> &mut Server {
        match &mut self.host {
            Host::Own(server) => server,
            Host::Running { .. } => unreachable!("{NOT_OWN}"),
        }
    }

    /// The text that the server has written to its standard error; empty if the suite has not started it.
    pub fn stderr(&self) -> String {
        match &self.host {
            Host::Own(server) => server.stderr(),
            Host::Running { .. } => String::new(),
        }
    }

    /// A new connection, without a name for scripts.
    pub fn connect(&self) -> Result<Client, Failure> {
        let mut client = match &self.host {
            Host::Own(server) => server.connect()?,
            Host::Running { address, first, .. } => first.take().map_or_else(|| address.connect(), Ok)?,
        };
        if let Some(patience) = self.patience {
            client.set_patience(patience);
        }
        Ok(client)
    }

    /// The client of that name, which connects now if it has not yet.
    pub fn client(&mut self, name: &str) -> Result<&mut Client, Failure> {
        if !self.clients.contains_key(name) {
            let client = self.connect()?;
            self.clients.insert(name.to_owned(), client);
        }
        Ok(self.clients.get_mut(name).expect("inserted above"))
    }

    /// Runs a script, and then requires that the server sends nothing more.
    pub fn play(&mut self, text: &str) -> Result<(), Failure> {
        self.steps(text)?;
        self.finish()
    }

    /// Runs a script, and leaves its clients connected.
    pub fn steps(&mut self, text: &str) -> Result<(), Failure> {
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            self.step(line).map_err(|failure| Failure { step: Some(line.to_owned()), ..failure })?;
        }
        Ok(())
    }

    /// Closes each client's sending half, and requires that the server sends nothing more to it.
    pub fn finish(&mut self) -> Result<(), Failure> {
        for (name, mut client) in std::mem::take(&mut self.clients) {
            // An error means that the server has closed the connection already.
            let _ = client.half_close();
            let rest = client.read_to_end()?;
            let is_owed = self.owing.contains(&name);
            if !(rest.is_empty() || is_owed && rest == b"TIMED_OUT\r\n") {
                return Err(client.wrong_reply("nothing more", &printable(&rest)));
            }
        }
        self.owing.clear();
        Ok(())
    }

    /// Waits until the server has read all that was sent before. It serves connections in the order in which they
    /// became readable, so a reply on a new connection shows this.
    pub fn settle(&mut self) -> Result<(), Failure> {
        self.client("control")?.exchange(b"list-tube-used\r\n", b"USING default\r\n")
    }

    /// Drops the clients of a server that has exited.
    pub fn forget_clients(&mut self) {
        self.clients.clear();
        self.owing.clear();
    }

    /// Requires that the server uses hardly any processor time while it gets no commands.
    pub fn require_idle(&mut self) -> Result<(), Failure> {
        let before = self.processor_time()?;
        std::thread::sleep(IDLE_TIME);
        let spent = self.processor_time()? - before;
        // A spinning server uses a whole processor, or its share of one while this suite loads the machine.
        if spent < IDLE_TIME.as_secs_f64() / 20.0 {
            return Ok(());
        }
        Err(Failure::new(format!(
            "expected an idle server, but it used {spent} s of processor time in {IDLE_TIME:?}"
        )))
    }

    fn processor_time(&mut self) -> Result<f64, Failure> {
        let control = self.client("control")?;
        let pairs = control.pairs("stats")?;
        ["rusage-utime", "rusage-stime"].into_iter().try_fold(0.0, |sum, key| {
            let time = pairs.get(key).and_then(|value| value.parse::<f64>().ok());
            Ok(sum + time.ok_or_else(|| control.failure(&format!("{key} is no number among the stats")))?)
        })
    }

    fn step(&mut self, line: &str) -> Result<(), Failure> {
        if let Some(count) = line.strip_prefix("waiting ") {
            return self.pairs("control", "stats", &format!("current-waiting: {count}"), true);
        }
        let (again, line) = match line.strip_prefix("until ") {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let (name, rest) = line
            .split_once(": ")
            .ok_or_else(|| Failure::new("the step does not begin with a client's name"))?;
        if rest == "<half-close>" {
            return self.client(name)?.half_close();
        }
        if rest == "<close>" {
            self.clients.remove(name);
            return Ok(());
        }
        if let Some((question, pairs)) = rest.split_once(" => ") {
            return self.pairs(name, question, pairs, again);
        }
        let (said, expected) = match (rest.strip_prefix("-> "), rest.strip_suffix(" ->")) {
            (Some(expected), _) => (None, Some(expected)),
            (None, Some(said)) => (Some(said), None),
            (None, None) => {
                let (said, expected) =
                    rest.split_once(" -> ").ok_or_else(|| Failure::new("the step has no ` -> `"))?;
                (Some(said), Some(expected))
            }
        };
        if expected.is_none() {
            self.owing.insert(name.to_owned());
        } else {
            self.owing.remove(name);
        }
        if let Some(said) = said {
            let said = bytes_of(&self.to_server(said));
            self.client(name)?.send(&said)?;
        }
        match expected {
            Some("<closed>") => self.client(name)?.expect_closed(),
            Some(expected) => self.require(name, expected),
            None => Ok(()),
        }
    }

    /// The text with the script's ids replaced by those of the server.
    fn to_server(&self, text: &str) -> String {
        match &self.host {
            Host::Own(_) => text.to_owned(),
            Host::Running { origin, .. } => origin.to_server(text),
        }
    }

    /// Requires these replies as the next ones.
    fn require(&mut self, name: &str, expected: &str) -> Result<(), Failure> {
        self.client(name)?;
        let client = self.clients.get_mut(name).expect("connected above");
        let Host::Running { origin, .. } = &mut self.host else { return client.expect(&bytes_of(expected)) };
        for piece in expected.split(" | ") {
            match piece.strip_prefix("INSERTED ") {
                Some(id) => origin.bind(client, id)?,
                None => client.expect(&bytes_of(&origin.to_server(piece)))?,
            }
        }
        Ok(())
    }

    /// Requires that the reply to `question` has these pairs. If `again`, repeats the question until it has.
    fn pairs(&mut self, name: &str, question: &str, pairs: &str, again: bool) -> Result<(), Failure> {
        let said = bytes_of(&self.to_server(question));
        let start = Instant::now();
        loop {
            let reply = self.client(name)?.ask(&said)?;
            let found = match &self.host {
                Host::Own(_) => pairs_of(&reply),
                Host::Running { origin, .. } => origin.since(question, pairs_of(&reply)),
            };
            let Some((pair, actual)) = lacking(&found, pairs) else { return Ok(()) };
            if !again || start.elapsed() > self.patience.unwrap_or(PATIENCE) {
                let actual = actual.unwrap_or_else(|| printable(&reply));
                return Err(self.client(name)?.wrong_reply(pair, &actual));
            }
            self.client(name)?.forget_last_exchange();
            std::thread::sleep(POLL_INTERVAL * 5);
        }
    }
}

/// The first of `pairs` that `found` does not have, with the value that the key has instead.
fn lacking<'a>(found: &[(String, String)], pairs: &'a str) -> Option<(&'a str, Option<String>)> {
    pairs.split(", ").find_map(|pair| {
        let (key, value) = pair.split_once(": ").expect("a pair is `key: value`");
        let holds = |found: &str| match value.split_once("..") {
            None => found == value,
            Some((low, high)) => {
                let number = |text: &str| text.parse::<u64>().ok();
                number(low) <= number(found) && number(found) <= number(high)
            }
        };
        let there = found.iter().find(|(k, _)| k == key);
        if there.is_some_and(|(_, v)| holds(v)) {
            return None;
        }
        Some((pair, there.map(|(k, v)| format!("{k}: {v}"))))
    })
}

/// The bytes of one side of a step.
pub fn bytes_of(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    let mut ends_with_crlf = true;
    while let Some((&first, tail)) = rest.split_first() {
        if let Some(tail) = rest.strip_prefix(b" | ") {
            bytes.extend_from_slice(b"\r\n");
            rest = tail;
            continue;
        }
        rest = tail;
        if first != b'\\' {
            bytes.push(first);
            continue;
        }
        let (&escape, tail) = rest.split_first().expect("a character follows the backslash");
        rest = tail;
        match escape {
            b'r' => bytes.push(b'\r'),
            b'n' => bytes.push(b'\n'),
            b't' => bytes.push(b'\t'),
            b'0' => bytes.push(0),
            b's' => bytes.push(b' '),
            b'p' => bytes.push(b'|'),
            b'\\' => bytes.push(b'\\'),
            b'c' => ends_with_crlf = false,
            b'x' => {
                let digits = std::str::from_utf8(&rest[..2]).expect("two hexadecimal digits");
                bytes.push(u8::from_str_radix(digits, 16).expect("two hexadecimal digits"));
                rest = &rest[2..];
            }
            other => panic!("unknown escape \\{}", char::from(other)),
        }
    }
    if ends_with_crlf {
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

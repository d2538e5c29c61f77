//! A case: its name, what it needs of a server, and the conversation that it holds.
//!
//! Owns: the notation of scripts and the bench on which a case runs (a server of its own, clients by
//! name). Never decides whether a server is judged by a case: `judge` does.
//!
//! A script has one step a line. `a`, `b`, … name clients, which connect when first named:
//!
//! ```text
//! a: put 0 0 60 1 | x -> INSERTED 1      send a line and a body, require this reply
//! a: reserve ->                          send, require nothing yet
//! a: -> RESERVED 1 1 | x                 require these bytes next
//! a: -> <closed>                         require that the server closes
//! a: stats-job 1 => state: ready, pri: 0 require these pairs among a reply's (quotes are dropped)
//! a: stats-job 1 => time-left: 40..99    the same, for a number that may lie between two
//! until a: stats-job 1 => state: ready   the same, asked again until it holds
//! waiting 2                              until two clients wait in a reserve
//! a: <half-close>                        say that nothing more is sent
//! a: <close>                             leave
//! ```
//!
//! ` | ` is a CRLF, and each side ends with one unless it ends with `\c`. Escapes: `\r \n \t \0 \s` (a
//! space), `\p` (a vertical bar), `\\` and `\xHH`. When a script is over, each client half-closes and the
//! server must close with nothing more said, except TIMED_OUT to a client that was left waiting.

use crate::support::client::{Client, Failure};
use crate::support::server::{POLL_INTERVAL, Server};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long a step with `until` or `waiting` may take.
const UNTIL: Duration = Duration::from_secs(60);

/// How long a server is watched that should have nothing to do.
const IDLE_SPELL: Duration = Duration::from_secs(2);

/// What a case needs of a server to be judged by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Needs {
    /// The protocol alone.
    Protocol,
    /// What version 1.13 changed.
    Since113,
    /// A binlog (`-b`).
    Persistence,
    /// SIGUSR1 puts the server into drain mode.
    Drain,
    /// What our server adds to the protocol and to C's flags.
    Extension,
}

type Run = Box<dyn Fn(&mut Bench) -> Result<(), Failure> + Send>;

/// One trial of the suite.
pub struct Case {
    /// Unique within its topic.
    pub name: String,
    /// What it needs.
    pub needs: Needs,
    /// The listed deviation that it shows, if any.
    pub deviation: Option<&'static str>,
    /// It waits for seconds of the server's clock, and so cannot hold on a machine that stalls for one.
    pub timed: bool,
    /// The server's flags, beside its address.
    pub flags: Vec<String>,
    /// The conversation.
    pub run: Run,
}

/// A case whose conversation is a script.
pub fn script(name: impl Into<String>, text: impl Into<String>) -> Case {
    let text = text.into();
    code(name, move |bench| bench.play(&text))
}

/// A case whose conversation needs a loop or a calculation.
pub fn code(
    name: impl Into<String>,
    run: impl Fn(&mut Bench) -> Result<(), Failure> + Send + 'static,
) -> Case {
    Case {
        name: name.into(),
        needs: Needs::Protocol,
        deviation: None,
        timed: false,
        flags: Vec::new(),
        run: Box::new(run),
    }
}

impl Case {
    /// Declares what the case needs.
    pub fn needs(mut self, needs: Needs) -> Self {
        self.needs = needs;
        self
    }

    /// Names the listed deviation that the case shows.
    pub fn deviation(mut self, name: &'static str) -> Self {
        self.deviation = Some(name);
        self
    }

    /// Starts the server with these flags.
    pub fn flags(mut self, flags: &[&str]) -> Self {
        self.flags = flags.iter().map(|&flag| flag.to_owned()).collect();
        self
    }
}

/// A server and the clients that a case talks to it with.
pub struct Bench {
    /// The server, this case's own.
    pub server: Server,
    clients: BTreeMap<String, Client>,
    /// Clients that were sent a line whose reply has not been required yet.
    owing: BTreeMap<String, bool>,
    patience: Option<Duration>,
}

impl Bench {
    /// A bench around a running server; `patience` shortens how long a reply may take.
    pub fn new(server: Server, patience: Option<Duration>) -> Self {
        Self { server, clients: BTreeMap::new(), owing: BTreeMap::new(), patience }
    }

    /// A new connection that no script knows.
    pub fn connect(&self) -> Result<Client, Failure> {
        let mut client = self.server.connect()?;
        if let Some(patience) = self.patience {
            client.set_patience(patience);
        }
        Ok(client)
    }

    /// The client of that name, connected now if it was not yet.
    pub fn client(&mut self, name: &str) -> Result<&mut Client, Failure> {
        if !self.clients.contains_key(name) {
            let client = self.connect()?;
            self.clients.insert(name.to_owned(), client);
        }
        Ok(self.clients.get_mut(name).expect("inserted above"))
    }

    /// Plays a script to its end, where nothing more may have been said.
    pub fn play(&mut self, text: &str) -> Result<(), Failure> {
        self.steps(text)?;
        self.finish()
    }

    /// Plays a script and leaves its clients as they are.
    pub fn steps(&mut self, text: &str) -> Result<(), Failure> {
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            self.step(line).map_err(|failure| Failure(format!("at `{line}`: {failure}")))?;
        }
        Ok(())
    }

    /// Ends each client, and requires that the server had nothing more to say to it.
    pub fn finish(&mut self) -> Result<(), Failure> {
        for (name, mut client) in std::mem::take(&mut self.clients) {
            // A server that closed first has nothing more to say either.
            let _ = client.half_close();
            let rest = client.read_to_end()?;
            let owed = self.owing.get(&name).copied().unwrap_or(false);
            if !(rest.is_empty() || owed && rest == b"TIMED_OUT\r\n") {
                return Err(client.failure(&format!("client {name} was told more than was asked")));
            }
        }
        self.owing.clear();
        Ok(())
    }

    /// Requires that the server has seen all that was sent before: it serves connections in the order
    /// in which they became readable.
    pub fn settle(&mut self) -> Result<(), Failure> {
        self.client("control")?.exchange(b"list-tube-used\r\n", b"USING default\r\n")
    }

    /// Drops the clients of a server that ended.
    pub fn forget_clients(&mut self) {
        self.clients.clear();
        self.owing.clear();
    }

    /// Requires that the server hardly runs while nothing is asked of it.
    pub fn require_idle(&mut self) -> Result<(), Failure> {
        let before = self.processor_time()?;
        std::thread::sleep(IDLE_SPELL);
        let spent = self.processor_time()? - before;
        // A spinning server spends all of the spell where it has a processor of its own, and a fair share of
        // it on a machine that is loaded with this suite.
        if spent < IDLE_SPELL.as_secs_f64() / 20.0 {
            return Ok(());
        }
        Err(Failure(format!("{spent} s of processor time in an idle spell of {IDLE_SPELL:?}")))
    }

    fn processor_time(&mut self) -> Result<f64, Failure> {
        let pairs = dictionary(&self.client("control")?.ask(b"stats\r\n")?);
        let times = pairs.iter().filter(|(key, _)| key.starts_with("rusage-"));
        Ok(times.filter_map(|(_, value)| value.parse::<f64>().ok()).sum())
    }

    fn step(&mut self, line: &str) -> Result<(), Failure> {
        if let Some(count) = line.strip_prefix("waiting ") {
            return self.until("control", b"stats\r\n", &format!("current-waiting: {count}"));
        }
        let (again, line) = match line.strip_prefix("until ") {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let (name, rest) = line.split_once(": ").ok_or_else(|| Failure("no client named".to_owned()))?;
        if rest == "<half-close>" {
            return self.client(name)?.half_close();
        }
        if rest == "<close>" {
            self.clients.remove(name);
            return Ok(());
        }
        if let Some((question, pairs)) = rest.split_once(" => ") {
            let question = bytes_of(question);
            return if again {
                self.until(name, &question, pairs)
            } else {
                self.pairs(name, &question, pairs)
            };
        }
        let (said, expected) = match (rest.strip_prefix("-> "), rest.strip_suffix(" ->")) {
            (Some(expected), _) => (None, Some(expected)),
            (None, Some(said)) => (Some(said), None),
            (None, None) => {
                let (said, expected) =
                    rest.split_once(" -> ").ok_or_else(|| Failure("neither sent nor expected".to_owned()))?;
                (Some(said), Some(expected))
            }
        };
        self.owing.insert(name.to_owned(), expected.is_none());
        let client = self.client(name)?;
        if let Some(said) = said {
            client.send(&bytes_of(said))?;
        }
        match expected {
            Some("<closed>") => client.expect_closed(),
            Some(expected) => client.expect(&bytes_of(expected)),
            None => Ok(()),
        }
    }

    fn pairs(&mut self, name: &str, question: &[u8], pairs: &str) -> Result<(), Failure> {
        let client = self.client(name)?;
        let reply = client.ask(question)?;
        lacking(&reply, pairs).map_or(Ok(()), |pair| Err(client.failure(&format!("lacks `{pair}`"))))
    }

    fn until(&mut self, name: &str, question: &[u8], pairs: &str) -> Result<(), Failure> {
        let start = Instant::now();
        loop {
            let client = self.client(name)?;
            let reply = client.ask(question)?;
            let Some(pair) = lacking(&reply, pairs) else { return Ok(()) };
            if start.elapsed() > self.patience.unwrap_or(UNTIL) {
                return Err(self.client(name)?.failure(&format!("lacks `{pair}` to the end")));
            }
            std::thread::sleep(POLL_INTERVAL * 5);
        }
    }
}

/// The first of `pairs` that is not in the reply's dictionary.
fn lacking<'a>(reply: &[u8], pairs: &'a str) -> Option<&'a str> {
    let lines = dictionary(reply);
    pairs.split(", ").find(|pair| {
        let (key, value) = pair.split_once(": ").expect("a pair is `key: value`");
        let holds = |found: &str| match value.split_once("..") {
            None => found == value,
            Some((low, high)) => {
                let number = |text: &str| text.parse::<u64>().ok();
                number(low) <= number(found) && number(found) <= number(high)
            }
        };
        !lines.iter().any(|(k, v)| k == key && holds(v))
    })
}

/// The pairs of a reply to a stats command, in their order, without quotes.
pub fn dictionary(reply: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(reply);
    let pair = |line: &str| {
        let (key, value) = line.split_once(": ")?;
        Some((key.to_owned(), value.trim_matches('"').to_owned()))
    };
    text.lines().filter_map(pair).collect()
}

/// A side of a step as bytes.
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
        let (&escape, tail) = rest.split_first().expect("a backslash has something to escape");
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
            other => panic!("no escape \\{}", char::from(other)),
        }
    }
    if ends_with_crlf {
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

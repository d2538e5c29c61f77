//! Random scripts: the steps of several clients, made from a seed.
//!
//! Owns: the generator. Besides single commands it makes groups of commands that belong together, for situations that
//! single commands seldom reach: the order of kicks, ties, the safety margin, pauses, the order of watched tubes. One
//! script in [`LATE_EVERY`] lets a second and a half pass. Steps for which two correct servers may differ are not
//! generated: other times of seconds, two waiting clients (C serves them in an arbitrary order), lines that are too
//! long and bare CRs (C gets out of step), kick bounds beyond 32 bits (C wraps), and malformed time-outs (1.12 takes
//! them for 0). Differences that depend on the state of a script while it is played are left out by `lockstep`.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use beanstalkd_testkit::random::Random;

/// The limit of a job's size for both servers, in bytes: small, so that a job that is too big is short.
pub const MAX_JOB_BYTES: usize = 300;

/// The greatest number of clients in a script.
pub const CLIENTS: usize = 4;

const STEPS: RangeInclusive<u64> = 10..=80;

/// The number of lines in a pipeline.
const PIPELINED: RangeInclusive<u64> = 2..=6;

/// One script in this many lets time pass.
pub const LATE_EVERY: u64 = 100;

/// The time that passes: half a second away from all deadlines in such a script, so that a loaded machine makes no
/// difference.
const LATE: Duration = Duration::from_millis(1500);

/// The time for the steps of a script, besides the time that passes in it. The shortest TTR is a second, and the time
/// that passes in a script is half a second away from the deadlines.
const TIME_FOR_STEPS: Duration = Duration::from_millis(400);

/// The times to run in such a script, in seconds.
const SHORT_TTRS: [&str; 3] = ["2", "3", "4"];

const TUBES: [&str; 5] = ["default", "t", "u", "v", "w"];

/// One step of a script.
#[derive(Clone)]
pub struct Step {
    /// The client that acts.
    pub client: usize,
    /// Its action.
    pub action: Action,
}

/// An action of a client.
#[derive(Clone)]
pub enum Action {
    /// Sends commands, in writes of these lengths and the rest. While another client waits, sends them one by one,
    /// because the commands of a client that is served would race with the rest.
    Send { commands: Vec<Command>, writes: Vec<usize> },
    /// Sends a reserve that may wait, unless a client is waiting already.
    Reserve(&'static str),
    /// Closes the sending half, reads the remaining replies, and connects again for its next action.
    HalfClose,
    /// Closes the connection, and connects again for its next action.
    Close,
    /// Lets time pass, for both servers at the same time.
    Wait(Duration),
}

impl Step {
    /// This step without its command number `number`, in one write; `None` if no command would be left.
    pub fn without_command(&self, number: usize) -> Option<Self> {
        let Action::Send { commands, .. } = &self.action else { return None };
        if number >= commands.len() || commands.len() < 2 {
            return None;
        }
        let mut commands = commands.clone();
        commands.remove(number);
        Some(Self { client: self.client, action: Action::Send { commands, writes: Vec::new() } })
    }
}

/// A command with its body, possibly malformed, and its number of replies.
#[derive(Clone)]
pub struct Command {
    /// The bytes that are sent.
    pub bytes: Vec<u8>,
    /// The number of replies to them.
    pub replies: usize,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {}: ", self.client)?;
        match &self.action {
            Action::Send { commands, writes } => {
                let bytes = concatenated(commands);
                let mut rest = bytes.as_slice();
                for &length in writes {
                    let (write, tail) = rest.split_at(length);
                    write!(f, "\"{}\" then ", write.escape_ascii())?;
                    rest = tail;
                }
                write!(f, "\"{}\"", rest.escape_ascii())
            }
            Action::Reserve(line) => write!(f, "\"{line}\\r\\n\", which may wait"),
            Action::HalfClose => f.write_str("half-close"),
            Action::Close => f.write_str("close"),
            Action::Wait(time) => write!(f, "{time:?} pass"),
        }
    }
}

impl Command {
    /// A command with one reply.
    fn of(line: &str) -> Self {
        Self { bytes: format!("{line}\r\n").into_bytes(), replies: 1 }
    }
}

/// The bytes of all commands.
pub fn concatenated(commands: &[Command]) -> Vec<u8> {
    commands.iter().flat_map(|command| &command.bytes).copied().collect()
}

/// How long a script may take before its replies depend on the speed of the machine.
pub fn time_limit(script: &[Step]) -> Duration {
    let waits = script.iter().filter_map(|step| match step.action {
        Action::Wait(time) => Some(time),
        Action::Send { .. } | Action::Reserve(_) | Action::HalfClose | Action::Close => None,
    });
    TIME_FOR_STEPS + waits.sum::<Duration>()
}

/// The script of a seed.
pub fn generate(seed: u64) -> Vec<Step> {
    let mut generator = Generator { random: Random::new(seed), puts: 0, delays: 0 };
    if seed % LATE_EVERY == LATE_EVERY / 2 {
        return generator.late();
    }
    let clients = generator.random.within(1..=CLIENTS as u64) as usize;
    let steps = generator.random.within(STEPS);
    (0..steps).map(|_| Step { client: generator.random.index(clients), action: generator.action() }).collect()
}

struct Generator {
    random: Random,
    /// The number of ids used so far, so that most random ids are those of jobs.
    puts: usize,
    /// The number of delays so far.
    delays: u32,
}

impl Generator {
    fn action(&mut self) -> Action {
        match self.random.below(43) {
            40..=42 => self.group(),
            0 => Action::HalfClose,
            1 => Action::Close,
            2..=5 => Action::Reserve(self.random.pick(&["reserve", "reserve-with-timeout 1000000"])),
            _ => self.commands(),
        }
    }

    fn commands(&mut self) -> Action {
        let lines = if self.random.once_in(4) { self.random.within(PIPELINED) } else { 1 };
        let commands: Vec<Command> = (0..lines).map(|_| self.command()).collect();
        let mut writes = Vec::new();
        let mut left = concatenated(&commands).len();
        while left > 1 && self.random.once_in(3) {
            let length = 1 + self.random.index(left - 1);
            writes.push(length);
            left -= length;
        }
        Action::Send { commands, writes }
    }

    /// A group of commands that belong together, with its own jobs.
    fn group(&mut self) -> Action {
        let mut lines = Vec::new();
        match self.random.below(6) {
            0 => {
                let ids = self.three_jobs(&mut lines, [0; 3]);
                lines.extend(ids.iter().map(|id| format!("reserve-job {id}")));
                let first = self.random.index(3);
                for id in [ids[first], ids[(first + 2) % 3], ids[(first + 1) % 3]] {
                    lines.push(format!("bury {id} {}", self.priority()));
                }
                self.kick_one_by_one(&mut lines, ids, "peek-buried");
            }
            1 => {
                let first = self.random.index(3);
                let delays = [first, (first + 2) % 3, (first + 1) % 3].map(|at| 1_000_000 + 1000 * at as u32);
                let ids = self.three_jobs(&mut lines, delays);
                self.kick_one_by_one(&mut lines, ids, "peek-delayed");
            }
            2 => {
                self.three_jobs(&mut lines, [0; 3]);
                lines.extend(
                    ["peek-ready", "reserve-with-timeout 0", "reserve-with-timeout 0"].map(str::to_owned),
                );
            }
            3 => {
                let id = self.job(&mut lines, "0", 0, "2");
                for line in [&format!("reserve-job {id}"), "reserve-with-timeout 0", &format!("touch {id}")] {
                    lines.push(line.to_owned());
                }
                lines.push("reserve-with-timeout 0".to_owned());
            }
            4 => {
                let tube = self.random.pick(&TUBES);
                for length in ["1000000", "0"] {
                    let pause = format!("pause-tube {tube} {length}");
                    lines.extend([pause, "reserve-with-timeout 0".to_owned(), format!("stats-tube {tube}")]);
                }
            }
            _ => {
                lines.extend(TUBES.map(|tube| format!("watch {tube}")));
                lines.push(format!("ignore {}", self.random.pick(&TUBES)));
                lines.extend(["list-tubes-watched", "list-tubes"].map(str::to_owned));
            }
        }
        Action::Send { commands: lines.iter().map(|line| Command::of(line)).collect(), writes: Vec::new() }
    }

    /// Adds three puts of one priority with these delays, and returns their ids.
    fn three_jobs(&mut self, lines: &mut Vec<String>, delays: [u32; 3]) -> [usize; 3] {
        let priority = self.priority();
        delays.map(|delay| self.job(lines, priority, delay, "1000"))
    }

    /// Adds a put, and returns the id that it will get.
    fn job(&mut self, lines: &mut Vec<String>, priority: &str, delay: u32, ttr: &str) -> usize {
        lines.push(format!("put {priority} {delay} {ttr} 1\r\nx"));
        self.puts += 1;
        self.puts
    }

    fn kick_one_by_one(&mut self, lines: &mut Vec<String>, ids: [usize; 3], peek: &str) {
        for _ in 0..2 {
            lines.extend([peek.to_owned(), "kick 1".to_owned()]);
            lines.extend(ids.iter().map(|id| format!("stats-job {id}")));
        }
    }

    /// A script about time: a client reserves jobs, lets some of their time pass, and touches them or gives them up.
    fn late(&mut self) -> Vec<Step> {
        // The commands are sent one by one, so that times are compared.
        let step = |line: &str| {
            let action = Action::Send { commands: vec![Command::of(line)], writes: Vec::new() };
            Step { client: 0, action }
        };
        let mut lines = Vec::new();
        let jobs = self.random.within(2..=4);
        for number in 0..jobs {
            // At least two end soon, so that one is left in the safety margin when the other is touched.
            let ttr = if number < 2 { SHORT_TTRS[0] } else { self.random.pick(&SHORT_TTRS) };
            let priority = self.priority();
            self.job(&mut lines, priority, 0, ttr);
        }
        let mut script: Vec<Step> = lines.iter().map(|line| step(line)).collect();
        script.extend((0..jobs).map(|_| step("reserve-with-timeout 0")));
        script.push(Step { client: 0, action: Action::Wait(LATE) });
        for _ in 0..10 {
            let id = 1 + self.random.below(jobs);
            script.push(step(&match self.random.below(10) {
                0..=4 => format!("touch {id}"),
                5 => format!("delete {id}"),
                6 => format!("bury {id} 0"),
                7 => format!("release {id} 0 1000000"),
                _ => format!("reserve-job {id}"),
            }));
            script.extend([step(&format!("stats-job {id}")), step("reserve-with-timeout 0")]);
        }
        script
    }

    fn command(&mut self) -> Command {
        if self.random.below(100) < 25 {
            return self.put();
        }
        let mut line = self.line().into_bytes();
        if self.random.once_in(12) {
            self.corrupt(&mut line);
        }
        line.extend_from_slice(b"\r\n");
        Command { bytes: line, replies: 1 }
    }

    fn line(&mut self) -> String {
        let id = self.id();
        let tube = self.random.pick(&TUBES);
        match self.random.below(64) {
            0..=9 => "reserve-with-timeout 0".to_owned(),
            10..=13 => format!("reserve-job {id}"),
            14..=18 => format!("delete {id}"),
            19..=23 => format!("release {id} {} {}", self.priority(), self.delay()),
            24..=27 => format!("bury {id} {}", self.priority()),
            28 => format!("touch {id}"),
            29..=31 => {
                format!("kick {}", self.random.pick(&["0", "1", "2", "10", "1x", "-1", "+1", "4294967295"]))
            }
            32..=33 => format!("kick-job {id}"),
            34..=36 => format!("use {tube}"),
            37..=39 => format!("watch {tube}"),
            40..=42 => format!("ignore {tube}"),
            43..=44 => format!("pause-tube {tube} {}", self.random.pick(&["0", "1000000", "4294967295"])),
            45..=46 => format!("peek {id}"),
            47 => "peek-ready".to_owned(),
            48 => "peek-delayed".to_owned(),
            49 => "peek-buried".to_owned(),
            50..=53 => format!("stats-job {id}"),
            54..=56 => format!("stats-tube {tube}"),
            57..=58 => "stats".to_owned(),
            59 => "list-tubes".to_owned(),
            60 => "list-tube-used".to_owned(),
            61 => "list-tubes-watched".to_owned(),
            _ => self.random.pick(MALFORMED).to_owned(),
        }
    }

    fn put(&mut self) -> Command {
        let size = match self.random.below(12) {
            0 => 0,
            1 => MAX_JOB_BYTES,
            2 => MAX_JOB_BYTES + 1 + self.random.below(500) as usize,
            _ => self.random.below(40) as usize,
        };
        let ttr = self.random.pick(&["0", "1", "2", "1000", "1000000", "4294967295"]);
        let header = format!("put {} {} {ttr} {size}", self.priority(), self.delay());
        let letters: Vec<u8> = (0..size).map(|_| self.random.pick(b"abc\0\xff ")).collect();
        let mut bytes = header.into_bytes();
        match self.random.below(20) {
            // The line is refused, so that the body is an unknown command.
            0 if size <= MAX_JOB_BYTES => {
                bytes.extend_from_slice(b"x\r\nbody\r\n");
                return Command { bytes, replies: 2 };
            }
            // A body without its CRLF.
            1 if size <= MAX_JOB_BYTES => {
                bytes.extend_from_slice(b"\r\n");
                bytes.extend_from_slice(&letters);
                bytes.extend_from_slice(b"zz");
            }
            _ => {
                bytes.extend_from_slice(b"\r\n");
                bytes.extend_from_slice(&letters);
                bytes.extend_from_slice(b"\r\n");
            }
        }
        if size <= MAX_JOB_BYTES {
            self.puts += 1;
        }
        Command { bytes, replies: 1 }
    }

    fn id(&mut self) -> u64 {
        self.random.below(self.puts as u64 + 2)
    }

    fn priority(&mut self) -> &'static str {
        self.random.pick(&["0", "1", "5", "1023", "1024", "2147483648", "4294967295"])
    }

    /// No delay, or one that never ends in a test and is longer than the one before: the order of two delays must not
    /// depend on the time that a server takes between commands.
    fn delay(&mut self) -> u32 {
        self.delays += 1;
        match self.random.pick(&[0, 0, 0, 1_000_000, 4_294_000_000]) {
            0 => 0,
            long => long + self.delays,
        }
    }

    /// Changes, inserts or removes a byte of a line. It inserts no digits, so that no short times come about. Commands
    /// that wait or have a body are not changed, nor those that C counts although it refuses them (a pause of an
    /// invalid name).
    fn corrupt(&mut self, line: &mut Vec<u8>) {
        let excluded: [&[u8]; 3] = [b"reserve", b"put", b"pause-tube"];
        if line.is_empty() || excluded.iter().any(|start| line.starts_with(start)) {
            return;
        }
        let byte = self.random.pick(b" \t\n\0x-+/;.$_()\x80\xffA");
        // What C does not know: a fraction of a delay, and a time for this reservation.
        let extension: &[u8] = if byte == b'.' { b"release" } else { b"touch" };
        if matches!(byte, b'.' | b' ') && line.starts_with(extension) {
            return;
        }
        let at = self.random.index(line.len());
        match self.random.below(3) {
            0 => line[at] = byte,
            1 => line.insert(at, byte),
            _ => drop(line.remove(at)),
        }
    }
}

/// Lines that are refused, or look malformed.
const MALFORMED: &[&str] = &[
    "",
    " ",
    "nonsense",
    "put",
    "put 1",
    "put a b c d",
    "put 0 0 0 -1",
    "put -1 0 0 0",
    "put 0 0 0 4294967296",
    "delete",
    "delete ",
    "delete x",
    "delete 1 ",
    "delete  1",
    "delete 18446744073709551616",
    "release 1",
    "release 1 2",
    "bury 1",
    "bury x 0",
    "touch",
    "touch -1",
    "kick",
    "kick ",
    "kick x",
    "kick 18446744073709551616",
    "kick-job ",
    "use",
    "use ",
    "use -a",
    "use a b",
    "use  a",
    "watch ",
    "watch a,b",
    "ignore ",
    "ignore *",
    "stats ",
    "stats-foo",
    "stats-tube",
    "stats-tube ",
    "stats-job x",
    "list-tubes x",
    "list-tube-usedx",
    "list-tubes-watch",
    "pause-tube",
    "pause-tube t",
    "pause-tube t x",
    "pause-tubet 0",
    "pause-tube  t  0",
    "peek",
    "peek ",
    "peek-ready ",
    "reserveX",
    "reserve-foo",
    "reserve-job",
    "reserve-job x",
    "STATS",
];

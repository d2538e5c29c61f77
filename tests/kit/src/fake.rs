//! The model of the server behind a socket, in this process, for tests of clients.
//!
//! Owns: a unix socket, a thread for each connection, and a log of the received command lines.
//! Never: waits in a reserve, or lets time pass: delays and deadlines do not end, and all jobs are 100 s old.

use beanstalkd_model::{ANY_NUMBER, Accepted, Answer, Server as Model};
use beanstalkd_protocol::{Command, ParseError, PutHeader, parse, parse_tags};
use beanstalkd_queue::PoisonLimits;
use beanstalkd_types::clock::{NS_PER_S, Timestamp};
use beanstalkd_types::tags::PutTags;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The time of all commands.
const NOW: Timestamp = Timestamp(1_700_000_000 * NS_PER_S);

/// How old jobs are, in seconds.
const AGE_S: u64 = 100;

/// The largest job, in bytes.
const MAX_JOB_BYTES: u32 = 1 << 20;

/// The differences from a fake that offers every extension and closes no connection.
#[derive(Default, Clone)]
pub struct FakeOptions {
    /// Extensions that it does not offer and answers with UNKNOWN_COMMAND.
    pub without: Vec<&'static str>,
    /// Text that the fake puts at the beginning of every text in its data, as a hostile server could.
    pub hostile: &'static str,
    /// Closes the connection before it executes the N-th command line; 0: never.
    pub close_before: usize,
    /// Closes the connection after it has executed the N-th command line, without a reply; 0: never.
    pub close_after: usize,
    /// Sends an answer to another command before the one to the N-th command line; 0: never.
    pub wrong_at: usize,
    /// Refuses the N-th command line, which is not a put, with OUT_OF_MEMORY; 0: never.
    pub refuse_at: usize,
}

/// What a fake does once, at one command line.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// [`FakeOptions::close_before`].
    CloseBefore,
    /// [`FakeOptions::close_after`].
    CloseAfter,
    /// [`FakeOptions::refuse_at`].
    Refuse,
}

impl Fault {
    /// A lost connection.
    pub const CLOSINGS: [Self; 2] = [Self::CloseBefore, Self::CloseAfter];

    fn at(self, number: usize) -> FakeOptions {
        let options = FakeOptions::default();
        match self {
            Self::CloseBefore => FakeOptions { close_before: number, ..options },
            Self::CloseAfter => FakeOptions { close_after: number, ..options },
            Self::Refuse => FakeOptions { refuse_at: number, ..options },
        }
    }
}

/// Calls `test` with a new fake that has the fault at the N-th command line of the test, for N = 1, 2, 3 and so on.
/// Ends when the test has sent fewer lines than N before its call of [`Fake::disarm`], or in all.
///
/// # Panics
///
/// If the test has sent fewer lines than `at_least` then: it would not have tried what it is for.
#[track_caller]
pub fn at_each_command(fault: Fault, at_least: usize, test: impl FnMut(&Fake, usize)) {
    at_each_command_after(|_| (), fault, at_least, test);
}

/// As [`at_each_command`]. First, `set_up` gets the address of each fake. Its lines do not count, and are not in the
/// log.
///
/// # Panics
///
/// As [`at_each_command`].
#[track_caller]
pub fn at_each_command_after(
    set_up: impl Fn(&str),
    fault: Fault,
    at_least: usize,
    mut test: impl FnMut(&Fake, usize),
) {
    let without_fault = Fake::start();
    set_up(&without_fault.address());
    let before = without_fault.count();
    for at in 1.. {
        let fake = Fake::start_with(fault.at(before + at));
        set_up(&fake.address());
        assert_eq!(fake.count(), before, "the set-up sends the same number of lines each time");
        fake.take_log();
        test(&fake, at);
        if !fake.disarm() {
            let sent = at - 1;
            assert!(
                sent >= at_least,
                "{fault:?}: the test has sent {sent} lines, expected {at_least} at least"
            );
            return;
        }
    }
}

struct Shared {
    model: Mutex<Model>,
    log: Mutex<Vec<String>>,
    /// The number of command lines so far.
    count: AtomicUsize,
    /// Whether there was the command line of `options` at which it closes a connection or refuses.
    is_reached: AtomicBool,
    options: FakeOptions,
}

/// A fake server. Its threads end with the process.
pub struct Fake {
    shared: Arc<Shared>,
    directory: tempfile::TempDir,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fake {
    /// Starts a fake that offers every extension.
    pub fn start() -> Self {
        Self::start_with(FakeOptions::default())
    }

    /// Starts a fake with these differences.
    pub fn start_with(options: FakeOptions) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(directory.path().join("socket")).expect("a socket");
        let shared = Arc::new(Shared {
            model: Mutex::new(Model::new(PoisonLimits::default(), MAX_JOB_BYTES, NOW)),
            log: Mutex::default(),
            count: AtomicUsize::new(0),
            is_reached: AtomicBool::new(false),
            options,
        });
        let accepted = Arc::clone(&shared);
        std::thread::spawn(move || {
            for (number, stream) in (0..).zip(listener.incoming().flatten()) {
                let shared = Arc::clone(&accepted);
                std::thread::spawn(move || {
                    // A client that sees the end of its connection finds its jobs ready.
                    let _open = stream.try_clone();
                    lock(&shared.model).model.connect(number);
                    let _ = Session { number, shared: &shared }.serve(stream);
                    lock(&shared.model).model.disconnect(number, usize::MAX, NOW);
                });
            }
        });
        Self { shared, directory }
    }

    /// The address of its socket, in the form of `--server`.
    pub fn address(&self) -> String {
        format!("unix:{}", self.directory.path().join("socket").display())
    }

    /// Stops closing connections and refusing commands. Returns whether the command line at which it does so has come.
    pub fn disarm(&self) -> bool {
        self.shared.count.store(usize::MAX / 2, Ordering::SeqCst);
        self.shared.is_reached.load(Ordering::SeqCst)
    }

    /// The number of command lines so far.
    pub fn count(&self) -> usize {
        self.shared.count.load(Ordering::SeqCst)
    }

    /// The command lines since the last call.
    pub fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.shared.log))
    }
}

struct Session<'a> {
    number: u32,
    shared: &'a Shared,
}

impl Session<'_> {
    fn serve(&self, stream: UnixStream) -> std::io::Result<()> {
        let mut input = BufReader::new(stream.try_clone()?);
        let mut output = stream;
        let mut line = Vec::new();
        let options = &self.shared.options;
        loop {
            line.clear();
            if input.read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            let line = line.trim_ascii_end();
            let command = parse(line);
            if command == Ok(Command::Quit) {
                return Ok(());
            }
            lock(&self.shared.log).push(String::from_utf8_lossy(line).into_owned());
            let count = self.shared.count.fetch_add(1, Ordering::SeqCst) + 1;
            if [options.close_before, options.close_after, options.refuse_at].contains(&count) {
                self.shared.is_reached.store(true, Ordering::SeqCst);
            }
            if count == options.close_before {
                return Ok(());
            }
            let reply = match command {
                Ok(Command::Put(header)) => self.put(header, b"", &mut input)?,
                Ok(Command::PutWith(header, tags)) => self.put(header, tags, &mut input)?,
                Ok(_) if count == options.refuse_at => b"OUT_OF_MEMORY\r\n".to_vec(),
                Ok(command) => self.answer(command),
                Err(ParseError::BadFormat) => b"BAD_FORMAT\r\n".to_vec(),
                Err(ParseError::UnknownCommand) => b"UNKNOWN_COMMAND\r\n".to_vec(),
            };
            if count == options.close_after {
                return Ok(());
            }
            if count == options.wrong_at {
                output.write_all(b"KICKED\r\n")?;
            }
            output.write_all(&reply)?;
        }
    }

    fn put(&self, header: PutHeader, tags: &[u8], input: &mut impl Read) -> std::io::Result<Vec<u8>> {
        let mut body = vec![0; header.size as usize + 2];
        input.read_exact(&mut body)?;
        body.truncate(body.len() - 2);
        // The tags outlive the process: the model keeps them as they are.
        let tags: &'static [u8] = tags.to_vec().leak();
        let tags = if tags.is_empty() { Ok(PutTags::default()) } else { parse_tags(tags) };
        let mut model = lock(&self.shared.model);
        let Ok(tags) = tags else { return Ok(b"BAD_FORMAT\r\n".to_vec()) };
        let Answer::Body(id) = model.command(self.number, Command::Put(header), NOW) else {
            unreachable!("a put")
        };
        let PutHeader { priority, delay_s, ttr_s, .. } = header;
        let accepted = Accepted { id, tags, priority: priority.0, delay_s, ttr_s };
        let answer = model.body(self.number, accepted, body.into(), true, NOW);
        for job in &mut model.model.jobs {
            job.created_at = NOW.minus_ns(AGE_S * NS_PER_S);
        }
        Ok(self.reply(answer))
    }

    fn answer(&self, command: Command<'_>) -> Vec<u8> {
        if self.shared.options.without.contains(&command.verb().as_str()) {
            return b"UNKNOWN_COMMAND\r\n".to_vec();
        }
        // Nothing waits, because no time passes.
        let command = match command {
            Command::Reserve | Command::ReserveWithTimeout { .. } => {
                Command::ReserveWithTimeout { timeout_s: 0.into() }
            }
            command => command,
        };
        let answer = lock(&self.shared.model).command(self.number, command, NOW);
        self.reply(answer)
    }

    /// The bytes of the answer, with `hostile` in every quoted text of its data, and without the extensions that are
    /// not offered.
    fn reply(&self, answer: Answer) -> Vec<u8> {
        let FakeOptions { without, hostile, .. } = &self.shared.options;
        let Answer::Reply(reply) = answer else { return Vec::new() };
        let Some(rest) = reply.strip_prefix(b"OK ") else { return reply };
        let text = String::from_utf8_lossy(rest).replace(char::from(ANY_NUMBER), "0");
        let Some((_, data)) = text.split_once("\r\n") else { return reply };
        let mut data = data.trim_end_matches("\r\n").to_owned();
        if let Some((figures, words)) = data.split_once("extensions: \"") {
            let is_offered = |word: &&str| !without.contains(word);
            let words: Vec<&str> = words.trim_end_matches("\"\n").split(' ').filter(is_offered).collect();
            data = format!("{figures}extensions: \"{}\"\n", words.join(" "));
        }
        let data = data.replace(": \"", &format!(": \"{hostile}"));
        format!("OK {}\r\n{data}\r\n", data.len()).into_bytes()
    }
}

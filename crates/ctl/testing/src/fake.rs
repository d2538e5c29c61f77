//! A server in this process with every extension, for tests of clients.
//!
//! Owns: a unix socket, a thread for each connection, and a log of the received command lines.
//! Never: waits in a reserve, or lets time pass: delays and deadlines do not end.

use crate::fake_queue::{FakeJob, FakeQueue};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const EXTENSIONS: &str = "flush-tube flush-buried list-jobs peek-reserved move reprioritize drain undrain \
    idp con grp aft exp stats-group reserve-batch delete-batch touch-all";

/// The differences from a fake that offers every extension and closes no connection.
#[derive(Default, Clone)]
pub struct FakeOptions {
    /// Extensions that it does not offer and answers with UNKNOWN_COMMAND.
    pub without: Vec<&'static str>,
    /// Is put at the beginning of every text in its data, as a hostile server could.
    pub hostile: &'static str,
    /// Closes the connection before it executes the N-th command line; 0: never.
    pub close_before: usize,
    /// Closes the connection after it has executed the N-th command line, without a reply; 0: never.
    pub close_after: usize,
}

impl FakeOptions {
    /// The reply with `hostile` in every quoted text of its data.
    fn spoiled(&self, reply: Vec<u8>) -> Vec<u8> {
        let data = reply.strip_prefix(b"OK ").and_then(|rest| String::from_utf8(rest.to_vec()).ok());
        match data.as_deref().and_then(|data| data.split_once("\r\n")) {
            Some((_, data)) if !self.hostile.is_empty() => {
                let data = data.trim_end_matches("\r\n").replace(": \"", &format!(": \"{}", self.hostile));
                ok(&data)
            }
            _ => reply,
        }
    }
}

struct Shared {
    queue: Mutex<FakeQueue>,
    log: Mutex<Vec<String>>,
    /// The number of command lines so far.
    count: AtomicUsize,
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
            queue: Mutex::default(),
            log: Mutex::default(),
            count: AtomicUsize::new(0),
            options,
        });
        let accepted = Arc::clone(&shared);
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().flatten().enumerate() {
                let shared = Arc::clone(&accepted);
                std::thread::spawn(move || {
                    // A client that sees the end of its connection finds its jobs ready.
                    let _open = stream.try_clone();
                    let _ = Session {
                        number,
                        used: "default".to_owned(),
                        watched: vec!["default".to_owned()],
                        shared: &shared,
                    }
                    .serve(stream);
                    lock(&shared.queue).release_all(number);
                });
            }
        });
        Self { shared, directory }
    }

    /// The address of its socket, in the form of `--server`.
    pub fn address(&self) -> String {
        format!("unix:{}", self.directory.path().join("socket").display())
    }

    /// Stops closing connections. Returns whether it has closed one.
    pub fn disarm(&self) -> bool {
        let options = &self.shared.options;
        let at = options.close_before.max(options.close_after);
        at > 0 && self.shared.count.swap(usize::MAX / 2, Ordering::SeqCst) >= at
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
    number: usize,
    used: String,
    watched: Vec<String>,
    shared: &'a Shared,
}

impl Session<'_> {
    fn serve(mut self, stream: UnixStream) -> std::io::Result<()> {
        let mut input = BufReader::new(stream.try_clone()?);
        let mut output = stream;
        let mut line = String::new();
        loop {
            line.clear();
            if input.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            if words == ["quit"] {
                return Ok(());
            }
            lock(&self.shared.log).push(words.join(" "));
            let count = self.shared.count.fetch_add(1, Ordering::SeqCst) + 1;
            if count == self.shared.options.close_before {
                return Ok(());
            }
            let reply = match words.as_slice() {
                ["put", pri, delay, ttr, size, tags @ ..] => {
                    let mut body = vec![0; size.parse::<usize>().unwrap_or(0) + 2];
                    input.read_exact(&mut body)?;
                    body.truncate(body.len() - 2);
                    self.put([pri, delay, ttr].map(|word| word.parse().unwrap_or(0)), body, tags)
                }
                words => self.answer(words),
            };
            if count == self.shared.options.close_after {
                return Ok(());
            }
            output.write_all(&self.shared.options.spoiled(reply))?;
        }
    }

    fn put(&self, [pri, delay, ttr]: [u32; 3], body: Vec<u8>, tags: &[&str]) -> Vec<u8> {
        let mut queue = lock(&self.shared.queue);
        queue.last_id += 1;
        if queue.draining {
            return b"DRAINING\r\n".to_vec();
        }
        let tags: Vec<String> = tags.iter().map(|tag| (*tag).to_owned()).collect();
        let key = tags.iter().find(|tag| tag.starts_with("idp:"));
        let same = |job: &&FakeJob| job.tube == self.used && key.is_some_and(|key| job.tags.contains(key));
        if let Some(job) = queue.jobs.iter().find(same) {
            return format!("INSERTED {} {}\r\n", job.id, job.state.to_uppercase()).into_bytes();
        }
        let held = tags.iter().any(|tag| tag.starts_with("aft:"));
        let state = if delay > 0 || held { "delayed" } else { "ready" };
        let (id, tube) = (queue.last_id, self.used.clone());
        let counts = (0, 0, 0, 0);
        let (reserves, releases, buries, kicks) = counts;
        queue.jobs.push(FakeJob {
            id,
            tube,
            state,
            pri,
            delay,
            ttr,
            body,
            tags,
            holder: None,
            reserves,
            releases,
            buries,
            kicks,
        });
        format!("INSERTED {id}\r\n").into_bytes()
    }

    fn answer(&mut self, words: &[&str]) -> Vec<u8> {
        let word = words.first().copied().unwrap_or_default();
        if self.shared.options.without.contains(&word) {
            return b"UNKNOWN_COMMAND\r\n".to_vec();
        }
        let shared = self.shared;
        let mut queue = lock(&shared.queue);
        match words {
            ["use", tube] => {
                self.used = (*tube).to_owned();
                queue.used.insert(self.number, self.used.clone());
                format!("USING {tube}\r\n").into_bytes()
            }
            ["watch", tube] => {
                self.watched.push((*tube).to_owned());
                format!("WATCHING {}\r\n", self.watched.len()).into_bytes()
            }
            ["ignore", tube] => {
                self.watched.retain(|watched| watched != tube);
                format!("WATCHING {}\r\n", self.watched.len()).into_bytes()
            }
            ["stats"] => ok(&stats(&queue, &shared.options)),
            ["list-tube-used"] => format!("USING {}\r\n", self.used).into_bytes(),
            ["list-tubes-watched"] => ok(&list(&self.watched)),
            ["list-tubes"] => ok(&list(&queue.tubes())),
            ["stats-tube", tube] if !queue.tubes().iter().any(|name| name == tube) => not_found(),
            ["stats-tube", tube] => ok(&stats_tube(&queue, tube)),
            ["pause-tube", tube, seconds] => {
                queue.paused.insert((*tube).to_owned(), seconds.parse().unwrap_or(0));
                b"PAUSED\r\n".to_vec()
            }
            ["reserve-with-timeout", _] => self.reserve(&mut queue),
            ["peek-ready"] => peek(queue.in_order(&self.used, "ready").first().copied()),
            ["peek-delayed"] => peek(queue.in_order(&self.used, "delayed").first().copied()),
            ["peek-buried"] => peek(queue.in_order(&self.used, "buried").first().copied()),
            ["peek-reserved"] => peek(queue.in_order(&self.used, "reserved").first().copied()),
            ["list-jobs", ..] => list_jobs(&queue, &words[1..]),
            ["flush-tube", tube] => count("FLUSHED", queue.remove(|job| job.tube == *tube)),
            ["flush-buried", tube] => {
                count("FLUSHED", queue.remove(|job| job.tube == *tube && job.state == "buried"))
            }
            ["delete-batch", ids @ ..] => {
                let ids: Vec<u64> = ids.iter().filter_map(|id| id.parse().ok()).collect();
                let number = Some(self.number);
                let deleted = queue
                    .remove(|job| ids.contains(&job.id) && (job.holder.is_none() || job.holder == number));
                format!("DELETED_BATCH {deleted} {}\r\n", ids.len() - deleted).into_bytes()
            }
            ["drain"] => {
                queue.draining = true;
                b"DRAINING\r\n".to_vec()
            }
            ["undrain"] => {
                queue.draining = false;
                b"NOT_DRAINING\r\n".to_vec()
            }
            [word, id, rest @ ..] => match id.parse() {
                Ok(id) => self.on_job(&mut queue, word, id, rest),
                Err(_) => b"UNKNOWN_COMMAND\r\n".to_vec(),
            },
            _ => b"UNKNOWN_COMMAND\r\n".to_vec(),
        }
    }

    fn reserve(&self, queue: &mut FakeQueue) -> Vec<u8> {
        let ready = self.watched.iter().flat_map(|tube| queue.in_order(tube, "ready"));
        let Some(id) = ready.min_by_key(|job| (job.pri, job.id)).map(|job| job.id) else {
            return b"TIMED_OUT\r\n".to_vec();
        };
        self.on_job(queue, "reserve-job", id, &[])
    }

    fn on_job(&self, queue: &mut FakeQueue, word: &str, id: u64, rest: &[&str]) -> Vec<u8> {
        let me = Some(self.number);
        let number = |index: usize| rest.get(index).and_then(|word| word.parse().ok()).unwrap_or(0);
        let Some(job) = queue.find(id) else { return not_found() };
        let mine = job.holder == me;
        let free = job.holder.is_none();
        let done: &str = match word {
            "stats-job" => return ok(&job.stats()),
            "peek" => return peek(Some(job)),
            "reserve-job" if free && !job.is_held() => {
                (job.holder, job.state) = (me, "reserved");
                job.reserves += 1;
                // A job that was reserved once does not expire.
                job.tags.retain(|tag| !tag.starts_with("exp:"));
                return with_body("RESERVED", job);
            }
            "delete" if free || mine => {
                queue.remove(|job| job.id == id);
                "DELETED"
            }
            "release" if mine => {
                (job.pri, job.delay, job.holder) = (number(0), number(1), None);
                job.state = if job.delay > 0 { "delayed" } else { "ready" };
                job.releases += 1;
                "RELEASED"
            }
            "bury" if mine => {
                (job.pri, job.holder, job.state) = (number(0), None, "buried");
                job.buries += 1;
                "BURIED"
            }
            "touch" if mine => "TOUCHED",
            "kick-job" if ["buried", "delayed"].contains(&job.state) && !job.is_held() => {
                job.state = "ready";
                job.kicks += 1;
                "KICKED"
            }
            "move" if free || mine => {
                job.tube = rest.first().copied().unwrap_or_default().to_owned();
                "MOVED"
            }
            "reprioritize" if free => {
                job.pri = number(0);
                "REPRIORITIZED"
            }
            _ => return not_found(),
        };
        format!("{done}\r\n").into_bytes()
    }
}

fn ok(data: &str) -> Vec<u8> {
    format!("OK {}\r\n{data}\r\n", data.len()).into_bytes()
}

fn list(names: &[String]) -> String {
    names.iter().fold("---\n".to_owned(), |text, name| text + "- " + name + "\n")
}

fn not_found() -> Vec<u8> {
    b"NOT_FOUND\r\n".to_vec()
}

fn count(word: &str, number: usize) -> Vec<u8> {
    format!("{word} {number}\r\n").into_bytes()
}

fn with_body(word: &str, job: &FakeJob) -> Vec<u8> {
    let mut reply = format!("{word} {} {}\r\n", job.id, job.body.len()).into_bytes();
    reply.extend_from_slice(&job.body);
    reply.extend_from_slice(b"\r\n");
    reply
}

fn peek(job: Option<&FakeJob>) -> Vec<u8> {
    job.map_or_else(not_found, |job| with_body("FOUND", job))
}

fn states(queue: &FakeQueue, tube: Option<&str>) -> String {
    ["ready", "reserved", "delayed", "buried"].iter().fold(String::new(), |mut text, state| {
        let _ = writeln!(text, "current-jobs-{state}: {}", queue.count(tube, state));
        text
    })
}

fn stats(queue: &FakeQueue, options: &FakeOptions) -> String {
    let offered: Vec<&str> =
        EXTENSIONS.split_ascii_whitespace().filter(|word| !options.without.contains(word)).collect();
    format!(
        "---\n{}total-jobs: {}\nversion: \"1.13\"\nbinlog-current-index: 0\ndraining: {}\nid: fake\nhostname: \"fake\"\n\
         extensions: \"{}\"\n",
        states(queue, None),
        queue.last_id,
        queue.draining,
        offered.join(" ")
    )
}

fn stats_tube(queue: &FakeQueue, tube: &str) -> String {
    let pause = queue.paused.get(tube).copied().unwrap_or(0);
    format!(
        "---\nname: \"{tube}\"\n{}total-jobs: 0\ncurrent-using: 0\ncurrent-watching: 0\ncurrent-waiting: 0\ncmd-delete: 0\n\
         cmd-pause-tube: 0\npause: {pause}\npause-time-left: {pause}\noldest-ready-age: 12\noldest-delayed-age: 0\n\
         oldest-buried-age: 345\noldest-ready-id: 1\n",
        states(queue, Some(tube))
    )
}

/// Executes `list-jobs <tube> <state> [<limit> [<cursor>]]`. In the cursor stands the number of jobs on earlier pages.
fn list_jobs(queue: &FakeQueue, arguments: &[&str]) -> Vec<u8> {
    let [tube, state, rest @ ..] = arguments else { return b"BAD_FORMAT\r\n".to_vec() };
    if !queue.tubes().iter().any(|name| name == tube) {
        return not_found();
    }
    let limit: usize = rest.first().and_then(|limit| limit.parse().ok()).unwrap_or(100);
    let from: usize = rest.get(1).and_then(|cursor| cursor.split('-').nth(1)?.parse().ok()).unwrap_or(0);
    let jobs = queue.in_order(tube, state);
    let end = jobs.len().min(from + limit);
    let next = if end < jobs.len() { format!("{state}-{end}-0") } else { String::new() };
    let mut data = format!("---\nnext: \"{next}\"\njobs:\n");
    for job in &jobs[from.min(end)..end] {
        data.push_str(&job.line());
    }
    ok(&data)
}

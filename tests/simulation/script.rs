//! Random requests of clients, each as bytes and as a value.

use std::sync::Arc;

use beanstalkd::job::JobState;
use beanstalkd::tags::{After, Concurrency, Idempotency, TagSet};
use beanstalkd_testkit::random::Random;

/// A request. A `put` is two requests, its line and its body.
#[derive(Clone, Debug)]
pub enum Request {
    Put { priority: u32, delay_s: u32, ttr_s: u32, size: u32, tags: Tags },
    Body { bytes: Arc<[u8]>, ended_well: bool },
    Use(&'static str),
    Watch(&'static str),
    Ignore(&'static str),
    Reserve { timeout_s: Option<u32> },
    ReserveJob(u64),
    Delete(u64),
    Release { id: u64, priority: u32, delay_s: u32 },
    Bury { id: u64, priority: u32 },
    Touch(u64),
    Peek(u64),
    PeekReady,
    PeekDelayed,
    PeekBuried,
    Kick(u64),
    KickJob(u64),
    Stats,
    StatsJob(u64),
    StatsTube(&'static str),
    StatsGroup(&'static str),
    ListTubes,
    ListTubeUsed,
    ListTubesWatched,
    PauseTube { tube: &'static str, delay_s: u32 },
    FlushTube(&'static str),
    FlushBuried(&'static str),
    ListJobs { tube: &'static str, state: JobState, limit: Option<usize>, after: Option<(u64, u64)> },
    PeekReserved,
    Move { id: u64, tube: &'static str },
    Reprioritize { id: u64, priority: u32 },
    Drain,
    Undrain,
    WatchWithWeight { tube: &'static str, weight: u32 },
    ReserveBatch { most: u32, timeout_s: Option<u32> },
    ReserveWithAbort { timeout_s: Option<u32> },
    DeleteBatch(Vec<u64>),
    TouchAll,
    ReserveMode(&'static str),
    Quit,
    BadFormat,
    UnknownCommand,
}

/// The words after the size of a `put`.
#[derive(Clone, Copy, Debug)]
pub enum Tags {
    /// Tags, or nothing.
    Good(TagSet<'static>),
    /// A tag that is wrong: the body is skipped.
    Bad(&'static str),
    /// No tag: the body is not one.
    Unknown(&'static str),
}

const LONG_NAME: &str = "\
    NNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNN\
    NNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNN";
pub const TUBES: [&str; 5] = ["default", "default", "a", "b-+/;.$_()", LONG_NAME];

const PRIORITIES: [u32; 7] = [0, 1, 5, 1023, 1024, 1025, u32::MAX];
const DELAYS_S: [u32; 7] = [0, 0, 0, 1, 2, 5, u32::MAX];
const TTRS_S: [u32; 7] = [0, 1, 1, 2, 3, 10, 100];

/// Lines that get BAD_FORMAT.
const BAD_FORMAT: [&[u8]; 51] = [
    b"stats ",
    b"statsfoo",
    b"stats-foo",
    b"stats-group",
    b"stats-group -g",
    b"stats-group g g",
    b"stats\0",
    b"stats\r",
    b"list-tubes\n",
    b"reserve-job",
    b"reserve-foo",
    b"reserve-with-timeout",
    b"reserve-with-timeout x",
    b"reserve-with-timeout -1",
    b"reserve-with-timeout 2147483648",
    b"use -a",
    b"watch a ",
    b"use  a",
    b"delete -1",
    b"delete 1 ",
    b"delete 18446744073709551616",
    b"kick x",
    b"kick 18446744073709551616",
    b"put 0 0 x 5",
    b"put 4294967296 0 0 0",
    b"release 1 2",
    b"pause-tube a",
    b"flush-tube",
    b"flush-buried -a",
    b"list-jobs",
    b"list-jobs a held",
    b"list-jobs a ready 1001",
    b"list-jobs a ready 1 delayed-1-1",
    b"peek-reserved 1",
    b"move 1",
    b"move x a",
    b"reprioritize 1 -1",
    b"drain 1",
    b"undrained",
    b"reserve-batch",
    b"reserve-batch 0",
    b"reserve-batch 1001",
    b"reserve-batch 1 x",
    b"reserve-with-abort x",
    b"reserve-mode",
    b"reserve-mode fair",
    b"delete-batch",
    b"delete-batch 1 x",
    b"touch-all 1",
    b"watch a 0",
    b"watch a 10000",
];
const UNKNOWN: [&[u8]; 10] =
    [b"", b" stats", b"STATS", b"put", b"delete", b"peek", b"list-tube", b"\rstats", b"hello", b"\xff\xfe"];

/// The facts that a random request may use.
#[derive(Clone, Copy, Debug)]
pub struct Knowledge {
    /// The server has given all ids below this one.
    pub next_id: u64,
    pub max_job_bytes: u32,
    /// Whether this client reserves by chance. If so, it reserves one job at a time: of a batch, the oracle could not
    /// know which jobs it has got.
    pub draws: bool,
}

/// The longest line, with its CRLF.
const MAX_LINE_BYTES: usize = 224;

/// Appends a random request to `bytes`. Returns it as values, each with the length of `bytes` at its end.
pub fn request(random: &mut Random, known: Knowledge, bytes: &mut Vec<u8>) -> Vec<(Request, usize)> {
    match random.below(40) {
        0..=9 => put(random, known, bytes),
        10 => line(bytes, malformed(random)),
        _ => {
            let request = command(random, known);
            let text = text(random, &request);
            line(bytes, (request, text))
        }
    }
}

fn line(bytes: &mut Vec<u8>, (request, text): (Request, Vec<u8>)) -> Vec<(Request, usize)> {
    bytes.extend(text);
    bytes.extend(b"\r\n");
    vec![(request, bytes.len())]
}

fn malformed(random: &mut Random) -> (Request, Vec<u8>) {
    match random.below(4) {
        0 => (Request::UnknownCommand, random.pick(&UNKNOWN).to_vec()),
        1 => {
            let length = random.pick(&[
                MAX_LINE_BYTES - 3,
                MAX_LINE_BYTES - 2,
                MAX_LINE_BYTES - 1,
                MAX_LINE_BYTES,
                700,
            ]);
            let fill = random.pick(b"x\r");
            let mut line = vec![fill; length];
            line[0] = b'x';
            // A CR before the CRLF is a byte like any other.
            let fits = length + 2 <= MAX_LINE_BYTES;
            (if fits { Request::UnknownCommand } else { Request::BadFormat }, line)
        }
        _ => (Request::BadFormat, random.pick(&BAD_FORMAT).to_vec()),
    }
}

fn put(random: &mut Random, known: Knowledge, bytes: &mut Vec<u8>) -> Vec<(Request, usize)> {
    let size = match random.below(60) {
        0 => known.max_job_bytes,
        1 => known.max_job_bytes + 1,
        2 => 8 * 1024 - 1 + random.below(3) as u32,
        3 => 32 * 1024 - 1 + random.below(3) as u32,
        4 => 40_000 + random.below(60_000) as u32,
        5 if random.once_in(4) => 300_000 + random.below(1_000_000) as u32,
        6..=20 => 0,
        _ => random.below(64) as u32,
    };
    let tags = tags(random);
    let (priority, delay_s, ttr_s) = (random.pick(&PRIORITIES), random.pick(&DELAYS_S), random.pick(&TTRS_S));
    bytes.extend(format!("put {priority} {delay_s} {ttr_s} {size}{}\r\n", tags_text(random, tags)).bytes());
    let mut parts = vec![(Request::Put { priority, delay_s, ttr_s, size, tags }, bytes.len())];
    if !matches!(tags, Tags::Unknown(_)) || size > known.max_job_bytes {
        let start = bytes.len();
        let pattern = random.pick(&[&b"body of a job\r\n"[..], b"\r\n", b"x", b"\0\r", b"quit\r\n"]);
        let turn = random.below(pattern.len() as u64) as usize;
        bytes.extend(pattern.iter().cycle().skip(turn).take(size as usize));
        let body: Arc<[u8]> = bytes[start..].into();
        let ended_well = !random.once_in(20);
        bytes.extend(if ended_well { b"\r\n" } else { random.pick(&[b"\n\r", b"XY", b"\r\r", b"\nX"]) });
        parts.push((Request::Body { bytes: body, ended_well }, bytes.len()));
    }
    parts
}

fn tags(random: &mut Random) -> Tags {
    match random.below(40) {
        0 => return Tags::Unknown(random.pick(&["x", " x", " idp", " ", " idp:k x", "idp:k"])),
        1 => {
            return Tags::Bad(random.pick(&[
                " idp:-",
                " con:k:0",
                " exp:0",
                " grp:g grp:g",
                " grp:\0",
                TOO_LONG,
            ]));
        }
        2..=19 => {}
        _ => return Tags::Good(TagSet::default()),
    }
    let mut some = |one_in| random.once_in(one_in).then(|| random.below(12) as usize);
    let concurrency =
        some(3).map(|raw| Concurrency { key: ["k", LONG_NAME][raw % 2].into(), limit: [1, 1, 2][raw % 3] });
    Tags::Good(TagSet {
        concurrency,
        idempotency: some(4)
            .map(|raw| Idempotency { key: ["k", LONG_NAME][raw % 2].into(), cooldown_s: [0, 1, 3][raw % 3] }),
        // Where a flush ends the last members of two groups, the model need not do it in the same order.
        group: some(3).filter(|_| concurrency.is_none()).map(|raw| ["g", "h"][raw % 2].into()),
        after: some(4).map(|raw| After { group: ["g", "h"][raw % 2].into(), is_free: false }),
        expires_after_s: some(4).map(|raw| [1, 2, 10][raw % 3]),
        owner: None,
    })
}

/// A tag that makes a line longer than any may be.
const TOO_LONG: &str = {
    const BYTES: [u8; 2000] = {
        let mut bytes = [b'n'; 2000];
        let mut at = 0;
        while at < 5 {
            bytes[at] = b" grp:"[at];
            at += 1;
        }
        bytes
    };
    match std::str::from_utf8(&BYTES) {
        Ok(text) => text,
        Err(_) => panic!("letters"),
    }
};

/// One of the ways to write the words after a size.
fn tags_text(random: &mut Random, tags: Tags) -> String {
    let tags = match tags {
        Tags::Good(tags) => tags,
        Tags::Bad(text) | Tags::Unknown(text) => return text.to_owned(),
    };
    let number = |number: u32, default: u32, is_short: bool| {
        if number == default && is_short { String::new() } else { format!(":{number}") }
    };
    let is_short = random.once_in(2);
    let mut words: Vec<String> = [
        tags.idempotency.map(|tag| format!("idp:{}{}", tag.key, number(tag.cooldown_s, 0, is_short))),
        tags.concurrency.map(|tag| format!("con:{}{}", tag.key, number(tag.limit, 1, is_short))),
        tags.group.map(|group| format!("grp:{group}")),
        tags.after.map(|after| format!("aft:{}", after.group)),
        tags.expires_after_s.map(|seconds| format!("exp:{seconds}")),
    ]
    .into_iter()
    .flatten()
    .collect();
    if random.once_in(2) {
        words.reverse();
    }
    let gap = if random.once_in(8) { "   " } else { " " };
    words.iter().fold(String::new(), |text, word| text + gap + word)
}

fn command(random: &mut Random, known: Knowledge) -> Request {
    let newest = known.next_id.saturating_sub(random.below(8));
    let any = 1 + random.below(known.next_id);
    let id = random.pick(&[newest, newest, any, 0, u64::MAX]);
    let tube = random.pick(&TUBES);
    let priority = random.pick(&PRIORITIES);
    let delay_s = random.pick(&DELAYS_S);
    match random.below(66) {
        52..=54 => Request::WatchWithWeight { tube, weight: random.pick(&[1, 2, 9999]) },
        55..=58 if known.draws => Request::Reserve { timeout_s: Some(0) },
        55..=58 => Request::ReserveBatch {
            most: random.pick(&[1, 2, 3, 100, 1000]),
            timeout_s: random.pick(&[None, None, Some(0), Some(1), Some(20)]),
        },
        59..=61 => Request::ReserveWithAbort { timeout_s: random.pick(&[None, None, Some(0), Some(2)]) },
        62 => {
            let count = random.pick(&[1, 2, 10, 60, 300]);
            Request::DeleteBatch((0..count).map(|_| 1 + random.below(known.next_id)).collect())
        }
        63 => Request::TouchAll,
        64 | 65 if !known.draws => Request::ReserveMode(random.pick(&["fifo", "default"])),
        64 | 65 => {
            Request::ReserveMode(random.pick(&["fifo", "default", "weighted", "weighted", "weighted-fair"]))
        }
        40 if random.once_in(2) => Request::FlushTube(tube),
        40 => Request::FlushBuried(tube),
        41..=43 => Request::Move { id, tube },
        44 | 45 => Request::Reprioritize { id, priority },
        46..=48 => Request::ListJobs {
            tube,
            state: random.pick(&[JobState::Ready, JobState::Reserved, JobState::Delayed, JobState::Buried]),
            limit: random.pick(&[None, Some(1), Some(2), Some(1000)]),
            after: random.once_in(3).then(|| (random.pick(&[0, 1, 1024, 4_294_967_295]), id)),
        },
        49 | 50 => Request::PeekReserved,
        51 if random.once_in(4) => Request::Drain,
        51 => Request::Undrain,
        0 | 1 => Request::Use(tube),
        2..=4 => Request::Watch(tube),
        5 => Request::Ignore(tube),
        6..=9 => Request::Reserve { timeout_s: None },
        10..=14 => Request::Reserve { timeout_s: Some(random.pick(&[0, 0, 0, 1, 2, 20, 2_147_483_647])) },
        15 => Request::ReserveJob(id),
        16..=18 => Request::Delete(id),
        19 | 20 => Request::Release { id, priority, delay_s },
        21 | 22 => Request::Bury { id, priority },
        23 => Request::Touch(id),
        24 | 25 => Request::Peek(id),
        26 => Request::PeekReady,
        27 => Request::PeekDelayed,
        28 => Request::PeekBuried,
        29 => Request::Kick(random.pick(&[0, 1, 2, 100, u64::MAX])),
        30 => Request::KickJob(id),
        31 => Request::Stats,
        32 => Request::StatsJob(id),
        33 => Request::StatsTube(tube),
        34 => Request::StatsGroup(random.pick(&["g", "h", "i"])),
        35 => Request::ListTubes,
        36 if random.once_in(2) => Request::ListTubeUsed,
        36 => Request::ListTubesWatched,
        37 | 38 => Request::PauseTube { tube, delay_s: random.pick(&[0, 1, 3, 1000]) },
        _ if random.once_in(4) => Request::Quit,
        _ => Request::Stats,
    }
}

/// One of the possible spellings of a command.
fn text(random: &mut Random, request: &Request) -> Vec<u8> {
    let mut gap = |text: &str| if random.once_in(16) { format!("  00{text}") } else { text.to_owned() };
    let text = match request {
        Request::Use(tube) => format!("use {tube}"),
        Request::Watch(tube) => format!("watch {tube}"),
        Request::Ignore(tube) => format!("ignore {tube}"),
        Request::Reserve { timeout_s: None } => "reserve".to_owned(),
        Request::Reserve { timeout_s: Some(timeout) } => {
            format!("reserve-with-timeout {}", gap(&timeout.to_string()))
        }
        Request::ReserveJob(id) => format!("reserve-job {}", gap(&id.to_string())),
        Request::Delete(id) => format!("delete {}", gap(&id.to_string())),
        Request::Release { id, priority, delay_s } => {
            format!("release {} {priority} {}", gap(&id.to_string()), gap(&delay_s.to_string()))
        }
        Request::Bury { id, priority } => format!("bury {id} {}", gap(&priority.to_string())),
        Request::Touch(id) => format!("touch {}", gap(&id.to_string())),
        Request::Peek(id) => format!("peek {}", gap(&id.to_string())),
        Request::PeekReady => "peek-ready".to_owned(),
        Request::PeekDelayed => "peek-delayed".to_owned(),
        Request::PeekBuried => "peek-buried".to_owned(),
        Request::Kick(u64::MAX) => "kick -1".to_owned(),
        Request::Kick(bound) => format!("kick {bound}"),
        Request::KickJob(id) => format!("kick-job {}", gap(&id.to_string())),
        Request::Stats => "stats".to_owned(),
        Request::StatsJob(id) => format!("stats-job {}", gap(&id.to_string())),
        Request::StatsTube(tube) => format!("stats-tube {tube}"),
        Request::StatsGroup(name) => format!("stats-group {name}"),
        Request::ListTubes => "list-tubes".to_owned(),
        Request::ListTubeUsed => "list-tube-used".to_owned(),
        Request::ListTubesWatched => "list-tubes-watched".to_owned(),
        Request::PauseTube { tube, delay_s } => format!("pause-tube {tube} {delay_s}"),
        Request::FlushTube(tube) => format!("flush-tube {tube}"),
        Request::FlushBuried(tube) => format!("flush-buried {tube}"),
        Request::ListJobs { tube, state, limit, after } => {
            let state = state.as_str();
            let limit = limit.map(|limit| format!(" {limit}"));
            let after = after.map(|(position, id)| format!(" {state}-{position}-{id}"));
            // A cursor has a limit before it.
            let limit = limit.or(after.as_ref().map(|_| " 100".to_owned())).unwrap_or_default();
            format!("list-jobs {tube} {state}{limit}{}", after.unwrap_or_default())
        }
        Request::PeekReserved => "peek-reserved".to_owned(),
        Request::Move { id, tube } => format!("move {} {tube}", gap(&id.to_string())),
        Request::Reprioritize { id, priority } => {
            format!("reprioritize {} {}", gap(&id.to_string()), gap(&priority.to_string()))
        }
        Request::WatchWithWeight { tube, weight } => format!("watch {tube} {}", gap(&weight.to_string())),
        Request::ReserveBatch { most, timeout_s } => {
            let timeout = timeout_s.map(|timeout| format!(" {timeout}")).unwrap_or_default();
            format!("reserve-batch {}{timeout}", gap(&most.to_string()))
        }
        Request::ReserveWithAbort { timeout_s } => {
            let timeout = timeout_s.map(|timeout| format!(" {timeout}")).unwrap_or_default();
            format!("reserve-with-abort{timeout}")
        }
        Request::DeleteBatch(ids) => {
            ids.iter().fold("delete-batch".to_owned(), |line, id| format!("{line} {}", gap(&id.to_string())))
        }
        Request::TouchAll => "touch-all".to_owned(),
        Request::ReserveMode(mode) => format!("reserve-mode {mode}"),
        Request::Drain => "drain".to_owned(),
        Request::Undrain => "undrain".to_owned(),
        Request::Quit => "quit".to_owned(),
        Request::Put { .. } | Request::Body { .. } | Request::BadFormat | Request::UnknownCommand => {
            unreachable!("written elsewhere")
        }
    };
    text.into_bytes()
}

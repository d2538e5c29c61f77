//! Random requests of clients, each as bytes and as a value.

use std::iter::repeat_n;
use std::sync::Arc;

use beanstalkd_model::{CompletedPut, PutWords};
use beanstalkd_protocol::{
    Arguments, ClientCursor, Command, Field, FieldList, Grace, IdList, JobCursor, ModeWord, PutHeader, Verb,
};
use beanstalkd_queue::NewJob;
use beanstalkd_testkit::commands::name;
use beanstalkd_testkit::random::Random;
use beanstalkd_testkit::tags::{TagChoice, some};
use beanstalkd_types::job::{Counting, JobId, JobState, Position, Priority};
use beanstalkd_types::seconds::Seconds;
use beanstalkd_types::tags::{PutTags, TagSet};
use beanstalkd_types::tube_name::TubeNameRef;

/// A request. A `put` is two requests, its line and its body; in a `complete` it is one, which the server executes at
/// the end of its line.
#[derive(Clone, Debug)]
pub enum Request {
    Put {
        priority: u32,
        delay_s: Seconds,
        ttr_s: Seconds,
        size: u32,
        tags: Tags,
    },
    Body {
        bytes: Arc<[u8]>,
        ended_well: bool,
    },
    PutOfComplete {
        put: CompletedPut,
        size: u32,
        kind: PutWords,
        ended_well: bool,
    },
    /// The last body of a `complete`.
    EndOfComplete,
    /// An invalid `complete`, or a line after it that is not one of its puts: the connection ends.
    Lost,
    Command(Command<'static>),
    BadFormat,
    UnknownCommand,
}

/// The words after the size of a `put`.
#[derive(Clone, Copy, Debug)]
pub enum Tags {
    /// Tags, or nothing.
    Good(PutTags<'static>),
    /// An invalid tag: the body is skipped.
    Bad(&'static str),
    /// A word that is not a tag: the body is not read as a body.
    Unknown(&'static str),
}

impl Tags {
    /// The kind of the tags in the model.
    pub fn kind(&self) -> PutWords {
        match self {
            Self::Good(_) => PutWords::Good,
            Self::Bad(_) => PutWords::Bad,
            Self::Unknown(_) => PutWords::Unknown,
        }
    }
}

const LONG_NAME: &str = "\
    NNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNN\
    NNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNN\
    NNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNN";
pub const TUBES: [&str; 5] = ["default", "default", "a", "b-+/;.$_()", LONG_NAME];

const PRIORITIES: [u32; 7] = [0, 1, 5, 1023, 1024, 1025, u32::MAX];
const HALF: Seconds = Seconds::new(0, 500);
const DELAYS: [Seconds; 9] = [
    Seconds::ZERO,
    Seconds::ZERO,
    Seconds::ZERO,
    HALF,
    Seconds::ONE,
    whole(2),
    Seconds::new(2, 1),
    whole(5),
    Seconds::MAX,
];
const TTRS: [Seconds; 8] = [
    Seconds::ZERO,
    HALF,
    Seconds::ONE,
    Seconds::new(1, 1),
    Seconds::new(2, 250),
    whole(3),
    whole(10),
    whole(100),
];

const fn whole(seconds: u32) -> Seconds {
    Seconds::new(seconds, 0)
}

/// Lines that get BAD_FORMAT.
const BAD_FORMAT: [&[u8]; 65] = [
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
    b"put 0 .5 1 5",
    b"put 0 1. 1 5",
    b"put 0 0 1.0000 5",
    b"put 0.5 0 1 5",
    b"reserve-with-timeout 1.x",
    b"reserve-with-timeout 0.1234",
    b"release 1 2 3.",
    b"touch 1 .5",
    b"pause-tube a 1.",
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
    b"session",
    b"session a",
    b"session a 1.",
    b"session a 3600.001",
    b"sessions a 1",
    b"watch a 0",
    b"watch a 10000",
];
const UNKNOWN: [&[u8]; 10] =
    [b"", b" stats", b"STATS", b"put", b"delete", b"peek", b"list-tube", b"\rstats", b"hello", b"\xff\xfe"];

/// The facts that a random request may use.
#[derive(Clone, Copy, Debug)]
pub struct Knowledge {
    /// The server has issued all ids below this one.
    pub next_id: u64,
    pub max_job_bytes: u32,
    /// The number of some client.
    pub client: u64,
    /// A job that the client has reserved.
    pub reserved: Option<u64>,
    /// Whether tubes are fair. If so, more jobs have keys, and fewer have distinct priorities.
    pub is_fair: bool,
    /// Whether this client reserves at random. If so, it reserves one job at a time: the oracle could not know which
    /// jobs of a batch it has got.
    pub draws: bool,
}

/// The longest line, with its CRLF.
const MAX_LINE_BYTES: usize = 224;

/// Appends a random request to `bytes`. Returns it as values, each with the length of `bytes` at its end.
pub fn request(random: &mut Random, known: Knowledge, bytes: &mut Vec<u8>) -> Vec<(Request, usize)> {
    match random.below(40) {
        0..=8 => put(random, known, bytes, false),
        16..=25 if known.is_fair => put(random, known, bytes, false),
        26..=35 if known.is_fair => {
            let command = work(random, known);
            line(bytes, (Request::Command(command), text(random, command)))
        }
        9 => complete(random, known, bytes),
        10 => line(bytes, malformed(random)),
        _ => {
            let command = command(random, known);
            line(bytes, (Request::Command(command), text(random, command)))
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

/// A `complete` with puts, and with every possible error.
fn complete(random: &mut Random, known: Knowledge, bytes: &mut Vec<u8>) -> Vec<(Request, usize)> {
    if random.once_in(30) {
        let lost = [&b"complete"[..], b"complete 1", b"complete 1 101", b"complete 1 1 ", b"complete x 1"];
        return line(bytes, (Request::Lost, random.pick(&lost).to_vec()));
    }
    let count = if random.once_in(30) { 100 } else { 1 + random.below(4) as u32 };
    let any = 1 + random.below(known.next_id);
    let any = random.pick(&[known.next_id, any, 0]);
    let id = JobId(known.reserved.filter(|_| !random.once_in(8)).unwrap_or(any));
    let command = Command::Complete { id, count };
    let text = text(random, command);
    let mut parts = line(bytes, (Request::Command(command), text));
    for _ in 0..count {
        if random.once_in(60) {
            let other = [&b"delete 1"[..], b"", b"put", b"put 0 0 1", b"putt 0 0 1 0", b" put 0 0 1 0"];
            let lost = line(bytes, (Request::Lost, random.pick(&other).to_vec()));
            return parts.into_iter().chain(lost).collect();
        }
        parts.extend(put_of_complete(put(random, known, bytes, true)));
    }
    parts.push((Request::EndOfComplete, bytes.len()));
    parts
}

/// The single request that replaces the line of a put and its body.
fn put_of_complete(parts: Vec<(Request, usize)>) -> Option<(Request, usize)> {
    let mut parts = parts.into_iter();
    let (Request::Put { priority, delay_s, ttr_s, size, tags }, end) = parts.next()? else { return None };
    let (Request::Body { bytes, ended_well }, _) = parts.next()? else { return None };
    let new = NewJob { id: JobId(0), priority: Priority(priority), delay_s, ttr_s };
    let asked = if let Tags::Good(tags) = tags { tags } else { PutTags::default() };
    let put =
        CompletedPut { new, body: bytes, tags: asked.kept.into(), tube: asked.tube.map(TubeNameRef::as_str) };
    Some((Request::PutOfComplete { put, size, kind: tags.kind(), ended_well }, end))
}

/// A `put`. If it belongs to a `complete`, its body follows in any case.
fn put(
    random: &mut Random,
    known: Knowledge,
    bytes: &mut Vec<u8>,
    in_complete: bool,
) -> Vec<(Request, usize)> {
    let size = match random.below(60) {
        // Whether a batch looks for more jobs depends on the room in the output, and keys that it finds used up leave
        // their rows. With small bodies there is always room.
        0..=5 if known.is_fair => random.below(64) as u32,
        0 => known.max_job_bytes,
        1 => known.max_job_bytes + 1,
        2 => 8 * 1024 - 1 + random.below(3) as u32,
        3 => 32 * 1024 - 1 + random.below(3) as u32,
        4 => 40_000 + random.below(60_000) as u32,
        5 if random.once_in(4) => 300_000 + random.below(1_000_000) as u32,
        6..=20 => 0,
        _ => random.below(64) as u32,
    };
    let tags = tags(random, known.is_fair);
    let is_usual = known.is_fair && !random.once_in(4);
    let (priority, delay_s) =
        if is_usual { (5, Seconds::ZERO) } else { (random.pick(&PRIORITIES), random.pick(&DELAYS)) };
    let ttr_s = random.pick(&TTRS);
    bytes.extend(format!("put {priority} {delay_s} {ttr_s} {size}{}\r\n", tags_text(random, tags)).bytes());
    let mut parts = vec![(Request::Put { priority, delay_s, ttr_s, size, tags }, bytes.len())];
    if in_complete || !matches!(tags, Tags::Unknown(_)) || size > known.max_job_bytes {
        let start = bytes.len();
        let pattern = random.pick(&[&b"body of a job\r\n"[..], b"\r\n", b"x", b"\0\r", b"quit\r\n"]);
        let turn = random.below(pattern.len() as u64) as usize;
        let repeated = pattern.repeat(size as usize / pattern.len() + 2);
        bytes.extend_from_slice(&repeated[turn..][..size as usize]);
        let body: Arc<[u8]> = bytes[start..].into();
        let ended_well = !random.once_in(20);
        bytes.extend(if ended_well { b"\r\n" } else { random.pick(&[b"\n\r", b"XY", b"\r\r", b"\nX"]) });
        parts.push((Request::Body { bytes: body, ended_well }, bytes.len()));
    }
    parts
}

const TAGS: TagChoice<'_> = TagChoice {
    none: 2,
    keys: (4, &["k", LONG_NAME]),
    cooldowns_s: &[Seconds::ZERO, HALF, whole(3)],
    limited: (3, &["k", LONG_NAME]),
    limits: &[1, 1, 2],
    groups: (3, &["g", "h"]),
    awaited: (4, &["g", "h"]),
    expiries_s: (4, &[HALF, whole(2), whole(10)]),
    trace: 6,
};

/// Those of a script with fair tubes.
const FAIR_TAGS: TagChoice<'_> =
    TagChoice { limited: (1, &["k", "l", LONG_NAME]), limits: &[1, 9, 9, 2], ..TAGS };

fn tags(random: &mut Random, is_fair: bool) -> Tags {
    match random.below(40) {
        0 => return Tags::Unknown(random.pick(&["x", " x", " idp", " ", " idp:k x", "idp:k"])),
        1 => {
            return Tags::Bad(random.pick(&[
                " idp:-",
                " con:k:0",
                " exp:0",
                " grp:g grp:g",
                " grp:\0",
                " tub:-",
                " trc:00",
                TOO_LONG,
            ]));
        }
        _ => {}
    }
    let tags = if is_fair { FAIR_TAGS } else { TAGS }.tags(random);
    // If a flush ends the last members of two groups, the order in the model may differ.
    let kept = TagSet { group: tags.group.filter(|_| tags.concurrency.is_none()), ..tags };
    Tags::Good(PutTags { kept, tube: some(random, (8, &TUBES)).map(name) })
}

/// A tag that makes a line too long.
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
    let PutTags { kept: tags, tube } = match tags {
        Tags::Good(tags) => tags,
        Tags::Bad(text) | Tags::Unknown(text) => return text.to_owned(),
    };
    let number = |number: String, default: &str, is_short: bool| {
        if number == default && is_short { String::new() } else { format!(":{number}") }
    };
    let is_short = random.once_in(2);
    let mut words: Vec<String> = [
        tags.idempotency
            .map(|tag| format!("idp:{}{}", tag.key, number(tag.cooldown_s.to_string(), "0", is_short))),
        tags.concurrency
            .map(|tag| format!("con:{}{}", tag.key, number(tag.limit.to_string(), "1", is_short))),
        tags.group.map(|group| format!("grp:{group}")),
        tags.after.map(|after| format!("aft:{}", after.group)),
        tags.expires_after_s.map(|seconds| format!("exp:{seconds}")),
        tube.map(|tube| format!("tub:{tube}")),
        tags.trace.map(|trace| format!("trc:{}", trace.as_str())),
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

/// A command of a worker for a fair tube.
fn work(random: &mut Random, known: Knowledge) -> Command<'static> {
    let id = JobId(known.reserved.unwrap_or_else(|| 1 + random.below(known.next_id)));
    let any = JobId(1 + random.below(known.next_id));
    let priority = Priority(random.pick(&[5, 5, 5, 0]));
    match random.below(20) {
        0 => Command::Release { id, priority, delay_s: HALF, counting: Counting::Counted },
        1..=3 => Command::Release { id, priority, delay_s: Seconds::ZERO, counting: Counting::Counted },
        4 => Command::Bury { id, priority },
        5 => Command::Kick { bound: random.pick(&[1, 3, 100]) },
        6 => Command::ReserveJob(any),
        7 => Command::Reprioritize { id: any, priority },
        8 => Command::Move { id: any, tube: name(random.pick(&["default", "a"])) },
        9..=11 => Command::Delete(id),
        12 => Command::StatsJob(any),
        _ => Command::ReserveWithTimeout { timeout_s: random.pick(&[Seconds::ZERO, Seconds::ZERO, HALF]) },
    }
}

/// How often a command is sent. The others are sent as often as most.
fn weight(verb: Verb) -> usize {
    use Verb as V;
    match verb {
        // Lines of puts are made by themselves. A server without access rules has no `auth`.
        V::Put | V::Auth => 0,
        V::Drain | V::Quit => 1,
        V::FlushTube | V::FlushBuried | V::ListTubeUsed | V::ListTubesWatched => 2,
        V::Undrain => 3,
        V::Use | V::ReserveMode | V::ReserveFields | V::Complete | V::Release | V::Bury => 8,
        V::PauseTube | V::Reprioritize | V::Peek | V::PeekReserved | V::Stats | V::KillClient => 8,
        V::ReserveWithAbort | V::WaitJob | V::Delete | V::Move | V::Session | V::ListJobs => 12,
        V::Reserve | V::ReserveBatch => 16,
        V::ReserveWithTimeout => 20,
        V::Watch => 24,
        _ => 4,
    }
}

fn verb(random: &mut Random) -> Verb {
    let verbs = Verb::ALL.into_iter().flat_map(|verb| repeat_n(verb, weight(verb)));
    random.pick(&verbs.collect::<Vec<_>>())
}

fn command(random: &mut Random, known: Knowledge) -> Command<'static> {
    let arguments = arguments(random, known);
    match verb(random) {
        Verb::ReserveBatch if known.draws => Command::ReserveWithTimeout { timeout_s: Seconds::ZERO },
        Verb::PauseTube => {
            let delay_s = random.pick(&[Seconds::ZERO, HALF, whole(3), whole(1000)]);
            Command::PauseTube { tube: arguments.tube, delay_s }
        }
        Verb::DeleteBatch => {
            let count = random.pick(&[1, 2, 10, 60, 300]);
            let ids: Vec<_> = (0..count).map(|_| JobId(1 + random.below(known.next_id))).collect();
            // A few bytes for each of these requests, until the test ends.
            Command::DeleteBatch(IdList::new(ids.leak()).expect("there are ids"))
        }
        verb => Command::with_arguments(verb, &arguments),
    }
}

fn arguments(random: &mut Random, known: Knowledge) -> Arguments<'static> {
    let newest = known.next_id.saturating_sub(random.below(8));
    let any = 1 + random.below(known.next_id);
    let id = JobId(random.pick(&[newest, newest, any, 0, u64::MAX]));
    let (priority, delay_s) = (Priority(random.pick(&PRIORITIES)), random.pick(&DELAYS));
    let state = random.pick(&JobState::ALL);
    let position = Position { is_held: false, number: random.pick(&[0, 1, 1024, 4_294_967_295]), id };
    let short_s = [Seconds::ZERO, Seconds::ZERO, HALF, Seconds::new(1, 999), whole(2), whole(3)];
    let timeout_s = [short_s.as_slice(), &[whole(20), whole(2_147_483_647)]].concat();
    let for_s = random.pick(&[HALF, whole(3), Seconds::MAX]);
    let fifo = [ModeWord::Fifo, ModeWord::Default];
    let drawing = [ModeWord::Weighted, ModeWord::Weighted, ModeWord::WeightedFair];
    let modes = if known.draws { [fifo.as_slice(), &drawing].concat() } else { fifo.to_vec() };
    let first = random.index(8);
    let fields = Field::ALL.into_iter().cycle().skip(first).take(random.index(9));
    let grace_ms = random.pick(&[0, 1, 500, 1000, 1250, 20_000, 3_600_000]);
    Arguments {
        after: random.once_in(3).then_some(JobCursor { state, position }),
        // Only the server knows the clients to list.
        after_client: Some(ClientCursor { index: u32::MAX }),
        bound: random.pick(&[0, 1, 2, 100, u64::MAX]),
        count: 0,
        counting: random.pick(&[Counting::Counted, Counting::Counted, Counting::Uncounted]),
        delay_s,
        fields: FieldList::new(fields).expect("each is there once"),
        for_s: random.once_in(2).then_some(for_s),
        grace: Grace::from_ms(grace_ms).expect("at most an hour"),
        group: name(random.pick(&["g", "h", "i"])),
        header: PutHeader { priority, delay_s, ttr_s: Seconds::ZERO, size: 0 },
        id,
        ids: IdList::of_reply(&[]),
        limit: random.pick(&[100, 1, 2, 1000]),
        mode: random.pick(&modes),
        max_jobs: random.pick(&[1, 2, 3, 100, 1000]),
        name: name(random.pick(&["s", "s", LONG_NAME])),
        number: random.pick(&[known.client, known.client, 0, u64::MAX]),
        priority,
        state,
        timeout_s: random.once_in(2).then(|| random.pick(&timeout_s)),
        token: b"",
        tube: name(random.pick(&TUBES)),
        weight: random.pick(&[1, 1, 1, 1, 2, 9999]),
    }
}

/// A random spelling of a command: numbers may have leading spaces and zeros, and a default may be left out.
fn text(random: &mut Random, command: Command<'_>) -> Vec<u8> {
    let mut text = Vec::new();
    match command {
        Command::Kick { bound: u64::MAX } => return b"kick -1".to_vec(),
        Command::ListJobs { limit: 100, after: None, .. } => {
            command.write(&mut text);
            text.truncate(text.len() - " 100".len());
        }
        Command::Watch { weight: 1, .. } if random.once_in(2) => {
            command.write(&mut text);
            text.extend(b" 1");
        }
        _ => command.write(&mut text),
    }
    let mut spelled = Vec::new();
    for (at, word) in text.split(|&byte| byte == b' ').enumerate() {
        if at > 0 {
            spelled.push(b' ');
        }
        if word.first().is_some_and(u8::is_ascii_digit) && random.once_in(16) {
            spelled.extend(b"  00");
        }
        spelled.extend(word);
    }
    spelled
}

#[test]
fn every_command_of_an_open_server_is_sent() {
    let (next_id, reserved) = (10, Some(1));
    let known = Knowledge { next_id, max_job_bytes: 100, client: 1, reserved, is_fair: false, draws: false };
    let mut random = Random::new(1);
    let requests = (0..20_000).flat_map(|_| request(&mut random, known, &mut Vec::new()));
    let verbs = requests.filter_map(|(request, _)| match request {
        Request::Put { .. } => Some(Verb::Put),
        Request::Command(command) => Some(command.verb()),
        _ => None,
    });
    let sent: Vec<Verb> = verbs.collect();
    let missing = Verb::ALL.into_iter().filter(|verb| !sent.contains(verb));
    assert_eq!(missing.collect::<Vec<_>>(), [Verb::Auth]);
}

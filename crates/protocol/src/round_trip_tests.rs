//! Every command and every reply, with random arguments, is written and read back.

use std::collections::{HashSet, TryReserveError};
use std::mem::discriminant;

use super::*;
use crate::job::{Body, Counting, JobId, JobState, Position, Priority};
use crate::seconds::Seconds;
use fastrand::Rng;

const NAMES: [&str; 5] = ["a", "default", "x-1+/;.$_()", "9", "stats"];
const TAGS: [&str; 3] = [" idp:k", " con:c:3 grp:g", "  aft:a exp:9 "];

/// A number of any length.
fn number(random: &mut Rng) -> u64 {
    random.u64(..) >> random.u32(..64)
}

fn small(random: &mut Rng) -> u32 {
    random.u32(..) >> random.u32(..32)
}

fn seconds(random: &mut Rng) -> Seconds {
    let thousandths = if random.bool() { 0 } else { random.u16(..1000) >> random.u32(..10) };
    Seconds::new(small(random), thousandths)
}

fn timeout(random: &mut Rng) -> Seconds {
    let seconds = seconds(random);
    Seconds::new(seconds.whole() >> 2, seconds.thousandths())
}

fn id(random: &mut Rng) -> JobId {
    JobId(number(random))
}

fn priority(random: &mut Rng) -> Priority {
    Priority(small(random))
}

fn state(random: &mut Rng) -> JobState {
    JobState::ALL[random.usize(..4)]
}

fn cursor(random: &mut Rng, state: JobState) -> Cursor {
    let is_held = state == JobState::Delayed && random.bool();
    let number = if state == JobState::Ready { small(random).into() } else { number(random) };
    Cursor { state, position: Position { is_held, number, id: id(random) } }
}

fn header(random: &mut Rng) -> PutHeader {
    let (priority, [delay_s, ttr_s]) = (priority(random), [(); 2].map(|()| seconds(random)));
    PutHeader { priority, delay_s, ttr_s, size: small(random) }
}

fn release<'a>(random: &mut Rng) -> Command<'a> {
    let counting = if random.bool() { Counting::Counted } else { Counting::Uncounted };
    Command::Release { id: id(random), priority: priority(random), delay_s: seconds(random), counting }
}

fn list_jobs<'a>(tube: &'a str, random: &mut Rng) -> Command<'a> {
    let state = state(random);
    let after = random.bool().then(|| cursor(random, state));
    Command::ListJobs { tube, state, limit: random.u32(1..=1000), after }
}

fn fields(random: &mut Rng) -> FieldList {
    let mut fields = Field::ALL;
    random.shuffle(&mut fields);
    FieldList::new(fields.into_iter().take(random.usize(..=8))).expect("each is there once")
}

fn grace(random: &mut Rng) -> Grace {
    Grace::from_ms(random.u64(..=3_600_000)).expect("at most an hour")
}

/// The command of this verb with random arguments.
fn command<'a>(verb: Verb, ids: &'a [JobId], token: &'a [u8], random: &mut Rng) -> Command<'a> {
    let tube = NAMES[random.usize(..NAMES.len())];
    let timeout_s = random.bool().then(|| timeout(random));
    match verb {
        Verb::Put if random.bool() => {
            Command::PutWith(header(random), TAGS[random.usize(..TAGS.len())].as_bytes())
        }
        Verb::Put => Command::Put(header(random)),
        Verb::Peek => Command::Peek(id(random)),
        Verb::PeekReady => Command::PeekReady,
        Verb::PeekDelayed => Command::PeekDelayed,
        Verb::PeekBuried => Command::PeekBuried,
        Verb::Reserve => Command::Reserve,
        Verb::ReserveWithTimeout => Command::ReserveWithTimeout { timeout_s: timeout(random) },
        Verb::Delete => Command::Delete(id(random)),
        Verb::Release => release(random),
        Verb::Use => Command::Use(tube),
        Verb::Watch => Command::Watch { tube, weight: random.u16(1..10_000) >> random.u32(..13) | 1 },
        Verb::Ignore => Command::Ignore(tube),
        Verb::Bury => Command::Bury { id: id(random), priority: priority(random) },
        Verb::Kick => Command::Kick { bound: number(random) },
        Verb::Touch => Command::Touch { id: id(random), for_s: random.bool().then(|| seconds(random)) },
        Verb::Stats => Command::Stats,
        Verb::StatsJob => Command::StatsJob(id(random)),
        Verb::StatsTube => Command::StatsTube(tube),
        Verb::ListTubes => Command::ListTubes,
        Verb::ListTubeUsed => Command::ListTubeUsed,
        Verb::ListTubesWatched => Command::ListTubesWatched,
        Verb::PauseTube => Command::PauseTube { tube, delay_s: seconds(random) },
        Verb::ReserveJob => Command::ReserveJob(id(random)),
        Verb::KickJob => Command::KickJob(id(random)),
        Verb::Quit => Command::Quit,
        Verb::FlushTube => Command::FlushTube(tube),
        Verb::FlushBuried => Command::FlushBuried(tube),
        Verb::ListJobs => list_jobs(tube, random),
        Verb::PeekReserved => Command::PeekReserved,
        Verb::Move => Command::Move { id: id(random), tube },
        Verb::Reprioritize => Command::Reprioritize { id: id(random), priority: priority(random) },
        Verb::Drain => Command::Drain,
        Verb::Undrain => Command::Undrain,
        Verb::ReserveBatch => Command::ReserveBatch { most: random.u32(1..=MAX_BATCH), timeout_s },
        Verb::DeleteBatch => Command::DeleteBatch(IdList::new(ids).expect("there are some")),
        Verb::TouchAll => Command::TouchAll,
        Verb::ReserveMode => Command::ReserveMode(ModeWord::ALL[random.usize(..ModeWord::ALL.len())]),
        Verb::ReserveWithAbort => Command::ReserveWithAbort { timeout_s },
        Verb::StatsGroup => Command::StatsGroup(tube),
        Verb::Session => Command::Session { name: tube, grace: grace(random) },
        Verb::ListClients => {
            let after = random.bool().then(|| ClientCursor { index: small(random) });
            Command::ListClients { limit: random.u32(1..=MAX_LIMIT), after }
        }
        Verb::KillClient => Command::KillClient { number: number(random) },
        Verb::Complete => Command::Complete { id: id(random), count: random.u32(..=MAX_COMPLETED_PUTS) },
        Verb::WaitJob => Command::WaitJob { id: id(random), timeout_s },
        Verb::ReserveFields => Command::ReserveFields(fields(random)),
        Verb::Auth => Command::Auth(token),
    }
}

#[test]
fn every_command_is_read_as_it_was_written() {
    let mut random = Rng::with_seed(1);
    for verb in Verb::ALL {
        for _ in 0..200 {
            let ids: Vec<JobId> = (0..random.u32(1..=MAX_BATCH)).map(|_| id(&mut random)).collect();
            let token: Vec<u8> = (0..random.usize(..99)).map(|_| random.u8(1..)).collect();
            let command = command(verb, &ids, &token, &mut random);
            let mut line = Vec::new();
            command.write(&mut line);
            assert_eq!(parse(&line), Ok(command), "{}", line.escape_ascii());
            assert!(line.starts_with(verb.as_str().as_bytes()));
        }
    }
}

/// The bytes of replies.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl ReplyBuffer for Bytes {
    fn reserve(&mut self, count: usize) -> Result<(), TryReserveError> {
        self.0.try_reserve(count)
    }

    fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }

    fn push_body(&mut self, body: &Body) -> Result<(), TryReserveError> {
        self.0.extend_from_slice(body.as_slice());
        Ok(())
    }
}

fn written(reply: &Reply<'_>) -> Vec<u8> {
    let mut bytes = Bytes::default();
    reply.write(&mut bytes).expect("there is memory");
    bytes.0
}

/// A reply of each kind, with random numbers.
fn replies<'a>(
    body: &'a Body,
    batch: ReservedJobs<'a>,
    ids: &'a [JobId],
    random: &mut Rng,
) -> Vec<Reply<'a>> {
    let state = random.bool().then(|| state(random));
    vec![
        Reply::Deleted,
        Reply::Released,
        Reply::Buried,
        Reply::Touched,
        Reply::KickedJob,
        Reply::Paused,
        Reply::Draining,
        Reply::NotDraining,
        Reply::Moved,
        Reply::Reprioritized,
        Reply::Killed,
        Reply::Authenticated,
        Reply::NotFound,
        Reply::TimedOut,
        Reply::DeadlineSoon,
        Reply::NotIgnored,
        Reply::Aborted,
        Reply::OutOfMemory,
        Reply::InternalError,
        Reply::Unauthorized,
        Reply::TooManyConnections,
        Reply::Forbidden,
        Reply::BadFormat,
        Reply::UnknownCommand,
        Reply::ExpectedCrlf,
        Reply::JobTooBig,
        Reply::TubeFull,
        Reply::Exists(id(random)),
        Reply::Inserted(id(random)),
        Reply::BuriedJob(id(random)),
        Reply::Watching(number(random)),
        Reply::Kicked(number(random)),
        Reply::Flushed(number(random)),
        Reply::TouchedAll(number(random)),
        Reply::Session(number(random)),
        Reply::Duplicate(id(random), state, random.bool().then(|| priority(random))),
        Reply::Using(NAMES[random.usize(..NAMES.len())]),
        Reply::UsingFields(Some(fields(random)).filter(|it| it.iter().count() != 1).unwrap_or_default()),
        Reply::ReservedWith(id(random), body.into(), ["mail", "a 1 - 0"][random.usize(..2)]),
        Reply::Reserved(id(random), body.into()),
        Reply::Found(id(random), body.into()),
        Reply::Data(body.as_slice()),
        Reply::ReservedBatch(batch),
        Reply::DeletedJob(id(random)),
        Reply::Completed(IdList::of_reply(ids)),
        Reply::DeletedBatch(number(random), number(random)),
    ]
}

fn body(random: &mut Rng) -> Body {
    let len = small(random) as usize % 20_000;
    Body::from((0..len).map(|_| random.u8(..)).collect::<Vec<u8>>())
}

#[test]
fn every_reply_is_read_as_it_was_written() {
    let mut random = Rng::with_seed(2);
    for _ in 0..100 {
        let (alone, bodies) = (body(&mut random), [(); 3].map(|()| body(&mut random)));
        let jobs = bodies.iter().map(|body| written(&Reply::Reserved(id(&mut random), body.into())));
        let (jobs, count): (Vec<_>, _) = (jobs.collect(), random.usize(..=3));
        let jobs = jobs[..count].concat();
        let mut seen = HashSet::new();
        let ids: Vec<JobId> = (0..random.u32(..=MAX_COMPLETED_PUTS)).map(|_| id(&mut random)).collect();
        for reply in replies(&alone, ReservedJobs::new(count, &jobs), &ids, &mut random) {
            let bytes = written(&reply);
            let followed = [&bytes[..], b"DELETED\r\n"].concat();
            assert_eq!(Reply::read(&followed), Ok(Received::Whole(reply, bytes.len())));
            match Reply::read(&bytes[..random.usize(..bytes.len())]) {
                Ok(Received::Needs(needs)) => assert!(needs <= bytes.len()),
                other => panic!("{other:?}"),
            }
            seen.insert(discriminant(&reply));
        }
        assert_eq!(seen.len() + 1, Reply::COUNT, "all but a long list are here");
    }
}

#[test]
fn a_long_list_is_read_as_data() {
    let mut writer = ListWriter::new(1 << 20).expect("there is memory");
    (0..20_000).for_each(|number| writer.push(&format!("tube-{number}")).expect("there is memory"));
    let list = writer.finish().expect("there is memory");
    let bytes = written(&Reply::List(&list));
    let Ok(Received::Whole(Reply::Data(data), taken)) = Reply::read(&bytes) else { panic!("data") };
    assert_eq!((data.len(), taken), (list.byte_len(), bytes.len()));
    let names = parse_list(data).expect("a list");
    assert_eq!((names.len(), names[19_999].as_str()), (20_000, "tube-19999"));
}

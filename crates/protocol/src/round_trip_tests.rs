//! Every command and every reply, with random arguments, is written and read back.

use std::collections::{HashSet, TryReserveError};
use std::mem::discriminant;

use super::*;
use crate::job::{Body, Counting, JobId, JobState, Position, Priority};
use crate::seconds::Seconds;
use crate::tube_name::TubeNameRef;
use fastrand::Rng;

const NAMES: [&str; 5] = ["a", "default", "x-1+/;.$_()", "9", "stats"];
const TAGS: [&str; 3] = [" idp:k", " con:c:3 grp:g", "  aft:a exp:9 "];

fn name(random: &mut Rng) -> TubeNameRef<'static> {
    NAMES[random.usize(..NAMES.len())].try_into().expect("a name")
}

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

fn cursor(random: &mut Rng, state: JobState) -> JobCursor {
    let is_held = state == JobState::Delayed && random.bool();
    let number = if state == JobState::Ready { small(random).into() } else { number(random) };
    JobCursor { state, position: Position { is_held, number, id: id(random) } }
}

fn fields(random: &mut Rng) -> FieldList {
    let mut fields = Field::ALL;
    random.shuffle(&mut fields);
    FieldList::new(fields.into_iter().take(random.usize(..=8))).expect("each is there once")
}

fn header(random: &mut Rng) -> PutHeader {
    let (priority, [delay_s, ttr_s]) = (priority(random), [(); 2].map(|()| seconds(random)));
    PutHeader { priority, delay_s, ttr_s, size: small(random) }
}

/// Random arguments of commands.
fn arguments<'a>(ids: &'a [JobId], token: &'a [u8], random: &mut Rng) -> Arguments<'a> {
    let state = state(random);
    Arguments {
        after: random.bool().then(|| cursor(random, state)),
        after_client: random.bool().then(|| ClientCursor { index: small(random) }),
        bound: number(random),
        count: random.u32(..=MAX_COMPLETED_PUTS),
        counting: if random.bool() { Counting::Counted } else { Counting::Uncounted },
        delay_s: seconds(random),
        fields: fields(random),
        for_s: random.bool().then(|| seconds(random)),
        grace: Grace::from_ms(random.u64(..=3_600_000)).expect("at most an hour"),
        group: name(random),
        header: header(random),
        id: id(random),
        ids: IdList::new(ids).expect("there are some"),
        limit: random.u32(1..=MAX_LIMIT),
        max_jobs: random.u32(1..=MAX_BATCH),
        mode: ModeWord::ALL[random.usize(..ModeWord::ALL.len())],
        name: name(random),
        number: number(random),
        priority: priority(random),
        state,
        timeout_s: random.bool().then(|| timeout(random)),
        token,
        tube: name(random),
        weight: random.u16(1..10_000) >> random.u32(..13) | 1,
    }
}

#[test]
fn every_command_is_read_as_it_was_written() {
    let mut random = Rng::with_seed(1);
    for verb in Verb::ALL {
        for _ in 0..200 {
            let ids: Vec<JobId> = (0..random.u32(1..=MAX_BATCH)).map(|_| id(&mut random)).collect();
            let token: Vec<u8> = (0..random.usize(..99)).map(|_| random.u8(1..)).collect();
            let mut command = Command::with_arguments(verb, &arguments(&ids, &token, &mut random));
            if let (Command::Put(header), true) = (command, random.bool()) {
                command = Command::PutWith(header, TAGS[random.usize(..TAGS.len())].as_bytes());
            }
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

/// A reply of each kind but a long list, with random numbers.
fn replies<'a>(
    body: &'a Body,
    batch: ReservedJobs<'a>,
    ids: &'a [JobId],
    random: &mut Rng,
) -> Vec<Reply<'a>> {
    let state = random.bool().then(|| state(random));
    let mut replies = Reply::of_words(number(random));
    replies.extend([
        Reply::Duplicate(id(random), state, random.bool().then(|| priority(random))),
        Reply::Using(NAMES[random.usize(..NAMES.len())]),
        Reply::UsingFields(Some(fields(random)).filter(|it| it.iter().count() != 1).unwrap_or_default()),
        Reply::ReservedWith(id(random), body.into(), ["mail", "a 1 - 0"][random.usize(..2)]),
        Reply::Reserved(id(random), body.into()),
        Reply::Found(id(random), body.into()),
        Reply::Data(body.as_slice()),
        Reply::ReservedBatch(batch),
        Reply::Completed(IdList::of_reply(ids)),
        Reply::DeletedBatch(number(random), number(random)),
    ]);
    replies
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

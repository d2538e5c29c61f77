//! The output of an exchange does not depend on how the bytes arrive.

use super::body_room::DIRECT_READ_FROM_BYTES;
use super::*;
use crate::description::{Described, Malformed, Reader, Writer};
use crate::job::JobId;
use crate::refusal::CommandRefusal;

fn read_body(header: PutHeader) -> Outcome<()> {
    Outcome::ReadBody(Put::new(JobId(1), header, None))
}

/// As [`transcript_of`], in pieces of `step` bytes.
fn transcript(stream: &[u8], step: usize) -> Vec<String> {
    transcript_of(stream.chunks(step))
}

/// Feeds the pieces of a stream and records the requests; every `put` of at most 1000 bytes is accepted, and a reserve
/// is answered at once.
fn transcript_of<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
    let mut exchange = Exchange::<()>::default();
    let mut out = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    for piece in pieces {
        let kept = exchange.restore(&mut buffer);
        buffer[kept..kept + piece.len()].copy_from_slice(piece);
        let mut input = &buffer[..kept + piece.len()];
        while let Some(request) = exchange.next_request(&mut input) {
            out.push(format!("{request:?}"));
            match request {
                Request::Command(Command::Put(header) | Command::PutWith(header, _)) => {
                    if header.size > 1000 {
                        exchange.apply(Outcome::SkipBody(header, CommandRefusal::JobTooBig));
                    } else {
                        exchange.apply(read_body(header));
                    }
                }
                Request::Command(Command::Complete { id, count }) => {
                    exchange.apply(Outcome::ReadPuts(Box::new(Complete::new(id, count, None))));
                }
                Request::Puts(mut complete, Some((header, _))) => {
                    complete.begin_put(Ok(Put::new(JobId(1), header, None)));
                    exchange.apply(Outcome::ReadPuts(complete));
                }
                Request::Lost => exchange.close(),
                _ => {}
            }
        }
        let rest = input.to_vec();
        exchange.keep(&rest, Stop::WantsInput);
    }
    out
}

#[test]
fn a_described_exchange_is_read_by_its_numbers_and_other_numbers_are_malformed() {
    let mut exchange = Exchange::<u8>::default();
    exchange.apply(Outcome::Unfinished(Unfinished::Stalled {
        continuation: 7,
        until: Until::BinlogRoom,
        memory_bytes: 9,
    }));
    let mut bytes = Vec::new();
    exchange.describe(&mut Writer::new(&mut |piece| bytes.extend(piece)));
    let read = |bytes: &[u8]| Reader::new(bytes).value::<Exchange<u8>>();
    assert_eq!(
        bytes[..4],
        [5, 1, 7, 1],
        "the phase, the kind of unfinished command, the continuation, the event"
    );
    assert_eq!(read(&bytes).unwrap().stalled_until(), Some(Until::BinlogRoom));
    for (at, part) in [
        (0, "the phase of an exchange"),
        (1, "an unfinished command"),
        (3, "the event that continues a command"),
    ] {
        let mut changed = bytes.clone();
        changed[at] = 99;
        assert_eq!(read(&changed).unwrap_err(), Malformed(part));
    }
}

#[test]
fn requests_do_not_depend_on_how_the_bytes_arrive() {
    let mut stream = b"stats\r\nput 0 0 1 5\r\nhello\r\nput 0 0 1 3\r\nabcXYput 0 0 1 2000\r\n".to_vec();
    stream.extend([b'x'; 2002]);
    stream.extend(b"delete 1\r\nlone\rcr\r\nlone\nlf\r\n\r\n");
    stream.extend([b'y'; 300]);
    stream.extend(b"\r\nput 0 0 1 0\r\n\r\nwatch a\r\n");
    stream.extend([b'z'; 222]);
    stream.extend(b"\r\n");
    stream.extend([b'z'; 223]);
    stream.extend(b"\r\nlist-jobs ");
    stream.extend([b't'; 200]);
    stream.extend(b" ready 1000 ready-0000004294967295-18446744073709551615\r\nlist-jobs ");
    let longest = "t".repeat(308);
    stream.extend(format!("{longest}\r\nlist-jobs {longest}t\r\nquit\r\n").bytes());
    let whole = transcript(&stream, stream.len());
    assert_eq!(whole.len(), 21, "{whole:#?}");
    assert!(whole[17].contains("ListJobs"), "{}", whole[17]);
    for step in 1..300 {
        assert_eq!(transcript(&stream, step), whole, "in pieces of {step}");
    }
}

/// A tag may begin at any byte of a `put`, also after the 224 bytes that a line of C may have. However the bytes
/// arrive, either the put is accepted or its body is executed, and not now one and now the other.
#[test]
fn the_bytes_of_a_put_decide_whether_it_is_too_long_and_not_their_arrival() {
    let zeros = |count: usize| "0".repeat(count);
    for (start, is_accepted) in [
        (format!("put 0 0 60 {}6 idp:k", zeros(216)), true),
        (format!("put {}0 0 60 6 idp:k", zeros(1260)), true),
        (format!("put {}0 0 60 6 idp:k", zeros(1263)), true),
        (format!("put {}0 0 60 6 idp:k", zeros(1264)), false),
        (format!("put 0 0 60 6{}idp:k", " ".repeat(212)), true),
        (format!("put 0 0 60 {}6", zeros(210)), true),
        (format!("put 0 0 60 {}6", zeros(211)), false),
        (format!("put 0 0 60 {}6 what", zeros(216)), false),
        (format!("put 0 0 60 {}x", zeros(216)), false),
        (format!("put 0 0 60 6 idp:{}", zeros(1300)), true),
    ] {
        for before in ["", "complete 1 2\r\nput 0 0 60 0\r\n\r\n"] {
            let stream = format!("{before}{start}\r\nkick 1\r\nquit\r\n");
            let whole = transcript(stream.as_bytes(), stream.len());
            let is_executed = whole.iter().any(|request| request.contains("Kick"));
            assert_eq!(is_executed, before.is_empty() && !is_accepted, "{start}: {whole:#?}");
            for cut in 0..stream.len() {
                let (first, rest) = stream.as_bytes().split_at(cut);
                assert_eq!(transcript_of([first, rest].into_iter()), whole, "{start}, cut at {cut}");
            }
        }
    }
}

#[test]
fn a_complete_awaits_no_more_of_a_line_than_a_put_may_have() {
    let mut exchange = Exchange::<()>::default();
    exchange.apply(Outcome::ReadPuts(Box::new(Complete::new(JobId(1), 1, None))));
    let line = format!("delete-batch{}", " 1".repeat(1000));
    assert!(matches!(exchange.next_request(&mut line.as_bytes()), Some(Request::Lost)));
}

#[test]
fn an_announced_body_takes_memory_only_for_the_bytes_that_have_arrived() {
    let mut exchange = Exchange::<()>::default();
    let mut input = &b"put 0 0 1 1073741824\r\nabc"[..];
    let Some(Request::Command(Command::Put(header))) = exchange.next_request(&mut input) else {
        panic!("a put")
    };
    exchange.apply(read_body(header));
    assert!(exchange.next_request(&mut input).is_none());
    assert!(exchange.memory_bytes() <= 4096, "{}", exchange.memory_bytes());
    assert!(exchange.body_room().is_none(), "no room in advance for a client that has sent three bytes");
    assert!(exchange.next_request(&mut &[b'x'; DIRECT_READ_FROM_BYTES][..]).is_none());
    let (body, room) = exchange.body_room().expect("most of it is missing");
    assert!(room >= DIRECT_READ_FROM_BYTES && body.capacity() <= 128 * 1024);
}

#[test]
fn a_body_is_in_progress_from_its_first_byte_to_its_last() {
    let mut exchange = Exchange::<()>::default();
    let mut input = &b"put 0 0 1 3\r\n"[..];
    let Some(Request::Command(Command::Put(header))) = exchange.next_request(&mut input) else {
        panic!("a put")
    };
    exchange.apply(read_body(header));
    assert!(exchange.next_request(&mut input).is_none());
    assert!(!exchange.has_body_in_progress(), "nothing of it has come");
    assert!(exchange.next_request(&mut &b"ab"[..]).is_none());
    assert!(exchange.has_body_in_progress());
    assert!(matches!(exchange.next_request(&mut &b"c\r\n"[..]), Some(Request::Put(..))));
    assert!(!exchange.has_body_in_progress(), "it is whole");
}

#[test]
fn the_bytes_after_a_waiting_reserve_stay_unparsed() {
    let mut exchange = Exchange::<()>::default();
    let mut input = &b"reserve\r\nstats\r\n"[..];
    assert!(matches!(exchange.next_request(&mut input), Some(Request::Command(Command::Reserve))));
    exchange.apply(Outcome::Unfinished(Unfinished::Waiting(WaitKind::Job { is_abortable: false })));
    assert!(exchange.is_waiting() && exchange.next_request(&mut input).is_none());
    assert_eq!(input, b"stats\r\n");
    assert!(
        exchange.take_continuation().is_none()
            && exchange.take_wait() == Some(WaitKind::Job { is_abortable: false })
    );
    exchange.apply(Outcome::Done);
    assert!(matches!(exchange.next_request(&mut input), Some(Request::Command(Command::Stats))));
}

//! Arbitrary bytes from a client. The replies must not depend on how the bytes are split into reads.

use beanstalkd::access::Peer;
use beanstalkd::server::Server;
use beanstalkd_queue::PoisonLimits;

use crate::observer;
use crate::random::Random;
use crate::simulated::{Connection, START, executor};
use crate::sockets::{FakeStream, Pipe};

/// The client's address, for the checks that depend on it.
const ANONYMOUS: Peer = Peer::Unix(None);

/// The largest body that the server takes, in bytes.
pub const MAX_JOB_BYTES: u32 = 1000;

/// Checks one input. Its first byte says how the other bytes are split.
pub fn check(input: &[u8]) {
    let open_server = || Server::new(executor(PoisonLimits::default(), MAX_JOB_BYTES));
    check_with(input, open_server, |_| {});
}

/// Checks one input with these servers, and calls `inspect` for each. Returns all bytes that each server has sent.
pub fn check_with(
    input: &[u8],
    server: impl Fn() -> Server<FakeStream>,
    inspect: impl Fn(&Server<FakeStream>),
) -> Vec<u8> {
    let Some((&plan, stream)) = input.split_first() else { return Vec::new() };
    let ask = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let mut server = server();
        let replies = replies(&mut server, stream, pieces);
        inspect(&server);
        replies
    };
    let whole = ask(&mut [stream].into_iter());
    let mut random = Random::new(plan.into());
    let mut left = stream;
    let mut pieces = std::iter::from_fn(|| {
        let most = if plan % 4 == 0 { 1 } else { 1 + random.below(1 << (plan % 16)) as usize };
        let (piece, rest) = left.split_at(most.min(left.len()));
        left = rest;
        (!piece.is_empty()).then_some(piece)
    });
    let split = ask(&mut pieces);
    assert_eq!(but_for_memory_bytes(&whole), but_for_memory_bytes(&split));
    whole
}

/// The replies as text, without the figure of `list-clients` for the bytes of a command that have arrived so far, and
/// without the length of that reply.
fn but_for_memory_bytes(replies: &[u8]) -> String {
    let text = replies.escape_ascii().to_string();
    let mut parts = text.split("bytes-held: ");
    let first = parts.next().unwrap_or_default().to_owned();
    let behind_number = |text: &str| text.trim_start_matches(|digit: char| digit.is_ascii_digit()).to_owned();
    parts.fold(first, |text, part| {
        let (before, reply) = text.rsplit_once("OK ").unwrap_or(("", &text));
        format!("{before}OK _{}bytes-held: _{}", behind_number(reply), behind_number(part))
    })
}

/// All bytes that the server sends to a client that sends these pieces and then closes its sending half.
pub fn replies(
    server: &mut Server<FakeStream>,
    stream: &[u8],
    pieces: &mut dyn Iterator<Item = &[u8]>,
) -> Vec<u8> {
    let before = server.client_count();
    let pipe = Pipe::new(usize::MAX, Random::new(stream.len() as u64));
    let client = Connection::open(server, pipe, START);
    server.identify(client.id, ANONYMOUS, START);
    let turn = |server: &mut Server<FakeStream>| {
        server.turn([client.take_event()].into_iter(), START);
        while server.next_turn_at().is_some_and(|at| at <= START) {
            server.turn(std::iter::empty(), START);
        }
    };
    for piece in pieces {
        client.send(piece);
        turn(server);
    }
    client.end();
    turn(server);
    server.check_invariants();
    assert_eq!(server.client_count(), before, "the client is gone after its half-close");
    observer::take();
    client.received_bytes(usize::MAX)
}

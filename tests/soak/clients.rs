//! Clients: connections that open, do something, and end in one of several ways.
//!
//! Owns: the kinds of sessions. The commands of a session are in `session.rs`.

use std::time::Duration;

use crate::harness::Harness;
use crate::session::{SLOW_BODY, Session};
use beanstalkd_testkit::client::{Failure, put_command};
use beanstalkd_testkit::history::body;
use beanstalkd_testkit::random::Random;

/// How long a client waits in a reserve before it closes its sending half.
const WAIT: Duration = Duration::from_millis(700);
/// How many connections open and close together.
const CROWD: usize = 30;
/// How many puts, and then deletes, are in one write.
const PIPELINE: usize = 50;
/// The length of a body that takes several reads, and much room in a file.
const LARGE_BODY: usize = 300_000;
/// How many peeks a slow reader sends at once. The replies are more than the sockets and the server's output hold.
const SLOW_PEEKS: usize = 200;
/// The pause of a slow reader between two replies.
const SLOW_PAUSE: Duration = Duration::from_millis(100);

/// Runs sessions of all kinds until the run of the server ends.
pub fn run_sessions_for_life(harness: &Harness, seed: u64) {
    let mut random = Random::new(seed);
    repeat(harness, || run_session(harness, &mut random));
}

/// Repeats a client that asks for many replies, and reads them slowly or disconnects before it has read them all.
pub fn read_slowly_for_life(harness: &Harness, seed: u64) {
    let mut random = Random::new(seed);
    repeat(harness, || read_slowly(harness, &mut random));
}

fn repeat(harness: &Harness, mut session: impl FnMut() -> Result<(), Failure>) {
    while !harness.is_stopping() {
        if let Err(failure) = session() {
            if !harness.is_dying() {
                harness.history().report(format!("a connection failed: {failure}"));
            }
            return;
        }
    }
}

fn run_session(harness: &Harness, random: &mut Random) -> Result<(), Failure> {
    let kind = random.below(100);
    let mut session = Session::begin(harness, random)?;
    match kind {
        0..40 => {
            session.commands(1 + kind % 6)?;
            leave(session)
        }
        40..58 => {
            let count = 50 + session.random.below(400);
            session.commands(count)?;
            leave(session)
        }
        58..66 => put_in_part(session),
        66..72 => put_and_go(session),
        72..84 => wait_and_half_close(session),
        84..88 => crowd(session),
        88..96 => pipeline(session),
        _ => put_large(session),
    }
}

/// Ends a session in one of several ways.
fn leave(mut session: Session) -> Result<(), Failure> {
    match session.random.below(4) {
        0 => {
            session.client.send(b"quit\r\n")?;
            session.client.expect_closed()
        }
        1 => {
            session.client.send(b"stats\r\nlist-tubes\r\n")?;
            session.client.half_close()?;
            let rest = session.client.read_to_end()?;
            if !rest.starts_with(b"OK ") && !session.harness.is_dying() {
                session.report(format!("after a half-close: {:?}", rest.escape_ascii().to_string()));
            }
            Ok(())
        }
        // The system resets the connection, because replies are unread.
        2 => session.client.send(b"stats\r\nlist-tubes\r\nreserve\r\n"),
        _ => Ok(()),
    }
}

/// Sends a put without its end.
fn put_in_part(mut session: Session) -> Result<(), Failure> {
    let key = session.harness.history().putting();
    session.harness.history().refused(key);
    let length = session.random.below(5_000) as usize;
    let command = put_command(0, 0, 60, &body(key, length));
    let part = session.random.below(command.len() as u64) as usize;
    session.client.send(&command[..part])?;
    if session.random.once_in(2) {
        session.client.half_close()?;
        session.client.read_to_end()?;
    }
    Ok(())
}

/// Sends a put and does not wait for the reply.
fn put_and_go(mut session: Session) -> Result<(), Failure> {
    let key = session.harness.history().putting();
    // The job is the most urgent one, so that another client reserves it.
    session.client.send(&put_command(0, 0, 60, &body(key, 100)))
}

fn wait_and_half_close(mut session: Session) -> Result<(), Failure> {
    session.send(b"reserve\r\n")?;
    if session.client.has_reply_within(WAIT)? {
        let reply = session.client.read_reply()?;
        session.take_reservation(&reply);
        return session.commands(3);
    }
    session.client.half_close()?;
    let rest = session.client.read_to_end()?;
    let is_answered = rest == b"TIMED_OUT\r\n" || rest.starts_with(b"RESERVED ");
    if !is_answered && !session.harness.is_dying() {
        session.report(format!("half-closed while it waited: {:?}", rest.escape_ascii().to_string()));
    }
    Ok(())
}

fn crowd(mut session: Session) -> Result<(), Failure> {
    let mut crowd = Vec::new();
    while crowd.len() < CROWD {
        crowd.push(Session::begin(session.harness, &mut session.random)?);
        std::thread::sleep(session.harness.pause);
    }
    crowd.iter_mut().step_by(3).try_for_each(|one| one.commands(1))
}

/// Sends many puts in one write, and the deletes of their jobs in another.
fn pipeline(mut session: Session) -> Result<(), Failure> {
    let keys: Vec<u64> = (0..PIPELINE).map(|_| session.harness.history().putting()).collect();
    let puts: Vec<u8> = keys.iter().flat_map(|&key| put_command(1, 0, 60, &body(key, 60))).collect();
    session.send(&puts)?;
    let mut jobs = Vec::new();
    for key in keys {
        let reply = session.client.read_reply()?;
        jobs.extend(session.put_answered(key, &reply));
    }
    let deletes: String = jobs.iter().map(|id| format!("delete {id}\r\n")).collect();
    jobs.iter().for_each(|&id| session.harness.history().deleting(id));
    session.send(deletes.as_bytes())?;
    for id in jobs {
        let reply = session.client.read_reply()?;
        session.delete_answered(id, &reply);
    }
    let pauses = PIPELINE as u32 * 2;
    std::thread::sleep(session.harness.pause * pauses);
    Ok(())
}

/// Puts a large job into a tube that no other client watches, peeks it, and deletes it.
fn put_large(mut session: Session) -> Result<(), Failure> {
    session.use_own_tube()?;
    if let Some(id) = session.put_body(0, 0, LARGE_BODY)? {
        session.peek(id)?;
        session.delete(id)?;
    }
    Ok(())
}

fn read_slowly(harness: &Harness, random: &mut Random) -> Result<(), Failure> {
    let mut session = Session::begin(harness, random)?;
    session.use_own_tube()?;
    let Some(id) = session.put_body(0, 0, SLOW_BODY)? else {
        std::thread::sleep(SLOW_PAUSE);
        return Ok(());
    };
    session.send(format!("peek {id}\r\n").repeat(SLOW_PEEKS).as_bytes())?;
    let patience = if session.random.once_in(2) { SLOW_PEEKS } else { SLOW_PEEKS / 2 };
    for _ in 0..patience {
        // At the end of the run it stops, because it could take long to read the replies in the socket.
        if harness.is_stopping() || harness.is_dying() {
            break;
        }
        let reply = session.client.read_reply()?;
        if reply == b"NOT_FOUND\r\n" && !harness.history().is_safe(id) {
            break; // another client has deleted it
        }
        session.judge_found(id, &reply);
        std::thread::sleep(SLOW_PAUSE);
    }
    drop(session);
    Session::begin(harness, random)?.delete(id)
}

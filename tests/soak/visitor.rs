//! Visitors: connections that come, do something, and go, politely or not.
//!
//! Owns: what kinds of visits there are. The commands of a visit are in `visit.rs`.

use std::time::Duration;

use crate::ledger::body;
use crate::random::Random;
use crate::support::client::Failure;
use crate::visit::{SLOW_BODY, Visit, put_command};
use crate::world::World;

/// How long a client waits in a reserve until it closes its sending half.
const WAIT: Duration = Duration::from_millis(700);
/// Connections that come and go together.
const CROWD: usize = 30;
/// Puts, and then deletes, in one write.
const PIPELINE: usize = 50;
/// The body that takes several reads and a good part of a file.
const LARGE_BODY: usize = 300_000;
/// Peeks that a slow reader sends at once: more than the sockets and the server's output hold.
const SLOW_PEEKS: usize = 200;
/// Its pause between two replies.
const SLOW_PAUSE: Duration = Duration::from_millis(100);

/// Visits of all kinds, until the life ends.
pub fn visit_for_life(world: &World, seed: u64) {
    let mut random = Random::new(seed);
    repeat(world, || visit(world, &mut random));
}

/// A client that asks for much and reads it slowly, or goes halfway.
pub fn read_slowly_for_life(world: &World, seed: u64) {
    let mut random = Random::new(seed);
    repeat(world, || read_slowly(world, &mut random));
}

fn repeat(world: &World, mut visit: impl FnMut() -> Result<(), Failure>) {
    while !world.is_stopping() {
        if let Err(failure) = visit() {
            if !world.is_dying() {
                world.violations.add(format!("a connection failed: {failure}"));
            }
            return;
        }
    }
}

fn visit(world: &World, random: &mut Random) -> Result<(), Failure> {
    let kind = random.below(100);
    let mut visit = Visit::begin(world, random)?;
    match kind {
        0..40 => {
            visit.commands(1 + kind % 6)?;
            leave(visit)
        }
        40..58 => {
            let count = 50 + visit.random.below(400);
            visit.commands(count)?;
            leave(visit)
        }
        58..66 => put_in_part(visit),
        66..72 => put_and_go(visit),
        72..84 => wait_and_half_close(visit),
        84..88 => crowd(visit),
        88..96 => pipeline(visit),
        _ => put_large(visit),
    }
}

/// Ends a visit in one of the ways in which clients do.
fn leave(mut visit: Visit) -> Result<(), Failure> {
    match visit.random.below(4) {
        0 => {
            visit.client.send(b"quit\r\n")?;
            visit.client.expect_closed()
        }
        1 => {
            visit.client.send(b"stats\r\nlist-tubes\r\n")?;
            visit.client.half_close()?;
            let rest = visit.client.read_to_end()?;
            if !rest.starts_with(b"OK ") && !visit.world.is_dying() {
                visit.report(format!("after a half-close: {:?}", rest.escape_ascii().to_string()));
            }
            Ok(())
        }
        // Its replies unread, the connection is reset.
        2 => visit.client.send(b"stats\r\nlist-tubes\r\nreserve\r\n"),
        _ => Ok(()),
    }
}

/// A put that ends at some byte before its last.
fn put_in_part(mut visit: Visit) -> Result<(), Failure> {
    let key = visit.world.ledger.begin_put();
    visit.world.ledger.refused(key);
    let length = visit.random.below(5_000) as usize;
    let command = put_command(0, 0, 60, &body(key, length));
    let part = visit.random.below(command.len() as u64) as usize;
    visit.client.send(&command[..part])?;
    if visit.random.once_in(2) {
        visit.client.half_close()?;
        visit.client.read_to_end()?;
    }
    Ok(())
}

/// A put whose reply nobody waits for.
fn put_and_go(mut visit: Visit) -> Result<(), Failure> {
    let key = visit.world.ledger.begin_put();
    // The most urgent of all, so that someone finds it.
    visit.client.send(&put_command(0, 0, 60, &body(key, 100)))
}

fn wait_and_half_close(mut visit: Visit) -> Result<(), Failure> {
    visit.client.send(b"reserve\r\n")?;
    if visit.client.has_reply_within(WAIT)? {
        let reply = visit.client.read_reply()?;
        visit.take_reservation(&reply)?;
        return visit.commands(3);
    }
    visit.client.half_close()?;
    let rest = visit.client.read_to_end()?;
    let is_answered = rest == b"TIMED_OUT\r\n" || rest.starts_with(b"RESERVED ");
    if !is_answered && !visit.world.is_dying() {
        visit.report(format!("half-closed while it waited: {:?}", rest.escape_ascii().to_string()));
    }
    Ok(())
}

fn crowd(mut visit: Visit) -> Result<(), Failure> {
    let mut crowd = Vec::new();
    while crowd.len() < CROWD {
        crowd.push(Visit::begin(visit.world, &mut visit.random)?);
        std::thread::sleep(visit.world.pause);
    }
    crowd.iter_mut().step_by(3).try_for_each(|one| one.commands(1))
}

/// Many puts in one write, and the deletes of all of them in another.
fn pipeline(mut visit: Visit) -> Result<(), Failure> {
    let ledger = visit.world.ledger;
    let keys: Vec<u64> = (0..PIPELINE).map(|_| ledger.begin_put()).collect();
    let puts: Vec<u8> = keys.iter().flat_map(|&key| put_command(1, 0, 60, &body(key, 60))).collect();
    visit.client.send(&puts)?;
    let mut jobs = Vec::new();
    for key in keys {
        let reply = visit.client.read_reply()?;
        jobs.extend(visit.put_answered(key, &reply).map(|id| (key, id)));
    }
    let deletes: String = jobs.iter().map(|(_, id)| format!("delete {id}\r\n")).collect();
    jobs.iter().for_each(|(key, _)| ledger.begin_delete(*key));
    visit.client.send(deletes.as_bytes())?;
    for (key, id) in jobs {
        let reply = visit.client.read_reply()?;
        visit.delete_answered(key, id, &reply);
    }
    let pauses = PIPELINE as u32 * 2;
    std::thread::sleep(visit.world.pause * pauses);
    Ok(())
}

/// A large job, put into a tube where nobody else looks, peeked and deleted.
fn put_large(mut visit: Visit) -> Result<(), Failure> {
    visit.use_own_tube()?;
    if let Some((key, id)) = visit.put_body(0, 0, LARGE_BODY)? {
        visit.peek(key, id)?;
        visit.delete(key, id)?;
    }
    Ok(())
}

fn read_slowly(world: &World, random: &mut Random) -> Result<(), Failure> {
    let mut visit = Visit::begin(world, random)?;
    visit.use_own_tube()?;
    let Some((key, id)) = visit.put_body(0, 0, SLOW_BODY)? else {
        std::thread::sleep(SLOW_PAUSE);
        return Ok(());
    };
    visit.client.send(format!("peek {id}\r\n").repeat(SLOW_PEEKS).as_bytes())?;
    let patience = if visit.random.once_in(2) { SLOW_PEEKS } else { SLOW_PEEKS / 2 };
    for _ in 0..patience {
        // What it was sent before the end is in its socket, and could keep it busy for long.
        if world.is_stopping() || world.is_dying() {
            break;
        }
        let reply = visit.client.read_reply()?;
        if reply == b"NOT_FOUND\r\n" && !world.ledger.is_safe(key) {
            break; // another visitor has deleted it
        }
        visit.judge_found(key, &reply);
        std::thread::sleep(SLOW_PAUSE);
    }
    drop(visit);
    Visit::begin(world, random)?.delete(key, id)
}

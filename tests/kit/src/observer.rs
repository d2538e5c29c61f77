//! The order in which the server serves its clients, from the typed values of its trace log.
//!
//! The server chooses which client it serves first, and how much of its input. The model cannot predict that: it learns
//! the choice here, and predicts the replies. Of a reply it learns the first number: which of several jobs a client got
//! at random, or how many of them. The rest of the wording does not matter.

use std::cell::RefCell;

use beanstalkd_queue::ClientId;
use log::kv::{Error, Key, Value, VisitSource};
use log::{LevelFilter, Log, Metadata, Record};

/// A step in which the server serves a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedStep {
    /// It executes a command of the client with this index.
    Command(u32),
    /// It replies to that client, with this number after the first word, or 0.
    Reply(u32, u64),
    /// It has dropped the client's socket.
    Closed(ClientId),
}

thread_local! {
    static STEPS: RefCell<Vec<ServedStep>> = const { RefCell::new(Vec::new()) };
}

/// Notes a step that the log does not show.
pub fn note(step: ServedStep) {
    STEPS.with_borrow_mut(|all| all.push(step));
}

/// The steps in this thread since the last call, in order.
pub fn take() -> Vec<ServedStep> {
    STEPS.take()
}

/// Starts the observation of the server.
pub fn install() {
    if log::set_logger(&Observer).is_ok() {
        log::set_max_level(LevelFilter::Trace);
    }
}

struct Observer;

impl Log for Observer {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let number = || {
            let text = record.args().to_string();
            let reply = text.split_once(" reply ").map_or("", |(_, reply)| reply);
            reply.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
        };
        let mut values = Values { number: &number };
        record.key_values().visit(&mut values).expect("every value can be visited");
    }

    fn flush(&self) {}
}

/// The values of interest are the client's index under `command_of` or `reply_to`.
struct Values<'a> {
    number: &'a dyn Fn() -> u64,
}

impl<'kvs> VisitSource<'kvs> for Values<'_> {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), Error> {
        let is_reply = match key.as_str() {
            "command_of" => false,
            "reply_to" => true,
            _ => return Ok(()),
        };
        let index = value.to_u64().and_then(|index| u32::try_from(index).ok());
        let index = index.expect("a client's index is a number of 32 bits");
        note(if is_reply { ServedStep::Reply(index, (self.number)()) } else { ServedStep::Command(index) });
        Ok(())
    }
}

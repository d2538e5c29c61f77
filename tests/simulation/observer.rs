//! In which order the server does things, as its own trace log tells it.
//!
//! Which client is served first, and how much of its input, is the server's choice; the model does not
//! foretell it. It is told here, and foretells what comes of it.

use std::cell::RefCell;
use std::fmt::{self, Write};

use beanstalkd::queue::ClientId;
use log::{LevelFilter, Log, Metadata, Record};

/// Something that the server has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It executes a command of the client with this index.
    Command(u32),
    /// It replies to that client.
    Reply(u32),
    /// It has dropped the client's socket.
    Closed(ClientId),
}

thread_local! {
    static SEEN: RefCell<Vec<Seen>> = const { RefCell::new(Vec::new()) };
}

/// Notes something that no log line tells.
pub fn note(seen: Seen) {
    SEEN.with_borrow_mut(|all| all.push(seen));
}

/// What was seen in this thread since the last call, in order.
pub fn take() -> Vec<Seen> {
    SEEN.take()
}

/// Makes the server tell.
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

    /// The lines of interest begin with `<7 command` or `>7 reply`.
    fn log(&self, record: &Record<'_>) {
        let mut start = Start::default();
        // It ends in an error as soon as there is enough of the line.
        let _ = write!(start, "{}", record.args());
        let mut words = start.0.split(' ');
        let (Some(first), Some(second)) = (words.next(), words.next()) else { return };
        let seen = match (first.split_at_checked(1), second) {
            (Some(("<", index)), "command") => index.parse().map(Seen::Command),
            (Some((">", index)), "reply") => index.parse().map(Seen::Reply),
            _ => return,
        };
        note(seen.expect("a client's index stands before the word"));
    }

    fn flush(&self) {}
}

/// The first pieces of a line.
#[derive(Default)]
struct Start(String);

impl Write for Start {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        if self.0.matches(' ').count() > 1 {
            return Err(fmt::Error);
        }
        self.0.push_str(piece);
        Ok(())
    }
}

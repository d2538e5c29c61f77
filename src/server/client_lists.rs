//! The server's lists of clients: a client stands in each of them at most once.
//!
//! A list holds ids. Each connection knows in which lists it stands, so that nobody has to search one.

use crate::queue::ClientId;

/// A list of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// Those served in the next turn although no event will come.
    Turn = 1 << 0,
    /// Those with replies that were not handed to the socket yet.
    Unsent = 1 << 1,
    /// Those with replies that wait for the binlog.
    HeldReplies = 1 << 2,
    /// Those with a command that waits for room in the binlog.
    BinlogRoom = 1 << 3,
    /// Those that wait for the list of all tubes.
    AllTubes = 1 << 4,
}

/// The lists in which a connection stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Listed(u8);

impl Listed {
    /// Whether it stands in `list`.
    pub fn has(self, list: List) -> bool {
        self.0 & list as u8 != 0
    }

    /// Enters it into `list`; tells whether it did not stand there.
    pub fn enter(&mut self, list: List) -> bool {
        let is_new = !self.has(list);
        self.0 |= list as u8;
        is_new
    }

    /// It stands in `list` no longer.
    pub fn leave(&mut self, list: List) {
        self.0 &= !(list as u8);
    }
}

/// Appends the client to the `clients` of `list`, unless it stands there.
pub fn enlist(clients: &mut impl Extend<ClientId>, list: List, id: ClientId, listed: &mut Listed) {
    if listed.enter(list) {
        clients.extend([id]);
    }
}

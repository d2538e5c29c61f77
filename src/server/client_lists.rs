//! The server's lists of clients. Each list contains a client at most once.
//!
//! A list contains ids. Each connection knows which lists contain it, so no list has to be searched.

use crate::queue::ClientId;

/// A list of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// Clients that are served in the next turn without an event.
    Turn = 1 << 0,
    /// Clients with replies that may be written to the socket.
    Unsent = 1 << 1,
    /// Clients with replies that wait for the binlog.
    HeldReplies = 1 << 2,
    /// Clients with a command that waits for room in the binlog.
    BinlogRoom = 1 << 3,
    /// Clients that wait for the list of all tubes.
    AllTubes = 1 << 4,
    /// Clients of which it is not known yet who they are.
    LogIn = 1 << 5,
}

/// The lists that contain a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Listed(u8);

impl Listed {
    /// Whether `list` contains it.
    pub fn has(self, list: List) -> bool {
        self.0 & list as u8 != 0
    }

    /// Notes that `list` contains it; returns whether that is new.
    pub fn enter(&mut self, list: List) -> bool {
        let is_new = !self.has(list);
        self.0 |= list as u8;
        is_new
    }

    /// Notes that `list` does not contain it any more.
    pub fn leave(&mut self, list: List) {
        self.0 &= !(list as u8);
    }
}

/// Appends the client to the `clients` of `list`, unless they contain it.
pub fn enlist(clients: &mut impl Extend<ClientId>, list: List, id: ClientId, listed: &mut Listed) {
    if listed.enter(list) {
        clients.extend([id]);
    }
}

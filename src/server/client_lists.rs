//! The server's lists of clients. Each list contains a client at most once.
//!
//! Owns: which list has the clients that wait for an event. A list contains ids. Each connection knows which lists
//! contain it, so no list has to be searched.

use std::collections::VecDeque;

use bitflags::bitflags;

use crate::exchange::Until;
use crate::queue::ClientId;

bitflags! {
    /// Lists of clients: one list, or all lists that contain a connection.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Lists: u8 {
        /// Clients that are served in one of the next turns without another event: in `runnable`, `postponed` or
        /// `handshaking`.
        const SCHEDULED = 1 << 0;
        /// Clients with replies that may be written to the socket.
        const UNSENT = 1 << 1;
        /// Clients with replies that wait for the binlog.
        const UNSETTLED_REPLIES = 1 << 2;
        /// Clients with a command that waits for room in the binlog.
        const BINLOG_ROOM = 1 << 3;
        /// Clients that wait for the list of all tubes.
        const TUBE_LIST = 1 << 4;
        /// Clients that have not been identified yet.
        const LOG_IN = 1 << 5;
    }
}

/// A list whose clients wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitList {
    UnsettledReplies,
    BinlogRoom,
    TubeList,
}

impl WaitList {
    /// All of them, in the order of their numbers.
    pub(crate) const ALL: [Self; 3] = [Self::UnsettledReplies, Self::BinlogRoom, Self::TubeList];

    /// The flag of a connection in the list.
    #[inline]
    pub(crate) fn flag(self) -> Lists {
        match self {
            Self::UnsettledReplies => Lists::UNSETTLED_REPLIES,
            Self::BinlogRoom => Lists::BINLOG_ROOM,
            Self::TubeList => Lists::TUBE_LIST,
        }
    }

    /// The list of the clients with a command that waits for `until`; `None` if another part knows when it continues.
    pub(crate) fn of_those_awaiting(until: Until) -> Option<Self> {
        match until {
            Until::BinlogRoom => Some(Self::BinlogRoom),
            Until::TubeList => Some(Self::TubeList),
            Until::NextTurn | Until::PutPace => None,
        }
    }
}

/// The lists of a server.
#[derive(Debug, Default)]
pub(crate) struct ClientLists {
    /// Connections that can continue without an event: their input has already been read, or their command is not
    /// finished.
    pub runnable: VecDeque<ClientId>,
    /// Connections whose event came in a turn that had no time left for it.
    pub postponed: VecDeque<ClientId>,
    /// Connections whose handshake continues, with an event in this turn or an earlier one.
    pub handshaking: VecDeque<ClientId>,
    pub unsent: Vec<ClientId>,
    /// For each of [`WaitList::ALL`], its clients.
    pub waiting: [Vec<ClientId>; WaitList::ALL.len()],
}

impl ClientLists {
    /// Serves the client in the next turn without an event.
    #[inline]
    pub(crate) fn run(&mut self, id: ClientId, listed: &mut Lists) {
        enlist(&mut self.runnable, Lists::SCHEDULED, id, listed);
    }

    /// Writes the client's replies at the end of the turn.
    #[inline]
    pub(crate) fn send(&mut self, id: ClientId, listed: &mut Lists) {
        enlist(&mut self.unsent, Lists::UNSENT, id, listed);
    }

    /// Adds the client to a list whose clients wait.
    #[inline]
    pub(crate) fn wait(&mut self, list: WaitList, id: ClientId, listed: &mut Lists) {
        enlist(self.waiting(list), list.flag(), id, listed);
    }

    /// The clients in a list whose clients wait.
    #[inline]
    pub(crate) fn waiting(&mut self, list: WaitList) -> &mut Vec<ClientId> {
        &mut self.waiting[list as usize]
    }
}

/// Appends the client to the `clients` of `list`, unless they contain it.
pub(crate) fn enlist(clients: &mut impl Extend<ClientId>, list: Lists, id: ClientId, listed: &mut Lists) {
    if !listed.contains(list) {
        listed.insert(list);
        clients.extend([id]);
    }
}

//! The server's lists of clients. Each list contains a client at most once.
//!
//! A list contains ids. Each connection knows which lists contain it, so no list has to be searched.

use std::collections::VecDeque;

use bitflags::bitflags;

use crate::queue::ClientId;
use crate::session::Until;

bitflags! {
    /// Lists of clients: one of them, or all that contain a connection.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Lists: u8 {
        /// Clients that are served in the next turn without an event.
        const RUNNABLE = 1 << 0;
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

impl Lists {
    /// The list of the clients with a command that waits for `until`; `None` if another part knows when it continues.
    pub(crate) fn of_those_awaiting(until: Until) -> Option<Self> {
        match until {
            Until::BinlogRoom => Some(Self::BINLOG_ROOM),
            Until::TubeList => Some(Self::TUBE_LIST),
            Until::NextTurn | Until::Permitted | Until::Delivery | Until::DeliveryOrInput => None,
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
    pub with_unsettled_replies: Vec<ClientId>,
    pub awaiting_binlog_room: Vec<ClientId>,
    pub awaiting_tube_list: Vec<ClientId>,
}

/// Appends the client to the `clients` of `list`, unless they contain it.
pub(crate) fn enlist(clients: &mut impl Extend<ClientId>, list: Lists, id: ClientId, listed: &mut Lists) {
    if !listed.contains(list) {
        listed.insert(list);
        clients.extend([id]);
    }
}

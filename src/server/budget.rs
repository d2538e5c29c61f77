//! The budgets of one connection and one turn, in simple requests: [`commands`](crate::commands) counts them.

/// The buffer that all connections read into.
pub const READ_BUFFER_BYTES: usize = 256 * 1024;

/// The most that one turn may cost, in simple requests: about a millisecond. A client with an event in a turn that has
/// already cost this much is served in one of the next turns.
pub const TURN_WORK: u64 = 4096;

/// What the connections that go on without an event may cost together in a turn, if that is more than half of what the
/// clients with new input have cost in the turn before: some 64 microseconds, so that a client that sends one command
/// at a time waits little beside clients that never pause.
pub const GOING_ON_WORK: u64 = 256;

/// The most that one turn sends, in bytes: some 200 microseconds. Beyond it, connections with long replies wait for the
/// next turn.
pub const TURN_SENT_BYTES: usize = 256 * 1024;

/// A connection that owes no more than this, in bytes, is sent it in its turn whatever others are sent.
pub const SHORT_REPLIES_BYTES: usize = 16 * 1024;

/// The cost of the end of a connection, in simple requests: the system takes several microseconds to close a socket.
pub const CLOSING_WORK: u64 = 32;

/// How many handshakes go on in a turn, each by one step. The dearest step takes from 0.1 to 1 ms, depending on the key
/// of the certificate.
pub const HANDSHAKES_PER_TURN: usize = 2;

/// The budget of one connection in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// The budget of a client with new input. It suffices for what clients usually send before they wait for the
    /// replies, so that a turn with one read and one write does all of it.
    Burst,
    /// The budget of a client that had more to do than its last turn allowed: about 30 microseconds, so that it
    /// hardly delays the others.
    Sustained,
}

/// A budget in figures.
#[derive(Debug)]
pub struct Limits {
    /// Bytes read, in one call.
    pub read_bytes: usize,
    /// The most that the requests may cost together. A simple request costs 1, which is [`WORK_NS`]. The last request
    /// may exceed the budget.
    pub work: u64,
    /// Bytes sent.
    pub send_bytes: usize,
}

const BURST: Limits = Limits { read_bytes: READ_BUFFER_BYTES, work: 1024, send_bytes: 256 * 1024 };
const SUSTAINED: Limits = Limits { read_bytes: 32 * 1024, work: 128, send_bytes: 48 * 1024 };

impl Budget {
    /// The figures.
    #[inline]
    pub fn limits(self) -> &'static Limits {
        match self {
            Self::Burst => &BURST,
            Self::Sustained => &SUSTAINED,
        }
    }
}

//! The budgets of one connection and one turn, in simple requests: [`commands`](crate::commands) counts them.

/// The size of the buffer into which all connections read.
pub(crate) const READ_BUFFER_BYTES: usize = 256 * 1024;

/// The limit on the cost of one turn, in simple requests: about a millisecond. A client with an event in a turn that
/// has already cost this much is served in one of the next turns.
pub(crate) const TURN_COST: u64 = 4096;

/// The limit on the cost of all connections that continue without an event, in a turn, unless half of the cost of the
/// clients with new input in the previous turn is more. It is about 64 microseconds, so that a client that sends one
/// command at a time waits little beside clients that never pause.
pub(crate) const RUNNABLE_COST: u64 = 256;

/// The limit on the bytes that one turn sends: about 200 microseconds. Beyond it, connections with long replies wait
/// for the next turn.
pub(crate) const TURN_SENT_BYTES: usize = 256 * 1024;

/// A connection with at most this many bytes of replies gets them in its turn, however much is sent to others.
pub(crate) const MAX_SHORT_REPLIES_BYTES: usize = 16 * 1024;

/// The cost of closing a connection, in simple requests: the system needs several microseconds to close a socket.
pub(crate) const CLOSING_COST: u64 = 32;

/// The cost of decrypting a record of TLS, in simple requests.
pub(crate) const RECORD_COST: u64 = 2;

/// How many handshakes advance in a turn, each by one step. The most expensive step takes from 0.1 to 1 ms, depending
/// on the key of the certificate.
pub(crate) const HANDSHAKES_PER_TURN: usize = 2;

/// The budget of one connection in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Budget {
    /// The budget of a client with new input. It is enough for the usual number of commands before a client waits for
    /// the replies, so that a turn with one read and one write does all of it.
    Burst,
    /// The budget of a client that had more work than its last turn allowed: about 30 microseconds, so that it hardly
    /// delays the others.
    Sustained,
}

/// The numbers of a budget.
#[derive(Debug)]
pub(crate) struct BudgetLimits {
    /// Bytes read, in one call.
    pub read_bytes: usize,
    /// The limit on the cost of its requests. A simple request costs 1, which stands for 250 nanoseconds (`REQUEST_NS`
    /// in `executor/cost.rs`). The last request may exceed the budget.
    pub cost: u64,
    /// Bytes sent.
    pub send_bytes: usize,
}

const BURST: BudgetLimits =
    BudgetLimits { read_bytes: READ_BUFFER_BYTES, cost: 1024, send_bytes: 256 * 1024 };
const SUSTAINED: BudgetLimits = BudgetLimits { read_bytes: 32 * 1024, cost: 128, send_bytes: 48 * 1024 };

impl Budget {
    /// The figures.
    #[inline]
    pub(crate) fn limits(self) -> &'static BudgetLimits {
        match self {
            Self::Burst => &BURST,
            Self::Sustained => &SUSTAINED,
        }
    }
}

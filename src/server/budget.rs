//! What one connection, and one turn, may do.

/// The buffer that all connections read into.
pub const READ_BUFFER_BYTES: usize = 256 * 1024;

/// What one turn may cost, in simple requests: a millisecond or so. A client that has an event in a turn that has cost
/// as much already is served in the next one, unless those before it cost as much as that.
pub const TURN_WORK: u64 = 4096;

/// What those may cost together that had more to do than the last turns allowed, so that the rest of the turn is left
/// for clients that come anew.
pub const GOING_ON_WORK: u64 = TURN_WORK / 2;

/// What one connection may do in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// That of a client that comes anew: what clients send at once and then wait for is done in one turn, with
    /// one read and one write.
    Burst,
    /// That of a client that had more to do than the last turn allowed: some 30 microseconds, so that
    /// the others hardly feel it.
    Sustained,
}

/// A budget in figures.
#[derive(Debug)]
pub struct Limits {
    /// Bytes read, in one call.
    pub read_bytes: usize,
    /// What the requests may cost together; a simple one costs 1, some 250 nanoseconds. The last may go beyond it.
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

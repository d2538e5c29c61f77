//! Poll tokens: the receiver of an event.
//!
//! Owns: the encoding of a [`PollToken`] as a number. The lower bits are the index of a client, or one of the other
//! kinds, whose numbers are above every index. The upper bits distinguish receivers of the same kind or index: for a
//! client they are its generation, so that an event for a disconnected client does not reach the next client at its
//! index.
//!
//! A token has as many bits as a pointer. With 64 bits, the whole index and generation fit. With 32 bits, a token has
//! only the lower bits of the generation, and [`is_for`] compares only these. That is enough: an event is handled in
//! the turn in which the poll returned it, and no thousand clients come and go in one turn.

use mio::Token;

use crate::queue::ClientId;

/// The receiver of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollToken {
    /// A client's connection.
    Client(ClientId),
    /// A socket that listens for clients, by its number.
    Listener(u32),
    /// The signals of the process.
    Signals,
    /// The thread that works for the binlog.
    BinlogHelper,
    /// A socket that listens for HTTP, by the number of its site.
    HttpListener(u32),
    /// A connection of HTTP, by its number.
    HttpConnection(u32),
    /// The program in a trial for a hand-over.
    HandOver,
}

/// How many of a token's bits are the index or the kind. 22 bits are enough for twice the two million sockets for which
/// a 32-bit process might have memory.
const KIND_BITS: u32 = if usize::BITS == 64 { 32 } else { 22 };
/// The largest index or kind.
const MAX_KIND: u32 = u32::MAX >> (32 - KIND_BITS);
/// The largest number in the upper bits. The number of a listener or of an HTTP connection must not exceed it.
const MAX_NUMBER: u32 = u32::MAX >> (32 - (usize::BITS - KIND_BITS));

const SIGNALS: u32 = MAX_KIND;
const BINLOG_HELPER: u32 = MAX_KIND - 1;
const LISTENER: u32 = MAX_KIND - 2;
const HTTP_LISTENER: u32 = MAX_KIND - 3;
const HTTP_CONNECTION: u32 = MAX_KIND - 4;
const HAND_OVER: u32 = MAX_KIND - 5;
/// From this number on, the lower bits are not an index.
const MIN_KIND: u32 = MAX_KIND - 15;

/// How many clients can be connected at once. Their indexes stay below twice that number: a client that disconnects
/// with many jobs keeps its index until all of them are released.
pub(crate) const MAX_CLIENTS: usize = 1 << (KIND_BITS - 1);

/// Whether `id`, which [`PollToken::decode`] returned, refers to `client`: the indexes are equal, and so are the
/// generations, in the bits that a token has.
#[must_use]
pub(crate) fn is_for(id: ClientId, client: ClientId) -> bool {
    id.index == client.index && (id.generation ^ client.generation) & MAX_NUMBER == 0
}

impl PollToken {
    /// The receiver of an event with this token; `None` if no such token was registered. A client's generation may have
    /// only its lower bits; see [`is_for`].
    #[must_use]
    pub(crate) fn decode(token: Token) -> Option<Self> {
        let (kind, number) = (token.0 as u32 & MAX_KIND, (token.0 >> KIND_BITS) as u32);
        Some(match kind {
            SIGNALS => Self::Signals,
            BINLOG_HELPER => Self::BinlogHelper,
            LISTENER => Self::Listener(number),
            HTTP_LISTENER => Self::HttpListener(number),
            HTTP_CONNECTION => Self::HttpConnection(number),
            HAND_OVER => Self::HandOver,
            MIN_KIND.. => return None,
            index => Self::Client(ClientId { index, generation: number }),
        })
    }
}

impl From<PollToken> for Token {
    fn from(token: PollToken) -> Self {
        let (kind, number) = match token {
            PollToken::Client(id) => {
                assert!(id.index < MIN_KIND, "the index of a client is below those of other sockets");
                (id.index, id.generation & MAX_NUMBER)
            }
            PollToken::Listener(number) => (LISTENER, number),
            PollToken::Signals => (SIGNALS, 0),
            PollToken::BinlogHelper => (BINLOG_HELPER, 0),
            PollToken::HttpListener(number) => (HTTP_LISTENER, number),
            PollToken::HttpConnection(number) => (HTTP_CONNECTION, number),
            PollToken::HandOver => (HAND_OVER, 0),
        };
        assert_eq!(number & MAX_NUMBER, number, "the number of a socket fits into its bits");
        Self((number as usize) << KIND_BITS | kind as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_token_decodes_to_its_receiver() {
        let client = |index, generation| PollToken::Client(ClientId { index, generation });
        let tokens = [
            client(0, 0),
            client(0, MAX_NUMBER),
            client(MIN_KIND - 1, 7),
            PollToken::Listener(0),
            PollToken::Listener(MAX_NUMBER),
            PollToken::Signals,
            PollToken::BinlogHelper,
            PollToken::HttpListener(1),
            PollToken::HttpConnection(3),
        ];
        for token in tokens {
            assert_eq!(PollToken::decode(token.into()), Some(token));
        }
        assert_eq!(PollToken::decode(Token(MIN_KIND as usize)), None);
    }

    /// The generations here have bits for which a token of 32 bits has no room.
    #[test]
    fn a_token_names_its_client_and_not_the_next_ones_at_its_index() {
        for generation in [0, 1, 1023, 1024, 0x1234_5678, u32::MAX] {
            let client = ClientId { index: 5, generation };
            let Some(PollToken::Client(named)) = PollToken::decode(PollToken::Client(client).into()) else {
                panic!("it is a client's token");
            };
            assert!(is_for(named, client));
            assert!(!is_for(named, ClientId { index: 6, ..client }));
            for later in 1..1024 {
                assert!(!is_for(named, ClientId { generation: generation.wrapping_add(later), ..client }));
            }
        }
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn a_token_of_64_bits_has_the_whole_generation() {
        let client = ClientId { index: 5, generation: 0x8000_0001 };
        assert_eq!(PollToken::decode(PollToken::Client(client).into()), Some(PollToken::Client(client)));
    }
}

//! Poll tokens: which part an event is for.
//!
//! Owns: how a [`PollToken`] is a number. The lower half says what it is: the index of a client, or from the top of
//! the indexes, where no client's index comes near, one of the other kinds. The upper half says which one. So an event
//! that comes late, for a client that is gone, is not taken for one of the next client in its place.

use mio::Token;

use crate::queue::ClientId;

/// Whom an event is for.
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
    /// The socket that listens for HTTP.
    HttpListener,
    /// A connection of HTTP, by its number.
    HttpConnection(u32),
}

const SIGNALS: u32 = u32::MAX;
const BINLOG_HELPER: u32 = u32::MAX - 1;
const LISTENER: u32 = u32::MAX - 2;
const HTTP_LISTENER: u32 = u32::MAX - 3;
const HTTP_CONNECTION: u32 = u32::MAX - 4;
/// From here on an index is no client's.
const FIRST_KIND: u32 = u32::MAX - 15;

impl PollToken {
    /// What an event with this token is for; `None` where nobody has registered such a one.
    #[must_use]
    pub fn decode(token: Token) -> Option<Self> {
        let (kind, number) = (token.0 as u32, (token.0 >> 32) as u32);
        Some(match kind {
            SIGNALS => Self::Signals,
            BINLOG_HELPER => Self::BinlogHelper,
            LISTENER => Self::Listener(number),
            HTTP_LISTENER => Self::HttpListener,
            HTTP_CONNECTION => Self::HttpConnection(number),
            FIRST_KIND.. => return None,
            index => Self::Client(ClientId { index, generation: number }),
        })
    }
}

impl From<PollToken> for Token {
    fn from(token: PollToken) -> Self {
        let (kind, number) = match token {
            PollToken::Client(id) => {
                assert!(id.index < FIRST_KIND, "there are not so many clients");
                (id.index, id.generation)
            }
            PollToken::Listener(number) => (LISTENER, number),
            PollToken::Signals => (SIGNALS, 0),
            PollToken::BinlogHelper => (BINLOG_HELPER, 0),
            PollToken::HttpListener => (HTTP_LISTENER, 0),
            PollToken::HttpConnection(number) => (HTTP_CONNECTION, number),
        };
        Self((number as usize) << 32 | kind as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_token_is_decoded_as_what_it_was_made_of() {
        let client = |index, generation| PollToken::Client(ClientId { index, generation });
        let tokens = [
            client(0, 0),
            client(0, u32::MAX),
            client(FIRST_KIND - 1, 7),
            PollToken::Listener(0),
            PollToken::Listener(u32::MAX),
            PollToken::Signals,
            PollToken::BinlogHelper,
            PollToken::HttpListener,
            PollToken::HttpConnection(3),
        ];
        for token in tokens {
            assert_eq!(PollToken::decode(token.into()), Some(token));
        }
        assert_eq!(PollToken::decode(Token(FIRST_KIND as usize)), None);
    }
}

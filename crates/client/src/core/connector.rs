//! The settings with which connections are opened.
//!
//! Owns: the settings, and what follows from them without a connection. The drivers add the methods that connect.

use std::time::Duration;

use beanstalkd_protocol::Grace;
use beanstalkd_types::tube_name::TubeName;

use super::backoff::Reconnect;
use super::connection_state::ConnectionState;
use super::token::Token;
#[cfg(feature = "tokio")]
use crate::address::Address;
use crate::error::Error;
#[cfg(feature = "tls")]
use crate::tls::Tls;

/// The default of [`Connector::timeout`].
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// The settings with which connections are opened: time-outs, TLS, the log-in, the session, and the reaction to a lost
/// connection.
///
/// A connection whose host disappeared without closing it counts as lost after 90 seconds, also in a reserve without a
/// limit: on TCP connections the system asks an idle peer whether it is there (`SO_KEEPALIVE`). On Linux this is also
/// so if the host disappeared before it had received the command (`TCP_USER_TIMEOUT`), and if a server takes no byte
/// of a command for as long. On other systems the time-out of the system counts then, which can be many minutes.
///
/// ```no_run
/// use beanstalk_client::{Connector, Reconnect, Token};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let connector = Connector::new()
///     .token(Token::parse("secret").expect("visible characters"))
///     .session("worker-7".parse()?, Duration::from_secs(30))
///     .reconnect(Reconnect::new());
/// let mut client = connector.connect(&"queue.example:11300".parse()?)?;
/// # client.stats()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Connector {
    /// How long the connect may take, and how long a command may wait for the next byte to be sent or received; `None`
    /// means no limit. A large body may take longer, while its bytes come. For a reserve, its own wait is added.
    pub timeout: Option<Duration>,
    /// Logs in on each connection with this token.
    pub token: Option<Token>,
    /// Connections to hosts use TLS with these settings.
    #[cfg(feature = "tls")]
    pub tls: Option<Tls>,
    /// Attaches each connection to this session with this grace.
    pub session: Option<(TubeName, Duration)>,
    /// Connects again when a connection is lost; with `None` the connection ends with an error.
    pub reconnect: Option<Reconnect>,
    /// Asks the server for its extensions before the first request that a server without them would misunderstand.
    /// Without this, such a request is only refused if the caller has asked for the extensions or has set them.
    pub check_extensions: bool,
}

impl Default for Connector {
    fn default() -> Self {
        Self::new()
    }
}

impl Connector {
    /// Opens plain connections with time-outs of 60 seconds, and does not connect again.
    pub fn new() -> Self {
        Self::plain(Some(DEFAULT_TIMEOUT))
    }

    /// Opens plain connections with this time-out, and does not connect again.
    pub fn plain(timeout: Option<Duration>) -> Self {
        Self {
            timeout,
            token: None,
            #[cfg(feature = "tls")]
            tls: None,
            session: None,
            reconnect: None,
            check_extensions: true,
        }
    }

    /// How long the connect, and the wait for the next byte, may take; `None` means no limit. The connect includes the
    /// resolution of the host's name and the handshake of TLS; without tokio, the system's resolver may take longer.
    #[must_use]
    pub fn timeout(self, timeout: Option<Duration>) -> Self {
        Self { timeout, ..self }
    }

    /// Logs in on each connection.
    #[must_use]
    pub fn token(self, token: Token) -> Self {
        Self { token: Some(token), ..self }
    }

    /// Connections to hosts use TLS.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(self, tls: Tls) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// Attaches each connection to the session with this name, with this grace of at most an hour. Two connections
    /// cannot share a session: a worker adds the numbers of its slots to the name, and the connections of a
    /// [`Pool`](crate::Pool) have none.
    #[must_use]
    pub fn session(self, name: TubeName, grace: Duration) -> Self {
        Self { session: Some((name, grace)), ..self }
    }

    /// Connects again when a connection is lost, and restores its state: log-in, session, used tube, watched tubes with
    /// their weights, mode, fields. [`Repeat`](crate::Repeat) defines which commands are sent again.
    #[must_use]
    pub fn reconnect(self, reconnect: Reconnect) -> Self {
        Self { reconnect: Some(reconnect), ..self }
    }

    /// The same settings with a separate session for the connection with this number.
    pub(crate) fn numbered(&self, number: usize) -> Result<Self, Error> {
        let mut connector = self.clone();
        if let Some((name, _)) = &mut connector.session {
            let numbered = format!("{}-{number}", name.as_str());
            let rule = "the name of a session has at most 200 bytes, with the number of its slot";
            *name = numbered.parse().map_err(|_| Error::Invalid(rule))?;
        }
        Ok(connector)
    }

    /// The connector of a pool: its connections have no session, because none of them keeps a job.
    pub(crate) fn for_pool(mut self) -> Self {
        self.session = None;
        // A connection that was unused for long may be lost; then a new one is tried once.
        self.reconnect.get_or_insert(Reconnect::new().give_up_after(Duration::ZERO));
        self
    }

    /// Whether connections to this address use TLS.
    #[cfg(feature = "tokio")]
    pub(crate) fn uses_tls(&self, address: &Address) -> bool {
        #[cfg(feature = "tls")]
        let has_tls = self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        let has_tls = false;
        has_tls && matches!(address, Address::Tcp { .. })
    }

    /// The state that a new connection begins with.
    pub(crate) fn first_state(&self) -> Result<ConnectionState, Error> {
        let session = match &self.session {
            None => None,
            Some((name, grace)) => Some((name.clone(), grace_of(*grace)?)),
        };
        Ok(ConnectionState::new(self.token.clone(), session))
    }
}

/// The grace of a session, for `session`.
///
/// # Errors
/// If it is too long.
pub(crate) fn grace_of(time: Duration) -> Result<Grace, Error> {
    let grace = u64::try_from(time.as_millis()).ok().and_then(Grace::from_ms);
    grace.ok_or(Error::Invalid("the grace of a session is at most 1 hour"))
}

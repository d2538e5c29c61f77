//! HTTP: metrics for Prometheus, health checks for supervisors, the status page, and the administration page with its
//! API.
//!
//! Owns: everything that speaks HTTP, at two sites: `--metrics` and `--admin`. `exchange` has the requests and
//! responses of one connection over bytes, `request` the head of a request, `prometheus` the metrics, and `page` the
//! status page beside them. At the other site, `access` has the access rules, `api` the paths, `tube_query` the choice
//! of tubes in a request, and `app` the page. `page` also reads from `api`. `rendering` is for metrics and lists of
//! tubes, and `history` has the samples for the plots. These parts are pure. `server` has the connections, which the
//! event loop drives. `startup_health` has a thread that answers before the loop runs. HTTP never changes the queue: it
//! reads the same views as the stats commands of the protocol, and hands orders to the server, which carries them out
//! in its turns with the same calls as for a client.
//!
//! # How a scrape is bounded
//!
//! A turn of the loop does at most one slice of work for all HTTP connections together. A slice is one of these:
//!
//! - copy the figures of [`snapshot::TUBES_PER_SLICE`] tubes. All series of a tube therefore have the same instant, and
//!   no later slice reads the queue;
//! - write about [`SLICE_BYTES`] of text from those copies.
//!
//! A slice takes tens of microseconds. A scrape of 20,000 tubes takes some hundreds of slices, and between two slices
//! the server does all the work of the protocol. The next slice is rendered when the socket has taken the previous one,
//! so a connection never holds more than one slice of output. The response is sent in chunks, because its length is not
//! known when it begins. No tube appears twice, even if it is removed and made again during the scrape. A tube that
//! moves to the place of a removed tube in the list may be missing from one scrape.

pub mod access;
mod api;
mod app;
mod exchange;
mod followed;
mod history;
pub mod host;
mod page;
mod prometheus;
mod rendering;
mod request;
mod server;
pub mod snapshot;
mod startup_health;
mod tube_query;

use std::fmt::{self, Write};

pub use self::exchange::HttpExchange;
pub use self::history::SampleHistory;
pub use self::server::{HttpServer, MAX_CONNECTIONS};
pub use self::startup_health::StartupHealth;

use self::access::{Access, RequestRefusal};
use self::request::HttpRequest;
use crate::clock::Timestamp;
use crate::orders::Tasks;
use crate::os::Usage;
use crate::queue::ClientId;
use crate::stats::{ClientView, ServerView};

/// The size of a slice of text, in bytes: large enough to keep a socket busy, and too small to delay clients.
pub const SLICE_BYTES: usize = 32 * 1024;

/// The data from which responses are made.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    /// The server's figures.
    pub server: ServerView<'a>,
    /// Asks the system which resources the process uses; the argument is roughly the number of open descriptors. It is
    /// called once for each response.
    pub usage: fn(usize) -> Usage,
    /// The samples of the last minutes.
    pub history: &'a SampleHistory,
    /// The address at which HTTP is served.
    pub address: HttpAddress<'a>,
    /// The site at this address.
    pub site: &'a Site,
    /// The server's tasks for the API.
    pub tasks: &'a Tasks,
    /// The connected clients.
    pub clients: &'a LookUpClient<'a>,
}

/// The site of a listener, with its settings.
#[derive(Debug)]
pub enum Site {
    /// Metrics, health checks, and a page that cannot change anything. The number is the maximum of tubes with their
    /// own series.
    Metrics(usize),
    /// The API and its page.
    Admin(Access),
}

/// Looks up a client with its connection; `None` if it has disconnected.
pub type LookUpClient<'a> = dyn Fn(ClientId, Timestamp) -> Option<ClientView<'a>> + 'a;

impl Site {
    /// The access rules of the site's API.
    fn access(&self) -> &Access {
        match self {
            Self::Metrics(_) => &Access { token: None, is_read_only: true },
            Self::Admin(access) => access,
        }
    }

    /// The option of the command line that opens the site.
    fn option(&self) -> &'static str {
        match self {
            Self::Metrics(_) => "--metrics",
            Self::Admin(_) => "--admin",
        }
    }
}

/// The address at which HTTP is served.
#[derive(Clone, Copy, Debug)]
pub enum HttpAddress<'a> {
    /// On a unix socket.
    Unix,
    /// On a TCP port; the text is the host that the command line names.
    Tcp(Option<&'a str>),
}

impl Sources<'_> {
    /// Whether the request is for the API.
    fn is_api_request(&self, request: &HttpRequest) -> bool {
        match self.site {
            Site::Metrics(_) => page::API_PATHS.contains(&request.path.as_str()),
            Site::Admin(_) => request.path.starts_with("/api/"),
        }
    }

    /// Checks whether the API may answer the request.
    fn check_access(&self, request: &HttpRequest) -> Result<(), RequestRefusal> {
        self.site.access().check(request, self)
    }

    /// Whether `name`, without a port, is a name of this server: the name of its machine, or the host that the command
    /// line names.
    fn has_name(&self, name: &str) -> bool {
        match self.address {
            // A browser cannot connect to a unix socket.
            HttpAddress::Unix => true,
            HttpAddress::Tcp(host) => {
                let hostname = self.server.info.hostname.as_str();
                name.eq_ignore_ascii_case(hostname)
                    || host.is_some_and(|host| name.eq_ignore_ascii_case(host))
            }
        }
    }
}

/// The phase of the server.
#[derive(Clone, Copy)]
pub enum ServerPhase<'a, Data = &'a Sources<'a>> {
    /// The server does not serve yet; the text is the reason.
    Starting(&'a str),
    /// The server serves, and has this data.
    Serving(Data),
}

fn put(out: &mut String, text: fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a write to a string does not fail");
}

#[cfg(test)]
mod tests;

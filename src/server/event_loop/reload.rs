//! What SIGHUP reads again while the server runs.
//!
//! Owns: the order of a reload. Everything is read and checked before anything is replaced, so what is bad leaves all
//! as it was. Connections stay: those that exist keep what they began with. Driven by the loop.

use std::rc::Rc;

use log::{error, info, warn};

use crate::access::Rules;
use crate::os;
use crate::server::{Server, Stream};
use crate::tls::{Acceptor, Files};

/// What can be read again.
#[derive(Default)]
pub struct Reload {
    /// The certificates and keys, and the acceptor that uses them.
    pub tls: Option<(Files, Rc<Acceptor>)>,
    /// Reads the access rules; the error says what is wrong.
    pub access: Option<Box<ReadRules>>,
}

/// Reads the access rules; the error says what is wrong.
pub type ReadRules = dyn Fn() -> Result<Rules, String>;

impl Reload {
    /// What connections with TLS begin with.
    pub(super) fn acceptor(&self) -> Option<&Rc<Acceptor>> {
        self.tls.as_ref().map(|(_, acceptor)| acceptor)
    }

    /// Reads everything again, and uses it if all of it is good.
    pub(super) fn carry_out<S: Stream>(&self, server: &mut Server<S>) {
        if self.tls.is_none() && self.access.is_none() {
            info!("SIGHUP: there is nothing to read again: this server uses neither TLS nor --access");
            return;
        }
        let credentials =
            self.tls.as_ref().map(|(files, _)| files.load(os::clock::wall_time_ns())).transpose();
        let credentials = credentials.map_err(|error| error.to_string());
        let all = credentials
            .and_then(|credentials| Ok((credentials, self.access.as_ref().map(|read| read()).transpose()?)));
        let (credentials, rules) = match all {
            Ok(all) => all,
            Err(error) => {
                error!("SIGHUP: nothing was changed: {error}");
                return;
            }
        };
        if let (Some(credentials), Some((_, acceptor))) = (credentials, &self.tls) {
            for warning in &credentials.warnings {
                warn!("{warning}");
            }
            acceptor.replace(credentials);
            info!("SIGHUP: the certificates were read again; new connections use them");
        }
        if let Some(rules) = rules {
            server.replace_rules(rules);
            info!("SIGHUP: the access rules were read again; they count from the next command on");
        }
    }
}

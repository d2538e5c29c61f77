//! The files that SIGHUP reloads while the server runs.
//!
//! Owns: the order of a reload. Each file is checked before it replaces the old settings, and a bad file leaves them as
//! they were. Connections stay open, except those whose certificate is no longer accepted. Driven by the loop.

use std::rc::Rc;

use log::{error, info, warn};

use crate::access::AccessRules;
use crate::clock::Timestamp;
use crate::log_setup::Count;
use crate::os;
use crate::queue::TubeRule;
use crate::server::Server;
use crate::stream::Stream;
use crate::tls::{Acceptor, CredentialFiles};

/// The files that can be reloaded.
#[derive(Default)]
pub struct Reload {
    /// The certificates and keys, and the acceptor that uses them.
    pub tls: Option<(CredentialFiles, Rc<Acceptor>)>,
    /// Reads the access rules; the error describes what is wrong.
    pub access: Option<Box<ReadRules>>,
    /// Reads the rules for tubes; the error describes what is wrong.
    pub tubes: Option<Box<ReadTubeRules>>,
}

/// Reads the access rules; the error describes what is wrong.
pub type ReadRules = dyn Fn() -> Result<AccessRules, String>;

/// Reads the rules for tubes; the error describes what is wrong.
pub type ReadTubeRules = dyn Fn() -> Result<Vec<TubeRule>, String>;

impl Reload {
    /// The acceptor for connections with TLS.
    pub(super) fn acceptor(&self) -> Option<&Rc<Acceptor>> {
        self.tls.as_ref().map(|(_, acceptor)| acceptor)
    }

    /// Reads all files again, and uses the good ones. A bad file leaves its settings as they were, and does not delay
    /// the others: files that revoke rights must not wait for others.
    pub(super) fn carry_out<S: Stream>(&self, server: &mut Server<S>, now: Timestamp) {
        if self.tls.is_none() && self.access.is_none() && self.tubes.is_none() {
            info!("SIGHUP: nothing to read again: this server has no TLS, no --access and no --tubes");
            return;
        }
        if let Some((files, acceptor)) = &self.tls {
            let (credentials, errors) = files.reload(&acceptor.credentials(), os::clock::wall_time_ns());
            for warning in &credentials.warnings {
                warn!("{warning}");
            }
            for error in &errors {
                error!("SIGHUP: refused {error}; the previous contents of this file stay in force");
            }
            acceptor.replace(credentials);
            server.recheck_certificates();
            if errors.is_empty() {
                info!("SIGHUP: the certificates were read again; new connections use them");
            } else {
                info!(
                    "SIGHUP: of the certificate with its key, the authorities and the revocation lists, new \
                     connections use those that were not refused"
                );
            }
        }
        match self.access.as_ref().map(|read| read()) {
            None => {}
            Some(Err(error)) => error!("SIGHUP: refused {error}; the previous rules stay in force"),
            Some(Ok(rules)) => {
                server.replace_rules(rules, now);
                info!("SIGHUP: the access rules were read again; they apply from the next command on");
            }
        }
        match self.tubes.as_ref().map(|read| read()) {
            None => {}
            Some(Err(error)) => error!("SIGHUP: refused {error}; the previous rules for tubes stay in force"),
            Some(Ok(rules)) => {
                info!(
                    "SIGHUP: {} for tubes read again; they apply from now on",
                    Count(rules.len() as u64, "rule")
                );
                server.executor_mut().set_tube_rules(rules, now);
            }
        }
    }
}

//! The start of TLS: the certificates and keys on the command line.

use beanstalkd::options::{ExitReason, Options, TlsFiles};
use beanstalkd::server::event_loop::Reload;
use beanstalkd::tls::{Acceptor, CredentialFiles};
use beanstalkd_os as os;
use log::{error, warn};

use super::path_advice::advice;

/// Reads the files, if there are any, and returns what SIGHUP reads again.
pub fn load(options: &Options) -> Result<Reload, ExitReason> {
    let Some(TlsFiles { certificate, key, client_ca, crl }) = options.listen.tls.clone() else {
        return Ok(Reload::default());
    };
    let files = CredentialFiles { certificate, key, client_ca, crl };
    let credentials = files.load(os::clock::wall_time_ns()).map_err(|error| {
        let cause = error.unreadable().map(|(path, error)| advice(path, error));
        error!("{error}{}", cause.unwrap_or_default());
        ExitReason::Usage
    })?;
    for warning in &credentials.warnings {
        warn!("{warning}");
    }
    Ok(Reload { tls: Some((files, Acceptor::new(credentials))), ..Reload::default() })
}

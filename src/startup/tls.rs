//! The start of TLS: the certificates and keys on the command line.

use beanstalkd::options::{ExitReason, Options};
use beanstalkd::server::event_loop::Reload;
use beanstalkd::tls::{Acceptor, CredentialFiles};
use beanstalkd_os as os;
use log::{error, warn};

use super::path_advice::advice;

/// Reads the files, if there are any, and returns what SIGHUP reads again.
pub fn load(options: &Options) -> Result<Reload, ExitReason> {
    let (Some(certificate), Some(key)) = (&options.tls.certificate, &options.tls.key) else {
        return Ok(Reload::default());
    };
    let files = CredentialFiles {
        certificate: certificate.clone(),
        key: key.clone(),
        client_ca: options.tls.client_ca.clone(),
        crl: options.tls.crl.clone(),
    };
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

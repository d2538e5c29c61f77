//! The start of the API: its token, and the addresses that it may use.
//!
//! Owns: the rule that without a token only this machine can connect. Driven by `startup`.

use std::error::Error;
use std::io;
use std::path::Path;

use beanstalkd::http::Site;
use beanstalkd::http::access::Access;
use beanstalkd::options::{AdminOptions, ExitReason, Options};
use beanstalkd::server::event_loop::EventLoop;
use beanstalkd::token::{MAX_API_BYTES, TokenHash};
use beanstalkd_os::listen::Listener;
use beanstalkd_os::secret_file;
use log::{error, info, warn};

use super::path_advice::advice;
use super::{Sockets, host};

/// The settings of the API until the loop runs.
pub struct Admin {
    access: Access,
    listener: Option<Listener>,
}

impl Admin {
    /// Reads the token, for which only root may have the permission.
    pub fn new(options: &Options) -> Result<Self, ExitReason> {
        let access = match &options.admin {
            None => Access::default(),
            Some(AdminOptions { token_file, is_read_only, .. }) => {
                let token = token_file.as_deref().map(read_token).transpose()?;
                Access { token, is_read_only: *is_read_only }
            }
        };
        Ok(Self { access, listener: None })
    }

    /// Listens, if the command line has an address.
    pub fn listen(&mut self, options: &Options, sockets: &mut Sockets) -> Result<(), ExitReason> {
        let Some(AdminOptions { address, .. }) = &options.admin else { return Ok(()) };
        let listener = sockets.listen_on(&format!("--admin {address}"), address)?;
        if self.access.token.is_none() && !listener.is_local() {
            error!(
                "--admin {address}: other machines can connect to {} and could delete every job: add a token with \
                 --admin-token-file FILE, or use a loopback address such as 127.0.0.1, or unix:PATH",
                listener.address()
            );
            return Err(ExitReason::Usage);
        }
        info!("serving administration on {}", listener.address());
        self.listener = Some(listener);
        Ok(())
    }

    /// Takes over the listener of another program.
    pub fn take_over(&mut self, listener: Option<Listener>) {
        self.listener = listener;
    }

    /// Serves in the loop, if there is a listener.
    pub fn serve(self, event_loop: &mut EventLoop, options: &Options) -> io::Result<()> {
        match (self.listener, &options.admin) {
            (Some(listener), Some(AdminOptions { address, .. })) => {
                event_loop.serve_http(listener, host(address), Site::Admin(self.access))
            }
            _ => Ok(()),
        }
    }
}

/// The token in a file; white space around it is ignored.
fn read_token(path: &Path) -> Result<TokenHash, ExitReason> {
    let refuse = |error: &dyn Error, cause: &str| {
        error!("--admin-token-file {}: {error}{cause}", path.display());
        ExitReason::Usage
    };
    let file =
        secret_file::read(path, 2 * MAX_API_BYTES).map_err(|error| refuse(&error, &advice(path, &error)))?;
    if file.is_readable_by_all {
        warn!("--admin-token-file {}: everybody on this machine can read it (chmod o-r)", path.display());
    }
    TokenHash::of_text(&file.bytes, MAX_API_BYTES).map_err(|error| refuse(&error, ""))
}

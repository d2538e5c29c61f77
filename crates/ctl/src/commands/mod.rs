//! The subcommands, a module for each group of them, and the servers that the command line names.

pub mod act;
pub mod change;
pub mod clients;
pub mod confirm;
pub mod flush;
pub mod jobs;
pub mod pace;
pub mod put;
pub mod reserve;
pub mod rules;
pub mod stats;
pub mod tube_actions;
pub mod tubes;
pub mod wait;
pub mod watch;
pub mod why;

use std::collections::BTreeMap;

use beanstalk_client::{Address, Connector, Tls, Token};

use crate::cli::GlobalOptions;
use crate::failure::{Failure, OfFile, Result};
use crate::opening::Opening;
use crate::output::{Output, say};
use crate::server::Server;

/// The variable with a token. There is no such option, because every user of the machine sees the arguments of a
/// program.
const TOKEN: &str = "BEANSTALKD_TOKEN";

/// The servers that the command line names, and how to connect to them.
pub struct ServerArguments {
    addresses: Vec<Address>,
    connector: Connector,
}

impl ServerArguments {
    /// The servers of these options.
    pub fn new(options: &GlobalOptions) -> Result<Self> {
        Ok(Self { addresses: options.server.clone(), connector: connector(options)? })
    }

    /// The addresses, in the order of the command line.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Connects to all servers at the same time.
    fn open(&self) -> Opening {
        Opening::new(&self.addresses, &self.connector)
    }

    /// Calls `each` with each connected server, in the order of [`Opening`], and flushes the output after it. If it
    /// fails for one of several servers, reports that and continues with the others; the failure at the end has the
    /// exit code of the first failed server on the command line. A closed output ends it, unless `changes` says that it
    /// changes the servers.
    pub fn each(
        &self,
        changes: bool,
        out: &mut Output,
        mut each: impl FnMut(&mut Server, &mut Output) -> Result,
    ) -> Result {
        let (mut codes, mut printed) = (BTreeMap::new(), Ok(()));
        for (position, opened) in self.open() {
            let done = opened.and_then(|mut server| {
                let done = each(&mut server, out);
                done.map_err(|failure| self.name(failure, &server.address))
            });
            match done.and_then(|()| out.flush()) {
                Err(Failure::OutputClosed) => {
                    printed = Err(Failure::OutputClosed);
                    if !changes {
                        break;
                    }
                }
                Err(failure) if self.addresses.len() == 1 => return Err(failure),
                Err(failure) => {
                    say(&failure.to_string());
                    codes.insert(position, failure.code());
                }
                Ok(()) => {}
            }
        }
        codes.first_key_value().map_or(printed, |(_, code)| Err(Failure::Reported(*code)))
    }

    /// Waits until one of the servers is connected, and returns it in its position; the failure of the first server if
    /// none can be connected.
    pub fn open_some(&self) -> Result<Vec<Option<Server>>> {
        let mut servers: Vec<Option<Server>> = self.addresses.iter().map(|_| None).collect();
        let mut failures = BTreeMap::new();
        for (position, opened) in self.open() {
            match opened {
                Ok(server) => {
                    servers[position] = Some(server);
                    return Ok(servers);
                }
                Err(failure) => drop(failures.insert(position, failure)),
            }
        }
        failures.pop_first().map_or(Ok(servers), |(_, failure)| Err(failure))
    }

    /// Adds the address to the failure if there are several servers.
    fn name(&self, failure: Failure, address: &Address) -> Failure {
        if self.addresses.len() == 1 { failure } else { failure.while_doing(&address.to_string()) }
    }

    /// Connects to the only server; [`Failure::Usage`] if there are several.
    pub fn one(&self) -> Result<Server> {
        Server::open(self.address()?, &self.connector)
    }

    /// The address of the only server; [`Failure::Usage`] if there are several.
    pub fn address(&self) -> Result<&Address> {
        match self.addresses.as_slice() {
            [address] => Ok(address),
            several => Err(Failure::Usage(format!("this command needs one --server, not {}", several.len()))),
        }
    }

    /// The settings for connections to them.
    pub fn connector(&self) -> &Connector {
        &self.connector
    }
}

/// The failure of a command that has found nothing on the servers that answered. If some did not answer, it may be on
/// these.
fn nothing_matched(servers: Result, what: &str) -> Result {
    match servers {
        Ok(()) => Err(Failure::NothingMatched(what.to_owned())),
        Err(Failure::Reported(code)) => {
            say(&format!("{what} on the other servers"));
            Err(Failure::Reported(code))
        }
        failed => failed,
    }
}

/// The settings for connections, from the command line.
fn connector(options: &GlobalOptions) -> Result<Connector> {
    let mut connector = Connector::plain(Some(options.timeout));
    // Each command asks for the extensions that it uses, and reports what it cannot do without them.
    connector.check_extensions = false;
    if options.tls {
        let identity = options.cert.as_deref().zip(options.key.as_deref());
        let tls = Tls::new(options.ca.as_deref(), identity);
        connector.tls = Some(tls.map_err(|error| Failure::Usage(error.to_string()))?);
    }
    let token = |text: &str, place: &dyn std::fmt::Display| {
        Token::parse(text).ok_or_else(|| {
            Failure::Usage(format!("{place}: this is not a token: it has visible ASCII characters only"))
        })
    };
    connector.token = match (&options.token_file, std::env::var_os(TOKEN)) {
        (Some(path), _) => {
            let text = std::fs::read_to_string(path).of_file(path)?;
            Some(token(&text, &path.display())?)
        }
        (None, Some(text)) if !text.is_empty() => Some(token(&text.to_string_lossy(), &TOKEN)?),
        (None, _) => None,
    };
    Ok(connector)
}

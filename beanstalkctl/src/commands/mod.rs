//! The subcommands, a module for each group of them.

pub mod act;
pub mod batch;
pub mod confirm;
pub mod flush;
pub mod jobs;
pub mod put;
pub mod relocate;
pub mod reserve;
pub mod stats;
pub mod tube_actions;
pub mod tubes;
pub mod watch;

use crate::cli::{Cli, Command};
use crate::failure::Failure;
use crate::interrupt;
use crate::output::Output;
use crate::session::Session;
use crate::{top, transfer, work};
use beanstalk_client::{Address, Connector, Tls, Token};

/// The servers that the command line names, and how to connect to them.
pub struct Servers {
    addresses: Vec<Address>,
    connector: Connector,
}

impl Servers {
    /// Opens a session with each server.
    pub fn all(&self) -> Result<Vec<Session>, Failure> {
        self.addresses.iter().map(|address| Session::open(address, &self.connector)).collect()
    }

    /// Opens a session with the only server; [`Failure::Usage`] if there are several.
    pub fn one(&self) -> Result<Session, Failure> {
        Session::open(self.address()?, &self.connector)
    }

    /// The address of the only server; [`Failure::Usage`] if there are several.
    pub fn address(&self) -> Result<&Address, Failure> {
        match self.addresses.as_slice() {
            [address] => Ok(address),
            several => Err(Failure::Usage(format!("this command needs one --server, not {}", several.len()))),
        }
    }

    /// How to connect to them.
    pub fn connector(&self) -> &Connector {
        &self.connector
    }
}

/// How the command line says to connect.
fn connector(cli: &Cli) -> Result<Connector, Failure> {
    let mut connector = Connector::plain(Some(cli.timeout));
    if let Some(ca) = cli.ca.as_deref().filter(|_| cli.tls) {
        let identity = cli.cert.as_deref().zip(cli.key.as_deref());
        connector.tls = Some(Tls::new(ca, identity).map_err(|error| Failure::Usage(error.to_string()))?);
    }
    if let Some(path) = &cli.token_file {
        let text = std::fs::read_to_string(path).map_err(|error| Failure::file(path, &error))?;
        let token = Token::parse(&text);
        connector.token =
            Some(token.ok_or_else(|| Failure::Usage(format!("{}: this is no token", path.display())))?);
    }
    Ok(connector)
}

/// Executes the subcommand.
pub fn run(cli: Cli) -> Result<(), Failure> {
    let servers = Servers { connector: connector(&cli)?, addresses: cli.server };
    let mut output = Output::new(cli.json);
    let out = &mut output;
    interrupt::install()?;
    let done = match cli.command {
        Command::Stats { tube } => stats::run(&servers, tube.as_ref(), out),
        Command::Tubes(arguments) => tubes::run(&servers, &arguments, out),
        Command::Jobs(arguments) => jobs::list(&mut servers.one()?, &arguments, out),
        Command::Job { ids } => jobs::show(&mut servers.one()?, &ids, out),
        Command::Peek(arguments) => jobs::peek(&mut servers.one()?, &arguments, out),
        Command::Put(arguments) => put::run(&mut servers.one()?, &arguments, out),
        Command::Reserve(arguments) => reserve::run(servers.one()?, &arguments, out),
        Command::Delete(on) => act::run(&mut servers.one()?, act::Action::Delete, &on, out),
        Command::Kick(on) => act::run(&mut servers.one()?, act::Action::Kick, &on, out),
        Command::Bury(on) => act::run(&mut servers.one()?, act::Action::Bury, &on, out),
        Command::Release { on, priority, delay } => {
            let action = act::Action::Release { pri: priority, delay: delay.seconds };
            act::run(&mut servers.one()?, action, &on, out)
        }
        Command::Move { on, to } => act::run(&mut servers.one()?, act::Action::Move(to), &on, out),
        Command::Reprioritize { on, priority } => {
            act::run(&mut servers.one()?, act::Action::Reprioritize(priority), &on, out)
        }
        Command::Pause { tubes, time } => tube_actions::pause(&mut servers.one()?, &tubes, time, out),
        Command::Resume(tubes) => tube_actions::pause(&mut servers.one()?, &tubes, 0, out),
        Command::Flush { tubes, buried } => flush::run(&mut servers.one()?, &tubes, buried, out),
        Command::Drain => tube_actions::drain(&servers, true, out),
        Command::Undrain => tube_actions::drain(&servers, false, out),
        Command::Watch { tubes, interval } => watch::run(&servers, &tubes, interval, out),
        Command::Top { interval } => top::run(&servers, interval),
        Command::Work(arguments) => work::run(&servers, &arguments),
        Command::Export(arguments) => transfer::export::run(&mut servers.one()?, &arguments, out),
        Command::Import(arguments) => transfer::import::run(&mut servers.one()?, &arguments, out),
    };
    output.flush()?;
    done
}

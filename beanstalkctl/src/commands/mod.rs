//! One module for each group of subcommands.

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
use beanstalk_client::Address;
use std::time::Duration;

/// The servers that the command line names, and how to reach them.
pub struct Servers {
    addresses: Vec<Address>,
    timeout: Duration,
}

impl Servers {
    /// A session with each.
    pub fn all(&self) -> Result<Vec<Session>, Failure> {
        self.addresses.iter().map(|address| Session::open(address, self.timeout)).collect()
    }

    /// A session with the only one.
    pub fn one(&self) -> Result<Session, Failure> {
        Session::open(self.address()?, self.timeout)
    }

    /// The only one.
    pub fn address(&self) -> Result<&Address, Failure> {
        match self.addresses.as_slice() {
            [address] => Ok(address),
            several => Err(Failure::Usage(format!("this command takes one --server, not {}", several.len()))),
        }
    }

    /// How long a server may take to answer.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }
}

/// Does what the command line says.
pub fn run(cli: Cli) -> Result<(), Failure> {
    let servers = Servers { addresses: cli.server, timeout: cli.timeout };
    let mut output = Output::new(cli.json);
    let out = &mut output;
    interrupt::install(work::end_commands)?;
    let done = match cli.command {
        Command::Stats { tube } => stats::run(&servers, tube.as_ref(), out),
        Command::Tubes(arguments) => tubes::run(&servers, &arguments, out),
        Command::Jobs(arguments) => jobs::list(&mut servers.one()?, &arguments, out),
        Command::Job { ids } => jobs::show(&mut servers.one()?, &ids, out),
        Command::Peek(arguments) => jobs::peek(&mut servers.one()?, &arguments, out),
        Command::Put(arguments) => put::run(&mut servers.one()?, &arguments, out),
        Command::Reserve(arguments) => reserve::run(&mut servers.one()?, &arguments, out),
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

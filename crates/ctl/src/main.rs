//! beanstalkctl: the command-line client of beanstalkd, for operators and scripts.
//!
//! The flow: [`cli`] parses the command line, this file calls the subcommand for the connected [`server`], [`output`]
//! prints the result, and a [`failure`] becomes the exit code.
//!
//! | module | contents |
//! |---|---|
//! | [`cli`] | the command line, its help, its completions |
//! | [`commands`] | the subcommands, except the subcommands below; some that are alike share a file |
//! | [`top`] | `top`: the live view |
//! | [`transfer`] | `export` and `import` |
//! | [`worker`] | `work`: a command for each job |
//! | [`server`], [`opening`] | a connected server, its extensions and its tubes; connecting to several |
//! | [`listing`] | the jobs that a filter matches |
//! | [`group_order`] | which jobs wait for the groups of others |
//! | [`input`] | ids, bodies and lines from the command line and from standard input |
//! | [`output`], [`progress`] | tables, JSON, messages and the progress of long actions |
//! | [`interrupt`] | Ctrl-C, SIGTERM and SIGHUP |
//! | [`failure`] | the reasons for a failure, and their exit codes |

mod cli;
mod commands;
mod failure;
mod group_order;
mod input;
mod interrupt;
mod listing;
mod opening;
mod output;
mod progress;
mod server;
mod top;
mod transfer;
mod worker;

use std::process::ExitCode;

use beanstalk_client::Seconds;
use clap::Parser;

use self::cli::{Cli, CtlCommand};
use self::commands::{
    ServerArguments, act, change::JobChange, clients, flush, jobs, put, reserve, rules, stats, tube_actions,
    tubes, wait, watch, why,
};
use self::failure::{Failure, Result};
use self::output::Output;

fn main() -> ExitCode {
    if worker::is_guard() {
        return worker::guard();
    }
    if let Some(directory) = cli::generated::directory() {
        return cli::generated::run(&directory);
    }
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !matches!(failure, Failure::OutputClosed | Failure::Reported(_)) {
                output::say(&failure.to_string());
            }
            ExitCode::from(failure.code())
        }
    }
}

/// Executes the subcommand.
fn run(cli: Cli) -> Result {
    let servers = ServerArguments::new(&cli.options)?;
    let mut output = Output::new(cli.options.json);
    let out = &mut output;
    interrupt::install()?;
    let done = match cli.command {
        CtlCommand::Stats { tube } => stats::run(&servers, tube.as_ref(), out),
        CtlCommand::Tubes(arguments) => tubes::run(&servers, &arguments, out),
        CtlCommand::Jobs(arguments) => jobs::list(&mut servers.one()?, &arguments, out),
        CtlCommand::Job { ids } => jobs::show(&mut servers.one()?, &input::ids(&ids)?, out),
        CtlCommand::Why { ids } => why::run(&mut servers.one()?, &input::ids(&ids)?, out),
        CtlCommand::Wait { ids, time } => wait::run(&mut servers.one()?, &input::ids(&ids)?, time, out),
        CtlCommand::Rules(arguments) => rules::run(&mut servers.one()?, &arguments, out),
        CtlCommand::Peek(arguments) => jobs::peek(&mut servers.one()?, &arguments, out),
        CtlCommand::Put(arguments) => put::run(&mut servers.one()?, &arguments, out),
        CtlCommand::Reserve(arguments) => reserve::run(servers.one()?, &arguments, out),
        CtlCommand::Delete(on) => act::run(&mut servers.one()?, JobChange::Delete, &on, out),
        CtlCommand::Kick(on) => act::run(&mut servers.one()?, JobChange::Kick, &on, out),
        CtlCommand::Bury(on) => act::run(&mut servers.one()?, JobChange::Bury, &on, out),
        CtlCommand::Release { on, priority, delay } => {
            let mut server = servers.one()?;
            let delay = server.time("--delay", delay);
            act::run(&mut server, JobChange::Release { pri: priority, delay }, &on, out)
        }
        CtlCommand::Move { on, to } => act::run(&mut servers.one()?, JobChange::Move(to), &on, out),
        CtlCommand::Redrive(arguments) => {
            let (on, rate) = arguments.on();
            act::run(&mut servers.one()?, JobChange::Redrive(rate), &on, out)
        }
        CtlCommand::Reprioritize { on, priority } => {
            act::run(&mut servers.one()?, JobChange::Reprioritize(priority), &on, out)
        }
        CtlCommand::Pause { tubes, time } => tube_actions::pause(&mut servers.one()?, &tubes, time, out),
        CtlCommand::Resume(tubes) => tube_actions::pause(&mut servers.one()?, &tubes, Seconds::from(0), out),
        CtlCommand::Flush { tubes, buried } => flush::run(&mut servers.one()?, &tubes, buried, out),
        CtlCommand::Drain => tube_actions::drain(&servers, true, out),
        CtlCommand::Undrain => tube_actions::drain(&servers, false, out),
        CtlCommand::Clients => clients::list(&servers, out),
        CtlCommand::KillClient { ids, confirm } => {
            clients::kill(&mut servers.one()?, &input::each_once(ids), &confirm, out)
        }
        CtlCommand::Watch { tubes, interval } => watch::run(&servers, &tubes, interval, out),
        CtlCommand::Top { interval } => top::run(&servers, interval),
        CtlCommand::Work(arguments) => worker::run(&servers, &arguments),
        CtlCommand::Export(arguments) => transfer::export::run(&mut servers.one()?, &arguments, out),
        CtlCommand::Import(arguments) => transfer::import::run(&mut servers.one()?, &arguments, out),
    };
    // A short report stays in the buffer, so only this notices that the output is closed. It hides no failure.
    let flushed = output.flush();
    done.and(flushed)
}

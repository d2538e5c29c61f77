//! beanstalkctl: the command-line client of beanstalkd, for operators and scripts.
//!
//! The flow: [`cli`] parses the command line, [`commands`] executes the subcommand on a connected [`server`],
//! [`output`] prints the result, and a [`failure`] becomes the exit code.
//!
//! | module | contents |
//! |---|---|
//! | [`cli`] | the command line, its help, its completions |
//! | [`commands`] | the subcommands, except those below; some that are alike share a file |
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

use clap::Parser;

use self::failure::Failure;

fn main() -> ExitCode {
    if worker::is_guard() {
        return worker::guard();
    }
    if let Some(directory) = cli::generated::directory() {
        return cli::generated::run(&directory);
    }
    match commands::run(cli::Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !matches!(failure, Failure::OutputClosed | Failure::Reported(_)) {
                output::say(&failure.to_string());
            }
            ExitCode::from(failure.code())
        }
    }
}

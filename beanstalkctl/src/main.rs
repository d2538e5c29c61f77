//! beanstalkctl: looks after the jobs of a beanstalkd from a terminal.
//!
//! The flow: [`cli`] reads the command line, [`commands`] does what it says by a [`session`], [`output`] prints it, and a
//! [`failure`] becomes the exit code. [`listing`] finds jobs, [`interrupt`] knows of Ctrl-C.

mod cli;
mod commands;
mod failure;
mod input;
mod interrupt;
mod listing;
mod output;
mod progress;
mod session;
mod top;
mod transfer;
mod work;

use clap::Parser;
use failure::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    match commands::run(cli::Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !matches!(failure, Failure::OutputClosed) {
                eprintln!("beanstalkctl: {failure}");
            }
            ExitCode::from(failure.code())
        }
    }
}

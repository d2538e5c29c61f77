//! The beanstalkd program: it does what the command line asks for, and decides the exit code.

mod startup;

use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::ExitCode;

use beanstalkd::binlog::{self, OpenError};
use beanstalkd::log_setup;
use beanstalkd::options::{self, Action, Options, exit_code};
use beanstalkd::os::memory::WithReserve;

use crate::startup::refusal::binlog_exit_code;

/// Small blocks without headers, and memory that goes back to the system after a burst (see
/// doc/performance.md).
#[global_allocator]
static ALLOCATOR: WithReserve<mimalloc::MiMalloc> = WithReserve::new(mimalloc::MiMalloc);

/// MAJOR.MINOR: a client in the field makes a semantic version of it by appending ".0".
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let program = arguments.next().unwrap_or_else(|| "beanstalkd".into());
    let program = program.to_string_lossy();
    match Options::parse(arguments) {
        Ok(Action::ShowVersion) => print(&format!("beanstalkd {VERSION}\n")),
        Ok(Action::ShowHelp) => {
            // C prints the help on stderr, too.
            eprint!("{}", options::help(&program));
            ExitCode::SUCCESS
        }
        Ok(Action::Check(directory)) => check(&program, &directory),
        Ok(Action::Dump(directory)) => dump(&program, &directory),
        Ok(Action::Serve(options)) => match startup::serve(&options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(code) => fail(code),
        },
        Err(error) => {
            log_setup::report(&program, format_args!("{error}; see {program} --help"));
            fail(exit_code::USAGE)
        }
    }
}

/// `--check`: exits with 0 if the binlog is sound, with 1 if it is damaged or missing.
fn check(program: &str, directory: &Path) -> ExitCode {
    match binlog::check(directory) {
        Ok(report) if report.files.is_empty() => no_binlog(program, "--check", directory),
        Ok(report) if report.is_sound() => print(&report.to_string()),
        Ok(report) => {
            print(&report.to_string());
            ExitCode::FAILURE
        }
        Err(error) => cannot_read(program, "--check", directory, &error),
    }
}

/// `--dump`: prints a job in each line.
fn dump(program: &str, directory: &Path) -> ExitCode {
    match binlog::dump(directory, &mut BufWriter::new(std::io::stdout().lock())) {
        Ok(Ok(0)) => no_binlog(program, "--dump", directory),
        Ok(Ok(_)) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            log_setup::report(program, format_args!("--dump {}: writing: {error}", directory.display()));
            ExitCode::FAILURE
        }
        Err(error) => cannot_read(program, "--dump", directory, &error),
    }
}

fn no_binlog(program: &str, flag: &str, directory: &Path) -> ExitCode {
    let directory = directory.display();
    log_setup::report(
        program,
        format_args!("{flag} {directory}: no binlog here: expected files binlog.1, binlog.2, ..."),
    );
    ExitCode::FAILURE
}

fn cannot_read(program: &str, flag: &str, directory: &Path, error: &OpenError) -> ExitCode {
    log_setup::report(program, format_args!("{flag} {}: {error}", directory.display()));
    fail(binlog_exit_code(error))
}

fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn fail(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}

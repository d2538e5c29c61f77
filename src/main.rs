//! The beanstalkd program: carries out the action of the command line, and decides the exit code.

mod startup;

use std::fmt;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::ExitCode;

use beanstalkd::access::report;
use beanstalkd::log_setup::{self, Count};
use beanstalkd::options::{self, Action, BinlogPlace, ExitReason, Options, StoreOptions};
use beanstalkd::tube_rules;
use beanstalkd_binlog::{self as binlog, OpenError, Storage};
use beanstalkd_os::{self as os, memory::WithReserve};

use crate::startup::copy::Copied;
use crate::startup::refusal::binlog_exit_reason;
use crate::startup::{access, copy, store, tubes};

/// Small blocks without headers, and memory that goes back to the system after a burst (see
/// doc/performance.md).
#[global_allocator]
static ALLOCATOR: WithReserve<mimalloc::MiMalloc> = WithReserve::new(mimalloc::MiMalloc);

/// MAJOR.MINOR: clients in use append ".0" to get a semantic version.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));

fn main() -> ExitCode {
    os::memory::allow_huge_pages(false);
    let mut arguments = std::env::args_os();
    let program = arguments.next().unwrap_or_else(|| "beanstalkd".into());
    let program = program.to_string_lossy();
    match Options::parse(arguments) {
        Ok(Action::ShowVersion) => print(&format!("beanstalkd {VERSION}\n")),
        Ok(Action::ShowHelp) => print(&options::help(&program)),
        Ok(Action::Check(place, options)) => check(&program, &place, &options),
        Ok(Action::Dump(place, options)) => dump(&program, &place, &options),
        Ok(Action::Copy(from, to, options)) => copy(&program, &from, &to, &options),
        Ok(Action::CheckTubes(file)) => match tubes::read(&file) {
            Ok(rules) => print(&tube_rules::report(&rules)),
            Err(error) => {
                let message = format_args!("--check-tubes {}: {error}", file.display());
                refuse(&program, ExitReason::Failed, message)
            }
        },
        Ok(Action::CheckAccess(file, identity)) => check_access(&program, &file, identity.as_deref()),
        Ok(Action::CheckFiles(options)) => end(startup::check_files(&options)),
        Ok(Action::CheckHandover(descriptor, options)) => {
            end(startup::hand_over::check(&options, descriptor))
        }
        Ok(Action::HashToken) => match access::hash_of_input() {
            Ok(hash) => print(&format!("{hash}\n")),
            Err(error) => refuse(&program, ExitReason::Failed, format_args!("--hash-token: {error}")),
        },
        Ok(Action::Serve(options)) => end(startup::serve(&options)),
        Err(error) => refuse(&program, ExitReason::Usage, format_args!("{error}; see {program} --help")),
    }
}

/// The exit code of a program that has reported why it ends, if it ends early.
fn end(result: Result<(), ExitReason>) -> ExitCode {
    result.map_or_else(|reason| ExitCode::from(reason.code()), |()| ExitCode::SUCCESS)
}

/// `--check-access`: exits with 0 if the file is valid and has the given identity.
fn check_access(program: &str, file: &Path, identity: Option<&str>) -> ExitCode {
    let rules = match access::read(file) {
        Ok(access::AccessFile { rules, doubt }) => {
            if let Some(doubt) = doubt {
                let file = file.display();
                log_setup::report(program, format_args!("--check-access {file}: SIGHUP refuses it: {doubt}"));
            }
            rules
        }
        Err(error) => {
            let message = format_args!("--check-access {}: {error}", file.display());
            return refuse(program, ExitReason::Failed, message);
        }
    };
    match report(&rules, identity) {
        Some(text) => print(&text),
        None => {
            let (file, identity) = (file.display(), identity.unwrap_or_default());
            let message =
                format_args!("--check-access {file} {identity}: the file has no identity of this name");
            refuse(program, ExitReason::Failed, message)
        }
    }
}

/// `--check`: exits with 0 if the binlog is sound, with 1 if it is damaged or missing.
fn check(program: &str, place: &BinlogPlace, options: &StoreOptions) -> ExitCode {
    let mut storage = match open(program, "--check", place, options) {
        Ok(storage) => storage,
        Err(code) => return code,
    };
    match binlog::check(&mut *storage) {
        Ok(report) if report.files.is_empty() => no_binlog(program, "--check", place),
        Ok(report) if report.is_sound() => print(&report.to_string()),
        Ok(report) => {
            print(&report.to_string());
            ExitCode::FAILURE
        }
        Err(error) => cannot_read(program, "--check", place, &error),
    }
}

/// `--dump`: prints a job in each line.
fn dump(program: &str, place: &BinlogPlace, options: &StoreOptions) -> ExitCode {
    let mut storage = match open(program, "--dump", place, options) {
        Ok(storage) => storage,
        Err(code) => return code,
    };
    match binlog::dump(&mut *storage, &mut BufWriter::new(std::io::stdout().lock())) {
        Ok(Ok(0)) => no_binlog(program, "--dump", place),
        Ok(Ok(_)) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            refuse(program, ExitReason::Failed, format_args!("--dump {place}: writing: {error}"))
        }
        Err(error) => cannot_read(program, "--dump", place, &error),
    }
}

/// The binlog at `place`, for reading.
fn open(
    program: &str,
    flag: &str,
    place: &BinlogPlace,
    options: &StoreOptions,
) -> Result<Box<dyn Storage>, ExitCode> {
    store::prepare(place, options).and_then(|prepared| prepared.read_only()).map_err(|error| {
        refuse(program, ExitReason::BinlogDirectory, format_args!("{flag} {place}: {error}"))
    })
}

/// `--copy`: reports what it has copied.
fn copy(program: &str, from: &BinlogPlace, to: &BinlogPlace, options: &StoreOptions) -> ExitCode {
    match copy::copy(from, to, options) {
        Ok(Copied { files, jobs }) => {
            print(&format!("copied {} with {}\n", Count(files, "file"), Count(jobs, "job")))
        }
        Err(error) => {
            let message = format_args!("--copy: {error}; nothing was copied");
            refuse(program, ExitReason::BinlogDirectory, message)
        }
    }
}

fn no_binlog(program: &str, flag: &str, place: &BinlogPlace) -> ExitCode {
    let expected = match place {
        BinlogPlace::Directory(_) => "expected files binlog.1, binlog.2, ...",
        BinlogPlace::Database(_) => "the database has no queue of this name",
    };
    refuse(program, ExitReason::Failed, format_args!("{flag} {place}: no binlog here: {expected}"))
}

fn cannot_read(program: &str, flag: &str, place: &BinlogPlace, error: &OpenError) -> ExitCode {
    refuse(program, binlog_exit_reason(error), format_args!("{flag} {place}: {error}"))
}

fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Reports why the program ends, and returns the exit code.
fn refuse(program: &str, reason: ExitReason, message: fmt::Arguments<'_>) -> ExitCode {
    log_setup::report(program, message);
    ExitCode::from(reason.code())
}

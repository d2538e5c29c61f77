//! The beanstalkd program: carries out the action of the command line, and decides the exit code.

mod startup;

use std::ffi::OsString;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::ExitCode;

use beanstalkd::access::report;
use beanstalkd::log_setup::{self, Count};
use beanstalkd::options::{self, Action, BinlogPlace, ExitReason, Options};
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

/// The reason why the program ends early.
struct Exit {
    reason: ExitReason,
    /// The message, unless the log has it.
    message: Option<String>,
}

impl Exit {
    fn new(reason: ExitReason, message: String) -> Self {
        Self { reason, message: Some(message) }
    }
}

impl From<ExitReason> for Exit {
    fn from(reason: ExitReason) -> Self {
        Self { reason, message: None }
    }
}

fn main() -> ExitCode {
    os::memory::keep_freed_memory();
    os::memory::allow_huge_pages(false);
    let mut arguments = std::env::args_os();
    let program = arguments.next().unwrap_or_else(|| "beanstalkd".into());
    let program = program.to_string_lossy();
    let Err(Exit { reason, message }) = run(&program, arguments) else { return ExitCode::SUCCESS };
    if let Some(message) = message {
        log_setup::report(&program, format_args!("{message}"));
    }
    ExitCode::from(reason.code())
}

fn run(program: &str, arguments: impl Iterator<Item = OsString>) -> Result<(), Exit> {
    let wrong = |error| Exit::new(ExitReason::Usage, format!("{error}; see {program} --help"));
    os::signals::survive_file_size_limit()
        .map_err(|error| Exit::new(ExitReason::Start, format!("cannot handle SIGXFSZ: {error}")))?;
    match Options::parse(arguments).map_err(wrong)? {
        Action::ShowVersion => print(&format!("beanstalkd {VERSION}\n")),
        Action::ShowHelp => print(&options::help(program)),
        Action::Check(place) => check(&place),
        Action::Dump(place) => dump(&place),
        Action::Copy(from, to) => copy(&from, &to),
        Action::CheckTubes(file) => {
            let rules = tubes::read(&file);
            let rules =
                rules.map_err(|error| failed(format!("--check-tubes {}: {error}", file.display())))?;
            print(&tube_rules::report(&rules))
        }
        Action::CheckAccess(file, identity) => check_access(program, &file, identity.as_deref()),
        Action::CheckFiles(options) => Ok(startup::check_files(&options)?),
        Action::CheckHandOver(descriptor, options) => Ok(startup::hand_over::check(&options, descriptor)?),
        Action::HashToken => {
            let hash = access::hash_of_input().map_err(|error| failed(format!("--hash-token: {error}")))?;
            print(&format!("{hash}\n"))
        }
        Action::Serve(options) => Ok(startup::serve(&options)?),
    }
}

/// `--check-access`: exits with 0 if the file is valid and has the given identity.
fn check_access(program: &str, file: &Path, identity: Option<&str>) -> Result<(), Exit> {
    let shown = file.display();
    let access::AccessFile { rules, doubt } =
        access::read(file).map_err(|error| failed(format!("--check-access {shown}: {error}")))?;
    if let Some(doubt) = doubt {
        log_setup::report(program, format_args!("--check-access {shown}: SIGHUP refuses it: {doubt}"));
    }
    let text = report(&rules, identity).ok_or_else(|| {
        let identity = identity.unwrap_or_default();
        failed(format!("--check-access {shown} {identity}: the file has no identity of this name"))
    })?;
    print(&text)
}

/// `--check`: exits with 0 if the binlog is sound, with 1 if it is damaged or missing.
fn check(place: &BinlogPlace) -> Result<(), Exit> {
    let mut storage = open("--check", place)?;
    let report = binlog::check(&mut *storage).map_err(|error| cannot_read("--check", place, &error))?;
    if report.files.is_empty() {
        return Err(no_binlog("--check", place));
    }
    print(&report.to_string())?;
    if report.is_sound() { Ok(()) } else { Err(ExitReason::Failed.into()) }
}

/// `--dump`: prints a job in each line.
fn dump(place: &BinlogPlace) -> Result<(), Exit> {
    let mut storage = open("--dump", place)?;
    let written = binlog::dump(&mut *storage, &mut BufWriter::new(std::io::stdout().lock()));
    match written.map_err(|error| cannot_read("--dump", place, &error))? {
        Ok(0) => Err(no_binlog("--dump", place)),
        Ok(_) => Ok(()),
        Err(error) => Err(failed(format!("--dump {place}: writing: {error}"))),
    }
}

/// The binlog at `place`, for reading.
fn open(flag: &str, place: &BinlogPlace) -> Result<Box<dyn Storage>, Exit> {
    let storage = store::prepare(place).and_then(|prepared| prepared.read_only());
    storage.map_err(|error| Exit::new(ExitReason::BinlogDirectory, format!("{flag} {place}: {error}")))
}

/// `--copy`: reports what it has copied.
fn copy(from: &BinlogPlace, to: &BinlogPlace) -> Result<(), Exit> {
    let Copied { files, jobs } = copy::copy(from, to).map_err(|error| {
        Exit::new(ExitReason::BinlogDirectory, format!("--copy: {error}; nothing was copied"))
    })?;
    print(&format!("copied {} with {}\n", Count(files, "file"), Count(jobs, "job")))
}

fn failed(message: String) -> Exit {
    Exit::new(ExitReason::Failed, message)
}

fn no_binlog(flag: &str, place: &BinlogPlace) -> Exit {
    let expected = match place {
        BinlogPlace::Directory(_) => "expected files binlog.1, binlog.2, ...",
        BinlogPlace::Database(..) => "the database has no queue of this name",
    };
    failed(format!("{flag} {place}: no binlog here: {expected}"))
}

fn cannot_read(flag: &str, place: &BinlogPlace, error: &OpenError) -> Exit {
    Exit::new(binlog_exit_reason(error), format!("{flag} {place}: {error}"))
}

fn print(text: &str) -> Result<(), Exit> {
    std::io::stdout().write_all(text.as_bytes()).map_err(|_| ExitReason::Failed.into())
}

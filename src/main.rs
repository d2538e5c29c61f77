//! The beanstalkd program: start-up order and exit codes.

use std::fmt;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use beanstalkd::binlog::{self, Binlog, Directory, OpenError, SyncPolicy};
use beanstalkd::log_setup;
use beanstalkd::options::{self, Action, Fsync, ListenAddress, Options, exit_code};
use beanstalkd::os;
use beanstalkd::os::directory_lock::DirectoryLock;
use beanstalkd::os::listen::{Listener, SocketFile, UnixAccess};
use beanstalkd::os::memory::WithReserve;
use beanstalkd::os::privileges::PrivilegeError;
use beanstalkd::os::process::Machine;
use beanstalkd::os::signals::Signals;
use beanstalkd::queue::PoisonLimits;
use beanstalkd::server::event_loop::{Clock, DoorLimits, EventLoop, Settings};
use beanstalkd::server::startup_server::StartupServer;
use beanstalkd::server::{Config, Executor, Identity};
use log::{error, info, warn};

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
            // C prints it there, too.
            eprint!("{}", options::help(&program));
            ExitCode::SUCCESS
        }
        Ok(Action::Check(directory)) => check(&program, &directory),
        Ok(Action::Dump(directory)) => dump(&program, &directory),
        Ok(Action::Serve(options)) => match serve(&options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(code) => fail(code),
        },
        Err(error) => {
            eprint!("{program}: {error}\n{}", options::help(&program));
            fail(exit_code::USAGE)
        }
    }
}

/// `--check`: 0 where the binlog is sound, 1 where it is not.
fn check(program: &str, directory: &Path) -> ExitCode {
    match binlog::check(directory) {
        Ok(report) if report.is_sound() => print(&report.to_string()),
        Ok(report) => {
            print(&report.to_string());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{program}: {error}");
            fail(binlog_exit_code(&error))
        }
    }
}

/// `--dump`: a job a line.
fn dump(program: &str, directory: &Path) -> ExitCode {
    match binlog::dump(directory, &mut BufWriter::new(std::io::stdout().lock())) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            eprintln!("{program}: {error}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{program}: {error}");
            fail(binlog_exit_code(&error))
        }
    }
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

/// Runs the server to its end; the error is the exit code.
fn serve(options: &Options) -> Result<(), i32> {
    log_setup::start(options.log_format, options.verbosity);
    os::process::end_on_panic();
    info!("beanstalkd {VERSION}, pid {}", std::process::id());
    for warning in &options.warnings {
        warn!("{warning}");
    }
    let inherited = os::service_manager::inherited_listeners();
    let inherited = inherited.map_err(|error| refuse(&error, exit_code::LISTEN))?;
    // Before anybody can know that the server is up: SIGUSR1 kills a process without a handler.
    let signals = Signals::install().map_err(|error| refuse(&error, exit_code::LISTEN))?;
    let open_files = os::limits::raise_open_files().unwrap_or_else(|error| {
        warn!("cannot raise the limit of open files: {error}");
        u64::MAX
    });
    info!("limits: {}", Limits { options, open_files });
    let Sockets { listeners, metrics, files: _files } = listen(options, inherited)?;
    if let Some(user) = &options.user {
        os::privileges::become_user(user).map_err(|error| refuse(&error, privilege_exit_code(&error)))?;
    }
    let clock = Clock::start();
    let startup = metrics.map(|listener| StartupServer::start(listener, clock, "starting")).transpose();
    let startup = startup.map_err(|error| refuse(&error, exit_code::LISTEN))?;
    let identity = identity(clock)?;
    let config = Config {
        max_job_bytes: options.max_job_bytes,
        max_memory_bytes: options.max_memory_bytes,
        binlog_file_bytes: options.binlog_file_bytes,
        poison: PoisonLimits { timeouts: options.max_timeouts, releases: options.max_releases },
    };
    let mut executor = Executor::new(config, identity);
    executor.watch_memory(os::memory::is_exhausted);
    let _lock = match &options.binlog_dir {
        Some(directory) => {
            if let Some(startup) = &startup {
                startup.say("replaying the binlog");
            }
            Some(open_binlog(&mut executor, directory, options, clock)?)
        }
        None => None,
    };
    let settings = Settings {
        doors: DoorLimits { max_connections: options.max_connections, open_files },
        fill_memory_reserve: || ALLOCATOR.fill(),
        spin: options.spin,
        idle_timeout: options.idle_timeout,
    };
    let mut event_loop = EventLoop::new(executor, listeners, signals, clock, settings)
        .map_err(|error| refuse(&error, exit_code::LISTEN))?;
    if let Some(directory) = &options.binlog_dir {
        event_loop
            .help_binlog(Directory::new(directory))
            .map_err(|error| refuse(&error, exit_code::LISTEN))?;
    }
    if let Some(startup) = startup {
        startup
            .finish()
            .and_then(|listener| event_loop.serve_metrics(listener, options.metrics_tubes))
            .map_err(|error| refuse(&error, exit_code::LISTEN))?;
    }
    event_loop.run().map_err(|error| refuse(&error, 1))
}

/// Who this server is, for the stats.
fn identity(clock: Clock) -> Result<Identity, i32> {
    let machine = Machine::this().map_err(|error| refuse(&error, exit_code::LISTEN))?;
    Ok(Identity {
        version: VERSION.to_owned(),
        instance: Identity::instance_of(os::process::random_u64()),
        pid: std::process::id(),
        hostname: machine.hostname,
        os: machine.os,
        platform: machine.platform,
        started_at: clock.now(),
        cpu_time: os::process::cpu_time,
    })
}

/// Takes the lock of the binlog's directory and puts back the jobs that are in it.
fn open_binlog(
    executor: &mut Executor,
    directory: &Path,
    options: &Options,
    clock: Clock,
) -> Result<DirectoryLock, i32> {
    let lock = DirectoryLock::take(directory).map_err(|error| refuse(&error, exit_code::BINLOG_DIRECTORY))?;
    let sync = match options.fsync {
        Fsync::Never => SyncPolicy::Never,
        Fsync::Within(Duration::ZERO) => SyncPolicy::EachCommit,
        Fsync::Within(time) => SyncPolicy::Every(u32::try_from(time.as_millis()).unwrap_or(u32::MAX)),
    };
    let config = binlog::Config {
        segment_bytes: options.binlog_file_bytes,
        sync,
        recover: options.recover,
        nonce_seed: os::process::random_u64(),
    };
    let now = clock.now();
    let disk = Box::new(Directory::new(directory));
    let mut restore = |record, tube, body| executor.restore(&record, &tube, body, now);
    let (binlog, summary) = Binlog::open(disk, config, now, Clock::wall_offset_ns(now), &mut restore)
        .map_err(|error| refuse(&error, binlog_exit_code(&error)))?;
    for warning in &summary.warnings {
        warn!("{warning}");
    }
    for tail in &summary.tails {
        let binlog::DamagedFile { file, offset, bytes, records_applied } = tail;
        warn!(
            "binlog.{file}: torn at {offset}; {bytes} bytes are kept in lost.{file}.{offset}, \
             {records_applied} records of them were applied"
        );
    }
    info!(
        "binlog {}: {} jobs in {} files, {} records, {} bytes",
        directory.display(),
        summary.jobs,
        summary.files,
        summary.records,
        summary.bytes
    );
    executor.keep_binlog(binlog, sync, summary.next_job_id);
    Ok(lock)
}

fn binlog_exit_code(error: &OpenError) -> i32 {
    match error {
        OpenError::Refused(_) => exit_code::BINLOG_DAMAGED,
        OpenError::List(_) | OpenError::Read { .. } | OpenError::Write { .. } | OpenError::TooManyFiles => {
            exit_code::BINLOG_DIRECTORY
        }
        OpenError::OutOfMemory | OpenError::Failed(_) => 1,
    }
}

/// Where the server is spoken to. The files of unix sockets are removed when they are dropped.
struct Sockets {
    listeners: Vec<Listener>,
    metrics: Option<Listener>,
    files: Vec<SocketFile>,
}

/// The sockets that the service manager has passed, or else those of the command line.
fn listen(options: &Options, inherited: Vec<Listener>) -> Result<Sockets, i32> {
    let mut sockets = Sockets { listeners: inherited, metrics: None, files: Vec::new() };
    for listener in &sockets.listeners {
        info!("listening on {} of the service manager", listener.address());
    }
    let own = if sockets.listeners.is_empty() {
        options.listen.as_ref()
    } else {
        for option in &options.overridden_if_inherited {
            warn!("inherited listen fd; ignoring option: {option}");
        }
        None
    };
    let owner = options.socket_owner.as_ref();
    let access = UnixAccess::new(
        options.socket_mode,
        owner.map(|owner| owner.user.as_str()),
        owner.and_then(|owner| owner.group.as_deref()),
    )
    .map_err(|error| refuse(&error, privilege_exit_code(&error)))?;
    for address in own.into_iter().chain(&options.further_listen) {
        let listener = listen_on(address, access, &mut sockets.files)?;
        info!("listening on {}", listener.address());
        sockets.listeners.push(listener);
    }
    if let Some(address) = &options.metrics {
        let listener = listen_on(address, access, &mut sockets.files)?;
        info!("serving metrics on {}", listener.address());
        sockets.metrics = Some(listener);
    }
    Ok(sockets)
}

fn listen_on(
    address: &ListenAddress,
    access: UnixAccess,
    files: &mut Vec<SocketFile>,
) -> Result<Listener, i32> {
    let listener = match address {
        ListenAddress::Tcp { host, port } => os::listen::tcp(host.as_deref(), port).map(Listener::Tcp),
        ListenAddress::Unix(path) => os::listen::unix(path, access).map(|(listener, file)| {
            files.push(file);
            Listener::Unix(listener)
        }),
    };
    listener.map_err(|error| refuse(&error, exit_code::LISTEN))
}

fn refuse(error: &dyn std::error::Error, code: i32) -> i32 {
    error!("{error}");
    code
}

fn privilege_exit_code(error: &PrivilegeError) -> i32 {
    match error {
        PrivilegeError::LookUp { .. } => exit_code::USER_LOOKUP,
        PrivilegeError::NoSuchName { .. } => exit_code::NO_SUCH_USER,
        PrivilegeError::Refused { .. } | PrivilegeError::StillRoot { .. } => exit_code::BECOME_USER,
    }
}

/// The limits that hold, in a line of the log.
struct Limits<'a> {
    options: &'a Options,
    open_files: u64,
}

impl fmt::Display for Limits<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { options, open_files } = self;
        write!(out, "jobs up to {} bytes, {open_files} open files", options.max_job_bytes)?;
        if let Some(connections) = options.max_connections {
            write!(out, ", {connections} connections")?;
        }
        if let Some(bytes) = options.max_memory_bytes {
            write!(out, ", {bytes} bytes of memory")?;
        }
        if let Some(timeout) = options.idle_timeout {
            write!(out, ", {} s of silence", timeout.as_secs())?;
        }
        Ok(())
    }
}

//! The start of a program that takes a process over from another one, and the trial of such a program.
//!
//! Owns: the order of the steps. They are the steps of any start, except that the sockets, the lock, the state and the
//! user already exist. An error here ends the process: the old program is gone, and the service manager starts the
//! server again. That is why the trial performs the same steps first, as far as they change nothing. Driven by
//! `startup` and `main`.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use beanstalkd::log_setup;
use beanstalkd::options::{AdminOptions, BinlogOptions, BinlogPlace, ExitReason, Options, TlsFiles};
use beanstalkd::server::event_loop::{Clock, EventLoop, HandOverInputs, answer};
use beanstalkd::server::hand_over::{self, DescribedFile, DescribedProcess, ListenerKind, ListenerRole};
use beanstalkd_binlog::DirectoryStorage;
use beanstalkd_os as os;
use beanstalkd_os::directory_lock::DirectoryLock;
use beanstalkd_os::hand_over::{Description, Program};
use beanstalkd_os::listen::{Listener, SocketFile};
use beanstalkd_os::signals::Signals;
use beanstalkd_types::description::{Malformed, Reader};
use log::info;

use super::admin::Admin;
use super::refusal::{failed, refuse_binlog, refuse_lock};
use super::{
    EffectiveLimits, equip, executor, prepare_store, read_again, read_rules, serves_sighup, settings, tubes,
};

/// How often the files of settings are read at most, and the time in between. All clients wait for this.
const MAX_READS: usize = 10;
const BETWEEN_READS: Duration = Duration::from_millis(50);

/// The listeners and files of the other program, by their roles.
#[derive(Default)]
struct Adopted {
    clients: Vec<Listener>,
    metrics: Option<Listener>,
    admin: Option<Listener>,
    /// The files, which are removed when this value is dropped.
    files: Vec<SocketFile>,
    lock: Option<OwnedFd>,
}

/// Reads a description as a trial, with the files that the options name, and changes nothing; the error is the
/// reason of the exit.
pub fn check(options: &Options, descriptor: i32) -> Result<(), ExitReason> {
    log_setup::start(options.log.format, options.log.verbosity);
    let description = Description::of(descriptor).map_err(failed(ExitReason::Failed))?;
    let process = hand_over::read_process(&mut Reader::new(&description));
    process.and_then(|process| check_lock(options, &process)).map_err(failed(ExitReason::Failed))?;
    let limits = EffectiveLimits::of(&options.limits);
    drop(read_again(options)?);
    let rules = (read_rules(options)?, tubes::load(options)?);
    drop(prepare_store(options)?);
    Admin::new(options)?;
    let executor = executor(options, limits.max_memory_bytes, rules, Clock::start())?;
    let format = hand_over::check(executor, &description).map_err(failed(ExitReason::Failed))?;
    let mut output = std::io::stdout();
    let sent = output.write_all(answer(format).as_bytes()).and_then(|()| output.flush());
    sent.map_err(failed(ExitReason::Failed))
}

/// Continues where the other program has stopped, until the server ends; the error is the reason of the exit.
pub fn resume(options: &Options, description: Description) -> Result<(), ExitReason> {
    let malformed = failed::<Malformed>(ExitReason::Failed);
    let program = Program::this().ok();
    let signals = Signals::install(serves_sighup(options)).map_err(failed(ExitReason::Start))?;
    os::hand_over::unblock_signals();
    let limits = EffectiveLimits::of(&options.limits);
    let (reload, rules, mut admin) = patiently(|| {
        let rules = (read_rules(options)?, tubes::load(options)?);
        Ok((read_again(options)?, rules, Admin::new(options)?))
    })?;
    let touched_ahead = os::memory::TouchedAhead::of(description.len());
    let from = &mut Reader::new(&description);
    from.report_copies(touched_ahead.last());
    let process = hand_over::read_process(from).map_err(malformed)?;
    check_lock(options, &process).map_err(malformed)?;
    let mut adopted = adopt(&process)?;
    let clock = Clock::with_offset(process.clock_offset_ns);
    // As at any start with jobs.
    os::memory::allow_huge_pages(true);
    let executor = executor(options, limits.max_memory_bytes, rules, clock)?;
    let settings = settings(options, limits.open_files);
    let clients = std::mem::take(&mut adopted.clients);
    let mut event_loop = EventLoop::new(executor, clients, reload, signals, clock, settings)
        .map_err(failed(ExitReason::Start))?;
    let has_binlog = options.binlog.is_some();
    event_loop.read_description(from, process.now, has_binlog).map_err(malformed)?;
    hand_over::read_end(from).map_err(malformed)?;
    drop(touched_ahead);
    description.drop_beside();
    if let (Some(binlog), Some(lock)) = (&options.binlog, adopted.lock.take()) {
        open_binlog(&mut event_loop, binlog, lock, options, clock)?;
    }
    os::memory::allow_huge_pages(false);
    admin.take_over(adopted.admin.take());
    equip(&mut event_loop, options, adopted.metrics.take(), admin).map_err(failed(ExitReason::Start))?;
    event_loop.enable_hand_over(inputs(program, process.lock, process.files, process.inherited, options));
    info!("continued where the previous program stopped");
    event_loop.run().map_err(failed(ExitReason::Failed))
}

/// Checks that a server with a binlog gets its lock; without it, the server would go on without a log.
fn check_lock(options: &Options, process: &DescribedProcess) -> Result<(), Malformed> {
    if options.binlog.is_some() && process.lock.is_none() {
        return Err(Malformed("the lock of the binlog is missing"));
    }
    Ok(())
}

/// Reads files of settings, with several attempts. Somebody may be replacing several files one after the other, so that
/// they do not match for a moment; at that moment no other program could take over from this one.
fn patiently<T>(read: impl Fn() -> Result<T, ExitReason>) -> Result<T, ExitReason> {
    for _ in 1..MAX_READS {
        if let Ok(settings) = read() {
            return Ok(settings);
        }
        thread::sleep(BETWEEN_READS);
    }
    read()
}

/// The facts about this server that the next program needs.
pub fn inputs(
    program: Option<Program>,
    lock: Option<i32>,
    files: Vec<DescribedFile>,
    inherited: usize,
    options: &Options,
) -> HandOverInputs {
    let (directory, unsupported) = match options.binlog.as_ref().map(|binlog| &binlog.place) {
        Some(BinlogPlace::Directory(path)) => (Some(path.clone()), None),
        Some(BinlogPlace::Database(..)) => {
            (None, Some("the binlog is in a database: restart the server instead"))
        }
        None => (None, None),
    };
    let lock = lock.zip(directory);
    HandOverInputs { program, lock, files, settings: files_of_settings(options), inherited, unsupported }
}

/// The files of settings that a program with these options reads at its start.
fn files_of_settings(options: &Options) -> Vec<PathBuf> {
    let of_tls = options.listen.tls.iter().flat_map(|tls| {
        let TlsFiles { certificate, key, client_ca, crl } = tls;
        [certificate, key].into_iter().chain(client_ca).chain(crl)
    });
    let token = options.admin.iter().flat_map(|AdminOptions { token_file, .. }| token_file);
    of_tls.chain(&options.access).chain(&options.tubes).chain(token).cloned().collect()
}

/// The files of unix sockets, for a description.
pub fn described(files: &[SocketFile]) -> Vec<DescribedFile> {
    let described = files.iter().map(|file| {
        let (path, device, inode) = file.identity();
        DescribedFile { path: path.as_os_str().as_bytes().to_vec(), device, inode }
    });
    described.collect()
}

fn adopt(process: &DescribedProcess) -> Result<Adopted, ExitReason> {
    let mut adopted = Adopted::default();
    for described in &process.listeners {
        let descriptor = os::hand_over::adopt(described.descriptor).map_err(failed(ExitReason::Start))?;
        let listener = match described.kind {
            ListenerKind::Tcp => Listener::Tcp(descriptor.into()),
            ListenerKind::Tls => Listener::Tls(descriptor.into()),
            ListenerKind::Unix => Listener::Unix(descriptor.into()),
        };
        match described.role {
            ListenerRole::Clients => adopted.clients.push(listener),
            ListenerRole::Metrics => adopted.metrics = Some(listener),
            ListenerRole::Admin => adopted.admin = Some(listener),
        }
    }
    for DescribedFile { path, device, inode } in &process.files {
        let path = PathBuf::from(OsString::from_vec(path.clone()));
        adopted.files.push(SocketFile::again(path, *device, *inode));
    }
    let lock = process.lock.map(os::hand_over::adopt).transpose();
    adopted.lock = lock.map_err(failed(ExitReason::BinlogDirectory))?;
    Ok(adopted)
}

/// Continues with the log, whose jobs the queue already has.
fn open_binlog(
    event_loop: &mut EventLoop,
    binlog: &BinlogOptions,
    lock: OwnedFd,
    options: &Options,
    clock: Clock,
) -> Result<(), ExitReason> {
    let BinlogPlace::Directory(path) = &binlog.place else { return Err(ExitReason::BinlogDirectory) };
    let lock = DirectoryLock::adopt(path, lock).map_err(|error| refuse_lock(path, &error))?;
    let storage = DirectoryStorage::locked(path, lock).map_err(|error| refuse_lock(path, &error))?;
    let now = clock.now();
    let (config, wall_offset_ns) = (super::binlog_config(binlog, options), Clock::wall_offset_ns(now));
    let executor = event_loop.executor_mut();
    executor
        .continue_with_binlog(Box::new(storage), config, now, wall_offset_ns)
        .map_err(|error| refuse_binlog(&binlog.place, &error))
}

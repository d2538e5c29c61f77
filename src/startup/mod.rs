//! Starts the server: the steps from the options to the event loop.
//!
//! Owns: the order of the steps, and the exit code of each step that fails. Driven by `main`.

use std::fmt;
use std::io;
use std::time::Duration;

use beanstalkd::access::AccessRules;
use beanstalkd::http::{self, Site, StartupHealth};
use beanstalkd::log_setup::{self, Count};
use beanstalkd::options::{
    BinlogOptions, BinlogPlace, ExitReason, Fsync, LimitOptions, ListenAddress, MetricsOptions, Options,
};
use beanstalkd::server::event_loop::{AcceptLimits, Clock, EventLoop, LoopSettings, Reload};
use beanstalkd::server::{Executor, ExecutorConfig, MemoryShares};
use beanstalkd::stats::ServerInfo;
use beanstalkd_binlog::{self as binlog, Binlog, Storage, SyncPolicy};
use beanstalkd_os as os;
use beanstalkd_os::hand_over::{Description, Program};
use beanstalkd_os::listen::{Listener, SocketFile, UnixAccess};
use beanstalkd_os::process::Machine;
use beanstalkd_os::service_manager;
use beanstalkd_os::signals::Signals;
use beanstalkd_queue::{PoisonLimits, TubeRule};
use beanstalkd_types::tube_name::TubeName;
use log::{error, info, warn};

use crate::{ALLOCATOR, VERSION};

pub mod access;
mod admin;
pub mod copy;
pub mod hand_over;
mod path_advice;
pub mod refusal;
pub mod store;
mod text_file;
mod tls;
pub mod tubes;

use self::refusal::{failed, refuse_binlog, refuse_listener, refuse_privileges};
use self::store::{Prepared, Taken};

/// How many descriptors are kept from clients, even without a binlog: a library may open some for a moment.
const SPARE_FILES: usize = 2;
/// Cooldowns get 1/16 of the memory, and so do the watch lists of an identity.
const MEMORY_SHARES: u64 = 16;
/// The memory of a watched tube that only one client watches, in bytes.
const WATCHED_TUBE_BYTES: u64 = 512;
/// An identity may watch this many tubes, however little memory there is.
const MIN_WATCHED_TUBES: u64 = 100;

/// Runs the server to its end; the error is the reason of the exit.
pub fn serve(options: &Options) -> Result<(), ExitReason> {
    log_setup::start(options.log.format, options.log.verbosity);
    os::process::end_on_panic();
    info!("beanstalkd {VERSION}, pid {}", std::process::id());
    options.warnings.iter().for_each(|warning| warn!("{warning}"));
    let program = Program::this().ok();
    match Description::inherited().map_err(failed(ExitReason::Failed))? {
        Some(description) => hand_over::resume(options, description),
        None => start(options, program),
    }
}

/// Runs a server from its options, without a hand-over.
fn start(options: &Options, program: Option<Program>) -> Result<(), ExitReason> {
    // This comes before the process opens descriptors of its own, which could get the numbers of the inherited ones.
    let inherited = service_manager::inherited_listeners().map_err(failed(ExitReason::Start))?;
    // This comes before other programs can see that the server runs, because SIGUSR1 kills a process without a handler.
    let mut signals = Signals::install(serves_sighup(options)).map_err(failed(ExitReason::Start))?;
    let limits = EffectiveLimits::of(&options.limits);
    info!("limits: {limits}");
    // These files may be readable only for root.
    let (reload, rules, tube_rules) = (read_again(options)?, read_rules(options)?, tubes::load(options)?);
    let prepared = prepare_store(options)?;
    let mut sockets = Sockets::new(options, inherited)?;
    let metrics = sockets.listen_for_metrics(options)?;
    // A standby cannot listen yet, because its predecessor still uses the address. Any other server listens here, so
    // that clients can connect while it reads the binlog, and because ports below 1024 need the rights that `-u` drops.
    let mut admin = admin::Admin::new(options)?;
    let waits_for_lock = options.binlog.as_ref().is_some_and(|binlog| binlog.wait_for_lock);
    if !waits_for_lock {
        sockets.listen_for_clients(options)?;
        admin.listen(options, &mut sockets)?;
    }
    drop_privileges(options, &reload)?;
    let clock = Clock::start();
    let credentials = reload.tls.as_ref().map(|(_, acceptor)| acceptor.credentials());
    let health = metrics
        .map(|listener| StartupHealth::start(listener, credentials, move || clock.now(), "starting"))
        .transpose()
        .map_err(failed(ExitReason::Start))?;
    let taken = prepared.map(|(binlog, prepared)| {
        let BinlogOptions { place, wait_for_lock, .. } = binlog;
        store::take(place, prepared, *wait_for_lock, &mut signals, health.as_ref())
            .map(|taken| (binlog, taken))
    });
    let taken = taken.transpose()?;
    if matches!(taken, Some((_, Taken::Stopped))) {
        return Ok(());
    }
    if waits_for_lock {
        sockets.listen_for_clients(options)?;
        admin.listen(options, &mut sockets)?;
    }
    let lock = taken.as_ref().and_then(|(_, taken)| taken.lock());
    let executor = restore(options, &limits, (rules, tube_rules), taken, health.as_ref(), clock)?;
    let addresses = sockets.addresses();
    let listeners = std::mem::take(&mut sockets.listeners);
    let settings = settings(options, limits.open_files);
    let mut event_loop = EventLoop::new(executor, listeners, reload, signals, clock, settings)
        .map_err(failed(ExitReason::Start))?;
    let metrics = health.map(StartupHealth::finish).transpose().map_err(failed(ExitReason::Start))?;
    equip(&mut event_loop, options, metrics, admin).map_err(failed(ExitReason::Start))?;
    let files = hand_over::described(&sockets.files);
    event_loop.enable_hand_over(hand_over::inputs(program, lock, files, sockets.inherited, options));
    // The log has these lines only here, because before this the lock, the binlog or the system may still end the
    // server.
    for address in addresses {
        info!("listening on {address}");
    }
    event_loop.run().map_err(failed(ExitReason::Failed))
}

/// Whether SIGHUP has a meaning; otherwise it ends the process, as it ends C.
fn serves_sighup(options: &Options) -> bool {
    options.listen.tls.is_some()
        || options.access.is_some()
        || options.tubes.is_some()
        || service_manager::is_listening()
}

/// Reads the files that SIGHUP makes a server with these options read, and reports errors; the error is the reason of
/// the exit.
pub fn check_files(options: &Options) -> Result<(), ExitReason> {
    log_setup::start(options.log.format, options.log.verbosity);
    let reload = read_again(options)?;
    let rules = reload.access.map_or(Ok(()), |read| read().map(drop));
    let tube_rules = reload.tubes.map_or(Ok(()), |read| read().map(drop));
    rules.and(tube_rules).map_err(|error| {
        error!("{error}");
        ExitReason::Usage
    })
}

/// The binlog, if there is one, with the files of its place read.
fn prepare_store(options: &Options) -> Result<Option<(&BinlogOptions, Prepared)>, ExitReason> {
    let Some(binlog) = &options.binlog else { return Ok(None) };
    match store::prepare(&binlog.place) {
        Ok(prepared) => Ok(Some((binlog, prepared))),
        Err(error) => Err(store::refuse(&binlog.place, &error)),
    }
}

/// An executor with the contents of the binlog. In the meantime the server keeps free memory, and uses huge pages.
fn restore(
    options: &Options,
    limits: &EffectiveLimits<'_>,
    rules: (Option<AccessRules>, Vec<TubeRule>),
    taken: Option<(&BinlogOptions, Taken)>,
    health: Option<&StartupHealth>,
    clock: Clock,
) -> Result<Executor, ExitReason> {
    os::memory::allow_huge_pages(true);
    let mut executor = executor(options, limits.max_memory_bytes, rules, clock)?;
    if let Some((binlog, Taken::Store(storage, _))) = taken {
        if let Some(health) = health {
            health.set_reason("reading the binlog");
        }
        open_binlog(&mut executor, storage, binlog_config(binlog, options), &binlog.place, clock)?;
    }
    os::memory::allow_huge_pages(false);
    Ok(executor)
}

/// An executor with an empty queue.
fn executor(
    options: &Options,
    max_memory_bytes: Option<u64>,
    (rules, tube_rules): (Option<AccessRules>, Vec<TubeRule>),
    clock: Clock,
) -> Result<Executor, ExitReason> {
    let mut executor = Executor::new(config(options, max_memory_bytes), server_info(clock)?);
    executor.watch_memory(os::memory::is_exhausted);
    if let Some(rules) = rules {
        executor.guard_with(rules);
    }
    // Before the jobs are restored from the log, so that each tube has its rule.
    executor.set_tube_rules(tube_rules, clock.now());
    Ok(executor)
}

/// The files that SIGHUP reads again.
fn read_again(options: &Options) -> Result<Reload, ExitReason> {
    let access = options.access.clone().map(access::reader);
    let tubes = options.tubes.clone().map(tubes::reader);
    Ok(Reload { access, tubes, ..tls::load(options)? })
}

/// Becomes the user of `-u`, and warns about files that root has read and that this user could not read at SIGHUP.
fn drop_privileges(options: &Options, reload: &Reload) -> Result<(), ExitReason> {
    let Some(user) = &options.user else { return Ok(()) };
    os::privileges::become_user(user).map_err(|error| refuse_privileges(&format!("-u {user}"), &error))?;
    let tls = reload.tls.iter().flat_map(|(files, _)| files.named());
    let access = options.access.iter().map(|path| ("--access", path.as_path()));
    let tubes = options.tubes.iter().map(|path| ("--tubes", path.as_path()));
    for (flag, path) in tls.chain(access).chain(tubes) {
        if let Err(error) = os::settings_file::open(path) {
            let path = path.display();
            warn!(
                "{flag} {path}: user {user} cannot read it ({error}), so SIGHUP will refuse it: make it readable"
            );
        }
    }
    Ok(())
}

/// The access rules, if the command line names a file.
fn read_rules(options: &Options) -> Result<Option<AccessRules>, ExitReason> {
    let Some(path) = &options.access else { return Ok(None) };
    let access::AccessFile { rules, doubt } = access::read(path).map_err(|error| {
        error!("--access {}: {error}", path.display());
        ExitReason::Usage
    })?;
    if let Some(doubt) = doubt {
        warn!("--access {}: {doubt}; SIGHUP refuses such a file", path.display());
    }
    info!("access rules of {}, identities: {}", path.display(), rules.named().count());
    Ok(Some(rules))
}

fn settings(options: &Options, open_files: u64) -> LoopSettings {
    LoopSettings {
        accept: AcceptLimits {
            max_connections: options.limits.max_connections,
            open_files,
            spare_files: SPARE_FILES
                + options.binlog.as_ref().map_or(0, |_| binlog::MAX_DESCRIPTORS)
                + options.metrics.as_ref().map_or(0, |_| http::MAX_CONNECTIONS)
                + options.admin.as_ref().map_or(0, |_| http::MAX_CONNECTIONS),
        },
        fill_memory_reserve: || ALLOCATOR.fill(),
        spin: options.spin,
        idle_timeout: options.limits.idle_timeout,
    }
}

/// Gives the loop the parts besides clients: a thread for the binlog, and the listeners for HTTP.
fn equip(
    event_loop: &mut EventLoop,
    options: &Options,
    metrics: Option<Listener>,
    admin: admin::Admin,
) -> io::Result<()> {
    if options.binlog.is_some() {
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot start the thread of the binlog: {error}"))
        };
        event_loop.start_binlog().map_err(named)?;
    }
    if let (Some(listener), Some(MetricsOptions { address, max_tubes })) = (metrics, &options.metrics) {
        event_loop.serve_http(listener, host(address), Site::Metrics(*max_tubes))?;
    }
    admin.serve(event_loop, options)
}

/// The host in an address.
fn host(address: &ListenAddress) -> Option<String> {
    match address {
        ListenAddress::Tcp { host, .. } => host.clone(),
        ListenAddress::Unix(_) => None,
    }
}

/// The shares that options set, or otherwise parts of the memory for jobs and buffers.
fn memory_shares(limits: &LimitOptions, max_memory_bytes: Option<u64>) -> MemoryShares {
    let part = max_memory_bytes.map(|bytes| bytes / MEMORY_SHARES);
    let watched_tubes = part.map(|part| (part / WATCHED_TUBE_BYTES).max(MIN_WATCHED_TUBES) as usize);
    MemoryShares {
        cooldown_bytes: limits.max_cooldown_memory.in_bytes(|| part),
        max_cooldown_s: limits.max_cooldown_s,
        watched_tubes: limits.max_watched_tubes,
        watched_tubes_of_identity: watched_tubes,
    }
}

fn config(options: &Options, max_memory_bytes: Option<u64>) -> ExecutorConfig {
    let limits = &options.limits;
    ExecutorConfig {
        max_job_bytes: limits.max_job_bytes,
        max_memory_bytes,
        binlog_file_bytes: options.binlog_file_bytes,
        poison: PoisonLimits { timeouts: limits.max_timeouts, releases: limits.max_releases },
        shares: memory_shares(limits, max_memory_bytes),
        seed: os::process::random_u64(),
    }
}

fn server_info(clock: Clock) -> Result<ServerInfo, ExitReason> {
    let machine = Machine::this().map_err(failed(ExitReason::Start))?;
    Ok(ServerInfo {
        version: VERSION.to_owned(),
        instance: ServerInfo::instance_of(os::process::random_u64()),
        pid: std::process::id(),
        hostname: machine.hostname,
        os: machine.os,
        platform: machine.platform,
        started_at: clock.now(),
        cpu_time: os::process::cpu_time,
    })
}

/// The settings of the binlog.
fn binlog_config(binlog: &BinlogOptions, options: &Options) -> binlog::Config {
    let sync = match binlog.fsync {
        Fsync::Never => SyncPolicy::Never,
        Fsync::Within(Duration::ZERO) => SyncPolicy::EachCommit,
        Fsync::Within(time) => SyncPolicy::Every(u32::try_from(time.as_millis()).unwrap_or(u32::MAX)),
    };
    binlog::Config {
        file_bytes: options.binlog_file_bytes,
        sync,
        recover: binlog.recover,
        nonce_seed: os::process::random_u64(),
    }
}

/// Restores the jobs of the binlog, and gives the binlog to the executor.
fn open_binlog(
    executor: &mut Executor,
    storage: Box<dyn Storage>,
    config: binlog::Config,
    place: &BinlogPlace,
    clock: Clock,
) -> Result<(), ExitReason> {
    // If the disk does not report its free space, it is assumed to be large enough; the same holds for a database.
    let free = match place {
        BinlogPlace::Directory(path) => os::limits::disk_room(path).unwrap_or(u64::MAX),
        BinlogPlace::Database(..) => u64::MAX,
    };
    if free / 2 < config.file_bytes {
        warn!(
            "-s {}: the disk of {} has only {free} bytes free, less than two files of that length: the server makes \
             shorter files, and answers puts with OUT_OF_MEMORY while there is no room; use a smaller -s",
            config.file_bytes, place,
        );
    }
    let now = clock.now();
    let mut restore =
        |record, tube: &TubeName, body, tags: &[u8]| executor.restore(&record, tube, body, tags, now);
    // The clock of the store, if it has one: its last owner may have been another machine.
    let offset_ns =
        storage.clock_ns().map_or_else(|| Clock::wall_offset_ns(now), |clock_ns| now.offset_ns(clock_ns));
    let (binlog, summary) = Binlog::open(storage, config, now, offset_ns, &mut restore)
        .map_err(|error| refuse_binlog(place, &error))?;
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
        "binlog {}: {} in {}, {}, {}",
        place,
        Count(summary.jobs, "job"),
        Count(summary.files, "file"),
        Count(summary.records, "record"),
        Count(summary.bytes, "byte"),
    );
    executor.keep_binlog(binlog, summary.next_job_id, now);
    Ok(())
}

/// The sockets on which the server listens. The files of unix sockets are removed when this value is dropped.
struct Sockets {
    listeners: Vec<Listener>,
    access: UnixAccess,
    files: Vec<SocketFile>,
    /// How many listeners the service manager has passed; they are the first ones.
    inherited: usize,
}

impl Sockets {
    /// The sockets that the service manager has passed.
    fn new(options: &Options, inherited: Vec<Listener>) -> Result<Self, ExitReason> {
        let owner = options.listen.socket_owner.as_ref();
        let user = owner.map(|owner| owner.user.as_str());
        let group = owner.and_then(|owner| owner.group.as_deref());
        let access = UnixAccess::new(options.listen.socket_mode, user, group)
            .map_err(|error| refuse_privileges("--socket-owner", &error))?;
        Ok(Self { inherited: inherited.len(), listeners: inherited, access, files: Vec::new() })
    }

    /// The addresses of the listeners, for the log.
    fn addresses(&self) -> Vec<String> {
        let of = ["", " of the service manager"];
        let listeners = self.listeners.iter().enumerate();
        listeners.map(|(at, listener)| listener.address() + of[usize::from(at < self.inherited)]).collect()
    }

    /// Listens on the addresses of the command line. Inherited sockets replace `-l` and `-p`.
    fn listen_for_clients(&mut self, options: &Options) -> Result<(), ExitReason> {
        let own = if self.listeners.is_empty() {
            options.listen.own.as_ref()
        } else {
            // The unit of the service always names an address, so a warning is due only if the address is not that of
            // an inherited socket.
            let named = options.listen.own.as_ref().map(ToString::to_string);
            if !self.listeners.iter().any(|listener| Some(listener.address()) == named) {
                for option in &options.listen.overridden_if_inherited {
                    warn!("inherited listen fd; ignoring option: {option}");
                }
            }
            None
        };
        let flags = options.listen.overridden_if_inherited.join(" ");
        let own = own.map(|address| (flags, address));
        let further = options.listen.further.iter().map(|address| (format!("--listen {address}"), address));
        for (flags, address) in own.into_iter().chain(further) {
            let listener = self.listen_on(&flags, address)?;
            self.listeners.push(listener);
        }
        Ok(())
    }

    fn listen_for_metrics(&mut self, options: &Options) -> Result<Option<Listener>, ExitReason> {
        let Some(MetricsOptions { address, .. }) = &options.metrics else { return Ok(None) };
        let listener = self.listen_on(&format!("--metrics {address}"), address)?;
        info!("serving metrics on {}", listener.address());
        Ok(Some(listener))
    }

    fn listen_on(&mut self, flags: &str, address: &ListenAddress) -> Result<Listener, ExitReason> {
        let listener = match address {
            ListenAddress::Tcp { host, port, is_tls } => {
                let kind = if *is_tls { Listener::Tls } else { Listener::Tcp };
                os::listen::tcp(host.as_deref(), port).map(kind)
            }
            ListenAddress::Unix(path) => os::listen::unix(path, self.access).map(|(listener, file)| {
                self.files.push(file);
                if os::service_manager::hides(path) {
                    warn!(
                        "{flags}: the systemd unit has a {} of its own (PrivateTmp=), so clients outside of it \
                         do not see this socket; /run/beanstalkd is the place for it",
                        path.parent().unwrap_or(path).display()
                    );
                }
                Listener::Unix(listener)
            }),
        };
        listener.map_err(|error| refuse_listener(flags, &error))
    }
}

/// The limits in force, for a line of the log.
struct EffectiveLimits<'a> {
    requested: &'a LimitOptions,
    open_files: u64,
    max_memory_bytes: Option<u64>,
}

impl<'a> EffectiveLimits<'a> {
    /// The limits that the options request and the system allows. Raises the limit of open files.
    fn of(requested: &'a LimitOptions) -> Self {
        let open_files = os::limits::raise_open_files().unwrap_or_else(|error| {
            warn!("cannot raise the limit of open files: {error}");
            u64::MAX
        });
        // The rest of the control group's memory is for memory that the server does not count, and for the kernel.
        let part_of_group = || os::limits::group_memory_bytes().map(|limit| limit / 4 * 3);
        Self { requested, open_files, max_memory_bytes: requested.max_memory.in_bytes(part_of_group) }
    }
}

impl fmt::Display for EffectiveLimits<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requested, open_files, max_memory_bytes } = self;
        let (job_bytes, open_files) =
            (Count(requested.max_job_bytes, "byte"), Count(*open_files, "open file"));
        write!(out, "jobs up to {job_bytes}, {open_files}")?;
        if let Some(connections) = requested.max_connections {
            write!(out, ", {}", Count(connections as u64, "connection"))?;
        }
        if let Some(bytes) = max_memory_bytes {
            write!(out, ", {} of memory", Count(*bytes, "byte"))?;
        }
        if let Some(timeout) = requested.idle_timeout {
            write!(out, ", {} s idle time-out", timeout.as_secs())?;
        }
        Ok(())
    }
}

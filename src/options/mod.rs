//! The command line: C beanstalkd's flags, long forms beside them, and the options that C lacks.
//!
//! Owns: the options, their defaults and bounds, the texts of `--help` and of usage errors, and the exit codes. Never
//! asks the system: the parts that use the options read the environment, files and users. `main` drives it, once.
//!
//! The command line is read from left to right, as C does: a later flag overrides an earlier one, and the
//! first `-v` or `-h` ends the reading, whatever follows.

use std::ffi::OsString;
use std::fmt;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

mod argument;
mod command_line;
mod error;
mod flags;
mod store;

pub use self::error::UsageError;
pub use self::store::{BinlogPlace, DEFAULT_STORE_TIMEOUT, DEFAULT_TAKEOVER_AFTER, StoreOptions};

use self::argument::FlagArgument;
use self::command_line::CommandLine;
use self::flags::{Flag, Needs};

/// The reason why the process ends early. The exit codes are C's, except that of the damaged binlog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitReason {
    /// The server failed while it ran, or `--check` or `--dump` could not do its work.
    Failed = 1,
    /// The command line is wrong.
    Usage = 5,
    /// The binlog directory cannot be used, or another server holds its lock.
    BinlogDirectory = 10,
    /// The user database cannot be read.
    UserLookup = 32,
    /// There is no such user.
    NoSuchUser = 33,
    /// The system refused to change the user or its groups.
    BecomeUser = 34,
    /// The binlog is damaged, and starting on it would lose jobs (`EX_DATAERR`). A restart cannot repair it, so the
    /// unit file excludes this code from restarts.
    BinlogDamaged = 65,
    /// The server cannot start: a name does not resolve, an address cannot be bound, or any other reason.
    Start = 111,
}

impl ExitReason {
    /// The exit code of the process.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }
}

/// The port of the protocol; `-p` sets another one.
pub const DEFAULT_PORT: &str = "11300";
/// The address on which C listens by default.
pub const DEFAULT_HOST: &str = "0.0.0.0";
/// The largest body that `put` accepts by default, in bytes; C's default.
pub const DEFAULT_MAX_JOB_BYTES: u64 = 65_535;
/// The largest body that `-z` can allow, in bytes; C's bound.
pub const MAX_JOB_BYTES: u64 = 1 << 30;
/// The default size of a binlog file, in bytes; C's default.
pub const DEFAULT_BINLOG_FILE_BYTES: u64 = 10 << 20;
/// Binlog files consist of whole pages, so their sizes are rounded up to a multiple of this many bytes.
pub const BINLOG_FILE_STEP_BYTES: u64 = 4096;
/// The largest binlog file: C keeps the size in an `int`, and C must be able to use the directory again.
pub const MAX_BINLOG_FILE_BYTES: u64 = i32::MAX as u64 / BINLOG_FILE_STEP_BYTES * BINLOG_FILE_STEP_BYTES;
/// How long acknowledged changes may stay unsynced by default; C's default.
pub const DEFAULT_FSYNC_INTERVAL: Duration = Duration::from_millis(50);
/// The longest cooldown by default, in seconds: 30 days.
pub const DEFAULT_MAX_COOLDOWN_S: u32 = 30 * 24 * 3600;
/// How many tubes have their own metrics series by default: enough for most users, and still a small scrape.
pub const DEFAULT_METRICS_TUBES: usize = 1000;

/// The action that the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Run the server.
    Serve(Box<Options>),
    /// Print the version and exit.
    ShowVersion,
    /// Print `help` and exit.
    ShowHelp,
    /// Check a binlog without changing it.
    Check(BinlogPlace),
    /// Print the records of a binlog.
    Dump(BinlogPlace),
    /// Copy a binlog to a place that has none.
    Copy(BinlogPlace, BinlogPlace),
    /// Print the rules of a file of rules for tubes.
    CheckTubes(PathBuf),
    /// Print the permissions in an access file, of all identities or of one.
    CheckAccess(PathBuf, Option<String>),
    /// Read the files that SIGHUP reads with these options.
    CheckFiles(Box<Options>),
    /// Read the description of a server from this descriptor, with these options, as a trial.
    CheckHandOver(i32, Box<Options>),
    /// Print the hash of the token on the standard input.
    HashToken,
}

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// A TCP port.
    Tcp {
        /// A host name or an address; `None` means every address of the machine.
        host: Option<String>,
        /// A number, or the name of a service.
        port: String,
        /// Whether clients must use TLS.
        is_tls: bool,
    },
    /// A socket in the file system.
    Unix(PathBuf),
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, port) = match self {
            Self::Unix(path) => return write!(out, "unix:{}", path.display()),
            Self::Tcp { host, port, is_tls } => {
                out.write_str(if *is_tls { "tls://" } else { "" })?;
                (host, port)
            }
        };
        match host {
            None => write!(out, "*:{port}"),
            Some(host) if host.contains(':') => write!(out, "[{host}]:{port}"),
            Some(host) => write!(out, "{host}:{port}"),
        }
    }
}

/// The files for TLS. Only while the command line is read, the certificate or the key may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles<File = PathBuf> {
    /// The certificate, with the certificates that lead to its authority.
    pub certificate: File,
    /// The key of the certificate.
    pub key: File,
    /// The authorities of the clients' certificates.
    pub client_ca: Option<PathBuf>,
    /// The revocation lists for certificates of clients.
    pub crl: Option<PathBuf>,
}

/// A limit of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLimit {
    /// A part of another limit, if there is one.
    Automatic,
    /// No limit.
    Unlimited,
    /// This many bytes.
    Bytes(NonZeroU64),
}

impl MemoryLimit {
    /// The limit of an argument, in which 0 means no limit.
    fn of(bytes: u64) -> Self {
        NonZeroU64::new(bytes).map_or(Self::Unlimited, Self::Bytes)
    }

    /// The limit in bytes, if there is one.
    #[must_use]
    pub fn in_bytes(self, automatic: impl FnOnce() -> Option<u64>) -> Option<u64> {
        match self {
            Self::Automatic => automatic(),
            Self::Unlimited => None,
            Self::Bytes(bytes) => Some(bytes.get()),
        }
    }
}

/// When written changes are forced to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fsync {
    /// The operating system decides.
    Never,
    /// At most this long after the change; zero means before the reply.
    Within(Duration),
}

/// The format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines of text.
    Text,
    /// One JSON object per line, for programs.
    Json,
}

/// The owner of a unix socket, by name or number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketOwner {
    /// The user.
    pub user: String,
    /// The group; `None` leaves the group as it is.
    pub group: Option<String>,
}

/// The addresses for clients, and what the listeners need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenOptions {
    /// The address of `-l` and `-p`. `None` if only `--listen` is given. Sockets inherited from a
    /// service manager replace it.
    pub own: Option<ListenAddress>,
    /// The addresses of `--listen`, on which the server also listens.
    pub further: Vec<ListenAddress>,
    /// The `-l` and `-p` of the command line, such as `-p 11300`. If inherited sockets replace them, the
    /// server warns of them.
    pub overridden_if_inherited: Vec<String>,
    /// The files for TLS, if there is an address for it.
    pub tls: Option<TlsFiles>,
    /// The permissions of unix sockets; `None` leaves them to the umask.
    pub socket_mode: Option<u32>,
    /// The owner of unix sockets.
    pub socket_owner: Option<SocketOwner>,
}

/// The binlog that the server keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BinlogOptions {
    /// Its place.
    pub place: BinlogPlace,
    /// When it is synced.
    pub fsync: Fsync,
    /// Whether to start with the readable part of a damaged binlog.
    pub recover: bool,
    /// Whether to wait while another server holds its lock.
    pub wait_for_lock: bool,
}

/// The limits for clients and their jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitOptions {
    /// The largest body that `put` accepts, in bytes without the trailing CRLF; at most `MAX_JOB_BYTES`.
    pub max_job_bytes: u64,
    /// The maximum number of connections.
    pub max_connections: Option<usize>,
    /// The maximum memory for jobs and buffers. The automatic limit is a part of the limit of the control group.
    pub max_memory: MemoryLimit,
    /// The maximum memory for cooldowns. The automatic limit is a part of `max_memory`.
    pub max_cooldown_memory: MemoryLimit,
    /// The longest cooldown, in seconds.
    pub max_cooldown_s: Option<u32>,
    /// The maximum number of tubes that a client may watch.
    pub max_watched_tubes: Option<usize>,
    /// How long a connection may send nothing before it is closed.
    pub idle_timeout: Option<Duration>,
    /// How many times a job may time out before it is buried.
    pub max_timeouts: Option<u32>,
    /// How many times a job may be released before it is buried.
    pub max_releases: Option<u32>,
}

/// The metrics over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsOptions {
    /// Their address.
    pub address: ListenAddress,
    /// How many tubes have their own series; 0 for none.
    pub max_tubes: usize,
}

/// The administration page and its API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminOptions {
    /// Their address.
    pub address: ListenAddress,
    /// The file with the API's token.
    pub token_file: Option<PathBuf>,
    /// Whether the API refuses changes.
    pub is_read_only: bool,
}

/// The log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// The format of the log.
    pub format: LogFormat,
    /// How many times `-V` was given.
    pub verbosity: u8,
}

/// The settings of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The addresses for clients, and what the listeners need.
    pub listen: ListenOptions,
    /// The user to become once the sockets listen.
    pub user: Option<String>,
    /// The binlog; `None` keeps no binlog.
    pub binlog: Option<BinlogOptions>,
    /// The size of each binlog file that was asked for, in bytes; the binlog rounds it up to `BINLOG_FILE_STEP_BYTES`.
    /// At most `MAX_BINLOG_FILE_BYTES`. As in C, `binlog-max-size` reports it even without a binlog.
    pub binlog_file_bytes: u64,
    /// The limits for clients and their jobs.
    pub limits: LimitOptions,
    /// The metrics; `None` serves none.
    pub metrics: Option<MetricsOptions>,
    /// The administration page and its API; `None` serves none.
    pub admin: Option<AdminOptions>,
    /// The access file; `None` if every client may do everything.
    pub access: Option<PathBuf>,
    /// The file of rules for tubes.
    pub tubes: Option<PathBuf>,
    /// The log.
    pub log: LogOptions,
    /// How long to poll for events before sleeping.
    pub spin: Duration,
    /// Warnings for the operator, in the order of the command line; the server logs them before anything else.
    pub warnings: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: ListenOptions {
                own: Some(default_address(DEFAULT_PORT)),
                further: Vec::new(),
                overridden_if_inherited: Vec::new(),
                tls: None,
                socket_mode: None,
                socket_owner: None,
            },
            user: None,
            binlog: None,
            binlog_file_bytes: DEFAULT_BINLOG_FILE_BYTES,
            limits: LimitOptions {
                max_job_bytes: DEFAULT_MAX_JOB_BYTES,
                max_connections: None,
                max_memory: MemoryLimit::Automatic,
                max_cooldown_memory: MemoryLimit::Automatic,
                max_cooldown_s: Some(DEFAULT_MAX_COOLDOWN_S),
                max_watched_tubes: None,
                idle_timeout: None,
                max_timeouts: None,
                max_releases: None,
            },
            metrics: None,
            admin: None,
            access: None,
            tubes: None,
            log: LogOptions { format: LogFormat::Text, verbosity: 0 },
            spin: Duration::ZERO,
            warnings: Vec::new(),
        }
    }
}

/// C's default address, with this port.
fn default_address(port: &str) -> ListenAddress {
    ListenAddress::Tcp { host: Some(DEFAULT_HOST.into()), port: port.into(), is_tls: false }
}

impl Options {
    /// The action of `args`, the command line without the program's name.
    ///
    /// # Errors
    /// The first part of the line that cannot be accepted.
    pub fn parse<A>(args: A) -> Result<Action, UsageError>
    where
        A: IntoIterator,
        A::Item: Into<OsString>,
    {
        let mut draft = Draft { line: CommandLine::new(args), ..Draft::default() };
        while let Some((flag, argument)) = draft.line.next()? {
            (flag.set)(&mut draft, &argument)?;
            draft.dependent.extend(flag.needs.map(|needs| (argument, needs)));
            if let Some(action) = draft.version_or_help {
                return Ok(action);
            }
        }
        draft.finish()
    }

    fn addresses(&self) -> impl Iterator<Item = &ListenAddress> {
        let metrics = self.metrics.iter().map(|metrics| &metrics.address);
        let admin = self.admin.iter().map(|admin| &admin.address);
        self.listen.own.iter().chain(&self.listen.further).chain(metrics).chain(admin)
    }

    /// The first address for TLS.
    fn tls_address(&self) -> Option<&ListenAddress> {
        self.addresses().find(|address| matches!(address, ListenAddress::Tcp { is_tls: true, .. }))
    }

    /// Warns about flags that have no effect on this command line. Refuses such a flag if C does not have it, because
    /// no existing command line can rely on it.
    fn check_needs(
        &mut self,
        dependent: Vec<(FlagArgument, Needs)>,
        has_client_ca: bool,
    ) -> Result<(), UsageError> {
        let has_unix_socket = self.addresses().any(|address| matches!(address, ListenAddress::Unix(_)));
        let has_tls = self.tls_address().is_some();
        let place = self.binlog.as_ref().map(|binlog| &binlog.place);
        for (argument, needs) in dependent {
            let (is_met, other) = match needs {
                Needs::Binlog { .. } => (place.is_some(), "-b DIR"),
                Needs::Database => (matches!(place, Some(BinlogPlace::Database(..))), "-b postgresql://..."),
                Needs::UnixSocket => (has_unix_socket, "an address unix:PATH"),
                Needs::Metrics => (self.metrics.is_some(), "--metrics ADDR"),
                Needs::Admin => (self.admin.is_some(), "--admin ADDR"),
                Needs::Tls => (has_tls, "an address tls://HOST:PORT"),
                Needs::TlsClientCa => (has_client_ca, "--tls-client-ca FILE"),
            };
            if is_met {
                continue;
            }
            let error = UsageError::Alone { flag: argument.flag().to_owned(), other };
            if needs != (Needs::Binlog { known_to_c: true }) {
                return Err(error);
            }
            self.warnings.push(error.to_string());
        }
        Ok(())
    }

    /// The files for TLS, if there is an address for it. Such an address needs a certificate and its key.
    fn tls_files(&self, named: TlsFiles<Option<PathBuf>>) -> Result<Option<TlsFiles>, UsageError> {
        let Some(address) = self.tls_address() else { return Ok(None) };
        let lacks = |flag| UsageError::Lacks { what: address.to_string(), flag };
        let TlsFiles { certificate, key, client_ca, crl } = named;
        let certificate = certificate.ok_or_else(|| lacks("--tls-cert FILE"))?;
        let key = key.ok_or_else(|| lacks("--tls-key FILE"))?;
        Ok(Some(TlsFiles { certificate, key, client_ca, crl }))
    }
}

/// The action that reads a binlog at a place.
type ReadAction = fn(BinlogPlace) -> Action;

/// The options that have been read so far, and the options that can be decided only at the end of the line. Each field
/// is one flag, or a pair.
#[derive(Default)]
struct Draft {
    line: CommandLine,
    options: Options,
    /// The addresses of `-l` and `--listen`: the `-p` that completes them may follow.
    own_address: Option<FlagArgument>,
    further_addresses: Vec<FlagArgument>,
    port: Option<String>,
    tls: TlsFiles<Option<PathBuf>>,
    binlog: Option<BinlogPlace>,
    store: StoreOptions,
    fsync: Option<Fsync>,
    recover: bool,
    wait_for_lock: bool,
    metrics: Option<ListenAddress>,
    metrics_tubes: Option<usize>,
    admin: Option<ListenAddress>,
    admin_token_file: Option<PathBuf>,
    admin_read_only: bool,
    /// The flags that have no effect without another setting.
    dependent: Vec<(FlagArgument, Needs)>,
    /// `-v` or `-h`: nothing after it is read.
    version_or_help: Option<Action>,
    /// The actions that replace serving, the more important first.
    check_rules_or_hash: Option<Action>,
    /// `--check` or `--dump`, with the place of the binlog.
    reading: Option<(ReadAction, BinlogPlace)>,
    copying: Option<(BinlogPlace, BinlogPlace)>,
    checks_files: bool,
    checked_hand_over: Option<i32>,
}

impl Draft {
    fn warn(&mut self, text: String) -> Result<(), UsageError> {
        self.options.warnings.push(text);
        Ok(())
    }

    /// A size, at most the largest that C allows.
    fn size(&mut self, argument: &FlagArgument, what: &str, max_bytes: u64) -> Result<u64, UsageError> {
        let bytes = argument.size()?;
        if bytes > max_bytes {
            self.warn(format!("{argument}: {what} was set to {max_bytes}"))?;
        }
        Ok(bytes.min(max_bytes))
    }

    fn set_max_job_bytes(&mut self, argument: &FlagArgument) -> Result<(), UsageError> {
        self.options.limits.max_job_bytes = self.size(argument, "maximum job size", MAX_JOB_BYTES)?;
        Ok(())
    }

    /// Sets `-s` as it is given, because `binlog-max-size` reports this value; the binlog rounds it up.
    fn set_binlog_file_bytes(&mut self, argument: &FlagArgument) -> Result<(), UsageError> {
        self.options.binlog_file_bytes = self.size(argument, "binlog file size", MAX_BINLOG_FILE_BYTES)?;
        Ok(())
    }

    /// Sets the milliseconds of `-f`. C reads them into a signed number, in which the largest values are negative
    /// and therefore have the effect of 0.
    fn set_fsync_ms(&mut self, argument: &FlagArgument) -> Result<(), UsageError> {
        let mut ms = argument.milliseconds()?;
        if i64::try_from(ms).is_err() {
            self.warn(format!("{argument}: taken as 0: changes are synced before they are acknowledged"))?;
            ms = 0;
        }
        self.fsync = Some(Fsync::Within(Duration::from_millis(ms)));
        Ok(())
    }

    /// The action, at the end of the line.
    fn finish(self) -> Result<Action, UsageError> {
        let mut options = self.options;
        let in_store = |place: BinlogPlace| place.with(&self.store);
        let reading = self.reading.map(|(action, place)| action(in_store(place)));
        let copying = self.copying.map(|(from, to)| Action::Copy(in_store(from), in_store(to)));
        if let Some(action) = self.check_rules_or_hash.or(reading).or(copying) {
            return Ok(action);
        }
        options.binlog = self.binlog.map(|place| BinlogOptions {
            fsync: self.fsync.unwrap_or(place.default_fsync()),
            place: in_store(place),
            recover: self.recover,
            wait_for_lock: self.wait_for_lock,
        });
        let max_tubes = self.metrics_tubes.unwrap_or(DEFAULT_METRICS_TUBES);
        options.metrics = self.metrics.map(|address| MetricsOptions { address, max_tubes });
        options.admin = self.admin.map(|address| AdminOptions {
            address,
            token_file: self.admin_token_file,
            is_read_only: self.admin_read_only,
        });
        let port = self.port.as_deref().unwrap_or(DEFAULT_PORT);
        options.listen.own = match &self.own_address {
            Some(address) => Some(address.address(port)?),
            None => self.further_addresses.is_empty().then(|| default_address(port)),
        };
        let further = self.further_addresses.iter().map(|address| address.address(port));
        options.listen.further = further.collect::<Result<_, _>>()?;
        options.check_needs(self.dependent, self.tls.client_ca.is_some())?;
        options.listen.tls = options.tls_files(self.tls)?;
        let options = Box::new(options);
        Ok(match self.checked_hand_over {
            Some(descriptor) => Action::CheckHandOver(descriptor, options),
            None if self.checks_files => Action::CheckFiles(options),
            None => Action::Serve(options),
        })
    }
}

/// The text of `--help`, for the program called `program`.
#[must_use]
pub fn help(program: &str) -> String {
    format!("Use: {program} [OPTIONS]\n{HELP}")
}

const HELP: &str = include_str!("help.txt");

#[cfg(test)]
mod help_tests;
#[cfg(test)]
mod tests;

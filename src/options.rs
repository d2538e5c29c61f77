//! The command line: C beanstalkd's flags, long forms beside them, and the options that C lacks.
//!
//! Owns: what may be set, its defaults and bounds, the texts of `--help` and of usage errors, and the
//! exit codes. Never touches the system: the environment, files and users are looked up by those who
//! use the options. `main` drives it, once.
//!
//! The line is walked from left to right as C walks it: a later flag overrides an earlier one, and the
//! first `-v` or `-h` ends the walk, whatever follows.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use lexopt::{Arg, Parser};

/// What the process ends with, by cause. The numbers are C's, save for the damaged binlog.
pub mod exit_code {
    /// The server failed while it ran, or what `--check` or `--dump` was asked for could not be given.
    pub const FAILED: i32 = 1;
    /// The command line is wrong.
    pub const USAGE: i32 = 5;
    /// The binlog directory cannot be used, or another server holds its lock.
    pub const BINLOG_DIRECTORY: i32 = 10;
    /// The user data base cannot be read.
    pub const USER_LOOKUP: i32 = 32;
    /// There is no such user.
    pub const NO_SUCH_USER: i32 = 33;
    /// The system refused to change the user or its groups.
    pub const BECOME_USER: i32 = 34;
    /// The binlog is damaged, and starting on it would lose jobs (`EX_DATAERR`). A restart does not
    /// mend it, so the unit file excludes this code from restarts.
    pub const BINLOG_DAMAGED: i32 = 65;
    /// A name does not resolve, or an address cannot be bound; also any other failure to start.
    pub const LISTEN: i32 = 111;
}

/// The port of the protocol, unless `-p` names another.
pub const DEFAULT_PORT: &str = "11300";
/// Where C says that it listens by default.
pub const DEFAULT_HOST: &str = "0.0.0.0";
/// The largest body that `put` takes unless `-z` says otherwise, in bytes; C's default.
pub const DEFAULT_MAX_JOB_BYTES: u64 = 65_535;
/// The largest body that `-z` can allow, in bytes; C's bound.
pub const LARGEST_MAX_JOB_BYTES: u64 = 1 << 30;
/// The size of a binlog file unless `-s` says otherwise, in bytes; C's default.
pub const DEFAULT_BINLOG_FILE_BYTES: u64 = 10 << 20;
/// Binlog files are whole pages, so their sizes are rounded up to this many bytes.
pub const BINLOG_FILE_STEP_BYTES: u64 = 4096;
/// The largest binlog file: C keeps the size in an `int`, and C must be able to take the directory back.
pub const LARGEST_BINLOG_FILE_BYTES: u64 = i32::MAX as u64 / BINLOG_FILE_STEP_BYTES * BINLOG_FILE_STEP_BYTES;
/// How long acknowledged changes may stay unsynced unless `-f` says otherwise; C's default.
pub const DEFAULT_FSYNC_INTERVAL: Duration = Duration::from_millis(50);
/// How many tubes have metrics series of their own by default: enough for most, and little to scrape.
pub const DEFAULT_METRICS_TUBES: usize = 1000;

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Run the server.
    Serve(Box<Options>),
    /// Print the version and end.
    ShowVersion,
    /// Print `help` and end.
    ShowHelp,
    /// Check the binlog in a directory without changing it.
    Check(PathBuf),
    /// Print the records of the binlog in a directory.
    Dump(PathBuf),
}

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// A TCP port.
    Tcp {
        /// A host name or an address; every address of the machine where there is none.
        host: Option<String>,
        /// A number, or the name of a service.
        port: String,
    },
    /// A socket in the file system.
    Unix(PathBuf),
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host: None, port } => write!(out, "*:{port}"),
            Self::Tcp { host: Some(host), port } if host.contains(':') => write!(out, "[{host}]:{port}"),
            Self::Tcp { host: Some(host), port } => write!(out, "{host}:{port}"),
            Self::Unix(path) => write!(out, "unix:{}", path.display()),
        }
    }
}

/// When written changes are forced to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fsync {
    /// Left to the system.
    Never,
    /// At most this long after the change; zero means before it is acknowledged.
    Within(Duration),
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// An object a line, for machines.
    Json,
}

/// Who shall own a unix socket, by name or number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketOwner {
    /// The user.
    pub user: String,
    /// The group; left as it is where there is none.
    pub group: Option<String>,
}

/// How the server shall run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The address of `-l` and `-p`. `None` where only `--listen` says where. Sockets inherited from a
    /// service manager take its place.
    pub listen: Option<ListenAddress>,
    /// The addresses of `--listen`, listened on besides.
    pub further_listen: Vec<ListenAddress>,
    /// What was given of `-l` and `-p`, such as `-p 11300`: to be warned of where inherited sockets take
    /// their place.
    pub overridden_if_inherited: Vec<String>,
    /// The permissions of unix sockets; the umask decides where there are none.
    pub socket_mode: Option<u32>,
    /// The owner of unix sockets.
    pub socket_owner: Option<SocketOwner>,
    /// The user to become once the sockets listen.
    pub user: Option<String>,
    /// The largest body that `put` takes, in bytes without the trailing CRLF; at most
    /// `LARGEST_MAX_JOB_BYTES`.
    pub max_job_bytes: u64,
    /// The directory of the binlog; nothing is kept on disk where there is none.
    pub binlog_dir: Option<PathBuf>,
    /// The size of each binlog file, in bytes; a multiple of `BINLOG_FILE_STEP_BYTES`, not 0, at most
    /// `LARGEST_BINLOG_FILE_BYTES`.
    pub binlog_file_bytes: u64,
    /// When the binlog is synced.
    pub fsync: Fsync,
    /// Whether to start on a damaged binlog with what can be read of it.
    pub recover: bool,
    /// Whether to wait while another server holds the binlog's lock.
    pub wait_for_lock: bool,
    /// The most connections at a time.
    pub max_connections: Option<usize>,
    /// The most memory that jobs and buffers may take, in bytes; 0 for no bound, `None` for what the control group
    /// says.
    pub max_memory_bytes: Option<u64>,
    /// How long a connection may stay silent.
    pub idle_timeout: Option<Duration>,
    /// How many times a job may time out before it is buried.
    pub max_timeouts: Option<u32>,
    /// How many times a job may be released before it is buried.
    pub max_releases: Option<u32>,
    /// Where to serve metrics over HTTP.
    pub metrics: Option<ListenAddress>,
    /// How many tubes have series of their own in the metrics; 0 for none.
    pub metrics_tubes: usize,
    /// How the log is written.
    pub log_format: LogFormat,
    /// How many times `-V` was given.
    pub verbosity: u8,
    /// How long to poll for events before sleeping.
    pub spin: Duration,
    /// What to tell the operator before anything else, in the order of the command line.
    pub warnings: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: Some(ListenAddress::Tcp { host: Some(DEFAULT_HOST.into()), port: DEFAULT_PORT.into() }),
            further_listen: Vec::new(),
            overridden_if_inherited: Vec::new(),
            socket_mode: None,
            socket_owner: None,
            user: None,
            max_job_bytes: DEFAULT_MAX_JOB_BYTES,
            binlog_dir: None,
            binlog_file_bytes: DEFAULT_BINLOG_FILE_BYTES,
            fsync: Fsync::Within(DEFAULT_FSYNC_INTERVAL),
            recover: false,
            wait_for_lock: false,
            max_connections: None,
            max_memory_bytes: None,
            idle_timeout: None,
            max_timeouts: None,
            max_releases: None,
            metrics: None,
            metrics_tubes: DEFAULT_METRICS_TUBES,
            log_format: LogFormat::Text,
            verbosity: 0,
            spin: Duration::ZERO,
            warnings: Vec::new(),
        }
    }
}

/// Why a command line is refused; ends the process with `exit_code::USAGE`. Its text is C's where C
/// knows the case.
#[derive(Debug, PartialEq, Eq)]
pub enum UsageError {
    /// There is no such flag.
    UnknownFlag(String),
    /// Something that is no flag.
    UnknownArgument(String),
    /// The flag ends the line and needs an argument.
    MissingArgument(String),
    /// The flag takes no argument and has one (`--verbose=3`).
    UnexpectedArgument(String),
    /// The argument of `-z`, `-s` or `-f` is no number.
    InvalidSize(String),
    /// The argument of another flag is not what the flag takes.
    InvalidArgument {
        /// The flag.
        flag: &'static str,
        /// Its argument.
        argument: String,
    },
}

impl fmt::Display for UsageError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownFlag(flag) => write!(out, "unknown flag: {flag}"),
            Self::UnknownArgument(argument) => write!(out, "unknown argument: {argument}"),
            Self::MissingArgument(flag) => write!(out, "flag requires an argument: {flag}"),
            Self::UnexpectedArgument(flag) => write!(out, "flag takes no argument: {flag}"),
            Self::InvalidSize(size) => write!(out, "invalid size: {size}"),
            Self::InvalidArgument { flag, argument } => write!(out, "invalid argument of {flag}: {argument}"),
        }
    }
}

impl std::error::Error for UsageError {}

impl From<lexopt::Error> for UsageError {
    fn from(error: lexopt::Error) -> Self {
        match error {
            lexopt::Error::UnexpectedOption(flag) => Self::UnknownFlag(flag),
            lexopt::Error::MissingValue { option } => Self::MissingArgument(option.unwrap_or_default()),
            lexopt::Error::UnexpectedValue { option, .. } => Self::UnexpectedArgument(option),
            lexopt::Error::UnexpectedArgument(argument) => Self::UnknownArgument(lossy(&argument)),
            other => Self::UnknownArgument(other.to_string()),
        }
    }
}

impl Options {
    /// What `args`, the command line without the program's name, asks for.
    ///
    /// # Errors
    /// The first thing on the line that cannot be accepted.
    pub fn parse<A>(args: A) -> Result<Action, UsageError>
    where
        A: IntoIterator,
        A::Item: Into<OsString>,
    {
        let mut line = Parser::from_args(args);
        let mut options = Self::default();
        let mut addresses = Addresses::default();
        let mut other_action = None;
        while let Some(arg) = line.next()? {
            match arg {
                Arg::Short('b') | Arg::Long("binlog" | "binlog-dir") => {
                    options.binlog_dir = Some(line.value()?.into());
                }
                Arg::Short('f') | Arg::Long("fsync-ms") => options.fsync = fsync_within(size(&mut line)?),
                Arg::Short('D') => options.fsync = Fsync::Within(Duration::ZERO),
                Arg::Short('F') | Arg::Long("no-fsync") => options.fsync = Fsync::Never,
                Arg::Short('s') | Arg::Long("binlog-file-size") => {
                    let bytes = size(&mut line)?;
                    options.set_binlog_file_bytes(bytes);
                }
                Arg::Short('l') => {
                    let argument = line.value()?;
                    options.overridden_if_inherited.push(format!("-l {}", argument.display()));
                    addresses.of_l = Some(address("-l", argument)?);
                }
                Arg::Long("listen") => addresses.of_listen.push(address("--listen", line.value()?)?),
                Arg::Short('p') | Arg::Long("port") => {
                    let port = text("--port", &mut line)?;
                    options.overridden_if_inherited.push(format!("-p {port}"));
                    addresses.port = Some(port);
                }
                Arg::Short('u') | Arg::Long("user") => options.user = Some(text("--user", &mut line)?),
                Arg::Short('z') | Arg::Long("max-job-size") => {
                    let bytes = size(&mut line)?;
                    options.set_max_job_bytes(bytes);
                }
                Arg::Short(flag @ ('c' | 'n')) => {
                    options.warnings.push(format!("-{flag} flag was removed. binlog is always compacted."))
                }
                Arg::Short('V') | Arg::Long("verbose") => {
                    options.verbosity = options.verbosity.saturating_add(1);
                }
                Arg::Short('v') | Arg::Long("version") => return Ok(Action::ShowVersion),
                Arg::Short('h') | Arg::Long("help") => return Ok(Action::ShowHelp),
                Arg::Long("check") => other_action = Some(Action::Check(line.value()?.into())),
                Arg::Long("dump") => other_action = Some(Action::Dump(line.value()?.into())),
                Arg::Long(name) => {
                    let name = name.to_owned();
                    options.set_long(&name, &mut line)?;
                }
                other => return Err(other.unexpected().into()),
            }
        }
        options.set_addresses(addresses);
        Ok(other_action.unwrap_or_else(|| Action::Serve(Box::new(options))))
    }

    /// Sets one of the options that C lacks. 0 takes a limit away.
    fn set_long(&mut self, name: &str, line: &mut Parser) -> Result<(), UsageError> {
        match name {
            "recover" => self.recover = true,
            "wait-for-lock" => self.wait_for_lock = true,
            "max-connections" => self.max_connections = limit(number("--max-connections", line)?),
            "max-memory" => self.max_memory_bytes = Some(bytes_with_suffix("--max-memory", line)?),
            "idle-timeout" => {
                let seconds: u32 = number("--idle-timeout", line)?;
                self.idle_timeout = limit(seconds).map(|seconds| Duration::from_secs(seconds.into()));
            }
            "max-timeouts" => self.max_timeouts = limit(number("--max-timeouts", line)?),
            "max-releases" => self.max_releases = limit(number("--max-releases", line)?),
            "socket-mode" => self.socket_mode = Some(mode("--socket-mode", line)?),
            "socket-owner" => self.socket_owner = Some(owner("--socket-owner", line)?),
            "metrics" => self.metrics = Some(address_with_port("--metrics", line.value()?)?),
            "metrics-tubes" => self.metrics_tubes = number("--metrics-tubes", line)?,
            "log-format" => self.log_format = log_format("--log-format", line)?,
            "spin" => self.spin = Duration::from_micros(number::<u32>("--spin", line)?.into()),
            _ => return Err(Arg::Long(name).unexpected().into()),
        }
        Ok(())
    }

    /// Cuts `-z` at the largest body that C allows.
    fn set_max_job_bytes(&mut self, bytes: u64) {
        self.max_job_bytes = bytes.min(LARGEST_MAX_JOB_BYTES);
        if bytes > LARGEST_MAX_JOB_BYTES {
            self.warnings.push(format!("maximum job size was set to {LARGEST_MAX_JOB_BYTES}"));
        }
    }

    /// Rounds `-s` up to whole pages, within the bounds.
    fn set_binlog_file_bytes(&mut self, bytes: u64) {
        self.binlog_file_bytes = if bytes > LARGEST_BINLOG_FILE_BYTES {
            self.warnings.push(format!("binlog file size was set to {LARGEST_BINLOG_FILE_BYTES}"));
            LARGEST_BINLOG_FILE_BYTES
        } else {
            bytes.max(1).next_multiple_of(BINLOG_FILE_STEP_BYTES)
        };
    }

    /// Settles where to listen: `-p` may follow the addresses that it completes.
    fn set_addresses(&mut self, addresses: Addresses) {
        let port = addresses.port.as_deref().unwrap_or(DEFAULT_PORT);
        let only_listen = addresses.of_l.is_none() && !addresses.of_listen.is_empty();
        self.listen = (!only_listen).then(|| {
            let default = PortlessAddress::Tcp { host: Some(DEFAULT_HOST.into()), port: None };
            addresses.of_l.unwrap_or(default).with_port(port)
        });
        self.further_listen =
            addresses.of_listen.into_iter().map(|address| address.with_port(port)).collect();
    }
}

/// What the line says about where to listen, until its end.
#[derive(Default)]
struct Addresses {
    of_l: Option<PortlessAddress>,
    of_listen: Vec<PortlessAddress>,
    port: Option<String>,
}

/// An address whose port may be left to `-p`.
enum PortlessAddress {
    Tcp { host: Option<String>, port: Option<String> },
    Unix(PathBuf),
}

impl PortlessAddress {
    fn with_port(self, default: &str) -> ListenAddress {
        match self {
            Self::Tcp { host, port } => {
                ListenAddress::Tcp { host, port: port.unwrap_or_else(|| default.to_owned()) }
            }
            Self::Unix(path) => ListenAddress::Unix(path),
        }
    }
}

/// An address in one of the forms `unix:PATH`, `HOST`, `HOST:PORT`, `:PORT`, `[V6]`, `[V6]:PORT` and,
/// as C takes it, a bare V6.
fn address(flag: &'static str, argument: OsString) -> Result<PortlessAddress, UsageError> {
    if let Some(path) = argument.as_bytes().strip_prefix(b"unix:") {
        return Ok(PortlessAddress::Unix(OsString::from_vec(path.to_vec()).into()));
    }
    let text = argument.into_string().map_err(|argument| invalid(flag, &argument))?;
    let (host, port) = if let Some(bracketed) = text.strip_prefix('[') {
        let (host, rest) = bracketed.split_once(']').ok_or_else(|| invalid(flag, text.as_ref()))?;
        match rest.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if rest.is_empty() => (host, None),
            None => return Err(invalid(flag, text.as_ref())),
        }
    } else {
        match text.split_once(':') {
            Some((host, port)) if !port.contains(':') => (host, Some(port)),
            _ => (text.as_str(), None),
        }
    };
    if port == Some("") {
        return Err(invalid(flag, text.as_ref()));
    }
    let every_host = host.is_empty() && port.is_some();
    Ok(PortlessAddress::Tcp { host: (!every_host).then(|| host.to_owned()), port: port.map(str::to_owned) })
}

/// An address that has no default port to fall back on.
fn address_with_port(flag: &'static str, argument: OsString) -> Result<ListenAddress, UsageError> {
    match address(flag, argument.clone())? {
        PortlessAddress::Tcp { port: None, .. } => Err(invalid(flag, &argument)),
        PortlessAddress::Tcp { host, port: Some(port) } => Ok(ListenAddress::Tcp { host, port }),
        PortlessAddress::Unix(path) => Ok(ListenAddress::Unix(path)),
    }
}

/// The argument of `-f`, in milliseconds. C reads it into a signed number, in which the largest ones are
/// negative and therefore as good as 0.
fn fsync_within(ms: u64) -> Fsync {
    Fsync::Within(Duration::from_millis(i64::try_from(ms).map_or(0, i64::unsigned_abs)))
}

/// The argument as C's `sscanf("%zu")` takes it: leading white space, a sign and any number of digits,
/// where a minus wraps around and what is too large becomes the largest.
fn size(line: &mut Parser) -> Result<u64, UsageError> {
    let argument = line.value()?;
    scan_size(argument.as_bytes()).ok_or_else(|| UsageError::InvalidSize(lossy(&argument)))
}

fn scan_size(argument: &[u8]) -> Option<u64> {
    let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'\x0b';
    let start = argument.iter().position(|byte| !is_space(byte))?;
    let (negative, digits) = match &argument[start..] {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = digits
        .iter()
        .try_fold(0_u64, |value, digit| value.checked_mul(10)?.checked_add(u64::from(digit - b'0')));
    Some(match value {
        Some(value) if negative => value.wrapping_neg(),
        Some(value) => value,
        None => u64::MAX,
    })
}

/// Text that must be UTF-8.
fn text(flag: &'static str, line: &mut Parser) -> Result<String, UsageError> {
    line.value()?.into_string().map_err(|argument| invalid(flag, &argument))
}

/// The argument read by `read`, or the error that names it.
fn read_with<T>(
    flag: &'static str,
    line: &mut Parser,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<T, UsageError> {
    let argument = text(flag, line)?;
    read(&argument).ok_or_else(|| invalid(flag, argument.as_ref()))
}

/// A decimal number that fits `T`.
fn number<T: FromStr>(flag: &'static str, line: &mut Parser) -> Result<T, UsageError> {
    read_with(flag, line, |argument| argument.parse().ok())
}

/// A number of bytes, as such or with one of the suffixes k, m and g (powers of 1024).
fn bytes_with_suffix(flag: &'static str, line: &mut Parser) -> Result<u64, UsageError> {
    read_with(flag, line, |argument| {
        let (digits, unit) = match argument.char_indices().last()? {
            (end, 'k' | 'K') => (&argument[..end], 1 << 10),
            (end, 'm' | 'M') => (&argument[..end], 1 << 20),
            (end, 'g' | 'G') => (&argument[..end], 1 << 30),
            _ => (argument, 1),
        };
        digits.parse::<u64>().ok()?.checked_mul(unit)
    })
}

/// Permissions in octal.
fn mode(flag: &'static str, line: &mut Parser) -> Result<u32, UsageError> {
    read_with(flag, line, |argument| u32::from_str_radix(argument, 8).ok().filter(|mode| *mode <= 0o777))
}

/// `USER` or `USER:GROUP`.
fn owner(flag: &'static str, line: &mut Parser) -> Result<SocketOwner, UsageError> {
    read_with(flag, line, |argument| {
        let (user, group) = match argument.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (argument, None),
        };
        let named = !user.is_empty() && group != Some("");
        named.then(|| SocketOwner { user: user.to_owned(), group: group.map(str::to_owned) })
    })
}

fn log_format(flag: &'static str, line: &mut Parser) -> Result<LogFormat, UsageError> {
    read_with(flag, line, |argument| match argument {
        "text" => Some(LogFormat::Text),
        "json" => Some(LogFormat::Json),
        _ => None,
    })
}

/// A limit, unless it is 0.
fn limit<T: Default + PartialEq>(value: T) -> Option<T> {
    (value != T::default()).then_some(value)
}

fn invalid(flag: &'static str, argument: &OsStr) -> UsageError {
    UsageError::InvalidArgument { flag, argument: lossy(argument) }
}

fn lossy(argument: &OsStr) -> String {
    argument.to_string_lossy().into_owned()
}

/// The text of `--help`, for the program called `program`.
#[must_use]
pub fn help(program: &str) -> String {
    format!("Use: {program} [OPTIONS]\n{HELP}")
}

const HELP: &str = include_str!("options/help.txt");

#[cfg(test)]
mod tests;

//! The argument of a flag.
//!
//! Owns: the parser of each kind of argument, and the expected form in an error. Driven by
//! [`Options::parse`](super::Options::parse).

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::{BinlogPlace, ListenAddress, LogFormat, SocketOwner, StoreOptions, UsageError};
use crate::binlog::{DatabaseUrl, is_database_url};
use crate::number;

const SIZE: &str = "a number of bytes, such as 65535, 64k, 10m or 1g";
const ADDRESS: &str = "an address, with a port up to 65535 if any, such as 127.0.0.1, [::1]:11301, \
                       tls://0.0.0.0:11301 or unix:/run/socket";
const ADDRESS_WITH_PORT: &str = "an address with a port up to 65535, such as 127.0.0.1:9130, [::1]:9130 or \
                                 tls://0.0.0.0:9130, or unix:/run/socket";

/// An argument, with its flag as the command line spells it. The argument is empty if the flag takes none.
#[derive(Clone)]
pub(crate) struct FlagArgument {
    flag: String,
    value: OsString,
}

/// The flag and its argument as on the command line, such as `-p 11300`.
impl fmt::Display for FlagArgument {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.flag, self.value.display())
    }
}

impl FlagArgument {
    /// The argument of `flag`, spelled as on the command line.
    pub(crate) fn new(flag: String, value: OsString) -> Self {
        Self { flag, value }
    }

    /// The flag, as the command line spells it.
    pub(crate) fn flag(&self) -> &str {
        &self.flag
    }

    /// The place of a binlog: the path of a directory, of any bytes, or the URL of a database, with default settings.
    pub(crate) fn place(&self) -> Result<BinlogPlace, UsageError> {
        if self.value.is_empty() {
            return Err(self.refused("a directory"));
        }
        match self.value.to_str() {
            Some(text) if is_database_url(text) => match DatabaseUrl::parse(text) {
                Ok(url) => Ok(BinlogPlace::Database(Box::new(url), StoreOptions::default())),
                // The URL may contain a password, so no message repeats it.
                Err(expected) => Err(UsageError::InvalidArgument {
                    flag: self.flag.clone(),
                    argument: "postgresql://...".to_owned(),
                    expected,
                }),
            },
            _ => Ok(BinlogPlace::Directory(PathBuf::from(&self.value))),
        }
    }

    /// Whole seconds, at least one and at most a day.
    pub(crate) fn seconds(&self) -> Result<Duration, UsageError> {
        let expected = "whole seconds from 1 to 86400";
        self.read(expected, |text| text.parse().ok().filter(|seconds| (1..=86_400).contains(seconds)))
            .map(Duration::from_secs)
    }

    /// The path of a file, of any bytes.
    pub(crate) fn file(&self) -> Result<PathBuf, UsageError> {
        if self.value.is_empty() {
            return Err(self.refused("a file"));
        }
        Ok(PathBuf::from(&self.value))
    }

    /// A text, which must be UTF-8.
    pub(crate) fn text(&self) -> Result<String, UsageError> {
        self.read("UTF-8", |text| Some(text.to_owned()))
    }

    /// A decimal number that fits `T`.
    pub(crate) fn number<T: FromStr>(&self) -> Result<T, UsageError> {
        self.read("a whole number that is not too large", |text| text.parse().ok())
    }

    /// Milliseconds, as C reads them.
    pub(crate) fn milliseconds(&self) -> Result<u64, UsageError> {
        number::as_sscanf(self.value.as_bytes()).ok_or_else(|| self.refused("milliseconds, such as 50"))
    }

    /// A number of bytes as C reads it, or one with a suffix, which C does not accept.
    pub(crate) fn size(&self) -> Result<u64, UsageError> {
        number::as_sscanf(self.value.as_bytes()).map_or_else(|| self.bytes(), Ok)
    }

    /// A number of bytes, optionally with one of the suffixes k, m and g (powers of 1024).
    pub(crate) fn bytes(&self) -> Result<u64, UsageError> {
        self.read(SIZE, number::number_of_bytes)
    }

    /// Permissions in octal.
    pub(crate) fn mode(&self) -> Result<u32, UsageError> {
        self.read("permissions in octal, such as 660", |text| {
            u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777)
        })
    }

    /// `USER` or `USER:GROUP`.
    pub(crate) fn owner(&self) -> Result<SocketOwner, UsageError> {
        self.read("USER or USER:GROUP", |text| {
            let (user, group) = match text.split_once(':') {
                Some((user, group)) => (user, Some(group)),
                None => (text, None),
            };
            let named = !user.is_empty() && group != Some("");
            named.then(|| SocketOwner { user: user.to_owned(), group: group.map(str::to_owned) })
        })
    }

    /// `text` or `json`.
    pub(crate) fn log_format(&self) -> Result<LogFormat, UsageError> {
        self.read("text or json", |text| match text {
            "text" => Some(LogFormat::Text),
            "json" => Some(LogFormat::Json),
            _ => None,
        })
    }

    /// An address in one of the forms `unix:PATH`, `HOST`, `HOST:PORT`, `:PORT`, `[V6]`, `[V6]:PORT` and, as in C, a
    /// bare V6. Addresses for TCP may begin with `tls://`. The default port is `default_port`.
    pub(crate) fn address(&self, default_port: &str) -> Result<ListenAddress, UsageError> {
        self.any_address(Some(default_port), ADDRESS)
    }

    /// An address that must have a port, because there is no default.
    pub(crate) fn address_with_port(&self) -> Result<ListenAddress, UsageError> {
        self.any_address(None, ADDRESS_WITH_PORT)
    }

    fn any_address(
        &self,
        default_port: Option<&str>,
        expected: &'static str,
    ) -> Result<ListenAddress, UsageError> {
        match self.value.as_bytes().strip_prefix(b"unix:") {
            Some(b"") => {
                return Err(self.refused("a path after unix:, such as unix:/run/beanstalkd/socket"));
            }
            Some(path) => return Ok(ListenAddress::Unix(OsString::from_vec(path.to_vec()).into())),
            None => {}
        }
        let (is_tls, (host, port)) = self.read(ADDRESS, |text| match text.strip_prefix("tls://") {
            Some("") => None,
            Some(text) => Some((true, tcp_address(text)?)),
            None => Some((false, tcp_address(text)?)),
        })?;
        let port = port.or_else(|| default_port.map(str::to_owned)).ok_or_else(|| self.refused(expected))?;
        Ok(ListenAddress::Tcp { host, port, is_tls })
    }

    /// The warning about a port that C accepts although it makes no sense.
    pub(crate) fn doubt_as_port(&self) -> Option<String> {
        let port = self.value.to_str()?;
        if port.is_empty() {
            return Some(format!("{} '': no port is given, so the system chooses one", self.flag));
        }
        is_too_large(port).then(|| {
            format!("{self}: the largest port is 65535; the system may choose another one instead, as it does for C")
        })
    }

    fn read<T>(&self, expected: &'static str, read: impl FnOnce(&str) -> Option<T>) -> Result<T, UsageError> {
        self.value.to_str().and_then(read).ok_or_else(|| self.refused(expected))
    }

    fn refused(&self, expected: &'static str) -> UsageError {
        let argument = self.value.to_string_lossy().into_owned();
        UsageError::InvalidArgument { flag: self.flag.clone(), argument, expected }
    }
}

/// The host, or `None` for every address of the machine, and the port.
fn tcp_address(text: &str) -> Option<(Option<String>, Option<String>)> {
    let (host, port) = if let Some(bracketed) = text.strip_prefix('[') {
        let (host, rest) = bracketed.split_once(']')?;
        match rest.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if rest.is_empty() => (host, None),
            None => return None,
        }
    } else {
        match text.split_once(':') {
            Some((host, port)) if !port.contains(':') => (host, Some(port)),
            _ => (text, None),
        }
    };
    if port.is_some_and(|port| port.is_empty() || is_too_large(port)) {
        return None;
    }
    let every_host = host.is_empty() && port.is_some();
    Some(((!every_host).then(|| host.to_owned()), port.map(str::to_owned)))
}

/// Whether `port` is a number above the largest port. A text with other characters than digits may be the name of a
/// service.
fn is_too_large(port: &str) -> bool {
    port.bytes().all(|byte| byte.is_ascii_digit()) && !port.parse::<u64>().is_ok_and(|port| port <= 65_535)
}

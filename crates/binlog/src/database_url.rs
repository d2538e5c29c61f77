//! The URL of a queue in PostgreSQL, as the argument of `-b`.
//!
//! Owns: the parsing and checking of `postgresql://[user@]host[:port],.../db?queue=NAME`. Never opens anything.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::percent;

/// PostgreSQL's port.
const DEFAULT_PORT: u16 = 5432;
/// The user if the URL names none.
const DEFAULT_USER: &str = "beanstalkd";
/// The longest time to wait for a host: the hosts after it must wait, too.
const MAX_CONNECT_SECONDS: u64 = 600;
/// The longest name of a queue, in bytes.
const MAX_QUEUE_BYTES: usize = 200;

/// A host of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the other fields say everything")]
pub enum DatabaseHost {
    /// A name or an address, and a port.
    Tcp {
        /// Without brackets.
        host: String,
        port: u16,
    },
    /// A socket in the file system.
    Unix(PathBuf),
}

/// The protection of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the other fields say everything")]
pub enum DatabaseTls {
    /// No encryption.
    Off,
    /// Encryption, without verification of the server.
    Require,
    /// The server's certificate is verified, without its name.
    VerifyCa { roots: PathBuf },
    /// The server's certificate is verified, with its name.
    VerifyFull {
        /// The authorities; `None` for those of the system.
        roots: Option<PathBuf>,
    },
}

/// The location of a queue's log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the other fields say everything")]
pub struct DatabaseUrl {
    /// The hosts, at least one.
    pub hosts: Vec<DatabaseHost>,
    pub user: String,
    pub database: String,
    pub queue: String,
    pub tls: DatabaseTls,
    /// How long each address may take to accept a connection.
    pub connect_timeout: Option<Duration>,
}

/// The URL in normal form: it never has a password.
impl fmt::Display for DatabaseUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "postgresql://{}@", self.user)?;
        for (at, host) in self.hosts.iter().enumerate() {
            write!(out, "{}{host}", if at == 0 { "" } else { "," })?;
        }
        write!(out, "/{}?queue={}", self.database, self.queue)
    }
}

impl fmt::Display for DatabaseHost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(out, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(out, "{host}:{port}"),
            Self::Unix(path) => write!(out, "{}", path.display()),
        }
    }
}

/// Whether `text` is the URL of a database, and not a directory.
#[must_use]
pub fn is_database_url(text: &str) -> bool {
    without_scheme(text).is_some()
}

fn without_scheme(text: &str) -> Option<&str> {
    text.strip_prefix("postgresql://").or_else(|| text.strip_prefix("postgres://"))
}

impl DatabaseUrl {
    /// Parses `text` as a URL.
    ///
    /// # Errors
    /// The expected form. The words never repeat a part of `text`, which may contain a password.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const FORM: &str = "postgresql://[USER@]HOST[:PORT][,HOST...]/DATABASE?queue=NAME";
        let rest = without_scheme(text).ok_or(FORM)?;
        let (rest, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').ok_or(FORM)?;
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, _)) if user.contains(':') => {
                return Err("no password in the address, because `ps` shows it: use --store-password-file");
            }
            Some((user, hosts)) => (decoded(user).ok_or(FORM)?, hosts),
            None => (DEFAULT_USER.to_owned(), authority),
        };
        let hosts = hosts.split(',').map(host).collect::<Option<Vec<_>>>().ok_or(FORM)?;
        let database = decoded(database).ok_or(FORM)?;
        if user.is_empty() || database.is_empty() {
            return Err(FORM);
        }
        let UrlParameters { queue, tls, roots, connect_timeout } = UrlParameters::parse(parameters)?;
        let queue = queue.ok_or("?queue=NAME at the end of the address: which queue the server owns")?;
        let is_near = hosts.iter().all(DatabaseHost::is_near);
        let tls = match (tls, roots) {
            (Some(SslMode::Disable), Some(_)) => return Err("no sslrootcert where sslmode is disable"),
            (Some(SslMode::Disable), None) => DatabaseTls::Off,
            // As in libpq, authorities are used if they are given.
            (Some(SslMode::Require | SslMode::VerifyCa), Some(roots)) => DatabaseTls::VerifyCa { roots },
            (Some(SslMode::Require), None) => DatabaseTls::Require,
            (Some(SslMode::VerifyCa), None) => return Err("sslrootcert=FILE where sslmode is verify-ca"),
            (None, None) if is_near => DatabaseTls::Off,
            (Some(SslMode::VerifyFull) | None, roots) => DatabaseTls::VerifyFull { roots },
        };
        Ok(Self { hosts, user, database, queue, tls, connect_timeout })
    }
}

impl DatabaseHost {
    /// Whether data to this host stays on this machine.
    fn is_near(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Tcp { host, .. } => {
                host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
            }
        }
    }
}

/// The words of libpq that are supported. The other two may fall back to plain text.
enum SslMode {
    Disable,
    Require,
    VerifyCa,
    VerifyFull,
}

#[derive(Default)]
struct UrlParameters {
    queue: Option<String>,
    tls: Option<SslMode>,
    roots: Option<PathBuf>,
    connect_timeout: Option<Duration>,
}

impl UrlParameters {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let mut found = Self::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decoded(value).ok_or("a percent sign with two hexadecimal digits after it")?;
            match (key, value.as_str()) {
                ("queue", name) if is_queue_name(name) => found.queue = Some(value),
                ("queue", _) => return Err("queue=NAME of 1 to 200 letters, digits and -_./"),
                ("sslmode", "disable") => found.tls = Some(SslMode::Disable),
                ("sslmode", "require") => found.tls = Some(SslMode::Require),
                ("sslmode", "verify-ca") => found.tls = Some(SslMode::VerifyCa),
                ("sslmode", "verify-full") => found.tls = Some(SslMode::VerifyFull),
                ("sslmode", _) => {
                    return Err(
                        "sslmode=verify-full, verify-ca, require or disable: it never falls back to plain text",
                    );
                }
                ("sslrootcert", "") => return Err("sslrootcert=FILE"),
                ("sslrootcert", _) => found.roots = Some(value.into()),
                ("password", _) => {
                    return Err(
                        "no password in the address, because `ps` shows it: use --store-password-file",
                    );
                }
                ("connect_timeout", seconds) => {
                    let seconds =
                        seconds.parse().ok().filter(|seconds| (1..=MAX_CONNECT_SECONDS).contains(seconds));
                    let seconds = seconds.ok_or("connect_timeout=SECONDS from 1 to 600, for each address")?;
                    found.connect_timeout = Some(Duration::from_secs(seconds));
                }
                // The server always does this.
                ("target_session_attrs", "read-write" | "primary" | "any") => {}
                ("target_session_attrs", _) => {
                    return Err(
                        "no target_session_attrs except read-write: the server always searches for the host that \
                         accepts writes",
                    );
                }
                ("options", _) => {
                    return Err("no options: the server itself sets the options of its sessions");
                }
                _ => {
                    return Err("no parameters except queue, sslmode, sslrootcert, connect_timeout and \
                                target_session_attrs=read-write");
                }
            }
        }
        Ok(found)
    }
}

fn is_queue_name(name: &str) -> bool {
    (1..=MAX_QUEUE_BYTES).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte))
}

fn host(text: &str) -> Option<DatabaseHost> {
    let (host, port) = if let Some(bracketed) = text.strip_prefix('[') {
        let (host, rest) = bracketed.split_once(']')?;
        (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
    } else {
        match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    let host = decoded(host)?;
    let port = port.map_or(Some(DEFAULT_PORT), |port| port.parse().ok().filter(|&port| port > 0))?;
    if host.starts_with('/') {
        return Some(DatabaseHost::Unix(PathBuf::from(host).join(format!(".s.PGSQL.{port}"))));
    }
    (!host.is_empty()).then_some(DatabaseHost::Tcp { host, port })
}

/// `text` with its escapes decoded, if it has no byte that a file name cannot have.
fn decoded(text: &str) -> Option<String> {
    percent::decode(text).filter(|text| !text.contains('\0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> DatabaseHost {
        DatabaseHost::Tcp { host: host.to_owned(), port }
    }

    #[test]
    fn an_address_names_hosts_user_database_and_queue() {
        let url =
            DatabaseUrl::parse("postgresql://mail@db1,db2:5433,[fd00::1]:5434/jobs?queue=mail").unwrap();
        assert_eq!(url.hosts, [tcp("db1", 5432), tcp("db2", 5433), tcp("fd00::1", 5434)]);
        assert_eq!((url.user.as_str(), url.database.as_str(), url.queue.as_str()), ("mail", "jobs", "mail"));
        assert_eq!(url.tls, DatabaseTls::VerifyFull { roots: None });
        assert_eq!(url.to_string(), "postgresql://mail@db1:5432,db2:5433,[fd00::1]:5434/jobs?queue=mail");
        assert_eq!(DatabaseUrl::parse(&url.to_string()), Ok(url));
    }

    #[test]
    fn a_socket_of_the_file_system_is_a_host() {
        let url = DatabaseUrl::parse("postgres://%2Frun%2Fpg:5433/jobs?queue=a").unwrap();
        assert_eq!(url.hosts, [DatabaseHost::Unix("/run/pg/.s.PGSQL.5433".into())]);
        assert_eq!((url.user.as_str(), url.tls), ("beanstalkd", DatabaseTls::Off));
    }

    #[test]
    fn connections_to_other_machines_are_encrypted_unless_the_url_says_otherwise() {
        let tls = |rest: &str| DatabaseUrl::parse(&format!("postgresql://{rest}")).map(|url| url.tls);
        let verified = |roots: Option<&str>| Ok(DatabaseTls::VerifyFull { roots: roots.map(Into::into) });
        assert_eq!(tls("127.0.0.1,[::1],localhost/d?queue=q"), Ok(DatabaseTls::Off));
        assert_eq!(tls("127.0.0.1,db/d?queue=q"), verified(None));
        assert_eq!(tls("db/d?queue=q&sslmode=disable"), Ok(DatabaseTls::Off));
        assert_eq!(tls("localhost/d?queue=q&sslmode=verify-full"), verified(None));
        assert_eq!(tls("localhost/d?sslrootcert=/etc/ca.pem&queue=q"), verified(Some("/etc/ca.pem")));
        assert_eq!(tls("db/d?queue=q&sslmode=require"), Ok(DatabaseTls::Require));
        assert_eq!(tls("localhost/d?queue=q&sslmode=require"), Ok(DatabaseTls::Require));
        let with_roots = Ok(DatabaseTls::VerifyCa { roots: "ca".into() });
        assert_eq!(tls("db/d?queue=q&sslmode=require&sslrootcert=ca"), with_roots);
        assert_eq!(tls("db/d?queue=q&sslmode=verify-ca&sslrootcert=ca"), with_roots);
        assert!(tls("db/d?queue=q&sslmode=verify-ca").is_err());
        assert!(tls("db/d?queue=q&sslmode=prefer").is_err(), "it would fall back to plain text");
        assert!(tls("db/d?queue=q&sslmode=disable&sslrootcert=a").is_err());
    }

    #[test]
    fn words_of_libpq_are_understood_or_the_error_says_why_not() {
        let parse = |rest: &str| DatabaseUrl::parse(&format!("postgresql://db/d?queue=q&{rest}"));
        assert_eq!(parse("").unwrap().connect_timeout, None);
        assert_eq!(parse("connect_timeout=10").unwrap().connect_timeout, Some(Duration::from_secs(10)));
        for text in ["connect_timeout=0", "connect_timeout=601", "connect_timeout=", "connect_timeout=x"] {
            assert!(parse(text).unwrap_err().contains("from 1 to 600"), "{text}");
        }
        for text in ["read-write", "primary", "any"] {
            assert!(parse(&format!("target_session_attrs={text}")).is_ok(), "{text}");
        }
        for text in ["standby", "prefer-standby", "read-only"] {
            let error = parse(&format!("target_session_attrs={text}")).unwrap_err();
            assert!(error.contains("accepts writes"), "{error}");
        }
        assert!(parse("options=-c%20jit=off").unwrap_err().contains("no options"));
    }

    #[test]
    fn a_password_is_refused_and_never_repeated() {
        for text in ["postgresql://u:secret@h/d?queue=q", "postgresql://u@h/d?queue=q&password=secret"] {
            let error = DatabaseUrl::parse(text).unwrap_err();
            assert!(error.contains("--store-password-file") && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn malformed_urls_are_refused() {
        for rest in [
            "",
            "h",
            "h/",
            "/d?queue=q",
            "h/d",
            "h/d?queue=",
            "h/d?queue=a%20b",
            "h:0/d?queue=q",
            "h:x/d?queue=q",
            "h,/d?queue=q",
            "@h/d?queue=q",
            "[::1/d?queue=q",
            "h/d?queue=q&what=1",
            "h/%zz?queue=q",
            "%00/d?queue=q",
        ] {
            assert!(DatabaseUrl::parse(&format!("postgresql://{rest}")).is_err(), "{rest}");
        }
        assert!(is_database_url("postgres://h") && !is_database_url("/var/lib/postgres://"));
    }
}

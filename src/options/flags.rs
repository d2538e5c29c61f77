//! All flags: the spelling, the requirements and the effect of each.
//!
//! Owns: the table. A new option is one row, a field of a part of [`Options`](super::Options), and its lines in
//! `help.txt`, the README and the manual, which `help_tests.rs` compares with the table. Driven by
//! [`Options::parse`](super::Options::parse).

use std::time::Duration;

use getopts::HasArg;

use super::argument::FlagArgument;
use super::{Action, DEFAULT_PORT, Draft, Fsync, MemoryLimit, UsageError};

/// Sets the option of a flag with this argument.
type Set = fn(&mut Draft, &FlagArgument) -> Result<(), UsageError>;

/// A row of the table.
pub(crate) struct Flag {
    /// The letter; empty if there is no short form.
    pub short: &'static str,
    /// The word; empty if there is no long form.
    pub long: &'static str,
    /// Whether it takes an argument.
    pub takes: HasArg,
    /// The setting without which it has no effect.
    pub needs: Option<Needs>,
    /// Effect of the flag on the options.
    pub set: Set,
}

/// The setting without which a flag has no effect.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// The binlog. For a flag that is `known_to_c`, the operator only gets a warning, because C accepts it without
    /// `-b`.
    Binlog {
        /// C has the flag.
        known_to_c: bool,
    },
    /// The binlog in a database.
    Database,
    /// An address `unix:PATH`.
    UnixSocket,
    /// `--metrics`.
    Metrics,
    /// `--admin`.
    Admin,
    /// An address `tls://HOST:PORT`.
    Tls,
    /// `--tls-client-ca`.
    TlsClientCa,
}

const OF_C: Needs = Needs::Binlog { known_to_c: true };
const OF_OURS: Needs = Needs::Binlog { known_to_c: false };

impl Flag {
    const fn plain(short: &'static str, long: &'static str, set: Set) -> Self {
        Self { short, long, takes: HasArg::No, needs: None, set }
    }

    const fn with(short: &'static str, long: &'static str, set: Set) -> Self {
        Self { short, long, takes: HasArg::Yes, needs: None, set }
    }

    const fn needing(self, needs: Needs) -> Self {
        Self { needs: Some(needs), ..self }
    }
}

/// Sets an option.
fn set<T>(option: &mut T, value: Result<T, UsageError>) -> Result<(), UsageError> {
    *option = value?;
    Ok(())
}

/// Sets an option that is unset by default.
fn put<T>(option: &mut Option<T>, value: Result<T, UsageError>) -> Result<(), UsageError> {
    set(option, value.map(Some))
}

/// Sets a limit, which 0 removes.
fn limit<T: Default + PartialEq>(
    option: &mut Option<T>,
    value: Result<T, UsageError>,
) -> Result<(), UsageError> {
    set(option, value.map(|value| (value != T::default()).then_some(value)))
}

/// Sets a limit of memory.
fn memory(option: &mut MemoryLimit, argument: &FlagArgument) -> Result<(), UsageError> {
    set(option, argument.bytes().map(MemoryLimit::of))
}

/// The flags, in the order of their subjects.
#[rustfmt::skip]
pub(crate) const FLAGS: &[Flag] = &[
    // Where to listen.
    Flag::with("l", "", |draft, argument| {
        draft.options.listen.overridden_if_inherited.push(argument.to_string());
        argument.address(DEFAULT_PORT)?;
        put(&mut draft.own_address, Ok(argument.clone()))
    }),
    Flag::with("p", "port", |draft, argument| {
        draft.options.listen.overridden_if_inherited.push(argument.to_string());
        draft.options.warnings.extend(argument.doubt_as_port());
        put(&mut draft.port, argument.text())
    }),
    Flag::with("", "listen", |draft, argument| {
        argument.address(DEFAULT_PORT)?;
        draft.further_addresses.push(argument.clone());
        Ok(())
    }),
    Flag::with("", "socket-mode", |draft, argument| put(&mut draft.options.listen.socket_mode, argument.mode()))
        .needing(Needs::UnixSocket),
    Flag::with("", "socket-owner", |draft, argument| put(&mut draft.options.listen.socket_owner, argument.owner()))
        .needing(Needs::UnixSocket),
    Flag::with("", "tls-cert", |draft, argument| put(&mut draft.tls.certificate, argument.file()))
        .needing(Needs::Tls),
    Flag::with("", "tls-key", |draft, argument| put(&mut draft.tls.key, argument.file())).needing(Needs::Tls),
    Flag::with("", "tls-client-ca", |draft, argument| put(&mut draft.tls.client_ca, argument.file()))
        .needing(Needs::Tls),
    Flag::with("", "tls-crl", |draft, argument| put(&mut draft.tls.crl, argument.file()))
        .needing(Needs::TlsClientCa),
    // The binlog.
    Flag::with("b", "binlog", |draft, argument| put(&mut draft.binlog, argument.place())),
    Flag::with("", "binlog-dir", |draft, argument| put(&mut draft.binlog, argument.place())),
    Flag::with("f", "fsync-ms", Draft::set_fsync_ms).needing(OF_C),
    Flag::plain("D", "", |draft, _| put(&mut draft.fsync, Ok(Fsync::Within(Duration::ZERO)))).needing(OF_OURS),
    Flag::plain("F", "no-fsync", |draft, _| put(&mut draft.fsync, Ok(Fsync::Never))),
    Flag::with("s", "binlog-file-size", Draft::set_binlog_file_bytes).needing(OF_C),
    Flag::plain("", "recover", |draft, _| set(&mut draft.recover, Ok(true))).needing(OF_OURS),
    Flag::plain("", "wait-for-lock", |draft, _| set(&mut draft.wait_for_lock, Ok(true))).needing(OF_OURS),
    Flag::plain("c", "", |draft, _| draft.warn("-c flag was removed. binlog is always compacted.".to_owned())),
    Flag::plain("n", "", |draft, _| draft.warn("-n flag was removed. binlog is always compacted.".to_owned())),
    Flag::with("", "takeover-after", |draft, argument| set(&mut draft.store.takeover_after, argument.seconds()))
        .needing(Needs::Database),
    Flag::with("", "store-timeout", |draft, argument| set(&mut draft.store.timeout, argument.seconds()))
        .needing(Needs::Database),
    Flag::with("", "store-password-file",
        |draft, argument| put(&mut draft.store.password_file, argument.file())).needing(Needs::Database),
    Flag::plain("", "allow-async", |draft, _| set(&mut draft.store.allow_async, Ok(true)))
        .needing(Needs::Database),
    // Limits.
    Flag::with("z", "max-job-size", Draft::set_max_job_bytes),
    Flag::with("", "max-connections",
        |draft, argument| limit(&mut draft.options.limits.max_connections, argument.number())),
    Flag::with("", "max-memory", |draft, argument| memory(&mut draft.options.limits.max_memory, argument)),
    Flag::with("", "max-cooldown-memory",
        |draft, argument| memory(&mut draft.options.limits.max_cooldown_memory, argument)),
    Flag::with("", "max-cooldown",
        |draft, argument| limit(&mut draft.options.limits.max_cooldown_s, argument.number())),
    Flag::with("", "max-watched-tubes",
        |draft, argument| limit(&mut draft.options.limits.max_watched_tubes, argument.number())),
    Flag::with("", "idle-timeout", |draft, argument| {
        let seconds = argument.number::<u32>();
        limit(&mut draft.options.limits.idle_timeout, seconds.map(|seconds| Duration::from_secs(seconds.into())))
    }),
    Flag::with("", "max-timeouts", |draft, argument| limit(&mut draft.options.limits.max_timeouts, argument.number())),
    Flag::with("", "max-releases", |draft, argument| limit(&mut draft.options.limits.max_releases, argument.number())),
    // Operation.
    Flag::with("u", "user", |draft, argument| put(&mut draft.options.user, argument.text())),
    Flag::with("", "access", |draft, argument| put(&mut draft.options.access, argument.file())),
    Flag::with("", "tubes", |draft, argument| put(&mut draft.options.tubes, argument.file())),
    Flag::with("", "metrics", |draft, argument| put(&mut draft.metrics, argument.address_with_port())),
    Flag::with("", "metrics-tubes", |draft, argument| put(&mut draft.metrics_tubes, argument.number()))
        .needing(Needs::Metrics),
    Flag::with("", "admin", |draft, argument| put(&mut draft.admin, argument.address_with_port())),
    Flag::with("", "admin-token-file", |draft, argument| put(&mut draft.admin_token_file, argument.file()))
        .needing(Needs::Admin),
    Flag::plain("", "admin-read-only", |draft, _| set(&mut draft.admin_read_only, Ok(true)))
        .needing(Needs::Admin),
    Flag::with("", "log-format", |draft, argument| set(&mut draft.options.log.format, argument.log_format())),
    Flag::with("", "spin", |draft, argument| {
        let microseconds = argument.number::<u32>();
        set(&mut draft.options.spin, microseconds.map(|us| Duration::from_micros(us.into())))
    }),
    Flag::plain("V", "verbose", |draft, _| {
        draft.options.log.verbosity = draft.options.log.verbosity.saturating_add(1);
        Ok(())
    }),
    // Actions that replace serving.
    Flag::plain("v", "version", |draft, _| put(&mut draft.version_or_help, Ok(Action::ShowVersion))),
    Flag::plain("h", "help", |draft, _| put(&mut draft.version_or_help, Ok(Action::ShowHelp))),
    Flag::with("", "check",
        |draft, argument| put(&mut draft.reading, argument.place().map(|place| (Action::Check as _, place)))),
    Flag::with("", "dump",
        |draft, argument| put(&mut draft.reading, argument.place().map(|place| (Action::Dump as _, place)))),
    Flag::with("", "copy", |draft, argument| {
        let from = argument.place()?;
        put(&mut draft.copying, draft.line.place_of_copy(argument).map(|to| (from, to)))
    }),
    Flag::with("", "check-access", |draft, argument| {
        let file = argument.file()?;
        put(&mut draft.check_rules_or_hash, Ok(Action::CheckAccess(file, draft.line.next_operand())))
    }),
    Flag::with("", "check-tubes",
        |draft, argument| put(&mut draft.check_rules_or_hash, argument.file().map(Action::CheckTubes))),
    Flag::plain("", "hash-token", |draft, _| put(&mut draft.check_rules_or_hash, Ok(Action::HashToken))),
    Flag::plain("", "check-files", |draft, _| set(&mut draft.checks_files, Ok(true))),
    Flag::with("", "check-handover", |draft, argument| put(&mut draft.checked_hand_over, argument.number())),
];

//! The message for an operator if the server cannot start: the flag, the problem, and what to do next.
//!
//! Owns: the advice, and the choice between several exit codes for a failure. Driven by `startup` and `main`.

use std::error::Error;
use std::io::ErrorKind;
use std::path::Path;

use beanstalkd::options::{BinlogPlace, ExitReason};
use beanstalkd_binlog::{FileName, OpenError};
use beanstalkd_os::directory_lock::LockError;
use beanstalkd_os::listen::ListenError;
use beanstalkd_os::privileges::PrivilegeError;
use log::error;

use super::path_advice::advice;

/// A function that reports the error of a step that has failed, and returns the reason of the exit.
pub fn failed<E: Error>(reason: ExitReason) -> impl Fn(E) -> ExitReason + Copy {
    move |error| {
        error!("{error}");
        reason
    }
}

/// Reports that the lock of the binlog's directory cannot be taken.
pub fn refuse_lock(directory: &Path, error: &LockError) -> ExitReason {
    let advice = match error {
        LockError::Held { .. } => {
            "; end that server first, or start with --wait-for-lock to take over from it".to_owned()
        }
        LockError::Replaced { .. } => "; start the server again".to_owned(),
        LockError::Open { path, source } | LockError::Lock { path, source } => advice(path, source),
    };
    error!("-b {}: {error}{advice}", directory.display());
    ExitReason::BinlogDirectory
}

/// Reports that the binlog cannot be opened.
pub fn refuse_binlog(place: &BinlogPlace, error: &OpenError) -> ExitReason {
    match error {
        OpenError::Faulty(_) => {
            let place_kind = match place {
                BinlogPlace::Directory(_) => "directory",
                BinlogPlace::Database(..) => "database",
            };
            error!(
                "-b {place}: the binlog is damaged: {error}; make a copy of the {place_kind} as a backup, see what is \
                 left with `beanstalkd --check {place}`, and start with --recover to keep what can be read"
            );
        }
        OpenError::List(source)
        | OpenError::Read { error: source, .. }
        | OpenError::Write { error: source, .. }
        | OpenError::Keep { error: source, .. } => {
            let advice = match (place, error) {
                (BinlogPlace::Directory(path), OpenError::Read { file, .. }) => {
                    advice(&path.join(FileName::Log(*file).text()), source)
                }
                (BinlogPlace::Directory(path), _) => advice(path, source),
                (BinlogPlace::Database(..), _) => String::new(),
            };
            error!("-b {place}: {error}{advice}");
        }
        OpenError::TooManyFiles | OpenError::NoRoom | OpenError::OutOfMemory | OpenError::Failed(_) => {
            error!("-b {place}: {error}");
        }
    }
    binlog_exit_reason(error)
}

/// The reason for a binlog that cannot be opened.
pub fn binlog_exit_reason(error: &OpenError) -> ExitReason {
    match error {
        OpenError::Faulty(_) => ExitReason::BinlogDamaged,
        OpenError::List(_)
        | OpenError::NoRoom
        | OpenError::Read { .. }
        | OpenError::Write { .. }
        | OpenError::Keep { .. }
        | OpenError::TooManyFiles => ExitReason::BinlogDirectory,
        OpenError::OutOfMemory | OpenError::Failed(_) => ExitReason::Failed,
    }
}

/// Reports that the server cannot listen on the address of `flags`; without flags it is the default address.
pub fn refuse_listener(flags: &str, error: &ListenError) -> ExitReason {
    let flags = if flags.is_empty() { String::new() } else { format!("{flags}: ") };
    let advice = match error {
        ListenError::BindUnix { path, source } => advice(path, source),
        ListenError::Access { source, .. } if source.kind() == ErrorKind::PermissionDenied => {
            "; a server that is not started by root can name only its own user and the groups of that user; \
             SocketUser= and SocketGroup= of a .socket unit can name any"
                .to_owned()
        }
        _ => String::new(),
    };
    error!("{flags}{error}{advice}");
    ExitReason::Start
}

/// Reports that the user of `flag` does not exist, or that the server cannot become this user.
pub fn refuse_privileges(flag: &str, error: &PrivilegeError) -> ExitReason {
    error!("{flag}: {error}");
    match error {
        PrivilegeError::LookUp { .. } => ExitReason::UserLookup,
        PrivilegeError::NoSuchName { .. } => ExitReason::NoSuchUser,
        PrivilegeError::Refused { .. } | PrivilegeError::StillRoot { .. } => ExitReason::BecomeUser,
    }
}

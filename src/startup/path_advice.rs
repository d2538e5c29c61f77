//! The reasons why a path cannot be used: it does not exist, a directory on the way to it lacks permissions, or the
//! sandbox of the unit hides it.
//!
//! Owns: the cause, and the advice at the end of a message. Driven by `refusal`, `access` and `admin`.

use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use beanstalkd_os::{privileges, service_manager};

/// The program that writes the exceptions for the unit, if the package is installed.
const ALLOW_PATHS: &str = "/usr/share/beanstalkd/allow-paths";

/// The home directories, which the unit hides.
const HOMES: [&str; 3] = ["/home", "/root", "/run/user"];

/// The cause of `error`, after a semicolon; empty if the error is clear by itself.
pub fn advice(path: &Path, error: &io::Error) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    of_kind(&path, error.kind(), service_manager::is_supervised())
}

fn of_kind(path: &Path, kind: ErrorKind, is_supervised: bool) -> String {
    let is_hidden =
        is_supervised && (service_manager::hides(path) || HOMES.iter().any(|home| path.starts_with(home)));
    match kind {
        ErrorKind::ReadOnlyFilesystem if is_supervised => sandbox("ReadWritePaths=", path),
        ErrorKind::ReadOnlyFilesystem => "; the file system is mounted read-only".to_owned(),
        ErrorKind::PermissionDenied | ErrorKind::NotFound if is_hidden => {
            sandbox("PrivateTmp= or ProtectHome=", path)
        }
        ErrorKind::NotFound => missing(path),
        ErrorKind::PermissionDenied => forbidden(path),
        _ => String::new(),
    }
}

fn sandbox(setting: &str, path: &Path) -> String {
    let cure = if Path::new(ALLOW_PATHS).exists() {
        format!("run {ALLOW_PATHS}, then systemctl daemon-reload, and start the service again")
    } else {
        "name it with ReadWritePaths= in a drop-in (systemctl edit)".to_owned()
    };
    format!("; the sandbox of the systemd unit ({setting}) keeps the server from {}: {cure}", path.display())
}

fn missing(path: &Path) -> String {
    let ancestors: Vec<&Path> = path.ancestors().collect();
    let first = ancestors.into_iter().rev().find(|ancestor| ancestor.symlink_metadata().is_err());
    match first {
        Some(first) => format!("; {} does not exist", first.display()),
        // Something has this name, so it is a link on the way that leads nowhere.
        None => format!("; {} is a link to a path that does not exist", path.display()),
    }
}

/// Names the directory or the file on the way to `path` whose permissions are the reason.
fn forbidden(path: &Path) -> String {
    let mut last = PathBuf::from("/");
    let ancestors: Vec<&Path> = path.ancestors().collect();
    for ancestor in ancestors.into_iter().rev() {
        match ancestor.metadata() {
            Ok(_) => last = ancestor.to_owned(),
            // The directory that contains it may not be searched, or the file is about to be made there.
            Err(_) => break,
        }
    }
    let Ok(metadata) = last.metadata() else { return String::new() };
    format!(
        "; {} belongs to {}:{} and has the mode {:03o}, and the server runs as {}",
        last.display(),
        privileges::name_of_user(metadata.uid()),
        privileges::name_of_group(metadata.gid()),
        metadata.mode() & 0o7777,
        privileges::name_of_user(privileges::own_user()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sandbox_is_named_where_it_is_the_reason() {
        let elsewhere = Path::new("/srv/no such directory/lock");
        let read_only = of_kind(elsewhere, ErrorKind::ReadOnlyFilesystem, true);
        assert!(read_only.contains("ReadWritePaths=") && read_only.contains("/srv/no such"), "{read_only}");
        let home = of_kind(Path::new("/home/nobody/jobs"), ErrorKind::PermissionDenied, true);
        assert!(home.contains("ProtectHome="), "{home}");
        for is_supervised in [true, false] {
            for kind in [ErrorKind::NotFound, ErrorKind::PermissionDenied, ErrorKind::StorageFull] {
                let said = of_kind(elsewhere, kind, is_supervised);
                assert!(!said.contains("sandbox") && !said.contains("ReadWritePaths"), "{kind:?}: {said}");
            }
        }
        assert!(!of_kind(elsewhere, ErrorKind::ReadOnlyFilesystem, false).contains("unit"));
        assert_eq!(of_kind(elsewhere, ErrorKind::StorageFull, true), "", "the error is clear by itself");
    }

    #[test]
    fn the_first_part_of_a_path_that_is_missing_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b/lock");
        assert_eq!(missing(&path), format!("; {} does not exist", directory.path().join("a").display()));
        std::os::unix::fs::symlink("nowhere", directory.path().join("a")).unwrap();
        assert!(missing(&path).contains("a/b does not exist"), "{}", missing(&path));
        assert!(missing(&directory.path().join("a")).contains("is a link to a path that does not exist"));
    }
}

//! Changes the process from root to another user, and looks up users and groups.
//!
//! Owns: the order of the steps, after which the process cannot become root again. Driven by the start.

use std::ffi::CString;
use std::{fmt, io};

use nix::errno::Errno;
use nix::unistd::{Gid, Group, Uid, User, getgid, getuid, setgid, setuid};

/// Why the process could not become another user, or why a name could not be looked up.
#[derive(Debug)]
pub enum PrivilegeError {
    /// The database of users and groups cannot be read.
    LookUp {
        /// The name that was looked up.
        name: String,
        /// The reason.
        source: io::Error,
    },
    /// There is no such user or group.
    NoSuchName {
        /// The name that was looked up.
        name: String,
    },
    /// The system refused one of the steps.
    Refused {
        /// The user to become.
        name: String,
        /// The system call.
        step: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// All steps succeeded, but the process could become root again.
    StillRoot {
        /// The user to become.
        name: String,
    },
}

impl fmt::Display for PrivilegeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LookUp { name, source } => write!(out, "cannot look up {name}: {source}"),
            Self::NoSuchName { name } => write!(out, "{name}: no such user or group"),
            Self::Refused { name, step, source } => {
                write!(out, "cannot become {name}: {step}: {source}")
            }
            Self::StillRoot { name } => {
                write!(out, "became {name}, but the system would let this process become root again")
            }
        }
    }
}

impl std::error::Error for PrivilegeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::LookUp { source, .. } | Self::Refused { source, .. } => Some(source),
            Self::NoSuchName { .. } | Self::StillRoot { .. } => None,
        }
    }
}

/// Gives the process the user, the group and the supplementary groups of the user `name`, permanently.
/// A process that is this user already, and is not root, keeps its groups.
///
/// # Errors
/// If there is no such user, or if the system refuses. The process may then have lost some permissions, and
/// should end.
pub fn become_user(name: &str) -> Result<(), PrivilegeError> {
    let user = look_up(name, User::from_name(name))?;
    // The groups come first and the user last, because the change of the user ends the permission for the other
    // steps.
    let is_user = getuid() == user.uid;
    step(name, "initgroups", init_groups(&user), is_user)?;
    step(name, "setgid", setgid(user.gid), is_user && getgid() == user.gid)?;
    step(name, "setuid", setuid(user.uid), is_user)?;
    if !user.uid.is_root() && setuid(Uid::from_raw(0)).is_ok() {
        return Err(PrivilegeError::StillRoot { name: name.to_owned() });
    }
    Ok(())
}

/// The result of one step. If the step has nothing to change, a missing permission is not an error: if a service
/// manager has set the user and filters these calls, `-u` with the same user must work.
fn step(
    name: &str,
    step: &'static str,
    result: nix::Result<()>,
    nothing_to_change: bool,
) -> Result<(), PrivilegeError> {
    match result {
        Ok(()) => Ok(()),
        Err(Errno::EPERM) if nothing_to_change => Ok(()),
        Err(errno) => Err(PrivilegeError::Refused { name: name.to_owned(), step, source: errno.into() }),
    }
}

#[cfg(not(target_vendor = "apple"))]
fn init_groups(user: &User) -> nix::Result<()> {
    let name = CString::new(user.name.as_str()).map_err(|_| Errno::EINVAL)?;
    nix::unistd::initgroups(&name, user.gid)
}

#[cfg(target_vendor = "apple")]
fn init_groups(user: &User) -> nix::Result<()> {
    let name = CString::new(user.name.as_str()).map_err(|_| Errno::EINVAL)?;
    // SAFETY: `name` is a C string that outlives the call, which keeps no pointer to it.
    let result = unsafe { libc::initgroups(name.as_ptr(), user.gid.as_raw() as libc::c_int) };
    Errno::result(result).map(drop)
}

/// The id of the user with this name; `None` if there is none, or the database cannot be read.
#[must_use]
pub fn id_of_user(name: &str) -> Option<u32> {
    User::from_name(name).ok().flatten().map(|user| user.uid.as_raw())
}

/// The user id with which the system checks this process' access to files.
#[must_use]
pub fn own_user() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// The name of a user, or the number if there is no name.
#[must_use]
pub fn name_of_user(id: u32) -> String {
    User::from_uid(Uid::from_raw(id)).ok().flatten().map_or_else(|| id.to_string(), |user| user.name)
}

/// The name of a group, or the number if there is no name.
#[must_use]
pub fn name_of_group(id: u32) -> String {
    Group::from_gid(Gid::from_raw(id)).ok().flatten().map_or_else(|| id.to_string(), |group| group.name)
}

/// The id of the user with this name or number.
///
/// # Errors
/// If there is no such user.
pub(super) fn user_id(name_or_id: &str) -> Result<Uid, PrivilegeError> {
    match name_or_id.parse() {
        Ok(id) => Ok(Uid::from_raw(id)),
        Err(_) => Ok(look_up(name_or_id, User::from_name(name_or_id))?.uid),
    }
}

/// The id of the group with this name or number.
///
/// # Errors
/// If there is no such group.
pub(super) fn group_id(name_or_id: &str) -> Result<Gid, PrivilegeError> {
    match name_or_id.parse() {
        Ok(id) => Ok(Gid::from_raw(id)),
        Err(_) => Ok(look_up(name_or_id, Group::from_name(name_or_id))?.gid),
    }
}

/// Converts the result of a lookup. On some systems two different errors mean that there is no such entry.
fn look_up<T>(name: &str, answer: nix::Result<Option<T>>) -> Result<T, PrivilegeError> {
    match answer {
        Ok(Some(entry)) => Ok(entry),
        Ok(None) | Err(Errno::ENOENT | Errno::ESRCH) => {
            Err(PrivilegeError::NoSuchName { name: name.to_owned() })
        }
        Err(errno) => Err(PrivilegeError::LookUp { name: name.to_owned(), source: errno.into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_os = "linux")]
    use crate::child::Child;

    #[test]
    fn an_unknown_user_and_a_failed_look_up_are_different_errors() {
        let error = become_user("nobody-of-this-name").unwrap_err();
        assert!(matches!(error, PrivilegeError::NoSuchName { .. }), "{error}");
    }

    #[test]
    fn names_and_numbers_name_users_and_groups() {
        assert_eq!(user_id("root").unwrap(), Uid::from_raw(0));
        assert_eq!(user_id("65000").unwrap(), Uid::from_raw(65000));
        assert_eq!(group_id("0").unwrap(), Gid::from_raw(0));
        assert!(group_id("nobody-of-this-name").is_err());
    }

    #[test]
    fn a_process_can_become_its_own_user() {
        let own = User::from_uid(getuid()).unwrap().expect("the user of the tests has a name");
        become_user(&own.name).unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    #[ignore = "runs as a child of other tests"]
    fn child_becomes_nobody() {
        nix::unistd::setgroups(&[Gid::from_raw(0), Gid::from_raw(4)]).unwrap();
        let nobody = User::from_name("nobody").unwrap().unwrap();
        become_user("nobody").unwrap();
        assert_eq!(nix::unistd::getresuid().unwrap().saved, nobody.uid);
        assert_eq!(nix::unistd::getresgid().unwrap().saved, nobody.gid);
        assert_eq!(nix::unistd::getgroups().unwrap(), [nobody.gid]);
        become_user("nobody").unwrap();
        assert!(matches!(become_user("root"), Err(PrivilegeError::Refused { step: "initgroups", .. })));
        Child::say("nobody");
    }

    /// Does nothing unless the tests run as root, as they do in containers.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_groups_of_root_are_gone_with_its_user() {
        if getuid().is_root() {
            let mut child = Child::start("privileges::tests::child_becomes_nobody", "".as_ref());
            assert_eq!(child.line(), "nobody");
        }
    }
}

//! The name of an owner in the row of its queue.
//!
//! Owns: its text. Operators read it, and a standby finds in it how long the owner's heartbeat counts.

use std::fmt;
use std::process;

use crate::clock::NS_PER_S;
use crate::os::process::{Machine, random_u64};

const BEFORE_SECONDS: &str = ", takeover after ";
const BEHIND_SECONDS: &str = " s)";

/// The name of an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnerName {
    text: String,
    /// The `--takeover-after` of the owner; 0 if its name lacks it, as the name of an older server does.
    pub(super) takeover_after_ns: u64,
}

impl OwnerName {
    /// The name of this process, which no other process has.
    pub(super) fn of_this_process(takeover_after_ns: u64) -> Self {
        let host = Machine::this().map_or_else(|_| "?".to_owned(), |machine| machine.hostname);
        let (pid, id, seconds) = (process::id(), random_u64(), takeover_after_ns / NS_PER_S);
        Self::from(&*format!("{host} pid {pid} ({id:016x}{BEFORE_SECONDS}{seconds}{BEHIND_SECONDS}"))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }
}

/// Reads a name in a row, of whatever server.
impl From<&str> for OwnerName {
    fn from(text: &str) -> Self {
        let words = text.strip_suffix(BEHIND_SECONDS).and_then(|text| text.rsplit_once(BEFORE_SECONDS));
        let seconds = words.and_then(|(_, seconds)| seconds.parse::<u64>().ok()).unwrap_or(0);
        Self { text: text.to_owned(), takeover_after_ns: seconds.saturating_mul(NS_PER_S) }
    }
}

impl fmt::Display for OwnerName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standby_finds_the_time_in_the_name_and_none_in_that_of_an_older_server() {
        let own = OwnerName::of_this_process(7 * NS_PER_S);
        assert_eq!(own.takeover_after_ns, 7 * NS_PER_S);
        assert_eq!(OwnerName::from(own.as_str()), own);
        for (name, seconds) in [
            ("db1 pid 7 (00000000000000ab, takeover after 5 s)", 5),
            ("a, takeover after 9 s) pid 7 (00000000000000ab, takeover after 30 s)", 30),
            ("db1 pid 7 (00000000000000ab)", 0),
            ("db1 pid 7 (00000000000000ab, takeover after x s)", 0),
            ("", 0),
        ] {
            let name_read = OwnerName::from(name);
            assert_eq!((name_read.as_str(), name_read.takeover_after_ns), (name, seconds * NS_PER_S));
        }
    }
}

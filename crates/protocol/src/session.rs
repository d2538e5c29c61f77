//! The arguments of the command `session`, which C beanstalkd does not have.
//!
//! Owns: their grammar, and the longest grace.

use super::argument::{Argument, arguments, name, word};
use crate::seconds::Seconds;
use crate::tube_name::TubeNameRef;

/// The longest grace. A client that does not come back for longer than an hour has gone.
const MAX_GRACE_MS: u32 = 3_600_000;

/// How long the server keeps the reservations of a session after its connection has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grace(u32);

impl Grace {
    /// A grace of this many milliseconds; `None` above an hour.
    #[must_use]
    pub fn from_ms(ms: u64) -> Option<Self> {
        u32::try_from(ms).ok().filter(|&ms| ms <= MAX_GRACE_MS).map(Self)
    }

    /// The grace in milliseconds.
    #[must_use]
    pub fn as_ms(self) -> u32 {
        self.0
    }
}

/// Written in seconds.
impl Argument for Grace {
    fn write(&self, line: &mut Vec<u8>) {
        Seconds::new(self.0 / 1000, (self.0 % 1000) as u16).write(line);
    }
}

/// ` <name> <grace>`
pub(super) fn session(rest: &[u8]) -> Option<(TubeNameRef<'_>, Grace)> {
    let (session, rest) = word(arguments(rest)?);
    let grace = Seconds::parse(arguments(rest)?)?;
    let grace = Grace::from_ms(u64::from(grace.whole()) * 1000 + u64::from(grace.thousandths()))?;
    Some((name(session)?, grace))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Command, parse};

    fn grace_ms(text: &str) -> Option<u32> {
        match parse(format!("session a {text}").as_bytes()) {
            Ok(Command::Session { name, grace }) if name.as_str() == "a" => Some(grace.as_ms()),
            Ok(other) => panic!("{other:?}"),
            Err(_) => None,
        }
    }

    #[test]
    fn a_grace_has_up_to_three_digits_after_the_point() {
        for (text, ms) in [
            ("0", 0),
            ("0.0", 0),
            ("30", 30_000),
            ("0.25", 250),
            ("1.5", 1500),
            ("1.005", 1005),
            ("  007.010", 7010),
            ("3600", 3_600_000),
            ("3600.000", 3_600_000),
        ] {
            assert_eq!(grace_ms(text), Some(ms), "{text}");
            let mut line = Vec::new();
            Command::Session { name: name(b"a").unwrap(), grace: Grace(ms) }.write(&mut line);
            assert_eq!(parse(&line), parse(format!("session a {text}").as_bytes()), "{text}");
        }
        for text in [
            "",
            ".5",
            "5.",
            "1.0000",
            "-1",
            "+1",
            "1 ",
            "1s",
            "3600.001",
            "3601",
            "18446744073709551616",
            "1.5.5",
        ] {
            assert_eq!(grace_ms(text), None, "{text:?}");
        }
    }
}

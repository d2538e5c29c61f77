//! The reasons why a command line is refused.

use std::fmt;

/// The reason why a command line is refused; the process exits with `ExitReason::Usage`. The text is one line: it names
/// the flag, its argument, and the expected argument.
#[derive(Debug, PartialEq, Eq)]
pub enum UsageError {
    /// There is no such flag.
    UnknownFlag(String),
    /// An argument that is not a flag.
    UnknownArgument(String),
    /// The flag is the last word, and needs an argument.
    MissingArgument(String),
    /// The flag takes no argument, but has one (`--verbose=3`).
    UnexpectedArgument(String),
    /// The flag does not accept this argument.
    InvalidArgument {
        /// The flag, as the line spells it.
        flag: String,
        /// The argument of the flag.
        argument: String,
        /// The values that the flag takes.
        expected: &'static str,
    },
    /// The flag has no effect without another one.
    Alone {
        /// The flag, as the line spells it.
        flag: String,
        /// The flag that is missing.
        other: &'static str,
    },
    /// Something does not work without a flag.
    Lacks {
        /// The flag or the setting that needs it.
        what: String,
        /// The flag that is missing.
        flag: &'static str,
    },
}

impl fmt::Display for UsageError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownFlag(flag) => write!(out, "unknown flag: {flag}"),
            Self::UnknownArgument(argument) => write!(out, "unknown argument: {argument}"),
            Self::MissingArgument(flag) => write!(out, "flag requires an argument: {flag}"),
            Self::UnexpectedArgument(flag) => write!(out, "flag takes no argument: {flag}"),
            Self::InvalidArgument { flag, argument, expected } => {
                write!(out, "{flag} '{argument}': expected {expected}")
            }
            Self::Lacks { what, flag } => write!(out, "{what} needs {flag}"),
            Self::Alone { flag, other } => write!(out, "{flag} does nothing without {other}"),
        }
    }
}

impl std::error::Error for UsageError {}

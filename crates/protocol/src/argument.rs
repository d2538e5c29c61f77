//! The arguments of commands: how they are written, and the steps that the grammars of several commands share.

use crate::job::{Counting, JobId, JobState, Priority};
use crate::seconds::Seconds;
use crate::tube_name::{TubeName, TubeNameRef};

/// The arguments after a word and one space.
pub(super) fn arguments(rest: &[u8]) -> Option<&[u8]> {
    rest.strip_prefix(b" ")
}

/// The text up to the first space, and the text after it.
pub(super) fn word(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(text.iter().position(|&byte| byte == b' ').unwrap_or(text.len()))
}

pub(super) fn name(rest: &[u8]) -> Option<TubeNameRef<'_>> {
    TubeName::check(rest)
}

/// An argument of a command.
pub(super) trait Argument {
    /// Appends the argument to the line, with a space before it.
    fn write(&self, line: &mut Vec<u8>);
}

impl Argument for u64 {
    fn write(&self, line: &mut Vec<u8>) {
        itoa::Buffer::new().format(*self).write(line);
    }
}

/// An enum whose variants are words of the protocol.
macro_rules! words {
    ($(#[$doc:meta])+ pub enum $name:ident { $($variant:ident = $word:literal,)+ }) => {
        $(#[$doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the protocol's own words; doc/protocol.md explains them")]
        pub enum $name {
            $($variant,)+
        }

        impl $name {
            /// All of them.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            /// The word in the protocol.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// The variant with this word.
            pub(super) fn of_word(word: &[u8]) -> Option<Self> {
                Self::ALL.into_iter().find(|known| known.as_str().as_bytes() == word)
            }
        }
    };
}
pub(super) use words;

/// Arguments that are written as another value.
macro_rules! written_as {
    ($($kind:ty: |$argument:ident| $value:expr;)+) => {$(
        impl Argument for $kind {
            fn write(&self, line: &mut Vec<u8>) {
                let $argument = self;
                $value.write(line);
            }
        }
    )+};
}
pub(super) use written_as;

written_as! {
    u32: |number| u64::from(*number);
    &str: |text| text.as_bytes();
    TubeNameRef<'_>: |name| name.as_str();
    JobId: |id| id.0;
    Priority: |priority| priority.0;
    JobState: |state| state.as_str();
}

impl Argument for Seconds {
    fn write(&self, line: &mut Vec<u8>) {
        match self.thousandths() {
            0 => self.whole().write(line),
            _ => self.to_string().as_str().write(line),
        }
    }
}

/// The weight of a watched tube. C beanstalkd has no weights, so the default weight is left out.
impl Argument for u16 {
    fn write(&self, line: &mut Vec<u8>) {
        if *self != 1 {
            u64::from(*self).write(line);
        }
    }
}

impl Argument for &[u8] {
    fn write(&self, line: &mut Vec<u8>) {
        line.push(b' ');
        line.extend_from_slice(self);
    }
}

impl<T: Argument> Argument for Option<T> {
    fn write(&self, line: &mut Vec<u8>) {
        if let Some(argument) = self {
            argument.write(line);
        }
    }
}

/// A release that counts has no word, as in C.
impl Argument for Counting {
    fn write(&self, line: &mut Vec<u8>) {
        match self {
            Self::Counted => {}
            Self::Uncounted => line.extend_from_slice(b" uncounted"),
        }
    }
}

//! The arguments of commands, as they are written.

use std::io::Write;

use super::command::{Cursor, PutHeader};
use super::manage::ClientCursor;
use super::workers::{IdList, ModeWord};
use crate::job::{Counting, JobId, JobState, Priority};
use crate::seconds::Seconds;
use crate::tube_name::TubeNameRef;

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

written_as! {
    u32: |number| u64::from(*number);
    &str: |text| text.as_bytes();
    TubeNameRef<'_>: |name| name.as_str();
    JobId: |id| id.0;
    Priority: |priority| priority.0;
    JobState: |state| state.as_str();
    ModeWord: |mode| mode.as_str();
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

impl Argument for Cursor {
    fn write(&self, line: &mut Vec<u8>) {
        write!(line, " {self}").expect("a write to a vector does not fail");
    }
}

impl Argument for ClientCursor {
    fn write(&self, line: &mut Vec<u8>) {
        write!(line, " {self}").expect("a write to a vector does not fail");
    }
}

impl Argument for IdList<'_> {
    fn write(&self, line: &mut Vec<u8>) {
        self.iter().for_each(|id| id.write(line));
    }
}

impl Argument for PutHeader {
    fn write(&self, line: &mut Vec<u8>) {
        self.priority.write(line);
        self.delay_s.write(line);
        self.ttr_s.write(line);
        self.size.write(line);
    }
}

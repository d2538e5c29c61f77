//! The arguments of commands, as they are written, and one of each name.

use std::io::Write;

use super::command::{Cursor, PutHeader};
use super::fields::FieldList;
use super::manage::ClientCursor;
use super::session::Grace;
use super::workers::{IdList, ModeWord};
use crate::job::{Counting, JobId, JobState, Priority};
use crate::seconds::Seconds;

/// An argument of a command.
pub(super) trait Argument {
    /// Appends the argument to the line, with a space before it.
    fn write(&self, line: &mut Vec<u8>);
}

/// An argument of each name in the table of commands, from which
/// [`Command::with_arguments`](super::Command::with_arguments) makes any of them: for tests.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the names of the table")]
pub struct Arguments<'a> {
    pub after: Option<Cursor>,
    pub after_client: Option<ClientCursor>,
    pub bound: u64,
    pub count: u32,
    pub counting: Counting,
    pub delay_s: Seconds,
    pub fields: FieldList,
    pub for_s: Option<Seconds>,
    pub grace: Grace,
    pub group: &'a str,
    pub header: PutHeader,
    pub id: JobId,
    pub ids: IdList<'a>,
    pub limit: u32,
    pub mode: ModeWord,
    pub most: u32,
    pub name: &'a str,
    pub number: u64,
    pub priority: Priority,
    pub state: JobState,
    /// Of a command that must have one, 0 if it is `None`.
    pub timeout_s: Option<Seconds>,
    pub token: &'a [u8],
    pub tube: &'a str,
    pub weight: u16,
}

/// How a command takes an argument of [`Arguments`].
pub(super) trait Taken<T> {
    fn taken(argument: T) -> Self;
}

impl<T> Taken<T> for T {
    fn taken(argument: T) -> Self {
        argument
    }
}

impl Taken<Option<Self>> for Seconds {
    fn taken(argument: Option<Self>) -> Self {
        argument.unwrap_or_default()
    }
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

//! The row that a command has in the table of commands, without its action.
//!
//! Owns: the subjects for which a command needs roles, the input that follows its line, and its words in the log, which
//! are in the lines of `-VV` and in those of the audit. The table makes the rows.

use std::fmt::Write as _;

use super::memory::MemoryClass;
use crate::access::Roles;
use crate::job::JobId;
use crate::protocol::{Command, IdList, PutHeader, target_of};
use crate::tube_name::TubeNameRef;

/// The requirements of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommandRow<'a> {
    /// One of these roles, for the subject, is required.
    pub(crate) roles: Roles,
    pub(crate) subject: Subject<'a>,
    pub(crate) memory: MemoryClass<'a>,
    pub(crate) follows: Follows,
    /// A number of the command, for the log.
    pub(crate) number: Option<u64>,
}

/// The subject of a command: the tubes and jobs for which it needs roles.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Subject<'a> {
    /// Nothing that needs a role: every client may give the command.
    Nothing,
    /// At least one tube: the answer shows only tubes that the client may see.
    AnyTube,
    /// The tube that the command names; the answer shows only tubes that the client may see.
    Mentioned(TubeNameRef<'a>),
    /// All tubes.
    Every,
    /// The tube that the client uses.
    Used,
    /// The target tube of a `put` with this text after its size: the tube that the text names, or the used one.
    Target(&'a [u8]),
    /// The tubes that the client watches. Tubes without the role leave its watch list.
    Watched,
    /// The tube with this name.
    Named(TubeNameRef<'a>),
    /// The group with this name.
    Group(TubeNameRef<'a>),
    /// The tube of this job.
    OfJob(JobId),
    /// The tubes of these jobs. Each is checked when the command reaches it.
    OfJobs(IdList<'a>),
    /// The tube of this job, and its target tube: see [`Roles::MOVE_TARGET`].
    OfJobAndNamed(JobId, TubeNameRef<'a>),
}

/// The input that belongs to a command and follows its line. If the command is refused, the input is skipped, because
/// it must not be executed as commands.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Follows {
    Nothing,
    /// The body of the put with these numbers.
    Body(PutHeader),
    /// This many puts, of the `complete` of this job.
    Puts(JobId, u32),
}

pub(crate) const fn needs<'a>(roles: Roles, subject: Subject<'a>, memory: MemoryClass<'a>) -> CommandRow<'a> {
    CommandRow { roles, subject, memory, follows: Follows::Nothing, number: None }
}

impl CommandRow<'_> {
    pub(crate) fn followed_by(self, follows: Follows) -> Self {
        Self { follows, ..self }
    }

    /// The row with a number for the log.
    pub(crate) fn noting(self, number: impl Into<u64>) -> Self {
        Self { number: Some(number.into()), ..self }
    }

    /// Whether only a manager may give the command.
    pub(crate) fn is_managing(&self) -> bool {
        self.roles == Roles::MANAGE
    }

    /// The command, with the jobs and tubes that it names, and for the audit with its number. The text contains only
    /// names and numbers: a body, a tag or a token may be secret.
    pub(crate) fn in_words(&self, command: &Command<'_>, used_tube: &str, reader: WordsFor) -> String {
        let mut words = command.verb().as_str().to_owned();
        let of = match reader {
            WordsFor::Audit => "of ",
            WordsFor::Log => "",
        };
        // Writing to a string does not fail.
        let _ = match (self.subject, self.number) {
            (Subject::Used, Some(number)) => write!(words, " {number} {of}{used_tube}"),
            (subject, Some(number)) if reader == WordsFor::Audit => {
                add_subject(&mut words, subject, used_tube).and_then(|()| write!(words, " {number}"))
            }
            (subject, _) => add_subject(&mut words, subject, used_tube),
        };
        words
    }
}

/// The reader of the words of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WordsFor {
    Log,
    Audit,
}

fn add_subject(words: &mut String, subject: Subject<'_>, used_tube: &str) -> std::fmt::Result {
    match subject {
        Subject::Used => write!(words, " {used_tube}"),
        Subject::Target(text) => write!(words, " {}", target_of(text).map_or(used_tube, TubeNameRef::as_str)),
        Subject::Named(name) | Subject::Group(name) | Subject::Mentioned(name) => write!(words, " {name}"),
        Subject::OfJob(id) => write!(words, " {}", id.0),
        Subject::OfJobAndNamed(id, name) => write!(words, " {} {name}", id.0),
        Subject::OfJobs(ids) => ids.iter().try_for_each(|id| write!(words, " {}", id.0)),
        Subject::Nothing | Subject::AnyTube | Subject::Every | Subject::Watched => Ok(()),
    }
}

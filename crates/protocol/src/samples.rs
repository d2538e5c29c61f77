//! An argument of each name, from which any command can be made: for tests, in which a new command needs no line.

use super::fields::FieldList;
use super::manage::{ClientCursor, JobCursor};
use super::put_line::PutHeader;
use super::session::Grace;
use super::workers::{IdList, ModeWord};
use crate::job::{Counting, JobId, JobState, Priority};
use crate::seconds::Seconds;
use crate::tube_name::TubeNameRef;

/// An argument of each name in the table of commands, from which
/// [`Command::with_arguments`](super::Command::with_arguments) makes any of them: for tests.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the names of the table")]
pub struct Arguments<'a> {
    pub after: Option<JobCursor>,
    pub after_client: Option<ClientCursor>,
    pub bound: u64,
    pub count: u32,
    pub counting: Counting,
    pub delay_s: Seconds,
    pub fields: FieldList,
    pub for_s: Option<Seconds>,
    pub grace: Grace,
    pub group: TubeNameRef<'a>,
    pub header: PutHeader,
    pub id: JobId,
    pub ids: IdList<'a>,
    pub limit: u32,
    pub max_jobs: u32,
    pub mode: ModeWord,
    pub name: TubeNameRef<'a>,
    pub number: u64,
    pub priority: Priority,
    pub state: JobState,
    /// Of a command that must have one, 0 if it is `None`.
    pub timeout_s: Option<Seconds>,
    pub token: &'a [u8],
    pub tube: TubeNameRef<'a>,
    pub weight: u16,
}

/// How a command takes an argument of [`Arguments`].
pub(super) trait FromArgument<T> {
    fn from_argument(argument: T) -> Self;
}

impl<T> FromArgument<T> for T {
    fn from_argument(argument: T) -> Self {
        argument
    }
}

impl FromArgument<Option<Self>> for Seconds {
    fn from_argument(argument: Option<Self>) -> Self {
        argument.unwrap_or_default()
    }
}

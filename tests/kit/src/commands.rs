//! One line of each command.
//!
//! Used where a test only needs that there is one; a suite that chooses the arguments at random does so itself.

use beanstalkd_protocol::{Arguments, Command, Field, FieldList, Grace, IdList, ModeWord, PutHeader, Verb};
use beanstalkd_types::job::{Counting, JobId, JobState, Priority};
use beanstalkd_types::seconds::Seconds;
use beanstalkd_types::tube_name::TubeNameRef;

/// Arguments with which no command waits and no body follows, except that of a `put`. The first id is that of the
/// commands with one job.
pub fn arguments(ids: &[JobId]) -> Arguments<'_> {
    Arguments {
        after: None,
        after_client: None,
        bound: 1,
        count: 0,
        counting: Counting::Counted,
        delay_s: Seconds::ZERO,
        fields: FieldList::new([Field::Tube]).expect("it is there once"),
        for_s: Some(Seconds::ONE),
        grace: Grace::from_ms(1000).expect("at most an hour"),
        group: name("g"),
        header: PutHeader { priority: Priority(0), delay_s: Seconds::ZERO, ttr_s: Seconds::ONE, size: 1 },
        id: ids[0],
        ids: IdList::new(ids).expect("there are ids"),
        limit: 1,
        max_jobs: 1,
        mode: ModeWord::Fifo,
        name: name("s"),
        number: 1,
        priority: Priority(0),
        state: JobState::Ready,
        timeout_s: Some(Seconds::ZERO),
        token: b"t",
        tube: name("default"),
        weight: 1,
    }
}

/// The name in a text, which must be one.
pub fn name(text: &str) -> TubeNameRef<'_> {
    text.try_into().expect("a name")
}

/// The line of a command, with its CRLF.
pub fn line(verb: Verb, arguments: &Arguments<'_>) -> Vec<u8> {
    let mut line = Vec::new();
    Command::with_arguments(verb, arguments).write(&mut line);
    line.extend(b"\r\n");
    line
}

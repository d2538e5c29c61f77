//! The steps of every request: it is counted, checked, executed, traced and logged.
//!
//! Owns: their order, and what the server calls: a request, a stalled command that continues, and the end of a wait.
//! The table says what each command needs and does.

use log::{Level, log_enabled, trace};

use super::run;
use crate::access::Verdict;
use crate::clock::Timestamp;
use crate::exchange::{Output, Request, WaitKind};
use crate::executor::{
    Caller, CommandRow, Continuation, Executor, Follows, Outcome, Subject, WordsFor, answer, answer_last,
};
use crate::protocol::{Command, ParseError, Reply, ReplyBuffer};
use crate::queue::{ClientId, WaitOutcome};
use crate::refusal::CommandRefusal;

/// Ends a client's wait with this reply. Returns `None` if the wait was already answered in this turn and the
/// answer is about to be delivered.
pub(crate) fn cancel_wait(
    executor: &mut Executor,
    client: ClientId,
    reply: &Reply<'_>,
    output: &mut Output,
) -> Option<Outcome> {
    if !executor.queue.stop_waiting(client) {
        return None;
    }
    let start = output.bytes().len();
    let outcome = answer(output, reply);
    trace_reply(client, output, start);
    Some(outcome)
}

/// Answers a client that has waited.
pub(crate) fn answer_wait(
    executor: &mut Executor,
    client: ClientId,
    kind: WaitKind,
    end: WaitOutcome,
    output: &mut Output,
    now: Timestamp,
) -> Outcome {
    let start = output.bytes().len();
    let caller = &mut Caller::new(client, output, now);
    let outcome = match end {
        WaitOutcome::Reserved(id) => match kind {
            WaitKind::Batch(max_jobs) => executor.begin_delivered_batch(caller, max_jobs, id),
            WaitKind::Job { .. } | WaitKind::EndOf(_) => {
                debug_assert!(!matches!(kind, WaitKind::EndOf(_)), "the client waits for a job");
                executor.answer_delivered(caller, id, kind.is_abortable())
            }
        },
        WaitOutcome::TimedOut => answer(caller.output, &Reply::TimedOut),
        WaitOutcome::DeadlineSoon => answer(caller.output, &Reply::DeadlineSoon),
        WaitOutcome::Ended(id, end) => {
            debug_assert_eq!(kind, WaitKind::EndOf(id), "the client waits for the end of this job");
            executor.answer_awaited_end(caller, id, end)
        }
    };
    trace_reply(client, output, start);
    outcome
}

/// Executes one request of a client, and puts the reply into its output, if there is one yet. If the server is
/// `GUARDED`, access rules decide first; an open server does not have this step. `GUARDED` is a constant from the
/// turn of a connection to the line of a put, so that an open server checks nothing there, which saves 26
/// instructions for a job that is put, reserved and deleted; all other code asks `is_guarded`.
#[inline]
pub(crate) fn execute<const GUARDED: bool>(
    executor: &mut Executor,
    client: ClientId,
    request: Request<'_>,
    output: &mut Output,
    now: Timestamp,
) -> Outcome {
    executor.count_cost(1);
    let start = output.bytes().len();
    let outcome = match request {
        Request::Command(command) => {
            executor.note_line(client, &command);
            execute_command::<GUARDED>(executor, client, command, output, now)
        }
        // Other clients may have taken the memory while the body arrived.
        Request::Put(_, body) if executor.lacks_memory_for(body.len() + output.memory_bytes()) => {
            executor.refuse_put(CommandRefusal::OutOfMemory, output)
        }
        Request::Put(put, body) if GUARDED => {
            executor.put_guarded(&mut Caller::new(client, output, now), put, body)
        }
        Request::Put(put, body) => executor.put(client, put, body, output, now),
        Request::Malformed(error) => {
            executor.counters.malformed += 1;
            answer(
                output,
                &match error {
                    ParseError::BadFormat => Reply::BadFormat,
                    ParseError::UnknownCommand => Reply::UnknownCommand,
                },
            )
        }
        Request::GivenUp => answer(output, &Reply::OutOfMemory),
        Request::Refused(refusal) => executor.refuse_put(refusal, output),
        Request::Puts(complete, line) => {
            executor.continue_puts::<GUARDED>(&mut Caller::new(client, output, now), complete, line)
        }
        Request::CompleteWith(id, header, body) => {
            executor.complete_with::<GUARDED>(&mut Caller::new(client, output, now), id, (header, body))
        }
        Request::Lost => {
            executor.counters.malformed += 1;
            answer_last(output, &Reply::BadFormat)
        }
    };
    end_request::<GUARDED>(executor, client, output, start, now);
    outcome
}

/// Resumes a stalled command.
pub(crate) fn resume(
    executor: &mut Executor,
    client: ClientId,
    continuation: Continuation,
    output: &mut Output,
    now: Timestamp,
) -> Outcome {
    executor.count_cost(1);
    let start = output.bytes().len();
    let outcome = continuation.resume(executor, &mut Caller::new(client, output, now));
    end_request::<true>(executor, client, output, start, now);
    outcome
}

/// Handles the outcome of a request. Its reply is in the output from `start` on. `GUARDED` may be true on an open
/// server: `end_audit` looks for the rules.
#[inline(always)]
fn end_request<const GUARDED: bool>(
    executor: &mut Executor,
    client: ClientId,
    output: &mut Output,
    start: usize,
    now: Timestamp,
) {
    if GUARDED {
        executor.end_audit(client, output, start);
    }
    trace_reply(client, output, start);
    executor.persistence.log_changes(&mut executor.queue, now);
}

#[inline]
fn execute_command<const GUARDED: bool>(
    executor: &mut Executor,
    client: ClientId,
    command: Command<'_>,
    output: &mut Output,
    now: Timestamp,
) -> Outcome {
    if GUARDED {
        let refused = executor.guard_command(&mut Caller::new(client, output, now), &command);
        if let Some(outcome) = refused {
            return outcome;
        }
    }
    let row = CommandRow::of(&command);
    if executor.lacks_memory_to(row.memory, client, output.memory_bytes()) {
        debug_assert!(matches!(row.follows, Follows::Nothing), "the input that follows is not skipped here");
        return answer(output, &Reply::OutOfMemory);
    }
    let outcome = run::<GUARDED>(executor, client, command, output, now);
    debug_assert!(
        !matches!(row.follows, Follows::Nothing)
            || !matches!(outcome, Outcome::ReadBody(_) | Outcome::SkipBody(..) | Outcome::ReadPuts(_)),
        "the row says what follows the line"
    );
    outcome
}

impl Continuation {
    /// Continues the command.
    pub(super) fn resume(self, executor: &mut Executor, caller: &mut Caller<'_>) -> Outcome {
        match self {
            Self::Function(resume) => resume(executor, caller),
            Self::Put(put) => executor.continue_put(caller, put.0, put.1),
            Self::Complete(complete) => executor.continue_complete(caller, complete),
        }
    }
}

impl Executor {
    /// Counts the line of a command, and logs it if the level of the log is `trace`.
    #[inline(always)]
    pub(super) fn note_line(&mut self, client: ClientId, command: &Command<'_>) {
        self.counters.commands.add(command.verb());
        if log_enabled!(Level::Trace) {
            log_command(client, command, self.queue.used_tube(client).as_str());
        }
    }

    /// Checks a command on a server with access rules. Returns its outcome if it is refused.
    pub(super) fn guard_command(
        &mut self,
        caller: &mut Caller<'_>,
        command: &Command<'_>,
    ) -> Option<Outcome> {
        let row = CommandRow::of(command);
        if !matches!(row.subject, Subject::Nothing)
            && let Some(guard) = &mut self.guard
            && guard.refuse_surplus(caller.client, caller.now)
        {
            self.count_refused_connection();
            return Some(answer_last(caller.output, &Reply::TooManyConnections));
        }
        let verdict = self.judge(caller.client, &row);
        self.audit(caller, command, &row, verdict);
        let refusal = match verdict {
            Verdict::Allowed => return None,
            Verdict::NotFound => CommandRefusal::NotFound,
            Verdict::Forbidden => CommandRefusal::Forbidden,
        };
        Some(match row.follows {
            Follows::Nothing => answer(caller.output, &refusal.into()),
            Follows::Body(header) => Outcome::SkipBody(header, refusal),
            Follows::Puts(id, count) => self.begin_complete(caller, (id, count), Some(refusal)),
        })
    }
}

/// Logs the reply that begins at `start`, if there is one.
#[inline]
fn trace_reply(client: ClientId, output: &mut Output, start: usize) {
    if log_enabled!(Level::Trace) && output.bytes().len() > start {
        log_reply(client, &output.bytes()[start..]);
    }
}

/// Logs a command. `used_tube` is the tube that the client uses.
#[cold]
fn log_command(client: ClientId, command: &Command<'_>, used_tube: &str) {
    let words = CommandRow::of(command).in_words(command, used_tube, WordsFor::Log);
    trace!(command_of = client.index; "<{} command {words}", client.index);
}

/// Logs the first line of a reply. The body after it may be long, or secret.
#[cold]
fn log_reply(client: ClientId, reply: &[u8]) {
    let line = reply.split(|&byte| byte == b'\r').next();
    let line = String::from_utf8_lossy(line.unwrap_or_default());
    trace!(reply_to = client.index; ">{} reply {line}", client.index);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::parse;

    #[test]
    fn a_command_is_logged_with_its_jobs_and_tubes_and_without_what_may_be_secret() {
        for (line, words) in [
            ("put 0 0 60 5", "put mail"),
            ("put 0 0 60 5 idp:secret", "put mail"),
            ("put 0 0 60 5 idp:secret tub:post", "put post"),
            ("use post", "use post"),
            ("watch post", "watch post"),
            ("delete 7", "delete 7"),
            ("release 7 1 2", "release 7"),
            ("kick 9", "kick 9 mail"),
            ("peek-buried", "peek-buried mail"),
            ("move 7 post", "move 7 post"),
            ("delete-batch 7 8", "delete-batch 7 8"),
            ("pause-tube post 5", "pause-tube post"),
            ("auth secret-token", "auth"),
            ("reserve", "reserve"),
            ("stats", "stats"),
        ] {
            let command = parse(line.as_bytes()).unwrap();
            assert_eq!(CommandRow::of(&command).in_words(&command, "mail", WordsFor::Log), words, "{line}");
        }
    }
}

//! Every command on a job, in every state of the job, from its owner and from another client.

use crate::case::{Case, script};
use crate::mark::{self, Mark};

/// The steps that bring the job into each state. Client `a` sends the command under test; client `b` does the steps,
/// unless `a` is to own the job.
const STATES: [(&str, &str); 7] = [
    ("ready", "b: put 5 0 600 1 | x -> INSERTED 1"),
    ("delayed", "b: put 5 600 600 1 | x -> INSERTED 1"),
    (
        "buried",
        "b: put 5 0 600 1 | x -> INSERTED 1
         b: reserve -> RESERVED 1 1 | x
         b: bury 1 5 -> BURIED",
    ),
    (
        "reserved_by_self",
        "b: put 5 0 600 1 | x -> INSERTED 1
         a: reserve -> RESERVED 1 1 | x",
    ),
    (
        "reserved_by_other",
        "b: put 5 0 600 1 | x -> INSERTED 1
         b: reserve -> RESERVED 1 1 | x",
    ),
    (
        "deleted",
        "b: put 5 0 600 1 | x -> INSERTED 1
         b: delete 1 -> DELETED",
    ),
    ("never_put", ""),
];

const READY: usize = 0;
const DELAYED: usize = 1;
const BURIED: usize = 2;
const OWN: usize = 3;
const OTHER: usize = 4;
const DELETED: usize = 5;

/// A command, its reply in the listed states, the state that it leads to (`None`: unchanged), and its
/// reply in all other states.
struct Row {
    command: &'static str,
    works_in: &'static [usize],
    reply: &'static str,
    becomes: Option<usize>,
    otherwise: &'static str,
    mark: Mark,
}

const fn row(
    command: &'static str,
    works_in: &'static [usize],
    reply: &'static str,
    becomes: Option<usize>,
    otherwise: &'static str,
    mark: Mark,
) -> Row {
    Row { command, works_in, reply, becomes, otherwise, mark }
}

const ROWS: &[Row] = &[
    row("peek 1", &[READY, DELAYED, BURIED, OWN, OTHER], "FOUND 1 1 | x", None, "NOT_FOUND", mark::PEEK),
    row("peek-ready", &[READY], "FOUND 1 1 | x", None, "NOT_FOUND", mark::PEEK),
    row("peek-delayed", &[DELAYED], "FOUND 1 1 | x", None, "NOT_FOUND", mark::PEEK),
    row("peek-buried", &[BURIED], "FOUND 1 1 | x", None, "NOT_FOUND", mark::PEEK),
    row("delete 1", &[READY, DELAYED, BURIED, OWN], "DELETED", Some(DELETED), "NOT_FOUND", mark::DELETE),
    row("release 1 5 0", &[OWN], "RELEASED", Some(READY), "NOT_FOUND", mark::RELEASE),
    row("release 1 5 600", &[OWN], "RELEASED", Some(DELAYED), "NOT_FOUND", mark::RELEASE),
    row("bury 1 5", &[OWN], "BURIED", Some(BURIED), "NOT_FOUND", mark::BURY),
    row("touch 1", &[OWN], "TOUCHED", None, "NOT_FOUND", mark::TOUCH),
    row("kick-job 1", &[DELAYED, BURIED], "KICKED", Some(READY), "NOT_FOUND", mark::KICK_JOB),
    row("kick 10", &[DELAYED, BURIED], "KICKED 1", Some(READY), "KICKED 0", mark::KICK),
    row(
        "reserve-job 1",
        &[READY, DELAYED, BURIED],
        "RESERVED 1 1 | x",
        Some(OWN),
        "NOT_FOUND",
        mark::RESERVE_JOB,
    ),
    row("reserve-with-timeout 0", &[READY], "RESERVED 1 1 | x", Some(OWN), "TIMED_OUT", mark::RESERVE),
];

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for row in ROWS {
        for (state, (name, setup)) in STATES.iter().enumerate() {
            let works = row.works_in.contains(&state);
            let reply = if works { row.reply } else { row.otherwise };
            let after = if works { row.becomes.unwrap_or(state) } else { state };
            let command = row.command;
            let checks = checks_of(after);
            let verb = command.replace(' ', "_");
            cases.push(
                script(
                    format!("{verb}_of_a_job_{name}"),
                    format!("{setup}\na: {command} -> {reply}\n{checks}"),
                )
                .mark(row.mark),
            );
        }
    }
    cases.push(
        script(
            "a_job_that_is_neither_reserved_nor_delayed_has_no_time_left",
            "a: put 5 0 600 1 | x -> INSERTED 1
             a: stats-job 1 => state: ready, time-left: 0
             a: reserve -> RESERVED 1 1 | x
             a: bury 1 5 -> BURIED
             a: stats-job 1 => state: buried, time-left: 0
             a: kick 1 -> KICKED 1
             a: stats-job 1 => state: ready, time-left: 0",
        )
        .habit(),
    );
    cases
}

/// The requirements when the job is in `state`: the job's own state, and each count of the tube and of the server.
fn checks_of(state: usize) -> String {
    let counted = |which: &[usize]| usize::from(which.contains(&state));
    let counts = format!(
        "current-jobs-urgent: {0}, current-jobs-ready: {0}, current-jobs-reserved: {1}, \
         current-jobs-delayed: {2}, current-jobs-buried: {3}",
        counted(&[READY]),
        counted(&[OWN, OTHER]),
        counted(&[DELAYED]),
        counted(&[BURIED]),
    );
    let job = match state {
        READY => "a: stats-job 1 => state: ready, pri: 5, tube: default",
        DELAYED => "a: stats-job 1 => state: delayed, pri: 5, delay: 600, time-left: 540..599",
        BURIED => "a: stats-job 1 => state: buried, pri: 5, buries: 1",
        OWN | OTHER => "a: stats-job 1 => state: reserved, pri: 5, ttr: 600, time-left: 540..599",
        _ => "a: stats-job 1 -> NOT_FOUND",
    };
    format!("{job}\na: stats-tube default => {counts}\na: stats => {counts}")
}

//! A reserve that waits on a server with a binlog. Whatever ends the wait, the server must send the reply.
//!
//! Another client's command or a deadline causes such a reply. A server that holds replies back until the binlog is on
//! the disk must send these replies too.

use crate::case::{Case, Needs, script};

/// The events that end the wait of client `b`.
const ENDS: &[(&str, &str)] = &[
    (
        "a_put_of_another",
        "b: reserve ->
         waiting 1
         a: put 0 0 60 1 | x -> INSERTED 1
         b: -> RESERVED 1 1 | x",
    ),
    (
        "a_release",
        "a: put 0 0 60 1 | x -> INSERTED 1
         a: reserve -> RESERVED 1 1 | x
         b: reserve ->
         waiting 1
         a: release 1 0 0 -> RELEASED
         b: -> RESERVED 1 1 | x",
    ),
    (
        "a_kick",
        "a: put 0 600 60 1 | x -> INSERTED 1
         b: reserve ->
         waiting 1
         a: kick 1 -> KICKED 1
         b: -> RESERVED 1 1 | x",
    ),
    (
        "a_kick_job",
        "a: put 0 0 60 1 | x -> INSERTED 1
         a: reserve -> RESERVED 1 1 | x
         a: bury 1 0 -> BURIED
         b: reserve ->
         waiting 1
         a: kick-job 1 -> KICKED
         b: -> RESERVED 1 1 | x",
    ),
    (
        "the_close_of_an_owner",
        "a: put 0 0 60 1 | x -> INSERTED 1
         a: reserve -> RESERVED 1 1 | x
         b: reserve ->
         waiting 1
         a: <close>
         b: -> RESERVED 1 1 | x",
    ),
    (
        "the_end_of_a_pause",
        "a: put 0 0 60 1 | x -> INSERTED 1
         a: pause-tube default 600 -> PAUSED
         b: reserve ->
         waiting 1
         a: pause-tube default 0 -> PAUSED
         b: -> RESERVED 1 1 | x",
    ),
    (
        "the_end_of_a_delay",
        "a: put 0 1 60 1 | x -> INSERTED 1
         b: reserve -> RESERVED 1 1 | x",
    ),
    (
        "its_time_out",
        "a: put 0 600 60 1 | x -> INSERTED 1
         b: reserve-with-timeout 1 -> TIMED_OUT",
    ),
    (
        "its_half_close",
        "b: reserve ->
         waiting 1
         b: <half-close>
         b: -> TIMED_OUT
         b: -> <closed>",
    ),
];

/// Like [`ENDS`], for deadlines that C sometimes loses.
const ENDS_BY_DEADLINE: &[(&str, &str)] = &[
    (
        "the_end_of_a_ttr",
        "a: put 0 0 1 1 | x -> INSERTED 1
         a: reserve -> RESERVED 1 1 | x
         b: reserve -> RESERVED 1 1 | x",
    ),
    (
        "its_own_margin",
        "b: put 0 0 2 1 | x -> INSERTED 1
         b: reserve -> RESERVED 1 1 | x
         b: reserve -> DEADLINE_SOON",
    ),
];

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (synced, flags) in [("at_once", ["-b", "{dir}", "-f", "0"]), ("later", ["-b", "{dir}", "-f", "50"])] {
        let case = |(name, steps): &(&str, &str)| {
            // The command after the wait is answered too.
            let text = format!("{steps}\nc: list-tube-used -> USING default");
            script(format!("{name}_ends_a_wait_synced_{synced}"), text)
                .needs(Needs::Persistence)
                .flags(&flags)
        };
        cases.extend(ENDS.iter().map(case));
        cases.extend(ENDS_BY_DEADLINE.iter().map(|row| case(row).deviation("lost-expiries")));
    }
    cases
}

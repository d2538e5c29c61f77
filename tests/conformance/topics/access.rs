//! Access rules: `auth`, and what each identity of `access.toml` may do.

use super::{ACCESS, TUBES, guarded_script, played};
use crate::case::{Case, Needs, code, script};
use beanstalkd_protocol::{Arguments, Verb};
use beanstalkd_testkit::client::Failure;
use beanstalkd_testkit::commands;
use beanstalkd_types::job::JobId;

/// A line of each command that needs a role and has no body, about this job or this tube.
fn lines(id: u64, tube: &str) -> Vec<Vec<u8>> {
    let verbs = Verb::ALL.into_iter().filter(|verb| ![Verb::Auth, Verb::Quit, Verb::Put].contains(verb));
    let ids = [JobId(id)];
    let arguments = Arguments { tube: commands::name(tube), ..commands::arguments(&ids) };
    verbs.map(|verb| commands::line(verb, &arguments)).collect()
}

pub fn cases() -> Vec<Case> {
    let mut cases = open();
    cases.extend(guarded());
    cases
}

/// A server without rules.
fn open() -> Vec<Case> {
    vec![
        script(
            "auth_is_unknown_without_rules",
            "a: auth x -> UNKNOWN_COMMAND
         a: auth -> UNKNOWN_COMMAND
         a: authx -> UNKNOWN_COMMAND
         a: stats => malformed-commands: 3, cmd-stats: 1",
        )
        .needs(Needs::Extension)
        .ours()
        .fresh(),
        script("auth_with_a_nul_is_of_bad_format", "a: auth \\0 -> BAD_FORMAT"),
    ]
}

fn guarded() -> Vec<Case> {
    let mut cases = vec![
        code("an_anonymous_client_may_do_nothing", |bench| {
            let client = bench.client("a")?;
            for tube in ["default", "mine", "none"] {
                for (line, of_other_job) in lines(1, tube).into_iter().zip(lines(2, tube)) {
                    // Every client may learn that this job does not exist.
                    let is_about_a_job = line != of_other_job && !line.starts_with(b"delete-batch");
                    let expected: &[u8] = if is_about_a_job { b"NOT_FOUND\r\n" } else { b"FORBIDDEN\r\n" };
                    client.exchange(&line, expected)?;
                }
            }
            bench.play(
                "a: put 0 0 60 4 | quit -> FORBIDDEN
         a: xyz -> UNKNOWN_COMMAND
         a: put x -> BAD_FORMAT
         a: quit -> <closed>",
            )
        }),
        code("whether_there_is_a_job_cannot_be_seen", |bench| {
            bench.steps(&played(
                "e: <everybody>
         e: put 0 0 60 1 | x -> INSERTED 1
         s: list-tubes -> FORBIDDEN
         w: <worker>",
            ))?;
            let pairs = lines(1, "mine").into_iter().zip(lines(2, "mine"));
            for (line, of_no_job) in pairs.filter(|(line, of_no_job)| line != of_no_job) {
                for name in ["s", "w"] {
                    let client = bench.client(name)?;
                    let (reply, other) = (client.ask(&line)?, client.ask(&of_no_job)?);
                    if reply != other {
                        let texts = [line, reply, other].map(|text| text.escape_ascii().to_string());
                        return Err(Failure::new(format!("{name} sees whether there is a job: {texts:?}")));
                    }
                }
            }
            bench.play("e: peek 1 -> FOUND 1 1 | x")
        }),
        guarded_script(
            "a_wrong_token_closes_the_connection",
            "a: auth wrong -> UNAUTHORIZED
         a: -> <closed>
         b: list-tubes -> FORBIDDEN",
        ),
        guarded_script(
            "commands_behind_a_wrong_token_are_not_executed",
            "a: auth wrong\\r\\nlist-tubes -> UNAUTHORIZED
         a: -> <closed>",
        ),
        guarded_script(
            "a_token_makes_an_identity",
            "a: list-tube-used -> FORBIDDEN
         a: <producer>
         a: list-tube-used -> USING default
         a: put 0 0 60 1 | x -> FORBIDDEN
         a: use mine -> USING mine
         a: put 0 0 60 1 | x -> INSERTED 1",
        ),
        guarded_script(
            "another_token_makes_another_identity",
            "a: <producer>
         a: use mine -> USING mine
         a: put 0 0 60 1 | x -> INSERTED 1
         a: watch mine -> FORBIDDEN
         a: <worker>
         a: put 0 0 60 1 | x -> FORBIDDEN
         a: watch mine -> WATCHING 1
         a: reserve -> RESERVED 1 1 | x
         a: delete 1 -> DELETED",
        ),
        guarded_script(
            "the_body_of_a_refused_put_is_not_executed",
            "a: <worker>
         a: put 0 0 60 12 | list-tubes\\r\\n -> FORBIDDEN
         a: put 0 0 60 4 idp:x | quit -> FORBIDDEN
         a: put 0 0 60 4 what | quit -> FORBIDDEN
         a: list-tube-used -> USING default",
        ),
        guarded_script(
            "a_producer_may_not_look",
            "e: <everybody>
         a: <producer>
         a: use mine -> USING mine
         a: put 0 0 60 1 | x -> INSERTED 1
         a: peek 1 -> FORBIDDEN
         a: peek-ready -> FORBIDDEN
         a: stats-job 1 -> FORBIDDEN
         a: delete 1 -> FORBIDDEN
         a: kick 1 -> FORBIDDEN
         a: list-jobs mine ready -> FORBIDDEN
         a: stats-tube mine => current-jobs-ready: 1
         e: use mine -> USING mine
         e: peek-ready -> FOUND 1 1 | x",
        ),
        guarded_script(
            "a_worker_works",
            "e: <everybody>
         e: use mine -> USING mine
         e: put 0 0 60 1 | x -> INSERTED 1
         w: <worker>
         w: watch mine -> WATCHING 1
         w: reserve -> RESERVED 1 1 | x
         w: touch 1 -> TOUCHED
         w: release 1 0 0 -> RELEASED
         w: reserve-job 1 -> RESERVED 1 1 | x
         w: bury 1 0 -> BURIED
         w: kick 1 -> FORBIDDEN
         w: kick-job 1 -> FORBIDDEN
         w: peek 1 -> FOUND 1 1 | x
         w: delete 1 -> DELETED",
        ),
        guarded_script(
            "an_observer_changes_nothing",
            "e: <everybody>
         e: use mine -> USING mine
         e: put 0 0 60 1 | x -> INSERTED 1
         o: <observer>
         o: peek 1 -> FOUND 1 1 | x
         o: delete 1 -> FORBIDDEN
         o: reserve-job 1 -> FORBIDDEN
         o: move 1 mine-2 -> FORBIDDEN
         o: kick-job 1 -> FORBIDDEN
         o: reprioritize 1 0 -> FORBIDDEN
         o: flush-tube mine -> FORBIDDEN
         o: pause-tube mine 1 -> FORBIDDEN
         o: use mine -> USING mine
         o: kick 1 -> FORBIDDEN
         o: peek-ready -> FOUND 1 1 | x
         o: stats-job 1 => state: ready, pri: 0
         o: drain -> FORBIDDEN",
        ),
        guarded_script(
            "a_manager_manages",
            "e: <everybody>
         e: use mine -> USING mine
         e: put 0 9 60 1 | x -> INSERTED 1
         m: <manager>
         m: reprioritize 1 5 -> REPRIORITIZED
         m: kick-job 1 -> KICKED
         m: reserve-job 1 -> FORBIDDEN
         m: move 1 mine-2 -> MOVED
         m: move 1 other -> FORBIDDEN
         m: pause-tube mine-2 0 -> PAUSED
         m: flush-tube mine-2 -> FLUSHED 1
         m: flush-tube other -> FORBIDDEN
         m: drain -> FORBIDDEN
         e: drain -> DRAINING
         e: undrain -> NOT_DRAINING",
        ),
        guarded_script(
            "a_worker_gets_nothing_from_the_tube_at_the_start",
            "e: <everybody>
         e: put 0 0 60 1 | x -> INSERTED 1
         w: <worker>
         w: reserve-with-timeout 0 -> FORBIDDEN
         w: reserve-batch 1 -> FORBIDDEN
         w: list-tubes-watched -> OK 4 | ---\\n
         w: watch mine -> WATCHING 1
         w: reserve-with-timeout 0 -> TIMED_OUT
         w: ignore default -> WATCHING 1
         w: ignore mine -> NOT_IGNORED
         w: list-tubes-watched -> OK 11 | ---\\n- mine\\n
         w: watch default -> FORBIDDEN
         w: reserve-job 1 -> NOT_FOUND",
        ),
        guarded_script(
            "a_waiting_worker_gets_only_what_it_may",
            "w: <worker>
         w: watch mine -> WATCHING 1
         w: reserve ->
         e: <everybody>
         until e: stats => current-waiting: 1
         e: put 0 0 60 1 | x -> INSERTED 1
         e: use mine -> USING mine
         e: put 0 0 60 1 | y -> INSERTED 2
         w: -> RESERVED 2 1 | y",
        ),
        guarded_script(
            "lists_show_what_may_be_seen",
            "e: <everybody>
         e: use other -> USING other
         e: put 0 0 60 1 | x -> INSERTED 1
         e: use mine-2 -> USING mine-2
         e: put 0 0 60 1 | x -> INSERTED 2
         o: <observer>
         o: list-tubes -> OK 13 | ---\\n- mine-2\\n
         o: stats => current-jobs-ready: 1, current-tubes: 1, total-jobs: 1, cmd-put: 0, job-bytes: 0
         e: stats => current-jobs-ready: 2, current-tubes: 3, cmd-put: 2
         o: stats-tube other -> FORBIDDEN
         o: stats-tube mine-3 -> NOT_FOUND
         o: list-jobs other ready -> FORBIDDEN",
        ),
        guarded_script(
            "a_batch_deletes_what_may_be_deleted",
            "e: <everybody>
         e: put 0 0 60 1 | x -> INSERTED 1
         e: use mine -> USING mine
         e: put 0 0 60 1 | y -> INSERTED 2
         w: <worker>
         w: delete-batch 1 2 3 -> DELETED_BATCH 1 2
         e: peek 1 -> FOUND 1 1 | x",
        ),
        guarded_script(
            "names_of_tags_follow_the_patterns",
            "a: <producer>
         a: use mine -> USING mine
         a: put 0 0 60 4 grp:other | quit -> FORBIDDEN
         a: put 0 0 60 4 aft:other | quit -> FORBIDDEN
         a: put 0 0 60 4 con:other | quit -> FORBIDDEN
         a: put 0 0 60 1 grp:mine-g con:mine idp:other | x -> INSERTED 1
         a: put 0 0 60 1 con:mine:0 | x -> BAD_FORMAT
         a: stats-group mine-g -> FORBIDDEN
         o: <observer>
         o: stats-group other -> FORBIDDEN
         o: stats-group mine-g => pending: 1",
        ),
        guarded_script(
            "a_put_needs_the_role_for_the_tube_that_it_names_and_no_other",
            "e: <everybody>
         a: <producer>
         a: put 0 0 60 4 | quit -> FORBIDDEN
         a: put 0 0 60 1 tub:mine | x -> INSERTED 1
         a: use mine -> USING mine
         a: put 0 0 60 4 tub:other | quit -> FORBIDDEN
         a: put 0 0 60 4 idp:k tub:other | quit -> FORBIDDEN
         a: put 0 0 60 4 tub:other tub:mine | quit -> BAD_FORMAT
         a: put 0 0 60 1 grp:mine-g   tub:mine-2 | x -> INSERTED 2
         e: stats-tube other -> NOT_FOUND",
        ),
        guarded_script(
            "a_key_tells_nothing_of_another_tube",
            "e: <everybody>
         e: put 0 0 60 1 idp:k | x -> INSERTED 1
         a: <producer>
         a: put 0 0 60 1 idp:k | x -> FORBIDDEN
         a: use other -> FORBIDDEN
         a: use mine -> USING mine
         a: put 0 0 60 1 idp:k | x -> INSERTED 2",
        ),
        // doc/security.md says why.
        guarded_script(
            "a_duplicate_tells_of_a_job_of_the_same_tube_and_makes_it_more_urgent",
            "e: <everybody>
         e: use mine -> USING mine
         e: put 9 0 60 1 idp:k | x -> INSERTED 1
         a: <producer>
         a: use mine -> USING mine
         a: put 9 0 60 1 idp:k | y -> INSERTED 1 READY
         a: put 2 0 60 1 idp:k | y -> INSERTED 1 READY 2
         a: peek 1 -> FORBIDDEN
         e: stats-job 1 => pri: 2",
        ),
        guarded_script(
            "a_dead_job_does_not_name_a_tube_that_may_not_be_seen",
            "e: <everybody>
         e: use theirs -> USING theirs
         e: watch theirs -> WATCHING 2
         e: put 0 0 60 1 | x -> INSERTED 1
         e: reserve -> RESERVED 1 1 | x
         e: release 1 0 0 -> RELEASED
         e: stats-job 1 => tube: mine, dead-from: theirs, waits-for: worker
         a: <observer>
         a: stats-job 1 => tube: mine, failures: 1, dead-from: , waits-for: worker
         b: <manager>
         b: move 1 theirs -> FORBIDDEN
         b: stats-tube theirs -> FORBIDDEN",
        ),
        code("a_list_does_not_name_a_tube_that_may_not_be_seen", |bench| {
            bench.steps(&played(
                "e: <everybody>
         e: use theirs -> USING theirs
         e: watch theirs -> WATCHING 2
         e: put 0 0 60 1 | x -> INSERTED 1
         e: reserve -> RESERVED 1 1 | x
         e: release 1 0 0 -> RELEASED
         a: <observer>",
            ))?;
            for (client, is_named) in [("e", true), ("a", false)] {
                let list = bench.client(client)?.ask(b"list-jobs mine ready\r\n")?;
                let list = String::from_utf8_lossy(&list).into_owned();
                if !list.contains("dead-since") || list.contains("theirs") != is_named {
                    return Err(Failure::new(list));
                }
            }
            Ok(())
        }),
        code("the_list_of_extensions_ends_with_auth", |bench| {
            bench.steps(&played("a: <everybody>"))?;
            let stats = bench.client("a")?.ask(b"stats\r\n")?;
            let stats = String::from_utf8_lossy(&stats).into_owned();
            if stats.contains(" auth\"\n") { Ok(()) } else { Err(Failure::new(stats)) }
        }),
    ];
    for case in &mut cases {
        case.flags = ["--access", ACCESS, "--tubes", TUBES].map(str::to_owned).into();
    }
    cases.into_iter().map(|case| case.needs(Needs::Extension).ours().fresh()).collect()
}

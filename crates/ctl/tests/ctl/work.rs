//! `work`: runs a command for each job.

use super::support::{client, command, counts, ctl, everywhere, interrupt, put, text};
use beanstalk_client::PutOptions;
use beanstalkd_testkit::fake::{Fake, FakeOptions};
use beanstalkd_testkit::pace::Pace;
use beanstalkd_testkit::panicking::wait_until;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Command;

/// A command that notes its attempt in a file, and fails.
const FAILING: &str = "echo $BEANSTALK_ATTEMPT >>\"$0\"; false";

#[test]
fn a_command_gets_the_body_and_the_variables_of_the_job() {
    for server in everywhere() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("seen");
        let id = put(&mut server.client(), "t", b"to: ann", 0);
        let script =
            "cat >\"$0\"; printf ' %s %s %s' $BEANSTALK_JOB_ID $BEANSTALK_TUBE $BEANSTALK_ATTEMPT >>\"$0\"";
        ctl(&server.address(), &["work", "t", "--until-empty", "--", "sh", "-c", script, text(&file)])
            .ends_with(0);
        assert_eq!(fs::read_to_string(&file).unwrap(), format!("to: ann {id} t 1"));
        assert_eq!(counts(&server.address(), "t"), [0; 4]);
    }
}

#[test]
fn a_command_knows_how_often_its_job_was_reserved_and_where_it_was_traced() {
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for server in everywhere() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("seen");
        let mut client = server.client();
        let has_traces = client.extensions().unwrap().has("trc");
        let options = PutOptions::new();
        let options = if has_traces { options.tag(format!("trc:{trace}").parse().unwrap()) } else { options };
        let id = client.put_in(&"t".parse().unwrap(), b"", &options).unwrap().id;
        client.reserve_job(id).unwrap();
        client.quit().unwrap();
        let script =
            "echo $BEANSTALK_RESERVES $BEANSTALK_ATTEMPT $((BEANSTALK_AGE >= 0)) $BEANSTALK_TRACE >\"$0\"";
        ctl(&server.address(), &["work", "t", "--until-empty", "--", "sh", "-c", script, text(&file)])
            .ends_with(0);
        let seen = fs::read_to_string(&file).unwrap();
        assert_eq!(seen.trim(), format!("2 1 1 {}", if has_traces { trace } else { "" }).trim());
    }
}

#[test]
fn a_job_that_fails_is_delayed_and_buried_after_the_last_attempt() {
    for server in everywhere() {
        let address = server.address();
        put(&mut server.client(), "t", b"x", 0);
        let work = ["work", "t", "--until-empty", "--attempts", "2", "--delay", "1h", "--", "false"];
        let failed = ctl(&address, &work).ends_with(0);
        assert!(failed.err.contains("attempt 1; again in 3600s"), "{failed:?}");
        assert!(failed.err.contains("0 done, 1 failed, 0 of them buried"), "{failed:?}");
        assert_eq!(counts(&address, "t"), [0, 0, 1, 0]);
        let kick = ["kick", "--all", "--yes"];
        // A kick of a delayed job is not an attempt. After a bury, a kick starts the attempts again.
        for expected in [[0, 0, 0, 1], [0, 0, 1, 0], [0, 0, 0, 1]] {
            ctl(&address, &kick).ends_with(0);
            let failed = ctl(&address, &work).ends_with(0);
            assert_eq!(failed.err.contains("attempt 2; buried"), expected[3] == 1, "{failed:?}");
            assert_eq!(counts(&address, "t"), expected);
        }
    }
}

#[test]
fn a_job_is_touched_repeatedly_while_its_command_runs() {
    let server = Fake::start();
    let directory = tempfile::tempdir().unwrap();
    let go_on = directory.path().join("go on");
    let mut client = client(&server.address());
    client.use_tube(&"t".parse().unwrap()).unwrap();
    let id = client.put(b"x", &PutOptions { ttr: 1.into(), ..PutOptions::default() }).unwrap().id;
    let script = "until [ -e \"$0\" ]; do sleep 0.01; done";
    let work = ["work", "t", "--until-empty", "--", "sh", "-c", script, text(&go_on)];
    let child = command(&server.address(), &work).spawn().unwrap();
    let mut log = Vec::new();
    wait_until("the third touch", || {
        log.append(&mut server.take_log());
        log.iter().filter(|line| **line == format!("touch {id}")).count() >= 3
    });
    fs::write(&go_on, "").unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
    assert_eq!(counts(&server.address(), "t"), [0; 4]);
}

#[test]
fn a_command_that_cannot_be_started_leaves_the_job() {
    for server in everywhere() {
        put(&mut server.client(), "t", b"x", 0);
        let work = ["work", "t", "-j", "3", "--", "/nonexistent/command"];
        ctl(&server.address(), &work).ends_with(5);
        assert_eq!(counts(&server.address(), "t"), [1, 0, 0, 0]);
    }
    ctl("unix:/nonexistent/socket", &["work", "t", "--", "true"]).ends_with(3);
}

#[test]
fn a_command_need_not_read_a_large_body() {
    for server in everywhere() {
        put(&mut server.client(), "t", &vec![b'x'; 65_000], 0);
        ctl(&server.address(), &["work", "t", "--until-empty", "--", "true"]).ends_with(0);
        assert_eq!(counts(&server.address(), "t"), [0; 4]);
    }
}

#[test]
fn a_process_that_a_command_leaves_behind_does_not_block_the_worker() {
    let server = Fake::start();
    put(&mut client(&server.address()), "t", &vec![b'x'; 200_000], 0);
    // The process keeps the pipe of the body open and does not read it. Its outputs are not those of the test.
    let script = "sleep 600 <&0 >/dev/null 2>&1 & echo $! >\"$0\"";
    let directory = tempfile::tempdir().unwrap();
    let pid = directory.path().join("pid");
    ctl(&server.address(), &["work", "t", "--until-empty", "--", "sh", "-c", script, text(&pid)])
        .ends_with(0);
    assert_eq!(counts(&server.address(), "t"), [0; 4]);
    let pid = fs::read_to_string(&pid).unwrap();
    Command::new("kill").arg(pid.trim()).status().unwrap();
}

#[test]
fn commands_run_in_parallel() {
    let server = Fake::start();
    let directory = tempfile::tempdir().unwrap();
    for body in [&b"a"[..], b"b"] {
        put(&mut client(&server.address()), "t", body, 0);
    }
    // Each command waits until the other has started.
    let script = "touch \"$0/$(cat)\"; until [ -e \"$0/a\" ] && [ -e \"$0/b\" ]; do sleep 0.01; done";
    let work = ["work", "t", "-j", "2", "--until-empty", "--", "sh", "-c", script, text(directory.path())];
    ctl(&server.address(), &work).ends_with(0);
    assert_eq!(counts(&server.address(), "t"), [0; 4]);
}

#[test]
fn after_a_signal_the_command_finishes_and_no_further_job_is_reserved() {
    let server = Fake::start();
    let directory = tempfile::tempdir().unwrap();
    let (begun, go_on) = (directory.path().join("begun"), directory.path().join("go on"));
    for _ in 0..2 {
        put(&mut client(&server.address()), "t", b"x", 0);
    }
    let script = "touch \"$0\"; until [ -e \"$1\" ]; do sleep 0.01; done";
    let work = ["work", "t", "--", "sh", "-c", script, text(&begun), text(&go_on)];
    let mut child = command(&server.address(), &work).spawn().unwrap();
    wait_until("the command", || begun.exists());
    interrupt(&child);
    let mut message = String::new();
    BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut message).unwrap();
    assert!(message.contains("waiting for the running commands"), "{message}");
    fs::write(&go_on, "").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(counts(&server.address(), "t"), [1, 0, 0, 0]);
}

#[test]
fn a_second_signal_ends_the_command_and_the_job_is_ready_again() {
    let server = Fake::start();
    let directory = tempfile::tempdir().unwrap();
    let (begun, ended) = (directory.path().join("begun"), directory.path().join("ended"));
    put(&mut client(&server.address()), "t", b"x", 0);
    let script = "trap 'touch \"$1\"; exit 1' TERM; touch \"$0\"; while :; do sleep 0.01; done";
    let work = ["work", "t", "--", "sh", "-c", script, text(&begun), text(&ended)];
    let child = command(&server.address(), &work).spawn().unwrap();
    wait_until("the command", || begun.exists());
    let id = child.id().to_string();
    // Two equal signals at the same time are delivered as one: the second is repeated until the program has ended.
    let mut child = child;
    wait_until("the end", || {
        Command::new("kill").args(["-TERM", &id]).status().unwrap();
        child.try_wait().unwrap().is_some()
    });
    assert_eq!(child.wait().unwrap().code(), Some(130));
    wait_until("the command's end", || ended.exists());
    wait_until("the job", || counts(&server.address(), "t") == [1, 0, 0, 0]);
}

#[test]
fn a_worker_connects_again_after_its_connection_breaks() {
    let fake = Fake::start_with(FakeOptions {
        close_after: 3, // watch, ignore, reserve: the reply with the job is lost
        ..Default::default()
    });
    let work = ["work", "t", "--", "true"];
    let mut child = command(&fake.address(), &work).spawn().unwrap();
    wait_until("the break", || fake.count() >= 3);
    put(&mut client(&fake.address()), "t", b"x", 0);
    wait_until("the work", || counts(&fake.address(), "t") == [0; 4]);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_worker_connects_again_after_an_answer_to_another_command() {
    // The first two commands are the producer's, then come watch and ignore. The answer to the reserve, the stats-job
    // or the delete is wrong.
    for wrong_at in 2 + 3..=2 + 5 {
        let options = FakeOptions { wrong_at, ..Default::default() };
        let fake = Fake::start_with(options);
        put(&mut client(&fake.address()), "t", b"x", 0);
        // Without --until-empty, because the fake notices only later that the worker has left the first connection.
        let mut child = command(&fake.address(), &["work", "t", "--", "true"]).spawn().unwrap();
        wait_until("the work", || fake.count() > 2 + 5 && counts(&fake.address(), "t") == [0; 4]);
        let seen = fake.take_log().iter().filter(|line| line.starts_with("watch ")).count();
        assert_eq!(seen, 2, "{wrong_at}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn a_worker_with_a_session_sends_its_result_when_it_has_connected_again() {
    let fake = Fake::start_with(FakeOptions {
        // The first two commands are the producer's, then come session, watch, ignore, reserve and stats-job. The
        // delete is lost.
        close_before: 2 + 6,
        ..Default::default()
    });
    let id = put(&mut client(&fake.address()), "t", b"x", 0);
    assert_eq!(fake.count(), 2, "use and put");
    ctl(&fake.address(), &["work", "t", "--until-empty", "--session", "s", "--", "true"]).ends_with(0);
    let log = fake.take_log();
    let deletes = log.iter().filter(|line| **line == format!("delete {id}")).count();
    let sessions: Vec<&String> = log.iter().filter(|line| line.starts_with("session s-")).collect();
    assert_eq!((deletes, sessions.len()), (2, 2), "{log:?}");
    assert_eq!(sessions[0], sessions[1]);
    assert!(sessions[0].ends_with(" 30"), "{log:?}");
    assert_eq!(counts(&fake.address(), "t"), [0; 4]);
}

/// Reserves the only job of `t` and waits until its time to run ends.
fn let_time_out(server: &super::support::Any, id: u64, times: u64) {
    let mut client = server.client();
    client.watch(&"t".parse().unwrap()).unwrap();
    client.reserve_with_timeout(5).unwrap();
    wait_until("the time-out", || client.stats_job(id).unwrap().timeouts == times);
}

#[test]
fn a_job_that_only_times_out_is_buried_after_the_last_attempt() {
    // The program must touch or end the job before its time to run ends.
    let pace = Pace::watch().unwrap();
    for server in everywhere().into_iter().filter(super::support::Any::lets_time_pass) {
        pace.judge_panics(|| {
            let mut client = server.client();
            ctl(&server.address(), &["delete", "--tube", "t", "--all", "--yes"]);
            client.use_tube(&"t".parse().unwrap()).unwrap();
            let id = client.put(b"x", &PutOptions { ttr: 2.into(), ..PutOptions::default() }).unwrap().id;
            let directory = tempfile::tempdir().unwrap();
            let ran = directory.path().join("ran");
            let script = "echo $BEANSTALK_ATTEMPT >\"$0\"; false";
            let work = |attempts: &str| {
                let work = ["work", "t", "--until-empty", "--attempts", attempts, "--delay", "1h"];
                ctl(&server.address(), &[&work[..], &["--", "sh", "-c", script, text(&ran)]].concat())
                    .ends_with(0)
            };
            let_time_out(&server, id, 1);
            let_time_out(&server, id, 2);
            assert!(work("2").err.contains("buried"));
            assert!(!ran.exists(), "its attempts were used up");
            assert_eq!(counts(&server.address(), "t"), [0, 0, 0, 1]);
            // A kick gives it all its attempts again.
            for (expected, attempt) in [([0, 0, 1, 0], "1"), ([0, 0, 0, 1], "2")] {
                ctl(&server.address(), &["kick", "--all", "--yes"]).ends_with(0);
                work("2");
                assert_eq!(fs::read_to_string(&ran).unwrap().trim(), attempt);
                assert_eq!(counts(&server.address(), "t"), expected);
            }
        });
    }
}

#[test]
fn to_inspect_a_job_costs_no_attempt() {
    for server in everywhere() {
        let address = server.address();
        let id = put(&mut server.client(), "t", b"x", 0);
        let directory = tempfile::tempdir().unwrap();
        let ran = directory.path().join("ran");
        let work = ["work", "t", "--until-empty", "--attempts", "3", "--delay", "1h", "--"];
        let work = [&work[..], &["sh", "-c", FAILING, text(&ran)]].concat();
        let mut other = server.client();
        for _ in 0..3 {
            // With this program, and with another client before the first failure.
            for _ in 0..4 {
                ctl(&address, &["reserve", "t", "--wait", "0s"]).ends_with(0);
                ctl(&address, &["peek", &id.to_string()]).ends_with(0);
                if !ran.exists() {
                    other.reserve_job(id).unwrap();
                    other.release(id, 1024, 0).unwrap();
                }
            }
            ctl(&address, &work).ends_with(0);
            if counts(&address, "t")[2] == 1 {
                ctl(&address, &["kick", &id.to_string()]).ends_with(0);
            }
        }
        assert_eq!(fs::read_to_string(&ran).unwrap(), "1\n2\n3\n");
        assert_eq!(counts(&address, "t"), [0, 0, 0, 1]);
    }
}

#[test]
fn a_worker_that_goes_on_counts_its_own_failures_whatever_others_do() {
    for server in everywhere() {
        let address = server.address();
        let id = put(&mut server.client(), "t", b"x", 0);
        let directory = tempfile::tempdir().unwrap();
        let ran = directory.path().join("ran");
        let work = ["work", "t", "--attempts", "3", "--delay", "1h", "--", "sh", "-c", FAILING, text(&ran)];
        let mut child = command(&address, &work).spawn().unwrap();
        let mut other = server.client();
        for _ in 0..2 {
            wait_until("a failure", || counts(&address, "t") == [0, 0, 1, 0]);
            for _ in 0..4 {
                other.reserve_job(id).unwrap();
                other.release(id, 1024, 3_600).unwrap();
            }
            other.kick_job(id).unwrap();
        }
        wait_until("the bury", || counts(&address, "t") == [0, 0, 0, 1]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(fs::read_to_string(&ran).unwrap(), "1\n2\n3\n");
    }
}

#[test]
fn a_missing_program_costs_no_attempt_and_is_named() {
    for server in everywhere() {
        let id = put(&mut server.client(), "t", b"x", 0);
        for _ in 0..3 {
            let missing = ctl(&server.address(), &["work", "t", "--", "no-such-program"]).ends_with(5);
            assert!(missing.err.contains("no-such-program cannot be started"), "{missing:?}");
        }
        let info = server.client().stats_job(id).unwrap();
        assert_eq!((info.releases, info.timeouts, info.buries), (0, 0, 0));
        assert_eq!(counts(&server.address(), "t"), [1, 0, 0, 0]);
    }
}

/// Whether a process runs. A zombie does not run.
fn runs(pid: &str) -> bool {
    let shown = Command::new("ps").args(["-o", "stat=", "-p", pid]).output().unwrap();
    let state = String::from_utf8(shown.stdout).unwrap();
    !state.trim().is_empty() && !state.starts_with('Z')
}

#[test]
fn the_command_of_a_killed_worker_ends_with_it() {
    // The first command is killed from outside, together with what it has started. The second one kills the worker at
    // once.
    for script in [
        "sleep 600 & echo \"$! $$\" >\"$0.new\"; mv \"$0.new\" \"$0\"; wait",
        "echo $$ >\"$0.new\"; mv \"$0.new\" \"$0\"; kill -9 $PPID; sleep 600; sleep 600",
    ] {
        let server = Fake::start();
        let directory = tempfile::tempdir().unwrap();
        let pids = directory.path().join("pids");
        put(&mut client(&server.address()), "t", b"x", 0);
        let mut worker = command(&server.address(), &["work", "t", "--", "sh", "-c", script, text(&pids)])
            .spawn()
            .unwrap();
        wait_until("the command", || pids.exists());
        let pids = fs::read_to_string(&pids).unwrap();
        // SIGKILL.
        worker.kill().unwrap();
        worker.wait().unwrap();
        for pid in pids.split_whitespace() {
            wait_until("the end of the command", || !runs(pid));
        }
        wait_until("the job", || counts(&server.address(), "t") == [1, 0, 0, 0]);
    }
}

#[test]
fn a_command_that_ignores_sigterm_does_not_outlive_its_worker() {
    let server = Fake::start();
    let directory = tempfile::tempdir().unwrap();
    let pid = directory.path().join("pid");
    put(&mut client(&server.address()), "t", b"x", 0);
    let script = "trap '' TERM; echo $$ >\"$0.new\"; mv \"$0.new\" \"$0\"; while :; do sleep 0.1; done";
    let mut worker =
        command(&server.address(), &["work", "t", "--", "sh", "-c", script, text(&pid)]).spawn().unwrap();
    wait_until("the command", || pid.exists());
    worker.kill().unwrap();
    worker.wait().unwrap();
    let pid = fs::read_to_string(&pid).unwrap();
    wait_until("the end of the command", || !runs(pid.trim()));
}

#[test]
fn a_closed_standard_error_ends_nothing() {
    let server = Fake::start();
    let closed = |arguments: &[&str]| {
        let (_, writer) = std::io::pipe().unwrap();
        command(&server.address(), arguments).stderr(writer).status().unwrap().code()
    };
    assert_eq!(closed(&["stats", "nosuch"]), Some(1));
    for body in [b"a", b"b", b"c"] {
        put(&mut client(&server.address()), "t", body, 0);
    }
    assert_eq!(closed(&["work", "t", "--until-empty", "--attempts", "1", "--", "false"]), Some(0));
    assert_eq!(counts(&server.address(), "t"), [0, 0, 0, 3]);
}

#[test]
fn the_name_and_the_grace_of_a_session_are_checked_before_the_server_is_asked() {
    let work = |option: &[&str]| {
        let arguments = [&["work", "t"], option, &["--", "true"]].concat();
        ctl("unix:/nonexistent/socket", &arguments)
    };
    work(&["--session", "s", "--grace", "1h"]).ends_with(3);
    let refused = work(&["--session", "s", "--grace", "3601s"]).ends_with(2);
    assert!(refused.err.contains("at most 1h"), "{refused:?}");
    work(&["--session", &"s".repeat(160)]).ends_with(3);
    let refused = work(&["--session", &"s".repeat(161)]).ends_with(2);
    assert!(refused.err.contains("at most 160 bytes"), "{refused:?}");
}

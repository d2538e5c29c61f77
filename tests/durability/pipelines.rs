//! Deep pipelines of puts at `-f 0`: as many replies as commands, in order, each after its sync.

use std::collections::BTreeMap;

use rustix::process::Signal;

use crate::jobs::{see_jobs, start};
use crate::trace::Traced;
use beanstalkd_testkit::client::{id_of, put_command};
use beanstalkd_testkit::has_tool;

fn tag(at: u64) -> String {
    format!("{at}-of-it")
}

fn pipeline(count: u64) -> Vec<u8> {
    (1..=count).flat_map(|at| put_command(0, 0, 60, format!("tag-{};", tag(at)).as_bytes())).collect()
}

#[test]
fn as_many_replies_as_puts_in_their_order() {
    for count in [100, 1000, 100_000] {
        let server = start(&["-f", "0"]);
        let mut client = server.connect().unwrap();
        let sending = client.send_in_background(pipeline(count)).unwrap();
        for id in 1..=count {
            client.expect(format!("INSERTED {id}\r\n").as_bytes()).unwrap();
        }
        sending.join().unwrap().unwrap();
        client.half_close().unwrap();
        client.expect_closed().unwrap();
        assert_eq!(server.connect().unwrap().job_count().unwrap(), count);
    }
}

#[test]
fn each_reply_follows_its_sync() {
    if !has_tool("strace") {
        return;
    }
    let mut traced = Traced::start(&["-f", "0"], "").unwrap();
    let mut tags = BTreeMap::new();
    let mut client = traced.server.connect().unwrap();
    for count in [1, 99] {
        client.send(&pipeline(count)).unwrap();
        for at in 1..=count {
            tags.insert(id_of(&client.read_reply().unwrap(), "INSERTED").unwrap(), tag(at));
        }
    }
    assert!(traced.server.stop(Signal::TERM).unwrap().success());
    assert_eq!(traced.check_replies_follow_syncs(&tags), 100);
}

/// With `-F` the server syncs no records. It still syncs new files before it uses them, and their names.
#[test]
fn a_server_that_never_syncs_leaves_its_records_to_the_system() {
    if !has_tool("strace") {
        return;
    }
    for (flag, syncs) in [("-f0", true), ("-F", false)] {
        let mut traced = Traced::start(&[flag, "-s", "4096"], "").unwrap();
        let mut client = traced.server.connect().unwrap();
        client.send(&pipeline(100)).unwrap();
        for _ in 0..100 {
            assert!(client.read_reply().unwrap().starts_with(b"INSERTED "));
        }
        assert!(traced.server.stop(Signal::TERM).unwrap().success());
        let paths = traced.synced_paths();
        assert!(paths.iter().any(|path| path.ends_with("/binlog.2.new")), "{flag}: {paths:?}");
        let has_synced = paths.iter().any(|path| path.contains("/binlog.") && !path.ends_with(".new"));
        assert_eq!(has_synced, syncs, "{flag}: {paths:?}");
    }
}

/// One turn makes more reservations than fit into the files that were made ahead.
#[test]
fn reservations_that_wait_for_a_new_file_are_logged_before_later_changes() {
    const JOBS: u64 = 300;
    let mut server = start(&["-f", "0", "-s", "4096"]);
    let mut client = server.connect().unwrap();
    let puts: Vec<u8> = (0..JOBS).flat_map(|_| put_command(0, 0, 60, b"x")).collect();
    client.send(&puts).unwrap();
    for id in 1..=JOBS {
        client.expect(format!("INSERTED {id}\r\n").as_bytes()).unwrap();
    }
    let reserves: String = (1..=JOBS).map(|id| format!("reserve-job {id}\r\n")).collect();
    client.send(&[reserves.as_bytes(), &put_command(1, 0, 60, b"last")].concat()).unwrap();
    for id in 1..=JOBS {
        client.expect(format!("RESERVED {id} 1\r\nx\r\n").as_bytes()).unwrap();
    }
    client.expect(format!("INSERTED {}\r\n", JOBS + 1).as_bytes()).unwrap();
    server.restart(Signal::KILL).unwrap();
    let jobs = see_jobs(&mut server.connect().unwrap(), 1..=JOBS).unwrap();
    let counted = jobs.values().filter(|job| job.reserves == 1).count();
    assert_eq!(counted as u64, JOBS, "the binlog has all reservations");
}

#[test]
fn jobs_that_were_acknowledged_before_a_kill_are_there() {
    const COUNT: u64 = 100_000;
    for read in [1, 777, 30_000] {
        let mut server = start(&["-f", "0", "-s", "65536"]);
        let mut client = server.connect().unwrap();
        // The send fails when the server is killed.
        let sending = client.send_in_background(pipeline(COUNT)).unwrap();
        for id in 1..=read {
            client.expect(format!("INSERTED {id}\r\n").as_bytes()).unwrap();
        }
        server.restart(Signal::KILL).unwrap();
        let _ = sending.join().unwrap();
        // Replies that the client has not read yet count too.
        let rest = client.read_to_end().unwrap_or_default();
        let answered = read + rest.split(|&byte| byte == b'\n').count() as u64 - 1;
        let jobs = see_jobs(&mut server.connect().unwrap(), 1..=answered).unwrap();
        assert_eq!(jobs.len() as u64, answered);
        for (id, job) in jobs {
            assert_eq!(job.body, format!("tag-{};", tag(id)).as_bytes());
        }
    }
}

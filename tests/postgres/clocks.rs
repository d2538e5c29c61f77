//! Times in the log are right for every owner, whatever its wall clock shows.

use std::process::Command;

use beanstalkd_testkit::client::Client;
use beanstalkd_testkit::has_tool;
use beanstalkd_testkit::panicking::wait_until;
use beanstalkd_testkit::postgres::{Cluster, installation};
use rustix::process::Signal;

use crate::servers::{Launched, Servers, put};

/// Adds seconds to the wall clock, and leaves the other clocks alone.
const WRONG_CLOCK: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = syscall(SYS_clock_gettime, clock, time);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) time->tv_sec += atoi(getenv("WRONG_BY"));
    return result;
}
"#;

/// The time for all steps of a test, in seconds.
const SLOWNESS_S: u64 = 120;

/// A library for LD_PRELOAD; `None` if there is no compiler.
fn wrong_clock(servers: &Servers) -> Option<String> {
    if !has_tool("cc") {
        return None;
    }
    let path = |name: &str| servers.directory().join(name).to_str().unwrap().to_owned();
    let (source, library) = (path("clock.c"), path("clock.so"));
    std::fs::write(&source, WRONG_CLOCK).unwrap();
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o", &library, &source]).status().unwrap();
    assert!(built.success());
    Some(library)
}

fn figure_of_job(client: &mut Client, id: u64, key: &str) -> String {
    let reply = client.ask(format!("stats-job {id}\r\n").as_bytes()).unwrap();
    let reply = String::from_utf8(reply).unwrap();
    let line = reply.lines().find_map(|line| line.strip_prefix(&format!("{key}: ")));
    line.unwrap_or_else(|| panic!("job {id} without {key}: {reply}")).to_owned()
}

/// Jobs whose times are all 1000 seconds.
struct Timed {
    delayed: u64,
    expires: u64,
}

impl Timed {
    fn put(client: &mut Client) -> Self {
        let inserted = |reply: Vec<u8>| {
            let reply = String::from_utf8(reply).unwrap();
            reply.trim_end().strip_prefix("INSERTED ").unwrap().parse::<u64>().unwrap()
        };
        let delayed = inserted(client.ask(b"put 0 1000 100 1\r\nd\r\n").unwrap());
        let expires = inserted(client.ask(b"put 0 0 100 1 exp:1000\r\ne\r\n").unwrap());
        let cooled = inserted(client.ask(b"put 0 0 100 1 idp:k:1000\r\nc\r\n").unwrap());
        client.exchange(format!("delete {cooled}\r\n").as_bytes(), b"DELETED\r\n").unwrap();
        Self { delayed, expires }
    }

    /// Each of the times has not yet run out, and is not longer than it was set.
    fn check(&self, client: &mut Client) {
        let left: u64 = figure_of_job(client, self.delayed, "time-left").parse().unwrap();
        assert!((1000 - SLOWNESS_S..=1000).contains(&left), "the delay has {left} s left");
        assert_eq!(figure_of_job(client, self.delayed, "state"), "delayed");
        let left: u64 = figure_of_job(client, self.expires, "expires-in").parse().unwrap();
        assert!((1000 - SLOWNESS_S..=1000).contains(&left), "the job expires in {left} s");
        let reply = client.ask(b"put 0 0 100 1 idp:k:1000\r\nc\r\n").unwrap();
        let reply = String::from_utf8(reply).unwrap();
        assert_eq!(reply.split(' ').count(), 3, "the cooldown is over: {reply}");
    }
}

#[test]
fn a_successor_ends_delays_and_cooldowns_at_the_right_time_whatever_its_clock_says() {
    let Some(installation) = installation() else { return };
    let servers = Servers::new();
    let Some(library) = wrong_clock(&servers) else { return };
    let cluster = Cluster::start(&installation).unwrap();
    let launch = |url: &str, name: &str, wrong_by: &str| {
        let variables = [("LD_PRELOAD", &*library), ("WRONG_BY", wrong_by)];
        servers.launch_with(url, &["--allow-async", "--wait-for-lock"], name, &variables)
    };
    for (queue, first, second) in [("late", "600", "-600"), ("early", "-600", "600")] {
        let url = cluster.url(queue);
        let owner = launch(&url, &format!("{queue}-1"), first);
        let timed = Timed::put(&mut owner.connect());
        // A standby.
        let standby = launch(&url, &format!("{queue}-2"), second);
        standby.wait_for("waiting for it");
        drop(owner);
        timed.check(&mut standby.connect());
        // A server that starts when no other one runs, and its successor.
        drop(standby);
        let mut third = launch(&url, &format!("{queue}-3"), first);
        timed.check(&mut third.connect());
        stop(&mut third);
        let last = launch(&url, &format!("{queue}-4"), second);
        timed.check(&mut last.connect());
    }
}

fn stop(server: &mut Launched) {
    rustix::process::kill_process(rustix::process::Pid::from_child(&server.child), Signal::TERM).unwrap();
    assert!(server.wait().success());
}

/// The tables as the previous version made them.
#[test]
fn tables_without_the_clock_get_it_from_the_owner_of_the_tables() {
    let Some(installation) = installation() else { return };
    let cluster = Cluster::start(&installation).unwrap();
    let (url, servers) = (cluster.url("mail"), Servers::new());
    servers.use_once(&url);
    let drop_clock = "ALTER TABLE beanstalkd.queue DROP COLUMN clock, DROP COLUMN clock_at";
    cluster.query(drop_clock).unwrap();
    // If the role may not change the tables, the message has the commands for the operator.
    cluster
        .query("ALTER TABLE beanstalkd.queue OWNER TO postgres; GRANT ALL ON beanstalkd.queue TO beanstalkd")
        .unwrap();
    let mut refused = servers.launch(&url, &["--allow-async"], "refused");
    assert_eq!(refused.wait().code(), Some(10));
    assert!(refused.log().contains("do this once: ALTER TABLE"), "{}", refused.log());
    cluster.query("ALTER TABLE beanstalkd.queue OWNER TO beanstalkd").unwrap();
    let server = servers.serve(&url, &["--allow-async"]);
    assert_eq!(put(&mut server.connect().unwrap(), "job"), 2);
    wait_until("the queue has a clock", || {
        cluster.query("SELECT clock > 0 AND clock_at IS NOT NULL FROM beanstalkd.queue").unwrap() == "t"
    });
}

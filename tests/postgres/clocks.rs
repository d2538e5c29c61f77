//! Times in the log are right for every owner, whatever its wall clock shows.

use beanstalkd_testkit::client::{Client, id_of};
use beanstalkd_testkit::has_tool;
use beanstalkd_testkit::postgres::{Cluster, installation};
use beanstalkd_testkit::stepping_clock;

use crate::servers::Servers;

/// The time for all steps of a test, in seconds.
const SLOWNESS_S: u64 = 120;

fn figure_of_job(client: &mut Client, id: u64, key: &str) -> String {
    client.pairs(&format!("stats-job {id}")).unwrap()[key].clone()
}

/// Jobs whose times are all 1000 seconds.
struct Timed {
    delayed: u64,
    expires: u64,
}

impl Timed {
    fn put(client: &mut Client) -> Self {
        let mut put = |put: &[u8]| id_of(&client.ask(put).unwrap(), "INSERTED").unwrap();
        let delayed = put(b"put 0 1000 100 1\r\nd\r\n");
        let expires = put(b"put 0 0 100 1 exp:1000\r\ne\r\n");
        let cooled = put(b"put 0 0 100 1 idp:k:1000\r\nc\r\n");
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
    if !has_tool("cc") {
        return;
    }
    let clock = stepping_clock::variables(servers.directory());
    let cluster = Cluster::start(&installation).unwrap();
    let launch = |url: &str, wrong_by: &str| {
        let clock = clock.iter().map(|variable| variable.split_once('=').expect("it has a name"));
        let variables: Vec<_> = clock.chain([("WRONG_BY", wrong_by)]).collect();
        servers.launch_with(url, &["--allow-async", "--wait-for-lock"], &variables)
    };
    for (queue, first, second) in [("late", "600", "-600"), ("early", "-600", "600")] {
        let url = cluster.url(queue);
        let owner = launch(&url, first);
        let timed = Timed::put(&mut owner.connect());
        // A standby.
        let standby = launch(&url, second);
        standby.wait_for("waiting for it");
        drop(owner);
        timed.check(&mut standby.connect());
        // A server that starts when no other one runs, and its successor.
        drop(standby);
        let mut third = launch(&url, first);
        timed.check(&mut third.connect());
        assert!(third.stop().success());
        let last = launch(&url, second);
        timed.check(&mut last.connect());
    }
}

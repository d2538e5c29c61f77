//! `--max-timeouts` and `--max-releases`: jobs that no worker finishes.

use beanstalkd_testkit::panicking::{Client, Server, wait_until};

fn state(client: &mut Client, id: u64) -> String {
    client.data(&format!("stats-job {id}"))["state"].clone()
}

#[test]
fn a_job_that_timed_out_too_often_is_buried_and_counted() {
    let server = Server::start(&["--max-timeouts", "2"]);
    let mut client = server.connect();
    let id = client.put(0, 1, b"x");
    assert_eq!(client.reserve("reserve"), id);
    wait_until("the job is ready again", || state(&mut client, id) == "ready");
    assert_eq!(client.stat("job-poisoned"), 0);
    assert_eq!(client.reserve("reserve"), id);
    wait_until("the job is buried", || state(&mut client, id) == "buried");
    assert_eq!(client.stat("job-poisoned"), 1);
    assert_eq!(client.data("stats-tube default")["job-poisoned"], "1");
    // An operator who has repaired the cause may kick the job.
    assert_eq!(client.ask(&format!("kick-job {id}")), "KICKED");
    assert_eq!(state(&mut client, id), "ready");
}

#[test]
fn a_job_that_was_released_too_often_is_buried_and_counted() {
    let server = Server::start(&["--max-releases", "2"]);
    let mut client = server.connect();
    let id = client.put(0, 60, b"x");
    assert_eq!(client.reserve("reserve"), id);
    assert_eq!(client.ask(&format!("release {id} 0 0")), "RELEASED");
    assert_eq!(client.reserve("reserve"), id);
    assert_eq!(client.ask(&format!("release {id} 0 0")), "BURIED");
    assert_eq!(state(&mut client, id), "buried");
    assert_eq!(client.stat("job-poisoned"), 1);
}

#[test]
fn without_the_limits_a_job_comes_back_for_ever() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let id = client.put(0, 60, b"x");
    for _ in 0..100 {
        assert_eq!(client.reserve("reserve"), id);
        assert_eq!(client.ask(&format!("release {id} 0 0")), "RELEASED");
    }
    assert_eq!(client.stat("job-poisoned"), 0);
}

//! Which client is served in which turn, and what becomes of commands that go on when something else happens.

use std::time::Duration;

use beanstalkd::simulation::{Control, Order};
use beanstalkd_queue::FlushScope;
use beanstalkd_types::clock::NS_PER_S;
use beanstalkd_types::tube_name::TubeName;

use beanstalkd_testkit::simulated::{Connection, START, SimulatedServer};

use crate::access::{ANNA, guarded};

fn start() -> SimulatedServer {
    SimulatedServer::with_max_job_bytes(1 << 16)
}

#[test]
fn a_turn_after_a_reload_visits_only_some_of_the_connections_without_a_certificate() {
    let mut server = start();
    let _clients: Vec<_> = (0..2500).map(|_| server.connect()).collect();
    server.recheck_certificates();
    assert_eq!(server.turn([]), 3);
}

#[test]
fn a_flush_by_the_api_is_no_connection_and_no_client_of_a_tube() {
    let mut server = start();
    server.executor_mut().accept_orders(0);
    let client = server.connect();
    server.say(&client, "use t\r\n".to_owned() + &"put 0 0 60 1\r\nx\r\n".repeat(3000));
    assert_eq!(server.queue().figures().jobs.total(), 3000);
    let flush = Order::Flush(TubeName::parse(b"t").unwrap(), FlushScope::All);
    server.executor_mut().order(flush, START).unwrap();
    server.one_turn([]);
    client.send("stats\r\nstats-tube default\r\nstats-tube t\r\n");
    server.one_turn([&client]);
    assert!((1..3000).contains(&server.queue().figures().jobs.total()), "the flush is under way");
    let received = client.received();
    for (key, values) in [
        ("current-connections", &[1][..]),
        ("current-producers", &[1]),
        ("current-workers", &[0]),
        ("current-waiting", &[0, 0, 0]),
        ("current-using", &[0, 1]),
        ("current-watching", &[1, 0]),
    ] {
        let found =
            received.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix(": ")?.parse().ok());
        assert_eq!(found.collect::<Vec<u64>>(), values, "{key}");
    }
    assert_eq!(server.client_count(), 1);
}

#[test]
fn a_new_event_waits_for_one_turn_at_most_behind_any_number_of_continued_commands() {
    let mut server = start();
    let greedy: Vec<Connection> = (0..100).map(|_| server.connect()).collect();
    for client in &greedy {
        client.send("peek-buried\r\n".repeat(20_000));
    }
    server.one_turn(&greedy);
    // Until each of them has had its burst; until then they connect again and again.
    while greedy.iter().any(|client| !client.pipe.borrow().has_outbound()) {
        server.one_turn([]);
    }
    let answered = || greedy.iter().filter(|client| !client.received().is_empty()).count();
    assert_eq!(answered(), greedy.len());
    let modest = server.connect();
    for _ in 0..50 {
        modest.send("peek-buried\r\n");
        server.one_turn([&modest]);
        server.one_turn([]);
        assert_eq!(modest.received(), "NOT_FOUND\r\n");
    }
    assert_eq!(answered(), greedy.len(), "nor does it keep the others from going on");
}

#[test]
fn an_idle_time_out_leaves_a_client_alone_whose_kick_goes_on() {
    const JOBS: usize = 2_000;
    let mut server = start();
    server.close_idle_after(Duration::from_secs(1));
    let client = server.connect();
    server.say(&client, "put 0 100 10 0\r\n\r\n".repeat(JOBS));
    client.send("kick 2000\r\n");
    server.one_turn([&client]);
    assert_eq!(client.received(), "", "a turn has moved all of them");
    server.now = START + 2 * NS_PER_S;
    for _ in 0..JOBS {
        server.one_turn([]);
    }
    assert_eq!((server.client_count(), client.received().as_str()), (1, "KICKED 2000\r\n"));
}

/// After a turn that was late, because the machine stood still or another program has taken over.
#[test]
fn an_idle_time_out_leaves_a_client_alone_whose_command_has_arrived() {
    for is_paused in [false, true] {
        let mut server = start();
        server.close_idle_after(Duration::from_secs(1));
        let [client, _silent] = server.connect_each();
        server.turn([]);
        client.send("list-tube-used\r\n");
        if is_paused {
            server.pause(true);
            server.one_turn([&client]);
        }
        server.now = START + NS_PER_S;
        server.one_turn([&client]);
        server.pause(false);
        server.turn([]);
        assert_eq!((server.client_count(), client.received().as_str()), (1, "USING default\r\n"));
        // From its last byte on, the client has the whole time again.
        server.pass(NS_PER_S - 1);
        assert_eq!(server.client_count(), 1);
        server.pass(1);
        assert_eq!(server.client_count(), 0);
    }
}

#[test]
fn a_put_whose_tags_are_no_tags_counts_as_malformed() {
    let mut server = start();
    let client = server.connect();
    let replies = server.say(&client, "put 0 0 60 4 foo\r\nstats\r\n");
    assert!(replies.starts_with("BAD_FORMAT\r\nOK "), "{replies}");
    assert!(replies.contains("\nmalformed-commands: 1\n"), "{replies}");
}

#[test]
fn the_log_does_not_say_that_memory_is_low_if_a_put_could_not_wait_for_its_pace() {
    let rules =
        "[identities.anna]\nunix-users = [1]\nproduce = [\"*\"]\nwork = [\"*\"]\nputs-per-second = 1\n";
    for (input, replies) in [
        ("put 0 0 9 1\r\na\r\nput 0 0 9 1\r\nb\r\n", "INSERTED 1\r\n"),
        (
            "put 0 0 1 1\r\na\r\nreserve\r\ncomplete 1 2\r\nput 0 0 9 1\r\nb\r\nput 0 0 9 1\r\nc\r\n",
            "INSERTED 1\r\nRESERVED 1 1\r\na\r\n",
        ),
        (
            "put 0 0 9 1\r\na\r\nreserve\r\ncomplete 1 2\r\nput 0 0 9 1\r\nb\r\nput 0 0 9 1\r\nc\r\n",
            "INSERTED 1\r\nRESERVED 1 1\r\na\r\n",
        ),
    ] {
        let mut server = guarded(rules);
        let client = server.connect_as(ANNA);
        client.send(input);
        server.one_turn([&client]);
        // The client leaves while the put waits, if it waits.
        client.end();
        server.one_turn([&client]);
        assert_eq!(client.received(), format!("{replies}OUT_OF_MEMORY\r\n"), "{input}");
        assert_eq!(server.executor().server_view(START).refused_puts, 1);
        assert_eq!(server.executor().next_line_of_refused_puts_at(), None, "{input}");
    }
}

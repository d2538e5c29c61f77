//! Connections that make the C server misbehave.

use std::time::Duration;

use beanstalkd_testkit::panicking::{Client, Server, wait_until};

use crate::wait_until_idle;

#[test]
fn a_job_deleted_while_it_is_sent_arrives_whole() {
    const BODY: usize = 8 << 20;
    let server = Server::start(&["-z", "10000000"]);
    let mut client = server.connect();
    let mut other = server.connect();
    let body: Vec<u8> = (0..BODY).map(|index| (index / 7) as u8).collect();
    let id = client.put(0, 60, &body);
    client.send(format!("peek {id}\r\n"));
    // The replies are more than a socket takes.
    wait_until("the job is peeked", || other.stat("cmd-peek") == 1);
    assert_eq!(other.ask(&format!("delete {id}")), "DELETED");
    // These jobs would get the memory of the freed one.
    for _ in 0..3 {
        other.put(0, 60, &vec![b'!'; BODY]);
    }
    assert_eq!(client.line(), format!("FOUND {id} {BODY}"));
    assert!(client.body(BODY) == body, "the body is the one that was peeked");
}

#[test]
fn a_job_that_times_out_while_it_is_sent_arrives_whole() {
    const BODY: usize = 8 << 20;
    let server = Server::start(&["-z", "10000000"]);
    let mut client = server.connect();
    let mut other = server.connect();
    let body: Vec<u8> = (0..BODY).map(|index| (index / 5) as u8).collect();
    let id = client.put(0, 1, &body);
    client.send("reserve\r\n");
    assert_eq!(other.reserve("reserve-with-timeout 20"), id);
    assert_eq!(other.ask(&format!("delete {id}")), "DELETED");
    other.put(0, 60, &vec![b'!'; BODY]);
    assert_eq!(client.line(), format!("RESERVED {id} {BODY}"));
    assert!(client.body(BODY) == body, "the body is the one that was reserved");
}

#[test]
fn a_half_closed_connection_with_unsent_output_does_not_spin() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let id = client.put(0, 60, &[b'x'; 60_000]);
    client.send(format!("peek {id}\r\n").repeat(200));
    client.half_close();
    let mut other = server.connect();
    wait_until("the peeks begin", || other.stat("cmd-peek") > 0);
    wait_until_idle(&server, Duration::from_secs(1));
    // The client gets all replies, and then the end of the connection.
    for _ in 0..200 {
        assert_eq!(client.line(), format!("FOUND {id} 60000"));
        client.body(60_000);
    }
    client.expect_closed();
}

#[test]
fn commands_that_were_sent_before_the_close_are_executed() {
    for server in [Server::start(&[]), Server::start_tcp(&[])] {
        let mut other = server.connect();
        for count in 1..=100 {
            server.connect().send("put 0 0 60 5\r\nhello\r\n");
            wait_until("the jobs are ready", || other.stat("current-jobs-ready") == count);
        }
        wait_until("all other clients are gone", || other.stat("current-connections") == 1);
    }
}

#[test]
fn a_client_that_closes_with_unread_replies_is_gone_at_once() {
    for server in [Server::start(&["-z", "10000000"]), Server::start_tcp(&["-z", "10000000"])] {
        let mut client = server.connect();
        let id = client.put(0, 60, &vec![b'x'; 8 << 20]);
        let mut other = server.connect();
        client.send("reserve\r\n");
        wait_until("the job is reserved", || other.stat("current-jobs-reserved") == 1);
        drop(client);
        wait_until("the client is gone", || other.stat("current-connections") == 1);
        assert_eq!(other.data(&format!("stats-job {id}"))["state"], "ready");
    }
}

/// Huge pages double the memory of a small server, where the system gives them to every program.
#[test]
fn a_server_that_runs_uses_no_huge_pages() {
    assert_eq!(Server::start(&[]).usage().status("THP_enabled"), "0");
}

#[test]
fn memory_is_returned_after_a_burst() {
    const JOBS: usize = 200_000;
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.ask("use x");
    let before = server.usage().memory();
    const BATCH: usize = 100;
    let mut batch = Vec::new();
    for _ in 0..BATCH {
        batch.extend_from_slice(b"put 0 0 60 1000\r\n");
        batch.extend_from_slice(&[b'x'; 1000]);
        batch.extend_from_slice(b"\r\n");
    }
    for _ in 0..JOBS / BATCH {
        client.send(&batch);
        for _ in 0..BATCH {
            assert!(client.line().starts_with("INSERTED"));
        }
    }
    let full = server.usage().memory();
    assert!(full > before + JOBS * 1_000, "{full}");
    // A few jobs stay, spread over the memory.
    const KEPT: usize = 500;
    for first in (1..=JOBS).step_by(BATCH) {
        let deleted = (first..first + BATCH).filter(|id| id % KEPT != 0);
        client.send(deleted.clone().map(|id| format!("delete {id}\r\n")).collect::<String>());
        deleted.for_each(|_| assert_eq!(client.line(), "DELETED"));
    }
    // The server gives memory back by itself. What it keeps for the next burst, and the jobs that stay, are less than
    // half.
    let half = before + (full - before) / 2;
    wait_until("the server gives the memory back", || server.usage().memory() < half);
}

/// Processor time for puts, reserves and deletes beside `tubes` other tubes.
fn cost_beside(tubes: usize) -> Duration {
    let server = Server::start(&[]);
    let mut bystander = server.connect();
    for first in (0..tubes).step_by(100) {
        let these = first..tubes.min(first + 100);
        bystander.send(these.clone().map(|tube| format!("watch tube-{tube}\r\n")).collect::<String>());
        these.for_each(|_| assert!(bystander.line().starts_with("WATCHING")));
    }
    let mut client = server.connect();
    let round = |client: &mut Client| {
        let id = client.put(0, 60, b"x");
        assert_eq!(client.reserve("reserve"), id);
        assert_eq!(client.ask(&format!("delete {id}")), "DELETED");
    };
    let mut costs = [(); 5].map(|()| {
        let before = server.usage().cpu_time();
        (0..100).for_each(|_| round(&mut client));
        server.usage().cpu_time() - before
    });
    // A virtual machine may count a time in which it stood still.
    costs.sort();
    costs[2]
}

#[test]
fn cost_per_command_does_not_grow_with_tubes() {
    let (few, many) = (cost_beside(10), cost_beside(20_000));
    // Processor time varies by a factor of two. C needs a hundred times as much beside the tubes.
    assert!(many < 4 * few, "{few:?} beside ten tubes, {many:?} beside twenty thousand");
}

#[test]
fn announced_bodies_take_no_memory_until_they_arrive() {
    const CLIENTS: usize = 100;
    let server = Server::start(&["-z", "1073741824"]);
    let mut other = server.connect();
    other.ask("use x");
    let before = server.usage().memory();
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send("put 0 0 60 1073741824\r\n");
        client.send([b'x'; 1024]);
    }
    wait_until("all clients have announced a body", || other.stat("cmd-put") == CLIENTS as u64);
    wait_until("the sent parts of all bodies have arrived", || {
        other.stat("buffer-bytes") >= (CLIENTS * 1024) as u64
    });
    let growth = server.usage().memory().saturating_sub(before);
    assert!(growth < 10 << 20, "{growth} bytes");
}

#[test]
fn clients_that_never_read_take_little_memory_and_harm_nobody() {
    const CLIENTS: usize = 500;
    let server = Server::start(&[]);
    let mut other = server.connect();
    let id = other.put(0, 60, &[b'x'; 60_000]);
    let before = server.usage().memory();
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
    let peeks = format!("peek {id}\r\n").repeat(1_000);
    for client in &mut clients {
        client.0.send_until_full(peeks.as_bytes()).unwrap();
    }
    // A client that comes in between gets all its replies at once.
    for _ in 0..200 {
        assert_eq!(other.ask("peek-delayed"), "NOT_FOUND");
    }
    wait_until("the server can serve none of these clients any further", || {
        let (executed, time) = (other.stat("cmd-peek"), Duration::from_millis(200));
        std::thread::sleep(time);
        other.stat("cmd-peek") == executed
    });
    let growth = server.usage().memory().saturating_sub(before);
    assert!(growth < 100 << 20, "{growth} bytes");
    wait_until_idle(&server, Duration::from_secs(1));
    assert!(other.stat("cmd-peek") >= CLIENTS as u64);
}

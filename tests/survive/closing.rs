//! Connections that end after any byte of any command, by a close, a half-close or a reset.

use std::time::Duration;

use socket2::SockRef;

use beanstalkd_testkit::panicking::{Client, Server, scale, wait_until};

/// How a client ends its connection.
#[derive(Clone, Copy, Debug)]
enum Ending {
    /// It closes the connection.
    Close,
    /// It closes its sending half, and reads to the end.
    HalfClose,
    /// It resets the connection; only over TCP.
    Reset,
}

const ENDINGS: [Ending; 3] = [Ending::Close, Ending::HalfClose, Ending::Reset];

/// A stream with every command, and with bodies that are cut at each point; it puts and deletes jobs.
const SCRIPT: &str = "put 0 0 60 5\r\nhello\r\nput 1 0 60 100000\r\nuse a\r\nwatch a\r\nignore a\r\n\
    reserve-with-timeout 0\r\nrelease 1 0 0\r\nreserve-job 1\r\nbury 1 0\r\nkick-job 1\r\nkick 1\r\n\
    touch 1\r\npeek 1\r\npeek-ready\r\npeek-delayed\r\npeek-buried\r\nstats\r\nstats-job 1\r\n\
    stats-tube default\r\nlist-tubes\r\nlist-tube-used\r\nlist-tubes-watched\r\npause-tube a 0\r\n\
    delete 999\r\nput 0 1 60 2\r\nxy\r\nput 0 0 60 2\r\nxyz\r\nnonsense\r\nreserve\r\nquit\r\n";

fn leave(client: Client, ending: Ending) {
    match ending {
        Ending::Close => drop(client),
        Ending::HalfClose => {
            let mut client = client;
            client.half_close();
            while client.try_line().is_some() {}
        }
        Ending::Reset => {
            let socket = client.0.into_fd();
            SockRef::from(&socket).set_linger(Some(Duration::ZERO)).unwrap();
        }
    }
}

/// Waits until no other client is connected, and deletes every job in the tube "default".
fn clean_up(client: &mut Client) {
    wait_until("all other clients are gone", || client.stat("current-connections") == 1);
    assert_eq!(
        client.stat("current-jobs-reserved"),
        0,
        "the jobs of a disconnected client are ready at once"
    );
    loop {
        client.ask("kick 1000");
        let reply = client.ask("reserve-with-timeout 0");
        let Some(rest) = reply.strip_prefix("RESERVED ") else { break };
        let (id, size) = rest.split_once(' ').unwrap();
        client.body(size.parse().unwrap());
        assert_eq!(client.ask(&format!("delete {id}")), "DELETED");
    }
}

#[test]
fn closing_at_any_byte_leaves_nothing_behind() {
    let server = Server::start_tcp(&[]);
    let mut keeper = server.connect();
    clean_up(&mut keeper);
    let script = SCRIPT.as_bytes();
    let mut connections = 0;
    let mut round = || {
        for ending in ENDINGS {
            for length in 1..=script.len() {
                let mut client = server.connect();
                // The server may have closed already, if the script has `quit`.
                client.0.send(&script[..length]).unwrap();
                leave(client, ending);
                connections += 1;
                if connections % 500 == 0 {
                    clean_up(&mut keeper);
                }
            }
        }
        clean_up(&mut keeper);
        connections
    };
    // The first round shows how much memory is needed; no later round may need more.
    let mut connections = round();
    let (descriptors, memory) = (server.usage().descriptors(), server.usage().memory());
    while connections < scale("SURVIVE_CLOSINGS", 5_000) {
        connections = round();
    }
    assert_eq!(server.usage().descriptors(), descriptors);
    let growth = server.usage().memory().saturating_sub(memory);
    assert!(growth < 4 << 20, "the memory has grown by {growth} bytes after {connections} connections");
    assert_eq!(keeper.stat("current-tubes"), 1);
    assert_eq!(keeper.stat("job-bytes"), 0);
    assert!(keeper.stat("buffer-bytes") < 64 << 10, "only the keeper's own buffers are left");
}

#[test]
fn jobs_of_a_disconnected_client_are_ready_at_once() {
    let server = Server::start_tcp(&[]);
    let mut next = server.connect();
    let id = next.put(0, 4_000_000_000, b"x");
    for ending in [Ending::Close, Ending::Reset, Ending::HalfClose] {
        let mut holder = server.connect();
        assert_eq!(holder.reserve("reserve"), id);
        next.send("reserve\r\n");
        leave(holder, ending);
        assert_eq!(next.line(), format!("RESERVED {id} 1"), "{ending:?}");
        next.body(1);
        assert_eq!(next.ask(&format!("release {id} 0 0")), "RELEASED");
    }
}

#[test]
fn a_client_that_disconnects_while_it_waits_gets_no_job() {
    let server = Server::start_tcp(&[]);
    let mut other = server.connect();
    for ending in [Ending::Close, Ending::Reset] {
        let mut waiter = server.connect();
        waiter.send("reserve\r\n");
        wait_until("the client waits", || other.stat("current-waiting") == 1);
        leave(waiter, ending);
        wait_until("the client is gone", || other.stat("current-connections") == 1);
        let id = other.put(0, 60, b"x");
        assert_eq!(other.data(&format!("stats-job {id}"))["state"], "ready", "{ending:?}");
        assert_eq!(other.ask(&format!("delete {id}")), "DELETED");
    }
}

//! How much memory one client can make the server use with long replies, many tubes and long watch lists, whether the
//! client reads or not.

use std::os::unix::process::ExitStatusExt;

use rustix::process::Signal;

use beanstalkd_testkit::has_tool;
use beanstalkd_testkit::panicking::{Client, Server, wait_until};

const MIB: usize = 1 << 20;

/// The memory of the allocator and the system, in addition to what the server counts.
const SLACK: usize = 24 * MIB;

/// Puts a job into each of `count` tubes whose names have `name_bytes` bytes. Returns how many puts were accepted.
fn make_tubes(client: &mut Client, count: usize, name_bytes: usize) -> usize {
    let mut made = 0;
    for first in (0..count).step_by(500) {
        let batch: String = (first..count.min(first + 500))
            .map(|number| format!("use t{number:0width$}\r\nput 0 0 60 1\r\nx\r\n", width = name_bytes - 1))
            .collect();
        client.send(&batch);
        for _ in first..count.min(first + 500) {
            let is_used = client.line() != "OUT_OF_MEMORY";
            made += usize::from(client.line().starts_with("INSERTED") && is_used);
        }
    }
    made
}

/// Reads a reply with data, and returns the length of the data.
fn read_data(client: &mut Client) -> usize {
    let line = client.line();
    let size = line.strip_prefix("OK ").unwrap_or_else(|| panic!("{line}")).parse().unwrap();
    client.body(size).len()
}

#[test]
fn pipelined_lists_and_stats_take_no_memory_while_they_are_read() {
    for (command, count) in [("list-tubes", 1_000), ("stats", 20_000)] {
        let server = Server::start_tcp(&[]);
        let mut client = server.connect();
        assert_eq!(make_tubes(&mut client, 2_000, 100), 2_000);
        let before = server.usage().memory();
        client.send(format!("{command}\r\n").repeat(count));
        for _ in 0..count {
            read_data(&mut client);
        }
        let growth = server.usage().peak_memory() - before;
        assert!(growth < 6 * MIB, "{growth} bytes for {count} {command}");
    }
}

#[test]
fn sixty_clients_that_do_not_read_share_one_list() {
    const BOUND: usize = 64 * MIB;
    const TUBES: usize = 100_000;
    let server = Server::start_tcp(&["--max-memory", "64m"]);
    let before = server.usage().memory();
    let mut maker = server.connect();
    assert_eq!(make_tubes(&mut maker, TUBES, 20), TUBES);
    let mut hoarders: Vec<_> = (0..60).map(|_| server.connect()).collect();
    hoarders.iter_mut().for_each(|hoarder| hoarder.send("list-tubes\r\nlist-tube-used\r\n"));
    // The reply to the second command comes after the list.
    wait_until("all lists are made", || maker.stat("cmd-list-tube-used") >= 60);
    let growth = server.usage().peak_memory() - before;
    assert!(growth < BOUND + SLACK, "{growth} bytes");
    // Each client gets the whole list in the end.
    for hoarder in &mut hoarders {
        assert_eq!(read_data(hoarder), "---\n- default\n".len() + TUBES * "- \n".len() + TUBES * 20);
        assert_eq!(hoarder.line(), "USING default");
    }
}

#[test]
fn new_tubes_are_refused_at_the_memory_limit_and_workers_still_work() {
    const BOUND: usize = 8 * MIB;
    let server = Server::start(&["--max-memory", "8m"]);
    let mut worker = server.connect();
    let id = worker.put(0, 600, b"x");
    let before = server.usage().memory();
    let mut watcher = server.connect();
    let refused = (0..40_000).find(|number| {
        let reply = watcher.ask(&format!("watch watched-{number}"));
        assert!(reply.starts_with("WATCHING") || reply == "OUT_OF_MEMORY", "{reply}");
        reply == "OUT_OF_MEMORY"
    });
    let watched = refused.expect("the server refuses a watch at the limit");
    assert!(watched > BOUND / 1_000, "{watched} tubes");
    let growth = server.usage().peak_memory() - before;
    assert!(growth < BOUND + SLACK / 2, "{growth} bytes");
    // The server makes no new tubes.
    assert_eq!(watcher.ask("use another"), "OUT_OF_MEMORY");
    assert_eq!(watcher.ask("list-tubes"), "OUT_OF_MEMORY");
    assert_eq!(watcher.ask("list-tubes-watched"), "OUT_OF_MEMORY");
    // The jobs that exist can be reserved and deleted, also by clients that connect now.
    let mut newcomer = server.connect();
    assert_eq!(newcomer.ask("use watched-0"), "USING watched-0");
    assert_eq!(newcomer.ask("watch watched-0"), "WATCHING 2");
    assert_eq!(newcomer.reserve("reserve-with-timeout 0"), id);
    assert_eq!(newcomer.ask(&format!("release {id} 1 0")), "RELEASED");
    assert_eq!(newcomer.reserve("reserve-with-timeout 0"), id);
    assert_eq!(newcomer.ask(&format!("touch {id}")), "TOUCHED");
    assert_eq!(newcomer.ask(&format!("bury {id} 1")), "BURIED");
    assert_eq!(newcomer.ask(&format!("delete {id}")), "DELETED");
    assert_eq!(newcomer.stat("current-tubes"), watched as u64 + 1);
    assert_eq!(watcher.ask("ignore watched-1"), format!("WATCHING {watched}"));
    drop(watcher);
    wait_until("there is room again", || worker.ask("use another") == "USING another");
}

#[test]
fn the_server_survives_long_replies_when_its_address_space_is_full() {
    if !has_tool("prlimit") {
        return;
    }
    let mut started = 0;
    for step in 0..4 {
        let limit = format!("--as={}", (110 + step * 30) * MIB);
        let Ok(mut server) = Server::try_start_in(&["prlimit", &limit], &["-z", "1073741824"]) else {
            continue;
        };
        started += 1;
        let mut maker = server.connect();
        make_tubes(&mut maker, 10_000, 200);
        maker.ask("use default");
        // Jobs fill the rest of the memory.
        let put =
            [format!("put 0 0 60 {}\r\n", 7_000).into_bytes(), vec![b'x'; 7_000], b"\r\n".to_vec()].concat();
        let mut last_id = 0;
        loop {
            maker.send(&put);
            let reply = maker.line();
            match reply.strip_prefix("INSERTED ") {
                Some(id) => last_id = id.parse().unwrap(),
                None => break assert_eq!(reply, "OUT_OF_MEMORY"),
            }
        }
        let commands = [
            "list-tubes\r\n".repeat(50),
            "stats\r\n".repeat(2_000),
            format!("peek {last_id}\r\n").repeat(2_000),
            (0..2_000).map(|number| format!("watch w{number}\r\nuse w{number}\r\n")).collect(),
            "list-tubes-watched\r\nkick 1000\r\nreserve-with-timeout 0\r\n".repeat(500),
        ];
        let mut hoarders: Vec<Client> = commands
            .iter()
            .cycle()
            .take(40)
            .map(|commands| {
                let mut hoarder = server.connect();
                // The server may close the connection for lack of memory.
                let _ = hoarder.0.send(commands.as_bytes());
                hoarder
            })
            .collect();
        // Other clients are served during that time.
        assert_eq!(maker.ask(&format!("delete {last_id}")), "DELETED");
        for hoarder in &mut hoarders {
            hoarder.half_close();
            hoarder.read_to_end();
        }
        drop(hoarders);
        // A client that sends without reading is served no further once the socket is full of replies.
        for ids in (1..last_id).collect::<Vec<u64>>().chunks(1000) {
            maker.send(ids.iter().map(|id| format!("delete {id}\r\n")).collect::<String>());
            ids.iter().for_each(|_| drop(maker.line()));
        }
        wait_until("there is room again", || maker.ask("use another") == "USING another");
        server.signal(Signal::TERM);
        let status = server.end();
        assert_eq!((status.code(), status.signal()), (Some(0), None), "{}", server.log());
    }
    assert!(started >= 2, "the server has started with only {started} of the limits");
}

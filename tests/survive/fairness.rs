//! A greedy client does not keep others waiting. The tests count work and not time: how many of the greedy client's
//! commands the server executes until another client gets an answer.

use beanstalkd_testkit::panicking::{Client, Server, wait_until};

/// The maximum number of commands that the server executes for one connection in a turn. A connection that sends
/// without a pause gets an eighth of that.
const COMMANDS_PER_TURN: u64 = 1024;
/// How many turns may pass on a busy machine until a modest client has its reply and has sent its next command.
const TURNS_PER_ANSWER: u64 = 32;
const ANSWERS: u64 = 100;

/// Gets `ANSWERS` replies, during which the server executes at most `max` commands of the greedy client, by the count
/// `key` of the stats. Tries three times, because the greedy client goes on while the modest one waits for a processor.
#[track_caller]
fn is_served_beside(modest: &mut Client, key: &str, max: u64) {
    let executed = [(); 3].map(|()| {
        let before = modest.stat(key);
        for _ in 0..ANSWERS {
            assert_eq!(modest.ask("peek-buried"), "NOT_FOUND");
        }
        modest.stat(key) - before
    });
    assert!(executed.iter().any(|&count| count <= max), "{executed:?} commands for {ANSWERS} replies");
}

/// A client that sends `bytes` again and again and reads every reply, until it is dropped.
struct Greedy {
    stop: std::sync::Arc<std::sync::atomic::AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Greedy {
    fn start(server: &Server, bytes: Vec<u8>) -> Self {
        use std::io::{Read, Write};
        use std::sync::atomic::Ordering::Relaxed;
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        // TCP keeps megabytes in flight, so that the server finds more to read whenever it looks.
        let stream = std::net::TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        let (mut reader, mut writer) = (stream.try_clone().unwrap(), stream);
        let (reading, writing) = (stop.clone(), stop.clone());
        let threads = vec![
            std::thread::spawn(move || {
                let mut buffer = vec![0; 1 << 20];
                while !reading.load(Relaxed) && reader.read(&mut buffer).is_ok_and(|read| read > 0) {}
                // This wakes a thread that is blocked in a write.
                let _ = reader.shutdown(std::net::Shutdown::Both);
            }),
            std::thread::spawn(move || while !writing.load(Relaxed) && writer.write_all(&bytes).is_ok() {}),
        ];
        Self { stop, threads }
    }
}

impl Drop for Greedy {
    fn drop(&mut self) {
        self.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

#[test]
fn pipelining_without_end_starves_nobody() {
    let server = Server::start_tcp(&[]);
    let mut modest = server.connect();
    modest.put(0, 60, b"x");
    let _greedy = Greedy::start(&server, b"peek 1\r\n".repeat(8_192));
    wait_until("the server serves the greedy client", || modest.stat("cmd-peek") > 10_000);
    is_served_beside(&mut modest, "cmd-peek", TURNS_PER_ANSWER * ANSWERS * COMMANDS_PER_TURN);
}

#[test]
fn peeking_large_jobs_starves_nobody() {
    let server = Server::start_tcp(&["-z", "10000000"]);
    let mut modest = server.connect();
    modest.put(0, 60, &vec![b'x'; 1 << 20]);
    let _greedy = Greedy::start(&server, b"peek 1\r\n".repeat(8_192));
    wait_until("the server serves the greedy client", || modest.stat("cmd-peek") > 10);
    // Two of these replies are more than the bound of unsent output.
    is_served_beside(&mut modest, "cmd-peek", 4 * 2 * ANSWERS);
}

#[test]
fn sending_large_bodies_starves_nobody() {
    const BODY: usize = 64 << 20;
    let server = Server::start_tcp(&["-z", "1073741824", "--max-memory", "1g"]);
    let mut modest = server.connect();
    let mut body = format!("put 0 0 60 {BODY}\r\n").into_bytes();
    body.resize(body.len() + BODY, b'x');
    body.extend_from_slice(b"\r\ndelete 1\r\n");
    let _greedy = Greedy::start(&server, body);
    wait_until("the server serves the greedy client", || modest.stat("cmd-put") > 0);
    // The server reads 32 KiB in a turn. If it read each body to its end first, there would be one for each reply.
    is_served_beside(&mut modest, "cmd-put", ANSWERS / 4);
}

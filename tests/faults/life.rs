//! Start and end of the server: signals, privileges, and the file of the unix socket.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use beanstalkd_testkit::client;
use beanstalkd_testkit::launched::Launched;
use beanstalkd_testkit::pace::Pace;
use beanstalkd_testkit::panicking::{Client, Server, is_root, wait_until};
use beanstalkd_testkit::{has_tool, server_under_test};

#[test]
fn sigusr1_right_after_start_does_not_kill() {
    for _ in 0..30 {
        let mut server = launch(Path::new("socket"), tempfile::tempdir().unwrap());
        // The file is there before the socket listens: the earliest sign of life.
        while !server.socket().exists() {
            std::hint::spin_loop();
        }
        server.signal(Signal::USR1);
        let mut client = server.connect();
        let is_draining = |client: &mut client::Client| client.pairs("stats").unwrap()["draining"] == "true";
        wait_until("the server is in drain mode", || is_draining(&mut client));
        server.kill();
    }
}

/// A server that listens on the unix socket `path`.
fn launch(path: &Path, directory: TempDir) -> Launched {
    let mut command = Command::new(server_under_test());
    Launched::start(command.arg("-l").arg(format!("unix:{}", path.display())), directory)
}

const LARGE: usize = 1 << 20;

/// A server with a reply to a client that is larger than the socket takes at once: a job of `LARGE` bytes.
fn server_with_unsent_reply() -> (Server, Client, u64) {
    let server = Server::start(&["-z", "2000000"]);
    let mut client = server.connect();
    let id = client.put(0, 60, &vec![b'x'; LARGE]);
    client.send(format!("peek {id}\r\n"));
    let mut other = server.connect();
    wait_until("the peek is executed", || other.stat("cmd-peek") == 1);
    (server, client, id)
}

#[test]
fn sigterm_flushes_and_exits_0() {
    let flushes = |signal| {
        let (mut server, mut client, id) = server_with_unsent_reply();
        let mut idle = server.connect();
        assert_eq!(idle.ask("use x"), "USING x");
        server.signal(signal);
        let read = client.read_to_end();
        assert_eq!(server.end().code(), Some(0));
        idle.expect_closed();
        assert!(!server.socket_path().exists(), "the file of the socket is removed");
        let whole = format!("FOUND {id} {LARGE}\r\n").len() + LARGE + 2;
        if read == whole { Ok(()) } else { Err(format!("{read} bytes of {whole}")) }
    };
    // The client has a second to read.
    let pace = Pace::watch().unwrap();
    for signal in [Signal::TERM, Signal::INT] {
        pace.judge(|| flushes(signal)).unwrap();
    }
}

#[test]
fn a_second_signal_ends_at_once() {
    let ends_at_once = || {
        let (mut server, _client, _) = server_with_unsent_reply();
        server.signal(Signal::TERM);
        // When the server accepts no more connections, it is handling the first signal. It ends a second later.
        let has_refused = || Client::to_unix(&server.socket_path()).is_err();
        wait_until("the server stops accepting connections", has_refused);
        server.signal(Signal::TERM);
        match server.end().code() {
            Some(143) => Ok(()),
            code => Err(code),
        }
    };
    Pace::watch().unwrap().judge(ends_at_once).unwrap();
}

#[test]
fn sigterm_ends_a_server_that_is_process_1() {
    if !has_tool("unshare") || !is_root() {
        return;
    }
    let mut server = Server::start_in(&["unshare", "--pid", "--fork", "--mount-proc"], &[]);
    assert_eq!(server.connect().stat("pid"), 1);
    let [child] = server.usage().children()[..] else { panic!("expected one child") };
    kill_process(Pid::from_raw(child.0.cast_signed()).unwrap(), Signal::TERM).unwrap();
    assert_eq!(server.end().code(), Some(0));
}

#[test]
fn becoming_a_user_drops_supplementary_groups() {
    if !has_tool("setpriv") || !is_root() {
        return;
    }
    let server = Server::start_in(&["setpriv", "--groups=0,4,27"], &["-u", "nobody"]);
    let ids = |key| server.usage().status(key).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let (users, groups) = (ids("Uid"), ids("Gid"));
    assert!(users.iter().chain(&groups).all(|id| id != "0"), "{users:?} {groups:?}");
    assert_eq!(ids("Groups"), [groups[0].as_str()]);
}

#[test]
fn a_live_unix_socket_is_not_unlinked() {
    let mut first = Server::start(&[]);
    let mut second = launch(&first.socket_path(), tempfile::tempdir().unwrap());
    let status = second.wait();
    assert_eq!((status.code(), status.signal()), (Some(111), None));
    let log = second.log();
    assert!(log.contains(&*first.socket_path().to_string_lossy()), "{log}");
    assert_eq!(first.connect().ask("use x"), "USING x");
    first.signal(Signal::TERM);
    assert_eq!(first.end().code(), Some(0));
}

#[test]
fn the_socket_that_a_killed_server_left_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    drop(UnixListener::bind(directory.path().join("socket")).unwrap());
    let server = launch(Path::new("socket"), directory);
    server.connect().exchange(b"use x\r\n", b"USING x\r\n").unwrap();
}

#[test]
fn unix_sockets_get_the_mode_and_the_owner_asked_for() {
    let server = Server::start(&["--socket-mode", "0620"]);
    let mode = fs::metadata(server.socket_path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o620);
    if is_root() {
        let server = Server::start(&["--socket-owner", "nobody"]);
        let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(server.socket_path()).unwrap());
        assert_ne!(owner, 0);
    }
}

#[test]
fn the_log_names_the_other_end_of_a_connection() {
    let server = Server::start_tcp(&["-V"]);
    let mut client = server.connect();
    client.ask("use x");
    let address = format!("127.0.0.1:{}", client.0.local_port().unwrap());
    assert!(server.log().contains(&address), "{}", server.log());
    let server = Server::start(&["-V"]);
    server.connect().ask("use x");
    let own = format!("unix:pid={}", std::process::id());
    assert!(server.log().contains(&own), "{}", server.log());
}

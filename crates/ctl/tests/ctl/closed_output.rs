//! A standard output whose reader has closed it, as `head` does: the program is silent about that, but a command that
//! fails has its message and its exit code.

use super::support::{Ended, command, counts, everywhere, put, put_buried, run_command};

/// Runs the program with a standard output that nobody reads any more.
fn ctl_unread(address: &str, arguments: &[&str]) -> Ended {
    ctl_unread_with(address, arguments, b"")
}

fn ctl_unread_with(address: &str, arguments: &[&str], input: &[u8]) -> Ended {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = command(address, arguments);
    command.stdout(writer);
    run_command(command, input)
}

#[test]
fn a_closed_output_is_no_failure() {
    for server in everywhere() {
        let (address, mut client) = (server.address(), server.client());
        let id = put(&mut client, "t", b"x", 0).to_string();
        for arguments in [&["stats"][..], &["tubes"], &["jobs", "t"], &["delete", &id]] {
            let ended = ctl_unread(&address, arguments).ends_with(0);
            assert_eq!(ended.err, "", "{arguments:?}");
        }
        assert!(client.stats_job(id.parse().unwrap()).unwrap_err().is_not_found());
    }
}

#[test]
fn a_closed_output_stops_no_put() {
    for server in everywhere() {
        let lines = "x\n".repeat(1000);
        ctl_unread_with(&server.address(), &["put", "t", "--lines"], lines.as_bytes()).ends_with(0);
        assert_eq!(counts(&server.address(), "t"), [1000, 0, 0, 0]);
    }
}

#[test]
fn a_closed_output_hides_no_failure() {
    for server in everywhere() {
        let (address, mut client) = (server.address(), server.client());
        let fails = |arguments: &[&str], code: i32, message: &str| {
            let ended = ctl_unread(&address, arguments).ends_with(code);
            assert!(ended.err.contains(message), "{arguments:?}: {ended:?}");
        };
        let id = put(&mut client, "t", b"x", 0).to_string();
        fails(&["delete", &id, "999999"], 1, "there is no job 999999");
        fails(&["job", "999999"], 1, "there is no job 999999");
        let nowhere = "unix:/nonexistent/socket";
        fails(&["stats", "--server", nowhere, "--server", &address], 3, nowhere);
        fails(&["tubes", "--server", nowhere, "--server", &address], 3, nowhere);
        let buried = put_buried(&mut client, "t", b"y").to_string();
        fails(&["wait", &buried, "--for", "1"], 1, "buried");
        if server.has_extensions() {
            // It changes the other servers, too.
            fails(&["undrain", "--server", &address, "--server", nowhere], 3, nowhere);
            fails(&["kill-client", "999999", "--yes"], 1, "not connected");
        } else {
            put(&mut client, "t", b"z", 0);
            client.watch(&"t".parse().unwrap()).unwrap();
            client.reserve_with_timeout(0).unwrap();
            fails(&["flush", "t", "--yes"], 4, "1 job reserved by clients");
        }
    }
}

//! The server's environment: listeners of a service manager, its watchdog, unix sockets, rules for tubes, a program
//! that was built before this one.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixStream;
use std::process::Command;

use beanstalkd::server::hand_over::FORMAT;
use beanstalkd_testkit::panicking::{Client, wait_until};
use beanstalkd_testkit::{built_server, copy_built_server};
use rustix::process::Signal;

use super::LOGS;
use super::service::{Service, in_time};

#[test]
fn the_listeners_of_a_service_manager_go_on_and_it_may_connect_meanwhile() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // The shell passes the listener on as descriptor 3, as systemd does. The shell gets it as its input, because every
    // process that another test starts meanwhile would inherit a descriptor that is not closed on exec.
    let script = "exec 3<&0 </dev/null; export LISTEN_FDS=1 LISTEN_PID=$$; exec \"$@\"";
    let input = std::os::fd::OwnedFd::from(listener).into();
    let mut service = Service::started_with(&["--listen", "unix:{dir}/own"], |_| (), script, input);
    let own = service.directory().join("own");
    let mut client = Client::to_port(port).unwrap();
    assert_eq!(client.put(0, 600, b"x"), 1);
    for round in 0..3 {
        service.hand_over();
        assert_eq!(client.put(0, 600, b"x"), round + 2, "its connection goes on");
        assert!(Client::to_port(port).unwrap().ask("use a").starts_with("USING"), "the listener goes on");
        assert_eq!(service.log().matches("continued where").count() as u64, round + 1);
    }
    let inode = fs::metadata(&own).map(|file| file.ino());
    assert!(inode.is_ok() || !own.exists());
    assert!(service.stop().success());
    assert!(Client::to_port(port).is_err(), "the server was the last one that had it");
}

#[test]
fn the_watchdog_is_fed_by_the_next_program() {
    let service = Service::started(&[], |_| (), "export WATCHDOG_USEC=400000 WATCHDOG_PID=$$; exec \"$@\"");
    for _ in 0..2 {
        service.hand_over();
        for _ in 0..3 {
            service.message_with("WATCHDOG=1");
        }
    }
}

/// The queue of the service manager is full after some messages: the server goes on without it, and reports that it is
/// ready once it can.
#[test]
fn a_service_manager_that_hangs_stops_nobody() {
    in_time(|| {
        let service = Service::start(&[]);
        let mut client = service.connect();
        for round in 0..20 {
            service.replace();
            service.signal(Signal::HUP);
            wait_until("the next program serves", || {
                service.log().matches("continued where").count() > round
            });
            assert_eq!(client.ask("use a"), "USING a");
        }
        while service.next_message().is_some() {}
        service.hand_over();
    });
}

#[test]
fn the_file_of_a_unix_socket_stays_and_goes_with_the_last_program() {
    let mut service = Service::start(&["--listen", "unix:{dir}/second"]);
    let paths = ["socket", "second"].map(|name| service.directory().join(name));
    let inodes = || paths.each_ref().map(|path| fs::metadata(path).map(|file| file.ino()).unwrap_or(0));
    let before = inodes();
    service.hand_over();
    service.hand_over();
    assert_eq!(inodes(), before, "nobody has bound them again");
    assert_eq!(Client::to_unix(&paths[1]).unwrap().ask("use a"), "USING a");
    assert!(service.stop().success());
    assert_eq!(inodes(), [0; 2], "they are gone");
}

#[test]
fn tokens_of_a_rate_that_were_taken_stay_taken_and_a_full_tube_stays_full() {
    let rules =
        "[[tube]]\nname = \"slow\"\nrate = \"2/h\"\nburst = 2\n[[tube]]\nname = \"small\"\nmax-jobs = 2\n";
    for log in LOGS {
        let service = Service::prepared(&[log, &["--tubes", "{dir}/rules"]].concat(), |directory| {
            fs::write(directory.join("rules"), rules).unwrap();
        });
        let mut client = service.connect();
        client.ask("use slow");
        for _ in 0..4 {
            client.put(0, 600, b"x");
        }
        client.ask("use small");
        for _ in 0..2 {
            client.put(0, 600, b"x");
        }
        client.ask("watch slow");
        client.reserve("reserve");
        service.hand_over();
        client.reserve("reserve");
        service.hand_over();
        assert_eq!(client.ask("reserve-with-timeout 0"), "TIMED_OUT", "both tokens are gone, with {log:?}");
        assert_eq!(client.data("stats-tube slow")["throttled"], "1");
        client.send("put 0 0 60 1\r\nx\r\n");
        assert_eq!(client.line(), "TUBE_FULL");
        assert_eq!(client.data("stats-tube small")["rejected-full"], "1");
        service.hand_over();
        assert_eq!(client.data("stats-tube small")["rejected-full"], "1");
        // The next program reads the current file.
        fs::write(service.directory().join("rules"), rules.replace("= 2\n[[", "= 3\n[[")).unwrap();
        fs::write(service.directory().join("rules"), rules.replace("max-jobs = 2", "max-jobs = 3")).unwrap();
        service.hand_over();
        client.put(0, 600, b"now there is room");
    }
}

#[test]
fn an_order_with_a_rate_stops_even_if_it_begins_to_wait_after_the_signal() {
    in_time(|| {
        const ROUNDS: usize = 6;
        let arguments = ["--tubes", "{dir}/rules", "--admin", "unix:{dir}/admin"];
        let service = Service::prepared(&arguments, |directory| {
            fs::write(
                directory.join("rules"),
                "[[tube]]\nname = \"mail\"\nmax-attempts = 1\ndead-tube = \"dead\"\n",
            )
            .unwrap();
        });
        let mut client = service.connect();
        client.ask("use mail");
        let die = |client: &mut Client| {
            let id = client.put(0, 600, b"x");
            client.reserve(&format!("reserve-job {id}"));
            assert_eq!(client.ask(&format!("release {id} 0 0")), "RELEASED");
            id.to_string()
        };
        let dead: Vec<String> = (0..ROUNDS * 3).map(|_| die(&mut client)).collect();
        let body = format!(r#"{{"action":"redrive","rate":1,"jobs":[{}]}}"#, dead.join(","));
        for round in 0..ROUNDS {
            service.replace();
            let mut admin = UnixStream::connect(service.directory().join("admin")).unwrap();
            let length = body.len();
            write!(
                admin,
                "POST /api/v1/jobs/actions HTTP/1.1\r\nHost: localhost\r\nX-Beanstalkd-Admin: 1\r\n\
                 Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}",
            )
            .unwrap();
            service.signal(Signal::HUP);
            wait_until("the next program serves", || {
                service.log().matches("continued where").count() > round
            });
        }
    });
}

#[test]
fn failures_that_were_counted_count_on_and_a_dead_job_stays_dead() {
    let rules = "[[tube]]\nname = \"mail\"\nmax-attempts = 3\ndead-tube = \"dead\"\n";
    for log in LOGS {
        let service = Service::prepared(&[log, &["--tubes", "{dir}/rules"]].concat(), |directory| {
            fs::write(directory.join("rules"), rules).unwrap();
        });
        let mut client = service.connect();
        client.ask("use mail");
        client.ask("watch mail");
        client.ask("watch dead");
        let id = client.put(0, 600, b"x");
        let release = format!("release {id} 0 0");
        let stats = format!("stats-job {id}");
        for failures in 1..=3 {
            assert_eq!(client.reserve("reserve"), id);
            service.hand_over();
            assert_eq!(client.ask(&release), "RELEASED");
            service.hand_over();
            let job = client.data(&stats);
            assert_eq!(job["failures"], failures.to_string(), "with {log:?}");
            let tube = if failures == 3 { "dead" } else { "mail" };
            assert_eq!(job["tube"], tube);
        }
        client.reserve("reserve");
        assert_eq!(client.ask(&release), "RELEASED");
        let job = client.data(&stats);
        let dead = [&*job["tube"], &*job["dead-from"]];
        assert_eq!((dead, &*job["failures"]), (["dead", "mail"], "3"));
        assert_eq!(client.data("stats-tube mail")["dead-jobs"], "1");
    }
}

#[test]
fn a_server_that_was_started_by_a_link_is_handed_over_to_its_present_program() {
    let service = Service::started(&[], |_| (), "ln -s program link\nshift\nexec ./link \"$@\"");
    for version in ["second", "third"] {
        copy_built_server(&service.directory().join(version)).unwrap();
        symlink(version, service.directory().join("next")).unwrap();
        fs::rename(service.directory().join("next"), service.directory().join("link")).unwrap();
        service.signal(Signal::HUP);
        service.await_hand_over();
        let running = fs::read_link(format!("/proc/{}/exe", service.pid())).unwrap();
        assert_eq!(running.file_name().unwrap(), version);
    }
}

#[test]
fn a_command_line_that_ends_its_options_is_handed_over() {
    let service = Service::start(&["--"]);
    service.hand_over();
    assert!(service.log().contains("continued where"), "{}", service.log());
}

/// The program itself, not only its parts, reads a description that an older program has written.
#[test]
fn the_program_reads_the_recorded_descriptions() {
    for format in beanstalkd::server::hand_over::OLDEST_FORMAT..=FORMAT {
        let path = format!("{}/tests/hand_over/formats/{format}", env!("CARGO_MANIFEST_DIR"));
        let script = format!("exec 9<{path}; exec \"$0\" --check-handover 9");
        let output = Command::new("sh").args(["-c", &script]).arg(built_server()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(
            (said.as_str(), output.status.success()),
            (&*format!("ok {format}\n"), true),
            "{output:?}"
        );
    }
}

/// The recorded descriptions are those of servers that have no lock.
#[test]
fn a_program_with_a_binlog_refuses_a_description_without_the_lock_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = format!("{}/tests/hand_over/formats/{FORMAT}", env!("CARGO_MANIFEST_DIR"));
    let script = format!("exec 9<{path}; exec \"$0\" --check-handover 9 -b \"$1\"");
    let output =
        Command::new("sh").args(["-c", &script]).arg(built_server()).arg(directory.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("the lock of the binlog is missing"), "{output:?}");
}

/// `BEFORE=path` names the program of an older build that has hand-overs.
#[test]
fn another_build_hands_over_to_this_one_and_this_one_to_the_other_or_says_why_not() {
    let Some(before) = std::env::var_os("BEFORE") else { return };
    for log in LOGS {
        let service = Service::prepared(log, |directory| {
            fs::copy(&before, directory.join("program")).unwrap();
        });
        let mut client = service.connect();
        assert_eq!(client.put(0, 600, b"a job"), 1);
        service.replace();
        service.signal(Signal::HUP);
        let message = service.message_with("=");
        println!("to this build, with {log:?}: {message}");
        assert_eq!(client.put(0, 600, b"another"), 2);
        service.replace_with(|path| {
            fs::copy(&before, path).unwrap();
        });
        service.signal(Signal::HUP);
        println!("and back: {}", service.message_with("="));
        assert_eq!(client.put(0, 600, b"another"), 3);
        println!("{}", service.log());
    }
}

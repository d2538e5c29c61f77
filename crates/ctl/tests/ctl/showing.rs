//! The commands that show jobs and tubes, and those of producers and workers: stats, tubes, jobs, job, peek, put,
//! reserve, watch.

use super::support::{client, command, counts, ctl, ctl_with, everywhere, interrupt, put, put_buried};
use beanstalk_client::Client;
use beanstalkd_testkit::fake::{Fake, FakeOptions};
use beanstalkd_testkit::installed;
use beanstalkd_testkit::pace::Pace;
use beanstalkd_testkit::panicking::wait_until;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

#[test]
fn tubes_are_sorted_filtered_and_counted() {
    for server in everywhere() {
        let mut client = server.client();
        put(&mut client, "mail-in", b"a", 0);
        put(&mut client, "mail-out", b"b", 0);
        put(&mut client, "mail-out", b"c", 60);
        let tubes =
            ctl(&server.address(), &["tubes", "mail-*", "--json", "--sort", "jobs"]).ends_with(0).json();
        let names: Vec<_> = tubes.iter().map(|tube| tube["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["mail-out", "mail-in"]);
        assert_eq!(tubes[0]["current-jobs-delayed"], 1);
        let table = ctl(&server.address(), &["tubes", "*-in"]).ends_with(0).out;
        assert!(table.starts_with("TUBE") && table.lines().count() == 2, "{table}");
        ctl(&server.address(), &["tubes", "nothing"]).ends_with(1);
    }
}

#[test]
fn jobs_are_listed_by_state_age_and_body() {
    for server in everywhere() {
        let mut client = server.client();
        let ready = put(&mut client, "t", b"alpha", 0);
        let delayed = put(&mut client, "t", b"beta", 60);
        let buried = put_buried(&mut client, "t", b"gamma");
        put(&mut client, "other", b"alpha", 0);
        let ids = |arguments: &[&str]| {
            let all = [&["jobs", "t", "--json"], arguments].concat();
            let listed = ctl(&server.address(), &all);
            listed.json().iter().map(|job| job["id"].as_u64().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(ids(&[]), [ready, delayed, buried]);
        assert_eq!(ids(&["--state", "buried,delayed"]), [delayed, buried]);
        assert_eq!(ids(&["--body-matches", "^(al|ga)"]), [ready, buried]);
        assert_eq!(ids(&["--limit", "1"]), [ready]);
        ctl(&server.address(), &["jobs", "t", "--limit", "0"]).ends_with(2);
        assert_eq!(ids(&["--older-than", "1h"]), [0; 0]);
        ctl(&server.address(), &["jobs", "t", "--older-than", "1h"]).ends_with(1);
        let job = &ctl(&server.address(), &["job", &buried.to_string(), "--json"]).ends_with(0).json()[0];
        assert_eq!((job["state"].as_str(), job["priority"].as_u64()), (Some("buried"), Some(7)));
        ctl(&server.address(), &["job", "999999"]).ends_with(1);
    }
}

#[test]
fn more_jobs_than_a_page_has_are_listed_once_each_and_in_order() {
    for server in everywhere() {
        let lines: String = (0..1203).map(|number| format!("{number}\n")).collect();
        let ids = ctl_with(&server.address(), &["put", "t", "--lines"], lines.as_bytes()).ends_with(0);
        let listed = ctl(&server.address(), &["jobs", "t", "--json"]).ends_with(0).json();
        let listed: Vec<String> = listed.iter().map(|job| job["id"].to_string()).collect();
        assert_eq!(listed, ids.out.lines().collect::<Vec<_>>());
    }
}

#[test]
fn ids_of_an_earlier_run_are_found_without_list_jobs() {
    for start in [installed::ours, installed::debians] {
        let binlog = tempfile::tempdir().unwrap();
        let arguments = ["-b", binlog.path().to_str().unwrap(), "-f0"];
        let Some(server) = start(&arguments) else { continue };
        let mut first = client(&server.address());
        let old = put(&mut first, "t", b"old", 0);
        for _ in 0..50 {
            let id = put(&mut first, "t", b"x", 0);
            first.delete(id).unwrap();
        }
        let newer = put(&mut first, "t", b"newer", 0);
        drop(server);
        let server = start(&arguments).unwrap();
        let listed = ctl(&server.address(), &["jobs", "t", "--json"]).ends_with(0).json();
        let ids: Vec<_> = listed.iter().map(|job| job["id"].as_u64().unwrap()).collect();
        assert_eq!(ids, [old, newer]);
        assert_eq!(counts(&server.address(), "beanstalkctl-probe"), [0; 4], "the probe was deleted");
    }
}

#[test]
fn bodies_are_printed_unchanged_or_formatted() {
    for server in everywhere() {
        let mut client = server.client();
        let id = put(&mut client, "t", b"{\"a\":[1]}", 0).to_string();
        let binary = put(&mut client, "t", b"\x00\xff", 60).to_string();
        assert_eq!(ctl(&server.address(), &["peek", &id]).ends_with(0).out, "{\"a\":[1]}");
        assert!(ctl(&server.address(), &["peek", &id, "--pretty"]).ends_with(0).out.contains("\n  \"a\": ["));
        let next =
            ctl(&server.address(), &["peek", "--next", "delayed", "--tube", "t", "--json"]).ends_with(0);
        assert_eq!(next.json()[0]["id"].to_string(), binary);
        assert_eq!(next.json()[0]["body_base64"], "AP8=");
        ctl(&server.address(), &["peek", "--next", "buried", "--tube", "t"]).ends_with(1);
        ctl(&server.address(), &["peek", "999999"]).ends_with(1);
    }
}

#[test]
fn put_takes_bodies_from_an_argument_a_file_or_lines() {
    for server in everywhere() {
        let put = ["put", "t", "hello", "-p", "3", "--delay", "1m", "--ttr", "2m"];
        let id = ctl(&server.address(), &put).ends_with(0).out;
        let job = &ctl(&server.address(), &["job", id.trim(), "--json"]).ends_with(0).json()[0];
        assert_eq!((&job["priority"], &job["delay"], &job["ttr"]), (&3.into(), &60.into(), &120.into()));
        let id = ctl_with(&server.address(), &["put", "t", "--file", "-"], b"two\nlines").ends_with(0).out;
        assert_eq!(ctl(&server.address(), &["peek", id.trim()]).ends_with(0).out, "two\nlines");
        let ids = ctl_with(&server.address(), &["put", "t", "--lines"], b"a\r\nb").ends_with(0).out;
        let last = ids.lines().nth(1).unwrap();
        assert_eq!(ctl(&server.address(), &["peek", last]).ends_with(0).out, "b");
        ctl(&server.address(), &["put", "t", "x", "--lines"]).ends_with(2);
        ctl(&server.address(), &["put", "t", "--file", "/nonexistent"]).ends_with(5);
    }
}

#[test]
fn a_line_is_put_when_it_arrives_and_a_signal_ends_the_wait_for_the_next() {
    let fake = Fake::start();
    let mut child = command(&fake.address(), &["put", "t", "--lines"]).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"first\n").unwrap();
    wait_until("the first job", || counts(&fake.address(), "t") == [1, 0, 0, 0]);
    interrupt(&child);
    wait_until("the end", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    drop(input);
}

#[test]
fn a_tag_is_sent_only_to_a_server_that_supports_it() {
    for server in everywhere() {
        let first = ctl(&server.address(), &["put", "t", "x", "--tag", "idp:once", "--json"]);
        if !server.has_extensions() {
            assert_eq!((first.code, counts(&server.address(), "t")), (4, [0; 4]));
            continue;
        }
        assert_eq!(first.ends_with(0).json()[0]["existing"], serde_json::Value::Null);
        let again = ctl(&server.address(), &["put", "t", "x", "--tag", "idp:once", "--json"]).ends_with(0);
        assert_eq!(again.json()[0]["existing"], "ready");
        let listed = ctl(&server.address(), &["jobs", "t", "--json"]).ends_with(0);
        assert_eq!(listed.json()[0]["tags"][0], "idp:once");
        put(&mut server.client(), "t", b"x", 0);
        let ids = |tag: &str| {
            let listed = ctl(&server.address(), &["jobs", "t", "--tag", tag, "--json"]);
            listed.json().iter().map(|job| job["id"].as_u64().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!((ids("idp"), ids("idp:once"), ids("idp:other")), (vec![1], vec![1], vec![]));
        ctl(&server.address(), &["delete", "--tube", "t", "--tag", "idp:once", "--yes"]).ends_with(0);
        assert_eq!(counts(&server.address(), "t"), [1, 0, 0, 0]);
        ctl(&server.address(), &["jobs", "t", "--tag", "once"]).ends_with(2);
        let elsewhere = ctl(&server.address(), &["put", "t", "x", "--tag", "tub:other"]).ends_with(2);
        assert!(elsewhere.err.contains("tub:other names another tube"), "{elsewhere:?}");
        assert_eq!(counts(&server.address(), "other"), [0; 4]);
    }
}

#[test]
fn a_reserved_job_is_released_buried_or_deleted_as_the_flags_say() {
    for server in everywhere() {
        let address = server.address();
        put(&mut server.client(), "t", b"body", 0);
        let job = ctl(&address, &["reserve", "t", "--wait", "0s"]).ends_with(0);
        assert_eq!((job.out.as_str(), counts(&address, "t")), ("body", [1, 0, 0, 0]));
        ctl(&address, &["reserve", "t", "--then", "bury"]).ends_with(0);
        assert_eq!(counts(&address, "t"), [0, 0, 0, 1]);
        ctl(&address, &["kick", "--tube", "t", "--all", "--yes"]).ends_with(0);
        ctl(&address, &["reserve", "t", "--then", "delete"]).ends_with(0);
        assert_eq!(counts(&address, "t"), [0; 4]);
        ctl(&address, &["reserve", "t", "--wait", "0s"]).ends_with(1);
    }
}

/// Puts jobs until `watch` shows one: no event shows when watching has begun.
fn put_until_shown(client: &mut Client, read: impl FnOnce() -> String + Send + 'static) -> String {
    let reader = std::thread::spawn(read);
    wait_until("a line of watch", || {
        put(client, "t", b"x", 0);
        reader.is_finished()
    });
    reader.join().unwrap()
}

#[test]
fn watch_prints_what_happens() {
    for server in everywhere() {
        let mut child =
            command(&server.address(), &["watch", "t", "--interval", "20ms", "--json"]).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut client = server.client();
        let line = put_until_shown(&mut client, move || lines.next().unwrap().unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        let event: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(event["tube"], "t");
        assert!(event["current_ready"].as_u64() > Some(0), "{line}");
    }
}

#[test]
fn several_servers_are_shown_together() {
    let (one, other) = (Fake::start(), Fake::start());
    let both = format!("{},{}", one.address(), other.address());
    assert_eq!(ctl(&both, &["stats", "--json"]).ends_with(0).json().len(), 2);
    let tubes = ctl(&both, &["tubes", "--json"]).ends_with(0).json();
    let shown: BTreeSet<_> = tubes.iter().map(|tube| tube["server"].as_str().unwrap()).collect();
    assert_eq!(shown, BTreeSet::from([&*one.address(), &*other.address()]));
    ctl(&both, &["jobs", "t"]).ends_with(2);
}

#[test]
fn if_one_of_several_servers_is_down_the_others_are_shown() {
    let (one, other) = (Fake::start(), Fake::start());
    put(&mut client(&other.address()), "t", b"x", 0);
    let several = format!("{},unix:/nonexistent/socket,{}", one.address(), other.address());
    for (arguments, lines) in [
        (&["stats", "--json"][..], 2),
        (&["tubes", "--json"], 3),
        (&["stats", "t", "--json"], 1),
        (&["drain"], 2),
    ] {
        let shown = ctl(&several, arguments).ends_with(3);
        assert_eq!(shown.out.lines().count(), lines, "{shown:?}");
        assert_eq!(shown.err.lines().count(), 1, "{shown:?}");
        assert!(shown.err.contains("unix:/nonexistent/socket"), "{shown:?}");
    }
    // None is up, or the tube is nowhere.
    let down = ctl("unix:/nonexistent/a,unix:/nonexistent/b", &["tubes"]).ends_with(3);
    assert_eq!((down.out.as_str(), down.err.lines().count()), ("", 2), "{down:?}");
    let missing = ctl(&several, &["stats", "nowhere"]).ends_with(3);
    assert_eq!(missing.err.lines().count(), 2, "{missing:?}");
    // One reply breaks off in the middle.
    let broken = Fake::start_with(FakeOptions { close_before: 2, ..FakeOptions::default() });
    let shown = ctl(&format!("{},{}", broken.address(), other.address()), &["tubes", "--json"]).ends_with(3);
    assert_eq!((shown.out.lines().count(), shown.err.lines().count()), (2, 1), "{shown:?}");
    assert!(shown.err.contains(&broken.address()), "{shown:?}");
}

#[test]
fn watch_goes_on_when_one_of_several_servers_is_gone_and_comes_back() {
    let up = Fake::start();
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("link");
    let late = format!("unix:{}", socket.display());
    let several = format!("{},{late}", up.address());
    let mut child = command(&several, &["watch", "--interval", "20ms"]).spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(errors.next().unwrap().unwrap().contains(&late));
    let lines = Arc::new(Mutex::new(BufReader::new(child.stdout.take().unwrap()).lines()));
    let reader = Arc::clone(&lines);
    let read = move || reader.lock().unwrap().next().unwrap().unwrap();
    let line = put_until_shown(&mut client(&up.address()), read);
    assert!(line.contains(&format!("{} t: ", up.address())));
    ctl(&up.address(), &["delete", "--tube", "t", "--all", "--yes"]).ends_with(0);
    let gone =
        lines.lock().unwrap().find(|line| line.as_ref().unwrap().ends_with(": gone")).unwrap().unwrap();
    assert!(gone.ends_with(&format!("{} t: gone", up.address())), "{gone}");
    let fake = Fake::start();
    std::os::unix::fs::symlink(fake.address().strip_prefix("unix:").unwrap(), &socket).unwrap();
    assert!(errors.next().unwrap().unwrap().contains("is back"));
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn text_of_a_server_does_not_reach_the_terminal_raw() {
    // A title of the window in ASCII and with C1 controls, a carriage return, and a reversal of the direction.
    let hostile = "\u{1b}]0;x\u{7}\r\u{9b}31m\u{7f}\u{202e}";
    let options = FakeOptions { hostile, ..FakeOptions::default() };
    let server = Fake::start_with(options.clone());
    let address = server.address();
    let id = put(&mut client(&address), "t", b"{\"a\":\"\xc2\x9b\"}", 0).to_string();
    let unsafe_in = |text: &str| {
        text.chars().any(|it| it != '\n' && (it.is_control() || it == '\u{202e}' || it == '\u{9b}'))
    };
    for arguments in [
        &["stats"][..],
        &["stats", "t"],
        &["tubes"],
        &["jobs", "t"],
        &["job", &id],
        &["peek", &id, "--pretty"],
        &["export"],
        &["drain"],
        &["put", "t", "x"],
        &["kick", &id],
        &["bury", "--all", "--dry-run"],
        &["flush", "t", "--dry-run"],
        &["work", "t", "--until-empty", "--", "false"],
        &["reserve", "t", "--wait", "0s"],
        &["import", "/nonexistent"],
    ] {
        for format in [&[][..], &["--json"]] {
            let shown = ctl(&address, &[arguments, format].concat());
            let body = arguments[0] == "reserve" && format.is_empty();
            assert!(!unsafe_in(&shown.err) && (body || !unsafe_in(&shown.out)), "{arguments:?}: {shown:?}");
        }
    }
    // As JSON it is exact.
    let stats = ctl(&address, &["stats", "--json"]).ends_with(0).json();
    assert_eq!(stats[0]["hostname"], format!("{hostile}host"));
    // Answers that are not replies of the protocol.
    for line in ["\u{1b}[2J\r\n", "USING \u{1b}[2J\r\n", "OK 9\r\n---\n\u{1b}: x\r\n", "\u{9b}31m\r\n"] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || listener.accept().unwrap().0.write_all(line.as_bytes()).unwrap());
        let shown = ctl(&address, &["tubes"]);
        assert!(shown.code != 0 && !unsafe_in(&shown.err), "{shown:?}");
    }
}

#[test]
fn exit_codes_tell_the_cause() {
    ctl("unix:/nonexistent/socket", &["stats"]).ends_with(3);
    ctl("127.0.0.1:1", &["tubes"]).ends_with(3);
    ctl("host:port:x:", &["tubes"]).ends_with(2);
    let fake = Fake::start();
    ctl(&fake.address(), &["jobs"]).ends_with(2);
    ctl(&fake.address(), &["stats", "no-such-tube"]).ends_with(1);
    ctl(&fake.address(), &["top"]).ends_with(2);
}

#[test]
fn with_list_jobs_pages_are_requested_and_single_jobs_are_not() {
    let fake = Fake::start();
    let lines: String = (0..1203).map(|number| format!("{number}\n")).collect();
    ctl_with(&fake.address(), &["put", "t", "--lines"], lines.as_bytes()).ends_with(0);
    fake.take_log();
    ctl(&fake.address(), &["jobs", "t", "--state", "ready"]).ends_with(0);
    let log = fake.take_log();
    let pages: Vec<_> = log.iter().filter(|line| line.starts_with("list-jobs")).collect();
    assert_eq!(
        pages,
        [
            "list-jobs t ready 500",
            "list-jobs t ready 500 ready-1024-500",
            "list-jobs t ready 500 ready-1024-1000"
        ]
    );
    assert!(!log.iter().any(|line| line.starts_with("stats-job")), "{log:?}");
}

/// The completions of bash for the last word of this line.
fn completed(line: &str) -> Vec<String> {
    let program = Path::new(env!("CARGO_BIN_EXE_beanstalkctl"));
    let generated = tempfile::tempdir().unwrap();
    assert!(Command::new(program).arg("__generate").arg(generated.path()).status().unwrap().success());
    let script = generated.path().join("beanstalkctl.bash");
    let complete = "source \"$0\"; COMP_LINE=$1; COMP_POINT=${#1}; read -ra COMP_WORDS <<<\"$1\"; [[ $1 == *' ' ]] && \
                    COMP_WORDS+=(''); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _beanstalkctl_and_tubes beanstalkctl \
                    \"${COMP_WORDS[-1]}\" \"${COMP_WORDS[-2]}\"; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash").args(["-c", complete]).arg(script).arg(line).env("PATH", path).output();
    let output = output.unwrap();
    assert!(output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn tubes_and_states_are_completed() {
    let fake = Fake::start();
    let mut client = client(&fake.address());
    for tube in ["mail-in", "mail-out", "post", "mail$(touch;x)"] {
        put(&mut client, tube, b"x", 0);
    }
    let server = format!("beanstalkctl --server {}", fake.address());
    let names = ["mail-in", "mail-out", "mail\\$\\(touch\\;x\\)"];
    let sorted = |line: &str| {
        let mut found = completed(line);
        found.sort_by_key(|name| (name.contains('$'), name.clone()));
        found
    };
    for line in ["flush ma", "delete --tube ma", "jobs post ma", "export --yes ma", "work ma"] {
        assert_eq!(sorted(&format!("{server} {line}")), names, "{line}");
    }
    assert_eq!(completed(&format!("{server} flush ")).len(), 5);
    let states = completed(&format!("{server} jobs post --state "));
    assert_eq!(states, ["ready", "reserved", "delayed", "buried"]);
    assert!(completed(&format!("{server} flush --bu")).contains(&"--buried".to_owned()));
    let server = format!("beanstalkctl --server={}", fake.address());
    assert_eq!(sorted(&format!("{server} flush ma")), names);
    // Without a server there is nothing to offer, and no error.
    assert_eq!(completed("beanstalkctl --server unix:/nonexistent/x flush ma"), [""]);
}

#[test]
fn a_signal_that_the_program_was_started_to_ignore_does_not_stop_it() {
    let fake = Fake::start();
    let send = |signal: &str, id: u32| {
        assert!(Command::new("kill").args([signal, &id.to_string()]).status().unwrap().success());
    };
    for (ignored, code) in [("HUP INT", 0), ("QUIT", 130)] {
        let mut child = Command::new("env");
        let tube = ignored.replace(' ', "-");
        let run = format!("trap '' {ignored}; exec \"$@\"");
        child.args(["--default-signal=HUP,INT", "sh", "-c", &run, "sh", env!("CARGO_BIN_EXE_beanstalkctl")]);
        child.args(["put", &tube, "--lines"]);
        child.env("BEANSTALKD_SERVER", fake.address()).stdin(std::process::Stdio::piped());
        let mut child = child.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"first\n").unwrap();
        wait_until("the first job", || counts(&fake.address(), &tube)[0] == 1);
        send("-HUP", child.id());
        send("-INT", child.id());
        if code == 0 {
            input.write_all(b"second\n").unwrap();
            wait_until("the second job", || counts(&fake.address(), &tube)[0] == 2);
            drop(input);
        }
        wait_until("the end", || child.try_wait().unwrap().is_some());
        assert_eq!(child.wait().unwrap().code(), Some(code), "{ignored}");
    }
}

#[test]
fn an_interval_that_makes_no_sense_is_refused() {
    for interval in ["0", "9ms", "25h", "18446744073709551615"] {
        for shows in ["watch", "top"] {
            let refused = ctl("unix:/nonexistent/socket", &[shows, "--interval", interval]).ends_with(2);
            assert!(refused.err.contains("expected 10ms to 24h"), "{refused:?}");
        }
    }
}

#[test]
fn a_server_that_answers_at_once_is_not_asked_all_the_time() {
    // On the fake, no time passes.
    let fake = Fake::start();
    Pace::watch().unwrap().judge_panics(|| {
        ctl(&fake.address(), &["reserve", "t", "--wait", "2s"]).ends_with(1);
        let log = fake.take_log();
        let asked = log.iter().filter(|line| line.starts_with("reserve-with-timeout")).count();
        assert!((2..=4).contains(&asked), "{asked} times");
    });
}

#[test]
fn a_signal_ends_a_list_that_has_no_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let (page, asked) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (mut server, _) = listener.accept().unwrap();
        for line in BufReader::new(server.try_clone().unwrap()).lines().map_while(Result::ok) {
            let is_page = line.starts_with("list-clients");
            let data = if is_page {
                "---\nnext: \"c\"\nclients: []\n"
            } else {
                "---\nextensions: \"list-clients\"\n"
            };
            let _ = page.send(line);
            let _ = write!(server, "OK {}\r\n{data}\r\n", data.len());
        }
    });
    let mut child = command(&format!("unix:{}", path.display()), &["clients"]).spawn().unwrap();
    while !asked.recv().unwrap().starts_with("list-clients") {}
    interrupt(&child);
    wait_until("the end", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

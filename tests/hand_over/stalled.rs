//! Hand-overs in which the system stands still: the end of a program that was tried, and a disk that does not sync.
//! A tracer stops the thread or the process there, so this is for Linux.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use beanstalkd_testkit::copy_built_server;
use beanstalkd_testkit::http;
use beanstalkd_testkit::panicking::{wait_for_some, wait_until};
use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use rustix::process::Signal;

use super::certificates::{FLAGS, ask, connect, prepare};
use super::refused::expect_refusal;
use super::service::{Service, in_time};

/// The end of a program that has much memory, or waits for a disk, takes long. Here, the system stops it there.
#[test]
fn a_program_whose_end_takes_long_does_not_stop_the_server() {
    let service = Service::start(&[]);
    let mut client = service.connect();
    service.replace_with_script("#!/bin/sh\necho $$ >half && mv half child\nexec sleep 1000\n");
    service.signal(Signal::HUP);
    let file = service.directory().join("child");
    wait_until("the child runs", || file.exists());
    let child = fs::read_to_string(&file).unwrap().trim().to_owned();
    let traced = Pid::from_raw(child.parse().unwrap());
    ptrace::seize(traced, Options::PTRACE_O_TRACEEXIT).unwrap();
    service.message_with("refused");
    assert_eq!(client.ask("use a"), "USING a");
    assert!(fs::exists(format!("/proc/{child}")).unwrap(), "the child has not ended");
    waitpid(traced, None).unwrap();
    ptrace::detach(traced, None).unwrap();
    wait_until("the child is gone", || !fs::exists(format!("/proc/{child}")).unwrap());
}

/// A file that takes no time to make, also on a busy machine.
const FILE_BYTES: &str = "200000";

/// The thread of a server that syncs its log; it stands still until this is dropped.
struct StoppedSyncs(Pid);

impl StoppedSyncs {
    fn of(service: &Service) -> Self {
        let is_named =
            |path: &PathBuf| fs::read_to_string(path.join("comm")).is_ok_and(|name| name == "binlog\n");
        let path = wait_for_some(
            || "the thread has its name".to_owned(),
            || {
                let threads = fs::read_dir(format!("/proc/{}/task", service.pid())).unwrap();
                threads.map(|entry| entry.unwrap().path()).find(is_named)
            },
        );
        let thread = Pid::from_raw(path.file_name().unwrap().to_str().unwrap().parse().unwrap());
        ptrace::seize(thread, Options::empty()).unwrap();
        ptrace::interrupt(thread).unwrap();
        waitpid(thread, Some(WaitPidFlag::__WALL)).unwrap();
        Self(thread)
    }
}

impl Drop for StoppedSyncs {
    fn drop(&mut self) {
        // An error means that the server has ended.
        let _ = ptrace::detach(self.0, None);
    }
}

/// Requests a hand-over to a script that runs the program, and returns soon after the end of its trial.
fn try_replacement(service: &Service) {
    copy_built_server(&service.directory().join("real")).unwrap();
    service.replace_with_script(
        "#!/bin/sh\n[ ! -e tried ] || exec ./real \"$@\"\n./real \"$@\"\nstatus=$?\n>tried\nexit $status\n",
    );
    service.signal(Signal::HUP);
    let tried = service.directory().join("tried");
    wait_until("the trial ends", || tried.exists());
    thread::sleep(Duration::from_millis(200));
}

/// With `-f 0` a put is in progress until its sync has ended.
#[test]
fn a_command_without_an_end_keeps_the_old_program_and_stops_others_for_a_second() {
    in_time(|| {
        let service = Service::start(&["-b", "{dir}", "-f", "0", "--metrics", "unix:{dir}/metrics"]);
        let (mut client, mut other) = (service.connect(), service.connect());
        client.put(0, 600, b"x");
        let stopped = StoppedSyncs::of(&service);
        client.send("put 0 0 600 1\r\ny\r\n");
        // The other client gets no replies either, because a job that is not on the disk could be in them.
        let count = |command: &str| {
            let metrics = UnixStream::connect(service.directory().join("metrics")).unwrap();
            let (_, text) = http::get(metrics, "/metrics").unwrap();
            let series = format!("beanstalkd_commands_total{{command=\"{command}\"}} ");
            text.lines().find_map(|line| line.strip_prefix(&series)).unwrap().to_owned()
        };
        wait_until("the put is executed", || count("put") == "2");
        service.replace();
        let start = Instant::now();
        service.signal(Signal::HUP);
        let (mut before, mut since, mut longest) = (String::new(), start, Duration::ZERO);
        wait_until("the hand-over is refused", || {
            let uses = count("use");
            if uses != before {
                (before, since) = (uses, Instant::now());
                other.send("use a\r\n");
            }
            longest = longest.max(since.elapsed());
            let message = service.next_message();
            message.is_some_and(|message| message.contains("for 5 s, a command was in progress"))
        });
        assert!(start.elapsed() >= Duration::from_secs(5), "{:?}", start.elapsed());
        assert!(longest > Duration::from_millis(800), "no command is executed after 4 s: {longest:?}");
        drop(stopped);
        assert!(client.line().starts_with("INSERTED "));
        assert_eq!(other.line(), "USING a");
        service.hand_over();
    });
}

#[test]
fn a_disk_that_hangs_keeps_the_old_program_and_its_connections() {
    in_time(|| {
        for more in [&["-f", "50"], &["-f", "3600000"]] {
            let flags = [&["-b", "{dir}"], &more[..], &FLAGS].concat();
            let service = Service::prepared(&flags, prepare);
            let mut encrypted = connect(&service).unwrap();
            let stopped = StoppedSyncs::of(&service);
            expect_refusal(&service, "the disk of the binlog did not answer in 5 s", Service::replace);
            ask(&mut encrypted, "use some\r\n", "USING some\r\n");
            drop(stopped);
            service.hand_over();
        }
    });
}

#[test]
fn a_slow_disk_delays_a_hand_over_and_no_client() {
    in_time(|| {
        let service = Service::start(&["-b", "{dir}", "-s", FILE_BYTES]);
        let mut client = service.connect();
        let stopped = StoppedSyncs::of(&service);
        client.put(0, 600, b"x");
        service.replace();
        service.signal(Signal::HUP);
        // Longer than clients wait when no new command is executed, and half as long as the disk may take.
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(2500) {
            client.put(0, 600, b"x");
            thread::sleep(Duration::from_millis(10));
        }
        assert!(!service.log().contains("handing over 1"), "{}", service.log());
        drop(stopped);
        service.await_hand_over();
        assert_eq!(service.log().matches("cannot hand over").count(), 0, "{}", service.log());
        assert_eq!(client.ask("peek 1").split(' ').next(), Some("FOUND"));
    });
}

/// A large file takes seconds to make, or minutes on a slow disk.
#[test]
fn a_hand_over_does_not_wait_for_the_next_file() {
    in_time(|| {
        let service = Service::start(&["-b", "{dir}", "-s", "268435456"]);
        let path = service.directory().join("binlog.2.new");
        wait_until("the file is being made", || path.exists());
        let stopped = StoppedSyncs::of(&service);
        // While it is open, no other file gets its number.
        let unfinished = File::open(&path).unwrap();
        try_replacement(&service);
        drop(stopped);
        service.await_hand_over();
        assert_eq!(service.log().matches("cannot hand over").count(), 0, "{}", service.log());
        let made = ["binlog.2.new", "binlog.2"].map(|name| service.directory().join(name));
        let made = wait_for_some(
            || "the new program makes the file".to_owned(),
            || made.iter().find_map(|path| fs::metadata(path).ok()),
        );
        assert_ne!(made.ino(), unfinished.metadata().unwrap().ino(), "the old program has not made it");
    });
}

/// Nothing shows that a disk hangs until it has something to do: here, in the second in which a connection with TLS is
/// about to end.
#[test]
fn a_disk_that_hangs_when_its_next_work_comes_keeps_the_old_program() {
    in_time(|| {
        let log = ["-b", "{dir}", "-s", FILE_BYTES];
        let service = Service::prepared(&[&log, &FLAGS[..]].concat(), prepare);
        let (mut client, mut encrypted) = (service.connect(), connect(&service).unwrap());
        // It reads none of the replies, which do not fit into the buffers.
        client.put(0, 600, &[b'x'; 60_000]);
        encrypted.write_all("peek 1\r\n".repeat(100).as_bytes()).unwrap();
        // The log marks its end, and is idle.
        thread::sleep(Duration::from_secs(2));
        let stopped = StoppedSyncs::of(&service);
        try_replacement(&service);
        client.put(0, 600, b"x");
        service.await_refusal("the disk of the binlog did not answer in 2 s");
        assert_eq!(client.ask("delete 1"), "DELETED");
        drop(stopped);
        service.hand_over();
    });
}

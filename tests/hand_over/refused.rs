//! Programs that must not get the server: it keeps serving, and logs the reason.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use beanstalkd_testkit::copy_built_server;
use beanstalkd_testkit::panicking::wait_until;
use beanstalkd_testkit::system::MemoryGroup;
use rustix::process::Signal;

use super::service::{Service, in_time};

/// Calls `replace`, and expects that the server keeps serving and gives a reason that contains `reason`.
pub fn expect_refusal(service: &Service, reason: &str, replace: impl FnOnce(&Service)) {
    let mut client = service.connect();
    let id = client.put(0, 600, b"a job");
    let mut waiting = service.connect();
    waiting.send("watch none\r\nignore default\r\nreserve\r\n");
    replace(service);
    service.signal(Signal::HUP);
    service.await_refusal(reason);
    assert!(service.log().contains("this program continues"), "the log says so, too");
    assert_eq!(client.ask(&format!("delete {id}")), "DELETED");
    client.ask("use none");
    client.put(0, 600, b"x");
    assert_eq!(waiting.line(), "WATCHING 2");
    assert_eq!(waiting.line(), "WATCHING 1");
    assert!(waiting.line().starts_with("RESERVED "));
    drop(waiting);
    client.ask("watch none");
    let left = client.reserve("reserve");
    client.ask(&format!("delete {left}"));
}

/// The same for a script of the shell.
fn expect_refusal_of(service: &Service, script: &str, reason: &str) {
    let script = format!("#!/bin/sh\n{script}\n");
    expect_refusal(service, reason, |service| service.replace_with_script(&script));
}

#[test]
fn a_program_that_is_not_fit_does_not_get_the_server() {
    for log in [&[][..], &["-b", "{dir}"]] {
        let service = Service::start(log);
        expect_refusal(&service, "ermission denied", |service| {
            service.replace_with(|path| {
                copy_built_server(path).unwrap();
                fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
            });
        });
        expect_refusal(&service, "exit status: 127", |service| {
            service.replace_with(|path| {
                fs::write(path, "\x7fELF and no more").unwrap();
                fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
            });
        });
        let says = "version `GLIBC_9.99' not found";
        expect_refusal_of(&service, &format!("echo \"{says}\" >&2\nexit 1").replace('`', "\\`"), says);
        expect_refusal(&service, "No such file", |service| {
            service.replace_with_script("#!/no/such/interpreter\n");
        });
        // A version without hand-over, and one with another format.
        expect_refusal_of(&service, "echo 'unknown argument: --check-handover' >&2\nexit 5", "unknown");
        expect_refusal_of(&service, "echo ok 0", "ok 0");
        expect_refusal_of(&service, "exec yes", "its answer has more than");
        expect_refusal_of(&service, "kill -9 $$", "signal: 9");
        // After all these, a good program gets the server.
        service.hand_over();
    }
}

#[test]
fn the_reason_leaves_the_status_once_the_old_program_is_back() {
    let service = Service::start(&[]);
    let old = service.directory().join("old");
    fs::rename(service.program(), &old).unwrap();
    expect_refusal_of(&service, "exit 1", "exit status: 1");
    while service.next_message().is_some() {}
    fs::rename(old, service.program()).unwrap();
    service.signal(Signal::HUP);
    // One older message may have been on its way.
    assert!((0..2).any(|_| !service.message_with("STATUS=").contains("refused")));
}

/// The operator goes back to the old program while the new one is tried, which succeeds or fails then.
#[test]
fn a_program_that_is_taken_back_during_its_trial_is_not_reported_as_refused() {
    in_time(|| {
        let service = Service::start(&[]);
        copy_built_server(&service.directory().join("real")).unwrap();
        let mut client = service.connect();
        for (script, reason) in [
            ("./real \"$@\"\nstatus=$?\nmv old program\nexit $status", "no other program is there any more"),
            ("mv old program\nexit 1", "exit status: 1"),
        ] {
            fs::rename(service.program(), service.directory().join("old")).unwrap();
            service.replace_with_script(&format!("#!/bin/sh\n{script}\n"));
            while service.next_message().is_some() {}
            service.signal(Signal::HUP);
            let message = service.message_with("STATUS=");
            assert!(!message.contains("refused"), "{message}");
            service.wait_for(reason);
            assert_eq!(client.ask("use a"), "USING a");
        }
        service.hand_over();
    });
}

#[test]
fn a_program_that_hangs_is_ended_after_five_seconds() {
    let service = Service::start(&[]);
    expect_refusal_of(&service, "echo $$ >child\nexec sleep 1000", "5 s");
    let child = fs::read_to_string(service.directory().join("child")).unwrap();
    wait_until("the child is gone", || !fs::exists(format!("/proc/{}", child.trim())).unwrap());
}

#[test]
fn a_child_does_not_outlive_the_server_that_tries_it() {
    let mut service = Service::start(&[]);
    service.replace_with_script("#!/bin/sh\necho $$ >half && mv half child\nexec sleep 1000\n");
    service.signal(Signal::HUP);
    let file = service.directory().join("child");
    wait_until("the child runs", || file.exists());
    let child = fs::read_to_string(&file).unwrap();
    service.replace();
    service.kill_and_restart(&[]);
    let is_gone = || !fs::exists(format!("/proc/{}", child.trim())).unwrap();
    wait_until("the child is gone", is_gone);
}

#[test]
fn settings_that_the_next_program_cannot_read_keep_the_old_one() {
    let rules = "[strangers]\nproduce = [\"*\"]\nwork = [\"*\"]\n";
    let service = Service::prepared(&["--access", "{dir}/rules"], |directory| {
        fs::write(directory.join("rules"), rules).unwrap();
    });
    expect_refusal(&service, "rules", |service| {
        fs::write(service.directory().join("rules"), "[strangers]\nproduse = 1\n").unwrap();
        service.replace();
    });
    fs::write(service.directory().join("rules"), rules).unwrap();
    service.hand_over();
}

/// The file becomes invalid after the next program has read it, and before that program runs.
#[test]
fn settings_that_break_after_the_trial_keep_the_old_program() {
    let rules = "[[tube]]\nname = \"a\"\nmax-jobs = 3\n";
    let service = Service::prepared(&["--tubes", "{dir}/rules"], |directory| {
        fs::write(directory.join("rules"), rules).unwrap();
    });
    copy_built_server(&service.directory().join("real")).unwrap();
    expect_refusal_of(
        &service,
        "./real \"$@\"\nstatus=$?\n[ -e broken ] || echo max >>rules && : >broken\nexit $status",
        "rules",
    );
    fs::write(service.directory().join("rules"), rules).unwrap();
    service.hand_over();
}

/// Another server can lock the file that has the path now. If the whole directory is replaced, the same happens.
#[test]
fn a_replaced_lock_of_the_binlog_keeps_the_old_program() {
    let service = Service::start(&["-b", "{dir}"]);
    let [lock, locked] = ["lock", "locked"].map(|name| service.directory().join(name));
    expect_refusal(&service, "lock is not the locked file any more", |service| {
        fs::rename(&lock, &locked).unwrap();
        fs::write(&lock, "").unwrap();
        service.replace();
    });
    fs::rename(locked, lock).unwrap();
    service.hand_over();
}

/// The other program and the description take the memory of the jobs again. At the limit, the kernel would kill the
/// server.
#[test]
fn a_control_group_without_the_memory_for_a_trial_keeps_the_old_program() {
    const MIB: usize = 1 << 20;
    let Some(group) = MemoryGroup::new(96 * MIB) else { return };
    let service = Service::started(&["-z", "2000000"], |_| (), &group.script());
    let mut client = service.connect();
    let ids: Vec<u64> = (0..40).map(|_| client.put(0, 600, &vec![b'x'; MIB])).collect();
    expect_refusal(&service, "bytes of memory, and the control group has 100663296", Service::replace);
    // There is enough memory for a quarter of the jobs.
    for id in &ids[10..] {
        assert_eq!(client.ask(&format!("delete {id}")), "DELETED");
    }
    service.hand_over();
    assert_eq!(client.stat("current-jobs-ready"), 10);
}

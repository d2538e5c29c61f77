//! Runs a script at the n-th system call of a hand-over. Each step with an effect outside the process is a system call,
//! so this reaches every step, and the program needs no fault points.
//!
//! Owns: the process that traces the server: this test program, started once more. It requests the hand-over and counts
//! the calls of all threads, those of the tried program apart from those of the server. Before the system executes the
//! n-th one, a shell runs the script; then the tracer exits, and the server continues untraced.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, process, thread};

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// The process whose system calls are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The calls of the server: of the program that runs, and then of the next one.
    Server,
    /// The calls of the tried program.
    Tried,
}

/// A script, and the call before which it runs.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    pub whose: Whose,
    /// The first call is 1.
    pub number: u64,
    /// Commands of a shell, in the server's directory, with `$server` and `$tried` for the processes.
    pub script: &'a str,
}

/// The process that traces; killed when dropped.
pub struct Tracer {
    process: Child,
    calls: PathBuf,
    /// The process that creates this file decides whether the step happens: the tracer, or the test that ends it.
    decision: PathBuf,
}

impl Tracer {
    /// Asks the server `pid` for a hand-over, and waits for `step`.
    pub fn start(pid: u32, directory: &Path, step: Step<'_>) -> Self {
        let (calls, decision) = (directory.join("calls"), directory.join("decision"));
        let _ = fs::remove_file(&decision);
        let process = Command::new(env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "tracer::traces"])
            .env("TRACED", pid.to_string())
            .env("TRACED_WHOSE", if step.whose == Whose::Server { "s" } else { "t" })
            .env("TRACED_NUMBER", step.number.to_string())
            .env("TRACED_SCRIPT", step.script)
            .env("TRACED_CALLS", &calls)
            .env("TRACED_DECISION", &decision)
            .current_dir(directory)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { process, calls, decision }
    }

    /// Whether the step was reached, and its script is done.
    pub fn has_ended(&mut self) -> bool {
        let status = self.process.try_wait().unwrap();
        assert!(status.is_none_or(|status| status.success()), "the tracer says why");
        status.is_some()
    }

    /// Ends the tracer; returns whether the step was reached.
    pub fn end(mut self) -> bool {
        let has_come = !is_first(&self.decision);
        while has_come && !self.has_ended() {
            thread::sleep(Duration::from_millis(1));
        }
        has_come
    }

    /// The number of calls so far.
    pub fn count(&self, whose: Whose) -> u64 {
        count(&fs::read(&self.calls).unwrap(), if whose == Whose::Server { b's' } else { b't' })
    }

    /// The number of calls of the server before the first one of the tried program.
    pub fn count_to_trial(&self) -> u64 {
        let calls = fs::read(&self.calls).unwrap();
        let trial = calls.iter().position(|&mark| mark == b't').expect("there was a trial");
        count(&calls[..trial], b's')
    }

    /// The number of calls of the server before it ran the next program.
    pub fn count_to_exec(&self) -> u64 {
        let calls = fs::read(&self.calls).unwrap();
        let exec = calls.iter().rposition(|&mark| mark == EXEC).expect("there was a hand-over");
        count(&calls[..exec], b's')
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Follows the mark of a call with which the server runs another program.
const EXEC: u8 = b'x';

fn count(calls: &[u8], mark: u8) -> u64 {
    calls.iter().filter(|&&call| call == mark).count() as u64
}

fn is_first(decision: &Path) -> bool {
    File::create_new(decision).is_ok()
}

#[test]
#[ignore = "runs as a child of other tests"]
fn traces() {
    let variable = |name: &str| env::var(name).expect("another test starts this one");
    let server = Pid::from_raw(variable("TRACED").parse().unwrap());
    let whose = variable("TRACED_WHOSE").as_bytes()[0];
    let mut left: u64 = variable("TRACED_NUMBER").parse().unwrap();
    let mut calls = File::create(variable("TRACED_CALLS")).unwrap();
    seize_all(server);
    kill(server, Signal::SIGHUP).unwrap();
    let (mut marks, mut tried) = (HashMap::new(), None);
    while let Some(thread) = next_call() {
        let mark = *marks.entry(thread).or_insert_with(|| {
            let process = process_of(thread);
            tried = tried.or((process != server).then_some(process));
            if process == server { b's' } else { b't' }
        });
        calls.write_all(&[mark]).unwrap();
        if mark == b's' && is_exec(thread) {
            calls.write_all(&[EXEC]).unwrap();
        }
        left -= u64::from(mark == whose);
        if left == 0 {
            if !is_first(variable("TRACED_DECISION").as_ref()) {
                return;
            }
            let mut shell = Command::new("sh");
            shell.args(["-ec", &variable("TRACED_SCRIPT")]).env("server", server.to_string());
            shell.env("tried", tried.map_or_else(String::new, |pid| pid.to_string()));
            process::exit(shell.status().map_or(1, |status| i32::from(!status.success())));
        }
        go_on(thread, None);
    }
}

/// Traces the existing threads, and the threads and children that they start.
fn seize_all(server: Pid) {
    let options = Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK
        | Options::PTRACE_O_TRACEEXEC;
    let mut seized = HashSet::new();
    loop {
        let threads = fs::read_dir(format!("/proc/{server}/task")).unwrap();
        let ids = threads.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap());
        let more: Vec<i32> = ids.filter(|&id| seized.insert(id)).collect();
        if more.is_empty() {
            return;
        }
        for thread in more.into_iter().map(Pid::from_raw) {
            // A thread that a traced thread has started is traced already.
            if ptrace::seize(thread, options).is_ok() {
                ptrace::interrupt(thread).unwrap();
            }
        }
    }
}

/// The thread that is about to make a call; `None` if no thread is left.
fn next_call() -> Option<Pid> {
    loop {
        match waitpid(None, Some(WaitPidFlag::__WALL)) {
            Ok(WaitStatus::PtraceSyscall(thread)) => match ptrace::syscall_info(thread) {
                Ok(info) if info.op == libc::PTRACE_SYSCALL_INFO_ENTRY => return Some(thread),
                // A thread returns from a call, or is killed.
                Ok(_) | Err(_) => go_on(thread, None),
            },
            Ok(WaitStatus::PtraceEvent(thread, ..)) => go_on(thread, None),
            Ok(WaitStatus::Stopped(thread, signal)) => go_on(thread, Some(signal)),
            Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) => {}
            Ok(WaitStatus::Continued(_) | WaitStatus::StillAlive) | Err(Errno::EINTR) => {}
            Err(_) => return None,
        }
    }
}

/// Resumes the thread, unless it was killed in the meantime.
fn go_on(thread: Pid, signal: Option<Signal>) {
    let _ = ptrace::syscall(thread, signal);
}

fn is_exec(thread: Pid) -> bool {
    let call = fs::read_to_string(format!("/proc/{thread}/syscall")).unwrap_or_default();
    call.split(' ').next() == Some(&libc::SYS_execve.to_string())
}

fn process_of(thread: Pid) -> Pid {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    Pid::from_raw(process.and_then(|number| number.trim().parse().ok()).unwrap_or(thread.as_raw()))
}

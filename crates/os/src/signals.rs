//! The signals that the server handles, as events of its poll loop.
//!
//! Owns: the handlers, from `install` to the end of the process. A handler only records the signal
//! and makes the poll return. The Rust runtime ignores SIGPIPE before `main`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mio::event::Source;
use mio::{Interest, Registry, Token};
use nix::sys::signal::{Signal as Number, kill};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::flag;

use super::hand_over::HeldSignals;

/// The request that a signal stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGUSR1: accept no more jobs.
    Drain,
    /// SIGUSR2: accept jobs again.
    Undrain,
    /// SIGHUP: read the files again that can change while the server runs.
    Reload,
    /// SIGTERM or SIGINT: end.
    Stop,
}

impl Signal {
    fn of(number: i32) -> Self {
        match number {
            SIGUSR1 => Self::Drain,
            SIGUSR2 => Self::Undrain,
            SIGHUP => Self::Reload,
            _ => Self::Stop,
        }
    }
}

/// From now on, a write beyond the limit of a file's size fails, and does not end the process: the log treats the limit
/// as a full disk, and `--copy` and `--dump` report it.
///
/// # Errors
/// If the system refuses the handler.
pub fn survive_file_size_limit() -> io::Result<()> {
    // Any handler does.
    flag::register(SIGXFSZ, Arc::default()).map(drop)
}

/// The received signals. This event source becomes readable when a signal arrives.
pub struct Signals {
    received: signal_hook_mio::v1_0::Signals,
    /// Whether the next SIGTERM or SIGINT ends the process at once.
    stopping: Arc<AtomicBool>,
    /// What [`Signals::has_stop`] has received for [`Signals::pending`]: at most one of SIGUSR1 and SIGUSR2, and one
    /// SIGHUP.
    kept: Vec<Signal>,
}

impl Signals {
    /// Installs the handlers. Must be called before any other program can know that the server runs, because SIGUSR1
    /// kills a process without a handler. From now on the second SIGTERM or SIGINT ends the process at once,
    /// with 128 plus the signal's number as its exit code. This also works for process 1. SIGHUP has a handler only if
    /// `reloads`; otherwise it ends the process, as it ends C.
    ///
    /// # Errors
    /// If the system refuses a handler or a pair of sockets.
    pub fn install(reloads: bool) -> io::Result<Self> {
        let stopping = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            // The order matters: the signal that sets the flag must not find it set.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stopping))?;
            flag::register(signal, Arc::clone(&stopping))?;
        }
        let signals = signal_hook_mio::v1_0::Signals::new([SIGUSR1, SIGUSR2, SIGTERM, SIGINT])?;
        if reloads {
            signals.add_signal(SIGHUP)?;
        }
        Ok(Self { received: signals, stopping, kept: Vec::new() })
    }

    /// The signals received since the last call, in the order of their effect.
    pub fn pending(&mut self) -> impl Iterator<Item = Signal> {
        std::mem::take(&mut self.kept).into_iter().chain(self.received.pending().map(Signal::of))
    }

    /// Whether a signal to stop has been received, for a process that does not serve yet. The others are kept for
    /// [`Signals::pending`]; they cause no further event of the poll.
    pub fn has_stop(&mut self) -> bool {
        let mut has_stop = false;
        for signal in self.received.pending().map(Signal::of) {
            match signal {
                Signal::Stop => has_stop = true,
                Signal::Reload => self.kept.retain(|&kept| kept != signal),
                Signal::Drain | Signal::Undrain => self.kept.retain(|&kept| kept == Signal::Reload),
            }
            self.kept.push(signal);
        }
        has_stop
    }

    /// Raises the signals received since the last call again, for the next program, or for this one if it continues.
    /// Signals must be held back, so that they are the first ones that it gets.
    pub fn pass_on(&mut self, _held: &HeldSignals) {
        for signal in self.received.pending() {
            if matches!(signal, SIGTERM | SIGINT) {
                self.stopping.store(false, Ordering::SeqCst);
            }
            let _ = Number::try_from(signal).map(|signal| kill(Pid::this(), signal));
        }
    }
}

impl Source for Signals {
    fn register(&mut self, registry: &Registry, token: Token, interest: Interest) -> io::Result<()> {
        self.received.register(registry, token, interest)
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interest: Interest) -> io::Result<()> {
        self.received.reregister(registry, token, interest)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.received.deregister(registry)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use mio::{Events, Poll};
    use signal_hook::consts::SIGPIPE;
    use signal_hook::low_level::raise;

    use super::*;
    use crate::child::Child;
    use crate::hand_over::hold_signals;

    /// Raises the signals that the parent names and reports which arrived, until it is stopped twice.
    #[test]
    #[ignore = "runs as a child of other tests"]
    fn child_obeys_signals() {
        let mut poll = Poll::new().unwrap();
        let mut signals = Signals::install(true).unwrap();
        poll.registry().register(&mut signals, Token(0), Interest::READABLE).unwrap();
        let mut events = Events::with_capacity(4);
        survive_file_size_limit().unwrap();
        raise(SIGPIPE).unwrap();
        raise(SIGXFSZ).unwrap();
        let last = Child::argument().to_str().unwrap().parse().unwrap();
        for signal in [SIGUSR1, SIGUSR2, SIGHUP, last] {
            raise(signal).unwrap();
            while let Err(error) = poll.poll(&mut events, None) {
                assert_eq!(error.kind(), io::ErrorKind::Interrupted);
            }
            assert!(events.iter().any(|event| event.token() == Token(0)));
            Child::say(&format!("{:?}", signals.pending().collect::<Vec<_>>()));
        }
        raise(last).unwrap();
        Child::say("still here");
    }

    // Gets the signal to stop, and then cannot run the next program.
    #[test]
    #[ignore = "runs as a child of other tests"]
    fn child_cannot_be_handed_over() {
        let mut poll = Poll::new().unwrap();
        let mut signals = Signals::install(true).unwrap();
        poll.registry().register(&mut signals, Token(0), Interest::READABLE).unwrap();
        let mut events = Events::with_capacity(4);
        raise(SIGTERM).unwrap();
        for _ in 0..2 {
            // Another thread of the tests may get the signal, and later than this call.
            while poll.poll(&mut events, None).is_err() || events.is_empty() {}
            let held = hold_signals().unwrap();
            signals.pass_on(&held);
            drop(held);
        }
        while poll.poll(&mut events, None).is_err() || events.is_empty() {}
        Child::say(&format!("{:?}", signals.pending().collect::<Vec<_>>()));
        raise(SIGTERM).unwrap();
        Child::say("still here");
    }

    #[test]
    fn a_stop_that_was_held_back_counts_as_the_first_one() {
        let mut child = Child::start("signals::tests::child_cannot_be_handed_over", "".as_ref());
        assert_eq!(child.line(), "[Stop]");
        assert_eq!(child.finish().code(), Some(143), "and the next one is the second");
    }

    #[test]
    fn signals_arrive_as_events_and_the_second_stop_ends_the_process() {
        for (signal, exit_code) in [(SIGTERM, 143), (SIGINT, 130)] {
            let number = signal.to_string();
            let mut child = Child::start("signals::tests::child_obeys_signals", number.as_str().as_ref());
            assert_eq!(child.line(), "[Drain]");
            assert_eq!(child.line(), "[Undrain]");
            assert_eq!(child.line(), "[Reload]");
            assert_eq!(child.line(), "[Stop]");
            let status = child.finish();
            assert_eq!((status.code(), status.signal()), (Some(exit_code), None));
        }
    }
}

//! Messages to the service manager while the server runs: keep-alives and the status.
//!
//! Owns: when to send messages, and their words. Keep-alives come from the loop's own turns, busy or idle, so that a
//! loop that hangs sends none. Driven by `event_loop`, once a turn and for each poll's time-out.

use std::fmt;
use std::io;
use std::time::Duration;

use log::warn;

use super::Executor;
use crate::clock::Timestamp;
use crate::log_setup::Count;
use crate::orders::Control;
use crate::os::service_manager;
use crate::queue::Figures;
use crate::rate_limited_log::RateLimitedLog;

/// How often the status is sent if the service manager expects no keep-alives.
const STATUS_INTERVAL: Duration = Duration::from_secs(10);

/// Sends messages to the service manager.
#[derive(Debug)]
pub(crate) struct Notifier {
    interval_ns: u64,
    /// Whether the service manager expects keep-alives, and not only the status.
    expects_keep_alives: bool,
    /// Whether the message that the server is ready has been sent.
    has_sent_ready: bool,
    /// Whether the last status said that the server drains, and that it answers: a change is sent at once.
    last_reported: (bool, bool),
    /// The reason why a hand-over has failed: this program still runs, and not the one on the disk.
    failed_hand_over: Option<String>,
    next_at: Timestamp,
    warnings: RateLimitedLog,
}

impl Notifier {
    /// `None` if no service manager listens. Keep-alives are sent twice as often as they are expected.
    pub(crate) fn from_environment() -> Option<Self> {
        if !service_manager::is_listening() {
            return None;
        }
        let half = service_manager::watchdog_timeout().map(|timeout| timeout / 2);
        let interval = half.map_or(STATUS_INTERVAL, |half| half.min(STATUS_INTERVAL));
        Some(Self {
            interval_ns: interval.as_nanos() as u64,
            expects_keep_alives: half.is_some(),
            has_sent_ready: false,
            last_reported: (false, true),
            failed_hand_over: None,
            next_at: Timestamp::AT_ONCE,
            warnings: RateLimitedLog::default(),
        })
    }

    /// Reports that the server is ready.
    pub(crate) fn ready(&mut self, executor: &Executor, now: Timestamp) {
        let sent = service_manager::notify_ready(
            &Status(executor, now, self.failed_hand_over.as_deref()).to_string(),
        );
        self.has_sent_ready = sent.is_ok();
        self.conclude(sent, now);
    }

    /// When the next message is due.
    pub(crate) fn next_at(&self) -> Timestamp {
        self.next_at
    }

    /// Sends the messages that are due.
    pub(crate) fn turn(&mut self, executor: &Executor, now: Timestamp) {
        let report = (executor.is_draining(), executor.may_answer());
        if now < self.next_at && report == self.last_reported {
            return;
        }
        self.last_reported = report;
        if !self.has_sent_ready {
            return self.ready(executor, now);
        }
        let status = Status(executor, now, self.failed_hand_over.as_deref()).to_string();
        let sent = if self.expects_keep_alives {
            service_manager::notify_watchdog(&status)
        } else {
            service_manager::notify_status(&status)
        };
        self.conclude(sent, now);
    }

    /// From now on reports why another program has not taken over.
    pub(crate) fn note_failed_hand_over(&mut self, reason: &str) {
        // A status is one line.
        self.failed_hand_over = Some(reason.replace('\n', " "));
        self.next_at = Timestamp::AT_ONCE;
    }

    /// From now on reports no other program: the one on the disk is the running one.
    pub(crate) fn forget_failed_hand_over(&mut self) {
        self.failed_hand_over = None;
        self.next_at = Timestamp::AT_ONCE;
    }

    /// Reports that the server is about to end.
    pub(crate) fn stopping(&mut self, now: Timestamp) {
        let sent = service_manager::notify_stopping();
        self.conclude(sent, now);
    }

    fn conclude(&mut self, sent: io::Result<()>, now: Timestamp) {
        self.next_at = now + self.interval_ns;
        if let Err(error) = sent {
            self.warnings.line(now, |withheld| {
                warn!(
                    "cannot notify the service manager: {error}; {withheld} others since the last such line"
                );
            });
        }
    }
}

/// The server's state in a line.
struct Status<'a>(&'a Executor, Timestamp, Option<&'a str>);

impl fmt::Display for Status<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(executor, now, failed_hand_over) = self;
        let Figures { jobs, tubes, clients, .. } = executor.queue().figures();
        let mode = if !executor.may_answer() {
            "silent until the database confirms the ownership of the queue"
        } else if executor.is_draining() {
            "draining"
        } else {
            "serving"
        };
        write!(
            out,
            "{mode}: {} ready, {} reserved, {} delayed, {} buried; {}, {}",
            jobs.ready,
            jobs.reserved,
            jobs.delayed,
            jobs.buried,
            Count(tubes as u64, "tube"),
            Count(clients as u64, "connection"),
        )?;
        if let Some(reason) = failed_hand_over {
            write!(out, "; the program on the disk was refused: {reason}")?;
        }
        executor.refused_puts(*now).map_or(Ok(()), |refused| write!(out, "; {refused}"))
    }
}

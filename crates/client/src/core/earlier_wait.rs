//! The wait for the reply to a reserve whose caller no longer waits, before another reserve is sent.
//!
//! Owns: when this wait ends. Never reads the clock.

use std::time::{Duration, Instant};

/// The minimum of a limit, and of the time that a server has for a reply that is due already: a job may be on its way.
const MIN_WAIT: Duration = Duration::from_secs(1);

/// The wait for the reply to an earlier reserve.
#[derive(Debug, Default)]
pub(crate) enum EarlierWait {
    /// No caller waits for such a reply.
    #[default]
    Idle,
    /// A caller is about to wait; its reserve has this limit.
    Due { limit: Option<Duration> },
    /// A caller waits.
    Waiting { began: Instant, limit_ends: Option<Instant>, step_ends: StepEnd },
    /// The limit is over.
    Over,
}

/// What comes first in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepEnd {
    /// The limit of the caller's reserve is over.
    Limit,
    /// The reply is late.
    Late,
}

impl EarlierWait {
    /// The wait before a reserve with this limit of its own.
    pub(crate) fn within(limit: Option<Duration>) -> Self {
        Self::Due { limit: limit.map(|limit| limit.max(MIN_WAIT)) }
    }

    /// Whether the limit is over.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Over)
    }

    /// The end of the limit, or the time at which the reply is late, whichever comes first. The server has at least a
    /// second, or the time-out of the connection if that is shorter.
    pub(crate) fn deadline(
        &mut self,
        late: Option<Instant>,
        timeout: Option<Duration>,
        now: Instant,
    ) -> Option<Instant> {
        let (began, limit_ends) = match *self {
            Self::Due { limit } => (now, limit.and_then(|limit| now.checked_add(limit))),
            Self::Waiting { began, limit_ends, .. } => (began, limit_ends),
            Self::Idle | Self::Over => return late,
        };
        let late = late.map(|late| late.max(began + timeout.unwrap_or(MIN_WAIT).min(MIN_WAIT)));
        let is_limit_first = limit_ends.is_some_and(|ends| late.is_none_or(|late| ends < late));
        let (step_ends, deadline) =
            if is_limit_first { (StepEnd::Limit, limit_ends) } else { (StepEnd::Late, late) };
        *self = Self::Waiting { began, limit_ends, step_ends };
        deadline
    }

    /// Notes that a step has timed out. Returns whether that was the end of the limit.
    pub(crate) fn time_out(&mut self) -> bool {
        let is_end = matches!(self, Self::Waiting { step_ends: StepEnd::Limit, .. });
        if is_end {
            *self = Self::Over;
        }
        is_end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_the_limit_or_when_the_reply_is_late() {
        let now = Instant::now();
        let at = |seconds| Some(now + Duration::from_secs(seconds));
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (limit, late, timeout, ends, is_limit) in [
            (seconds(5), at(7), seconds(2), at(5), true),
            (seconds(5), at(3), seconds(2), at(3), false),
            (seconds(5), None, None, at(5), true),
            (seconds(0), at(7), seconds(2), at(1), true),
            (None, at(7), seconds(2), at(7), false),
            (None, None, None, None, false),
            // The reply was due before this caller began to wait.
            (seconds(5), at(0), seconds(2), at(1), false),
            (seconds(5), at(0), seconds(0), at(0), false),
        ] {
            let mut wait = EarlierWait::within(limit);
            assert_eq!(wait.deadline(late, timeout, now), ends, "{limit:?} {late:?}");
            assert_eq!((wait.time_out(), wait.is_over()), (is_limit, is_limit), "{limit:?} {late:?}");
            assert!(!wait.time_out(), "a later time-out is not that of the limit");
        }
    }
}

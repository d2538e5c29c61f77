//! The activity of a client, in the words of `list-clients`, and its counts.
//!
//! Owns: the words and their order. The activity follows from the phase and the output, so an exchange keeps nothing
//! for it.

use super::{Exchange, Phase, Unfinished, Until, WaitKind};

/// The activity of a client. If several apply, the first in this order counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// The client waits in a reserve.
    Waiting,
    /// The client's command is not finished, and continues by itself.
    Stalled,
    /// The client has not read all of its replies.
    Sending,
    /// A part of a command or of a body has arrived.
    Receiving,
    /// The client can give a command.
    Ready,
}

impl Activity {
    /// The word of the protocol.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Stalled => "stalled",
            Self::Sending => "sending",
            Self::Receiving => "receiving",
            Self::Ready => "ready",
        }
    }
}

/// A number of lines below 2^48: a client needs years to send so many. In this form it fits beside a flag.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, packed(2))]
pub(super) struct LineCount {
    low: u32,
    high: u16,
}

const _: () = assert!(size_of::<(LineCount, bool)>() == 8, "a connection has both in one word");

impl LineCount {
    pub(super) fn new(lines: u64) -> Self {
        Self { low: lines as u32, high: (lines >> u32::BITS) as u16 }
    }

    fn get(self) -> u64 {
        u64::from(self.high) << u32::BITS | u64::from(self.low)
    }

    #[inline(always)]
    fn add_one(&mut self) {
        let (low, overflows) = self.low.overflowing_add(1);
        self.low = low;
        self.high = self.high.wrapping_add(overflows.into());
    }
}

impl<R> Exchange<R> {
    /// The activity of the client.
    #[must_use]
    pub fn activity(&self) -> Activity {
        let is_receiving = match &self.phase {
            Phase::Unfinished(Unfinished::Waiting(_)) => return Activity::Waiting,
            Phase::Unfinished(Unfinished::Stalled { .. }) => return Activity::Stalled,
            Phase::WantBody { .. }
            | Phase::SkipBody { .. }
            | Phase::SkipLine { .. }
            | Phase::SkipPutLine(_)
            | Phase::Complete(_) => true,
            Phase::WantCommand | Phase::Closing | Phase::Aborted => self.unread.is_some(),
        };
        if !self.output.is_empty() {
            Activity::Sending
        } else if is_receiving {
            Activity::Receiving
        } else {
            Activity::Ready
        }
    }

    /// The command lines so far, malformed ones included.
    #[must_use]
    pub fn line_count(&self) -> u64 {
        self.lines.get()
    }

    #[inline(always)]
    pub(super) fn count_line(&mut self) {
        self.lines.add_one();
    }

    /// The unfinished command, if there is one.
    #[must_use]
    #[inline]
    pub fn unfinished(&self) -> Option<&Unfinished<R>> {
        if let Phase::Unfinished(unfinished) = &self.phase { Some(unfinished) } else { None }
    }

    /// The event for which a stalled command waits, if there is one.
    #[must_use]
    #[inline]
    pub fn stalled_until(&self) -> Option<Until> {
        if let Some(&Unfinished::Stalled { until, .. }) = self.unfinished() { Some(until) } else { None }
    }

    /// What the client waits for, if it waits.
    #[must_use]
    pub fn wait_kind(&self) -> Option<WaitKind> {
        if let Some(&Unfinished::Waiting(kind)) = self.unfinished() { Some(kind) } else { None }
    }

    /// Whether a reserve, or the wait for the end of a job, is unanswered.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.wait_kind().is_some()
    }

    /// Whether the connection ends once its replies are sent.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing)
    }

    /// Whether the connection ends at once because memory is low.
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        matches!(self.phase, Phase::Aborted)
    }
}

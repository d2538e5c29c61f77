//! The orders of the API that are being carried out.
//!
//! Owns: which order continues when. An unfinished order has the [`Continuation`] of a command; `commands/orders`
//! does a slice of it in each turn.

use std::collections::VecDeque;

use super::Executor;
use super::outcome::Continuation;
use crate::binlog::SequenceNumber;
use crate::clock::Timestamp;
use crate::orders::{Progress, TaskId, Tasks};
use crate::queue::ClientId;

/// The orders that are being carried out.
#[derive(Debug, Default)]
pub(crate) struct RunningOrders {
    pub(crate) tasks: Tasks,
    /// The first order is the next to continue.
    pub(crate) running: VecDeque<RunningOrder>,
    /// Orders that have ended, but whose changes the log may not have yet, in order.
    pub(crate) settling: VecDeque<(TaskId, Progress, Option<SequenceNumber>)>,
}

impl RunningOrders {
    /// Asserts that each running task has its order.
    pub(super) fn check_invariants(&self) {
        let running = self.tasks.newest_first().filter(|task| !task.is_over()).count();
        assert_eq!(
            running,
            self.running.len() + self.settling.len(),
            "the running tasks are the orders that continue or wait for the log"
        );
    }

    /// Whether any order is being carried out, or waits for the log.
    pub(crate) fn are_running(&self) -> bool {
        !self.running.is_empty() || !self.settling.is_empty()
    }
}

/// An order that is being carried out.
#[derive(Debug)]
pub(crate) struct RunningOrder {
    pub(crate) task: TaskId,
    pub(crate) client: ClientId,
    /// What continues the order.
    pub(crate) continuation: Continuation,
    pub(crate) awaits: Awaits,
}

/// The event for which an order waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaits {
    NextTurn,
    /// The instant at which its rate permits the next job.
    Pace(Timestamp),
    BinlogRoom,
}

impl Awaits {
    /// Whether the order can continue now.
    pub(crate) fn is_over(self, now: Timestamp) -> bool {
        match self {
            Self::NextTurn => true,
            Self::Pace(at) => at <= now,
            Self::BinlogRoom => false,
        }
    }

    /// The instant, if the order waits for one.
    pub(crate) fn resumes_at(self) -> Option<Timestamp> {
        if let Self::Pace(at) = self { Some(at) } else { None }
    }
}

impl Executor {
    /// From now on, accepts orders of the API. The numbers of their tasks begin at a `random` one, so that they differ
    /// from the numbers of an earlier program.
    pub fn accept_orders(&mut self, random: u32) {
        let orders = RunningOrders { tasks: Tasks::after(random.into()), ..RunningOrders::default() };
        self.orders = Some(Box::new(orders));
    }

    /// Whether an order has work even if no event comes.
    #[inline]
    pub(crate) fn has_orders(&self) -> bool {
        self.orders.as_ref().is_some_and(|orders| {
            let settled = self.persistence.settled();
            orders.running.iter().any(|order| order.awaits == Awaits::NextTurn)
                || orders.settling.front().is_some_and(|(_, _, last)| last.is_none_or(|last| last <= settled))
        })
    }

    /// When the first order continues that waits because of its rate.
    #[inline]
    pub(crate) fn next_order_at(&self) -> Option<Timestamp> {
        let orders = self.orders.as_ref()?;
        orders.running.iter().filter_map(|running| running.awaits.resumes_at()).min()
    }

    /// Wakes the orders that wait for room in the log.
    pub(crate) fn wake_orders(&mut self) {
        if let Some(orders) = &mut self.orders {
            for running in orders.running.iter_mut().filter(|running| running.awaits == Awaits::BinlogRoom) {
                running.awaits = Awaits::NextTurn;
            }
        }
    }
}

//! Random operations on the queue and on its model. The whole state of both is compared after each operation.
//!
//! Here: what an operation is, and which one a random number stands for. `drive.rs` does it on the queue and on the
//! model, and `compare.rs` compares them.

use std::fmt::Write;

use beanstalkd_model::{CompletedPut, Model};
use beanstalkd_queue::{NewJob, PoisonLimits, Release, ReserveMode, TubeRule};
use beanstalkd_types::job::{Counting, JobId, Priority};
use beanstalkd_types::seconds::Seconds;
use beanstalkd_types::tags::JobTags;

use crate::random::Random;
use crate::rules::tube_rule;
use crate::tags::{TagChoice, name, some};
use crate::weighted;

mod compare;
mod drive;
mod flushes;
mod sliced;

pub use self::drive::{Pair, run, run_with_usual_slices};
pub use self::sliced::{run_in_slices, sliced_case};

/// The tubes that operations choose from.
const TUBES: [&str; 4] = ["default", "a", "b", "c"];
const PRIORITIES: [u32; 9] = [0, 1, 7, 7, 7, 1023, 1024, 1025, u32::MAX];
/// Thousandths of a second.
const DELAYS: [u64; 9] = [0, 0, 0, 1, 1000, 2000, 2999, 10_000, 4_000_000_000_000];

const TAGS: TagChoice<'_> = TagChoice {
    none: 2,
    keys: (4, &["k", "l"]),
    cooldowns_s: &[Seconds::ZERO, Seconds::new(0, 500), Seconds::new(3, 0)],
    limited: (2, &["k", "l", "m"]),
    limits: &[1, 1, 2, 9],
    groups: (3, &["g", "h"]),
    awaited: (3, &["g", "h"]),
    expiries_s: (4, &[Seconds::new(1, 0), Seconds::new(1, 1), Seconds::new(10, 0)]),
    ..TagChoice::NEVER
};

/// One step. `client` and `job` are raw numbers that choose among the clients and jobs that exist at that time, so
/// that a list of steps stays valid if steps are removed from it.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    Connect,
    Disconnect {
        client: u64,
    },
    /// A command of this client, unless the client waits.
    Command {
        client: u64,
        command: ClientCommand,
    },
    StopWaiting {
        client: u64,
    },
    KickJob {
        job: u64,
    },
    PauseTube {
        tube: &'static str,
        length_s: Seconds,
    },
    Reprioritize {
        job: u64,
        priority: u32,
    },
    SetDelay {
        job: u64,
        delay_s: Seconds,
    },
    /// Replaces the rules for tubes in force by those of this number.
    SetRules {
        number: u64,
    },
    /// Lists all pages of the tube's jobs in each state.
    List {
        tube: &'static str,
        limit: usize,
    },
    /// Advances the clock.
    Pass {
        ns: u64,
    },
    /// Advances the clock to the next deadline, or to a nanosecond before or after it.
    PassToDeadline {
        offset_ns: i64,
    },
}

/// A command whose effect depends on the client that sends it.
#[derive(Clone, Copy, Debug)]
pub enum ClientCommand {
    Use {
        tube: &'static str,
    },
    Watch {
        tube: &'static str,
    },
    WatchWithWeight {
        tube: &'static str,
        weight: u16,
    },
    Ignore {
        tube: &'static str,
    },
    SetMode {
        mode: ReserveMode,
    },
    Session {
        name: &'static str,
        grace_ms: u32,
    },
    Put {
        priority: u32,
        delay_s: Seconds,
        ttr_s: Seconds,
        tags: JobTags<'static>,
        /// Whether it has the first id of the announced ones.
        is_announced: bool,
    },
    /// The line of a put. Its body comes later, or is refused.
    AnnouncePut,
    Reserve {
        timeout_s: Option<Seconds>,
    },
    ReserveJob {
        job: u64,
    },
    /// The server takes back the job before the client has its reply.
    UndoReserve {
        job: u64,
    },
    WaitJob {
        job: u64,
        timeout_s: Option<Seconds>,
    },
    Delete {
        job: u64,
    },
    /// The puts are those of this number.
    Complete {
        job: u64,
        number: u64,
    },
    Release {
        job: u64,
        release: Release,
    },
    Bury {
        job: u64,
        priority: u32,
    },
    Touch {
        job: u64,
        for_s: Option<Seconds>,
    },
    TouchAll,
    Kick {
        bound: u64,
    },
    Move {
        job: u64,
        tube: &'static str,
    },
    Flush {
        tube: &'static str,
        only_buried: bool,
    },
}

/// The limits and the operations of a case.
pub fn case(seed: u64) -> (PoisonLimits, Vec<Operation>) {
    let mut random = Random::new(seed);
    let limit = |random: &mut Random| random.once_in(3).then(|| 1 + random.below(3) as u32);
    let limits = PoisonLimits { timeouts: limit(&mut random), releases: limit(&mut random) };
    let length = 5 + random.below(60) as usize;
    let mut operations = vec![Operation::Connect, Operation::Connect];
    if random.once_in(2) {
        operations.push(Operation::SetRules { number: random.next() });
    }
    operations.extend((0..length).map(|_| operation(&mut random)));
    (limits, operations)
}

/// The operation that a random number stands for.
pub fn operation(random: &mut Random) -> Operation {
    let client = random.below(64);
    let job = random.below(64);
    let tube = random.pick(&TUBES);
    weighted!(
        random,
        (47, Operation::Command { client, command: client_command(random, job, tube) }),
        (2, Operation::Connect),
        (1, Operation::Disconnect { client }),
        (1, Operation::StopWaiting { client }),
        (1, Operation::KickJob { job }),
        (1, {
            let length_s = seconds(random, &[0, 1, 1000, 1500, 5000, 1_000_000]);
            Operation::PauseTube { tube, length_s }
        }),
        (2, Operation::Reprioritize { job, priority: random.pick(&PRIORITIES) }),
        (1, Operation::SetDelay { job, delay_s: seconds(random, &DELAYS) }),
        (1, Operation::SetRules { number: random.next() }),
        (1, Operation::List { tube, limit: random.pick(&[1, 2, 3, 1000]) }),
        (2, {
            let ns = [1, 500_000_000, 1_000_000_000, 2_000_000_000, 3_600_000_000_000];
            Operation::Pass { ns: random.pick(&ns) }
        }),
        (4, Operation::PassToDeadline { offset_ns: random.pick(&[-1, 0, 0, 1]) }),
    )
}

/// A random command, which is about this job or tube if it is about any.
fn client_command(random: &mut Random, job: u64, tube: &'static str) -> ClientCommand {
    use ClientCommand as C;
    let priority = random.pick(&PRIORITIES);
    let delay_s = seconds(random, &DELAYS);
    let ttr_s = seconds(random, &[0, 999, 1000, 1000, 1001, 2500, 3000, 5000, 60_000]);
    let timeout_s = seconds(random, &[0, 1, 500, 1000, 2000, 10_000]);
    weighted!(
        random,
        (2, C::Use { tube }),
        (3, C::Watch { tube }),
        (2, C::WatchWithWeight { tube, weight: random.pick(&[1, 2, 9999]) }),
        (2, C::Ignore { tube }),
        (2, {
            let modes = [ReserveMode::Fifo, ReserveMode::Weighted, ReserveMode::WeightedFair];
            C::SetMode { mode: random.pick(&modes) }
        }),
        (4, {
            let grace_ms = random.pick(&[0, 1, 999, 1000, 1500, 60_000]);
            C::Session { name: random.pick(&["s", "s", "t"]), grace_ms }
        }),
        (5, C::Put { priority, delay_s, ttr_s, tags: tags(random), is_announced: random.once_in(4) }),
        (1, C::AnnouncePut),
        (3, C::Reserve { timeout_s: None }),
        (3, C::Reserve { timeout_s: Some(timeout_s) }),
        (1, C::ReserveJob { job }),
        (2, C::UndoReserve { job }),
        (1, C::WaitJob { job, timeout_s: random.once_in(2).then_some(timeout_s) }),
        (2, C::Delete { job }),
        (3, C::Complete { job, number: random.next() }),
        (2, {
            let counting = random.pick(&[Counting::Counted, Counting::Counted, Counting::Uncounted]);
            C::Release { job, release: Release { priority: Priority(priority), delay_s, counting } }
        }),
        (2, C::Bury { job, priority }),
        (1, {
            let for_s = random.once_in(2).then(|| seconds(random, &[0, 999, 1001, 3000, 4_000_000_000_000]));
            C::Touch { job, for_s }
        }),
        (1, C::TouchAll),
        (1, C::Kick { bound: random.pick(&[0, 1, 2, 3, u64::MAX]) }),
        (3, C::Move { job, tube }),
        (1, C::Flush { tube, only_buried: random.once_in(2) }),
    )
}

impl Operation {
    /// Whether it puts a job that may have to wait for a group.
    pub fn may_hold(self) -> bool {
        use ClientCommand as C;
        match self {
            Self::Command { command: C::Put { tags, .. }, .. } => tags.after.is_some(),
            Self::Command { command: C::Complete { number, .. }, .. } => {
                completed_puts(number, JobId::default).iter().any(|put| put.tags.after.is_some())
            }
            _ => false,
        }
    }
}

/// Some rules for tubes; a number always stands for the same rules.
fn rules(number: u64) -> Vec<TubeRule> {
    let mut random = Random::new(number);
    (0..number % 4)
        .map(|_| tube_rule(&mut random, &["default", "a", "b", "?", "*"], &["a", "b", "d"]))
        .collect()
}

/// A duration of one of these numbers of thousandths.
fn seconds(random: &mut Random, thousandths: &[u64]) -> Seconds {
    Seconds::of_ns(random.pick(thousandths) as i64 * 1_000_000)
}

/// The tags of a put, whose job may have an owner.
fn tags(random: &mut Random) -> JobTags<'static> {
    JobTags { owner: some(random, (4, &["o", "p"])).map(name), ..TAGS.tags(random).into() }
}

/// Some puts of a `complete`, whose ids come from `allocate_id`; a number always stands for the same puts.
fn completed_puts(number: u64, mut allocate_id: impl FnMut() -> JobId) -> Vec<CompletedPut> {
    let mut random = Random::new(number);
    let count = random.below(4);
    let mut put = || {
        let priority = random.pick(&[0, 1, 7, 1024]);
        let tube = random.once_in(3).then(|| random.pick(&TUBES));
        CompletedPut {
            new: NewJob {
                id: allocate_id(),
                priority: Priority(priority),
                delay_s: seconds(&mut random, &[0, 0, 0, 1, 2000]),
                ttr_s: seconds(&mut random, &[0, 1000, 60_000]),
            },
            body: priority.to_string().into_bytes().into(),
            tags: tags(&mut random),
            tube,
        }
    };
    (0..count).map(|_| put()).collect()
}

/// The job id that a raw number chooses; such a job need not exist.
pub(crate) fn job_of(raw: u64, model: &Model) -> JobId {
    JobId(raw % (model.next_id + 1))
}

/// Removes steps while `fails` still holds without them.
pub fn shorten(mut operations: Vec<Operation>, fails: impl Fn(&[Operation]) -> bool) -> Vec<Operation> {
    let mut piece = operations.len().div_ceil(2).max(1);
    loop {
        let mut from = 0;
        let before = operations.len();
        while from < operations.len() {
            let mut shorter = operations.clone();
            shorter.drain(from..(from + piece).min(operations.len()));
            if fails(&shorter) {
                operations = shorter;
            } else {
                from += piece;
            }
        }
        if piece == 1 && operations.len() == before {
            return operations;
        }
        piece = (piece / 2).max(1);
    }
}

/// The steps, one in each line.
pub fn listing(operations: &[Operation]) -> String {
    operations.iter().fold(String::new(), |mut text, operation| {
        writeln!(text, "  {operation:?}").expect("a string takes all text");
        text
    })
}

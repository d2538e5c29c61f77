//! Time budgets: an operation that counts as little work may take long.
//!
//! Owns: a clock on which much time passes between any two readings. With it the server must end each turn after a few
//! operations, whatever they are; without it the same operations fill their budgets by number.

use std::cell::Cell;
use std::rc::Rc;

use beanstalkd::access::AccessRules;
use beanstalkd_queue::{PoisonLimits, Queue};
use beanstalkd_types::clock::{NS_PER_S, Timestamp};

use beanstalkd_testkit::simulated::{Connection, START, SimulatedServer, executor};

use crate::access::{ANNA, OPERATOR};

/// The time that passes between two readings of the clock, in nanoseconds.
const TICK_NS: u64 = 50_000;
const GREEDY: usize = 8;
/// Jobs of each greedy client, with a clock and without one: the first turn of counted work takes thousands.
const SHARES: [u64; 2] = [60, 1_600];
/// Operations in a turn, with a clock and without one. The first turn does not know yet how long they take.
const MAX_MEASURED: u64 = 64;
const MIN_COUNTED: u64 = 100;

/// A server and the time.
struct Timed {
    server: SimulatedServer,
    time: Rc<Cell<u64>>,
}

impl Timed {
    fn new(rules: Option<&str>) -> Self {
        let mut executor = executor(PoisonLimits::default(), 10);
        if let Some(rules) = rules {
            executor.guard_with(AccessRules::parse(rules, &|_| None).unwrap());
        }
        Self { server: SimulatedServer::new(executor), time: Rc::new(Cell::new(START.0)) }
    }

    fn measure(&mut self) {
        let time = Rc::clone(&self.time);
        self.server.executor_mut().measure_time(move || {
            time.set(time.get() + TICK_NS);
            Timestamp(time.get())
        });
    }

    fn turn<'a>(&mut self, clients: impl IntoIterator<Item = &'a Connection>) {
        self.server.now = Timestamp(self.time.get());
        self.server.one_turn(clients);
    }

    /// The replies to `commands`, and the turns until the last of `lines` lines has come.
    fn ask(&mut self, client: &Connection, commands: &str, lines: usize) -> (String, usize) {
        client.send(commands);
        self.turn([client]);
        let (mut replies, mut turns) = (client.received(), 1);
        while replies.lines().count() < lines {
            self.turn([]);
            replies += &client.received();
            turns += 1;
            assert!(turns < 1_000_000, "{replies}");
        }
        (replies, turns)
    }
}

/// The most operations in a turn but the first, while each of the greedy clients sends its commands. Another client,
/// which sends little, gets its replies soon.
fn most_in_a_turn(attack: &Attack, is_measured: bool) -> u64 {
    let mut timed = Timed::new(None);
    let share = SHARES[usize::from(!is_measured)];
    let jobs = share * GREEDY as u64;
    let producer = timed.server.connect();
    let greedy: Vec<Connection> = (0..GREEDY).map(|_| timed.server.connect()).collect();
    let modest = timed.server.connect();
    for id in 1..=jobs {
        let put = format!("put 5 {} 3000 0 idp:i{id} con:c{id}:3 grp:g exp:90000\r\n\r\n", attack.delay_s);
        producer.send(put);
    }
    while timed.server.queue().figures().jobs.total() < jobs as usize {
        timed.turn([&producer]);
        producer.received();
    }
    if is_measured {
        timed.measure();
    }
    for (number, client) in greedy.iter().enumerate() {
        client.send((attack.commands)(&ids(number as u64, share)));
    }
    timed.turn(&greedy);
    let (mut most, mut before, mut waited) = (0, (attack.done)(timed.server.queue()), 0);
    while before < jobs {
        if waited == 0 {
            modest.send(b"peek-buried\r\n");
        }
        timed.turn((waited == 0).then_some(&modest));
        waited = if modest.received().is_empty() { waited + 1 } else { 0 };
        assert!(waited < 3 * GREEDY || !is_measured, "{}: a client waits for {waited} turns", attack.name);
        greedy.iter().for_each(|client| drop(client.received()));
        let done = (attack.done)(timed.server.queue());
        most = most.max(done - before);
        before = done;
    }
    most
}

/// The commands of the greedy clients, and the operations that they have executed.
struct Attack {
    name: &'static str,
    delay_s: u32,
    /// The commands for the ids of its share of the jobs.
    commands: fn(&[u64]) -> String,
    done: fn(&Queue) -> u64,
}

/// The ids of the jobs of one of the greedy clients, in random order.
fn ids(client: u64, share: u64) -> Vec<u64> {
    (0..share).map(|at| 1 + client * share + at * 769 % share).collect()
}

fn batches(ids: &[u64]) -> String {
    let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
    ids.chunks(1000).map(|ids| format!("delete-batch {}\r\n", ids.join(" "))).collect()
}

const ATTACKS: [Attack; 7] = [
    Attack {
        name: "deletes",
        delay_s: 0,
        commands: |ids| ids.iter().map(|id| format!("delete {id}\r\n")).collect(),
        done: |queue| queue.figures().events.deletes,
    },
    Attack {
        name: "batches of deletes",
        delay_s: 0,
        commands: batches,
        done: |queue| queue.figures().events.deletes,
    },
    Attack {
        name: "a flush",
        delay_s: 0,
        commands: |_| "flush-tube default\r\n".to_owned(),
        done: |queue| queue.figures().events.deletes,
    },
    Attack {
        name: "kicks",
        delay_s: 900,
        commands: |_| "kick 1600\r\n".to_owned(),
        done: |queue| queue.figures().events.kicks,
    },
    Attack {
        name: "batches of reserves",
        delay_s: 0,
        commands: |_| "reserve-batch 1000\r\n".repeat(2),
        done: |queue| queue.figures().events.reserves,
    },
    Attack {
        name: "releases",
        delay_s: 0,
        commands: |ids| ids.iter().map(|id| format!("reserve-job {id}\r\nrelease {id} 7 0\r\n")).collect(),
        done: |queue| queue.figures().events.releases,
    },
    Attack {
        name: "changes of the priority",
        delay_s: 0,
        commands: |ids| {
            let reprioritize = |id| format!("reprioritize {id} {}\r\n", 1000 + id);
            ids.iter().map(reprioritize).collect::<String>() + &batches(ids)
        },
        done: |queue| queue.figures().events.deletes,
    },
];

#[test]
fn a_turn_ends_when_its_time_is_over_however_little_was_counted() {
    for attack in &ATTACKS {
        let (measured, counted) = (most_in_a_turn(attack, true), most_in_a_turn(attack, false));
        println!("{}: {measured} in a turn, {counted} without a clock", attack.name);
        assert!(measured <= MAX_MEASURED, "{}: {measured} in a turn", attack.name);
        assert!(counted >= MIN_COUNTED, "{}: {counted} in a turn without a clock", attack.name);
    }
}

#[test]
fn jobs_that_expire_together_are_deleted_in_turns_of_limited_time() {
    let most_in_a_turn = |is_measured: bool| {
        let mut timed = Timed::new(None);
        let producer = timed.server.connect();
        producer.send(b"put 5 0 30 0 exp:9\r\n\r\n".repeat(2_000));
        while timed.server.queue().figures().jobs.total() < 2_000 {
            timed.turn([&producer]);
        }
        timed.time.set(START.0 + 10 * NS_PER_S);
        if is_measured {
            timed.measure();
        }
        let (mut most, mut left) = (0, 2_000);
        while left > 0 {
            timed.turn([]);
            let still = timed.server.queue().figures().jobs.total();
            most = most.max(left - still);
            left = still;
        }
        most as u64
    };
    let (measured, counted) = (most_in_a_turn(true), most_in_a_turn(false));
    assert!(measured <= 160 && counted >= 400, "{measured} and {counted} in a turn");
}

/// A name of 200 bytes takes long to match with some patterns.
#[test]
fn names_are_matched_with_the_patterns_of_roles_in_turns_of_limited_time() {
    const TUBES: usize = 1_000;
    let rules = "[identities.operator]\nunix-users = [0]\nmanage = [\"*\"]\nwork = [\"*\"]\n\
        [identities.anna]\nunix-users = [1]\nwork = [\"*a*a*a-1*\"]\n";
    let turns = |is_measured: bool| {
        let mut timed = Timed::new(Some(rules));
        let (operator, anna) = (timed.server.connect_as(OPERATOR), timed.server.connect_as(ANNA));
        let watch: String =
            (0..TUBES).map(|number| format!("watch {}-{number}\r\n", "a".repeat(180))).collect();
        timed.ask(&operator, &watch, TUBES);
        if is_measured {
            timed.measure();
        }
        let (list, turns) = timed.ask(&anna, "list-tubes\r\n", 114);
        assert_eq!(list.matches("a-1").count(), 111, "{list}");
        let (_, turns_of_stats) = timed.ask(&anna, "stats\r\n", 20);
        let (reply, turns_of_watch) = timed.ask(&anna, &(watch + "reserve-with-timeout 0\r\n"), TUBES + 1);
        assert!(reply.contains("WATCHING 111\r\n") && reply.ends_with("TIMED_OUT\r\n"), "{reply}");
        [turns, turns_of_stats, turns_of_watch]
    };
    let (measured, counted) = (turns(true), turns(false));
    println!("{measured:?} turns, {counted:?} without a clock");
    for (measured, counted) in measured.into_iter().zip(counted) {
        assert!(measured >= 20 && measured >= 2 * counted, "{measured} turns, {counted} without a clock");
    }
}

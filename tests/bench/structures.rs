//! The queue's own data structures, compared with those of the standard library and of well-known crates: `make micro`.
//!
//! Owns: the work that each pair does, and the table. Each figure comes from a separate process, so that no
//! structure finds memory that another one has left. `make bench` measures what a command costs as a whole.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};

use beanstalkd_structures::{Arena, ClientKey, Deadlines, HashIndex, IdMap, Key, OrderedQueue, Timer};
use beanstalkd_testkit::random::Random;
use beanstalkd_types::clock::Timestamp;
use beanstalkd_types::job::JobId;
use hashbrown::HashMap;
use slab::Slab;

// The server's allocator, because allocation is a large part of what a structure costs.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The number of entries while rounds are timed.
const ENTRIES: u64 = 1 << 20;
/// The number of rounds whose mean is taken. Each adds an entry, uses one, and removes one.
const ROUNDS: u64 = 2 * ENTRIES;
/// The number of entries to which the structure then grows, while its longest insertion is measured.
const GROWN: u64 = 1 << 22;
/// Processes for each figure. The smallest result counts, because other programs can only make it larger.
const RUNS: usize = 3;

/// A record of the size of a job's.
type Record = [u64; 7];

/// A measurement: the work, the structure, and the function that measures it.
type Subject = (&'static str, &'static str, fn() -> Figures);

const SUBJECTS: [Subject; 12] = [
    ("jobs of one priority: insert, pop the first", "OrderedQueue", || ordered_queue(|_| 0)),
    ("", "BTreeSet", || b_tree_set(|_| 0)),
    ("jobs of random priorities: insert, pop the first", "OrderedQueue", || ordered_queue(|random| random)),
    ("", "BTreeSet", || b_tree_set(|random| random)),
    ("records of 56 bytes: insert, get one, remove the oldest", "Arena", arena),
    ("", "slab", slab),
    ("by job id: insert, get one, remove the oldest", "IdMap", id_map),
    ("", "hashbrown", hash_map),
    ("job ids by a hash: insert, get one, remove the oldest", "HashIndex", hash_index),
    ("", "hashbrown", hash_map_of_hashes),
    ("deadlines of 2^20 clients: move one, look at the first", "Deadlines", deadlines),
    ("", "BTreeSet", deadlines_in_a_set),
];

fn main() {
    // `cargo bench` passes further flags, which are ignored.
    let asked = env::args().skip(1).find_map(|arg| arg.parse::<usize>().ok());
    match asked {
        Some(number) => {
            let Figures { round, entry_bytes, longest } = SUBJECTS[number].2();
            println!("{} {entry_bytes} {}", round.as_nanos(), longest.as_nanos());
        }
        None => print_table(),
    }
}

fn print_table() {
    println!(
        "| work, with 2^20 entries | structure | ns a round | bytes an entry | longest insertion up to 2^22, µs |"
    );
    println!("|---|---|---|---|---|");
    for (number, (work, structure, _)) in SUBJECTS.iter().enumerate() {
        let runs: Vec<[u64; 3]> = (0..RUNS).map(|_| in_a_process_of_its_own(number)).collect();
        let least = |column: usize| runs.iter().map(|run| run[column]).min().unwrap_or_default();
        println!("| {work} | {structure} | {} | {} | {} |", least(0), least(1), least(2) / 1000);
    }
}

fn in_a_process_of_its_own(number: usize) -> [u64; 3] {
    let program = env::current_exe().expect("the path of this program is known");
    let output = Command::new(program).arg(number.to_string()).output().expect("this program can be started");
    let text = String::from_utf8(output.stdout).expect("figures are text");
    let figures: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    figures.try_into().expect("the output is three figures")
}

struct Figures {
    round: Duration,
    entry_bytes: usize,
    longest: Duration,
}

/// Fills a structure, works with it, and lets it grow. `add` gets the number of the entry to add, `take` of the entry
/// to remove, and `touch` of an entry in the structure. Numbers begin at 1.
fn measure<S>(
    mut structure: S,
    mut add: impl FnMut(&mut S, u64, u32),
    mut touch: impl FnMut(&mut S, u64, u32),
    mut take: impl FnMut(&mut S, u64),
) -> Figures {
    let mut random = Random::new(1);
    let empty_bytes = resident_bytes();
    for number in 1..=ENTRIES {
        add(&mut structure, number, random.next() as u32);
    }
    let entry_bytes = (resident_bytes() - empty_bytes) / ENTRIES as usize;
    let start = Instant::now();
    for number in ENTRIES + 1..=ENTRIES + ROUNDS {
        let chance = random.next() as u32;
        add(&mut structure, number, chance);
        touch(&mut structure, number - u64::from(chance) % ENTRIES, chance);
        take(&mut structure, number - ENTRIES);
    }
    let round = start.elapsed() / ROUNDS as u32;
    let mut longest = Duration::ZERO;
    for number in ENTRIES + ROUNDS + 1..=ROUNDS + GROWN {
        let chance = random.next() as u32;
        let start = Instant::now();
        add(&mut structure, number, chance);
        longest = longest.max(start.elapsed());
    }
    black_box(structure);
    Figures { round, entry_bytes, longest }
}

fn resident_bytes() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or_default();
    pages * 4096
}

/// A key as wide as that of a ready job: a priority, and an id in two halves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ReadyKey(u32, [u32; 2]);

impl Key for ReadyKey {
    fn id(self) -> u64 {
        u64::from(self.1[0]) << 32 | u64::from(self.1[1])
    }
}

fn key(priority: u32, number: u64) -> ReadyKey {
    ReadyKey(priority, [(number >> 32) as u32, number as u32])
}

fn ordered_queue(priority: fn(u32) -> u32) -> Figures {
    measure(
        OrderedQueue::default(),
        |queue, number, random| queue.insert(key(priority(random), number)),
        |queue, _, _| {
            black_box(queue.first());
        },
        |queue, _| {
            black_box(queue.pop_first());
        },
    )
}

fn b_tree_set(priority: fn(u32) -> u32) -> Figures {
    measure(
        BTreeSet::new(),
        |set, number, random| {
            set.insert(key(priority(random), number));
        },
        |set, _, _| {
            black_box(set.first());
        },
        |set, _| {
            black_box(set.pop_first());
        },
    )
}

/// The addresses of the records by their number. Allocated in full before the measurement.
struct Addresses<A>(Vec<A>);

impl<A: Copy> Addresses<A> {
    fn new(any: A) -> Self {
        Self(vec![any; (GROWN + ROUNDS) as usize + 1])
    }
}

fn arena() -> Figures {
    let mut arena: Arena<Record> = Arena::default();
    let any = arena.insert([0; 7]);
    let mut addresses = Addresses::new(any);
    let at = RefCell::new(&mut addresses.0);
    measure(
        arena,
        |arena, number, _| at.borrow_mut()[number as usize] = arena.insert([number; 7]),
        |arena, number, _| {
            black_box(arena.get(at.borrow()[number as usize])[0]);
        },
        |arena, number| {
            black_box(arena.remove(at.borrow()[number as usize]));
        },
    )
}

fn slab() -> Figures {
    let mut slab: Slab<Record> = Slab::new();
    let any = slab.insert([0; 7]);
    let mut addresses = Addresses::new(any);
    let at = RefCell::new(&mut addresses.0);
    measure(
        slab,
        |slab, number, _| at.borrow_mut()[number as usize] = slab.insert([number; 7]),
        |slab, number, _| {
            black_box(slab[at.borrow()[number as usize]][0]);
        },
        |slab, number| {
            black_box(slab.remove(at.borrow()[number as usize]));
        },
    )
}

fn id_map() -> Figures {
    measure(
        IdMap::default(),
        |map, number, random| {
            map.insert(JobId(number), random | 1);
        },
        |map, number, _| {
            black_box(map.get(JobId(number)));
        },
        |map, number| {
            black_box(map.remove(JobId(number)));
        },
    )
}

fn hash_map() -> Figures {
    measure(
        HashMap::new(),
        |map, number, random| {
            map.insert(number, random | 1);
        },
        |map, number, _| {
            black_box(map.get(&number));
        },
        |map, number| {
            black_box(map.remove(&number));
        },
    )
}

/// A hash that looks like chance.
fn hash(number: u64) -> u64 {
    let bits = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits ^ bits >> 32
}

fn hash_index() -> Figures {
    measure(
        HashIndex::default(),
        |index, number, _| index.insert(hash(number), number),
        |index, number, _| {
            black_box(index.get(hash(number)));
        },
        |index, number| {
            black_box(index.remove(hash(number), |other| other == number));
        },
    )
}

fn hash_map_of_hashes() -> Figures {
    measure(
        HashMap::new(),
        |map, number, _| {
            map.insert(hash(number), number);
        },
        |map, number, _| {
            black_box(map.get(&hash(number)));
        },
        |map, number| {
            black_box(map.remove(&hash(number)));
        },
    )
}

/// The client of an entry. A round never moves the deadline of a client that it adds or removes.
fn client(number: u64) -> ClientKey {
    ClientKey((number % (2 * GROWN)) as u32)
}

fn deadlines() -> Figures {
    measure(
        Deadlines::default(),
        |deadlines, number, random| {
            deadlines.set(Timer::Client(client(number)), Some(Timestamp(u64::from(random) + 1)));
        },
        |deadlines, number, random| {
            deadlines.set(Timer::Client(client(number)), Some(Timestamp(u64::from(random) + 2)));
            black_box(deadlines.first());
        },
        |deadlines, number| deadlines.set(Timer::Client(client(number)), None),
    )
}

/// A `BTreeSet` of deadlines, and each client's deadline, by which its entry is found.
fn deadlines_in_a_set() -> Figures {
    let set_to = |(set, known): &mut (BTreeSet<(u64, ClientKey)>, Vec<u64>), number: u64, at: u64| {
        let client = client(number);
        if known.len() <= client.index() {
            known.resize(client.index() + 1, 0);
        }
        let before = std::mem::replace(&mut known[client.index()], at);
        if before > 0 {
            set.remove(&(before, client));
        }
        if at > 0 {
            set.insert((at, client));
        }
    };
    measure(
        (BTreeSet::new(), Vec::new()),
        |both, number, random| set_to(both, number, u64::from(random) + 1),
        |both, number, random| {
            set_to(both, number, u64::from(random) + 2);
            black_box(both.0.first());
        },
        |both, number| set_to(both, number, 0),
    )
}

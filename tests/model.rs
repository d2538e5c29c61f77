//! Compares the queue with a naive model of it, also while a tube is listed or flushed; and, without the model, checks
//! that nothing is lost between the slices of long work.
//!
//! `MODEL_CASES=n` sets the number of cases, and `SEED=n` runs one of them. If a case fails, the test shortens its list
//! of operations for as long as the shorter list still fails, and prints the result.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::thread;

use beanstalkd_queue::{FlushScope, FlushStep, Page, PageOrder, PoisonLimits, Search};
use beanstalkd_testkit::cells::cells_of;
use beanstalkd_testkit::operations::{
    ClientCommand, Operation, Pair, case, listing, operation, run, run_in_slices, shorten, sliced_case,
};
use beanstalkd_testkit::random::{Random, number_from_environment};
use beanstalkd_testkit::weighted;
use beanstalkd_types::job::{JobId, JobState, Position};
use beanstalkd_types::tags::JobTags;
use beanstalkd_types::tube_name::TubeName;

type Case = fn(u64) -> (PoisonLimits, Vec<Operation>);

/// The number of cases, unless `MODEL_CASES` is set.
const CASES: u64 = 50_000;

/// Rows of the table of tags that are no operations of the queue.
const ELSEWHERE: [&str; 2] = ["drain", "restart"];

thread_local! {
    /// The message and the place of the last panic of a thread that collects them.
    static PANIC_MESSAGE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The seeds of a test whose cases are this many times as long as the usual ones.
fn seeds(length: u64) -> Range<u64> {
    match number_from_environment("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number_from_environment("MODEL_CASES").unwrap_or(CASES) / length,
    }
}

/// Runs the cases; fails with the shortest list of operations that fails.
fn check_cases(length: u64, case: Case, run: impl Fn(PoisonLimits, &[Operation])) {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        PANIC_MESSAGE.with_borrow_mut(|message| match message {
            Some(message) => *message = info.to_string(),
            None => usual(info),
        });
    }));
    PANIC_MESSAGE.set(Some(String::new()));
    let failure = seeds(length).find_map(|seed| {
        let (limits, operations) = case(seed);
        let fails = |operations: &[Operation]| {
            panic::catch_unwind(AssertUnwindSafe(|| run(limits, operations))).is_err()
        };
        fails(&operations).then(|| {
            let shortest = shorten(operations, fails);
            fails(&shortest);
            format!(
                "SEED={seed} {limits:?}\n{}{}",
                listing(&shortest),
                PANIC_MESSAGE.take().unwrap_or_default()
            )
        })
    });
    PANIC_MESSAGE.set(None);
    if let Some(failure) = failure {
        panic!("{failure}");
    }
}

#[test]
fn the_queue_does_what_the_model_does() {
    check_cases(1, case, run);
}

#[test]
fn nothing_is_lost_between_the_slices_of_long_work() {
    let (all, met) = (Cell::new(0), Cell::new(0));
    check_cases(250, sliced_case, |limits, operations| {
        met.set(met.get() + run_in_slices(limits, operations));
        all.set(all.get() + operations.len());
    });
    let (met, all) = (met.get(), all.get());
    assert!(all < 1_000 || met > all / 20, "{met} of {all} operations came while work was left");
}

/// The rows and columns of the table of tags in the document, without the cells where nothing happens.
fn documented_cells() -> BTreeSet<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("doc/protocol.md");
    let document = std::fs::read_to_string(path).expect("the document can be read");
    let table = document.lines().skip_while(|line| !line.starts_with("| | `idp` |"));
    let mut rows =
        table.take_while(|line| line.starts_with('|')).map(|line| line.split('|').map(str::trim).skip(1));
    let columns: Vec<&str> =
        rows.next().expect("there is a table").map(|word| word.trim_matches('`')).collect();
    let mut cells = BTreeSet::new();
    for mut row in rows.skip(1) {
        let name = row.next().unwrap_or_default();
        let with_content = row.zip(&columns[1..]).filter(|(text, _)| !text.is_empty() && *text != "–");
        cells.extend(with_content.map(|(_, column)| (name.to_owned(), (*column).to_owned())));
    }
    cells
}

/// The comparison of the queue with its model says something about each cell, because the cases come to each.
#[test]
fn the_cases_come_to_each_cell_of_the_table_of_tags() {
    let mut left = documented_cells();
    assert!(left.len() > 60, "the table is found: {left:?}");
    left.retain(|(row, _)| !ELSEWHERE.contains(&row.as_str()));
    for seed in 0..CASES {
        let (limits, operations) = case(seed);
        let mut pair = Pair::new(limits);
        for operation in operations {
            let before = pair.model.clone();
            pair.step(operation);
            for (row, column) in cells_of(operation, &before, &pair.model) {
                left.remove(&(row.to_owned(), column.to_owned()));
            }
        }
        if left.is_empty() {
            println!("{} cases have come to all cells", seed + 1);
            return;
        }
    }
    panic!("no case has come to {left:?}");
}

const STATES: [JobState; 4] = [JobState::Ready, JobState::Reserved, JobState::Delayed, JobState::Buried];

/// The tube that is listed or flushed while its jobs change.
const TUBE: &str = "a";

/// A queue that changes at random, and the jobs of [`TUBE`] that have stayed where they were at the beginning.
struct Busy {
    seed: u64,
    pair: Pair,
    random: Random,
    /// Only jobs that have stayed in this state, at the same position, count.
    state: Option<JobState>,
    /// A job that is released may go to another client at once, with the same deadline. So the reserves count too.
    steady: BTreeMap<JobId, Option<(Position, u32)>>,
}

impl Busy {
    fn new(seed: u64, state: Option<JobState>) -> Self {
        let (pair, random) = (Pair::new(PoisonLimits::default()), Random::new(seed));
        let mut busy = Self { seed, pair, random, state, steady: BTreeMap::new() };
        (0..4).for_each(|_| busy.step(Operation::Connect));
        (0..busy.random.below(120)).for_each(|_| busy.change());
        busy.steady = busy.places();
        busy
    }

    fn places(&self) -> BTreeMap<JobId, Option<(Position, u32)>> {
        let Pair { queue, model, .. } = &self.pair;
        let (tube, state) = (model.find(TUBE), self.state.map(JobState::as_str));
        let jobs = model.jobs.iter().filter(|job| Some(job.tube) == tube);
        jobs.filter(|job| state.is_none_or(|state| state == job.state.as_str()))
            .map(|job| {
                let position = state.and(queue.position(JobId(job.id)));
                (JobId(job.id), position.map(|position| (position, job.counters.reserves)))
            })
            .collect()
    }

    fn step(&mut self, operation: Operation) {
        self.pair.step(operation);
        let places = self.places();
        self.steady.retain(|id, place| places.get(id) == Some(place));
    }

    /// Does a random operation, or one that fills the tube. A flush may delay the end of a group in ways that the model
    /// does not know.
    fn change(&mut self) {
        use ClientCommand as C;
        let random = &mut self.random;
        let (client, job) = (random.below(64), random.next());
        let [priority, delay_s, ttr_s] = [(); 3].map(|()| random.below(3) as u32);
        let (delay_s, ttr_s, tags) = (delay_s.into(), ttr_s.into(), JobTags::default());
        let put = C::Put { priority, delay_s, ttr_s, tags, is_announced: random.once_in(4) };
        let commands = |commands: &[ClientCommand]| -> Vec<Operation> {
            commands.iter().map(|&command| Operation::Command { client, command }).collect()
        };
        let operations = weighted!(
            random,
            (5, vec![operation(random)]),
            (1, vec![Operation::StopWaiting { client }]),
            (3, commands(&[C::Use { tube: TUBE }, put])),
            (1, commands(&[C::ReserveJob { job }])),
            (1, commands(&[C::ReserveJob { job }, C::Bury { job, priority }])),
        );
        operations.into_iter().filter(|one| !one.may_hold()).for_each(|one| self.step(one));
    }

    fn page(&mut self, after: Option<Position>, limit: usize) -> Page {
        if let Some(state) = self.state.filter(|&state| state != JobState::Reserved) {
            return self.pair.queue.page(TUBE, state, after, limit).unwrap_or_default();
        }
        let tube = TubeName::parse(TUBE.as_bytes()).expect("the name is valid");
        let mut search = Search::new(tube, PageOrder::Deadline, after, limit);
        while !self.pair.queue.search_reserved(&mut search, 4) {
            self.change();
        }
        search.into_page()
    }

    /// Flushes the tube; returns how many jobs were deleted.
    fn flush(mut self, scope: FlushScope) -> usize {
        // Their jobs may be put during the flush, also at its instant.
        let announce = ClientCommand::AnnouncePut;
        (0..4).for_each(|client| self.step(Operation::Command { client, command: announce }));
        let Some(flusher) = self.pair.begin_flush(TUBE, scope) else { return 0 };
        let mut flushed = 0;
        loop {
            match self.pair.continue_flush(flusher) {
                FlushStep::Job(id) => {
                    assert!(self.steady.remove(&id).is_some(), "{id:?}");
                    flushed += 1;
                }
                FlushStep::Unfinished | FlushStep::Cooldown(_) => {}
                FlushStep::Done => break,
            }
            (0..self.random.below(3)).for_each(|_| self.change());
        }
        assert!(self.steady.is_empty(), "{:?} are left", self.steady);
        flushed
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("SEED={}", self.seed);
        }
    }
}

#[test]
fn a_job_that_stays_in_its_state_is_on_exactly_one_page_whatever_others_do() {
    let (mut cases, mut steady_jobs) = (0, 0);
    for seed in seeds(25) {
        let mut busy = Busy::new(seed, Some(STATES[seed as usize % 4]));
        let limit = busy.random.within(1..=6) as usize;
        let (mut listed, mut after) = (Vec::new(), None);
        loop {
            let page = busy.page(after, limit);
            assert!(page.jobs.len() <= limit && page.next.is_none_or(|next| Some(next) > after));
            listed.extend(page.jobs.into_iter().map(|position| position.id));
            after = page.next;
            if after.is_none() {
                break;
            }
            (0..busy.random.below(4)).for_each(|_| busy.change());
        }
        for id in busy.steady.keys() {
            let times = listed.iter().filter(|&other| other == id).count();
            assert_eq!(times, 1, "{id:?} of {:?} by {limit}: {listed:?}", busy.state);
            steady_jobs += 1;
        }
        cases += 1;
    }
    assert!(steady_jobs >= cases / 2, "{steady_jobs} jobs are too few");
}

#[test]
fn a_flush_deletes_the_jobs_that_were_there_and_no_others_whatever_happens() {
    for (scope, state) in [(FlushScope::All, None), (FlushScope::Buried, Some(JobState::Buried))] {
        let flushed: Vec<_> = seeds(25).map(|seed| Busy::new(seed, state).flush(scope)).collect();
        let sum: usize = flushed.iter().sum();
        assert!(sum >= flushed.len() / 2, "{sum} jobs are too few");
    }
}

//! Compares the queue with a naive model of it.
//!
//! `MODEL_CASES=n` sets the number of cases, and `SEED=n` runs one of them. If a case fails, the test shortens its list
//! of operations for as long as the shorter list still fails, and prints the result.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};

use beanstalkd_testkit::operations::{Operation, case, listing, run, shorten};
use beanstalkd_testkit::random::number_from_environment;

/// The number of cases, unless `MODEL_CASES` is set.
const CASES: u64 = 50_000;

thread_local! {
    /// The message and the place of the last panic.
    static PANIC_MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
}

#[test]
fn the_queue_does_what_the_model_does() {
    let seeds = match number_from_environment("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number_from_environment("MODEL_CASES").unwrap_or(CASES),
    };
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|info| PANIC_MESSAGE.set(info.to_string())));
    let failure = seeds.into_iter().find_map(|seed| {
        let (limits, operations) = case(seed);
        let fails = |operations: &[Operation]| {
            panic::catch_unwind(AssertUnwindSafe(|| run(limits, operations))).is_err()
        };
        fails(&operations).then(|| {
            let shortest = shorten(operations, fails);
            fails(&shortest);
            format!("SEED={seed} {limits:?}\n{}{}", listing(&shortest), PANIC_MESSAGE.take())
        })
    });
    panic::set_hook(hook);
    if let Some(failure) = failure {
        panic!("{failure}");
    }
}

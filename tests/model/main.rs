//! The queue against a naive model of it.
//!
//! `MODEL_CASES=n` sets the number of cases, `SEED=n` runs one of them. A case that fails is printed as the
//! shortest list of operations that still does.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};

use beanstalkd_testkit::operations::{Operation, case, listing, run, shorten};
use beanstalkd_testkit::random::number_from_environment;

/// Cases where the environment asks for no other number.
const CASES: u64 = 50_000;

thread_local! {
    /// What the last panic said, and where.
    static COMPLAINT: RefCell<String> = const { RefCell::new(String::new()) };
}

#[test]
fn the_queue_does_what_the_model_does() {
    let seeds = match number_from_environment("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number_from_environment("MODEL_CASES").unwrap_or(CASES),
    };
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|info| COMPLAINT.set(info.to_string())));
    let failure = seeds.into_iter().find_map(|seed| {
        let (limits, operations) = case(seed);
        let fails = |operations: &[Operation]| {
            panic::catch_unwind(AssertUnwindSafe(|| run(limits, operations))).is_err()
        };
        fails(&operations).then(|| {
            let shortest = shorten(operations, fails);
            fails(&shortest);
            format!("SEED={seed} {limits:?}\n{}{}", listing(&shortest), COMPLAINT.take())
        })
    });
    panic::set_hook(hook);
    if let Some(failure) = failure {
        panic!("{failure}");
    }
}

//! Arbitrary bytes as operations on the queue. The queue must do the same as its model.

use beanstalkd_queue::PoisonLimits;

use crate::operations::{Operation, operation, run_with_usual_slices};
use crate::random::Random;

/// The first byte of `input` sets the limits; every eight after it are an operation.
pub fn check(input: &[u8]) {
    let Some((&limits, rest)) = input.split_first() else { return };
    let limit = |bits: u8| (bits != 0).then_some(u32::from(bits));
    let limits = PoisonLimits { timeouts: limit(limits & 3), releases: limit(limits >> 2 & 3) };
    let (numbers, _) = rest.as_chunks::<8>();
    let chosen = numbers.iter().map(|&bytes| operation(&mut Random::new(u64::from_le_bytes(bytes))));
    let operations: Vec<Operation> = [Operation::Connect].into_iter().chain(chosen).collect();
    run_with_usual_slices(limits, &operations);
}

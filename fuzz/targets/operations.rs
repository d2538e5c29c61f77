//! libFuzzer's way into the sequences of operations.
#![no_main]
#![allow(dead_code, reason = "the model test and the simulation use the rest of these modules")]

#[path = "../../tests/model/naive.rs"]
mod naive;
#[path = "../src/operation_sequence.rs"]
mod operation_sequence;
#[path = "../../tests/model/operations.rs"]
mod operations;
#[path = "../../tests/model/random.rs"]
mod random;

libfuzzer_sys::fuzz_target!(|input: &[u8]| operation_sequence::check(input));

//! libFuzzer's way into the body of the same name.
#![no_main]

#[path = "../src/command_line.rs"]
mod command_line;

libfuzzer_sys::fuzz_target!(|input: &[u8]| command_line::check(input));

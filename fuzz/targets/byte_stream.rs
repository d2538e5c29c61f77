//! libFuzzer's way into the body of the same name.
#![no_main]
#![allow(dead_code, reason = "the simulation uses the rest of these modules")]

#[path = "../src/byte_stream.rs"]
mod byte_stream;
#[path = "../../tests/simulation/observer.rs"]
mod observer;
#[path = "../../tests/model/random.rs"]
mod random;
#[path = "../../tests/simulation/sockets.rs"]
mod sockets;
#[path = "../../tests/simulation/subject.rs"]
mod subject;

libfuzzer_sys::fuzz_target!(|input: &[u8]| byte_stream::check(input));

//! libFuzzer's way into the body of the same name.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| beanstalkd_testkit::fuzz::description(input));

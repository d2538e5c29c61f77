//! The libFuzzer entry point of the body with the same name in the test kit.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| beanstalkd_testkit::fuzz::command_line(input));

//! The libFuzzer entry point of the target with this name in the test kit.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| beanstalkd_testkit::fuzz::check("description", input));

//! The beanstalkd program: start-up order and exit codes.

fn main() {}

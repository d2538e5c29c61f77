//! A wall clock that is wrong, or that is set while a server runs.
//!
//! Owns: a library that adds a day to the wall clock, or subtracts one, while a file exists. Without such a file it
//! adds the seconds in the variable `WRONG_BY`, if a server has it. It changes no other clock.
//! The C compiler builds it when a test runs.

use std::path::Path;
use std::process::Command;

/// The file that makes it a day later.
pub const FORTH: &str = "STEP_FORTH";
/// The file that makes it a day earlier.
pub const BACK: &str = "STEP_BACK";

const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long step(void) {
    if (access(getenv("STEP_FORTH"), F_OK) == 0) return 86400;
    if (access(getenv("STEP_BACK"), F_OK) == 0) return -86400;
    return getenv("WRONG_BY") ? atoi(getenv("WRONG_BY")) : 0;
}
int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = syscall(SYS_clock_gettime, clock, time);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) time->tv_sec += step();
    return result;
}
int gettimeofday(struct timeval *time, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}
"#;

/// Builds the library in `directory`, where it looks for the two files. Returns the variables, as `name=value`, with
/// which a server has this clock.
///
/// # Panics
///
/// If there is no C compiler.
pub fn variables(directory: &Path) -> [String; 3] {
    let path = |name: &str| directory.join(name).to_str().expect("a path of ours is text").to_owned();
    let (source, library) = (path("clock.c"), path("clock.so"));
    std::fs::write(&source, SOURCE).expect("the directory is ours");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o", &library, &source]).status();
    assert!(built.is_ok_and(|status| status.success()), "cc makes {library}");
    let file = |name: &str| format!("{name}={}", path(name));
    [format!("LD_PRELOAD={library}"), file(FORTH), file(BACK)]
}

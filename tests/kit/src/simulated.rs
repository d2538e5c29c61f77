//! The executor under simulation, and the system facts that it gets.

use std::time::Duration;

use beanstalkd::server::{Executor, ExecutorConfig};
use beanstalkd::stats::ServerInfo;
use beanstalkd_model::{BINLOG_FILE_BYTES, PID, VERSION};
use beanstalkd_os::process::CpuTime;
use beanstalkd_queue::PoisonLimits;
use beanstalkd_types::clock::Timestamp;

/// The time at which the server starts.
pub const START: Timestamp = Timestamp(1_700_000_000_123_456_789);

pub const INSTANCE: u64 = 0x0123_4567_89ab_cdef;

/// An executor with an empty queue.
pub fn executor(poison: PoisonLimits, max_job_bytes: u32) -> Executor {
    let config = ExecutorConfig {
        max_job_bytes: u64::from(max_job_bytes),
        binlog_file_bytes: BINLOG_FILE_BYTES,
        poison,
        ..ExecutorConfig::default()
    };
    let info = ServerInfo {
        version: VERSION.to_owned(),
        instance: ServerInfo::instance_of(INSTANCE),
        pid: PID,
        hostname: "host".to_owned(),
        os: "#1 SMP".to_owned(),
        platform: "x86_64".to_owned(),
        started_at: START,
        cpu_time: || CpuTime { user: Duration::from_millis(1500), system: Duration::from_micros(7) },
    };
    Executor::new(config, info)
}

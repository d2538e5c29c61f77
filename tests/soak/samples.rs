//! Samples of the server's resources, and their change over time.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use beanstalkd_testkit::client::{Client, Failure, count_jobs};

const MIB: f64 = (1 << 20) as f64;

/// The server's resources at one time.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Time since this run of the server began.
    pub at: Duration,
    pub resident_bytes: u64,
    pub descriptors: u64,
    pub connections: u64,
    pub binlog_files: u64,
    pub binlog_bytes: u64,
    pub jobs: u64,
    pub tubes: u64,
    pub processor_time: Duration,
}

impl Sample {
    /// Takes a sample: asks the server over `control`, and reads the figures of the kernel about the process `pid`. The
    /// binlog is in `directory`.
    pub fn take(at: Duration, pid: u64, directory: &Path, control: &mut Client) -> Result<Self, Failure> {
        let stats = control.pairs("stats")?;
        let (binlog_files, binlog_bytes) = binlog(directory)?;
        Ok(Self {
            at,
            resident_bytes: resident_bytes(pid)?,
            descriptors: fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64,
            connections: number(&stats, "current-connections"),
            binlog_files,
            binlog_bytes,
            jobs: count_jobs(&stats),
            tubes: number(&stats, "current-tubes"),
            processor_time: processor_time(pid)?,
        })
    }

    /// The descriptors that are neither of a connection nor of a file of the binlog.
    pub fn own_descriptors(&self) -> u64 {
        self.descriptors.saturating_sub(self.connections + self.binlog_files)
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:6.0} s: {:7.3} MiB resident, {:3} descriptors for {:3} connections, {:6.2} MiB of binlog, \
             {} jobs in {} tubes, {:.1} s of processor",
            self.at.as_secs_f64(),
            self.resident_bytes as f64 / MIB,
            self.descriptors,
            self.connections,
            self.binlog_bytes as f64 / MIB,
            self.jobs,
            self.tubes,
            self.processor_time.as_secs_f64(),
        )
    }
}

/// A number of `stats`; 0 if it is not a number.
fn number(stats: &BTreeMap<String, String>, key: &str) -> u64 {
    stats.get(key).and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn resident_bytes(pid: u64) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kilobytes.map(|count| count * 1024).ok_or_else(|| io::Error::other("no Rss in smaps_rollup"))
}

/// The number of files of the binlog, and their bytes.
fn binlog(directory: &Path) -> io::Result<(u64, u64)> {
    let (mut files, mut bytes) = (0, 0);
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("binlog.") {
            files += 1;
            // The server may have removed the file in the meantime.
            bytes += entry.metadata().map_or(0, |metadata| metadata.len());
        }
    }
    Ok((files, bytes))
}

/// The processor time of all threads.
fn processor_time(pid: u64) -> io::Result<Duration> {
    let mut time = Duration::ZERO;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(task?.path().join("schedstat"))?;
        let nanoseconds = text.split(' ').next().and_then(|word| word.parse().ok());
        time += Duration::from_nanos(nanoseconds.unwrap_or(0));
    }
    Ok(time)
}

/// How fast the resident memory grows, by least squares: MiB per hour, and the standard error of that.
pub fn memory_slope(samples: &[Sample]) -> (f64, f64) {
    let points = samples.iter().map(|it| (it.at.as_secs_f64() / 3600.0, it.resident_bytes as f64 / MIB));
    let points: Vec<(f64, f64)> = points.collect();
    let count = points.len() as f64;
    let mean = |value: fn(&(f64, f64)) -> f64| points.iter().map(value).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
    let spread: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let slope = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum::<f64>() / spread;
    let rest: f64 = points.iter().map(|(x, y)| (y - mean_y - slope * (x - mean_x)).powi(2)).sum();
    (slope, (rest / (count - 2.0) / spread).sqrt())
}

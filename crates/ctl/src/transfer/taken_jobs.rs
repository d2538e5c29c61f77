//! FILE.taking, beside the file of an export with `--drain`: the jobs that the export has begun to take.
//!
//! Owns: whether a job on the server is the job of an entry, and the states that jobs had before they were buried for
//! the export.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use beanstalk_client::{JobInfo, JobState, Tag};
use serde_json::{Value, json};

use super::destination::beside;
use crate::failure::{Failure, OfFile, Result};
use crate::server::Server;

/// How far two calculations of the time of a put may differ, in seconds: times and ages are whole seconds.
const ROUNDING_S: u64 = 2;

/// How many jobs the server is asked for at once.
const BATCH: usize = 500;

/// The jobs that interrupted exports from this server to the file have begun to take.
pub struct TakenJobs {
    path: PathBuf,
    jobs: HashMap<u64, TakenJob>,
    server: String,
    address: String,
}

/// A job before it was reserved and buried for the export.
struct TakenJob {
    /// The `id` of the stats of the server when an export first began to take the job.
    server: String,
    /// The address of the server.
    address: String,
    /// The time of the entry, in seconds since 1970, and the age of the job.
    time: u64,
    age: u64,
    state: JobState,
    left: u64,
    reserves: u64,
    buries: u64,
    tags: Vec<Tag>,
}

impl TakenJobs {
    /// Reads the FILE.taking of `file`, if there is one. It fails if another server may have the jobs.
    pub fn read(file: &Path, server: &Server) -> Result<Self> {
        let path = beside(file, ".taking");
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            other => Some(other.of_file(&path)?),
        };
        let (server, address) = (server.id(), server.address.to_string());
        let mut jobs = HashMap::new();
        for line in file.into_iter().flat_map(|file| BufReader::new(file).split(b'\n')) {
            // The last line may be incomplete. It was not synced, so nothing was done after it.
            let Ok(entry) = serde_json::from_slice(&line.of_file(&path)?) else { continue };
            let Some((id, job)) = taken(&entry) else { continue };
            if job.server != server && job.address != address {
                let address = job.address;
                let error = format!(
                    "an export of {address} to this file is not complete: continue it with --server {address}, or \
                     name another file"
                );
                return Err(Failure::file(&path, error));
            }
            jobs.insert(id, job);
        }
        Ok(Self { path, jobs, server, address })
    }

    /// The path of FILE.taking.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Passes the jobs that are still on the server to `each`, except jobs that clients have reserved.
    pub fn present(&self, server: &mut Server, each: &mut dyn FnMut(JobInfo)) -> Result {
        self.on_server(server, &mut |info, _| {
            if info.state != JobState::Reserved {
                each(info);
            }
        })
    }

    /// The number of jobs that are still on the server. Jobs that workers have reserved do not count, nor jobs that
    /// have not changed because the server refuses to reserve them. The connection of an interrupted export may still
    /// have reserved a job, until the server notices that it has ended.
    pub fn unfinished(&self, server: &mut Server) -> Result<u64> {
        let mut count = 0;
        self.on_server(server, &mut |info, taken| {
            let is_reserved_by_worker =
                info.state == JobState::Reserved && info.reserves != taken.reserves + 1;
            let is_unchanged = (info.state, info.reserves) == (taken.state, taken.reserves);
            count += u64::from(!is_reserved_by_worker && !is_unchanged);
        })?;
        Ok(count)
    }

    fn on_server(&self, server: &mut Server, each: &mut dyn FnMut(JobInfo, &TakenJob)) -> Result {
        let ids: Vec<u64> = self.jobs.keys().copied().collect();
        for ids in ids.chunks(BATCH) {
            for info in server.job_infos(ids.iter().copied())?.into_iter().flatten() {
                if let Some(taken) = self.get(&info) {
                    each(info, taken);
                }
            }
        }
        Ok(())
    }

    /// The entry of this job. In one run of a server, an id belongs to one job. A server that has lost its jobs assigns
    /// the same ids again, but those jobs were put after the entry was written.
    fn get(&self, info: &JobInfo) -> Option<&TakenJob> {
        self.jobs.get(&info.id).filter(|taken| {
            let put_at = |time: u64, age: u64| time.saturating_sub(age);
            let difference = put_at(now(), info.age).abs_diff(put_at(taken.time, taken.age));
            taken.server == self.server || (taken.age > ROUNDING_S && difference <= ROUNDING_S)
        })
    }

    /// Returns the `id` of the stats of the server when an export first began to take this job. If that export was
    /// interrupted after it had reserved or buried the job, sets the state and the tags that the job had before.
    ///
    /// A worker may have reserved and buried the job in the meantime, once: the counters are then the same as if the
    /// export had done it, and the job gets the earlier state.
    pub fn restore(&self, info: &mut JobInfo) -> String {
        let Some(taken) = self.get(info) else { return self.server.clone() };
        let reserves = taken.reserves;
        let is_changed = match info.state {
            // If it was not reserved again, an earlier interrupted export had buried it. The counter of burials says
            // nothing: C counts a burial again when it restarts.
            JobState::Buried => [reserves, reserves + 1].contains(&info.reserves),
            JobState::Ready => (info.reserves, info.buries) == (reserves + 1, taken.buries),
            JobState::Delayed | JobState::Reserved => false,
        };
        if is_changed {
            (info.state, info.time_left) = (taken.state, taken.left);
            info.tags.clone_from(&taken.tags);
        }
        taken.server.clone()
    }

    /// The entry of a job, as a line. `server` is what [`TakenJobs::restore`] has returned.
    pub fn entry(&self, info: &JobInfo, server: &str) -> String {
        let entry = json!({
            "id": info.id,
            "state": info.state.as_str(),
            "left": info.time_left,
            "reserves": info.reserves,
            "buries": info.buries,
            // A job that was reserved loses its expiry.
            "tags": info.tags.iter().map(Tag::to_string).collect::<Vec<_>>(),
            "age": info.age,
            "time": now(),
            "server": server,
            "address": self.address,
        });
        format!("{entry}\n")
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

fn taken(entry: &Value) -> Option<(u64, TakenJob)> {
    let number = |key: &str| entry[key].as_u64();
    let text = |key: &str| entry[key].as_str().map(str::to_owned);
    let tag = |tag: &Value| tag.as_str()?.parse().ok();
    let job = TakenJob {
        server: text("server")?,
        address: text("address")?,
        time: number("time")?,
        age: number("age")?,
        state: entry["state"].as_str()?.parse().ok()?,
        left: number("left")?,
        reserves: number("reserves")?,
        buries: number("buries")?,
        tags: entry["tags"].as_array()?.iter().map(tag).collect::<Option<_>>()?,
    };
    Some((number("id")?, job))
}

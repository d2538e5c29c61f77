//! An idle log stops copying jobs.

use beanstalkd_binlog::SyncPolicy;
use beanstalkd_types::job::{Body, JobId};

use crate::fixture::{Fixture, job};
use beanstalkd_testkit::disk::{Random, SimDisk};

/// The number of turns after which an idle log must have no more work.
const MAX_TURNS: usize = 1000;

/// The number of turns until no work is due; `None` if that takes more than [`MAX_TURNS`].
fn turns_until_idle(fixture: &mut Fixture) -> Option<usize> {
    (0..MAX_TURNS).find(|_| {
        fixture.commit();
        fixture.log.next_deadline().is_none_or(|at| at > fixture.now)
    })
}

#[test]
fn an_idle_log_stops_copying_jobs() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let file_bytes = [4096, 8192, 16_384][seed as usize % 3];
        let disk = SimDisk::default();
        let mut fixture = Fixture::open(&disk, SyncPolicy::Every(50), file_bytes);
        let body_bytes = random.below(if seed % 2 == 0 { 10 } else { 2500 });
        fixture.body = Body::copy_of(&vec![b'x'; body_bytes as usize]).unwrap();
        let jobs = 1 + random.below(400);
        for _ in 0..jobs {
            fixture.put().unwrap();
            if random.once_in(10) {
                fixture.commit();
            }
        }
        let deleted = random.below(5);
        for id in (1..=jobs).filter(|id| id % 5 < deleted) {
            fixture.log.append_delete(JobId(id));
        }
        for id in (1..=jobs).filter(|id| id % 5 >= deleted && id % 7 < 3) {
            fixture.update(&job(id)).unwrap();
        }
        assert!(
            turns_until_idle(&mut fixture).is_some(),
            "seed {seed}, -s {file_bytes}, {jobs} jobs of {body_bytes} bytes, {deleted} of 5 deleted: {:?}",
            fixture.log.stats()
        );
    }
}

//! A log that is left alone comes to rest: it copies no job for ever.

use beanstalkd::binlog::SyncPolicy;
use beanstalkd::job::{Body, JobId};

use crate::room::{Shop, job};
use beanstalkd_testkit::disk::{Random, SimDisk};

/// Turns after which a log that nobody uses must be at rest.
const TURNS_TO_REST: usize = 1000;

/// Turns until nothing more is due at once; `None` where that does not come.
fn turns_to_rest(shop: &mut Shop) -> Option<usize> {
    (0..TURNS_TO_REST).find(|_| {
        shop.commit();
        shop.log.next_deadline().is_none_or(|at| at > shop.now)
    })
}

#[test]
fn a_log_that_is_left_alone_comes_to_rest() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let file_bytes = [4096, 8192, 16_384][seed as usize % 3];
        let disk = SimDisk::default();
        let mut shop = Shop::open(&disk, SyncPolicy::Every(50), file_bytes);
        let body_bytes = random.below(if seed % 2 == 0 { 10 } else { 2500 });
        shop.body = Body::copy_of(&vec![b'x'; body_bytes as usize]).unwrap();
        let jobs = 1 + random.below(400);
        for _ in 0..jobs {
            shop.put().unwrap();
            if random.once_in(10) {
                shop.commit();
            }
        }
        let deleted = random.below(5);
        for id in (1..=jobs).filter(|id| id % 5 < deleted) {
            shop.log.append_delete(JobId(id));
        }
        for id in (1..=jobs).filter(|id| id % 5 >= deleted && id % 7 < 3) {
            shop.update(&job(id)).unwrap();
        }
        assert!(
            turns_to_rest(&mut shop).is_some(),
            "seed {seed}, -s {file_bytes}, {jobs} jobs of {body_bytes} bytes, {deleted} of 5 deleted: {:?}",
            shop.log.stats()
        );
    }
}

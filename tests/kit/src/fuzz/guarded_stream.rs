//! Arbitrary bytes from a client of a server with access rules. The client must not see or change anything in the tube
//! that it may not see, and the replies must not depend on how the bytes are split into reads.

use beanstalkd::access::{AccessRules, TokenHash};
use beanstalkd::server::Server;
use beanstalkd_queue::PoisonLimits;
use beanstalkd_types::job::{Body, Counters, JobId, JobRecord, JobState, Priority};
use beanstalkd_types::tube_name::TubeName;

use super::byte_stream::{MAX_JOB_BYTES, check_with};
use crate::simulated::{START, executor};
use crate::sockets::FakeStream;

/// A token that makes the client an identity with other rights. The inputs know it.
const TOKEN: &[u8] = b"the-token-of-the-guarded-stream-0";
/// A text that no input contains: the name of a tube that no pattern matches, and the body of each job that the client
/// may not see.
const SECRET: &str = "zzSECRETzz";
/// Another tube that no pattern matches. The inputs know its name.
const HIDDEN: &str = "hidden";

/// Checks one input, as `byte_stream` does.
pub fn check(input: &[u8]) {
    let sent = check_with(input, server, inspect);
    assert!(!String::from_utf8_lossy(&sent).contains(SECRET), "another tube or a job of it was shown");
}

fn server() -> Server<FakeStream> {
    let rules = format!(
        "[strangers]\nproduce = [\"a*\"]\nwork = [\"a\"]\nputs-per-second = 1000000\n[identities.b]\n\
         tokens = [\"{}\"]\nproduce = [\"b*\", \"default\"]\nwork = [\"b\"]\nobserve = [\"a*\"]\n\
         manage = [\"default\"]\nmax-job-bytes = 2000\n",
        TokenHash::of(TOKEN)
    );
    let mut executor = executor(PoisonLimits::default(), MAX_JOB_BYTES);
    executor.guard_with(AccessRules::parse(&rules, &|_| None).expect("the rules are right"));
    for (id, tube) in (1..).zip([HIDDEN, SECRET]) {
        let record = JobRecord {
            id: JobId(id),
            priority: Priority(0),
            delay_s: 0.into(),
            ttr_s: 1.into(),
            created_at: START,
            deadline_at: START,
            counters: Counters::default(),
            state: JobState::Ready,
        };
        let tube = TubeName::parse(tube.as_bytes()).expect("a name");
        let body = Body::copy_of(SECRET.as_bytes()).expect("there is memory");
        executor.restore(&record, &tube, body, &[], START);
    }
    Server::new(executor)
}

/// Checks that the jobs of these tubes have not changed.
fn inspect(server: &Server<FakeStream>) {
    for (id, tube) in (1..).zip([HIDDEN, SECRET]) {
        let job = server.executor().queue().job(JobId(id)).expect("the job was not deleted");
        assert_eq!((job.tube.as_str(), job.record.state), (tube, JobState::Ready));
        assert_eq!(job.record.counters, Counters::default());
    }
}

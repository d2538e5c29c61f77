//! The facts of a job of the server that a restart keeps, to be compared with those of the model.

use beanstalkd_model::Facts;
use beanstalkd_queue::Queue;
use beanstalkd_types::job::JobId;

pub fn facts_of(queue: &Queue, id: u64) -> Option<Facts> {
    let job = queue.job(JobId(id))?;
    let reservation = queue.session_reservation(JobId(id));
    let session = reservation.map(|reservation| (reservation.key.name.to_string(), reservation.grace_ms));
    let (tags, failures) = (job.tags.unwrap_or_default(), job.failures());
    Some(Facts::new(job.record, job.tube.as_str(), job.is_held, &tags, failures, session))
}

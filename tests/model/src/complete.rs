//! The command `complete`: a job ends and others are put, or nothing happens.

use std::sync::Arc;

use beanstalkd_queue::NewJob;
use beanstalkd_types::clock::Timestamp;
use beanstalkd_types::tags::JobTags;

use crate::queue::Model;
use crate::tags::{self, Ending};

/// A put of a `complete`.
#[derive(Clone, Debug)]
pub struct CompletedPut {
    pub new: NewJob,
    pub body: Arc<[u8]>,
    pub tags: JobTags<'static>,
    /// Its tube, if it is not the used one.
    pub tube: Option<&'static str>,
}

/// The result of a put.
enum Done {
    New,
    Duplicate(u64),
}

impl Model {
    /// Deletes the job, which the client has reserved, and puts others. Returns an id for each put.
    ///
    /// # Errors
    /// The name of the first full tube. Then nothing has changed.
    pub fn complete(
        &mut self,
        client: u32,
        id: u64,
        puts: &[CompletedPut],
        now: Timestamp,
    ) -> Result<Vec<u64>, String> {
        let job = self.job(id).expect("the client has reserved it").clone();
        let name = self.tube(job.tube).name.clone();
        // A trial run shows which puts join the group and which take the key.
        let mut trial = self.clone();
        trial.end_completed(client, id, Ending::Flushed, now);
        let done: Result<Vec<Done>, String> =
            puts.iter().map(|put| trial.put_completed(client, put, None, now)).collect();
        let done = done?;
        let news =
            || puts.iter().zip(&done).filter(|(_, done)| matches!(done, Done::New)).map(|(put, _)| put);
        let key = |tags: &JobTags<'static>| tags.idempotency.map(|tag| tag.key);
        let used = &self.tube(self.client(client).using).name;
        let takes_key = news().any(|put| {
            let tube = put.tube.unwrap_or(used);
            key(&put.tags).is_some() && (tube, key(&put.tags)) == (name.as_str(), key(&job.tags))
        });
        let ending = if takes_key { Ending::Flushed } else { Ending::Deleted };
        self.kept_group = job.tags.group.filter(|&group| news().any(|put| put.tags.group == Some(group)));
        self.end_completed(client, id, ending, now);
        for (put, done) in puts.iter().zip(&done) {
            self.put_completed(client, put, Some(done), now).expect("there was room before");
        }
        self.kept_group = None;
        let id_of = |(put, done): (&CompletedPut, &Done)| match done {
            Done::New => put.new.id.0,
            Done::Duplicate(first) => *first,
        };
        Ok(puts.iter().zip(&done).map(id_of).collect())
    }

    fn end_completed(&mut self, client: u32, id: u64, ending: Ending, now: Timestamp) {
        assert!(self.delete_with(client, id, ending, now), "the client has reserved it");
    }

    /// Does a put. Its result may be known from the trial.
    fn put_completed(
        &mut self,
        client: u32,
        put: &CompletedPut,
        known: Option<&Done>,
        now: Timestamp,
    ) -> Result<Done, String> {
        let before = put.tube.map(|tube| self.use_temporarily(client, tube));
        let tube = self.tube(self.client(client).using).name.clone();
        let duplicate = match known {
            Some(Done::New) => None,
            Some(Done::Duplicate(_)) | None => self.duplicate(client, &put.tags, put.new.priority.0, now),
        };
        let done = match duplicate {
            Some(tags::Duplicate { first, .. }) => Ok(Done::Duplicate(first)),
            None if known.is_none() && self.is_full(&tube, put.body.len()) => Err(tube),
            None => {
                self.put_tagged(client, put.new, Arc::clone(&put.body), put.tags, now);
                Ok(Done::New)
            }
        };
        if let Some(before) = before {
            self.restore_used(client, before);
        }
        done
    }
}

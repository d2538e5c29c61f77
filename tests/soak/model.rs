//! The commands that the server has acknowledged for every job, from any client.
//!
//! Owns: the state of each job by its key. The key is a number of the test in the job's body, so the body alone shows
//! whether it is intact and which job it belongs to. Never talks to a server. Driven by all clients at once.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use beanstalkd_testkit::random::Random;

/// The `place` of an entry that is not in the list of existing jobs.
const NOWHERE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The put was sent and not answered. The job may exist or not.
    Unknown,
    /// The put was acknowledged, or a client has seen the job.
    Kept,
    /// The job was deleted, refused, or sent only in part. It must not exist.
    Gone,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The job's id; 0 until it is known.
    id: u64,
    fate: Fate,
    /// How many deletes are sent and not answered. During a delete the job may exist or not.
    deletes: u32,
    /// Its index in the list of existing jobs.
    place: u32,
}

#[derive(Default)]
struct Book {
    entries: Vec<Entry>,
    kept: Vec<u32>,
}

/// The states of all jobs, for many threads.
#[derive(Default)]
pub struct Model(Mutex<Book>);

impl Model {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().expect("no thread panics while it holds the lock")
    }

    /// Makes a key for a new job, whose put will be sent next.
    pub fn begin_put(&self) -> u64 {
        let mut book = self.book();
        book.entries.push(Entry { id: 0, fate: Fate::Unknown, deletes: 0, place: NOWHERE });
        book.entries.len() as u64 - 1
    }

    /// Notes that the put was answered INSERTED. Another client may have deleted the job since.
    pub fn inserted(&self, key: u64, id: u64) {
        self.book().keep(key, id);
    }

    /// Notes that the put was refused, or will be sent only in part.
    pub fn refused(&self, key: u64) {
        self.book().lose(key);
    }

    /// Notes that a reply had the job. Returns false if the job was deleted before.
    pub fn saw(&self, key: u64, id: u64) -> bool {
        let mut book = self.book();
        key < book.entries.len() as u64 && book.keep(key, id)
    }

    /// Notes that a delete will be sent next.
    pub fn begin_delete(&self, key: u64) {
        self.book().entries[key as usize].deletes += 1;
    }

    /// Notes that the delete was answered DELETED. Returns false if the job was deleted before.
    pub fn deleted(&self, key: u64) -> bool {
        let mut book = self.book();
        book.entries[key as usize].deletes -= 1;
        book.lose(key)
    }

    /// Notes that the delete was answered NOT_FOUND.
    pub fn not_deleted(&self, key: u64) {
        self.book().entries[key as usize].deletes -= 1;
    }

    /// Whether the job must exist.
    pub fn is_safe(&self, key: u64) -> bool {
        let entry = self.book().entries[key as usize];
        entry.fate == Fate::Kept && entry.deletes == 0
    }

    /// Key and id of a random job that must exist.
    pub fn pick(&self, random: &mut Random) -> Option<(u64, u64)> {
        let book = self.book();
        let count = book.kept.len() as u64;
        let key = *book.kept.get(random.below(count.max(1)) as usize)?;
        let entry = book.entries[key as usize];
        (entry.deletes == 0).then_some((key.into(), entry.id))
    }

    /// The number of jobs that must exist.
    pub fn kept(&self) -> usize {
        self.book().kept.len()
    }

    /// The number of jobs so far.
    pub fn total(&self) -> usize {
        self.book().entries.len()
    }

    /// The ids of the jobs that must exist, ascending.
    pub fn ids(&self) -> Vec<u64> {
        let book = self.book();
        let mut ids: Vec<u64> = book.kept.iter().map(|&key| book.entries[key as usize].id).collect();
        ids.sort_unstable();
        ids
    }

    /// Compares the model with the jobs that were found (ids by key), while no command is unanswered. After that no
    /// state is unknown. Returns the violations.
    pub fn settle(&self, found: &BTreeMap<u64, u64>) -> Vec<String> {
        let mut problems = Vec::new();
        let mut book = self.book();
        for key in 0..book.entries.len() as u64 {
            let entry = book.entries[key as usize];
            let is_open = entry.fate == Fate::Unknown || entry.deletes > 0;
            match found.get(&key) {
                Some(id) if entry.fate == Fate::Gone => {
                    problems.push(format!("job {id}, key {key}, is back"))
                }
                Some(&id) if entry.id != 0 && entry.id != id => {
                    problems.push(format!("job {} has become {id}", entry.id));
                }
                Some(&id) => drop(book.keep(key, id)),
                None if entry.fate == Fate::Kept && !is_open => {
                    problems.push(format!("job {}, key {key}, is lost", entry.id));
                    book.lose(key);
                }
                None => drop(book.lose(key)),
            }
            book.entries[key as usize].deletes = 0;
        }
        problems
    }
}

impl Book {
    fn keep(&mut self, key: u64, id: u64) -> bool {
        let place = self.kept.len() as u32;
        let entry = &mut self.entries[key as usize];
        match entry.fate {
            Fate::Gone => return false,
            Fate::Kept => {}
            Fate::Unknown => {
                *entry = Entry { id, fate: Fate::Kept, place, ..*entry };
                self.kept.push(key as u32);
            }
        }
        true
    }

    fn lose(&mut self, key: u64) -> bool {
        let entry = &mut self.entries[key as usize];
        let was_there = entry.fate != Fate::Gone;
        entry.fate = Fate::Gone;
        let place = std::mem::replace(&mut entry.place, NOWHERE);
        if place != NOWHERE {
            self.kept.swap_remove(place as usize);
            if let Some(&moved) = self.kept.get(place as usize) {
                self.entries[moved as usize].place = place;
            }
        }
        was_there
    }
}

/// The body of the job `key`: `length` bytes, or more if its heading is longer.
pub fn body(key: u64, length: usize) -> Vec<u8> {
    let mut body = format!("{key}:{length}:").into_bytes();
    let mut random = Random::new(key);
    while body.len() < length {
        let bytes = random.next().to_le_bytes();
        let left = length - body.len();
        body.extend_from_slice(&bytes[..left.min(8)]);
    }
    body
}

/// The key in an intact body; `None` if the body is damaged.
pub fn key_of(found: &[u8]) -> Option<u64> {
    let mut words = found.splitn(3, |&byte| byte == b':');
    let mut number = || std::str::from_utf8(words.next()?).ok()?.parse().ok();
    let (key, length): (u64, u64) = (number()?, number()?);
    let is_whole = length <= 1 << 30 && body(key, length as usize) == found;
    is_whole.then_some(key)
}

//! A pool of connections for producers, which threads borrow.

use std::sync::{Condvar, PoisonError};
use std::time::Instant;

crate::drivers::pool::pool!(
    blocking,
    connect,
    /// Connections to one server that threads borrow, one at a time each. It opens them when they are needed, and keeps
    /// the connections that are returned. Clones are the same pool.
    ///
    /// A borrower gets a connection with the connector's time-out, and its puts go into the tube `default` until it
    /// uses another one, whatever the last borrower has set. A returned connection is closed if a reply is outstanding
    /// or was unexpected, if it has reserved a job (which becomes ready), or if its watched tubes, mode, session or
    /// log-in have changed.
    ///
    /// The connections have no session, even if the connector has one: two connections cannot share it.
    ///
    /// ```no_run
    /// use beanstalk_client::{Connector, Pool, PutOptions};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Pool::new(Connector::new(), "127.0.0.1:11300".parse()?, 8);
    /// std::thread::scope(|scope| {
    ///     for number in 0..100 {
    ///         let pool = &pool;
    ///         scope.spawn(move || pool.get()?.put(format!("job {number}").as_bytes(), &PutOptions::new()));
    ///     }
    /// });
    /// # Ok(())
    /// # }
    /// ```
);

/// Counts the connections of a pool that can be borrowed.
#[derive(Debug)]
struct Semaphore {
    free: Mutex<usize>,
    came_back: Condvar,
}

fn semaphore(permits: usize) -> Semaphore {
    Semaphore { free: Mutex::new(permits), came_back: Condvar::new() }
}

/// Permits the use of one connection, until this is dropped.
#[derive(Debug)]
struct Permit(Arc<Semaphore>);

impl Drop for Permit {
    fn drop(&mut self) {
        *lock(&self.0.free) += 1;
        self.0.came_back.notify_one();
    }
}

/// Takes a permit. If none is free, waits for one, at most this long.
fn acquire(semaphore: Arc<Semaphore>, limit: Option<Duration>) -> Option<Permit> {
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    let mut free = lock(&semaphore.free);
    while *free == 0 {
        let left = deadline.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return None;
        }
        free = semaphore.came_back.wait_timeout(free, left).unwrap_or_else(PoisonError::into_inner).0;
    }
    *free -= 1;
    drop(free);
    Some(Permit(semaphore))
}

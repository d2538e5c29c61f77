//! A pool of connections for producers, which tasks borrow.

use tokio::sync::{OwnedSemaphorePermit as Permit, Semaphore};
use tokio::time::timeout;

crate::drivers::pool::pool!(
    asynchronous,
    connect_async,
    /// Connections to one server that tasks borrow, one at a time each, with the same rules as the blocking
    /// [`Pool`](crate::Pool). Clones are the same pool.
);

fn semaphore(permits: usize) -> Semaphore {
    Semaphore::new(permits.min(Semaphore::MAX_PERMITS))
}

/// Takes a permit. If none is free, waits for one, at most this long. A semaphore that is never closed always gives one
/// in the end.
async fn acquire(semaphore: Arc<Semaphore>, limit: Option<Duration>) -> Option<Permit> {
    let permit = semaphore.acquire_owned();
    match limit {
        Some(limit) => timeout(limit, permit).await.ok()?.ok(),
        None => permit.await.ok(),
    }
}

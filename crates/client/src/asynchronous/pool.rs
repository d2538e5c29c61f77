//! A pool of connections for producers, which tasks borrow.

use tokio::sync::{OwnedSemaphorePermit as Place, Semaphore as Places};
use tokio::time::timeout;

crate::drivers::pool::pool!(
    asynchronous,
    connect_async,
    /// Connections to one server that tasks borrow, one at a time each, with the same rules as the blocking
    /// [`Pool`](crate::Pool). Clones are the same pool.
);

fn places(count: usize) -> Places {
    Places::new(count.min(Places::MAX_PERMITS))
}

/// Takes a place. If none is free, waits for one, at most this long. A semaphore that is never closed always gives one
/// in the end.
async fn take_place(places: Arc<Places>, limit: Option<Duration>) -> Option<Place> {
    let place = places.acquire_owned();
    match limit {
        Some(limit) => timeout(limit, place).await.ok()?.ok(),
        None => place.await.ok(),
    }
}

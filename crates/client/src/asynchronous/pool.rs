//! A pool of connections for producers.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::client::Client;
use crate::address::Address;
use crate::connector::Connector;
use crate::error::Error;
use crate::lock;

/// Connections to one server that tasks borrow, one at a time each, with the same rules as the blocking
/// [`Pool`](crate::Pool). Clones are the same pool.
#[derive(Debug, Clone)]
pub struct Pool {
    shared: Arc<PoolShared>,
}

#[derive(Debug)]
struct PoolShared {
    connector: Connector,
    address: Address,
    state: Mutex<PoolState>,
    /// A permit for each connection that can be borrowed.
    permits: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct PoolState {
    idle: Vec<Client>,
    /// The connections that are borrowed or being opened.
    in_use: usize,
}

impl Pool {
    /// A pool of at most `max_connections`, at least one. It opens none yet.
    pub fn new(connector: Connector, address: Address, max_connections: usize) -> Self {
        let max_connections = max_connections.clamp(1, Semaphore::MAX_PERMITS);
        let permits = Arc::new(Semaphore::new(max_connections));
        let (connector, state) = (connector.for_pool(), Mutex::default());
        Self { shared: Arc::new(PoolShared { connector, address, state, permits }) }
    }

    /// Borrows a connection, as [`get`](crate::Pool::get) of the blocking pool does.
    pub async fn get(&self) -> Result<PooledClient, Error> {
        self.get_within(self.shared.connector.timeout).await
    }

    /// Borrows a connection, as [`get_within`](crate::Pool::get_within) of the blocking pool does.
    pub async fn get_within(&self, limit: Option<Duration>) -> Result<PooledClient, Error> {
        let shared = Arc::clone(&self.shared);
        let permit = Arc::clone(&shared.permits).acquire_owned();
        let permit = match limit {
            Some(limit) => timeout(limit, permit).await.map_err(|_| Error::PoolExhausted)?,
            None => permit.await,
        };
        // A semaphore that is never closed always gives a permit in the end.
        let permit = permit.map_err(|_| Error::PoolExhausted)?;
        let mut lent = PooledClient::new(shared, permit);
        lent.make_ready().await?;
        Ok(lent)
    }

    /// The number of connections that are open or being opened.
    pub fn len(&self) -> usize {
        let state = lock(&self.shared.state);
        state.in_use + state.idle.len()
    }

    /// Whether no connection is open or being opened.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A borrowed connection, which goes back to its pool when it is dropped.
#[derive(Debug)]
pub struct PooledClient {
    /// Always present, except for a moment in `make_ready` and `drop`.
    client: Option<Client>,
    shared: Arc<PoolShared>,
    /// Dropped after the connection has been returned.
    _permit: OwnedSemaphorePermit,
}

impl PooledClient {
    /// Takes an idle connection, if there is one.
    fn new(shared: Arc<PoolShared>, permit: OwnedSemaphorePermit) -> Self {
        let mut state = lock(&shared.state);
        state.in_use += 1;
        let client = state.idle.pop();
        drop(state);
        Self { client, shared, _permit: permit }
    }

    async fn make_ready(&mut self) -> Result<(), Error> {
        let PoolShared { connector, address, .. } = &*self.shared;
        if let Some(client) = &mut self.client
            && client.is_alive().await
        {
            client.engine.lend(connector.timeout);
            return Ok(());
        }
        // The old connection is closed before the new one is opened.
        self.client = None;
        self.client = Some(connector.connect_async(address).await?);
        Ok(())
    }
}

impl Drop for PooledClient {
    fn drop(&mut self) {
        let client = self.client.take().filter(|client| client.engine.can_be_lent());
        let mut state = lock(&self.shared.state);
        state.in_use -= 1;
        state.idle.extend(client);
    }
}

impl Deref for PooledClient {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.client.as_ref().expect("`get` has set the client")
    }
}

impl DerefMut for PooledClient {
    fn deref_mut(&mut self) -> &mut Client {
        self.client.as_mut().expect("`get` has set the client")
    }
}

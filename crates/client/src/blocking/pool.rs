//! A pool of connections for producers.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::client::Client;
use crate::address::Address;
use crate::connector::Connector;
use crate::error::Error;
use crate::lock;

/// Connections to one server that threads borrow, one at a time each. It opens them when they are needed, and keeps
/// those that are returned. Clones are the same pool.
///
/// A borrower gets a connection with the connector's time-out, and its puts go into the tube `default` until it uses
/// another one, whatever the last borrower has set. A returned connection is closed if a reply is outstanding or was
/// unexpected, if it has reserved a job (which becomes ready), or if its watched tubes, mode, session or log-in have
/// changed.
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
#[derive(Debug, Clone)]
pub struct Pool {
    shared: Arc<PoolShared>,
}

#[derive(Debug)]
struct PoolShared {
    connector: Connector,
    address: Address,
    max_connections: usize,
    state: Mutex<PoolState>,
    came_back: Condvar,
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
        let (state, came_back) = (Mutex::default(), Condvar::new());
        let (connector, max_connections) = (connector.for_pool(), max_connections.max(1));
        Self { shared: Arc::new(PoolShared { connector, address, max_connections, state, came_back }) }
    }

    /// Borrows a connection. If all are in use, waits for one, at most as long as the connector's time-out.
    ///
    /// # Errors
    /// [`Error::PoolExhausted`] if none was returned in time, and those of [`Connector::connect`].
    pub fn get(&self) -> Result<PooledClient, Error> {
        self.get_within(self.shared.connector.timeout)
    }

    /// Borrows a connection. If all are in use, waits for one, at most this long; `None` means no limit.
    ///
    /// # Errors
    /// As those of [`Self::get`].
    pub fn get_within(&self, timeout: Option<Duration>) -> Result<PooledClient, Error> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let shared = &self.shared;
        let mut state = lock(&shared.state);
        while state.in_use >= shared.max_connections {
            let left = deadline.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Err(Error::PoolExhausted);
            }
            let waited = shared.came_back.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.in_use += 1;
        let idle = state.idle.pop();
        drop(state);
        // If it is dropped on an error, another one may be opened.
        let mut lent = PooledClient { client: idle, shared: Arc::clone(shared) };
        lent.make_ready()?;
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
}

impl PooledClient {
    fn make_ready(&mut self) -> Result<(), Error> {
        let PoolShared { connector, address, .. } = &*self.shared;
        if let Some(client) = &mut self.client
            && client.is_alive()
        {
            client.engine.lend(connector.timeout);
            return Ok(());
        }
        // The old connection is closed before the new one is opened.
        self.client = None;
        self.client = Some(connector.connect(address)?);
        Ok(())
    }
}

impl Drop for PooledClient {
    fn drop(&mut self) {
        let Self { client, shared } = self;
        let client = client.take().filter(|client| client.engine.can_be_lent());
        let mut state = lock(&shared.state);
        state.in_use -= 1;
        state.idle.extend(client);
        drop(state);
        shared.came_back.notify_one();
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

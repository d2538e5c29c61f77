//! The pool of a driver, which is the same for both.
//!
//! Owns: which connections are idle, and which can be lent. The driver has the semaphore of a pool: a borrower
//! waits for a permit.

/// The pool of a driver, which connects with this method of the connector. The module [`drivers`](crate::drivers) lists
/// what the driver provides.
macro_rules! pool {
    ($driver:ident, $connect:ident, $(#[$doc:meta])*) => {
        use std::ops::{Deref, DerefMut};
        use std::sync::{Arc, Mutex};
        use std::time::Duration;

        use super::client::Client;
        use crate::address::Address;
        use crate::core::Connector;
        use crate::drivers::waiting::{wait, waiting};
        use crate::error::Error;
        use crate::lock;

        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub struct Pool {
            shared: Arc<PoolShared>,
        }

        #[derive(Debug)]
        struct PoolShared {
            connector: Connector,
            address: Address,
            state: Mutex<PoolState>,
            /// Has a permit for each connection that can be borrowed.
            semaphore: Arc<Semaphore>,
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
                let semaphore = Arc::new(semaphore(max_connections.max(1)));
                let (connector, state) = (connector.for_pool(), Mutex::default());
                Self { shared: Arc::new(PoolShared { connector, address, state, semaphore }) }
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

        waiting! { $driver, Pool {
            /// Borrows a connection. If all are in use, waits for one, at most as long as the connector's time-out.
            ///
            /// # Errors
            /// [`Error::PoolExhausted`] if none was returned in time, and those of [`Connector::connect`].
            pub fn get(&self) -> Result<PooledClient, Error> {
                wait!($driver, self.get_within(self.shared.connector.timeout))
            }

            /// Borrows a connection. If all are in use, waits for one, at most this long; `None` means no limit.
            ///
            /// # Errors
            /// As those of [`Self::get`].
            pub fn get_within(&self, limit: Option<Duration>) -> Result<PooledClient, Error> {
                let permit = wait!($driver, acquire(Arc::clone(&self.shared.semaphore), limit));
                let permit = permit.ok_or(Error::PoolExhausted)?;
                // If it is dropped on an error, another one may be opened.
                let mut lent = PooledClient::new(Arc::clone(&self.shared), permit);
                wait!($driver, lent.make_ready())?;
                Ok(lent)
            }
        } }

        /// A borrowed connection, which goes back to its pool when it is dropped.
        #[derive(Debug)]
        pub struct PooledClient {
            /// Always present, except for a moment in `make_ready` and `drop`.
            client: Option<Client>,
            shared: Arc<PoolShared>,
            /// Dropped after the connection has been returned.
            _permit: Permit,
        }

        impl PooledClient {
            /// Takes an idle connection, if there is one.
            fn new(shared: Arc<PoolShared>, permit: Permit) -> Self {
                let mut state = lock(&shared.state);
                state.in_use += 1;
                let client = state.idle.pop();
                drop(state);
                Self { client, shared, _permit: permit }
            }
        }

        waiting! { $driver, PooledClient {
            fn make_ready(&mut self) -> Result<(), Error> {
                let PoolShared { connector, address, .. } = &*self.shared;
                if let Some(client) = &mut self.client
                    && wait!($driver, client.is_alive())
                {
                    client.engine.lend(connector.timeout);
                    return Ok(());
                }
                // The old connection is closed before the new one is opened.
                self.client = None;
                self.client = Some(wait!($driver, connector.$connect(address))?);
                Ok(())
            }
        } }

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
    };
}

pub(crate) use pool;

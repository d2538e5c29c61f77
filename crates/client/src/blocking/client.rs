//! The client of the blocking driver.

use std::thread::sleep;

crate::drivers::client::client!(
    blocking,
    connect,
    /// A client: a [`Connection`], to which it dereferences, with a method for each command. A method waits for its
    /// reply.
);

impl Connector {
    /// Connects. A unix socket is always plain.
    ///
    /// # Errors
    /// If the server cannot be reached, or does not accept the log-in or the session.
    pub fn connect(&self, address: &Address) -> Result<Client, Error> {
        self.open(address).map(Client::from)
    }

    /// Connects, as [`Self::connect`] does, for requests and replies without methods.
    ///
    /// # Errors
    /// As those of [`Self::connect`].
    pub fn open(&self, address: &Address) -> Result<Connection, Error> {
        Connection::connect(address, self.clone())
    }
}

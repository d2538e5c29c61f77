//! The client of the asynchronous driver.

use tokio::time::sleep;

crate::drivers::client::client!(
    asynchronous,
    connect_async,
    /// A client: a [`Connection`], to which it dereferences, with a method for each command. A method is a future.
);

impl Connector {
    /// Connects, with tokio.
    ///
    /// # Errors
    /// As those of [`Self::connect`].
    pub async fn connect_async(&self, address: &Address) -> Result<Client, Error> {
        self.open_async(address).await.map(Client::from)
    }

    /// Connects with tokio, for requests and replies without methods.
    ///
    /// # Errors
    /// As those of [`Self::connect`].
    pub async fn open_async(&self, address: &Address) -> Result<Connection, Error> {
        Connection::connect(address, self.clone()).await
    }
}

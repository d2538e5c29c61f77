//! A method for each command, with a typed result, as a future.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use beanstalkd_protocol::{
    Command, Dictionary, Field, FieldList, Grace, IdList, MAX_COMPLETED_PUTS, ModeWord, Refusal, Reply, Verb,
    parse_dictionary, parse_list, parse_page,
};
use beanstalkd_types::job::{Counting, JobId, JobState, Priority};
use beanstalkd_types::seconds::Seconds;
use beanstalkd_types::tube_name::TubeName;

use super::connection::Connection;
use crate::address::Address;
use crate::connector::Connector;
use crate::core::data::{Cursor, Extensions, Job, JobInfo, Page};
use crate::core::engine::Reopening;
use crate::core::put::{Inserted, PutOptions};
use crate::core::request::Request;
use crate::core::{Token, with_commands};
use crate::error::Error;

/// A client: a [`Connection`], to which it dereferences, with a method for each command. A method is a future.
#[derive(Debug)]
pub struct Client {
    connection: Connection,
}

impl Deref for Client {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl DerefMut for Client {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

impl From<Connection> for Client {
    fn from(connection: Connection) -> Self {
        Self { connection }
    }
}

macro_rules! methods {
    (with $fields:ident; $(
        $(#[$doc:meta])*
        fn $name:ident($($argument:ident: $of:ty),*) -> $result:ty
        $(where $before:ident = $value_before:expr,)?
        { $request:expr; $($reply:pat => $value:expr),+ }
    )+) => {
        impl Client {
            $(
                $(#[$doc])*
                #[allow(unused_variables, reason = "few rows use the fields")]
                pub async fn $name(&mut self $(, $argument: $of)*) -> Result<$result, Error> {
                    $(let $before = $value_before;)?
                    let request = Request::from($request);
                    let result = match self.connection.answer_to(request).await {
                        $(Ok(($reply, $fields)) => Ok($value),)+
                        Ok((other, _)) => Err(Error::of_reply(request.verb(), &other)),
                        Err(error) => Err(error),
                    };
                    match result {
                        Err(error) => Err(self.connection.explain(request.extension(), error).await),
                        done => done,
                    }
                }
            )+
        }
    };
}

with_commands!(methods);

impl Client {
    /// Connects. The connect and each wait for the next byte time out after 60 seconds. A [`Connector`] has more
    /// settings.
    pub async fn connect(address: &Address) -> Result<Self, Error> {
        Connector::new().connect_async(address).await
    }

    /// Puts a job into this tube. If the tube is not the used one, it is used first.
    pub async fn put_in(
        &mut self,
        tube: &TubeName,
        body: &[u8],
        options: &PutOptions,
    ) -> Result<Inserted, Error> {
        if !self.connection.engine.exchange.state.choose_if_used(tube) {
            self.use_tube(tube).await?;
        }
        self.put(body, options).await
    }

    /// Returns the extensions that the server offers. C beanstalkd offers none.
    pub async fn extensions(&mut self) -> Result<Extensions, Error> {
        self.known_extensions().await.cloned()
    }

    /// Closes the connection, and waits until the server has closed it. Then its reserved jobs are ready again, with
    /// unchanged counters.
    pub async fn quit(mut self) -> Result<(), Error> {
        self.connection.engine.reopening = Reopening::Never;
        match self.connection.call(Command::Quit).await {
            Err(Error::Closed) => Ok(()),
            Err(error) => Err(error),
            Ok(reply) => Err(Error::of_reply(Verb::Quit, &reply)),
        }
    }
}

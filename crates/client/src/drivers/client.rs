//! The client of a driver: a method for each command, with a typed result.

/// The methods of the table of commands.
macro_rules! methods {
    ($driver:ident, with $fields:ident; $(
        $(#[$doc:meta])*
        fn $name:ident($($argument:ident: $of:ty),*) -> $result:ty
        $(where $before:ident = $value_before:expr,)?
        { $request:expr; $($reply:pat => $value:expr),+ }
    )+) => {
        waiting! { $driver, Client { $(
            $(#[$doc])*
            #[allow(unused_variables, reason = "few rows use the fields")]
            pub fn $name(&mut self $(, $argument: $of)*) -> Result<$result, Error> {
                $(let $before = $value_before;)?
                let request = Request::from($request);
                let result = match wait!($driver, self.connection.answer_to(request)) {
                    $(Ok(($reply, $fields)) => Ok($value),)+
                    Ok((other, _)) => Err(Error::of_reply(request.verb(), &other)),
                    Err(error) => Err(error),
                };
                match result {
                    Err(error) => Err(wait!($driver, self.connection.explain(request.extension(), error))),
                    done => done,
                }
            }
        )+ } }
    };
}

/// The commands of a worker's slot, which are methods of the client.
macro_rules! slot_client {
    ($driver:ident, $(fn $name:ident($($argument:ident: $of:ty),*) -> $result:ty;)+) => {
        impl SlotClient for Client { $(
            async fn $name(&mut self, $($argument: $of),*) -> Result<$result, Error> {
                wait!($driver, Self::$name(self, $($argument),*))
            }
        )+ }
    };
}

/// The client of a driver, which connects with this method of the connector. The module [`drivers`](crate::drivers)
/// lists what the driver provides.
macro_rules! client {
    ($driver:ident, $connect:ident, $(#[$doc:meta])*) => {
        use std::ops::{Deref, DerefMut};
        use std::time::Duration;

        use beanstalkd_protocol::{
            Command, Dictionary, Field, FieldList, IdList, ModeWord, Reply, Verb, parse_dictionary, parse_list,
            parse_page,
        };
        use beanstalkd_types::job::{Counting, JobId, JobState, Priority};
        use beanstalkd_types::seconds::Seconds;
        use beanstalkd_types::tube_name::TubeName;

        use super::connection::Connection;
        use crate::address::Address;
        use crate::core::data::{Cursor, Extensions, Job, JobInfo, Page};
        use crate::core::engine::{Engine, Reopening};
        use crate::core::put::{Inserted, PutOptions};
        use crate::core::request::Request;
        use crate::core::{Connector, Token, grace_of, with_commands};
        use crate::drivers::client::{methods, slot_client};
        use crate::drivers::waiting::{wait, waiting};
        use crate::error::Error;
        use crate::worker::run::{SlotClient, SlotConnection, with_slot_commands};

        $(#[$doc])*
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

        impl SlotConnection for Client {
            async fn open(connector: &Connector, server: &Address) -> Result<Self, Error> {
                wait!($driver, connector.$connect(server))
            }

            async fn leave(self) -> Result<(), Error> {
                wait!($driver, self.quit())
            }

            async fn pause(time: Duration) {
                wait!($driver, sleep(time));
            }

            fn engine(&mut self) -> &mut Engine {
                &mut self.connection.engine
            }

            fn hang_up(&mut self) {
                self.connection.hang_up();
            }
        }

        with_commands!(methods, $driver);
        with_slot_commands!(slot_client, $driver);

        waiting! { $driver, Client {
            /// Connects. The connect and each wait for the next byte time out after 60 seconds. A [`Connector`] has
            /// more settings.
            pub fn connect(address: &Address) -> Result<Self, Error> {
                wait!($driver, Connector::new().$connect(address))
            }

            /// Puts a job into this tube. If the tube is not the used one, it is used first.
            pub fn put_in(
                &mut self,
                tube: &TubeName,
                body: &[u8],
                options: &PutOptions,
            ) -> Result<Inserted, Error> {
                if !self.connection.engine.exchange.state.choose_if_used(tube) {
                    wait!($driver, self.use_tube(tube))?;
                }
                wait!($driver, self.put(body, options))
            }

            /// Returns the extensions that the server offers. C beanstalkd offers none.
            pub fn extensions(&mut self) -> Result<Extensions, Error> {
                wait!($driver, self.known_extensions()).cloned()
            }

            /// Closes the connection, and waits until the server has closed it. Then its reserved jobs are ready again,
            /// with unchanged counters.
            pub fn quit(mut self) -> Result<(), Error> {
                self.connection.engine.reopening = Reopening::Never;
                match wait!($driver, self.connection.call(Command::Quit)) {
                    Err(Error::Closed) => Ok(()),
                    Err(error) => Err(error),
                    Ok(reply) => Err(Error::of_reply(Verb::Quit, &reply)),
                }
            }
        } }
    };
}

pub(crate) use {client, methods, slot_client};

//! The calls of a connection: each sends one or many requests and waits for their replies.
//!
//! Owns: the requests that are sent before a caller's request, and the loop of the engine's steps.

/// Implements the calls of the connection of a driver. The module [`drivers`](crate::drivers) lists what the driver
/// provides.
macro_rules! calls {
    ($driver:ident) => {
        use std::time::Duration;

        use beanstalkd_protocol::Reply;
        use beanstalkd_types::tube_name::TubeName;

        use crate::core::data::Extensions;
        use crate::core::engine::{EngineStep, Goal, Preliminary, Recovery};
        use crate::core::exchange::Answer;
        use crate::core::pipeline::{Pipeline, PipelineStep, Refusals};
        use crate::core::request::Request;
        use crate::core::{Connector, jittered};
        use crate::drivers::waiting::{wait, waiting};
        use crate::error::Error;

        impl Connection {
            /// Sets the time-out of each wait for the next byte; `None` means no limit. For a reserve, its own wait is
            /// added.
            pub fn set_timeout(&mut self, timeout: Option<Duration>) {
                self.engine.connector.timeout = timeout;
            }

            /// Whether the next put goes into this tube.
            pub fn uses(&self, tube: &TubeName) -> bool {
                self.engine.exchange.state.uses(tube)
            }

            /// Sets the extensions of the server, so that the connection does not request them.
            pub fn set_extensions(&mut self, extensions: Extensions) {
                self.engine.set_extensions(extensions);
            }

            /// Closes the connection. With [`Connector::reconnect`], the next command opens another one.
            pub fn hang_up(&mut self) {
                self.stream = None;
                self.engine.hang_up();
            }
        }

        waiting! { $driver, Connection {
            /// The extensions of the server, which is asked once on each connection.
            pub fn known_extensions(&mut self) -> Result<&Extensions, Error> {
                if self.engine.extensions().is_none() {
                    wait!($driver, self.prepare(Preliminary::Extensions))?;
                }
                self.engine.extensions().ok_or(Error::Closed)
            }

            /// Makes a request of the connection itself. Returns whether a job that the connection has answers the
            /// caller.
            fn prepare(&mut self, preliminary: Preliminary) -> Result<bool, Error> {
                self.engine.begin_as(preliminary)?;
                wait!($driver, self.drive(preliminary.goal()))?;
                let answered = self.engine.handle_answer(preliminary);
                if answered.as_ref().is_err_and(Error::ends_connection) {
                    self.hang_up();
                }
                answered
            }

            /// Handles the error of a request: ends a connection that is out of step, and finds out whether a server
            /// that has refused the request does not have its extension.
            pub(crate) fn explain(&mut self, extension: Option<&'static str>, error: Error) -> Error {
                if error.ends_connection() {
                    self.hang_up();
                }
                if self.engine.may_lack_extension(extension, &error) {
                    // If the server does not answer, its refusal is all that is known.
                    let _ = wait!($driver, self.known_extensions());
                }
                self.engine.explain(extension, error)
            }

            /// Sends a command and waits for its reply. Replies that an earlier caller has not waited for are skipped.
            pub fn call<'a>(&mut self, request: impl Into<Request<'a>>) -> Result<Reply<'_>, Error> {
                wait!($driver, self.answer_to(request.into())).map(|(reply, _)| reply)
            }

            pub(crate) fn answer_to(&mut self, request: Request<'_>) -> Result<Answer<'_>, Error> {
                while let Some(preliminary) = self.engine.preliminary_of_call(&request)? {
                    if wait!($driver, self.prepare(preliminary))? {
                        return self.engine.exchange.strays.take();
                    }
                }
                self.engine.begin_with(&request)?;
                wait!($driver, self.drive(Goal::Reply))?;
                self.engine.reply()
            }

            /// Sends many commands without waiting for each reply, and passes the result of each to `each`, in the
            /// order of the commands, with their positions. A refusal is an error there: a job that is too big, or that
            /// a server in drain mode does not accept, is [`Error::Refused`]. A caller who does not look at the results
            /// may lose jobs. With [`Connector::reconnect`], a lost connection is not an error: the commands that must
            /// not be sent again have the result [`Error::Unconfirmed`].
            ///
            /// # Errors
            /// If the connection is lost. Only the commands whose results `each` got are known to be executed.
            pub fn send_all<'a>(
                &mut self,
                requests: impl IntoIterator<Item = impl Into<Request<'a>>>,
                each: impl FnMut(usize, Result<Reply<'_>, Error>),
            ) -> Result<(), Error> {
                wait!($driver, self.send_each(requests, Refusals::AreErrors, each))
            }

            /// Sends many commands without waiting for each reply. `each` gets the replies in the order of the
            /// commands, with their positions, also replies that refuse the command. After an error, only the commands
            /// whose replies it got are known to be executed.
            ///
            /// # Errors
            /// If the connection is lost; otherwise the first result that is not a reply.
            pub fn pipeline<'a>(
                &mut self,
                requests: impl IntoIterator<Item = impl Into<Request<'a>>>,
                mut each: impl FnMut(usize, Reply<'_>),
            ) -> Result<(), Error> {
                let mut first = Ok(());
                let each = |position: usize, result: Result<Reply<'_>, Error>| match result {
                    Ok(reply) => each(position, reply),
                    Err(error) if first.is_ok() => first = Err(error),
                    Err(_) => {}
                };
                wait!($driver, self.send_each(requests, Refusals::AreReplies, each))?;
                first
            }

            /// Sends many commands as [`Self::pipeline`] does, and returns what `read` returns for each reply.
            ///
            /// # Errors
            /// As those of [`Self::pipeline`].
            pub fn call_all<'a, T>(
                &mut self,
                requests: impl IntoIterator<Item = impl Into<Request<'a>>>,
                mut read: impl FnMut(Reply<'_>) -> T,
            ) -> Result<Vec<T>, Error> {
                let mut results = Vec::new();
                wait!($driver, self.pipeline(requests, |_, reply| results.push(read(reply))))?;
                Ok(results)
            }

            fn send_each<'a>(
                &mut self,
                requests: impl IntoIterator<Item = impl Into<Request<'a>>>,
                refusals: Refusals,
                each: impl FnMut(usize, Result<Reply<'_>, Error>),
            ) -> Result<(), Error> {
                self.engine.begin()?;
                let mut pipeline = Pipeline::new(refusals, each);
                for request in requests.into_iter().map(|request| Some(request.into())).chain([None]) {
                    while let Some(step) = pipeline.next_step(&mut self.engine, request.as_ref())? {
                        match step {
                            PipelineStep::Wait => {
                                wait!($driver, self.drive(Goal::Reply))?;
                                pipeline.arrived(&mut self.engine)?;
                            }
                            PipelineStep::Prepare(preliminary) => {
                                let prepared = wait!($driver, self.prepare(preliminary));
                                pipeline.prepared(&mut self.engine, prepared)?;
                            }
                        }
                    }
                }
                Ok(())
            }

            /// Receives the next reply. After [`Error::TimedOut`], a further call waits for the same reply again. A
            /// connection that has ended is not opened for this: no reply of the old one comes on a new one.
            pub fn receive(&mut self) -> Result<Reply<'_>, Error> {
                if !self.engine.is_open() {
                    return Err(Error::Closed);
                }
                wait!($driver, self.drive(Goal::Reply))?;
                self.engine.reply().map(|(reply, _)| reply)
            }

            /// Takes the steps of the engine until the goal is reached.
            fn drive(&mut self, goal: Goal) -> Result<(), Error> {
                self.engine.begin_steps(goal, now);
                let mut pause = Duration::ZERO;
                loop {
                    self.engine.expire(now);
                    let taken = match self.engine.step(goal) {
                        Ok(EngineStep::Done) => return Ok(()),
                        Ok(EngineStep::Open) => {
                            wait!($driver, sleep(jittered(pause)));
                            wait!($driver, self.open_stream())
                        }
                        Ok(EngineStep::Write) => wait!($driver, self.write(goal)),
                        Ok(EngineStep::Read(missing)) => wait!($driver, self.read(goal, missing)),
                        Err(error) => Err(error),
                    };
                    if let Err(error) = taken {
                        let failed = self.engine.failed(error, now());
                        if !self.engine.is_open() {
                            self.stream = None;
                        }
                        match failed? {
                            Recovery::Reopen(after) => pause = after,
                            Recovery::GoOn => {}
                        }
                    }
                }
            }
        } }
    };
}

pub(crate) use calls;

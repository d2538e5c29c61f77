//! The results of many requests that are sent without waiting for each reply.
//!
//! Owns: the order of sending and waiting, and the position of the next result. Driven by: a driver, which waits for a
//! reply whenever [`Pipeline::next_step`] asks for one.

use beanstalkd_protocol::{Refusal, Reply};

use super::engine::{Engine, Preliminary};
use super::request::Request;
use crate::error::Error;

/// What the refusals of a pipeline are for its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusals {
    /// Errors.
    AreErrors,
    /// Replies.
    AreReplies,
}

/// What the driver does next for a pipeline.
#[derive(Debug)]
pub(crate) enum PipelineStep {
    /// It waits for the next result for the caller.
    Wait,
    /// It makes this request of the connection itself.
    Prepare(Preliminary),
}

/// The pipeline of a caller, whose function gets the results with their positions.
#[derive(Debug)]
pub(crate) struct Pipeline<E> {
    each: E,
    refusals: Refusals,
    position: usize,
    /// Whether the request was sent, or has its result without that.
    is_done: bool,
    /// Whether replies must be read before the next request.
    is_full: bool,
}

impl<E: FnMut(usize, Result<Reply<'_>, Error>)> Pipeline<E> {
    pub(crate) fn new(refusals: Refusals, each: E) -> Self {
        Self { each, refusals, position: 0, is_done: false, is_full: false }
    }

    /// Sends the request, unless the driver must wait before or afterwards. `None` stands for the end of the requests.
    ///
    /// # Errors
    /// If the connection is lost permanently.
    pub(crate) fn next_step(
        &mut self,
        engine: &mut Engine,
        request: Option<&Request<'_>>,
    ) -> Result<Option<PipelineStep>, Error> {
        let Some(request) = request else {
            return Ok(engine.exchange.has_caller().then_some(PipelineStep::Wait));
        };
        if !self.is_done {
            match engine.preliminary(request) {
                Ok(None) => {}
                // Results have the order of their requests.
                Ok(Some(_)) | Err(_) if engine.exchange.has_caller() => return Ok(Some(PipelineStep::Wait)),
                Ok(Some(preliminary)) => return Ok(Some(PipelineStep::Prepare(preliminary))),
                Err(error) => return self.pass_on(Err(error)).map(|()| None),
            }
            engine.exchange.push(request);
            (self.is_done, self.is_full) = (true, engine.exchange.is_full());
        }
        self.is_full &= !engine.exchange.has_room();
        self.is_done = self.is_full;
        Ok(self.is_full.then_some(PipelineStep::Wait))
    }

    /// Handles the result for which the driver has waited.
    ///
    /// # Errors
    /// If the connection is lost.
    pub(crate) fn arrived(&mut self, engine: &mut Engine) -> Result<(), Error> {
        self.pass_on(match self.refusals {
            Refusals::AreErrors => engine.result(),
            Refusals::AreReplies => engine.reply().map(|(reply, _)| reply),
        })
    }

    /// Handles the result of the request that the driver has made for the connection itself.
    ///
    /// # Errors
    /// If the connection is lost.
    pub(crate) fn prepared(
        &mut self,
        engine: &mut Engine,
        prepared: Result<bool, Error>,
    ) -> Result<(), Error> {
        let result = match prepared {
            Ok(false) => return Ok(()),
            Ok(true) => match (self.refusals, engine.exchange.strays.take()) {
                (Refusals::AreErrors, Ok((Reply::TimedOut, _))) => Err(Error::Refused(Refusal::TimedOut)),
                (Refusals::AreErrors | Refusals::AreReplies, answer) => answer.map(|(reply, _)| reply),
            },
            Err(error) => Err(error),
        };
        self.is_done = true;
        self.pass_on(result)
    }

    fn pass_on(&mut self, result: Result<Reply<'_>, Error>) -> Result<(), Error> {
        match result {
            Err(error) if !error.concerns_one_command() => return Err(error),
            result => (self.each)(self.position, result),
        }
        self.position += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Connector;
    use crate::core::engine::Goal;
    use crate::core::put::PutOptions;
    use beanstalkd_protocol::Command;

    fn receive(engine: &mut Engine, bytes: &[u8]) {
        let unsent = engine.exchange.unsent().len();
        engine.exchange.sent(unsent);
        engine.exchange.room(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        engine.exchange.received(bytes.len());
        engine.step(Goal::Reply).unwrap();
    }

    #[test]
    fn a_request_that_must_be_prepared_waits_for_the_results_before_it() {
        let mut engine = Engine::new(Connector::new()).unwrap();
        engine.opened();
        engine.begin().unwrap();
        let options = PutOptions::new().tag("idp:a".parse().unwrap());
        let [list, put] = [Request::Line(Command::ListTubeUsed), Request::Put(&options, b"x")];
        let mut results = Vec::new();
        let mut pipeline =
            Pipeline::new(Refusals::AreErrors, |position, result: Result<Reply<'_>, Error>| {
                results.push((position, result.map(|reply| format!("{reply:?}"))));
            });
        assert!(
            pipeline.next_step(&mut engine, Some(&list)).unwrap().is_none(),
            "it is sent with the next one"
        );
        // The server must say what it offers: a server without the tag would read the body as a command.
        for (reply, is_result) in [(&b"USING default\r\n"[..], true), (b"OK 8\r\n---\nx: 1\r\n", false)] {
            match pipeline.next_step(&mut engine, Some(&put)).unwrap().unwrap() {
                PipelineStep::Wait => {
                    assert!(is_result);
                    receive(&mut engine, reply);
                    pipeline.arrived(&mut engine).unwrap();
                }
                PipelineStep::Prepare(preliminary) => {
                    assert!(!is_result);
                    engine.begin_as(preliminary).unwrap();
                    receive(&mut engine, reply);
                    let prepared = engine.handle_answer(preliminary);
                    pipeline.prepared(&mut engine, prepared).unwrap();
                }
            }
        }
        assert!(pipeline.next_step(&mut engine, Some(&put)).unwrap().is_none(), "it has its result");
        assert!(pipeline.next_step(&mut engine, None).unwrap().is_none());
        assert!(
            matches!(&results[..], [(0, Ok(_)), (1, Err(Error::Unsupported { extension }))] if extension == "idp")
        );
    }
}

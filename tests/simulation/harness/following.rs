//! The oracle follows the server: it repeats each observed step, and expects the replies.

use super::*;

impl Harness {
    /// Each job must wait for the same things in the server and in the oracle, unless the server is behind.
    pub(super) fn compare_waits(&self) {
        if self.server.next_turn_at().is_none_or(|at| at > self.now) {
            let (queue, model) = (self.server.executor().queue(), &self.oracle.model);
            for job in &model.jobs {
                let expected = model.waits_for(job, self.now).join(" ");
                assert_eq!(queue.waits_for(JobId(job.id), self.now), expected, "job {}", job.id);
            }
        }
    }

    /// Expects the ends of waits. The fields of a reserved job are those at the time of the reply, so another client
    /// may change them after the reservation.
    pub(super) fn expect_deliveries(&mut self) {
        for (index, outcome) in std::mem::take(&mut self.oracle.model.deliveries) {
            self.client(index).abortable_from = None;
            if let Some(bytes) = self.oracle.delivery(index, outcome, self.now) {
                let client = self.client(index);
                client.delivery = Some((outcome, bytes));
                client.owed += 1;
            }
        }
        for client in &mut self.clients {
            let index = client.index();
            if let Some((outcome, reply)) = &mut client.delivery
                && let WaitOutcome::Reserved(id) = *outcome
                && self.oracle.model.has_reserved(index, id.0)
            {
                *reply = self.oracle.delivery(index, *outcome, self.now).expect("a reply to no batch");
            }
        }
    }

    pub(super) fn client(&mut self, index: u32) -> &mut FollowedClient {
        let client = self.clients.iter_mut().find(|client| client.index() == index);
        client.unwrap_or_else(|| panic!("client {index} is not there"))
    }

    /// Repeats an observed step of the server in the oracle.
    pub(super) fn follow(&mut self, step: ServedStep, number: u64) {
        if self.trace {
            eprintln!("{:>16} {step:?}", "");
        }
        match step {
            ServedStep::Command(index) => self.execute(index, true, number),
            ServedStep::Reply(index, _) => {
                let waits = self.oracle.model.client(index).waits();
                let is_batch = self.oracle.batches.contains_key(&index);
                let now = self.now;
                let client = self.client(index);
                if client.owed > 0 {
                    client.owed -= 1;
                    if let Some((_, reply)) = client.delivery.take() {
                        client.expected.extend(reply);
                    }
                } else if waits {
                    client.expect_end_of_wait();
                    self.oracle.model.stop_waiting(index);
                    self.oracle.batches.remove(&index);
                } else if is_batch {
                    let unread = client.expected.len();
                    let Answer::Reply(bytes) = self.oracle.answer_batch(index, number, unread, now) else {
                        unreachable!("a batch is answered by a reply")
                    };
                    self.client(index).expected.extend(bytes);
                } else {
                    self.execute(index, false, number);
                }
            }
            ServedStep::Closed(id) => self.see_closed(id),
        }
        self.expect_deliveries();
    }

    /// Executes the client's next request in the oracle. `logged` tells whether the trace shows it as a command, or
    /// only its reply.
    fn execute(&mut self, index: u32, logged: bool, number: u64) {
        let now = self.now;
        let waits = self.oracle.model.client(index).waits();
        assert!(!waits, "a request of client {index} is executed, although the client waits");
        let client = self.client(index);
        assert!(!client.has_quit, "a request of client {index} is executed after its quit");
        assert!(!client.is_taken_over, "a request of client {index} is executed, which was to end");
        assert_eq!(
            client.owed, 0,
            "a request of client {index} is executed before the reply to the previous one"
        );
        let (request, end) =
            client.requests.pop_front().expect("the server executes only requests that were sent");
        assert!(
            end as u64 <= client.connection.pipe.borrow().read,
            "the server executes only requests that it has read"
        );
        let accepted = client.accepted.take();
        let unread = client.expected.len();
        self.say(|| format!("{index} is answered {request:?}"));
        let is_command = !matches!(
            request,
            Request::Body { .. }
                | Request::EndOfComplete
                | Request::Lost
                | Request::BadFormat
                | Request::UnknownCommand
        );
        assert_eq!(logged, is_command, "{request:?} is parsed as something else");
        let answer = match (&request, accepted) {
            (Request::Body { bytes, ended_well }, Some(accepted)) => {
                self.oracle.body(index, accepted, Arc::clone(bytes), *ended_well, now)
            }
            (Request::Put { size, tags, .. }, _) => self.oracle.put(index, *size, tags.kind()),
            (Request::PutOfComplete { put, size, kind, ended_well }, _) => {
                self.oracle.put_of_complete(index, put.clone(), *size, *kind, *ended_well);
                Answer::None
            }
            (Request::EndOfComplete, _) => self.oracle.end_complete(index, now),
            (Request::Lost | Request::BadFormat, _) => self.oracle.refuse("BAD_FORMAT"),
            (Request::UnknownCommand, _) => self.oracle.refuse("UNKNOWN_COMMAND"),
            (Request::Command(command @ Command::KillClient { number }), _) => {
                let none = self.oracle.command_as_seen(index, *command, 0, unread, now);
                self.kill(index, *number).unwrap_or(none)
            }
            (Request::Command(command), _) => {
                self.oracle.command_as_seen(index, *command, number, unread, now)
            }
            (Request::Body { .. }, None) => unreachable!("a body without a put"),
        };
        for before in std::mem::take(&mut self.oracle.model.taken_over) {
            self.client(before).is_taken_over = true;
        }
        let client = self.client(index);
        match (answer, request) {
            (Answer::Reply(bytes), request) => {
                client.has_quit |= matches!(request, Request::Lost);
                client.expect(bytes);
                client.owed -= u32::from(!logged);
            }
            (Answer::None, Request::Command(Command::ReserveWithAbort { .. })) => {
                client.abortable_from = Some(end as u64)
            }
            (Answer::None, _) => {}
            (Answer::Close, _) => client.has_quit = true,
            (Answer::Body(id), Request::Put { priority, delay_s, ttr_s, tags, .. }) => {
                let tags = if let Tags::Good(tags) = tags { tags } else { PutTags::default() };
                client.accepted = Some(Accepted { id, tags, priority, delay_s, ttr_s });
            }
            (Answer::Body(_), request) => unreachable!("{request:?} has no body"),
        }
    }

    /// Ends the client of this number, if there is one.
    fn kill(&mut self, index: u32, number: u64) -> Option<Answer> {
        let victim = self.clients.iter_mut().find(|client| client.number == number)?;
        if victim.index() == index {
            victim.has_quit = true;
        } else {
            victim.is_taken_over = true;
        }
        Some(Answer::Reply(b"KILLED\r\n".to_vec()))
    }

    fn see_closed(&mut self, id: ClientId) {
        let at = self
            .clients
            .iter()
            .position(|client| client.connection.id == id)
            .expect("a closed client was connected");
        let waits = self.oracle.model.client(id.index).waits();
        let client = &self.clients[at];
        let (lost, ended, left) = {
            let pipe = client.connection.pipe.borrow();
            (pipe.broken || pipe.gone || client.is_taken_over, pipe.ended, pipe.unread_by_server())
        };
        if !lost {
            let done = ended && left == 0 && !waits && client.requests.is_empty();
            assert!(client.has_quit || done, "client {} is closed without a reason", id.index);
            self.take_replies(at, usize::MAX);
            assert!(
                self.clients[at].expected.is_empty(),
                "client {} is closed before its last reply",
                id.index
            );
        }
        self.digest.write_u64(u64::MAX);
        self.clients.remove(at);
        self.oracle.batches.remove(&id.index);
        self.oracle.completing.remove(&id.index);
        self.oracle.fields.remove(&id.index);
        self.oracle.model.disconnect(id.index, Slices::default().given_back, self.now);
    }
}

//! The end of a seed: the server comes to rest, all clients end, and nothing may be left.

use super::*;

impl Harness {
    /// Lets all bytes arrive, and reads all replies. Then the server must have nothing left to do.
    pub(super) fn come_to_rest(&mut self) {
        self.say(|| "comes to rest".to_owned());
        self.pause(false);
        for client in &self.clients {
            client.connection.pipe.borrow_mut().widen();
        }
        for _ in 0..TURNS_TO_REST {
            for client in 0..self.clients.len() {
                while !self.clients[client].connection.under_way.is_empty() {
                    self.arrive(client);
                }
                self.take_replies(client, usize::MAX);
            }
            let has_events = self.clients.iter().any(|client| client.connection.pipe.borrow().has_event());
            let runnable = self.server.next_turn_at().is_some_and(|at| at <= self.now);
            if !has_events && !runnable {
                return self.check_rest();
            }
            self.turn(1);
        }
        panic!("the server has not become idle after {TURNS_TO_REST} turns");
    }

    fn check_rest(&mut self) {
        self.server.check_invariants();
        assert!(!self.server.owes_replies(), "no reply is held back while there is room");
        let (next, due) = (self.server.next_turn_at(), self.oracle.model.next_deadline());
        let is_in_time = due.is_none_or(|due| next.is_some_and(|next| next <= due));
        assert!(is_in_time && next.is_none_or(|next| next > self.now), "the next turn: {next:?}, {due:?}");
        for client in &self.clients {
            let index = client.index();
            let pipe = client.connection.pipe.borrow();
            assert!(
                !pipe.ended && !pipe.broken && !client.has_quit,
                "client {index} has ended, but the server has not closed it"
            );
            assert!(client.expected.is_empty(), "client {index} still waits for a reply");
            let waits = self.oracle.model.client(index).waits();
            assert!(
                waits || pipe.unread_by_server() == 0,
                "the server has not read all bytes of client {index}"
            );
            assert!(waits || client.requests.is_empty(), "client {index} has unanswered requests");
            let is_over = client.abortable_from.is_some_and(|from| client.sent as u64 > from);
            assert!(!(waits && is_over), "client {index} has sent more, and still waits");
        }
    }

    /// Ends each client in a random way, and then lets all deadlines pass.
    pub(super) fn end_everything(&mut self) {
        for _ in 0..3 {
            if let Some(at) = self.oracle.model.next_deadline() {
                self.pass_time_to(at);
                self.come_to_rest();
            }
        }
        for client in 0..self.clients.len() {
            if self.random.once_in(4) {
                self.break_off(client);
            } else {
                self.end(client);
            }
        }
        self.come_to_rest();
        for _ in 0..4 {
            if let Some(ends_at) =
                self.oracle.model.sessions.iter().filter_map(|session| session.ends_at).max()
            {
                self.pass_time_to(ends_at);
                self.come_to_rest();
            }
        }
        let queue = self.server.executor().queue();
        assert!(self.clients.is_empty(), "every client is gone");
        assert_eq!((queue.figures().clients, queue.figures().waiting), (0, 0));
        assert_eq!(queue.figures().sessions, self.oracle.model.sessions.len());
        if self.now < NO_JUMPS_FROM {
            assert_eq!(
                (queue.figures().sessions, queue.figures().jobs.reserved),
                (0, 0),
                "each grace is over"
            );
        }
        assert_eq!(queue.figures().jobs, self.oracle.model.counts(None));
        let tubes: Vec<String> =
            queue.tubes_from(0, self.now).map(|tube| tube.name.as_str().to_owned()).collect();
        let model = &self.oracle.model;
        let expected: Vec<&str> = model.listed.iter().map(|&tube| model.tube(tube).name.as_str()).collect();
        assert_eq!(tubes, expected, "{:?}", queue.tubes_from(0, self.now).collect::<Vec<_>>());
    }
}

//! Connects to several servers at the same time.
//!
//! Owns: a thread for each server, and the order in which the connected servers are passed on.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use beanstalk_client::{Address, Connector};

use crate::failure::{Failure, Result};
use crate::server::Server;

/// How long a server that has answered waits for the servers before it, so that the output has the order of the command
/// line.
const MAX_WAIT_FOR_ORDER: Duration = Duration::from_secs(1);

/// The connected servers, each with its position on the command line, or why it could not be connected. They come in
/// the order of the command line, but a server that does not answer within [`MAX_WAIT_FOR_ORDER`] delays none of the
/// others.
pub struct Opening {
    results: Receiver<(usize, Result<Server>)>,
    /// `None` for a server that has not answered. A result that was passed on is removed.
    servers: BTreeMap<usize, Option<Result<Server>>>,
    in_order_until: Instant,
}

impl Opening {
    /// Begins to connect. If this value is dropped, the threads end when their servers have answered.
    pub fn new(addresses: &[Address], connector: &Connector) -> Self {
        let (sender, results) = channel();
        for (position, address) in addresses.iter().enumerate() {
            let (sender, address, connector) = (sender.clone(), address.clone(), connector.clone());
            // The send fails if nobody waits for this server any more.
            thread::spawn(move || drop(sender.send((position, Server::open(&address, &connector)))));
        }
        let servers = (0..addresses.len()).map(|position| (position, None)).collect();
        Self { results, servers, in_order_until: Instant::now() + MAX_WAIT_FOR_ORDER }
    }

    /// The first server that has answered, unless a server before it must be waited for.
    fn take_first(&mut self, now: Instant) -> Option<(usize, Result<Server>)> {
        let mut all = self.servers.iter();
        let first =
            if now < self.in_order_until { all.next() } else { all.find(|(_, opened)| opened.is_some()) };
        let position = first.filter(|(_, opened)| opened.is_some()).map(|(position, _)| *position)?;
        Some((position, self.servers.remove(&position)??))
    }
}

impl Iterator for Opening {
    type Item = (usize, Result<Server>);

    fn next(&mut self) -> Option<Self::Item> {
        while !self.servers.is_empty() {
            let now = Instant::now();
            if let Some(first) = self.take_first(now) {
                return Some(first);
            }
            // After that time, nothing that has arrived waits.
            let rest = self.in_order_until.checked_duration_since(now).filter(|rest| !rest.is_zero());
            let received = match rest {
                Some(rest) => self.results.recv_timeout(rest),
                None => self.results.recv().map_err(RecvTimeoutError::from),
            };
            match received {
                Ok((position, opened)) => drop(self.servers.insert(position, Some(opened))),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let ended = || Err(Failure::Local("the thread that connects has ended".to_owned()));
                    for opened in self.servers.values_mut() {
                        opened.get_or_insert_with(ended);
                    }
                }
            }
        }
        None
    }
}

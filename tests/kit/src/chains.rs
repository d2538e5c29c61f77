//! Workers that hand a job on by `complete`, again and again, through any end of their server. At any time, each chain
//! has one job, and one note for each job before it: a `complete` that is half done would show.

use std::thread;

use crate::client::{Client, Failure, count_jobs};

/// One worker, the tube of its job, and the tube of its notes.
#[derive(Debug)]
pub struct Chain {
    tube: String,
    /// Whether a session holds its reservations, and keeps them across a restart.
    has_session: bool,
    /// The number of the job in the last reply, and in the last command.
    known: u64,
    asked: u64,
}

impl Chain {
    /// Puts its first job, number 0.
    ///
    /// # Errors
    /// If the server does not store it.
    pub fn begin(client: &mut Client, name: &str, has_session: bool) -> Result<Self, Failure> {
        let tube = name.to_owned();
        client.ask(format!("put 0 0 600 1 tub:{tube} grp:{tube} idp:{tube}-0:600\r\n0\r\n").as_bytes())?;
        Ok(Self { tube, has_session, known: 0, asked: 0 })
    }

    /// Hands its job on until the connection ends.
    ///
    /// # Panics
    /// If a reply is wrong.
    pub fn go_on(&mut self, client: &mut Client) {
        let Ok(mut reserved) = self.come(client) else { return };
        while self.hand_on(client, reserved.take()).is_ok() {}
    }

    /// Returns the job that its session holds.
    fn come(&self, client: &mut Client) -> Result<Option<u64>, Failure> {
        let tube = &self.tube;
        client.ask(format!("watch {tube}\r\n").as_bytes())?;
        if !self.has_session {
            return Ok(None);
        }
        client.ask(format!("session {tube} 600\r\n").as_bytes())?;
        Ok(first_id(&client.ask(format!("list-jobs {tube} reserved 1\r\n").as_bytes())?, "- {id: "))
    }

    /// Reserves the job, unless it is `reserved` already, and puts the next one and its note in its place.
    fn hand_on(&mut self, client: &mut Client, reserved: Option<u64>) -> Result<(), Failure> {
        let tube = &self.tube;
        let id = match reserved {
            Some(id) => id,
            None => {
                let reply = client.ask(b"reserve-with-timeout 0\r\n")?;
                first_id(&reply, "RESERVED ").unwrap_or_else(|| panic!("{tube}: its job is not there"))
            }
        };
        let next = self.known + 1;
        let put = |tags: String| format!("put 0 0 600 {}{tags}\r\n{next}\r\n", next.to_string().len());
        let job = put(format!(" tub:{tube} grp:{tube} con:{tube} idp:{tube}-{next}:600"));
        let note = put(format!(" tub:{tube}-notes"));
        self.asked = next;
        let reply = client.ask(format!("complete {id} 2\r\n{job}{note}").as_bytes())?;
        assert!(reply.starts_with(b"COMPLETED "), "{tube}: {}", reply.escape_ascii());
        self.known = next;
        Ok(())
    }

    /// Compares the jobs after a restart with the known ones.
    ///
    /// # Errors
    /// If the connection ends.
    ///
    /// # Panics
    /// If a `complete` was half done, undone, or done twice.
    pub fn check(&mut self, client: &mut Client) -> Result<(), Failure> {
        let tube = &self.tube;
        assert_eq!(job_count(client, tube)?, 1, "{tube}: the jobs of the chain");
        let mut id = None;
        for state in ["ready", "reserved"] {
            let list = client.ask(format!("list-jobs {tube} {state} 1\r\n").as_bytes())?;
            id = id.or(first_id(&list, "- {id: "));
        }
        let id = id.unwrap_or_else(|| panic!("{tube}: its job is neither ready nor reserved"));
        let found = String::from_utf8_lossy(&client.ask(format!("peek {id}\r\n").as_bytes())?).into_owned();
        let number: u64 = found.lines().nth(1).and_then(|body| body.parse().ok()).expect("a number");
        let (known, asked) = (self.known, self.asked);
        assert!((known..=asked).contains(&number), "{tube}: {number}, expected {known} to {asked}");
        assert_eq!(job_count(client, &format!("{tube}-notes"))?, number, "{tube}: the notes");
        (self.known, self.asked) = (number, number);
        Ok(())
    }

    /// How often the job was handed on.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.known
    }
}

/// Runs all chains, each with a connection, until `end` has ended the server and returned.
///
/// # Panics
/// If a chain panics.
pub fn go_on_until<T>(chains: &mut [Chain], clients: Vec<Client>, end: impl FnOnce() -> T) -> T {
    thread::scope(|scope| {
        for (chain, mut client) in chains.iter_mut().zip(clients) {
            scope.spawn(move || chain.go_on(&mut client));
        }
        end()
    })
}

/// The number after the first of these words.
fn first_id(reply: &[u8], word: &str) -> Option<u64> {
    let text = String::from_utf8_lossy(reply);
    let after = &text[text.find(word)? + word.len()..];
    after.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

/// The jobs of a tube in all states; none if there is no tube.
fn job_count(client: &mut Client, tube: &str) -> Result<u64, Failure> {
    Ok(count_jobs(&client.pairs(&format!("stats-tube {tube}"))?))
}

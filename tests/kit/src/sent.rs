//! Commands of clients whose history is kept: their bytes, and the meaning of their replies.
//!
//! Owns: what the history must know before a command is sent, and after its reply is read. Pure: clients choose the
//! commands, send the bytes and read the replies.

use crate::client::{body_of, id_of, inserted_id, put_command};
use crate::history::{History, Tick, body};

/// The time to run of each job, in seconds: longer than any test.
const TTR_S: u32 = 3600;

/// A command on the jobs of a history. The client has reserved the jobs that it touches, releases and deletes.
#[derive(Clone, Copy, Debug)]
pub enum JobCommand {
    /// A put of the key that [`History::putting`] returns, with a body of this length.
    Put(u64, usize),
    /// A reserve that does not wait.
    Reserve,
    Touch(u64),
    Release(u64),
    Delete(u64),
}

/// A command that a client sends, until it has read the reply.
#[derive(Debug)]
pub struct SentCommand {
    /// What is sent.
    pub bytes: Vec<u8>,
    /// A tick before it is sent.
    pub asked_at: Tick,
    command: JobCommand,
}

impl SentCommand {
    /// Notes in the history that the client is about to send the command.
    pub fn new(history: &mut History, command: JobCommand) -> Self {
        match command {
            JobCommand::Release(id) => history.giving_back(id),
            JobCommand::Delete(id) => history.deleting(id),
            _ => {}
        }
        let bytes = match command {
            JobCommand::Put(key, length) => put_command(0, 0, TTR_S, &body(key, length)),
            JobCommand::Reserve => b"reserve-with-timeout 0\r\n".to_vec(),
            JobCommand::Touch(id) => format!("touch {id}\r\n").into_bytes(),
            JobCommand::Release(id) => format!("release {id} 0 0\r\n").into_bytes(),
            JobCommand::Delete(id) => format!("delete {id}\r\n").into_bytes(),
        };
        Self { bytes, asked_at: history.tick(), command }
    }

    /// `client` has read this reply, from this owner of the queue. Returns whether the server has executed the command.
    /// If not, the history is as it was when the command was sent.
    pub fn answered(&self, history: &mut History, client: usize, owner: &str, reply: &[u8]) -> bool {
        match (self.command, reply) {
            (JobCommand::Reserve, b"TIMED_OUT\r\n")
            | (JobCommand::Touch(_), b"TOUCHED\r\n")
            | (JobCommand::Release(_), b"RELEASED\r\n") => {}
            (JobCommand::Delete(id), b"DELETED\r\n") => history.deleted(id),
            (JobCommand::Put(key, _), _) => {
                let Some(id) = inserted_id(reply) else { return false };
                history.inserted(key, id);
            }
            (JobCommand::Reserve, _) => {
                let Some(id) = id_of(reply, "RESERVED") else { return false };
                history.reserved(client, owner, id, body_of(reply), self.asked_at);
            }
            _ => return false,
        }
        true
    }

    /// The reply was a refusal that promises that nothing was changed. If the command is a put, notes
    /// this in the history, and returns true.
    pub fn refused(&self, history: &mut History) -> bool {
        let JobCommand::Put(key, _) = self.command else { return false };
        history.refused(key);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_put_that_gets_the_id_of_an_earlier_job_was_not_executed() {
        let mut history = History::default();
        let key = history.putting();
        let sent = SentCommand::new(&mut history, JobCommand::Put(key, 1));
        assert!(!sent.answered(&mut history, 0, "", b"INSERTED 1 READY\r\n"));
        assert!(sent.answered(&mut history, 0, "", b"INSERTED 1\r\n"));
    }
}

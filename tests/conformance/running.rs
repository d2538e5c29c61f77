//! Runs scripts on a server that was running before the suite, as if it had just started.
//!
//! Owns: the map from the ids in a script to those of the server, the server's counts at the beginning of a case, and
//! the clean-up before each case. Driven by `case`, only for a server that `ADDRESS` names.

use beanstalkd_testkit::client::{Client, Failure, pairs_of};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long the server may take to notice that the clients of the previous case have disconnected.
const PATIENCE: Duration = Duration::from_secs(10);

/// Commands whose first argument is the id of a job, and replies that begin with one.
const BEFORE_IDS: &[&str] = &[
    "delete",
    "release",
    "bury",
    "touch",
    "kick-job",
    "peek",
    "stats-job",
    "reserve-job",
    "RESERVED",
    "FOUND",
];

/// The state of the server at the beginning of a case.
pub struct Origin {
    /// The server's id for each id of the script.
    ids: BTreeMap<String, String>,
    /// By question and key, the server's counts before the case.
    counted: BTreeMap<(&'static str, String), u64>,
}

/// The questions whose counts are reported from the beginning of the case.
const COUNTING: [&str; 2] = ["stats-tube default", "stats"];

impl Origin {
    /// Deletes the jobs that the previous case has left, and notes the server's counts. `client` uses and watches only
    /// "default" afterwards, so it can be the case's first client.
    pub fn prepare(client: &mut Client) -> Result<Self, Failure> {
        client.wait_until_alone(PATIENCE)?;
        delete_all(client)?;
        let mut counted = BTreeMap::new();
        for question in COUNTING {
            for (key, value) in pairs_of(&client.ask(format!("{question}\r\n").as_bytes())?) {
                let counts =
                    key.starts_with("cmd-") || ["job-timeouts", "total-jobs"].contains(&key.as_str());
                let before: u64 = value.parse().unwrap_or_default();
                if counts {
                    counted.insert((question, key), before);
                } else if key == "total-connections" {
                    // This client is the first of the case, so it is not subtracted.
                    counted.insert((question, key), before.saturating_sub(1));
                }
            }
        }
        Ok(Self { ids: BTreeMap::new(), counted })
    }

    /// A line of a script with the ids of the server.
    pub fn to_server(&self, line: &str) -> String {
        let piece = |piece: &str| {
            let words: Vec<&str> = piece.splitn(3, ' ').collect();
            if words[0] == "delete-batch" {
                let ids = piece.split(' ').map(|word| self.ids.get(word).map_or(word, String::as_str));
                return ids.collect::<Vec<_>>().join(" ");
            }
            match (words.first(), words.get(1).and_then(|id| self.ids.get(*id))) {
                (Some(word), Some(id)) if BEFORE_IDS.contains(word) => {
                    [&[*word, id.as_str()], &words[2..]].concat().join(" ")
                }
                _ => piece.to_owned(),
            }
        };
        line.split(" | ").map(piece).collect::<Vec<_>>().join(" | ")
    }

    /// Requires an INSERTED, and notes that its id is `id` in the script from now on.
    pub fn bind(&mut self, client: &mut Client, id: &str) -> Result<(), Failure> {
        let reply = client.read_reply()?;
        let text = String::from_utf8_lossy(&reply).into_owned();
        let given = text.strip_prefix("INSERTED ").and_then(|rest| rest.strip_suffix("\r\n"));
        match given.filter(|given| given.parse::<u64>().is_ok()) {
            Some(given) if self.ids.values().any(|other| other == given) => {
                Err(client.wrong_reply("INSERTED with a new id", text.trim_end()))
            }
            Some(given) => {
                self.ids.insert(id.to_owned(), given.to_owned());
                Ok(())
            }
            None => Err(client.wrong_reply("INSERTED <id>", text.trim_end())),
        }
    }

    /// The pairs of a reply, counted from the beginning of the case.
    pub fn since(&self, question: &str, pairs: Vec<(String, String)>) -> Vec<(String, String)> {
        let Some(question) = COUNTING.into_iter().find(|counting| *counting == question) else {
            return pairs;
        };
        let since = |(key, value): (String, String)| match (
            self.counted.get(&(question, key.clone())),
            value.parse::<u64>(),
        ) {
            (Some(before), Ok(now)) => (key, now.saturating_sub(*before).to_string()),
            _ => (key, value),
        };
        pairs.into_iter().map(since).collect()
    }
}

fn delete_all(client: &mut Client) -> Result<(), Failure> {
    let list = client.ask(b"list-tubes\r\n")?;
    let text = String::from_utf8_lossy(&list).into_owned();
    for tube in text.lines().filter_map(|line| line.strip_prefix("- ")) {
        client.ask(format!("use {tube}\r\n").as_bytes())?;
        for peek in ["peek-ready\r\n", "peek-delayed\r\n", "peek-buried\r\n"] {
            loop {
                let reply = client.ask(peek.as_bytes())?;
                let reply = String::from_utf8_lossy(&reply).into_owned();
                let Some(id) = reply.strip_prefix("FOUND ").and_then(|rest| rest.split(' ').next()) else {
                    break;
                };
                client.exchange(format!("delete {id}\r\n").as_bytes(), b"DELETED\r\n")?;
            }
        }
    }
    client.exchange(b"use default\r\n", b"USING default\r\n")?;
    client.exchange(b"pause-tube default 0\r\n", b"PAUSED\r\n")
}

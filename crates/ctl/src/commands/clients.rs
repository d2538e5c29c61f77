//! `clients` and `kill-client`: the connected clients.

use beanstalk_client::{Dictionary, Error, Refusal};
use serde_json::json;

use super::{ServerArguments, confirm};
use crate::cli::Confirm;
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::output::{Output, age, counted, dictionary, table};
use crate::server::Server;

/// The number of clients in one request.
const PAGE: u32 = 1000;

/// Prints the clients of each server.
pub fn list(servers: &ServerArguments, out: &mut Output) -> Result {
    let several = servers.addresses().len() > 1;
    let mut found = Vec::new();
    let done = servers.each(false, out, |server, _| {
        needs(server, "list-clients")?;
        let address = server.address.to_string();
        let mut cursor = None;
        loop {
            interrupt::check("stopped while listing clients")?;
            let (clients, next) = server.client.list_clients(PAGE, cursor.as_ref())?;
            found.extend(clients.into_iter().map(|client| (address.clone(), client)));
            cursor = next;
            if cursor.is_none() {
                return Ok(());
            }
        }
    });
    if out.is_json() {
        return done
            .and(found.iter().try_for_each(|(server, client)| out.value(&dictionary(server, client))));
    }
    if !found.is_empty() {
        let server = if several { "SERVER" } else { "" };
        let header = [
            server, "CLIENT", "ADDRESS", "IDENTITY", "SESSION", "STATE", "USING", "AGE", "IDLE", "WATCHING",
            "RESERVED", "COMMANDS",
        ];
        let rows: Vec<_> = found.iter().map(|(server, client)| row(server, client)).collect();
        return done.and(out.lines(&table(&header, 7, &rows)));
    }
    done
}

fn row(server: &str, client: &Dictionary) -> Vec<String> {
    let text = |key: &str| match client.get(key) {
        None | Some("") => "-".to_owned(),
        Some(text) => text.to_owned(),
    };
    let time = |key: &str| age(client.number(key).unwrap_or_default());
    let mut cells = vec![server.to_owned()];
    cells.extend(["id", "address", "identity", "session", "state", "using"].map(text));
    cells.extend(["age", "idle"].map(time));
    cells.extend(["watching", "reserved", "commands"].map(text));
    cells
}

/// Asks for confirmation and closes the connections of clients.
pub fn kill(server: &mut Server, ids: &[u64], asking: &Confirm, out: &mut Output) -> Result {
    needs(server, "kill-client")?;
    let matched = ids.len() as u64;
    let what = format!("close the connection of {} on {}", counted(matched, "client"), server.address);
    if !confirm::ask(asking, &what)? {
        return out.dry_run("kill-client", matched);
    }
    let (mut done, mut gone, mut ended) = (0, 0, Ok(()));
    for &id in ids {
        match server.client.kill_client(id) {
            Ok(()) => done += 1,
            Err(Error::Refused(Refusal::NotFound)) => gone += 1,
            Err(error) => {
                ended = Err(Failure::from(error));
                break;
            }
        }
    }
    let printed = out.value_or_line(
        &json!({ "action": "kill-client", "matched": matched, "done": done, "gone": gone }),
        &format!("closed the connection of {}", counted(done, "client")),
    );
    ended?;
    if gone > 0 {
        let are = if gone == 1 { "is" } else { "are" };
        let missing = counted(gone, "client");
        return Err(Failure::NothingMatched(format!("{missing} {are} not connected")));
    }
    printed
}

fn needs(server: &Server, word: &str) -> Result {
    if server.has(word) {
        Ok(())
    } else {
        Err(Failure::Refused(format!("this server has no command {word}")))
    }
}

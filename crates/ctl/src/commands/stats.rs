//! `stats`: prints the counters of servers, or of a tube.

use beanstalk_client::{Dictionary, TubeName};

use super::{ServerArguments, nothing_matched};
use crate::failure::Result;
use crate::output::{Output, dictionary, pairs};

/// Prints the counters.
pub fn run(servers: &ServerArguments, tube: Option<&TubeName>, out: &mut Output) -> Result {
    let several = servers.addresses().len() > 1;
    let (mut answered, mut is_found) = (false, false);
    let done = servers.each(false, out, |server, out| {
        answered = true;
        let stats = match tube {
            None => server.stats.clone(),
            Some(tube) => match server.client.stats_tube(tube) {
                Err(error) if error.is_not_found() => return Ok(()),
                other => other?,
            },
        };
        is_found = true;
        print(&server.address.to_string(), &stats, several, out)
    });
    match tube {
        Some(tube) if answered && !is_found => nothing_matched(done, &format!("there is no tube {tube}")),
        _ => done,
    }
}

fn print(server: &str, stats: &Dictionary, several: bool, out: &mut Output) -> Result {
    if out.is_json() {
        return out.value(&dictionary(server, stats));
    }
    if several {
        out.line(&format!("# {server}"))?;
    }
    out.lines(&pairs(stats.iter().map(|(key, value)| (key.to_owned(), value.to_owned()))))
}

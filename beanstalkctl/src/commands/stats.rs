//! `stats`: prints the counters of servers, or of a tube.

use super::Servers;
use crate::failure::Failure;
use crate::output::{Output, dictionary, table};
use beanstalk_client::{Dictionary, Name};

/// Prints the counters.
pub fn run(servers: &Servers, tube: Option<&Name>, out: &mut Output) -> Result<(), Failure> {
    let mut sessions = servers.all()?;
    let several = sessions.len() > 1;
    let mut missing = 0;
    for session in &mut sessions {
        let stats = match tube {
            None => session.stats.clone(),
            Some(tube) => match session.client.stats_tube(tube) {
                Err(error) if error.is_not_found() => {
                    missing += 1;
                    continue;
                }
                other => other?,
            },
        };
        print(&session.address.to_string(), &stats, several, out)?;
    }
    match tube {
        Some(tube) if missing == sessions.len() => {
            Err(Failure::NothingMatched(format!("there is no tube {tube}")))
        }
        _ => Ok(()),
    }
}

fn print(server: &str, stats: &Dictionary, several: bool, out: &mut Output) -> Result<(), Failure> {
    if out.is_json() {
        return out.value(&dictionary(server, stats));
    }
    if several {
        out.line(&format!("# {server}"))?;
    }
    let rows: Vec<_> = stats.iter().map(|(key, value)| vec![key.to_owned(), value.to_owned()]).collect();
    // Two columns of keys and values need no header.
    table(&["", ""], 2, &rows).iter().skip(1).try_for_each(|line| out.line(line))
}

//! `tubes`: lists tubes with their numbers of jobs.

use std::cmp::Reverse;

use beanstalk_client::JobState;

use super::{ServerArguments, nothing_matched};
use crate::cli::{SortColumn, TubesArguments};
use crate::failure::Result;
use crate::output::{Output, age, dictionary, table};
use crate::server::Tube;

impl SortColumn {
    /// The number of this tube to sort by; 0 for [`Self::Name`], because names are compared separately.
    fn of(self, tube: &Tube) -> u64 {
        match self {
            Self::Name => 0,
            Self::Ready => tube.count(JobState::Ready),
            Self::Reserved => tube.count(JobState::Reserved),
            Self::Delayed => tube.count(JobState::Delayed),
            Self::Buried => tube.count(JobState::Buried),
            Self::Jobs => tube.jobs(),
            Self::Waiting => tube.stats.number_or_zero("current-waiting"),
            Self::Total => tube.stats.number_or_zero("total-jobs"),
            Self::Age => tube.stats.number_or_zero("oldest-ready-age"),
        }
    }
}

/// Prints the tubes.
pub fn run(servers: &ServerArguments, arguments: &TubesArguments, out: &mut Output) -> Result {
    let several = servers.addresses().len() > 1;
    let mut found = Vec::new();
    let mut answered = false;
    let done = servers.each(false, out, |server, _| {
        let address = server.address.to_string();
        found.extend(server.tubes(&arguments.tubes)?.into_iter().map(|tube| (address.clone(), tube)));
        answered = true;
        Ok(())
    });
    if found.is_empty() {
        return if answered { nothing_matched(done, "there is no such tube") } else { done };
    }
    done.and(print(found, arguments, several, out))
}

fn print(
    mut found: Vec<(String, Tube)>,
    arguments: &TubesArguments,
    several: bool,
    out: &mut Output,
) -> Result {
    // The second sort is stable: tubes with equal numbers stay in the order of their names.
    found.sort_by(|(_, one), (_, other)| one.name.cmp(&other.name));
    found.sort_by_key(|(_, tube)| Reverse(arguments.sort.of(tube)));
    if arguments.reverse {
        found.reverse();
    }
    if out.is_json() {
        return found.iter().try_for_each(|(server, tube)| out.value(&dictionary(server, &tube.stats)));
    }
    let has_age = found.iter().any(|(_, tube)| tube.stats.get("oldest-ready-age").is_some());
    let (server, oldest) = (if several { "SERVER" } else { "" }, if has_age { "OLDEST" } else { "" });
    let header = [
        server, "TUBE", "READY", "RESERVED", "DELAYED", "BURIED", "WAITING", "WATCHING", "TOTAL", "PAUSED",
        oldest,
    ];
    let rows: Vec<_> = found.iter().map(|(server, tube)| row(server, tube)).collect();
    out.lines(&table(&header, 2, &rows))
}

fn row(server: &str, tube: &Tube) -> Vec<String> {
    let count = |key| tube.stats.number_or_zero(key);
    let time = |key| if count(key) == 0 { "-".to_owned() } else { age(count(key)) };
    let mut cells = vec![server.to_owned(), tube.name.to_string()];
    cells.extend(JobState::ALL.map(|state| tube.count(state).to_string()));
    cells.extend(["current-waiting", "current-watching", "total-jobs"].map(|key| count(key).to_string()));
    cells.extend(["pause-time-left", "oldest-ready-age"].map(time));
    cells
}

//! The confirmation before many jobs or tubes are changed.

use std::io::{self, IsTerminal, Write};

use crate::cli::Confirm;
use crate::failure::{Failure, Result};
use crate::input::StdinLines;
use crate::output::{say, visible};

/// Asks on standard error whether to do `what`. Returns `false` for a dry run, which only prints it; a "no" is
/// [`Failure::Interrupted`].
pub fn ask(confirm: &Confirm, what: &str) -> Result<bool> {
    if confirm.dry_run {
        say(&format!("would {what}"));
        return Ok(false);
    }
    if confirm.yes {
        return Ok(true);
    }
    if !io::stdin().is_terminal() {
        return Err(Failure::Usage(format!(
            "would {what}, but cannot ask for confirmation: standard input is not a terminal. Add --yes to do it, or \
             --dry-run to see what would be done"
        )));
    }
    let asked = write!(io::stderr(), "beanstalkctl: {}? [y/N] ", visible(what.as_bytes(), false));
    asked.map_err(|error| Failure::Local(format!("standard error: {error}")))?;
    let unchanged = || Failure::Interrupted("nothing was changed".to_owned());
    let answer = match StdinLines::new().wait() {
        Ok(answer) => answer.unwrap_or_default(),
        Err(Failure::Interrupted(_)) => {
            let _ = writeln!(io::stderr());
            return Err(unchanged());
        }
        Err(failure) => return Err(failure),
    };
    let answer = String::from_utf8_lossy(&answer).trim().to_lowercase();
    if ["y", "yes"].contains(&answer.as_str()) {
        return Ok(true);
    }
    Err(unchanged())
}

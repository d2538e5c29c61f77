//! The file of rules for tubes: read at the start and at SIGHUP.
//!
//! Owns: the messages about the file. Driven by `startup` and `main`.

use std::error::Error;
use std::path::{Path, PathBuf};

use beanstalkd::options::{ExitReason, Options};
use beanstalkd::server::event_loop::ReadTubeRules;
use beanstalkd::tube_rules;
use beanstalkd_queue::TubeRule;
use log::{error, info};

use super::text_file;

/// The rules in a file.
///
/// # Errors
/// If the file cannot be read, or is wrong in any part.
pub fn read(path: &Path) -> Result<Vec<TubeRule>, Box<dyn Error>> {
    Ok(tube_rules::parse(&text_file::read(path)?)?)
}

/// A function that reads the rules in a file again; its error names the file.
pub fn reader(path: PathBuf) -> Box<ReadTubeRules> {
    Box::new(move || read(&path).map_err(|error| format!("--tubes {}: {error}", path.display())))
}

/// The rules for tubes, if the command line names a file.
pub fn load(options: &Options) -> Result<Vec<TubeRule>, ExitReason> {
    let Some(path) = &options.tubes else { return Ok(Vec::new()) };
    let rules = read(path).map_err(|error| {
        error!("--tubes {}: {error}", path.display());
        ExitReason::Usage
    })?;
    info!("rules for tubes of {}: {}", path.display(), rules.len());
    Ok(rules)
}

//! `put`: puts jobs from an argument, a file, or the lines of standard input.

use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use beanstalk_client::{Inserted, JobState, PutOptions, Request};
use serde_json::json;

use crate::cli::PutArguments;
use crate::failure::{Failure, OfFile, Result};
use crate::input::{self, StdinLines};
use crate::interrupt;
use crate::output::{Output, counted};
use crate::progress::ShownProgress;
use crate::server::{Server, put_failed};

/// How many lines are put together.
const BATCH: usize = 256;

/// Puts the jobs and prints their ids.
pub fn run(server: &mut Server, arguments: &PutArguments, out: &mut Output) -> Result {
    if let Some(tag) = arguments.tags.iter().find(|tag| !server.has(tag.word())) {
        return Err(Failure::Refused(format!("this server does not support the tag {}", tag.word())));
    }
    server.client.use_tube(&arguments.tube)?;
    let options = PutOptions {
        pri: arguments.priority,
        delay: server.time("--delay", arguments.delay),
        ttr: server.time("--ttr", arguments.ttr),
        tags: arguments.tags.clone(),
    };
    match (&arguments.body, &arguments.file) {
        (Some(body), _) => put(server, &[body.as_bytes().to_vec()], &options, out, &mut 0),
        (None, Some(path)) => put(server, &[read(path)?], &options, out, &mut 0),
        (None, None) => put_lines(server, &options, out),
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    if path == Path::new("-") {
        let read = input::read(|| {
            let mut body = Vec::new();
            std::io::stdin().lock().read_to_end(&mut body).map(|_| body)
        });
        return read?.map_err(|error| Failure::Local(format!("standard input: {error}")));
    }
    let file = path.to_owned();
    input::read(|| std::fs::read(file))?.of_file(path)
}

fn put_lines(server: &mut Server, options: &PutOptions, out: &mut Output) -> Result {
    let lines = StdinLines::new();
    let progress = ShownProgress::counter("put");
    let (mut done, mut printed) = (0, Ok(()));
    loop {
        let after = |done, failure: Failure| failure.while_doing(&format!("after {}", counted(done, "job")));
        let Some(first) = lines.wait().map_err(|failure| after(done, failure))? else { return printed };
        // Lines that have already arrived are put before the next wait.
        let mut bodies = vec![first];
        while bodies.len() < BATCH
            && let Some(line) = lines.ready().map_err(|failure| after(done, failure))?
        {
            bodies.push(line);
        }
        let before = done;
        let put = put(server, &bodies, options, out, &mut done);
        progress.add(done - before);
        match put {
            // The jobs count, and not their ids: the other lines are put, too.
            Err(Failure::OutputClosed) => printed = Err(Failure::OutputClosed),
            put => put.map_err(|failure| after(done, failure))?,
        }
        interrupt::check("stopped").map_err(|failure| after(done, failure))?;
    }
}

/// Puts all bodies, prints the ids of the accepted jobs, and adds their number to `done`.
fn put(
    server: &mut Server,
    bodies: &[Vec<u8>],
    options: &PutOptions,
    out: &mut Output,
    done: &mut u64,
) -> Result {
    let puts = bodies.iter().map(|body| Request::Put(options, body));
    let mut replies = Vec::new();
    let sent = server.client.pipeline(puts, |_, reply| replies.push(Inserted::of_reply(&reply)));
    let (mut refused, mut printed) = (None, Ok(()));
    for reply in replies {
        let inserted = match reply {
            Ok(inserted) => inserted,
            Err(error) => {
                refused.get_or_insert(put_failed(error));
                continue;
            }
        };
        *done += 1;
        let existing = inserted.is_duplicate.then(|| inserted.state.map_or("deleted", JobState::as_str));
        let line = match existing {
            None => inserted.id.to_string(),
            Some(state) => format!("{} {state}", inserted.id),
        };
        let value = json!({ "id": inserted.id, "existing": existing });
        printed = printed.and_then(|()| out.value_or_line(&value, &line));
    }
    let flushed = printed.and_then(|()| out.flush());
    sent?;
    refused.map_or(flushed, Err)
}

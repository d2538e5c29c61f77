//! pause, resume, drain and undrain.

use beanstalk_client::{Command, Reply, Seconds};
use serde_json::json;

use super::{ServerArguments, confirm};
use crate::cli::TubeArguments;
use crate::failure::{Failure, Result};
use crate::output::{Output, age, counted};
use crate::server::{Server, unexpected};

/// Pauses tubes for `seconds`; 0 ends their pause. Asks for confirmation if a pattern matches several tubes.
pub fn pause(server: &mut Server, arguments: &TubeArguments, seconds: Seconds, out: &mut Output) -> Result {
    let tubes = server.tube_names(&arguments.tubes)?;
    let seconds = server.time("--for", seconds);
    let verb = if seconds.is_zero() { "resume" } else { "pause" };
    if tubes.is_empty() {
        return Err(Failure::NothingMatched("there is no such tube".to_owned()));
    }
    let time = match seconds.thousandths() {
        0 if seconds.is_zero() => String::new(),
        0 => format!(" for {}", age(seconds.whole().into())),
        _ => format!(" for {seconds}s"),
    };
    let count = tubes.len() as u64;
    let what = format!("{verb} {}{time} on {}", counted(count, "tube"), server.address);
    let must_ask = tubes.len() > arguments.tubes.len() || arguments.confirm.dry_run;
    if must_ask && !confirm::ask(&arguments.confirm, &what)? {
        return out.dry_run(verb, count);
    }
    let pauses = tubes.iter().map(|tube| Command::PauseTube { tube: tube.into(), delay_s: seconds });
    let paused = server.client.call_all(pauses, |reply| match reply {
        Reply::Paused => Ok(1),
        Reply::NotFound => Ok(0), // the tube was removed in the meantime
        other => Err(unexpected("pause-tube", &other)),
    });
    let done = paused?.into_iter().sum::<Result<u64>>()?;
    let past = if seconds.is_zero() { "resumed" } else { "paused" };
    out.value_or_line(
        &json!({ "action": verb, "matched": count, "done": done }),
        &format!("{past} {}{time}", counted(done, "tube")),
    )
}

/// Begins or ends drain mode.
pub fn drain(servers: &ServerArguments, on: bool, out: &mut Output) -> Result {
    let (verb, signal) = if on { ("drain", "USR1") } else { ("undrain", "USR2") };
    servers.each(true, out, |server, out| {
        let address = server.address.to_string();
        if !server.has(verb) {
            let pid = server.stats.get("pid").unwrap_or("PID");
            return Err(Failure::Refused(format!(
                "this server has no command {verb}; on its machine, use: kill -{signal} {pid}"
            )));
        }
        if on {
            server.client.drain()?
        } else {
            server.client.undrain()?
        }
        let mode = if on { "accepts no new jobs" } else { "accepts new jobs" };
        out.value_or_line(&json!({ "server": address, "draining": on }), &format!("{address} {mode}"))
    })
}

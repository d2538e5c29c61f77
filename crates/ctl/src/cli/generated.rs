//! The manual page and the completions, made from the command line.
//!
//! Owns: the argument that asks for them, which installing and packaging use, and what the manual page says beyond the
//! command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, io};

use clap::{Arg, Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

use super::Cli;
use super::tube_completion::with_tubes;

/// The argument that makes this program write the files into the directory that follows it.
const ARGUMENT: &str = "__generate";

/// The program of the manual page, with its version.
const NAME: &str =
    concat!("beanstalkctl ", env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));
/// The date of the manual page: when its text last changed, not when it was generated.
const DATE: &str = "2026-11-29";

const CAVEATS: [&str; 4] = [
    "On a server without list-jobs, such as C beanstalkd, beanstalkctl asks for every id from the newest down, until \
     it has seen as many jobs as the tubes have. If the server has a binlog, no counter shows the newest id: \
     beanstalkctl puts a job into the tube beanstalkctl-probe and deletes it at once to learn it.",
    "On a server without move and reprioritize, beanstalkctl reserves each job for a short time. A moved job is then \
     a copy with a new id, and the counters of the job go up. If the connection breaks in between, a delayed or buried \
     job may become ready, and a moved job may exist twice; no job is lost.",
    "flush deletes reserved jobs only on a server with flush-tube. On other servers only the client that has reserved \
     a job can delete it.",
    "An export without --drain may contain jobs that workers have finished in the meantime.",
];

const FILES: [&str; 3] = [
    "FILE.partial: the output of export until it is complete and gets the name FILE.",
    "FILE.taking: the states that the jobs had before export --drain buried them. It is removed when the export is \
     done.",
    "FILE.journal: the jobs that import has put. While this file exists, no job of FILE is put twice.",
];

const ENVIRONMENT: [&str; 4] = [
    "BEANSTALKD_SERVER, BEANSTALKD_CA, BEANSTALKD_CERT, BEANSTALKD_KEY, BEANSTALKD_TOKEN_FILE: the defaults of the \
     options of these names. BEANSTALKD_TLS: if set, and neither 0, false, no, off nor empty, --tls. \
     BEANSTALKD_TOKEN: the token itself, if there is no file.",
    "SSL_CERT_FILE, SSL_CERT_DIR: the certificates that --tls trusts without --ca, instead of those of the system.",
    "NO_COLOR: if set, the help has no colours.",
    "work sets these variables for its commands: BEANSTALK_JOB_ID, BEANSTALK_TUBE, BEANSTALK_TAGS (separated by \
     spaces), BEANSTALK_PRIORITY, BEANSTALK_ATTEMPT (counted from 1), BEANSTALK_RESERVES (how often the job was \
     reserved), BEANSTALK_AGE (seconds since its put) and BEANSTALK_TRACE (empty if it has none).",
];

/// The directory into which the files are to be written, if that is what this process was started for.
pub fn directory() -> Option<PathBuf> {
    let mut arguments = env::args_os().skip(1);
    (arguments.next()? == ARGUMENT).then(|| arguments.next().map(OsString::into))?
}

/// Writes the files.
pub fn run(directory: &Path) -> ExitCode {
    match files().and_then(|files| write(directory, &files)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            crate::output::say(&format!("{}: {error}", directory.display()));
            ExitCode::FAILURE
        }
    }
}

fn write(directory: &Path, files: &[(&str, Vec<u8>)]) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    files.iter().try_for_each(|(name, content)| fs::write(directory.join(name), content))
}

/// The files, by their names.
fn files() -> io::Result<Vec<(&'static str, Vec<u8>)>> {
    let mut files = vec![("beanstalkctl.1", manual()?)];
    for (shell, name) in [
        (Shell::Bash, "beanstalkctl.bash"),
        (Shell::Zsh, "_beanstalkctl"),
        (Shell::Fish, "beanstalkctl.fish"),
    ] {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "beanstalkctl", &mut script);
        let script = with_tubes(shell, &String::from_utf8_lossy(&script), &Cli::command());
        files.push((name, script.into_bytes()));
    }
    Ok(files)
}

/// Writes a paragraph. The crate escapes text that roff would take for a command.
fn text(roff: &mut Roff, text: &str) {
    roff.text([roman(text)]);
}

fn section(roff: &mut Roff, title: &str, paragraphs: &[&str]) {
    roff.control("SH", [title]);
    for (position, paragraph) in paragraphs.iter().enumerate() {
        if position > 0 {
            roff.control("PP", []);
        }
        text(roff, paragraph);
    }
}

fn options(roff: &mut Roff, command: &Command) {
    for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
        let global = argument.is_global_set() && command.get_name() != "beanstalkctl";
        if global || matches!(argument.get_id().as_str(), "help" | "version") {
            continue;
        }
        roff.control("TP", []);
        roff.text(heading(argument));
        describe(roff, argument);
    }
}

fn heading(argument: &Arg) -> Vec<Inline> {
    let mut heading = Vec::new();
    if let Some(short) = argument.get_short() {
        heading.extend([bold(format!("-{short}")), roman(", ")]);
    }
    if let Some(long) = argument.get_long() {
        heading.push(bold(format!("--{long}")));
    }
    let takes_value = argument.get_action().takes_values();
    for name in argument.get_value_names().unwrap_or_default().iter().filter(|_| takes_value) {
        heading.extend([roman(if heading.is_empty() { "" } else { " " }), italic(name.as_str())]);
    }
    heading
}

fn describe(roff: &mut Roff, argument: &Arg) {
    let takes_value = argument.get_action().takes_values();
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let defaults: Vec<_> =
        argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let default = match defaults.as_slice() {
        [default] if takes_value => format!(" (default: {default})"),
        _ => String::new(),
    };
    text(roff, &format!("{help}{default}."));
    let choices = argument.get_possible_values();
    for choice in choices.iter().filter(|choice| takes_value && choice.get_help().is_some()) {
        let help = choice.get_help().map(ToString::to_string).unwrap_or_default();
        roff.control("br", []);
        roff.text([bold(choice.get_name()), roman(format!(": {help}."))]);
    }
}

fn manual() -> io::Result<Vec<u8>> {
    let mut cli = Cli::command();
    cli.build();
    let mut roff = Roff::new();
    roff.control("TH", ["BEANSTALKCTL", "1", DATE, NAME, "User Commands"]);
    roff.control("SH", ["NAME"]);
    text(&mut roff, "beanstalkctl - show and change the tubes and jobs of a beanstalkd");
    roff.control("SH", ["SYNOPSIS"]);
    roff.text([
        bold("beanstalkctl"),
        roman(" [--server "),
        italic("ADDRESS"),
        roman("] [--json] "),
        italic("COMMAND"),
    ]);
    section(
        &mut roff,
        "DESCRIPTION",
        &[
            "beanstalkctl is the command-line client of beanstalkd. It shows tubes and jobs, changes them one by one \
             or many at once, runs a command for each job, and transfers jobs between servers.",
            "It uses the extensions that the server offers. On a server without them, it does the same with the \
             commands of C beanstalkd, or says that this server cannot do it.",
            "A command that changes many jobs prints their number and asks for confirmation. Ctrl-C stops it between \
             two batches of jobs.",
        ],
    );
    roff.control("SH", ["OPTIONS"]);
    options(&mut roff, &cli);
    roff.control("SH", ["COMMANDS"]);
    for command in cli.get_subcommands().filter(|command| command.get_name() != "help") {
        roff.control("SS", [command.get_name()]);
        let usage = command.clone().render_usage().to_string();
        text(&mut roff, usage.trim_start_matches("Usage: "));
        roff.control("PP", []);
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        text(&mut roff, &format!("{about}."));
        options(&mut roff, command);
    }
    section(
        &mut roff,
        "EXIT STATUS",
        &[
            "0: done. 1: nothing matched. 2: the command line is wrong, or a confirmation is needed and cannot be \
             asked for. 3: no connection, or it broke. 4: refused by the server. 5: a local file or command failed. \
             130: stopped by Ctrl-C or SIGTERM, or the question was answered with no.",
        ],
    );
    section(&mut roff, "ENVIRONMENT", &ENVIRONMENT);
    section(&mut roff, "FILES", &FILES);
    section(&mut roff, "CAVEATS", &CAVEATS);
    roff.control("SH", ["SEE ALSO"]);
    roff.text([bold("beanstalkd"), roman("(1)")]);
    let mut bytes = Vec::new();
    roff.to_writer(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_has_every_command_and_option() {
        let cli = Cli::command();
        let files = files().unwrap();
        assert_eq!(files.len(), 4);
        for (name, content) in files {
            // The manual page escapes hyphens.
            let text = String::from_utf8(content).unwrap().replace("\\-", "-");
            for command in cli.get_subcommands() {
                assert!(text.contains(command.get_name()), "{name}: {}", command.get_name());
                for option in command.get_arguments().filter_map(Arg::get_long) {
                    assert!(text.contains(option), "{name}: {}: {option}", command.get_name());
                }
            }
            assert!(!text.contains(ARGUMENT), "{name}: only installing asks for the files");
        }
    }

    #[test]
    fn the_completions_ask_the_server_for_its_tubes() {
        for (name, content) in files().unwrap().iter().skip(1) {
            let text = String::from_utf8_lossy(content);
            assert!(text.contains("tubes --json") && !text.contains("COMMANDS"), "{name}");
            assert!(!text.contains("OPTIONS)"), "{name}");
        }
    }

    #[test]
    fn fish_completes_every_option_that_is_a_tube() {
        let files = files().unwrap();
        let fish = String::from_utf8_lossy(&files[3].1);
        for [command, option] in [["delete", "-s t -l tube"], ["import", "-l tube"], ["move", "-l to"]] {
            let tubes = format!("from {command}\" {option} -x -a \"(__beanstalkctl_tubes)");
            assert!(fish.contains(&tubes), "{command} {option}");
        }
    }

    #[test]
    fn the_command_line_has_no_contradictions() {
        Cli::command().debug_assert();
    }
}

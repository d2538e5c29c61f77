//! The manual page and the completions in the repository are those that the command line gives.
//!
//! `make ctl-generate` writes them.

use super::Cli;
use clap::{Arg, Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use std::path::{Path, PathBuf};

/// Of the page. It changes with what the page says, not with the day on which it is generated.
const DATE: &str = "2026-11-22";

const CAVEATS: [&str; 4] = [
    "Without list-jobs, as on C beanstalkd, jobs are found by asking for every id from the newest down, until as many were \
     seen as the tubes have. With a binlog no counter tells the newest id: a job is put into a tube of its own and deleted \
     at once to learn it.",
    "Without move and reprioritize a job is reserved for a moment. A job that is moved without move is a copy with a new id; \
     a bury or release is counted. If the connection breaks meanwhile, a job may be ready that was delayed or buried, or be \
     there twice, but never lost.",
    "Jobs in the hands of clients can be deleted by flush on a server with flush-tube, and by nobody else on any other.",
    "An export without --drain of tubes that workers work on has jobs that they have done by then.",
];

const FILES: [&str; 3] = [
    "FILE.partial: what export writes until FILE is complete.",
    "FILE.taking: how the jobs were that export --drain takes out, until it has done so.",
    "FILE.journal: what import has put. As long as it is there, no job of FILE is put twice.",
];

const ENVIRONMENT: [&str; 3] = [
    "BEANSTALKD_SERVER: the default of --server.",
    "NO_COLOR: no colours in help.",
    "work sets for its commands: BEANSTALK_JOB_ID, BEANSTALK_TUBE, BEANSTALK_TAGS (separated by spaces), \
     BEANSTALK_PRIORITY and BEANSTALK_ATTEMPT (from 1).",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn compare(path: &str, generated: &[u8]) {
    let path = root().join(path);
    if std::env::var_os("GENERATE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, generated).unwrap();
    }
    let there = std::fs::read(&path).unwrap_or_default();
    assert!(there == generated, "{} is not what the command line gives: `make ctl-generate`", path.display());
}

/// A paragraph. The crate escapes what would be a command of roff.
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

fn manual() -> Vec<u8> {
    let mut cli = Cli::command();
    cli.build();
    let mut roff = Roff::new();
    roff.control("TH", ["BEANSTALKCTL", "1", DATE, "beanstalkctl 2.0", "User Commands"]);
    roff.control("SH", ["NAME"]);
    text(&mut roff, "beanstalkctl - looks after the jobs of a beanstalkd");
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
            "beanstalkctl shows tubes and jobs of a beanstalkd, changes them one by one or many at once, runs a command \
             for each job, and carries jobs from one server to another.",
            "What the server offers beyond the commands of C beanstalkd is used; without it, the same is made of C's \
             commands, or beanstalkctl says that this server cannot do it.",
            "A command that touches many jobs says how many, and asks. Ctrl-C stops it where nothing is half done.",
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
            "0: done. 1: nothing matched. 2: usage. 3: no connection, or it broke. 4: refused by the server. 5: a file \
             or a command of this machine failed. 130: stopped by Ctrl-C or SIGTERM.",
        ],
    );
    section(&mut roff, "ENVIRONMENT", &ENVIRONMENT);
    section(&mut roff, "FILES", &FILES);
    section(&mut roff, "CAVEATS", &CAVEATS);
    roff.control("SH", ["SEE ALSO"]);
    roff.text([bold("beanstalkd"), roman("(1)")]);
    let mut bytes = Vec::new();
    roff.to_writer(&mut bytes).unwrap();
    bytes
}

#[test]
fn the_manual_page_is_that_of_the_command_line() {
    compare("doc/beanstalkctl.1", &manual());
}

#[test]
fn the_completions_are_those_of_the_command_line() {
    for (shell, path) in [
        (Shell::Bash, "packaging/completions/beanstalkctl.bash"),
        (Shell::Zsh, "packaging/completions/_beanstalkctl"),
        (Shell::Fish, "packaging/completions/beanstalkctl.fish"),
    ] {
        let mut bytes = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "beanstalkctl", &mut bytes);
        compare(path, &bytes);
    }
}

#[test]
fn the_command_line_has_no_contradictions() {
    Cli::command().debug_assert();
}

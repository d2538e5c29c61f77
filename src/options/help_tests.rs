//! Compares the help, the README and the manual with the table of flags.

use std::collections::BTreeSet;

use super::*;

#[test]
fn the_help_fits_a_screen_and_names_every_default() {
    let help = help("beanstalkd");
    assert!(help.starts_with("Use: beanstalkd [OPTIONS]\n"));
    assert!((24..=58).contains(&help.lines().count()), "{} lines", help.lines().count());
    assert!(help.lines().all(|line| line.len() <= 80));
    for default in [
        DEFAULT_HOST.to_owned(),
        DEFAULT_PORT.to_owned(),
        DEFAULT_MAX_JOB_BYTES.to_string(),
        MAX_JOB_BYTES.to_string(),
        DEFAULT_BINLOG_FILE_BYTES.to_string(),
        BINLOG_FILE_STEP_BYTES.to_string(),
        DEFAULT_FSYNC_INTERVAL.as_millis().to_string(),
        DEFAULT_METRICS_TUBES.to_string(),
        DEFAULT_MAX_COOLDOWN_S.to_string(),
    ] {
        assert!(help.contains(&default), "{default}");
    }
}

/// The flags in `text`, such as `-b` and `--port`.
fn flags_in(text: &str) -> BTreeSet<&str> {
    let words = text.split(|char: char| char != '-' && !char.is_alphanumeric());
    words.filter(|word| word.starts_with('-') && word.ends_with(char::is_alphanumeric)).collect()
}

#[test]
fn the_help_the_readme_and_the_manual_have_the_flags_of_the_table() {
    let names = |flag: &Flag| [format!("-{}", flag.short), format!("--{}", flag.long)];
    let names = flags::FLAGS.iter().flat_map(names).filter(|name| name.ends_with(char::is_alphanumeric));
    let names: Vec<String> = names.collect();
    // What is in parentheses names other flags.
    let help = HELP.split(['(', ')']).step_by(2).collect::<String>();
    let readme =
        include_str!("../../README.md").split("\n## ").find(|part| part.starts_with("Flags\n")).unwrap();
    let rows = readme.lines().filter_map(|line| line.strip_prefix('|')?.split('|').next());
    let manual = include_str!("../../doc/beanstalkd.1");
    let items: String = manual.lines().filter(|line| line.starts_with(".It Fl ")).collect();
    let items = items.replace("Fl ", "-");
    let table: [(&str, &[&str]); 3] = [
        (&help, &["--binlog-dir", "-c", "-n", "--check-handover"]),
        (&rows.collect::<String>(), &["--binlog-dir", "-c", "-n"]),
        (&items, &[]),
    ];
    for (text, left_out) in table {
        let found = flags_in(text);
        let missing: Vec<_> = names.iter().filter(|name| !found.contains(name.as_str())).collect();
        assert_eq!(missing, left_out, "{text}");
    }
    for flag in [HELP, readme, items.as_str()].into_iter().flat_map(flags_in) {
        let error = Options::parse([flag]).err();
        assert!(!matches!(error, Some(UsageError::UnknownFlag(_))), "{flag}");
    }
}

#[test]
fn the_manual_names_each_exit_code() {
    let manual = include_str!("../../doc/beanstalkd.1");
    for reason in [
        ExitReason::Usage,
        ExitReason::BinlogDirectory,
        ExitReason::UserLookup,
        ExitReason::NoSuchUser,
        ExitReason::BecomeUser,
        ExitReason::BinlogDamaged,
        ExitReason::Start,
    ] {
        assert!(manual.contains(&format!("\n.It {}\n", reason.code())), "{reason:?}");
    }
}

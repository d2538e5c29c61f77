//! Compares the help and the manual with the table of flags.

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

#[test]
fn the_help_names_flags_that_are_known_and_in_the_manual() {
    let help = help("beanstalkd");
    let words = help.split([' ', '\n', ',', ';', ':', ')']);
    let flags: Vec<&str> = words.filter(|word| word.starts_with('-') && word.len() > 1).collect();
    assert!(flags.len() > 30, "{flags:?}");
    let manual = include_str!("../../doc/beanstalkd.1");
    for flag in flags {
        let error = Options::parse([flag]).err();
        assert!(!matches!(error, Some(UsageError::UnknownFlag(_))), "{flag}");
        let name = if flag.starts_with("--") { &flag[1..] } else { &flag[1..2] };
        assert!(manual.contains(&format!("Fl {name}")), "{flag}");
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

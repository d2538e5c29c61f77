//! Servers with access rules.

use std::os::unix::ffi::OsStrExt;

use beanstalkd_testkit::panicking::Server;
use beanstalkd_testkit::server::free_address;
use beanstalkd_testkit::{TOKEN, TOKEN_HASH};

use crate::support::{between, command, ctl, write};

/// Access rules with these roles for anonymous clients, and all for the one with the token.
fn rules(strangers: &str) -> String {
    format!(
        "[identities.operator]\ntokens = [\"{TOKEN_HASH}\"]\nproduce = [\"*\"]\nwork = [\"*\"]\nobserve = \
         [\"*\"]\nmanage = [\"*\"]\n[strangers]\n{strangers}"
    )
}

#[test]
fn a_token_in_a_file_logs_in() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| write(directory.path(), name, text);
    let rules = format!("[identities.mailer]\ntokens = [\"{TOKEN_HASH}\"]\nproduce = [\"mail\"]\n");
    let address = free_address().unwrap().to_string();
    let _server = Server::start(&["--listen", &address, "--access", &file("rules.toml", &rules)]);
    let token = file("token", &format!("{TOKEN}\n"));
    ctl(&address, &["put", "mail", "hello", "--token-file", &token]).ends_with(0);
    let tubes = ctl(&address, &["tubes", "--token-file", &token]).ends_with(0);
    assert!(tubes.out.contains("mail"), "{tubes:?}");
    for (variable, value) in [("BEANSTALKD_TOKEN", TOKEN), ("BEANSTALKD_TOKEN_FILE", &token)] {
        let tubes = command(&address, &["tubes"]).env(variable, value).output().unwrap();
        assert_eq!(tubes.status.code(), Some(0), "{tubes:?}");
    }
    let unreadable = std::ffi::OsStr::from_bytes(b"\xff");
    let tubes = command(&address, &["tubes"]).env("BEANSTALKD_TOKEN", unreadable).output().unwrap();
    assert_eq!(tubes.status.code(), Some(2), "{tubes:?}");
    // The command line counts before the environment.
    let mut tubes = command(&address, &["tubes", "--token-file", &token]);
    assert!(tubes.env("BEANSTALKD_TOKEN", "wrong").status().unwrap().success());
    let forbidden = ctl(&address, &["put", "other", "hello", "--token-file", &token]).ends_with(4);
    assert!(forbidden.err.contains("FORBIDDEN"), "{forbidden:?}");
    for shows in ["job", "why"] {
        let forbidden = ctl(&address, &[shows, "1", "--token-file", &token]).ends_with(4);
        assert!(forbidden.err.contains("FORBIDDEN"), "{forbidden:?}");
    }
    ctl(&address, &["tubes"]).ends_with(4);
    let wrong =
        ctl(&address, &["tubes", "--token-file", &file("wrong", &TOKEN.replace('0', "1"))]).ends_with(4);
    assert!(wrong.err.contains("UNAUTHORIZED") && !wrong.err.contains(TOKEN), "{wrong:?}");
    ctl(&address, &["tubes", "--token-file", "/missing"]).ends_with(5);
    ctl(&address, &["tubes", "--token-file", &file("empty", "\n")]).ends_with(2);
}

#[test]
fn an_import_reports_that_it_may_not_end_the_delay_of_its_jobs() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| write(directory.path(), name, text);
    let rules = rules("produce = [\"mail\"]\nobserve = [\"mail\"]\n");
    let address = free_address().unwrap().to_string();
    let _server = Server::start(&["--listen", &address, "--access", &file("rules.toml", &rules)]);
    let jobs = file("jobs", "{\"tube\":\"mail\",\"body\":\"a\"}\n");
    for _ in 0..2 {
        let refused = ctl(&address, &["import", &jobs]).ends_with(4);
        assert!(refused.err.contains("FORBIDDEN"), "{refused:?}");
    }
    // With the role, the same command ends the delay.
    let token = file("token", &format!("{TOKEN}\n"));
    ctl(&address, &["import", &jobs, "--token-file", &token]).ends_with(0);
    let listed = ctl(&address, &["jobs", "mail", "--json", "--token-file", &token]).ends_with(0).json();
    assert_eq!((listed.len(), listed[0]["state"].as_str()), (1, Some("ready")), "{listed:?}");
}

#[test]
fn a_drain_keeps_the_jobs_that_it_may_not_reserve_and_exports_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_string_lossy().into_owned();
    let rules = rules("work = [\"mine\"]\nobserve = [\"*\"]\n");
    let (access, token) =
        (write(directory.path(), "rules.toml", &rules), write(directory.path(), "token", TOKEN));
    let server = Server::start(&["--access", &access]);
    let address = format!("unix:{}", server.socket_path().display());
    let jobs = path("jobs");
    let lines = || std::fs::read_to_string(&jobs).unwrap().lines().count();
    let exists = |name: &str| std::path::Path::new(&path(name)).exists();
    let drain = ["export", "mine", "other", "--drain", "--yes", "--output", &jobs];
    // The second time, FILE.taking of an interrupted drain has the jobs of both tubes.
    for (before, is_interrupted) in [(0, false), (2, true)] {
        for tube in ["other", "mine"] {
            ctl(&address, &["put", tube, "x", "--token-file", &token]).ends_with(0);
        }
        if is_interrupted {
            let lost = between(path("socket").as_ref(), &address, |line| !line.starts_with("reserve-job"));
            ctl(&lost, &drain).ends_with(3);
            assert!(exists("jobs.taking"));
        }
        let refused = ctl(&address, &drain).ends_with(4);
        let kept = "kept 1 job: the server answered reserve-job with FORBIDDEN\n";
        assert!(refused.err.ends_with(kept) && refused.out.contains("deleted 1 job"), "{refused:?}");
        assert_eq!((lines(), exists("jobs.taking")), (before + 1, false));
        // A later run has nothing to do with the job that was refused.
        ctl(&address, &["export", "mine", "--drain", "--yes", "--output", &jobs]).ends_with(1);
        ctl(&address, &["export", "other", "--drain", "--yes", "--output", &path("none")]).ends_with(4);
        assert!(!exists("none") && !exists("none.taking"));
        let left = ctl(&address, &["jobs", "other", "--json"]).ends_with(0).json();
        assert_eq!((left.len(), left[0]["state"].as_str()), (1, Some("ready")), "{left:?}");
        ctl(&address, &[&drain[..], &["--token-file", &token]].concat()).ends_with(0);
        assert_eq!(lines(), before + 2);
    }
}

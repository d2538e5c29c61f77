//! Servers with access rules.

use beanstalkd_testkit::panicking::Server;
use beanstalkd_testkit::server::free_address;

use crate::support::{command, ctl};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const SHA256_OF_TOKEN: &str = "3eb1bd439947eb762998e566ccc2e099c791118b2f40579cc4f7da2b5061b7f9";

#[test]
fn a_token_in_a_file_logs_in() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_string_lossy().into_owned()
    };
    let rules = format!("[identities.mailer]\ntokens = [\"{SHA256_OF_TOKEN}\"]\nproduce = [\"mail\"]\n");
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
    // The command line counts before the environment.
    let mut tubes = command(&address, &["tubes", "--token-file", &token]);
    assert!(tubes.env("BEANSTALKD_TOKEN", "wrong").status().unwrap().success());
    let forbidden = ctl(&address, &["put", "other", "hello", "--token-file", &token]).ends_with(4);
    assert!(forbidden.err.contains("FORBIDDEN"), "{forbidden:?}");
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
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_string_lossy().into_owned()
    };
    let rules = format!(
        "[identities.operator]\ntokens = [\"{SHA256_OF_TOKEN}\"]\nproduce = [\"*\"]\nwork = [\"*\"]\nobserve = \
         [\"*\"]\nmanage = [\"*\"]\n[strangers]\nproduce = [\"mail\"]\nobserve = [\"mail\"]\n"
    );
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

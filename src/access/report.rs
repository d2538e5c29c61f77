//! The output of `--check-access`: the rules in words.

use std::fmt::Write as _;

use super::{AccessRules, Identity, IdentityLimits};

/// The permissions of every identity, or of the identity called `only`; `None` if no identity has that name.
#[must_use]
pub fn report(rules: &AccessRules, only: Option<&str>) -> Option<String> {
    let mut text = String::new();
    for identity in rules.identities() {
        if only.is_none_or(|name| *identity.name == *name) {
            describe(identity, &mut text);
        }
    }
    (!text.is_empty()).then_some(text)
}

fn describe(identity: &Identity, text: &mut String) {
    let Identity { name, grants, limits } = identity;
    // Writing to a string does not fail.
    let _ = writeln!(text, "{name}:");
    if grants.somewhere().is_empty() {
        let _ = writeln!(text, "  nothing");
    }
    for (role, word, meaning) in grants.somewhere().words() {
        let patterns: Vec<&str> = grants.patterns(role).collect();
        let _ = writeln!(text, "  {word}: {} ({})", patterns.join(" "), meaning);
    }
    describe_limits(limits, text);
}

/// The limits in words.
fn describe_limits(limits: &IdentityLimits, text: &mut String) {
    let IdentityLimits { max_connections, max_job_bytes, puts_per_second, max_watched_tubes } = *limits;
    let rows = [
        (max_connections.map(u64::from), "connections at a time"),
        (max_job_bytes, "bytes of jobs"),
        (puts_per_second.map(u64::from), "puts a second"),
        (max_watched_tubes.map(u64::from), "watched tubes"),
    ];
    for (limit, what) in rows {
        if let Some(limit) = limit {
            let _ = writeln!(text, "  at most {limit} {what}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_has_the_roles_and_limits_of_each_identity() {
        let text = "[identities.mail]\nproduce = [\"mail\", \"m-*\"]\nmanage = [\"mail\"]\nmax-job-bytes = \"1k\"\n\
                    puts-per-second = 5\n[strangers.unix]\nobserve = [\"*\"]\n";
        let rules = AccessRules::parse(text, &|_| None).unwrap();
        assert_eq!(
            report(&rules, None).unwrap(),
            "(strangers):\n  nothing\n(strangers.loopback):\n  nothing\n\
             (strangers.unix):\n  observe: * (sees jobs and counters)\n\
             mail:\n  produce: mail m-* (puts jobs)\n  manage: mail (kicks, pauses, moves and flushes)\n\
             \x20 at most 1024 bytes of jobs\n  at most 5 puts a second\n"
        );
        assert_eq!(
            report(&rules, Some("mail")).unwrap(),
            "mail:\n  produce: mail m-* (puts jobs)\n  manage: mail (kicks, pauses, moves and flushes)\n\
             \x20 at most 1024 bytes of jobs\n  at most 5 puts a second\n"
        );
        assert_eq!(report(&rules, Some("other")), None);
    }
}

//! Arbitrary bytes as an access file.

use beanstalkd::access::{AccessRules, Peer, Roles, report};

/// Reads `input`. An error has a line and a column in the text; a valid file has a report.
pub fn check(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match AccessRules::parse(text, &|name| (name.len() == 4).then_some(4)) {
        Ok(rules) => {
            assert!(report(&rules, None).is_some(), "anonymous clients are always listed");
            for identity in rules.identities() {
                for (role, ..) in Roles::WORDS {
                    let has_pattern = identity.grants.patterns(role).next().is_some();
                    assert_eq!(identity.grants.somewhere().meets(role), has_pattern);
                }
                let everywhere = identity.grants.everywhere();
                assert!(everywhere.is_empty() || identity.grants.on("any").meets(everywhere));
            }
            let owner = rules.identity(rules.identify(Peer::Unix(Some(4)), &[], None));
            assert!(!owner.name.is_empty());
        }
        Err(error) => {
            assert!((1..=text.matches('\n').count() + 1).contains(&error.line), "{error}");
            assert!(
                error.column >= 1 && !error.message.is_empty() && !error.message.contains('\n'),
                "{error}"
            );
        }
    }
}

//! The access file: from TOML to rules.
//!
//! Owns: the grammar of the file, which is strict: an unknown word is an error with its line and column, because a
//! misspelled word must not silently grant or remove a right. `toml_text` has the parts that other files of settings
//! share.

// A value of any other type of TOML is an error.
#![allow(clippy::wildcard_enum_match_arm)]

use std::collections::HashSet;

use toml::de::{DeTable, DeValue};

use super::{AccessRules, AnonymousOrigin, Grants, Identity, IdentityId, IdentityLimits, Roles, TokenHash};
pub use crate::toml_text::FileError;
use crate::toml_text::{
    Fault, TomlKey, TomlValue, array_of, bytes, count, expected, find_key, key_names, number, pattern, read,
    table_of, unknown,
};
use crate::tube_name::TubeName;

/// Finds the id of the user with a name; `None` if there is no such user.
pub type LookUpUser<'a> = dyn Fn(&str) -> Option<u32> + 'a;

/// The rule for the names of identities.
const NAME: &str =
    "1 to 200 of the characters that tube names have, and no hyphen or bracket at the beginning";

/// Reads a credential of an identity.
type ReadCredential = fn(&mut FileReader<'_>, IdentityId, TomlValue<'_, '_>) -> Result<(), Fault>;

/// The keys of an identity beside its roles and limits: each has a list of credentials.
const CREDENTIALS: [(&str, ReadCredential); 3] =
    [("unix-users", unix_user), ("certificates", certificate), ("tokens", token)];

/// The tables in `[strangers]`.
const ORIGINS: [(&str, AnonymousOrigin); 2] =
    [("loopback", AnonymousOrigin::Loopback), ("unix", AnonymousOrigin::Unix)];

/// Sets a limit to the value of its key.
type SetLimit = fn(&mut IdentityLimits, TomlValue<'_, '_>) -> Result<(), Fault>;

const LIMITS: [(&str, SetLimit); 4] = [
    ("max-connections", |limits, value| count(value).map(|max| limits.max_connections = Some(max))),
    ("max-job-bytes", |limits, value| bytes(value, 0).map(|max| limits.max_job_bytes = Some(max))),
    ("max-watched-tubes", |limits, value| count(value).map(|max| limits.max_watched_tubes = Some(max))),
    ("puts-per-second", |limits, value| {
        number(value, 1, MAX_PUTS_PER_SECOND).map(|max| limits.puts_per_second = Some(max))
    }),
];

/// More puts than a server can do in a second: the time between two is a whole number of nanoseconds.
const MAX_PUTS_PER_SECOND: u32 = 1_000_000_000;

/// A file that is being read.
struct FileReader<'a> {
    rules: AccessRules,
    /// The tokens so far. `AccessRules::owner_of` would compare with each of them, as it must for a client.
    known_tokens: HashSet<[u8; TokenHash::BYTES]>,
    look_up: &'a LookUpUser<'a>,
}

/// The rules in `text`.
pub(crate) fn parse(text: &str, look_up: &LookUpUser<'_>) -> Result<AccessRules, FileError> {
    read(text, |table| rules(table, look_up))
}

fn rules(table: &DeTable<'_>, look_up: &LookUpUser<'_>) -> Result<AccessRules, Fault> {
    let identities = AnonymousOrigin::ALL.map(|origin| Identity::new(origin.name())).into();
    let rules = AccessRules { identities, ..AccessRules::default() };
    let mut reader = FileReader { rules, known_tokens: HashSet::new(), look_up };
    for (key, value) in table {
        match &**key.get_ref() {
            "strangers" => anonymous_rules(&mut reader.rules, table_of(key, value)?)?,
            "identities" => {
                for (name, value) in table_of(key, value)? {
                    let is_name = TubeName::check(name.get_ref().as_bytes()).is_some();
                    if !is_name || name.get_ref().starts_with('(') {
                        return Err(Fault::new(
                            name.span(),
                            format!("{:?} is not a valid name: {NAME}", name.get_ref()),
                        ));
                    }
                    identity(&mut reader, name.get_ref(), table_of(name, value)?)?;
                }
            }
            _ => return Err(unknown(key, ["identities", "strangers"])),
        }
    }
    Ok(reader.rules)
}

/// `[strangers]`. Its tables `loopback` and `unix` replace it for clients from there.
fn anonymous_rules(rules: &mut AccessRules, table: &DeTable<'_>) -> Result<(), Fault> {
    let mut is_given = [false; AnonymousOrigin::ALL.len()];
    for (key, value) in table {
        let Some(origin) = find_key(&ORIGINS, key) else { continue };
        is_given[origin as usize] = true;
        for (key, value) in table_of(key, value)? {
            if !set_role_or_limit(&mut rules.identities[origin as usize], key, value)? {
                return Err(unknown(key, role_and_limit_keys()));
            }
        }
    }
    for (key, value) in table {
        if find_key(&ORIGINS, key).is_some() {
            continue;
        }
        for origin in AnonymousOrigin::ALL.into_iter().filter(|&origin| !is_given[origin as usize]) {
            if !set_role_or_limit(&mut rules.identities[origin as usize], key, value)? {
                return Err(unknown(key, key_names(&ORIGINS).chain(role_and_limit_keys())));
            }
        }
    }
    Ok(())
}

fn identity(reader: &mut FileReader<'_>, name: &str, table: &DeTable<'_>) -> Result<(), Fault> {
    let id = IdentityId(reader.rules.identities.len() as u32);
    let mut identity = Identity::new(name);
    for (key, value) in table {
        if let Some(read) = find_key(&CREDENTIALS, key) {
            for value in array_of(key, value)? {
                read(reader, id, value)?;
            }
        } else if !set_role_or_limit(&mut identity, key, value)? {
            return Err(unknown(key, key_names(&CREDENTIALS).chain(role_and_limit_keys())));
        }
    }
    reader.rules.identities.push(identity);
    Ok(())
}

fn token(reader: &mut FileReader<'_>, id: IdentityId, value: TomlValue<'_, '_>) -> Result<(), Fault> {
    let hash = value.get_ref().as_str().and_then(TokenHash::parse).ok_or_else(|| {
        Fault::new(
            value.span(),
            "expected the SHA-256 hash of a token, 64 hexadecimal digits, as beanstalkd --hash-token prints it"
                .to_owned(),
        )
    })?;
    if !reader.known_tokens.insert(hash.bytes()) {
        return Err(Fault::new(value.span(), "this token is already in the file"));
    }
    reader.rules.tokens.push((hash, id));
    Ok(())
}

fn certificate(reader: &mut FileReader<'_>, id: IdentityId, value: TomlValue<'_, '_>) -> Result<(), Fault> {
    let DeValue::String(name) = value.get_ref() else {
        return Err(expected("a name in certificates", value.span(), value.get_ref()));
    };
    if name.is_empty() {
        return Err(Fault::new(value.span(), "the name in certificates is empty"));
    }
    match reader.rules.certificates.insert((&**name).into(), id) {
        None => Ok(()),
        Some(_) => Err(Fault::new(value.span(), format!("the certificate {name:?} is already in the file"))),
    }
}

fn unix_user(reader: &mut FileReader<'_>, id: IdentityId, value: TomlValue<'_, '_>) -> Result<(), Fault> {
    let user = match value.get_ref() {
        DeValue::String(name) => (reader.look_up)(name)
            .ok_or_else(|| Fault::new(value.span(), format!("this machine has no user {name:?}")))?,
        DeValue::Integer(number) => u32::from_str_radix(number.as_str(), number.radix())
            .map_err(|_| Fault::new(value.span(), format!("{} is not a user id", number.as_str())))?,
        other => return Err(expected("the name or the id of a user", value.span(), other)),
    };
    match reader.rules.users.insert(user, id) {
        None => Ok(()),
        Some(_) => Err(Fault::new(value.span(), format!("the user {user} is already in the file"))),
    }
}

fn role_and_limit_keys() -> impl Iterator<Item = &'static str> {
    Roles::WORDS.iter().map(|&(_, word, _)| word).chain(key_names(&LIMITS))
}

/// Sets the role or the limit that the key names; returns whether it names one.
fn set_role_or_limit(
    identity: &mut Identity,
    key: TomlKey<'_, '_>,
    value: TomlValue<'_, '_>,
) -> Result<bool, Fault> {
    if let Some(set) = find_key(&LIMITS, key) {
        set(&mut identity.limits, value)?;
        return Ok(true);
    }
    role(&mut identity.grants, key, value)
}

/// Adds a role with its patterns, if the key names a role; returns whether it does.
fn role(grants: &mut Grants, key: TomlKey<'_, '_>, value: TomlValue<'_, '_>) -> Result<bool, Fault> {
    let Some(&(role, ..)) = Roles::WORDS.iter().find(|(_, word, _)| word == key.get_ref()) else {
        return Ok(false);
    };
    for value in array_of(key, value)? {
        grants.add(role, pattern(value)?);
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Peer, Roles};

    fn look_up(name: &str) -> Option<u32> {
        (name == "mail").then_some(8)
    }

    fn error(text: &str) -> String {
        parse(text, &look_up).unwrap_err().to_string()
    }

    #[test]
    fn each_fault_is_found_with_its_place() {
        let hash = TokenHash::of(b"x").to_string();
        for (text, expected) in [
            ("x = 1", "line 1, column 1: unknown key \"x\"; the keys here are: identities, strangers"),
            ("\n[identities.a]\n  prodce = []\n", "line 3, column 3: unknown key \"prodce\""),
            ("[strangers]\nunix-users = []\n", "line 2, column 1: unknown key \"unix-users\""),
            ("[strangers.unix]\nunix = []\n", "line 2, column 1: unknown key \"unix\""),
            ("[strangers.loopback]\n[strangers]\nx = 1", "line 3, column 1: unknown key \"x\""),
            (
                "identities = 1",
                "line 1, column 14: expected a table for identities, but this is a value of type integer",
            ),
            ("[identities]\n\"a b\" = {}", "line 2, column 1: \"a b\" is not a valid name"),
            ("[identities.a]\nwork = \"a\"", "line 2, column 8: expected a list for work"),
            ("[identities.a]\nwork = [1]", "line 2, column 9: expected a pattern of tube names in quotes"),
            ("[identities.a]\nwork = [\"ü\"]", "line 2, column 9: \"ü\" matches no tube"),
            ("[identities.a]\nwork = [\"ok\", \"\"]", "line 2, column 15: \"\" matches no tube"),
            ("[identities.a]\ntokens = [\"00\"]", "line 2, column 11: expected the SHA-256 hash of a token"),
            (
                "[identities.a]\nunix-users = [\"nobody-here\"]",
                "line 2, column 15: this machine has no user \"nobody-here\"",
            ),
            ("[identities.a]\nunix-users = [-1]", "line 2, column 15: -1 is not a user id"),
            ("[identities.a]\nunix-users = [4294967296]", "line 2, column 15: 4294967296 is not a user id"),
            (
                "[identities.a]\nunix-users = [true]",
                "line 2, column 15: expected the name or the id of a user",
            ),
            (
                "[identities.a]\nunix-users = [\"mail\"]\n[identities.b]\nunix-users = [8]",
                "line 4, column 15: the user 8 is already in the file",
            ),
            ("[identities.a]\ncertificates = [\"\"]", "line 2, column 17: the name in certificates is empty"),
            (
                "[identities.a]\ncertificates = [\"x\", \"x\"]",
                "line 2, column 22: the certificate \"x\" is already in the file",
            ),
            ("[identities.\"(a\"]", "line 1, column 13: \"(a\" is not a valid name"),
            (
                "[identities.a]\nputs-per-second = 0",
                "line 2, column 19: expected a whole number of 1 to 1000000000",
            ),
            (
                "[strangers]\nmax-connections = 1.5",
                "line 2, column 19: expected a whole number of 1 to 4294967295",
            ),
            ("[strangers.unix]\nmax-job-bytes = \"1x\"", "line 2, column 17: expected a number of bytes"),
            ("[strangers]\nmax-job-bytes = -1", "line 2, column 17: expected a number of bytes"),
            (
                "[identities.a]\n[identities.a]\n",
                "line 2, column 13: a: duplicate key, expected each key once",
            ),
            ("[identities.a\n", "line 1, column 14: "),
        ] {
            let error = error(text);
            assert!(error.starts_with(expected), "{text}\n{error}");
        }
        let twice = format!("[identities.a]\ntokens = [\"{hash}\"]\n[identities.b]\ntokens = [\"{hash}\"]");
        assert_eq!(error(&twice), "line 4, column 11: this token is already in the file");
    }

    #[test]
    fn an_unknown_key_is_answered_with_the_keys_of_its_table() {
        let roles_and_limits = "produce, work, observe, manage, max-connections, max-job-bytes, max-watched-tubes, \
                                puts-per-second";
        for (table, own_keys) in [
            ("identities.a", "unix-users, certificates, tokens, "),
            ("strangers", "loopback, unix, "),
            ("strangers.unix", ""),
        ] {
            let expected = format!("unknown key \"x\"; the keys here are: {own_keys}{roles_and_limits}");
            assert_eq!(error(&format!("[{table}]\nx = 1")), format!("line 2, column 1: {expected}"));
        }
    }

    #[test]
    fn anonymous_clients_have_no_role_unless_the_file_gives_one() {
        let rules = parse("", &look_up).unwrap();
        assert!(rules.identities().all(|identity| identity.grants.somewhere().is_empty()));
        assert_eq!(rules.identities().count(), 3);
        let text = "[strangers]\nobserve = [\"*\"]\n[strangers.unix]\nwork = [\"a*\"]\n";
        let rules = parse(text, &look_up).unwrap();
        let roles: Vec<String> =
            rules.identities().map(|identity| identity.grants.on("a").to_string()).collect();
        assert_eq!(roles, ["observe", "observe", "work"]);
    }

    #[test]
    fn an_identity_has_users_tokens_and_roles() {
        let hash = TokenHash::of(b"x");
        let name = ["other".to_owned(), "mail.example".to_owned()];
        let text = format!(
            "# mail\n[identities.mail]\nunix-users = [\"mail\", 0x10]\ncertificates = [\"mail.example\"]\n\
             tokens = [\"{hash}\"]\nproduce = [\"m-*\"]\nmanage = [\"*\"]\n"
        );
        let rules = parse(&text, &look_up).unwrap();
        let id = rules.owner_of(&hash).unwrap();
        assert_eq!(&*rules.identity(id).name, "mail");
        assert_eq!(rules.users.get(&8), Some(&id));
        assert_eq!(rules.users.get(&16), Some(&id));
        let far = Peer::Tcp(([192, 0, 2, 1], 1).into());
        assert_eq!(rules.identify(far, &name, None), id);
        assert_eq!(&*rules.identity(rules.identify(far, &name[..1], None)).name, "(strangers)");
        let grants = &rules.identity(id).grants;
        assert_eq!(grants.on("m-1"), Roles::PRODUCE | Roles::MANAGE);
        assert_eq!(grants.patterns(Roles::PRODUCE).collect::<Vec<_>>(), ["m-*"]);
    }
}

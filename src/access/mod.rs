//! Access rules: the identity of a client, and its permissions.
//!
//! Owns: the access file (`file`), roles and the patterns of tubes to which they apply (`role`), the sets of roles that
//! commands need (`need`), the pace of an identity's puts (`pace`), the counts of wrong tokens (`tries`), and the
//! report of `--check-access` (`report`). Pure: from an identity, a command and a tube it decides yes or no. Never
//! knows a connection or the queue. Driven by the server, before a command is executed, and only with `--access`.

mod file;
mod need;
mod pace;
mod report;
mod role;
mod tries;

use std::collections::BTreeMap;
use std::rc::Rc;

pub use self::file::{FileError, LookUpUser};
pub use self::need::Verdict;
pub use self::pace::Pace;
pub use self::report::report;
#[cfg(test)]
pub(crate) use self::role::LOOKUPS;
pub use self::role::{Grants, Roles};
pub use self::tries::Tries;
pub use crate::peer::Peer;
pub use crate::token::TokenHash;

/// The rules of an access file.
#[derive(Debug, Default)]
pub struct AccessRules {
    /// The anonymous identities first, by [`AnonymousOrigin`], and then the identities of the file, ordered by name.
    identities: Vec<Identity>,
    tokens: Vec<(TokenHash, IdentityId)>,
    users: BTreeMap<u32, IdentityId>,
    /// By a name in a client's certificate.
    certificates: BTreeMap<Box<str>, IdentityId>,
}

/// An identity of the access file, or the anonymous clients from one origin.
#[derive(Debug)]
pub struct Identity {
    /// The name, which follows the rules of tube names. Only the name of an anonymous identity begins with a bracket.
    pub name: Rc<str>,
    /// Grants of the identity.
    pub grants: Grants,
    /// Limits of the identity.
    pub limits: IdentityLimits,
}

/// Limits on all clients of an identity together; `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdentityLimits {
    /// Connections at a time.
    pub max_connections: Option<u32>,
    /// Bytes of its jobs in the server.
    pub max_job_bytes: Option<u64>,
    /// Puts in a second; at least 1.
    pub puts_per_second: Option<u32>,
    /// Tubes that its clients watch; a tube counts once for each client that watches it.
    pub max_watched_tubes: Option<u32>,
}

/// An identity of the rules in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdentityId(u32);

/// The origin of anonymous clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnonymousOrigin {
    Network,
    Loopback,
    Unix,
}

impl AnonymousOrigin {
    const ALL: [Self; 3] = [Self::Network, Self::Loopback, Self::Unix];

    fn of(peer: Peer) -> Self {
        match peer {
            Peer::Tcp(address) if address.ip().to_canonical().is_loopback() => Self::Loopback,
            Peer::Tcp(_) => Self::Network,
            Peer::Unix(_) => Self::Unix,
        }
    }

    /// The name of the anonymous clients with this origin.
    fn name(self) -> &'static str {
        match self {
            Self::Network => "(strangers)",
            Self::Loopback => "(strangers.loopback)",
            Self::Unix => "(strangers.unix)",
        }
    }
}

impl Identity {
    /// An identity without grants and limits.
    fn new(name: &str) -> Self {
        Self { name: name.into(), grants: Grants::default(), limits: IdentityLimits::default() }
    }
}

impl IdentityId {
    /// Index among the identities of the same rules.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl AccessRules {
    /// The rules in the text of an access file. `look_up` finds the ids of users.
    ///
    /// # Errors
    /// The first part of the text that does not follow `doc/security.md`.
    pub fn parse(text: &str, look_up: &LookUpUser<'_>) -> Result<Self, FileError> {
        file::parse(text, look_up)
    }

    /// The identity of a client: the owner of the token that it has sent; otherwise the owner of the first of the
    /// `names` in its certificate that has one; otherwise the owner of its unix socket's user; otherwise an anonymous
    /// identity.
    #[must_use]
    pub fn identify(&self, peer: Peer, names: &[String], owner: Option<IdentityId>) -> IdentityId {
        owner
            .or_else(|| names.iter().find_map(|name| self.certificates.get(name.as_str()).copied()))
            .or_else(|| self.user(peer))
            .unwrap_or(IdentityId(AnonymousOrigin::of(peer) as u32))
    }

    /// The owner of a token. The duration does not depend on how many bytes of a hash match.
    #[must_use]
    pub fn owner_of(&self, token: &TokenHash) -> Option<IdentityId> {
        // Each hash is compared, so the duration does not show which one matched.
        self.tokens
            .iter()
            .fold(None, |found, (hash, owner)| if hash.is(token) { Some(*owner) } else { found })
    }

    /// The owners of all tokens, by the hash of each. For many clients this is faster than `owner_of`, but the duration
    /// depends on the hash: a client must not see it.
    #[must_use]
    pub fn owners(&self) -> BTreeMap<[u8; TokenHash::BYTES], IdentityId> {
        self.tokens.iter().map(|(hash, owner)| (hash.bytes(), *owner)).collect()
    }

    /// The number of tokens.
    #[must_use]
    pub fn token_count(&self) -> usize {
        self.tokens.len()
    }

    fn user(&self, peer: Peer) -> Option<IdentityId> {
        match peer {
            Peer::Unix(Some(user)) => self.users.get(&user).copied(),
            Peer::Unix(None) | Peer::Tcp(_) => None,
        }
    }

    /// The identity with this id.
    ///
    /// # Panics
    /// If the id is not from these rules.
    #[must_use]
    pub fn identity(&self, id: IdentityId) -> &Identity {
        &self.identities[id.0 as usize]
    }

    /// Whether the identity is anonymous, for clients that the file does not name.
    #[must_use]
    pub fn is_anonymous(id: IdentityId) -> bool {
        (id.0 as usize) < AnonymousOrigin::ALL.len()
    }

    /// The identities that the file names, with their ids.
    pub fn named(&self) -> impl Iterator<Item = &Identity> {
        self.identities.iter().skip(AnonymousOrigin::ALL.len())
    }

    /// The ids of all identities, in their order.
    pub fn ids(&self) -> impl Iterator<Item = IdentityId> + use<> {
        (0..self.identities.len() as u32).map(IdentityId)
    }

    /// All identities, anonymous ones first.
    pub fn identities(&self) -> impl Iterator<Item = &Identity> {
        self.identities.iter()
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn a_token_comes_before_a_user_and_a_user_before_an_anonymous_client() {
        let token = "correct-horse-battery-staple-0001";
        let text = format!(
            "[identities.local]\nunix-users = [1000]\n[identities.remote]\ntokens = [\"{}\"]\n",
            TokenHash::of(token.as_bytes())
        );
        let rules = AccessRules::parse(&text, &|_| None).unwrap();
        let hash = TokenHash::of(token.as_bytes());
        let owners = rules.owners();
        let name = |peer, token: Option<&TokenHash>| {
            let owner = token.and_then(|token| rules.owner_of(token));
            assert_eq!(owner, token.and_then(|token| owners.get(&token.bytes()).copied()));
            &*rules.identity(rules.identify(peer, &[], owner)).name
        };
        let [near, mapped, far]: [SocketAddr; 3] =
            ["127.0.0.1:1", "[::ffff:127.0.0.1]:1", "192.0.2.1:1"].map(|text| text.parse().unwrap());
        assert_eq!(Peer::Tcp(mapped).to_string(), "127.0.0.1:1");
        assert_eq!(name(Peer::Unix(Some(1000)), None), "local");
        assert_eq!(name(Peer::Unix(Some(1000)), Some(&hash)), "remote");
        assert_eq!(name(Peer::Unix(Some(1001)), None), "(strangers.unix)");
        assert_eq!(name(Peer::Unix(None), None), "(strangers.unix)");
        assert_eq!(name(Peer::Tcp(near), None), "(strangers.loopback)");
        assert_eq!(name(Peer::Tcp(mapped), None), "(strangers.loopback)");
        assert_eq!(name(Peer::Tcp(far), None), "(strangers)");
        assert_eq!(name(Peer::Tcp(far), Some(&hash)), "remote");
        let other = TokenHash::of(b"correct-horse-battery-staple-0002");
        assert_eq!(name(Peer::Tcp(far), Some(&other)), "(strangers)");
    }
}

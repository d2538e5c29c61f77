//! Roles, and the tubes for which somebody has them.

use std::fmt;
use std::ops::BitOr;

use wildmatch::WildMatch;

/// What somebody may do with the jobs of a tube.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Put jobs.
    Produce,
    /// Reserve jobs, and finish them.
    Work,
    /// See jobs and counters.
    Observe,
    /// Whatever an operator does: kick, pause, move, flush.
    Manage,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 4] = [Self::Produce, Self::Work, Self::Observe, Self::Manage];

    /// The word of the access file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Produce => "produce",
            Self::Work => "work",
            Self::Observe => "observe",
            Self::Manage => "manage",
        }
    }
}

/// A set of roles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles(u8);

impl Roles {
    /// Every role.
    pub const ANY: Self = Self::of(&Role::ALL);

    /// These roles.
    #[must_use]
    pub const fn of(roles: &[Role]) -> Self {
        let (mut bits, mut index) = (0, 0);
        while index < roles.len() {
            bits |= 1 << roles[index] as u8;
            index += 1;
        }
        Self(bits)
    }

    /// Whether the sets have a role in common.
    #[must_use]
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The roles.
    pub fn iter(self) -> impl Iterator<Item = Role> {
        Role::ALL.into_iter().filter(move |&role| self.meets(Self::of(&[role])))
    }
}

impl BitOr for Roles {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The words, with `or` between them.
impl fmt::Display for Roles {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.iter().map(Role::as_str).collect();
        out.write_str(&words.join(" or "))
    }
}

/// The tubes for which somebody has which roles.
#[derive(Debug, Default)]
pub struct Grants(Vec<Grant>);

/// A role for the tubes whose names match a pattern.
#[derive(Debug)]
struct Grant {
    role: Role,
    pattern: WildMatch,
    text: Box<str>,
}

#[cfg(test)]
thread_local! {
    /// How often roles were looked up.
    pub(super) static LOOKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// The pattern that every name matches.
const EVERY_TUBE: &str = "*";

impl Grants {
    /// Adds a role for the tubes that match: `*` stands for any bytes, `?` for one.
    pub fn add(&mut self, role: Role, pattern: &str) {
        self.0.push(Grant { role, pattern: WildMatch::new(pattern), text: pattern.into() });
    }

    /// The roles for the tube of this name, whether it exists or not.
    #[must_use]
    pub fn on(&self, tube: &str) -> Roles {
        #[cfg(test)]
        LOOKS.set(LOOKS.get() + 1);
        self.union(|grant| grant.pattern.matches(tube))
    }

    /// The roles for some tube or other.
    #[must_use]
    pub fn somewhere(&self) -> Roles {
        self.union(|_| true)
    }

    /// The roles for every tube.
    #[must_use]
    pub fn everywhere(&self) -> Roles {
        self.union(|grant| &*grant.text == EVERY_TUBE)
    }

    /// The patterns for a role, as the file has them.
    pub fn patterns(&self, role: Role) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |grant| grant.role == role).map(|grant| &*grant.text)
    }

    fn union(&self, is_meant: impl Fn(&Grant) -> bool) -> Roles {
        let grants = self.0.iter().filter(|grant| is_meant(grant));
        grants.fold(Roles::default(), |roles, grant| roles | Roles::of(&[grant.role]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_for_the_names_that_it_matches_as_a_whole() {
        let mut grants = Grants::default();
        grants.add(Role::Produce, "mail");
        grants.add(Role::Work, "mail-*");
        grants.add(Role::Observe, "*-l?g");
        for (tube, expected) in [
            ("mail", "produce"),
            ("mail-", "work"),
            ("mail-log", "work or observe"),
            ("mail-lg", "work"),
            ("mails", ""),
            ("email", ""),
            ("Mail", ""),
            ("-lag", "observe"),
        ] {
            assert_eq!(grants.on(tube).to_string(), expected, "{tube}");
        }
        assert_eq!(grants.somewhere().to_string(), "produce or work or observe");
        assert!(grants.everywhere().is_empty());
        grants.add(Role::Manage, "*");
        assert_eq!(grants.everywhere().to_string(), "manage");
        assert_eq!(grants.on("anything").to_string(), "manage");
    }

    #[test]
    fn the_longest_name_against_the_worst_pattern_does_not_take_long() {
        let mut grants = Grants::default();
        grants.add(Role::Work, &format!("{}b", "*a".repeat(99)));
        assert!(grants.on(&"a".repeat(200)).is_empty());
    }
}

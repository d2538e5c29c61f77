//! Roles, and the tubes to which they apply.
//!
//! Owns: the words of the roles, and which roles a client has for a tube.

use std::fmt;

use bitflags::bitflags;

use crate::pattern::Pattern;

bitflags! {
    /// A set of roles: the operations that a client may do with the jobs of a tube.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Roles: u8 {
        /// Put jobs. The tags `con`, `grp` and `aft` need this role for their names, too: such names are shared by all
        /// tubes, and are matched with the same patterns.
        const PRODUCE = 1;
        /// Reserve jobs, and finish them.
        const WORK = 2;
        /// See jobs and counters.
        const OBSERVE = 4;
        /// Do an operator's work: kick, pause, move, flush.
        const MANAGE = 8;
    }
}

impl Roles {
    /// Every role.
    pub const ANY: Self = Self::all();

    /// Each role with its word in the access file, and a description.
    pub const WORDS: [(Self, &str, &str); 4] = [
        (Self::PRODUCE, "produce", "puts jobs"),
        (Self::WORK, "work", "reserves and finishes jobs"),
        (Self::OBSERVE, "observe", "sees jobs and counters"),
        (Self::MANAGE, "manage", "kicks, pauses, moves and flushes"),
    ];

    /// Whether the sets have a role in common.
    #[must_use]
    pub const fn meets(self, other: Self) -> bool {
        self.intersects(other)
    }

    /// The roles with their words and descriptions.
    pub fn words(self) -> impl Iterator<Item = (Self, &'static str, &'static str)> {
        Self::WORDS.into_iter().filter(move |&(role, ..)| self.meets(role))
    }
}

/// The words, with `or` between them.
impl fmt::Display for Roles {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.words().map(|(_, word, _)| word).collect();
        out.write_str(&words.join(" or "))
    }
}

/// Roles, each with the tubes to which it applies.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Grants(Vec<Grant>);

/// A role for the tubes whose names match a pattern.
#[derive(Debug, PartialEq, Eq)]
struct Grant {
    role: Roles,
    pattern: Pattern,
    text: Box<str>,
}

#[cfg(test)]
thread_local! {
    /// How often roles were looked up.
    pub(crate) static LOOKUPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// The pattern that every name matches.
const EVERY_TUBE: &str = "*";

impl Grants {
    /// Adds a role for the tubes that match: `*` stands for any bytes, `?` for one.
    pub fn add(&mut self, role: Roles, pattern: &str) {
        self.0.push(Grant { role, pattern: Pattern::new(pattern), text: pattern.into() });
    }

    /// The roles for the tube of this name, whether it exists or not.
    #[must_use]
    pub fn on(&self, tube: &str) -> Roles {
        #[cfg(test)]
        LOOKUPS.set(LOOKUPS.get() + 1);
        self.union(|grant| grant.pattern.matches(tube))
    }

    /// The roles for at least one tube.
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
    pub fn patterns(&self, role: Roles) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |grant| grant.role == role).map(|grant| &*grant.text)
    }

    fn union(&self, is_selected: impl Fn(&Grant) -> bool) -> Roles {
        let grants = self.0.iter().filter(|grant| is_selected(grant));
        grants.fold(Roles::empty(), |roles, grant| roles | grant.role)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_for_the_names_that_it_matches_as_a_whole() {
        let mut grants = Grants::default();
        grants.add(Roles::PRODUCE, "mail");
        grants.add(Roles::WORK, "mail-*");
        grants.add(Roles::OBSERVE, "*-l?g");
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
        grants.add(Roles::MANAGE, "*");
        assert_eq!(grants.everywhere().to_string(), "manage");
        assert_eq!(grants.on("anything").to_string(), "manage");
    }

    #[test]
    fn the_longest_name_against_the_worst_pattern_does_not_take_long() {
        let mut grants = Grants::default();
        grants.add(Roles::WORK, &format!("{}b", "*a".repeat(99)));
        assert!(grants.on(&"a".repeat(200)).is_empty());
    }
}

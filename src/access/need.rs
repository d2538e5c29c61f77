//! The sets of roles that commands need, and the decision.
//!
//! Owns: whether a refused client gets FORBIDDEN, or the reply for a job that does not exist. The table of commands has
//! the roles that each command needs.

use super::{Grants, Roles};
use crate::tube_name::TubeName;

/// The tube that is checked if there is no such job.
const NO_JOB: &str = TubeName::DEFAULT;

/// The decision about a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The command is executed.
    Allowed,
    /// The reply is FORBIDDEN.
    Forbidden,
    /// The reply is the one for a job that does not exist, because the client may not see whether it exists.
    NotFound,
}

impl Roles {
    /// A client needs one of these roles to see jobs.
    pub const SEE_JOBS: Self = Self::WORK.union(Self::OBSERVE).union(Self::MANAGE);
    /// A client needs one of these roles to end a job that nobody else has reserved.
    pub const END_JOBS: Self = Self::WORK.union(Self::MANAGE);
    /// A `move` needs one of these roles for the target tube.
    pub const MOVE_TARGET: Self = Self::PRODUCE.union(Self::MANAGE);
}

impl Grants {
    /// Whether a client with these grants may give a command that needs one of `needed` for a tube.
    #[must_use]
    pub fn judge(&self, needed: Roles, tube: &str) -> Verdict {
        if self.on(tube).meets(needed) { Verdict::Allowed } else { Verdict::Forbidden }
    }

    /// Whether a client with these grants may give a command about a job in the tube `tube`, or about a job that does
    /// not exist. A client that may not know the tube may not know the job.
    #[must_use]
    pub fn judge_job(&self, needed: Roles, tube: Option<&str>) -> Verdict {
        // The patterns are also checked if there is no job, so that the duration does not show whether there is one.
        let roles = std::hint::black_box(self.on(tube.unwrap_or(NO_JOB)));
        let roles = if tube.is_some() { roles } else { Roles::empty() };
        if roles.meets(needed) {
            Verdict::Allowed
        } else if roles.meets(Roles::ANY) {
            Verdict::Forbidden
        } else {
            Verdict::NotFound
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_job_costs_as_many_lookups_as_a_hidden_one() {
        let mut grants = Grants::default();
        grants.add(Roles::WORK, "mine-*");
        let looks_at = |tube| {
            let before = crate::access::role::LOOKUPS.get();
            assert_eq!(grants.judge_job(Roles::END_JOBS, tube), Verdict::NotFound);
            crate::access::role::LOOKUPS.get() - before
        };
        assert_eq!(looks_at(Some("theirs")), looks_at(None));
        grants.add(Roles::WORK, NO_JOB);
        assert_eq!(grants.judge_job(Roles::END_JOBS, None), Verdict::NotFound, "no job is of no tube");
    }

    #[test]
    fn a_job_in_a_hidden_tube_is_not_found() {
        let mut grants = Grants::default();
        grants.add(Roles::WORK, "mine");
        grants.add(Roles::OBSERVE, "seen");
        assert_eq!(grants.judge_job(Roles::END_JOBS, Some("mine")), Verdict::Allowed);
        assert_eq!(grants.judge_job(Roles::END_JOBS, Some("seen")), Verdict::Forbidden);
        assert_eq!(grants.judge_job(Roles::END_JOBS, Some("hidden")), Verdict::NotFound);
        assert_eq!(grants.judge_job(Roles::END_JOBS, None), Verdict::NotFound);
        assert_eq!(grants.judge(Roles::WORK, "mine"), Verdict::Allowed);
        assert_eq!(grants.judge(Roles::WORK, "hidden"), Verdict::Forbidden);
    }
}

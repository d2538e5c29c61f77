//! The sets of roles that commands need, and the decision.

use super::{Grants, Roles};
use crate::tube_name::TubeName;

/// A tube that is asked for instead of that of a job that is not there.
const NO_JOB: &str = TubeName::DEFAULT;

/// The answer to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is executed.
    Allowed,
    /// It is answered FORBIDDEN.
    Forbidden,
    /// It is answered as if there were no such job, because the client may not know whether there is.
    NotFound,
}

impl Roles {
    /// The roles one of which a client needs to see jobs.
    pub const SEE_JOBS: Self = Self::WORK.union(Self::OBSERVE).union(Self::MANAGE);
    /// The roles one of which a client needs to end a job that nobody else has reserved.
    pub const END_JOBS: Self = Self::WORK.union(Self::MANAGE);
    /// The roles one of which `move` needs for the tube to which the job goes.
    pub const MOVE_TARGET: Self = Self::PRODUCE.union(Self::MANAGE);
}

impl Grants {
    /// Whether somebody with these grants may give a command that needs one of `needed` for a tube.
    #[must_use]
    pub fn judge(&self, needed: Roles, tube: &str) -> Verdict {
        if self.on(tube).meets(needed) { Verdict::Allowed } else { Verdict::Forbidden }
    }

    /// Whether somebody with these grants may give a command about a job in the tube `tube`, or about no job. A client
    /// that may not know of the tube may not know of the job.
    #[must_use]
    pub fn judge_job(&self, needed: Roles, tube: Option<&str>) -> Verdict {
        // The patterns are asked for no job as well, so that the time does not show whether there is one.
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
    fn no_job_costs_as_many_looks_as_a_job_of_others() {
        let mut grants = Grants::default();
        grants.add(Roles::WORK, "mine-*");
        let looks_at = |tube| {
            let before = crate::access::role::LOOKS.get();
            assert_eq!(grants.judge_job(Roles::END_JOBS, tube), Verdict::NotFound);
            crate::access::role::LOOKS.get() - before
        };
        assert_eq!(looks_at(Some("theirs")), looks_at(None));
        grants.add(Roles::WORK, NO_JOB);
        assert_eq!(grants.judge_job(Roles::END_JOBS, None), Verdict::NotFound, "no job is of no tube");
    }

    #[test]
    fn a_job_in_a_tube_that_may_not_be_seen_is_not_there() {
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

//! What each command needs: the table of verbs, and the decision.

use super::{Grants, Role, Roles};
use crate::protocol::Verb;

/// What a command needs to be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing: whoever is connected may.
    Nothing,
    /// One of these roles for what it is about.
    One(Roles, Subject),
}

/// What a command is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Some tube or other: the answer tells only of tubes that the client may see.
    Some,
    /// All tubes.
    Every,
    /// The tube that the client uses.
    Used,
    /// The tubes that the client watches. The others leave its watch list.
    Watched,
    /// The tube, or the group, that the command names.
    Named,
    /// The tube of the job that the command names.
    OfJob,
    /// The same, and the tube to which the job goes: see [`Need::MOVE_TARGET`].
    OfJobAndNamed,
}

/// A tube that is asked for instead of that of a job that is not there.
const NO_JOB: &str = "default";

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

const PRODUCE: Roles = Roles::of(&[Role::Produce]);
const WORK: Roles = Roles::of(&[Role::Work]);
const MANAGE: Roles = Roles::of(&[Role::Manage]);
/// Who may see jobs.
const SEE_JOBS: Roles = Roles::of(&[Role::Work, Role::Observe, Role::Manage]);
/// Who may end a job that nobody else has reserved.
const END_JOBS: Roles = Roles::of(&[Role::Work, Role::Manage]);

impl Need {
    /// The roles one of which `move` needs for the tube to which the job goes.
    pub const MOVE_TARGET: Roles = Roles::of(&[Role::Produce, Role::Manage]);
    /// The roles one of which the tags `con`, `grp` and `aft` need for the name that they have: such names count over all
    /// tubes, and follow the same patterns.
    pub const TAG: Roles = PRODUCE;
    /// The roles one of which a client needs to put into a tube.
    pub const PUT: Roles = PRODUCE;
    /// The roles one of which a client needs to reserve from a tube.
    pub const RESERVE: Roles = WORK;
    /// The roles one of which a client needs to delete a job.
    pub const DELETE: Roles = END_JOBS;
    /// The roles that let somebody know of a tube.
    pub const SEE_TUBE: Roles = Roles::ANY;

    /// Whether only a manager may give the command.
    #[must_use]
    pub fn is_managing(self) -> bool {
        matches!(self, Self::One(MANAGE, _))
    }

    /// What the command needs. `doc/security.md` has the same table, and a test compares them.
    #[must_use]
    pub fn of(verb: Verb) -> Self {
        use Verb::*;
        let (roles, subject) = match verb {
            Auth | Quit => return Self::Nothing,
            Put => (PRODUCE, Subject::Used),
            Use | StatsTube => (Self::SEE_TUBE, Subject::Named),
            Watch => (WORK, Subject::Named),
            Reserve | ReserveWithTimeout | ReserveBatch | ReserveWithAbort => (WORK, Subject::Watched),
            ReserveJob | Release | Bury | Touch => (WORK, Subject::OfJob),
            TouchAll | ReserveMode => (WORK, Subject::Some),
            Delete | DeleteBatch => (END_JOBS, Subject::OfJob),
            Peek | StatsJob => (SEE_JOBS, Subject::OfJob),
            PeekReady | PeekDelayed | PeekBuried | PeekReserved => (SEE_JOBS, Subject::Used),
            ListJobs | StatsGroup => (SEE_JOBS, Subject::Named),
            Kick => (MANAGE, Subject::Used),
            KickJob | Reprioritize => (MANAGE, Subject::OfJob),
            Move => (MANAGE, Subject::OfJobAndNamed),
            PauseTube | FlushTube | FlushBuried => (MANAGE, Subject::Named),
            Drain | Undrain => (MANAGE, Subject::Every),
            Ignore | Stats | ListTubes | ListTubeUsed | ListTubesWatched => (Roles::ANY, Subject::Some),
        };
        Self::One(roles, subject)
    }
}

impl Grants {
    /// Whether somebody with these grants may give a command that needs one of `needed` for a tube.
    #[must_use]
    pub fn judge(&self, needed: Roles, tube: &str) -> Verdict {
        if self.on(tube).meets(needed) { Verdict::Allowed } else { Verdict::Forbidden }
    }

    /// The same for a job in the tube `tube`, or for no job. Who may not know of the tube may not know of the job.
    #[must_use]
    pub fn judge_job(&self, needed: Roles, tube: Option<&str>) -> Verdict {
        // The patterns are asked for no job as well, so that the time does not tell whether there is one.
        let roles = std::hint::black_box(self.on(tube.unwrap_or(NO_JOB)));
        let roles = if tube.is_some() { roles } else { Roles::default() };
        if roles.meets(needed) {
            Verdict::Allowed
        } else if roles.meets(Need::SEE_TUBE) {
            Verdict::Forbidden
        } else {
            Verdict::NotFound
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Verb;

    fn subject(subject: Subject) -> &'static str {
        match subject {
            Subject::Some => "some tube",
            Subject::Every => "every tube (`*`)",
            Subject::Used => "the used tube",
            Subject::Watched => "each watched tube; the others leave the watch list",
            Subject::Named => "the tube or group that it names",
            Subject::OfJob => "the job's tube",
            Subject::OfJobAndNamed => "the job's tube; produce or manage for the other tube",
        }
    }

    #[test]
    fn no_job_costs_as_many_looks_as_a_job_of_others() {
        let mut grants = Grants::default();
        grants.add(Role::Work, "mine-*");
        let looks_at = |tube| {
            let before = crate::access::role::LOOKS.get();
            assert_eq!(grants.judge_job(Need::DELETE, tube), Verdict::NotFound);
            crate::access::role::LOOKS.get() - before
        };
        assert_eq!(looks_at(Some("theirs")), looks_at(None));
        grants.add(Role::Work, NO_JOB);
        assert_eq!(grants.judge_job(Need::DELETE, None), Verdict::NotFound, "no job is of no tube");
    }

    #[test]
    fn the_document_has_what_each_command_needs() {
        let document = include_str!("../../doc/security.md");
        for verb in Verb::ALL {
            let (roles, of) = match Need::of(verb) {
                Need::Nothing => ("nothing".to_owned(), "–"),
                Need::One(Roles::ANY, of) => ("any role".to_owned(), subject(of)),
                Need::One(roles, of) => (roles.to_string(), subject(of)),
            };
            let rows = document.lines().filter(|line| line.starts_with('|'));
            let mut rows = rows.filter(|row| {
                row.split('|').nth(1).is_some_and(|words| {
                    words.split(',').any(|word| word.trim() == format!("`{}`", verb.as_str()))
                })
            });
            let row = rows.next().unwrap_or_else(|| panic!("{} has no row", verb.as_str()));
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            assert_eq!(cells[2..4], [roles.as_str(), of], "{}", verb.as_str());
            assert_eq!(rows.next(), None, "{} has one row", verb.as_str());
        }
    }

    #[test]
    fn a_job_in_a_tube_that_may_not_be_seen_is_not_there() {
        let mut grants = Grants::default();
        grants.add(Role::Work, "mine");
        grants.add(Role::Observe, "seen");
        assert_eq!(grants.judge_job(END_JOBS, Some("mine")), Verdict::Allowed);
        assert_eq!(grants.judge_job(END_JOBS, Some("seen")), Verdict::Forbidden);
        assert_eq!(grants.judge_job(END_JOBS, Some("hidden")), Verdict::NotFound);
        assert_eq!(grants.judge_job(END_JOBS, None), Verdict::NotFound);
        assert_eq!(grants.judge(WORK, "mine"), Verdict::Allowed);
        assert_eq!(grants.judge(WORK, "hidden"), Verdict::Forbidden);
    }
}

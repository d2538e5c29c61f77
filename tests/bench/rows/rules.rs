//! The cost of rules for tubes, compared with a server without them.

use crate::failure::Failure;
use crate::load::{CYCLE, DRAIN, FILL, Generator, Load, Puts, Until};
use crate::runner::{Bench, Contest, column, per_command_us};
use crate::server::{Server, Setup};
use crate::table::{Row, Target};

/// A file whose entry is for no tube of the load.
const NO_MATCH: &str =
    "[[tube]]\nname = \"mail-*\"\nmax-jobs = 1000\nmax-attempts = 3\nfair = true\nrate = \"1/s\"\n";
const RETRIES: &str = "[[tube]]\nname = \"load-*\"\nmax-attempts = 5\nbackoff = \"10s\"\nmax-backoff = \"1h\"\n\
                       dead-tube = \"dead\"\n";
/// The rate is never reached, so the measurement does not include waiting for it.
const RATE: &str = "[[tube]]\nname = \"load-*\"\nrate = \"4000000000/s\"\n";
const RATE_AND_FAIR: &str = "[[tube]]\nname = \"load-*\"\nrate = \"4000000000/s\"\nfair = true\n";

const KEYS: u32 = 100_000;
/// Commands that the one connection beside a crowd of jobs sends before it waits.
const DEPTH: usize = 256;

/// Processor time of put, reserve and delete in a server with a file of rules, to a server without one. Other servers
/// have no rules.
pub fn cost(bench: &Bench) -> Vec<Row> {
    let row = |name: &str, rules: &'static str, most: f64| {
        let figures = bench.in_turns(
            |contender| {
                contender.must_be_ours()?;
                let open = |setup| Contest::open(bench.start(contender, setup)?, Load::new(32, 32));
                Ok((open(Setup::PLAIN)?, open(Setup { tubes: Some(rules), ..Setup::PLAIN })?))
            },
            |(plain, ruled)| {
                let plain_us = plain.cycles(bench.round())?.0;
                Ok([ruled.cycles(bench.round())?.0 / plain_us])
            },
        );
        let name = format!("32 x 32 {name}: CPU per command beside a server without rules");
        Row::new(name, "x", Target::AtMost(most), column(&figures, 0))
    };
    vec![
        // 1.00, to as many digits as two runs agree.
        row("with rules that do not match", NO_MATCH, 1.005),
        row("in tubes with retries", RETRIES, 1.05),
        row("in tubes with a rate", RATE, 1.3),
    ]
}

/// A server with a crowd of jobs in one tube.
struct Crowd {
    server: Server,
    generator: Generator,
}

impl Crowd {
    /// Microseconds per command to reserve and delete this many jobs, which are put again then.
    fn drain(&mut self, jobs: usize) -> Result<f64, Failure> {
        let (cpu, outcome) = self.server.cpu_of(|| self.generator.run(DRAIN, Until::Jobs(jobs)))?;
        self.generator.run(FILL, Until::Jobs(jobs))?;
        Ok(per_command_us(cpu, outcome.commands))
    }
}

/// Processor time of reserve and delete with a million jobs in a tube: plain ones; with 100,000 keys; and with these
/// keys in a fair tube with a rate. Of each key one job may be reserved, so nine of ten are blocked. Plain jobs leave
/// in the order in which they came and lie in memory, which no order of keys can match: plain jobs with random
/// priorities show what leaving in another order costs by itself.
pub fn crowd(bench: &Bench) -> Vec<Row> {
    let jobs = bench.million();
    let figures = bench.in_turns(
        |contender| {
            contender.must_be_ours()?;
            let open = |puts, tubes| {
                let server = bench.start(contender, Setup { tubes, ..Setup::PLAIN })?;
                let load = Load { puts, ..Load::new(1, DEPTH) };
                let mut generator = Generator::connect(server.endpoint(), load)?;
                generator.run(CYCLE, Until::Jobs(DEPTH))?;
                generator.run(FILL, Until::Jobs(jobs))?;
                Ok::<_, Failure>(Crowd { server, generator })
            };
            let (keyed, fair) =
                (open(Puts::Keyed(KEYS), None)?, open(Puts::Keyed(KEYS), Some(RATE_AND_FAIR))?);
            Ok([open(Puts::Same, None)?, open(Puts::RandomPriority, None)?, keyed, fair])
        },
        |[plain, mixed, keyed, fair]| {
            let share = jobs / 10;
            let (plain_us, mixed_us) = (plain.drain(share)?, mixed.drain(share)?);
            let (keyed_us, fair_us) = (keyed.drain(share)?, fair.drain(share)?);
            Ok([fair_us / plain_us, keyed_us / plain_us, mixed_us / plain_us, fair_us])
        },
    );
    let name = "1 M jobs of 100,000 keys, rate and fair: reserve and delete, CPU per command";
    let keyed = "… the same jobs without a rule, beside plain ones";
    let mixed = "… plain jobs with random priorities, beside plain ones";
    vec![
        Row::new(
            format!("{name} beside plain jobs without rules"),
            "x",
            Target::AtMost(1.3),
            column(&figures, 0),
        ),
        Row::new(keyed, "x", Target::None, column(&figures, 1)),
        Row::new(mixed, "x", Target::None, column(&figures, 2)),
        Row::new(name, "µs", Target::None, column(&figures, 3)),
    ]
}

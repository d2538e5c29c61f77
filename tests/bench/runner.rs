//! The order in which the contenders are measured.
//!
//! Owns: the rounds and their medians. Does not know what is measured. Driven by the rows.

use std::time::Duration;

use crate::failure::Failure;
use crate::load::{CYCLE, Generator, Kind, Load, Outcome, Until};
use crate::machine::Cores;
use crate::server::{Contender, Role, Server, Setup};
use crate::table::Figure;

/// Each contender's `N` figures, in the contenders' order.
pub type Figures<const N: usize> = Vec<Result<[f64; N], Failure>>;

/// The contenders, the cores, and the length of the rounds.
pub struct Bench {
    /// The floor, the peers, and our server, in this order.
    pub contenders: Vec<Contender>,
    /// The cores of the server and of the generator.
    pub cores: Cores,
    /// Whether rounds are fewer and shorter, and rows that take gigabytes are left out.
    pub quick: bool,
}

impl Bench {
    /// The number of rounds of which the median is taken.
    pub fn rounds(&self) -> usize {
        if self.quick { 3 } else { 5 }
    }

    /// How long a round lasts.
    pub fn round(&self) -> Until {
        Until::Elapsed(Duration::from_millis(if self.quick { 200 } else { 600 }))
    }

    /// The number of jobs in rows about a million jobs; a quick run takes fewer.
    pub fn million(&self) -> usize {
        if self.quick { 100_000 } else { 1_000_000 }
    }

    /// Starts `contender` on the server's core.
    pub fn start(&self, contender: &Contender, setup: Setup<'_>) -> Result<Server, Failure> {
        Server::start(contender, self.cores, setup)
    }

    /// Measures one contender after the other, once.
    pub fn one_by_one<const N: usize>(
        &self,
        measure: impl Fn(&Contender) -> Result<[f64; N], Failure>,
    ) -> Figures<N> {
        self.contenders.iter().map(measure).collect()
    }

    /// Like [`Bench::one_by_one`], but without the floor, which keeps no state to be measured.
    pub fn servers_one_by_one<const N: usize>(
        &self,
        measure: impl Fn(&Contender) -> Result<[f64; N], Failure>,
    ) -> Figures<N> {
        self.one_by_one(|contender| match contender.role {
            Role::Floor => Err(Failure::Meaningless),
            _ => measure(contender),
        })
    }

    /// Opens a contest for each contender and lets them take turns round by round, so that a slow period of the machine
    /// slows all of them. Returns the median of each figure of each contender.
    pub fn in_turns<T, const N: usize>(
        &self,
        open: impl Fn(&Contender) -> Result<T, Failure>,
        round: impl Fn(&mut T) -> Result<[f64; N], Failure>,
    ) -> Figures<N> {
        self.in_turns_among(&self.contenders, open, round)
    }

    /// Like [`Bench::in_turns`], for the given contenders instead of those of the table.
    pub fn in_turns_among<T, const N: usize>(
        &self,
        contenders: &[Contender],
        open: impl Fn(&Contender) -> Result<T, Failure>,
        round: impl Fn(&mut T) -> Result<[f64; N], Failure>,
    ) -> Figures<N> {
        let enter = |contender| Ok((open(contender)?, Vec::new()));
        let mut entrants: Vec<Result<_, Failure>> = contenders.iter().map(enter).collect();
        for _ in 0..self.rounds() {
            for entrant in &mut entrants {
                let Ok((contest, measured)) = entrant else { continue };
                match round(contest) {
                    Ok(figures) => measured.push(figures),
                    Err(failure) => *entrant = Err(failure),
                }
            }
        }
        entrants.into_iter().map(|entrant| entrant.map(|(_, measured)| medians(&measured))).collect()
    }
}

/// Each contender's figure at `index`, for a row.
pub fn column<const N: usize>(figures: &Figures<N>, index: usize) -> Vec<Figure> {
    figures
        .iter()
        .map(|figures| figures.as_ref().map(|figures| figures[index]).map_err(Clone::clone))
        .collect()
}

/// Each contender's first figure divided by its second, for a row.
pub fn ratios(figures: &Figures<2>) -> Vec<Figure> {
    figures.iter().map(|pair| pair.as_ref().map(|[one, other]| one / other).map_err(Clone::clone)).collect()
}

fn medians<const N: usize>(measured: &[[f64; N]]) -> [f64; N] {
    std::array::from_fn(|index| median(measured.iter().map(|figures| figures[index]).collect()))
}

/// The middle one of `figures`, which must not be empty.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// A server with a load on it.
pub struct Contest {
    server: Server,
    generator: Generator,
    kinds: &'static [Kind],
}

impl Contest {
    /// Connects `load` to `server` and runs cycles for a moment, so that the costs of the first cycles are not
    /// measured.
    pub fn open(server: Server, load: Load) -> Result<Self, Failure> {
        Self::open_for(CYCLE, server, load)
    }

    /// Like [`Contest::open`], with a cycle of `kinds`.
    pub fn open_for(kinds: &'static [Kind], server: Server, load: Load) -> Result<Self, Failure> {
        let mut generator = Generator::connect(server.endpoint(), load)?;
        generator.run(kinds, Until::Elapsed(Duration::from_millis(100)))?;
        Ok(Self { server, generator, kinds })
    }

    /// Runs a round of cycles. Returns microseconds of the server's processor time per command, and the load's outcome.
    pub fn cycles(&mut self, until: Until) -> Result<(f64, Outcome), Failure> {
        let (cpu, outcome) = self.server.cpu_of(|| self.generator.run(self.kinds, until))?;
        Ok((per_command_us(cpu, outcome.commands), outcome))
    }

    /// The server's process id.
    pub fn server_id(&self) -> u32 {
        self.server.id()
    }
}

/// Microseconds of `cpu` for each of `commands`.
pub fn per_command_us(cpu: Duration, commands: u64) -> f64 {
    cpu.as_secs_f64() * 1e6 / commands as f64
}

//! A response about the server and its tubes, rendered in slices.
//!
//! Owns: the order of its parts, and which one is next. What the parts look like is up to a [`Form`]: the metrics or
//! the figures of the page. Driven by an exchange.

use super::Sources;
use super::snapshot::{Choice, Snapshot};

/// How a response looks.
pub trait Form {
    /// What of the tubes is written next; the default is their beginning.
    type Place: Copy + Default;

    /// Writes what stands before the tubes.
    fn write_server(sources: &Sources<'_>, snapshot: &Snapshot, out: &mut String);

    /// Writes of the tubes, from `place` on, until `out` has a slice; returns where the next slice begins, and `None`
    /// at the end of the response.
    fn write_tubes(snapshot: &Snapshot, place: Self::Place, out: &mut String) -> Option<Self::Place>;
}

/// A response in the form `F`, as far as it is rendered.
#[derive(Debug)]
pub struct Rendering<F: Form> {
    snapshot: Snapshot,
    stage: Stage<F::Place>,
}

#[derive(Clone, Copy, Debug)]
enum Stage<P> {
    Gather,
    Server,
    Tubes(P),
}

impl<F: Form> Rendering<F> {
    /// A response about `choice` of the tubes, of which nothing is rendered yet.
    pub fn new(choice: Choice, sources: &Sources<'_>) -> Self {
        Self { snapshot: Snapshot::new(choice, sources.server.queue), stage: Stage::Gather }
    }

    /// Does a slice of the work; returns whether it was the last one.
    pub fn render(&mut self, sources: &Sources<'_>, out: &mut String) -> bool {
        match self.stage {
            Stage::Gather => {
                if self.snapshot.gather(sources.server.queue, sources.server.now) {
                    self.stage = Stage::Server;
                }
                false
            }
            Stage::Server => {
                F::write_server(sources, &self.snapshot, out);
                self.stage = Stage::Tubes(F::Place::default());
                false
            }
            Stage::Tubes(place) => F::write_tubes(&self.snapshot, place, out).is_none_or(|next| {
                self.stage = Stage::Tubes(next);
                false
            }),
        }
    }
}

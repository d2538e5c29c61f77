//! Texts that are rendered in slices, and the text about the server and its tubes.
//!
//! Owns: the order of the parts of the text about the server, and which part is next. A [`ResponseFormat`] decides the
//! format of the parts: metrics, or figures of the page. Driven by an exchange.

use std::fmt;

use super::Sources;
use super::snapshot::{Snapshot, TubeChoice};

/// A text that is rendered in slices.
pub(crate) trait SlicedText: fmt::Debug {
    /// Does a slice of the work; returns whether it was the last one, and the text is complete.
    fn render(&mut self, sources: &Sources<'_>, out: &mut String) -> bool;

    /// Frees a slice of its data, after the connection has ended; returns whether nothing is left.
    fn free_slice(&mut self) -> bool {
        true
    }
}

/// The format of a response.
pub(crate) trait ResponseFormat: fmt::Debug {
    /// The position among the tubes at which the next slice begins; the default is before the first tube.
    type Position: Copy + Default + fmt::Debug;

    /// Writes the part before the tubes.
    fn write_server(sources: &Sources<'_>, snapshot: &Snapshot, out: &mut String);

    /// Writes tubes from `position` on until `out` has a slice. Returns the position of the next slice, or `None` at
    /// the end of the response.
    fn write_tubes(snapshot: &Snapshot, position: Self::Position, out: &mut String)
    -> Option<Self::Position>;
}

/// A response in the format `F` that is being rendered.
#[derive(Debug)]
pub(crate) struct Rendering<F: ResponseFormat> {
    snapshot: Snapshot,
    stage: RenderingStage<F::Position>,
}

#[derive(Clone, Copy, Debug)]
enum RenderingStage<P> {
    Gather,
    Server,
    Tubes(P),
    /// The response is complete.
    Over,
}

impl<F: ResponseFormat> Rendering<F> {
    /// A response with these tubes; nothing is rendered yet.
    pub(crate) fn new(choice: TubeChoice, sources: &Sources<'_>) -> Self {
        Self { snapshot: Snapshot::new(choice, sources.server.queue), stage: RenderingStage::Gather }
    }
}

impl<F: ResponseFormat> SlicedText for Rendering<F> {
    fn render(&mut self, sources: &Sources<'_>, out: &mut String) -> bool {
        match self.stage {
            RenderingStage::Gather => {
                if self.snapshot.gather(sources.server.queue, sources.server.now) {
                    self.stage = RenderingStage::Server;
                }
                false
            }
            RenderingStage::Server => {
                F::write_server(sources, &self.snapshot, out);
                self.stage = RenderingStage::Tubes(F::Position::default());
                false
            }
            RenderingStage::Tubes(position) => {
                self.stage = F::write_tubes(&self.snapshot, position, out)
                    .map_or(RenderingStage::Over, RenderingStage::Tubes);
                false
            }
            RenderingStage::Over => self.free_slice(),
        }
    }

    fn free_slice(&mut self) -> bool {
        self.snapshot.free_slice()
    }
}

//! The span of a job, with the feature `tracing`. Without the feature there is no span.

#[cfg(all(feature = "tokio", feature = "tracing"))]
use tracing::Instrument;

/// The span in which a handler runs.
#[derive(Clone)]
pub(crate) struct Span(#[cfg(feature = "tracing")] pub tracing::Span);

impl Span {
    /// A span that does nothing.
    pub(crate) fn none() -> Self {
        Self(
            #[cfg(feature = "tracing")]
            tracing::Span::none(),
        )
    }

    /// Runs `act` in the span, and returns its result.
    pub(crate) fn run<T>(&self, act: impl FnOnce() -> T) -> T {
        #[cfg(feature = "tracing")]
        let _entered = self.0.enter();
        act()
    }

    /// The future, polled in the span.
    #[cfg(feature = "tokio")]
    pub(crate) fn around<F: Future>(self, future: F) -> impl Future<Output = F::Output> {
        #[cfg(feature = "tracing")]
        let future = future.instrument(self.0);
        future
    }
}

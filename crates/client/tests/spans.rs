//! The span of a job: the handler runs in it, with threads and with tasks, and knows the span of the put.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use beanstalk_client::{Client, Connector, Handled, PutOptions, Worker, WorkerJob};
use beanstalkd_testkit::fake::Fake;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

thread_local! {
    static ENTERED: std::cell::RefCell<Vec<u64>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Keeps each event with the fields of the span in which it has happened.
#[derive(Clone, Default)]
struct Kept {
    spans: Arc<Mutex<Vec<String>>>,
    events: Arc<Mutex<Vec<(String, String)>>>,
    next: Arc<AtomicU64>,
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0 += &format!("{}={value:?} ", field.name());
    }
}

impl Subscriber for Kept {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "spans"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut text = Text(String::new());
        span.record(&mut text);
        self.spans.lock().unwrap().push(text.0);
        Id::from_u64(self.next.fetch_add(1, Ordering::SeqCst) + 1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        let span = ENTERED.with_borrow(|entered| entered.last().copied());
        let span = span.map(|id| self.spans.lock().unwrap()[id as usize - 1].clone());
        self.events.lock().unwrap().push((text.0, span.unwrap_or_default()));
    }

    fn enter(&self, span: &Id) {
        ENTERED.with_borrow_mut(|entered| entered.push(span.into_u64()));
    }

    fn exit(&self, _: &Id) {
        ENTERED.with_borrow_mut(|entered| entered.pop());
    }
}

#[test]
fn a_handler_and_the_events_about_its_job_are_in_the_span_of_the_job() {
    let kept = Kept::default();
    tracing::subscriber::set_global_default(kept.clone()).unwrap();
    for is_async in [false, true] {
        let fake = Fake::start();
        let mut client = Client::connect(&fake.address().parse().unwrap()).unwrap();
        let options = PutOptions::new().tag(format!("trc:{TRACE}").parse().unwrap());
        let id = client.put(b"x", &options).unwrap().id;
        let worker = Worker::new(Connector::new(), fake.address().parse().unwrap())
            .until_empty()
            .in_span(|job: &WorkerJob| {
                let parent = job.trace().map(|trace| trace.as_str());
                tracing::info_span!("job", id = job.id, attempt = job.attempt, parent)
            })
            .on_event(|_| tracing::info!("event"));
        if is_async {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let ran = worker.run_async(|_| async {
                // The handler continues in its span after other tasks were polled.
                tokio::task::yield_now().await;
                tracing::info!("ran");
                Handled::Done
            });
            runtime.block_on(ran).unwrap();
        } else {
            _ = worker.run(|_| tracing::info!("ran")).unwrap();
        }
        tracing::info!("outside");
        let span = format!("id={id} attempt=1 parent=\"{TRACE}\" ");
        let events = std::mem::take(&mut *kept.events.lock().unwrap());
        let expected = [("event", &*span), ("ran", &span), ("event", &span), ("outside", "")];
        let expected = expected.map(|(text, span)| (format!("message={text} "), span.to_owned()));
        assert_eq!(events, expected);
    }
}

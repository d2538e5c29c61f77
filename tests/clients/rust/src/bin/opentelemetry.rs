//! Jobs in traces of OpenTelemetry: the span of a handler is a child of the span in which its job was put, also if
//! another program has put it. With the server at $BEANSTALKD_PORT.

use std::collections::HashMap;

use beanstalk_client::{Client, Connector, PutOptions, Tag, TraceParent, Worker, WorkerJob};
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::layer::SubscriberExt;

/// The tag of a job that is put in this span; none if nobody records the span.
fn tag_of(span: &tracing::Span) -> Option<Tag> {
    let mut carrier = HashMap::new();
    TraceContextPropagator::new().inject_context(&span.context(), &mut carrier);
    let trace: TraceParent = carrier.get("traceparent")?.parse().ok()?;
    Some(Tag::from(&trace))
}

/// The span of a job: a child of the one in which it was put.
fn span_of(job: &WorkerJob) -> tracing::Span {
    let span = tracing::info_span!("job", id = job.id, tube = job.tube(), attempt = job.attempt);
    if let Some(trace) = job.trace() {
        let carrier = HashMap::from([("traceparent".to_owned(), trace.to_string())]);
        let _ = span.set_parent(TraceContextPropagator::new().extract(&carrier));
    }
    span
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // In place of the exporter that sends the spans to your collector.
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("queue"));
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer))?;

    let address = format!("127.0.0.1:{}", std::env::var("BEANSTALKD_PORT")?).parse()?;
    let tube = "traced".parse()?;
    let put =
        |body: &[u8], tag: Tag| Client::connect(&address)?.put_in(&tube, body, &PutOptions::new().tag(tag));
    tracing::info_span!("order").in_scope(|| {
        let tag = tag_of(&tracing::Span::current()).expect("a span that is recorded");
        put(b"first", tag)
    })?;
    let worker =
        Worker::new(Connector::new(), address.clone()).watch(tube.clone()).until_empty().in_span(span_of);
    worker.run(|job| match (job.body.as_slice(), job.trace()) {
        // The job that a handler puts belongs to the same trace.
        (b"first", Some(trace)) => {
            tracing::info_span!("inner").in_scope(|| put(b"second", trace.into())).map(drop)
        }
        _ => Ok(()),
    })?;

    let spans = exporter.get_finished_spans()?;
    let named = |name: &str| spans.iter().filter(|span| span.name == name).collect::<Vec<_>>();
    let ([order], [first, second], [inner]) = (&named("order")[..], &named("job")[..], &named("inner")[..])
    else {
        panic!("other spans than expected: {spans:?}");
    };
    assert_eq!(inner.parent_span_id, first.span_context.span_id());
    for job in [first, second] {
        assert_eq!(job.parent_span_id, order.span_context.span_id());
        assert_eq!(job.span_context.trace_id(), order.span_context.trace_id());
    }
    println!("clients: beanstalk-client with OpenTelemetry: good");
    Ok(())
}

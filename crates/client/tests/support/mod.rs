//! The set-ups that several tests share.

#![allow(dead_code, reason = "each test uses some of them")]

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use beanstalk_client::{Connector, Error, Handled, Reconnect, Report, TubeName, Worker, WorkerJob};
use beanstalkd_testkit::PATIENCE;
use tempfile::TempDir;

pub(crate) fn tube(name: &str) -> TubeName {
    name.parse().unwrap()
}

/// A connector that opens lost connections again, with short pauses.
pub(crate) fn reconnecting() -> Connector {
    let pauses = Reconnect::new().pauses(Duration::from_millis(1), Duration::from_millis(5));
    Connector::new().reconnect(pauses.give_up_after(PATIENCE))
}

pub(crate) fn on_one_thread<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Runs a worker with threads, or with tasks.
pub(crate) fn run_worker(
    worker: &Worker,
    is_async: bool,
    handler: impl Fn(&WorkerJob) -> Handled + Send + Sync + 'static,
) -> Result<Report, Error> {
    if !is_async {
        return worker.run(handler);
    }
    let handler = Arc::new(handler);
    let handler = move |job: Arc<WorkerJob>| {
        let handler = Arc::clone(&handler);
        async move { tokio::task::spawn_blocking(move || handler(&job)).await.unwrap() }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(worker.run_async(handler))
}

/// A server that answers each line on a connection with the next of its texts, and closes it after the last.
pub(crate) fn scripted(scripts: Vec<Vec<Vec<u8>>>) -> (String, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        for (script, stream) in scripts.into_iter().zip(listener.incoming()) {
            let mut stream = stream.unwrap();
            for text in script {
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(&text);
            }
        }
    });
    (format!("unix:{}", path.display()), directory)
}

/// A server that runs `each` with every connection and its number. Returns what `each` has noted down.
pub(crate) fn noting(
    connections: usize,
    each: impl Fn(usize, &mut UnixStream, &mut Vec<String>) + Send + 'static,
) -> (String, TempDir, std::thread::JoinHandle<Vec<String>>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let served = std::thread::spawn(move || {
        let mut notes = Vec::new();
        for (number, stream) in listener.incoming().take(connections).enumerate() {
            each(number, &mut stream.unwrap(), &mut notes);
        }
        notes
    });
    (format!("unix:{}", path.display()), directory, served)
}

/// Reads what has come, and sends this.
pub(crate) fn answer(stream: &mut UnixStream, text: &[u8]) -> String {
    let mut bytes = [0; 4096];
    let count = stream.read(&mut bytes).unwrap();
    stream.write_all(text).unwrap();
    String::from_utf8(bytes[..count].to_vec()).unwrap()
}

/// A reply with a job of the tube `work`, with its fields.
pub(crate) const JOB: &[u8] = b"RESERVED 7 5 work 1 0 0 0 0 60 -\r\nright\r\n";

/// The replies to the first commands of a worker of the tube `work`, and then this reply.
pub(crate) fn reserved(job: &[u8]) -> Vec<Vec<u8>> {
    let fields = b"USING tube attempts timeouts releases age pri ttr trace\r\n";
    vec![b"WATCHING 2\r\n".to_vec(), b"WATCHING 1\r\n".to_vec(), fields.to_vec(), job.to_vec()]
}

/// A connector that opens lost connections again, with or without a session.
pub(crate) fn with_session(has_session: bool) -> Connector {
    if has_session {
        reconnecting().session("s".parse().unwrap(), Duration::from_secs(60))
    } else {
        reconnecting()
    }
}

//! Workers whose commands for a job fail: what they conclude about the job and about the connection.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use beanstalk_client::{Connector, Event, Handled, Worker};
use beanstalkd_testkit::panicking::wait_until;

mod support;

use support::{
    JOB, answer, noting, reconnecting as connector, reserved, run_worker as run, scripted, tube, with_session,
};

/// A worker of the tube `work`, and the number of its reports of lost connections.
fn counting(connector: Connector, address: &str) -> (Worker, Arc<AtomicUsize>) {
    let lost = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&lost);
    let worker = Worker::new(connector, address.parse().unwrap()).watch(tube("work")).until_empty();
    let worker = worker.on_event(move |event| {
        if let Event::Disconnected { .. } = event {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    (worker, lost)
}

#[test]
fn a_job_without_an_answer_about_it_is_left_and_one_that_is_gone_is_skipped() {
    let stats = b"---\nid: 7\ntube: work\nstate: reserved\npri: 0\nage: 0\nttr: 60\n";
    let data = [format!("OK {}\r\n", stats.len()).as_bytes(), stats, b"\r\n"].concat();
    let job = [&b"WATCHING 2\r\n"[..], b"WATCHING 1\r\n", b"RESERVED 7 1\r\nx\r\n"].map(<[u8]>::to_vec);
    let end = [data, b"DELETED\r\n".to_vec(), b"TIMED_OUT\r\n".to_vec()];
    for is_async in [false, true] {
        let first = [&job[..], &[b"INTERNAL_ERROR\r\n".to_vec()]].concat();
        let second = [&[job.concat()], &end[..]].concat();
        let (address, _directory) = scripted(vec![first, second]);
        let (worker, lost) = counting(connector(), &address);
        let report = run(&worker.with_info(), is_async, |_| Handled::Done).unwrap();
        assert_eq!((report.deleted, lost.load(Ordering::SeqCst)), (1, 1));

        let gone = [b"NOT_FOUND\r\n".to_vec(), b"TIMED_OUT\r\n".to_vec()];
        let (address, _directory) = scripted(vec![[&job[..], &gone].concat()]);
        let (worker, lost) = counting(connector(), &address);
        let report = run(&worker.with_info(), is_async, |_| unreachable!("the job is gone")).unwrap();
        assert_eq!((report.deleted, lost.load(Ordering::SeqCst)), (0, 0));
    }
}

#[test]
fn a_touch_that_is_refused_is_tried_again_and_one_on_a_lost_connection_is_not() {
    let quick = b"RESERVED 7 5 work 1 0 0 0 0 1 -\r\nright\r\n";
    for (is_lost, is_async) in [(false, false), (false, true), (true, false), (true, true)] {
        let (touches, failures) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (seen, counted) = (Arc::clone(&touches), Arc::clone(&failures));
        let (address, _directory, _served) = noting(2, move |number, stream, _| {
            if number > 0 {
                answer(stream, &[&reserved(b"")[..3].concat()[..], b"TIMED_OUT\r\n"].concat());
                return;
            }
            reserved(quick).iter().for_each(|text| drop(answer(stream, text)));
            let replies = [&b"OUT_OF_MEMORY\r\n"[..], b"TOUCHED\r\n"];
            for reply in if is_lost { [].iter() } else { replies.iter() } {
                assert_eq!(answer(stream, reply), "touch 7\r\n");
                seen.fetch_add(1, Ordering::SeqCst);
            }
            if !is_lost {
                // A slow handler has further touches.
                let mut line = answer(stream, b"");
                while line == "touch 7\r\n" {
                    stream.write_all(b"TOUCHED\r\n").unwrap();
                    line = answer(stream, b"");
                }
                assert_eq!(line, "delete 7\r\n");
                stream.write_all(b"DELETED\r\n").unwrap();
                answer(stream, b"TIMED_OUT\r\n");
            }
        });
        let worker = Worker::new(connector(), address.parse().unwrap()).watch(tube("work")).until_empty();
        let worker = worker.on_event(move |event| {
            if let Event::NotTouched(..) = event {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        let seen = Arc::clone(&failures);
        let report = run(&worker, is_async, move |_| {
            if is_lost {
                wait_until("a touch that fails", || seen.load(Ordering::SeqCst) > 0);
                // The time of three further touches.
                std::thread::sleep(Duration::from_secs(1));
            } else {
                wait_until("a second touch", || touches.load(Ordering::SeqCst) == 2);
            }
            Handled::Done
        });
        let report = report.unwrap();
        assert_eq!((report.deleted, report.lost), if is_lost { (0, 1) } else { (1, 0) });
        assert_eq!(failures.load(Ordering::SeqCst), 1, "lost: {is_lost}, as tasks: {is_async}");
    }
}

#[test]
fn a_job_of_a_session_that_the_server_does_not_touch_is_left_with_its_connection() {
    for is_async in [false, true] {
        let (address, _directory, _served) = noting(3, move |number, stream, _| {
            let texts = [&[b"SESSION 1\r\n".to_vec()][..], &reserved(JOB)].concat();
            let greeting = texts[..4].concat();
            match number {
                0 => {
                    texts.iter().for_each(|text| drop(answer(stream, text)));
                    assert_eq!(answer(stream, b""), "delete 7\r\n");
                }
                1 => drop(answer(stream, &[&greeting[..], b"OUT_OF_MEMORY\r\n"].concat())),
                _ => drop(answer(stream, &[&greeting[..], b"TIMED_OUT\r\n"].concat())),
            }
        });
        let (worker, lost) = counting(with_session(true), &address);
        let report = run(&worker, is_async, |_| Handled::Done).unwrap();
        assert_eq!((report.deleted, report.unconfirmed), (0, 1), "{report:?}");
        assert_eq!(lost.load(Ordering::SeqCst), 1, "as tasks: {is_async}");
    }
}

#[test]
fn a_job_that_a_session_does_not_have_any_more_is_lost_and_the_connection_stays() {
    for is_async in [false, true] {
        let end = [b"NOT_FOUND\r\n".to_vec(), b"TIMED_OUT\r\n".to_vec()];
        let texts = [&[b"SESSION 0\r\n".to_vec()][..], &reserved(JOB), &end].concat();
        let (address, _directory) = scripted(vec![texts]);
        let (worker, lost) = counting(with_session(true), &address);
        let report = run(&worker, is_async, |_| Handled::Done).unwrap();
        assert_eq!((report.lost, report.unconfirmed), (1, 0), "{report:?}");
        assert_eq!(lost.load(Ordering::SeqCst), 0, "as tasks: {is_async}");
    }
}

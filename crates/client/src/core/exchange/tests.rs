//! The core without a socket: which bytes are sent, which are sent again, and which reply belongs to which command.

use super::*;
use beanstalkd_protocol::{Field, Grace, parse};
use beanstalkd_types::job::JobId;
use beanstalkd_types::tube_name::TubeName;

use crate::core::Token;
use crate::core::put::PutOptions;

fn push(exchange: &mut Exchange, line: &str) {
    exchange.push(&Request::Line(parse(line.as_bytes()).unwrap()));
}

/// Sends at most this many bytes.
fn send(exchange: &mut Exchange, max_bytes: usize) -> String {
    let bytes = &exchange.unsent()[..max_bytes.min(exchange.unsent().len())];
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    exchange.sent(text.len());
    text
}

fn receive(exchange: &mut Exchange, bytes: &str) {
    for part in bytes.as_bytes().chunks(MIN_READ_BYTES) {
        exchange.room(0)[..part.len()].copy_from_slice(part);
        exchange.received(part.len());
    }
}

/// The results so far, as text.
fn results(exchange: &mut Exchange) -> Vec<String> {
    let mut results = Vec::new();
    while !exchange.is_idle() && exchange.receive_next().unwrap() == 0 {
        results.push(match exchange.next_reply() {
            Ok(answer) => format!("{:?}", answer.unwrap().0),
            Err(error) => error.to_string(),
        });
    }
    results
}

fn unconfirmed(command: &str) -> String {
    Error::Unconfirmed { command: parse(command.as_bytes()).unwrap().verb().as_str() }.to_string()
}

const LONG_AGO: Duration = Duration::from_secs(3600);

#[test]
fn a_new_connection_gets_the_state_and_the_commands_that_may_be_repeated() {
    let options = PutOptions::default();
    let keyed = PutOptions::new().tag("idp:k:60".parse().unwrap());
    let mut exchange = Exchange::new(ConnectionState::new(Token::parse("t"), None));
    assert_eq!(send(&mut exchange, usize::MAX), "auth t\r\n");
    assert!(!exchange.is_greeted());
    receive(&mut exchange, "AUTHENTICATED\r\n");
    assert!(exchange.receive_next().unwrap() > 0 && exchange.is_greeted() && exchange.is_idle());
    push(&mut exchange, "use a");
    send(&mut exchange, usize::MAX);
    receive(&mut exchange, "USING a\r\n");
    assert_eq!(results(&mut exchange), ["Using(\"a\")"]);

    exchange.push(&Request::Put(&options, b"1"));
    push(&mut exchange, "use b");
    exchange.push(&Request::Put(&keyed, b"2"));
    push(&mut exchange, "delete 7");
    let sent = send(&mut exchange, usize::MAX);
    exchange.push(&Request::Put(&options, b"3"));
    // Everything except the last byte of the last put.
    let last = "put 1024 0 60 1\r\n3\r\n";
    assert_eq!(send(&mut exchange, last.len() - 1), last[..last.len() - 1]);
    exchange.begin_again(Duration::from_secs(1));
    let again = "auth t\r\nuse a\r\n".to_owned() + &sent[sent.find("use b").unwrap()..] + last;
    assert_eq!(send(&mut exchange, usize::MAX), again);
    receive(
        &mut exchange,
        "AUTHENTICATED\r\nUSING a\r\nUSING b\r\nINSERTED 9 READY\r\nNOT_FOUND\r\nINSERTED 10\r\n",
    );
    let expected = [
        &unconfirmed("put 0 0 0 0"),
        "Using(\"b\")",
        "Duplicate(JobId(9), Some(Ready), None)",
        &unconfirmed("delete 7"),
        "Inserted(JobId(10))",
    ];
    // Greetings are read on the way, but results come in the order of the commands.
    assert_eq!(results(&mut exchange), expected);
    assert!(exchange.state.uses(&"b".parse().unwrap()));
}

#[test]
fn a_key_counts_only_for_its_seconds() {
    for (tag, since_sent, is_repeated) in
        [("idp:k:60", 59, true), ("idp:k:60", 60, false), ("idp:k", 0, false), ("grp:g", 0, false)]
    {
        let mut exchange = Exchange::default();
        exchange.push(&Request::Put(&PutOptions::new().tag(tag.parse().unwrap()), b""));
        send(&mut exchange, usize::MAX);
        exchange.begin_again(Duration::from_secs(since_sent));
        assert_eq!(!exchange.unsent().is_empty(), is_repeated, "{tag} {since_sent}");
    }
}

#[test]
fn the_replies_that_were_received_before_the_loss_count() {
    let mut exchange = Exchange::default();
    (1..=4).for_each(|id| push(&mut exchange, &format!("kick-job {id}")));
    send(&mut exchange, usize::MAX);
    receive(&mut exchange, "KICKED\r\nNOT_FOUND\r\nKIC");
    assert_eq!(results(&mut exchange), ["KickedJob", "NotFound"]);
    exchange.begin_again(LONG_AGO);
    assert!(exchange.unsent().is_empty(), "nobody knows of 3 and 4");
    assert_eq!(results(&mut exchange), [unconfirmed("kick-job 3"), unconfirmed("kick-job 4")]);
    assert!(exchange.is_idle());
}

#[test]
fn a_second_loss_is_as_the_first() {
    let mut exchange = Exchange::default();
    for line in ["stats", "kick 1", "reserve-with-timeout 5", "touch 3"] {
        push(&mut exchange, line);
    }
    for cut in [0, 3, 9, 20] {
        send(&mut exchange, cut);
        exchange.begin_again(LONG_AGO);
    }
    let sent = send(&mut exchange, usize::MAX);
    assert!(
        sent.starts_with("stats\r\n") && sent.ends_with("reserve-with-timeout 5\r\ntouch 3\r\n"),
        "{sent}"
    );
    receive(&mut exchange, "OK 0\r\n\r\n");
    let found = results(&mut exchange);
    assert_eq!(found.len(), 2, "a reserve still waits");
    assert!(sent.contains("kick 1") != found.contains(&unconfirmed("kick 1")));
}

#[test]
fn every_cut_of_a_pipeline_executes_each_command_once_or_says_that_it_may_have() {
    let lines = ["kick-job 1", "kick-job 2", "kick-job 3"];
    let all: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    for cut in 0..=all.len() {
        for answered in 0..=lines.len() {
            let whole = all[..cut].matches("\r\n").count();
            if answered > whole {
                continue;
            }
            let mut exchange = Exchange::default();
            lines.iter().for_each(|line| push(&mut exchange, line));
            send(&mut exchange, cut);
            receive(&mut exchange, &"KICKED\r\n".repeat(answered));
            let mut found = results(&mut exchange);
            exchange.begin_again(Duration::ZERO);
            let again = send(&mut exchange, usize::MAX);
            receive(&mut exchange, &"KICKED\r\n".repeat(again.matches("\r\n").count()));
            found.extend(results(&mut exchange));
            let expected: Vec<String> = (0..lines.len())
                .map(|index| match (index < answered, index < whole) {
                    (false, true) => unconfirmed(lines[index]),
                    _ => "KickedJob".to_owned(),
                })
                .collect();
            assert_eq!(found, expected, "{cut} bytes sent, {answered} replies");
        }
    }
}

#[test]
fn replies_that_nobody_waits_for_are_skipped_and_their_jobs_kept() {
    let mut exchange = Exchange::default();
    push(&mut exchange, "reserve-fields age");
    push(&mut exchange, "reserve-with-timeout 1");
    push(&mut exchange, "reserve-fields tube");
    push(&mut exchange, "watch a");
    send(&mut exchange, usize::MAX);
    push(&mut exchange, "delete 5");
    exchange.abandon();
    push(&mut exchange, "peek 1");
    assert_eq!(send(&mut exchange, usize::MAX), "peek 1\r\n", "nothing of the delete was sent");
    receive(&mut exchange, "USING age\r\nRESERVED 7 2 99\r\nhi\r\nUSING tube\r\nWATCHING 2\r\nNOT_FOUND\r\n");
    assert_eq!(results(&mut exchange), ["NotFound"]);
    assert_eq!(exchange.strays.first_for(&Command::Peek(JobId(1)).into()), None);
    assert!(has_stray(&exchange) && exchange.has_reserved);
    let (reply, fields) = exchange.strays.take().unwrap();
    assert!(matches!(reply, Reply::ReservedWith(JobId(7), body, "99") if body.as_slice() == b"hi"));
    assert_eq!(FieldList::new([Field::Age]), Some(fields), "those that it was reserved with");
    assert!(!has_stray(&exchange));
    exchange.begin_again(Duration::ZERO);
    assert_eq!(send(&mut exchange, usize::MAX), "watch a\r\nreserve-fields tube\r\n");
}

#[test]
fn half_a_command_is_sent_to_its_end_when_its_caller_has_gone() {
    let mut exchange = Exchange::default();
    push(&mut exchange, "delete 77");
    assert_eq!(send(&mut exchange, 4), "dele");
    exchange.abandon();
    push(&mut exchange, "stats-job 1");
    assert_eq!(send(&mut exchange, usize::MAX), "te 77\r\nstats-job 1\r\n");
    receive(&mut exchange, "DELETED\r\nNOT_FOUND\r\n");
    assert_eq!(results(&mut exchange), ["NotFound"]);
}

#[test]
fn no_more_is_sent_than_the_kernel_takes_unless_one_command_is_larger() {
    let mut exchange = Exchange::default();
    let (options, large) = (PutOptions::default(), vec![b'x'; 3 * MAX_OUTSTANDING_BYTES]);
    push(&mut exchange, "stats");
    exchange.push(&Request::Put(&options, &large));
    assert!(exchange.is_full());
    assert_eq!(send(&mut exchange, usize::MAX).len(), MAX_OUTSTANDING_BYTES);
    assert!(exchange.unsent().is_empty());
    receive(&mut exchange, "OK 0\r\n\r\n");
    assert_eq!(results(&mut exchange).len(), 1);
    assert!(send(&mut exchange, usize::MAX).ends_with("x\r\n"));
    receive(&mut exchange, "INSERTED 1\r\n");
    assert_eq!(results(&mut exchange), ["Inserted(JobId(1))"]);
    assert!(exchange.has_room() && exchange.is_idle());
}

#[test]
fn a_server_that_does_not_agree_to_the_greeting_is_an_error() {
    let mut exchange = Exchange::new(ConnectionState::new(Token::parse("t"), None));
    send(&mut exchange, usize::MAX);
    receive(&mut exchange, "UNAUTHORIZED\r\n");
    assert!(matches!(
        exchange.receive_next(),
        Err(Error::Refused(beanstalkd_protocol::Refusal::Unauthorized))
    ));
}

#[test]
fn a_server_that_was_set_back_gives_jobs_without_fields() {
    for reply in ["UNKNOWN_COMMAND", "BAD_FORMAT"] {
        let mut exchange = Exchange::default();
        push(&mut exchange, "reserve-fields attempts");
        send(&mut exchange, usize::MAX);
        receive(&mut exchange, "USING attempts\r\n");
        assert_eq!(results(&mut exchange).len(), 1);
        push(&mut exchange, "reserve");
        exchange.begin_again(LONG_AGO);
        assert_eq!(send(&mut exchange, usize::MAX), "reserve-fields attempts\r\nreserve\r\n");
        receive(&mut exchange, &format!("{reply}\r\nRESERVED 1 0\r\n\r\n"));
        assert_eq!(results(&mut exchange).len(), 1, "{reply}");
        // The next server may support them again.
        exchange.begin_again(LONG_AGO);
        assert_eq!(send(&mut exchange, usize::MAX), "reserve-fields attempts\r\n");
        receive(&mut exchange, "FORBIDDEN\r\n");
        assert!(exchange.receive_next().is_err());
    }
}

#[test]
fn a_complete_is_sent_again_as_a_whole_and_its_result_is_unknown_if_the_job_is_gone() {
    let options = PutOptions::default();
    let puts = [(options.clone(), &b"next"[..]), (options, b"after")];
    let bytes = "complete 7 2\r\nput 1024 0 60 4\r\nnext\r\nput 1024 0 60 5\r\nafter\r\n";
    for (sent_bytes, reply, result) in [
        (bytes.len(), "NOT_FOUND", unconfirmed("complete 7 0")),
        (bytes.len(), "COMPLETED 8 9", "COMPLETED".to_owned()),
        // The server cannot have executed it without its last byte.
        (bytes.len() - 1, "NOT_FOUND", "NotFound".to_owned()),
    ] {
        let mut exchange = Exchange::default();
        exchange.push(&Request::Complete(JobId(7), &puts));
        assert_eq!(send(&mut exchange, sent_bytes), bytes[..sent_bytes]);
        exchange.begin_again(LONG_AGO);
        assert_eq!(send(&mut exchange, usize::MAX), bytes);
        receive(&mut exchange, &format!("{reply}\r\n"));
        let results = results(&mut exchange);
        let is_completed = results.len() == 1 && results[0].starts_with("Completed");
        assert!(results == [result.clone()] || is_completed && result == "COMPLETED", "{results:?}");
    }
}

#[test]
fn a_reply_that_comes_before_its_command_ends_the_connection() {
    let mut exchange = Exchange::default();
    let (options, body) = (PutOptions::default(), [b'x'; 100]);
    let count = 2000;
    (0..count).for_each(|_| exchange.push(&Request::Put(&options, &body)));
    let sent = send(&mut exchange, usize::MAX);
    assert!(sent.len() < count * 100, "a part of them has to wait");
    let whole = sent.matches("put").count() - usize::from(!sent.ends_with("x\r\n"));
    receive(&mut exchange, &"INSERTED 1\r\n".repeat(count));
    for _ in 0..whole {
        assert_eq!(exchange.receive_next().unwrap(), 0);
        exchange.next_reply().unwrap();
    }
    let error = exchange.receive_next().unwrap_err();
    assert!(matches!(error, Error::Unasked { .. }) && error.is_out_of_step() && error.ends_connection());
    // On a connection that takes no more bytes, a reply to a command that was not sent is the reason of the server.
    exchange.is_closed_for_writes = true;
    assert_eq!(results(&mut exchange).len(), count - whole);
}

#[test]
fn the_seconds_of_a_key_go_on_while_no_connection_is_found() {
    let seconds = Duration::from_secs;
    let sent_again = || {
        let mut exchange = Exchange::default();
        push(&mut exchange, "stats");
        exchange.push(&Request::Put(&PutOptions::new().tag("idp:k:5".parse().unwrap()), b""));
        push(&mut exchange, "use a");
        send(&mut exchange, usize::MAX);
        exchange.begin_again(seconds(1));
        exchange
    };
    let mut exchange = sent_again();
    exchange.expire(|| seconds(4));
    assert!(send(&mut exchange, usize::MAX).contains("put"));
    let late = |mut exchange: Exchange| {
        assert_eq!(send(&mut exchange, usize::MAX), "stats\r\nuse a\r\n");
        receive(&mut exchange, "OK 0\r\n\r\nUSING a\r\n");
        assert_eq!(results(&mut exchange)[1..], [&unconfirmed("put 0 0 0 0"), "Using(\"a\")"]);
    };
    let mut exchange = sent_again();
    exchange.begin_again(seconds(5));
    late(exchange);
    let mut exchange = sent_again();
    exchange.expire(|| seconds(5));
    late(exchange);
    // Its first bytes were sent in time.
    let mut exchange = sent_again();
    send(&mut exchange, "stats\r\np".len());
    exchange.expire(|| seconds(5));
    assert!(send(&mut exchange, usize::MAX).starts_with("ut "));
}

#[test]
fn after_a_loss_nothing_is_sent_that_the_new_server_would_misunderstand() {
    let tagged = |tag: &str| PutOptions::new().tag(tag.parse().unwrap());
    let missing = |word: &str| Error::Unsupported { extension: word.to_owned() }.to_string();
    let stats = |words: &str| {
        let data = format!("---\nextensions: \"{words}\"\n");
        format!("OK {}\r\n{data}\r\n", data.len())
    };
    let inserted = "Inserted(JobId(1))".to_owned();
    let put = "put 1024 0 60 5 grp:g\r\ndrain\r\n";
    for (reply, again, results_of_puts) in [
        (stats("idp grp"), put, [inserted.clone(), inserted.clone()]),
        (stats("grp"), put, [unconfirmed("put 0 0 0 0"), inserted]),
        (stats("tub"), "", [unconfirmed("put 0 0 0 0"), missing("grp")]),
        ("UNKNOWN_COMMAND\r\n".to_owned(), "", [unconfirmed("put 0 0 0 0"), missing("grp")]),
    ] {
        let mut exchange = Exchange::new(ConnectionState::new(Token::parse("t"), None));
        exchange.push(&Request::Put(&tagged("idp:k:60"), b"drain"));
        push(&mut exchange, "use b");
        let sent = send(&mut exchange, usize::MAX);
        exchange.push(&Request::Put(&tagged("grp:g"), b"drain"));
        exchange.begin_again(Duration::from_secs(1));
        exchange.ask_before_sending();
        assert_eq!(send(&mut exchange, usize::MAX), "auth t\r\nstats\r\n");
        receive(&mut exchange, &format!("AUTHENTICATED\r\n{reply}"));
        let mut found = Vec::new();
        if exchange.receive_next().unwrap() == 0 {
            found.push(exchange.next_reply().unwrap_err().to_string());
        }
        let first = if found.is_empty() { &sent["auth t\r\n".len()..] } else { "use b\r\n" };
        assert_eq!(send(&mut exchange, usize::MAX), format!("{first}{again}"), "{reply}");
        receive(&mut exchange, if found.is_empty() { "INSERTED 1\r\nUSING b\r\n" } else { "USING b\r\n" });
        receive(&mut exchange, if again.is_empty() { "" } else { "INSERTED 1\r\n" });
        found.extend(results(&mut exchange));
        assert_eq!(found, [&results_of_puts[0], "Using(\"b\")", &results_of_puts[1]], "{reply}");
        assert!(exchange.is_idle());
    }
}

#[test]
fn a_job_for_nobody_is_lost_with_its_connection_unless_a_session_has_it() {
    let session = |name: &str| Some((name.parse().unwrap(), Grace::from_ms(5000).unwrap()));
    for (state, count, is_kept) in [
        (ConnectionState::default(), 0, false),
        (session_of(session("s")), 1, true),
        (session_of(session("s")), 0, false),
    ] {
        let mut exchange = Exchange::new(state);
        let greeting = send(&mut exchange, usize::MAX);
        let greeted =
            |count| if greeting.is_empty() { String::new() } else { format!("SESSION {count}\r\n") };
        receive(&mut exchange, &greeted(0));
        push(&mut exchange, "reserve");
        send(&mut exchange, usize::MAX);
        exchange.abandon();
        receive(&mut exchange, "RESERVED 7 0\r\n\r\n");
        assert!(exchange.receive_next().unwrap() > 0 && has_stray(&exchange));
        exchange.begin_again(LONG_AGO);
        send(&mut exchange, usize::MAX);
        receive(&mut exchange, &greeted(count));
        assert!(exchange.receive_next().unwrap() > 0);
        assert_eq!(has_stray(&exchange), is_kept, "{count}");
    }
}

fn has_stray(exchange: &Exchange) -> bool {
    exchange.strays.first_for(&Command::Reserve.into()).is_some()
}

fn session_of(session: Option<(TubeName, Grace)>) -> ConnectionState {
    ConnectionState::new(None, session)
}

#[test]
fn commands_are_added_again_when_half_of_the_replies_were_read() {
    let mut exchange = Exchange::default();
    while !exchange.is_full() {
        assert!(
            exchange.is_idle()
                || exchange.has_room() == (exchange.outstanding_bytes() <= MAX_OUTSTANDING_BYTES / 2)
        );
        push(&mut exchange, "touch 1");
    }
    let mut read = 0;
    while !exchange.has_room() {
        send(&mut exchange, usize::MAX);
        receive(&mut exchange, "TOUCHED\r\n");
        assert_eq!(results(&mut exchange), ["Touched"]);
        read += "touch 1\r\n".len();
    }
    assert!((MAX_OUTSTANDING_BYTES / 2..MAX_OUTSTANDING_BYTES / 2 + 20).contains(&read), "{read} bytes");
}

#[test]
fn the_wait_for_a_reply_is_that_of_the_first_command() {
    assert_eq!(Exchange::default().longest_wait(), Some(Seconds::ZERO));
    for (line, wait) in [
        ("reserve", None),
        ("reserve-with-timeout 7", Some(Seconds::new(7, 0))),
        ("wait-job 1", None),
        ("delete 1", Some(Seconds::ZERO)),
    ] {
        let mut exchange = Exchange::default();
        push(&mut exchange, line);
        push(&mut exchange, "reserve-with-timeout 9");
        assert_eq!(exchange.longest_wait(), wait, "{line}");
    }
}

#[test]
fn each_byte_that_is_sent_or_received_ends_the_wait() {
    let mut exchange = Exchange { waits_since: Some(Instant::now()), ..Exchange::default() };
    push(&mut exchange, "delete 1");
    exchange.sent(0);
    exchange.received(0);
    assert!(exchange.waits_since.is_some());
    send(&mut exchange, 3);
    assert!(exchange.waits_since.is_none());
    exchange.waits_since = Some(Instant::now());
    receive(&mut exchange, "DEL");
    assert!(exchange.waits_since.is_none());
}

#[test]
fn half_a_reply_of_a_lost_connection_is_forgotten() {
    let mut exchange = Exchange::default();
    push(&mut exchange, "touch 1");
    send(&mut exchange, usize::MAX);
    receive(&mut exchange, "TOU");
    assert!(exchange.receive_next().unwrap() > 0);
    exchange.begin_again(LONG_AGO);
    send(&mut exchange, usize::MAX);
    receive(&mut exchange, "TOUCHED\r\n");
    assert_eq!(results(&mut exchange), ["Touched"]);
}

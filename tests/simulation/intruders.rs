//! The harm that a client without rights, with few rights, or with lost rights can do to others.

use beanstalkd::access::{Peer, TokenHash};
use beanstalkd_queue::TubeRule;
use beanstalkd_types::clock::{NS_PER_MS, NS_PER_S};

use beanstalkd_testkit::simulated::{Connection, START, SimulatedServer};

use crate::access::{ANNA, OPERATOR, guarded, hand_over_to, replace_rules};

const TOKEN: &str = "a-token-of-the-team-that-is-long-enough";
const PUT: &str = "put 0 0 1 1\r\nx\r\n";
const ANONYMOUS: Peer = Peer::Unix(Some(7));

/// A server with an operator and a team. The team's user is Anna, and its table has these lines.
fn server(team: &str) -> SimulatedServer {
    guarded(&rules(team))
}

fn rules(team: &str) -> String {
    let hash = TokenHash::of(TOKEN.as_bytes());
    format!(
        "[identities.operator]\nunix-users = [0]\nproduce = [\"*\"]\nwork = [\"*\"]\nmanage = [\"*\"]\n\
         [identities.team]\nunix-users = [1]\ntokens = [\"{hash}\"]\n{team}\n"
    )
}

fn address(number: u32) -> Peer {
    Peer::Tcp((std::net::Ipv4Addr::from(number), 1).into())
}

#[test]
fn a_right_token_gets_in_however_many_wrong_ones_have_come_before() {
    let mut server = server("work = [\"*\"]");
    // One address has used its ten, and all further addresses together have used theirs.
    for number in (0..4200).chain([1; 20]) {
        let guesser = server.connect_as(address(number));
        assert_eq!(server.say(&guesser, "auth wrong\r\n"), "UNAUTHORIZED\r\n");
    }
    for number in [1, 4199, 5000] {
        let client = server.connect_as(address(number));
        assert_eq!(server.say(&client, format!("auth {TOKEN}\r\n")), "AUTHENTICATED\r\n", "{number}");
    }
}

#[test]
fn a_client_that_does_not_log_in_within_ten_seconds_is_closed_however_it_drips() {
    let mut server = server("work = [\"*\"]");
    let known = server.connect_as(ANNA);
    let (_silent, dripping) = (server.connect_as(ANONYMOUS), server.connect_as(ANONYMOUS));
    let late = server.connect_as(ANONYMOUS);
    server.say(&late, "au");
    for _ in 0..9 {
        assert_eq!(server.say(&dripping, "list-tubes\r\npu"), "FORBIDDEN\r\n");
        server.say(&dripping, "t 0 0 1 0\r\n\r\n");
        server.pass(NS_PER_S);
    }
    assert_eq!(server.say(&late, format!("th {TOKEN}\r\n")), "AUTHENTICATED\r\n");
    server.pass(2 * NS_PER_S);
    assert_eq!(server.client_count(), 2, "those that are known stay");
    server.pass(100 * NS_PER_S);
    for client in [&known, &late] {
        assert_eq!(server.say(client, "list-tube-used\r\n"), "USING default\r\n");
    }
}

#[test]
fn an_anonymous_client_that_may_do_something_has_no_time_limit() {
    let mut server = guarded("[strangers]\nproduce = [\"*\"]\n");
    let anonymous = server.connect_as(ANONYMOUS);
    server.pass(100 * NS_PER_S);
    assert_eq!(server.say(&anonymous, "list-tube-used\r\n"), "USING default\r\n");
}

#[test]
fn clients_that_do_not_log_in_have_a_bounded_share_of_the_connections() {
    let mut server = server("work = [\"*\"]");
    server.limit_log_ins(4);
    let known: Vec<_> = (0..10).map(|_| server.connect_as(ANNA)).collect();
    let mut silent = Vec::new();
    for round in 1..100 {
        silent.push(server.connect_as(ANONYMOUS));
        assert_eq!(server.client_count(), known.len() + round.min(4));
    }
    // A client that logs in is in time, and leaves its slot to later clients.
    for _ in 0..10 {
        let client = server.connect_as(ANONYMOUS);
        let login = format!("auth {TOKEN}\r\nlist-tube-used\r\n");
        assert_eq!(server.say(&client, &login), "AUTHENTICATED\r\nUSING default\r\n");
    }
    assert_eq!(server.client_count(), known.len() + 10 + 3);
    server.pass(10 * NS_PER_S);
    assert_eq!(server.client_count(), known.len() + 10);
}

#[test]
fn touch_all_prolongs_no_job_of_a_tube_that_was_taken_away() {
    let mut server = server("produce = [\"*\"]\nwork = [\"*\"]");
    let worker = server.connect_as(ANNA);
    server.say(&worker, "put 0 0 10 1\r\nx\r\nuse kept\r\nput 0 0 10 1\r\ny\r\nwatch kept\r\n");
    server.say(&worker, "reserve-batch 2\r\n");
    replace_rules(&mut server, &rules("work = [\"kept\"]"));
    server.pass(8 * NS_PER_S);
    assert_eq!(server.say(&worker, "touch-all\r\n"), "TOUCHED_ALL 1\r\n");
    server.pass(3 * NS_PER_S);
    let operator = server.connect_as(OPERATOR);
    assert_eq!(server.say(&operator, "reserve-with-timeout 0\r\n"), "RESERVED 1 1\r\nx\r\n");
    assert_eq!(server.queue().figures().jobs.reserved, 2, "the other job is with its worker");
}

#[test]
fn touch_all_counts_what_it_touches_although_other_jobs_time_out() {
    const TAKEN: usize = 900;
    let mut server = server("produce = [\"*\"]\nwork = [\"*\"]");
    let worker = server.connect_as(ANNA);
    let puts = "put 0 0 1 1\r\nx\r\n".repeat(TAKEN) + "use kept\r\n" + &"put 0 0 100 1\r\ny\r\n".repeat(2);
    server.say(&worker, &(puts + "watch kept\r\n"));
    server.say(&worker, "reserve-batch 902\r\n");
    replace_rules(&mut server, &rules("work = [\"kept\"]"));
    worker.send(b"touch-all\r\n");
    server.one_turn([&worker]);
    server.pass(2 * NS_PER_S);
    assert_eq!(worker.received(), "TOUCHED_ALL 2\r\n");
}

#[test]
fn puts_that_wait_hold_no_connection_that_has_ended() {
    let mut server = server("produce = [\"*\"]\nputs-per-second = 1");
    let mut ended = Vec::new();
    for number in 0..100 {
        let client = server.connect_as(ANNA);
        client.send(b"put 0 0 1 1\r\nx\r\n");
        if number % 2 == 0 {
            // The end comes with the put, or, for the other clients, while they wait.
            client.end();
        }
        server.turn([&client]);
        if number % 2 == 1 {
            client.end();
            server.turn([&client]);
        }
        ended.push(client);
    }
    assert_eq!(server.client_count(), 0);
    let replies: Vec<String> = ended.iter().map(|client| client.received()).collect();
    assert!(
        replies
            .iter()
            .all(|reply| reply == "INSERTED 1\r\n" || reply == "OUT_OF_MEMORY\r\n" || reply.is_empty())
    );
    let client = server.connect_as(ANNA);
    server.pass(NS_PER_S);
    assert!(server.say(&client, "put 0 0 1 1\r\ny\r\n").starts_with("INSERTED "), "they took nobody's turn");
}

#[test]
fn a_put_whose_line_came_before_a_right_was_taken_is_refused() {
    for (before, line, after) in [
        ("produce = [\"*\"]", "put 0 0 1 1", "work = [\"*\"]"),
        ("produce = [\"*\"]", "put 0 0 1 1 grp:g", "produce = [\"default\"]"),
        ("produce = [\"*\"]", "put 0 0 1 1 con:k", "produce = [\"default\"]"),
        ("produce = [\"*\"]\nmax-job-bytes = 1000", "put 0 0 1 1", "work = [\"*\"]\nmax-job-bytes = 1000"),
    ] {
        let mut server = server(before);
        let (client, other) = (server.connect_as(ANNA), server.connect_as(ANNA));
        assert_eq!(server.say(&client, format!("{line}\r\n")), "");
        assert_eq!(server.say(&other, "put 0 0 1 1 idp:x\r\n"), "", "another line comes in between");
        replace_rules(&mut server, &rules(after));
        assert_eq!(server.say(&client, "x\r\n"), "FORBIDDEN\r\n", "{line}");
        assert_eq!(server.queue().figures().jobs.ready, 0);
        server.queue().check_invariants();
    }
    // One client waits until it is permitted, and the other one still has its right.
    let mut server = server("produce = [\"*\"]\nputs-per-second = 1");
    let client = server.connect_as(ANNA);
    assert_eq!(server.say(&client, "put 0 0 1 1 grp:g\r\nx\r\n".repeat(3)), "INSERTED 1\r\n");
    let same = "produce = [\"default\", \"g\"]\nputs-per-second = 1";
    replace_rules(&mut server, &rules(same));
    server.pass(NS_PER_S);
    assert_eq!(client.received(), "INSERTED 2\r\n");
    replace_rules(&mut server, &rules("work = [\"*\"]"));
    server.pass(NS_PER_S);
    assert_eq!(client.received(), "FORBIDDEN\r\n");
}

/// Two identities with one put in a second: the team with these users, and another one.
fn two_identities(team: &str, other: &str) -> String {
    let table = |name, users| {
        format!("[identities.{name}]\nunix-users = [{users}]\nproduce = [\"*\"]\nputs-per-second = 1\n")
    };
    table("team", team) + &table("other", other)
}

/// Connects a client for each put, all of which are sent; the first of them come at once, if any.
fn put_with_each(server: &mut SimulatedServer, peer: Peer, count: usize) -> Vec<Connection> {
    let mut put = || {
        let client = server.connect_as(peer);
        server.say_and_count_turns(&client, PUT);
        client
    };
    (0..count).map(|_| put()).collect()
}

fn break_off(server: &mut SimulatedServer, clients: &[Connection]) {
    for client in clients {
        client.break_off();
        server.turn([client]);
    }
}

#[test]
fn an_abandoned_put_is_not_given_back_to_an_identity_that_its_client_got_later() {
    for is_handed_over in [false, true] {
        let mut server = guarded(&two_identities("1", "7"));
        let leaving = put_with_each(&mut server, ANNA, 21);
        // One is done, and twelve wait.
        let waiting = put_with_each(&mut server, ANONYMOUS, 13);
        replace_rules(&mut server, &two_identities("", "1, 7"));
        if is_handed_over {
            hand_over_to(&two_identities("", "1, 7"), &mut server, leaving.iter().chain(&waiting));
        }
        break_off(&mut server, &leaving);
        assert_eq!(server.client_count(), 13, "the broken connections are gone");
        let last = server.connect_as(ANONYMOUS);
        assert_eq!(server.say(&last, PUT), "");
        server.pass(12 * NS_PER_S);
        assert_eq!(last.received(), "");
        server.pass(NS_PER_S);
        assert!(last.received().starts_with("INSERTED "));
    }
}

#[test]
fn puts_that_are_abandoned_leave_no_puts_to_do_together_later() {
    let mut server = server("produce = [\"*\"]\nputs-per-second = 1");
    let mut kept = Vec::new();
    for round in 0..10 {
        let leaving = put_with_each(&mut server, ANNA, 16 - round);
        kept.extend(put_with_each(&mut server, ANNA, 1));
        break_off(&mut server, &leaving);
    }
    for _ in 0..10 {
        server.pass(NS_PER_S);
        let done = kept.iter().filter(|client| !client.received().is_empty()).count();
        assert_eq!(done, 1);
    }
}

#[test]
fn a_complete_that_was_abandoned_leaves_no_puts_to_do_together_later() {
    let mut server = server("produce = [\"*\"]\nwork = [\"*\"]\nputs-per-second = 1");
    let worker = server.connect_as(ANNA);
    server.say(&worker, "put 0 0 600 1\r\nx\r\nreserve\r\n");
    assert_eq!(server.say(&worker, format!("complete 1 90\r\n{}", PUT.repeat(90))), "");
    let waiting = put_with_each(&mut server, ANNA, 50);
    server.pass(60 * NS_PER_S);
    break_off(&mut server, &[worker]);
    server.pass(NS_PER_S / 2);
    let done = waiting.iter().filter(|client| !client.received().is_empty()).count();
    assert_eq!(done, 1);
}

/// A reload and a hand-over do not make a `complete` wait again.
#[test]
fn a_complete_keeps_what_it_has_waited() {
    let team = "produce = [\"*\"]\nwork = [\"*\"]\nputs-per-second = 1";
    let mut server = server(team);
    let worker = server.connect_as(ANNA);
    server.say(&worker, "put 0 0 600 1\r\nx\r\nreserve\r\n");
    assert_eq!(server.say(&worker, format!("complete 1 90\r\n{}", PUT.repeat(90))), "");
    server.pass(60 * NS_PER_S);
    replace_rules(&mut server, &rules(team));
    server.pass(10 * NS_PER_S);
    hand_over_to(&rules(team), &mut server, [&worker]);
    server.pass(19 * NS_PER_S);
    assert_eq!(worker.received(), "");
    server.pass(NS_PER_S);
    assert!(worker.received().starts_with("COMPLETED "));
}

#[test]
fn another_rate_counts_for_the_puts_that_wait() {
    for (after, ns) in
        [("puts-per-second = 1000", NS_PER_MS), ("puts-per-second = 2", NS_PER_S / 2), ("", NS_PER_MS)]
    {
        let mut server = server("produce = [\"*\"]\nputs-per-second = 1");
        let clients = put_with_each(&mut server, ANNA, 41);
        assert_eq!(clients[1].received(), "");
        replace_rules(&mut server, &rules(&format!("produce = [\"*\"]\n{after}")));
        let last = server.connect_as(ANNA);
        let mut reply = server.say(&last, PUT);
        server.pass(40 * ns);
        assert!(clients[1..].iter().all(|client| !client.received().is_empty()), "{after}");
        server.pass(ns);
        reply += &last.received();
        assert_eq!(reply, "INSERTED 42\r\n", "{after}");
    }
}

#[test]
fn a_put_that_is_refused_anyway_does_not_wait_and_uses_no_permission() {
    let mut server = server("produce = [\"*\"]\nputs-per-second = 1\nmax-job-bytes = 2000");
    let full = TubeRule { max_jobs: Some(1), ..TubeRule::new("full") };
    server.executor_mut().set_tube_rules(vec![full], START);
    let (client, other) = (server.connect_as(ANNA), server.connect_as(ANNA));
    assert_eq!(server.say(&client, "use full\r\nput 0 0 1 1\r\nx\r\n"), "USING full\r\nINSERTED 1\r\n");
    assert_eq!(server.say(&client, PUT.repeat(2)), "TUBE_FULL\r\n".repeat(2));
    assert_eq!(server.say(&client, "put 0 0 1 1 grp:g\r\nx\r\n"), "TUBE_FULL\r\n");
    assert_eq!(server.say(&other, "put 0 0 1 1 tub:full\r\nx\r\n"), "TUBE_FULL\r\n");
    server.pass(NS_PER_S);
    // Both lines are accepted, and there is room for one of the bodies.
    assert_eq!(server.say(&client, "use other\r\nput 0 0 1 600\r\n"), "USING other\r\n");
    assert_eq!(server.say(&other, "put 0 0 1 600\r\n"), "");
    let body = "x".repeat(600);
    assert!(server.say(&other, format!("{body}\r\n")).starts_with("INSERTED "));
    assert_eq!(server.say(&client, format!("{body}\r\n")), "OUT_OF_MEMORY\r\n");
    assert_eq!(server.queue().figures().jobs.ready, 2);
}

#[test]
fn anonymous_clients_above_their_limit_can_only_log_in() {
    let strangers = "[strangers]\nmax-connections = 2\nproduce = [\"*\"]";
    let mut server = server(&format!("work = [\"*\"]\n{strangers}"));
    let known: Vec<_> = (0..2).map(|_| server.connect_as(ANONYMOUS)).collect();
    let login = format!("auth {TOKEN}\r\nlist-tube-used\r\n");
    let late: Vec<_> = (0..3).map(|_| server.connect_as(ANONYMOUS)).collect();
    for late in &late {
        assert_eq!(server.say(late, &login), "AUTHENTICATED\r\nUSING default\r\n");
        let surplus = server.connect_as(ANONYMOUS);
        assert_eq!(server.say(&surplus, PUT), "TOO_MANY_CONNECTIONS\r\n");
    }
    assert_eq!(server.client_count(), 2 + 3);
    let silent = server.connect_as(ANONYMOUS);
    hand_over_to(
        &rules(&format!("work = [\"*\"]\n{strangers}")),
        &mut server,
        known.iter().chain(&late).chain([&silent]),
    );
    server.pass(11 * NS_PER_S);
    assert_eq!(server.client_count(), 2 + 3, "a client that does not log in has 10 seconds");
    // A client that logs in, or leaves, gives its place to the next.
    assert_eq!(server.say(&known[0], &login), "AUTHENTICATED\r\nUSING default\r\n");
    let next = server.connect_as(ANONYMOUS);
    assert_eq!(server.say(&next, "list-tube-used\r\n"), "USING default\r\n");
    let surplus = server.connect_as(ANONYMOUS);
    let waiting = server.connect_as(ANONYMOUS);
    assert_eq!(server.say(&surplus, "list-tube-used\r\n"), "TOO_MANY_CONNECTIONS\r\n");
    let operator = server.connect_as(OPERATOR);
    assert!(server.say(&operator, "stats\r\n").contains("\nconnections-refused: 4\n"));
    assert_eq!(server.say(&known[1], "quit\r\n"), "");
    assert_eq!(server.say(&waiting, "list-tube-used\r\n"), "USING default\r\n");
    server.pass(11 * NS_PER_S);
    assert_eq!(server.client_count(), 2 + 5, "it has the place now");
    let raised = strangers.replace('2', "3");
    let late = [server.connect_as(ANONYMOUS), server.connect_as(ANONYMOUS)];
    replace_rules(&mut server, &rules(&format!("work = [\"*\"]\n{raised}")));
    assert_eq!(server.say(&late[1], "list-tube-used\r\n"), "USING default\r\n");
    assert_eq!(server.say(&late[0], "list-tube-used\r\n"), "TOO_MANY_CONNECTIONS\r\n");
}

#[test]
fn a_client_that_loses_its_rights_again_has_the_time_of_a_log_in() {
    let mut server = server("work = [\"*\"]");
    let _stranger = server.connect_as(ANONYMOUS);
    let (open, closed) = (rules("work = [\"*\"]\n[strangers]\nproduce = [\"*\"]"), rules("work = [\"*\"]"));
    replace_rules(&mut server, &open);
    server.pass(11 * NS_PER_S);
    assert_eq!(server.client_count(), 1);
    replace_rules(&mut server, &closed);
    server.pass(0);
    server.pass(9 * NS_PER_S);
    assert_eq!(server.client_count(), 1);
    server.pass(2 * NS_PER_S);
    assert_eq!(server.client_count(), 0);
}

#[test]
fn puts_that_are_permitted_before_a_hand_over_are_done_after_it() {
    const PUTS: usize = 2000;
    let mut server = server("produce = [\"*\"]\nputs-per-second = 1");
    let clients = put_with_each(&mut server, ANNA, PUTS);
    let open = rules("produce = [\"*\"]");
    replace_rules(&mut server, &open);
    // One turn has no time for all of them.
    server.one_turn([]);
    let replies = || clients.iter().filter(|&it| !it.received().is_empty()).count();
    let before = replies();
    assert!(before < PUTS - 1, "the first one did not wait");
    hand_over_to(&open, &mut server, &clients);
    server.pass(0);
    assert_eq!(before + replies(), PUTS - 1);
}

#[test]
fn a_hand_over_ends_waits_for_what_its_rules_do_not_allow() {
    let mut server = server("work = [\"*\"]");
    let (anna, operator) = (server.connect_as(ANNA), server.connect_as(OPERATOR));
    assert_eq!(server.say(&anna, "watch a\r\nreserve\r\n"), "WATCHING 2\r\n");
    assert_eq!(server.say(&operator, "reserve\r\n"), "");
    hand_over_to(&rules("work = [\"a\"]"), &mut server, [&anna, &operator]);
    server.pass(0);
    assert_eq!(anna.received(), "TIMED_OUT\r\n");
    assert_eq!(operator.received(), "");
    server.check_invariants();
}

#[test]
fn a_client_whose_token_a_reload_removes_has_ten_seconds_to_log_in() {
    let mut server = server("work = [\"*\"]");
    server.limit_log_ins(4);
    let login = format!("auth {TOKEN}\r\n");
    let log_in = |_| {
        let client = server.connect_as(ANONYMOUS);
        assert_eq!(server.say(&client, &login), "AUTHENTICATED\r\n");
        client
    };
    let clients: Vec<_> = (0..8).map(log_in).collect();
    assert_eq!(server.say(&clients[7], "reserve\r\n"), "");
    let anna = server.connect_as(ANNA);
    let other = "a-token-of-the-team-that-is-new-and-long";
    let (before, after) = (TokenHash::of(TOKEN.as_bytes()), TokenHash::of(other.as_bytes()));
    replace_rules(&mut server, &rules("work = [\"*\"]").replace(&before.to_string(), &after.to_string()));
    server.pass(0);
    assert_eq!(server.client_count(), 1 + 4, "they have a bounded share of the connections");
    assert_eq!(clients[7].received(), "TIMED_OUT\r\n");
    assert_eq!(server.say(&clients[7], format!("auth {other}\r\n")), "AUTHENTICATED\r\n");
    server.pass(11 * NS_PER_S);
    assert_eq!(server.client_count(), 1 + 1);
    for client in [&anna, &clients[7]] {
        assert_eq!(server.say(client, "list-tube-used\r\n"), "USING default\r\n");
    }
}

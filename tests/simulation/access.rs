//! Access rules: single cases. The seeds of `harness` have servers with rules that allow everything; these must reply
//! as servers without rules do.

use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;

use beanstalkd::access::{AccessRules, Peer, TokenHash};
use beanstalkd::server::Server;
use beanstalkd_queue::{ClientId, PoisonLimits};
use beanstalkd_types::clock::Timestamp;
use beanstalkd_types::description::Reader;

use beanstalkd_testkit::random::Random;
use beanstalkd_testkit::simulated::{START, executor};
use beanstalkd_testkit::sockets::{FakeStream, Pipe};

use crate::harness::described;

/// The user of the operator, which may do everything.
pub const OPERATOR: Peer = Peer::Unix(Some(0));
/// The user that may do everything in tubes whose names begin with `a`.
pub const ANNA: Peer = Peer::Unix(Some(1));

/// A server with rules, and the time.
pub struct Guarded(pub Server<FakeStream>, pub Timestamp);

/// A client of this server.
pub struct Client {
    id: ClientId,
    pub pipe: Rc<RefCell<Pipe>>,
}

fn rules() -> String {
    let all = |pattern: &str| {
        ["produce", "work", "observe", "manage"].map(|role| format!("{role} = [\"{pattern}\"]\n")).concat()
    };
    let hash = TokenHash::of(b"a-token-of-anna-that-is-long-enough");
    format!(
        "[identities.operator]\nunix-users = [0]\n{}[identities.anna]\nunix-users = [1]\ntokens = [\"{hash}\"]\n{}",
        all("*"),
        all("a*")
    )
}

impl Client {
    pub fn id(&self) -> ClientId {
        self.id
    }
}

impl Guarded {
    fn new() -> Self {
        Self::with(&rules())
    }

    pub fn with(rules: &str) -> Self {
        let mut executor = executor(PoisonLimits::default(), 1000);
        executor.guard_with(AccessRules::parse(rules, &|_| None).unwrap());
        Self(Server::new(executor), START)
    }

    /// A server without rules.
    pub fn open() -> Self {
        Self(Server::new(executor(PoisonLimits::default(), 1000)), START)
    }

    /// Puts other rules in force, without a turn.
    pub fn replace_rules(&mut self, rules: &str) {
        self.0.replace_rules(AccessRules::parse(rules, &|_| None).unwrap(), self.1);
    }

    /// Another program with these rules takes over the server and its clients.
    pub fn hand_over<'a>(&mut self, rules: &str, clients: impl IntoIterator<Item = &'a Client>) {
        let clients: Vec<&Client> = clients.into_iter().collect();
        let description = described(&self.0);
        let from = &mut Reader::new(&description);
        let mut next = Self::with(rules);
        let read = next.0.read_description(from, self.1, false, |id, _| {
            let client = clients.iter().find(|client| client.id == id).expect("a client that is there");
            client.pipe.borrow_mut().watch_again();
            Ok(FakeStream { id, pipe: Rc::clone(&client.pipe) })
        });
        read.expect("a server reads what another one has described");
        self.0 = next.0;
    }

    /// Lets time pass.
    pub fn pass(&mut self, ns: u64) {
        self.1 = self.1 + ns;
        self.turns();
    }

    pub fn connect(&mut self, peer: Option<Peer>) -> Client {
        let pipe = Pipe::new(1 << 24, Random::new(0));
        let open = |id| Ok::<_, Infallible>(FakeStream { id, pipe: Rc::clone(&pipe) });
        let Ok(id) = self.0.accept(open, self.1);
        if let Some(peer) = peer {
            self.0.identify(id, peer, self.1);
        }
        Client { id, pipe }
    }

    /// A turn in which the client has an event.
    pub fn one_turn(&mut self, client: &Client) {
        let event = client.pipe.borrow_mut().take_event();
        self.0.turn([(client.id, event)].into_iter(), self.1);
    }

    /// The replies to `commands`, and the number of turns for them.
    pub fn ask(&mut self, client: &Client, commands: &str) -> (String, usize) {
        client.pipe.borrow_mut().arrive(commands.as_bytes());
        self.one_turn(client);
        let turns = 1 + self.turns();
        (self.received(client), turns)
    }

    /// Runs the turns for the remaining work; returns their number.
    fn turns(&mut self) -> usize {
        let mut turns = 0;
        while self.0.next_turn_at().is_some_and(|at| at <= self.1) {
            self.0.turn(std::iter::empty(), self.1);
            turns += 1;
        }
        turns
    }

    pub fn received(&self, client: &Client) -> String {
        let replies = client.pipe.borrow_mut().take_outbound(usize::MAX);
        String::from_utf8(replies).expect("replies are text here")
    }

    pub fn reply(&mut self, client: &Client, commands: &str) -> String {
        self.ask(client, commands).0
    }
}

#[test]
fn a_client_that_nobody_has_identified_may_do_nothing() {
    let mut server = Guarded::new();
    let client = server.connect(None);
    assert_eq!(server.reply(&client, "list-tubes\r\nput 0 0 1 1\r\nx\r\n"), "FORBIDDEN\r\nFORBIDDEN\r\n");
    let token = "auth a-token-of-anna-that-is-long-enough\r\nlist-tubes\r\n";
    assert_eq!(server.reply(&client, token), "UNAUTHORIZED\r\n", "where it comes from is not known");
}

#[test]
fn a_client_in_the_place_of_another_does_not_inherit_its_rights() {
    let mut server = Guarded::new();
    let first = server.connect(Some(OPERATOR));
    assert_eq!(server.reply(&first, "put 0 0 1 1\r\nx\r\nquit\r\n"), "INSERTED 1\r\n");
    let second = server.connect(None);
    assert_eq!(second.id.index, first.id.index);
    assert_eq!(server.reply(&second, "peek 1\r\nput 0 0 1 1\r\nx\r\n"), "FORBIDDEN\r\nFORBIDDEN\r\n");
}

#[test]
fn a_long_list_has_the_tubes_that_may_be_seen_and_is_made_in_slices() {
    const TUBES: usize = 3000;
    let mut server = Guarded::new();
    let operator = server.connect(Some(OPERATOR));
    let name = |number: usize| format!("{}{number:06}", if number.is_multiple_of(3) { "a" } else { "b" });
    let watches: String = (0..TUBES).map(|number| format!("watch {}\r\n", name(number))).collect();
    server.reply(&operator, &watches);
    let anna = server.connect(Some(ANNA));
    let (list, turns) = server.ask(&anna, "list-tubes\r\n");
    let expected: Vec<String> = (0..TUBES).map(name).filter(|name| name.starts_with('a')).collect();
    let listed: Vec<&str> = list.lines().filter_map(|line| line.strip_prefix("- ")).collect();
    assert_eq!(listed, expected);
    assert_eq!(list.split("\r\n").next(), Some(format!("OK {}", 4 + 10 * expected.len()).as_str()));
    assert!(turns > TUBES / 256, "{turns} turns");
    let (stats, turns) = server.ask(&anna, "stats\r\n");
    assert!(stats.contains(&format!("\ncurrent-tubes: {}\n", expected.len())), "{stats}");
    assert!(turns > TUBES / 256, "{turns} turns");
}

#[test]
fn tubes_that_a_client_has_no_right_to_any_more_leave_its_watch_list_in_slices() {
    const TUBES: usize = 2000;
    let mut server = Guarded::new();
    let client = server.connect(Some(OPERATOR));
    let watches: String =
        (0..TUBES).map(|number| format!("watch b{number}\r\nwatch a{number}\r\n")).collect();
    server.reply(&client, &watches);
    server.reply(&client, "use b1\r\nput 0 0 1 1\r\nx\r\nuse a1\r\nput 9 0 1 1\r\ny\r\n");
    let login = server.reply(&client, "auth a-token-of-anna-that-is-long-enough\r\n");
    assert_eq!(login, "AUTHENTICATED\r\n");
    let (reply, turns) = server.ask(&client, "reserve-batch 9\r\nignore none\r\n");
    assert_eq!(reply, format!("RESERVED_BATCH 1\r\nRESERVED 2 1\r\ny\r\nWATCHING {TUBES}\r\n"));
    assert!(turns > TUBES / 256, "{turns} turns");
    server.0.executor().queue().check_invariants();
}

#[test]
fn ids_of_a_batch_are_judged_one_by_one() {
    let mut server = Guarded::new();
    let (operator, anna) = (server.connect(Some(OPERATOR)), server.connect(Some(ANNA)));
    for number in 0..1000 {
        let tube = if number % 2 == 0 { "a" } else { "b" };
        server.reply(&operator, &format!("use {tube}\r\nput 0 0 1 1\r\nx\r\n"));
    }
    let ids: String = (1..=1000).map(|id| format!(" {id}")).collect();
    assert_eq!(server.reply(&anna, &format!("delete-batch{ids}\r\n")), "DELETED_BATCH 500 500\r\n");
    assert_eq!(server.0.executor().queue().figures().jobs.ready, 500);
}

/// A server with one identity, whose user has the number 1, with these lines in its table.
fn server_with(lines: &str) -> Guarded {
    Guarded::with(&format!(
        "[identities.team]\nunix-users = [1]\nproduce = [\"*\"]\nwork = [\"*\"]\n{lines}\n"
    ))
}

#[test]
fn puts_that_come_too_fast_wait_and_are_all_done_in_the_order_in_which_they_came() {
    let mut server = server_with("puts-per-second = 2");
    let (first, second) = (server.connect(Some(ANNA)), server.connect(Some(ANNA)));
    let puts = "put 0 0 1 1\r\nx\r\n".repeat(4);
    assert_eq!(server.reply(&first, &puts), "INSERTED 1\r\nINSERTED 2\r\n");
    // A client that only works is not delayed.
    assert_eq!(server.reply(&second, "put 0 0 1 1\r\ny\r\n"), "");
    let other = server.connect(Some(ANNA));
    assert_eq!(server.reply(&other, "reserve\r\n"), "RESERVED 1 1\r\nx\r\n");
    let mut replies = Vec::new();
    for _ in 0..3 {
        let at = server.0.next_turn_at().expect("a put waits");
        assert_eq!(at.since_ns(server.1) % 500_000_000, 0, "one each half second");
        server.1 = at;
        server.turns();
        replies.push((server.received(&first), server.received(&second)));
    }
    let (inserted3, inserted4) = ("INSERTED 3\r\n".to_owned(), "INSERTED 5\r\n".to_owned());
    assert_eq!(replies[0], (inserted3, String::new()));
    assert_eq!(replies[1], (String::new(), "INSERTED 4\r\n".to_owned()));
    assert_eq!(replies[2], (inserted4, String::new()));
    assert!(!server.reply(&other, "stats\r\n").contains("identity-puts-delayed: 0\n"));
}

#[test]
fn a_put_that_waits_ends_with_its_client_and_those_behind_it_come_sooner() {
    let mut server = server_with("puts-per-second = 1");
    let (first, second) = (server.connect(Some(ANNA)), server.connect(Some(ANNA)));
    assert_eq!(server.reply(&first, "put 0 0 1 1\r\nx\r\nput 0 0 1 1\r\nx\r\n"), "INSERTED 1\r\n");
    first.pipe.borrow_mut().break_off();
    server.ask(&first, "");
    assert_eq!(server.0.client_count(), 1, "the broken connection is gone");
    server.1 = server.1 + 1_000_000_000;
    assert_eq!(server.reply(&second, "put 0 0 1 1\r\nx\r\n").lines().count(), 1);
}

#[test]
fn the_jobs_of_an_identity_have_a_bound_in_bytes_that_deletes_make_room_in() {
    // Each job counts its body and 128 bytes.
    let mut server = server_with("max-job-bytes = 400");
    let (client, other) = (server.connect(Some(ANNA)), server.connect(Some(ANNA)));
    let put = |size: usize| format!("put 0 0 1 {size}\r\n{}\r\n", "x".repeat(size));
    assert_eq!(server.reply(&client, &put(100)), "INSERTED 1\r\n");
    assert_eq!(server.reply(&client, &put(45)), "OUT_OF_MEMORY\r\n");
    assert_eq!(server.reply(&client, &put(44)), "INSERTED 2\r\n");
    assert!(server.reply(&client, "stats\r\n").contains("\nidentity-job-bytes: 400\n"));
    assert_eq!(server.reply(&client, "put 0 0 1 0 idp:k\r\n\r\n"), "OUT_OF_MEMORY\r\n");
    assert_eq!(server.reply(&client, "delete 1\r\n"), "DELETED\r\n");
    // Both lines are accepted, and there is room for one of the bodies.
    assert_eq!(server.reply(&client, "put 0 0 1 10\r\n01234"), "");
    assert_eq!(server.reply(&other, "put 0 0 1 10\r\n01234"), "");
    assert_eq!(server.reply(&other, "56789\r\n"), "INSERTED 4\r\n");
    assert_eq!(server.reply(&client, "56789\r\n"), "OUT_OF_MEMORY\r\n");
    assert_eq!(
        server.reply(&client, "reserve-job 2\r\ndelete-batch 2 4\r\n").lines().last(),
        Some("DELETED_BATCH 2 0")
    );
    assert!(server.reply(&client, "stats\r\n").contains("\nidentity-job-bytes: 0\n"));
    server.0.executor().queue().check_invariants();
}

#[test]
fn connections_above_the_limit_get_a_reply_that_says_so_and_are_closed() {
    let mut server = server_with(&format!(
        "max-connections = 1\ntokens = [\"{}\"]",
        TokenHash::of(b"a-token-of-the-team-that-is-long-enough")
    ));
    let first = server.connect(Some(ANNA));
    let second = server.connect(Some(ANNA));
    assert_eq!(server.reply(&second, "list-tubes\r\n"), "TOO_MANY_CONNECTIONS\r\n");
    let anonymous = server.connect(Some(Peer::Unix(Some(7))));
    let login = "auth a-token-of-the-team-that-is-long-enough\r\nlist-tubes\r\n";
    assert_eq!(server.reply(&anonymous, login), "TOO_MANY_CONNECTIONS\r\n");
    assert_eq!(server.0.client_count(), 1);
    assert_eq!(server.reply(&first, "list-tube-used\r\nquit\r\n"), "USING default\r\n");
    let next = server.connect(Some(Peer::Unix(Some(7))));
    assert_eq!(server.reply(&next, login).lines().next(), Some("AUTHENTICATED"));
}

#[test]
fn a_client_that_logs_in_as_another_gives_its_place_to_the_next() {
    let hash = TokenHash::of(b"a-token-of-another-that-is-long-enough");
    let mut server = server_with(&format!("max-connections = 1\n[identities.other]\ntokens = [\"{hash}\"]"));
    let first = server.connect(Some(ANNA));
    let login = "auth a-token-of-another-that-is-long-enough\r\n";
    assert_eq!(server.reply(&first, login), "AUTHENTICATED\r\n");
    for expected in ["USING default\r\n", "TOO_MANY_CONNECTIONS\r\n"] {
        let next = server.connect(Some(ANNA));
        assert_eq!(server.reply(&next, "list-tube-used\r\n"), expected);
    }
}

#[test]
fn other_rules_count_from_the_next_command_on_and_end_waits_for_what_is_lost() {
    let mut server = Guarded::new();
    let (operator, anna) = (server.connect(Some(OPERATOR)), server.connect(Some(ANNA)));
    let token = server.connect(Some(Peer::Unix(Some(7))));
    assert_eq!(server.reply(&token, "auth a-token-of-anna-that-is-long-enough\r\n"), "AUTHENTICATED\r\n");
    server.reply(&token, "use a1\r\nput 5 0 60 1\r\nx\r\n");
    assert_eq!(
        server.reply(&anna, "watch a1\r\nwatch a2\r\nuse a1\r\nreserve\r\n"),
        "WATCHING 1\r\nWATCHING 2\r\nUSING a1\r\nRESERVED 1 1\r\nx\r\n"
    );
    assert_eq!(server.reply(&anna, "reserve\r\n"), "");
    assert_eq!(server.reply(&operator, "watch b\r\nreserve\r\n"), "WATCHING 2\r\n");
    // Anna keeps a2; her token no longer exists.
    let rules = "[identities.operator]\nunix-users = [0]\nwork = [\"*\"]\n\
                 [identities.anna]\nunix-users = [1]\nwork = [\"a2\"]\n";
    server.replace_rules(rules);
    server.turns();
    assert_eq!(server.received(&anna), "TIMED_OUT\r\n");
    assert_eq!(server.received(&operator), "", "a client that may go on waiting waits");
    assert_eq!(
        server.reply(&anna, "delete 1\r\nput 0 0 1 1\r\nx\r\npeek 1\r\n"),
        "NOT_FOUND\r\nFORBIDDEN\r\nNOT_FOUND\r\n"
    );
    assert_eq!(
        server.reply(&anna, "reserve-with-timeout 0\r\nlist-tubes-watched\r\n"),
        "TIMED_OUT\r\nOK 9\r\n---\n- a2\n\r\n"
    );
    assert_eq!(server.reply(&token, "list-tube-used\r\n"), "FORBIDDEN\r\n");
    server.0.executor().queue().check_invariants();
}

#[test]
fn a_wait_for_a_job_shows_a_burial_unless_the_tube_is_hidden() {
    // The operator's commands are executed in one turn, before the reply to the client that waits.
    for (end, expected) in [
        ("bury 1 0\r\n", "BURIED 1\r\n"),
        ("bury 1 0\r\ndelete 1\r\n", "BURIED 1\r\n"),
        ("move 1 hidden\r\nbury 1 0\r\n", "NOT_FOUND\r\n"),
        ("delete 1\r\n", "DELETED 1\r\n"),
    ] {
        let mut server = Guarded::new();
        let (operator, anna) = (server.connect(Some(OPERATOR)), server.connect(Some(ANNA)));
        server.reply(&operator, "use a1\r\nput 0 0 60 1\r\nx\r\nreserve-job 1\r\n");
        assert_eq!(server.reply(&anna, "wait-job 1\r\n"), "");
        server.reply(&operator, end);
        assert_eq!(server.received(&anna), expected, "{end:?}");
    }
}

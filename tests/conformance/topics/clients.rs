//! `list-clients`, `kill-client`, and the id of a client.

use std::collections::{BTreeMap, BTreeSet};

use super::{ACCESS, played};
use crate::case::{Bench, Case, Needs, code, script};
use beanstalkd_testkit::PATIENCE;
use beanstalkd_testkit::client::Failure;

/// Malformed lines of the commands.
const MALFORMED: [&str; 16] = [
    "list-clients\\s",
    "list-clients 0",
    "list-clients 1001",
    "list-clients x",
    "list-clients -1",
    "list-clients 1\\s",
    "list-clients 1 1",
    "list-clients 1 ready-1-1",
    "list-clients 1 clients-4294967296",
    "list-clients 1 clients-1 1",
    "list-clientsx",
    "kill-client",
    "kill-client\\s",
    "kill-client x",
    "kill-client -1",
    "kill-client 1 1",
];

/// The keys of a line.
const KEYS: &str =
    "id address identity session age idle state using watching reserved waiting bytes-held commands";

pub fn cases() -> Vec<Case> {
    let mut cases = vec![code("malformed_lines", |bench| {
        let lines: Vec<String> = MALFORMED.iter().map(|line| format!("a: {line} -> BAD_FORMAT")).collect();
        bench.play(&lines.join("\n"))
    })];
    cases.push(
        code("the_next_command_finds_all_that_the_killed_client_had", |bench| {
            const JOBS: usize = 1000;
            let put = "put 0 0 600 1\r\nx\r\n".repeat(JOBS);
            let inserted: String = (1..=JOBS).map(|id| format!("INSERTED {id}\r\n")).collect();
            let reserved: String = (1..=JOBS).map(|id| format!("RESERVED {id} 1\r\nx\r\n")).collect();
            bench.client("a")?.exchange(put.as_bytes(), inserted.as_bytes())?;
            let batch = format!("RESERVED_BATCH {JOBS}\r\n{reserved}");
            bench.client("b")?.exchange(format!("reserve-batch {JOBS}\r\n").as_bytes(), batch.as_bytes())?;
            bench.steps(&format!(
                "a: kill-client 2\\r\\nreserve-job {JOBS} -> KILLED | RESERVED {JOBS} 1 | x
             a: stats-tube default => current-jobs-reserved: 1, current-jobs-ready: {}",
                JOBS - 1
            ))
        })
        .fresh(),
    );
    cases.extend(kills().map(|(name, text)| script(name, text).fresh()));
    cases.extend(lists());
    let mut guarded = vec![code("only_a_manager_of_all_tubes_may", |bench| {
        for name in ["producer", "worker", "observer", "manager"] {
            bench.steps(&played(&format!("{name}: <{name}>")))?;
            bench.steps(&format!("{name}: list-clients -> FORBIDDEN\n{name}: kill-client 1 -> FORBIDDEN"))?;
        }
        bench.steps(&played("e: <everybody>"))?;
        let names: BTreeSet<String> =
            list(bench, "e", 100)?.values().map(|it| it["identity"].clone()).collect();
        same(&names, &["everybody", "manager", "observer", "producer", "worker"].map(str::to_owned).into())?;
        let id = id_of(bench, "worker")?;
        bench.steps(&format!("e: kill-client {id} -> KILLED\nworker: -> <closed>"))
    })];
    for case in &mut guarded {
        case.flags = ["--access", ACCESS].map(str::to_owned).into();
    }
    cases.extend(guarded);
    cases.into_iter().map(|case| case.needs(Needs::Extension).ours()).collect()
}

/// Conversations about `kill-client`. The ids are those of the order in which the clients connect.
fn kills() -> impl Iterator<Item = (&'static str, &'static str)> {
    [
        (
            "its_own_id_is_in_the_stats",
            "a: stats => client-id: 1
             b: stats => client-id: 2
             a: stats => client-id: 1
             b: <close>
             c: stats => client-id: 3",
        ),
        (
            "a_client_is_killed_as_if_its_connection_had_been_lost",
            "a: put 5 0 600 1 | x -> INSERTED 1
             b: use t -> USING t
             b: reserve -> RESERVED 1 1 | x
             a: kill-client 2 -> KILLED
             b: -> <closed>
             a: stats-job 1 => state: ready, releases: 0, timeouts: 0
             a: list-tubes -> OK 14 | ---\\n- default\\n
             a: kill-client 2 -> NOT_FOUND
             a: stats => current-connections: 1, cmd-kill-client: 2",
        ),
        (
            "the_next_command_finds_what_the_killed_client_had",
            "a: put 5 0 600 1 | x -> INSERTED 1
             b: reserve -> RESERVED 1 1 | x
             a: kill-client 2\\r\\nkill-client 2\\r\\nreserve-with-timeout 0 -> KILLED | NOT_FOUND | RESERVED 1 1 | x",
        ),
        (
            "nobody_has_an_id_again",
            "a: stats => client-id: 1
             b: stats => client-id: 2
             b: quit -> <closed>
             c: stats => client-id: 3
             a: kill-client 2 -> NOT_FOUND
             a: kill-client 0 -> NOT_FOUND
             a: kill-client 4 -> NOT_FOUND
             a: kill-client 18446744073709551615 -> NOT_FOUND
             a: kill-client 4294967299 -> NOT_FOUND
             c: stats => client-id: 3",
        ),
        (
            "of_oneself_nothing_more_is_executed",
            "b: stats => client-id: 1
             a: stats => client-id: 2
             a: put 5 0 600 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             a: kill-client 2\\r\\ndelete 1 -> KILLED
             a: -> <closed>
             b: reserve-with-timeout 5 -> RESERVED 1 1 | x",
        ),
        (
            "one_that_waits_is_killed",
            "a: watch t -> WATCHING 2
             b: watch t -> WATCHING 2
             b: reserve ->
             waiting 1
             a: kill-client 2 -> KILLED
             b: -> <closed>
             a: stats => current-waiting: 0
             a: use t -> USING t
             a: put 0 0 60 1 | x -> INSERTED 1
             a: reserve-with-timeout 0 -> RESERVED 1 1 | x",
        ),
        (
            "one_in_a_body_is_killed",
            "a: stats => client-id: 1
             b: put 0 0 60 100 | half\\c ->
             until a: stats => cmd-put: 1
             a: kill-client 2 -> KILLED
             b: -> <closed>
             a: stats => total-jobs: 0
             a: put 0 0 60 1 | x -> INSERTED 2",
        ),
        (
            "one_with_a_session_is_killed_and_its_jobs_stay_for_the_grace",
            "a: put 5 0 600 1 | x -> INSERTED 1
             b: session s 60 -> SESSION 0
             b: reserve -> RESERVED 1 1 | x
             a: kill-client 2 -> KILLED
             b: -> <closed>
             a: stats-job 1 => state: reserved, session: s
             a: reserve-with-timeout 0 -> TIMED_OUT
             c: session s 60 -> SESSION 1",
        ),
        (
            "a_session_has_no_id_of_a_client",
            "a: session s 60 -> SESSION 0
             a: kill-client 2 -> NOT_FOUND
             a: session s 60 -> SESSION 0
             b: stats => client-id: 3",
        ),
    ]
    .into_iter()
}

fn lists() -> Vec<Case> {
    vec![
        code("a_line_has_all_keys_in_their_order", |bench| {
            let page = bench.client("a")?.ask(b"list-clients\r\n")?;
            let text = String::from_utf8_lossy(&page).into_owned();
            let line = text.lines().find(|line| line.starts_with("- {")).unwrap_or_default();
            let keys = line.trim_start_matches("- {").split(", ").filter_map(|pair| pair.split_once(": "));
            same(&keys.map(|(key, _)| key).collect::<Vec<_>>().join(" "), &KEYS.to_owned())?;
            same(&text.lines().nth(2), &Some("next: \"\""))?;
            same(&text.lines().nth(3), &Some("clients:"))
        }),
        code("each_state_is_shown", |bench| {
            bench.steps(
                "a: put 5 0 600 1 | x -> INSERTED 1
                 ready: use t -> USING t
                 ready: watch t -> WATCHING 2
                 ready: reserve -> RESERVED 1 1 | x
                 body: put 0 0 60 100 | half\\c ->
                 line: list-tub\\c ->
                 skipped: put 0 0 60 70000 | half\\c ->
                 waiting: session s 60 -> SESSION 0
                 waiting: reserve ->
                 waiting 1
                 until a: stats => cmd-put: 3",
            )?;
            for (name, expected) in [
                ("a", "state: stalled, watching: 1, reserved: 0"),
                ("ready", "state: ready, using: t, watching: 2, reserved: 1, session: , commands: 3"),
                ("body", "state: receiving, commands: 1"),
                ("skipped", "state: receiving, commands: 1"),
                ("line", "state: receiving, commands: 0"),
                ("waiting", "state: waiting, session: s, commands: 2"),
            ] {
                let id = match name {
                    "a" | "ready" => id_of(bench, name)?,
                    // In the order in which they have connected.
                    "body" => "3".to_owned(),
                    "line" => "4".to_owned(),
                    "skipped" => "5".to_owned(),
                    _ => "6".to_owned(),
                };
                for pair in expected.split(", ") {
                    let (key, value) = pair.split_once(": ").unwrap_or_default();
                    let value = if key == "commands" && name == "ready" { "4" } else { value };
                    until_listed(bench, &id, key, value)?;
                }
            }
            Ok(())
        }),
        code("one_that_does_not_read_is_sending_and_can_be_killed", |bench| {
            let mut silent = bench.connect()?;
            silent.exchange(b"put 0 0 60 65000\r\n", b"").and_then(|()| {
                silent.send(&[b'x'; 65_000])?;
                silent.exchange(b"\r\n", b"INSERTED 1\r\n")
            })?;
            let _ = silent.send_until_full(&b"peek 1\r\n".repeat(200_000));
            until_listed(bench, "1", "state", "sending")?;
            let held = list(bench, "a", 100)?["1"]["bytes-held"].parse::<u64>().unwrap_or_default();
            if held == 0 {
                return Err(Failure::new("what was not sent is not counted"));
            }
            bench.steps(
                "a: kill-client 1 -> KILLED
                 until a: stats => current-connections: 1",
            )
        }),
        code("pages_have_each_client_that_stays_once", |bench| {
            let mut staying = BTreeSet::new();
            let mut clients = Vec::new();
            for number in 0..30 {
                let mut client = bench.connect()?;
                let id = own_id(&mut client)?;
                if number % 3 == 0 {
                    staying.insert(id);
                }
                clients.push((number % 3 == 0, client));
            }
            let (mut seen, mut cursor) = (Vec::new(), String::new());
            loop {
                let request = format!("list-clients 4{cursor}\r\n");
                let (next, page) = parsed(&bench.client("a")?.ask(request.as_bytes())?)?;
                seen.extend(page.into_iter().map(|client| client["id"].clone()));
                // Some go, and as many come, between two pages.
                if let Some(at) = clients.iter().position(|(stays, _)| !stays) {
                    clients.remove(at);
                    let came = bench.connect()?;
                    clients.push((true, came));
                }
                if next.is_empty() {
                    break;
                }
                cursor = format!(" {next}");
            }
            let unique: BTreeSet<String> = seen.iter().cloned().collect();
            same(&unique.len(), &seen.len())?;
            if staying.is_subset(&unique) { Ok(()) } else { Err(Failure::new("one is missing")) }
        }),
        code("a_cursor_behind_the_last_client_has_nobody", |bench| {
            let reply = b"OK 22\r\n---\nnext: \"\"\nclients:\n\r\n";
            bench.client("a")?.exchange(b"list-clients 1 clients-4294967295\r\n", reply)
        }),
        code("ages_and_waits_are_counted_in_seconds", |bench| {
            bench.steps(
                "a: list-tube-used -> USING default
                 w: reserve ->
                 waiting 1",
            )?;
            until(bench, "2", |client| {
                client["waiting"] != "0" && client["age"] != "0" && client["idle"] != "0"
            })
        }),
    ]
    .into_iter()
    .map(Case::fresh)
    .collect()
}

type Line = BTreeMap<String, String>;

/// The cursor and the lines of a page.
fn parsed(page: &[u8]) -> Result<(String, Vec<Line>), Failure> {
    let text = String::from_utf8_lossy(page);
    let next = text.lines().find_map(|line| line.strip_prefix("next: "));
    let next = next.ok_or_else(|| Failure::new(format!("no page: {text}")))?;
    let line = |line: &str| -> Line {
        let pairs = line.trim_matches(['{', '}']).split(", ").filter_map(|pair| pair.split_once(": "));
        pairs.map(|(key, value)| (key.to_owned(), value.trim_matches('"').to_owned())).collect()
    };
    let lines = text.lines().filter_map(|text| text.strip_prefix("- ")).map(line).collect();
    Ok((next.trim_matches('"').to_owned(), lines))
}

/// The clients by their ids.
fn list(bench: &mut Bench, asker: &str, limit: u32) -> Result<BTreeMap<String, Line>, Failure> {
    let page = bench.client(asker)?.ask(format!("list-clients {limit}\r\n").as_bytes())?;
    Ok(parsed(&page)?.1.into_iter().map(|line| (line["id"].clone(), line)).collect())
}

fn own_id(client: &mut beanstalkd_testkit::client::Client) -> Result<String, Failure> {
    let stats = client.ask(b"stats\r\n")?;
    let stats = String::from_utf8_lossy(&stats).into_owned();
    let id = stats.lines().find_map(|line| line.strip_prefix("client-id: "));
    id.map(str::to_owned).ok_or_else(|| Failure::new(format!("no client-id: {stats}")))
}

fn id_of(bench: &mut Bench, name: &str) -> Result<String, Failure> {
    own_id(bench.client(name)?)
}

/// Asks until the line of the client has this value.
fn until_listed(bench: &mut Bench, id: &str, key: &str, value: &str) -> Result<(), Failure> {
    until(bench, id, |client| client[key] == value)
        .map_err(|failure| Failure::new(format!("{key} of {id} is not {value:?}: {failure:?}")))
}

fn until(bench: &mut Bench, id: &str, holds: impl Fn(&Line) -> bool) -> Result<(), Failure> {
    let start = std::time::Instant::now();
    loop {
        let clients = list(bench, "a", 100)?;
        if clients.get(id).is_some_and(&holds) {
            return Ok(());
        }
        if start.elapsed() > PATIENCE {
            return Err(Failure::new(format!("{:?}", clients.get(id))));
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

fn same<T: PartialEq + std::fmt::Debug>(found: &T, expected: &T) -> Result<(), Failure> {
    if found == expected { Ok(()) } else { Err(Failure::new(format!("{found:?} instead of {expected:?}"))) }
}

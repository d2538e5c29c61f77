//! Random rights: a client may use the commands that `doc/security.md` permits, and sees nothing of tubes for which it
//! has no role.
//!
//! Owns: an oracle that reads the document's table of commands, and commands of every kind from a seed. The server's
//! own table of commands is not used here.

use beanstalkd_protocol::Verb;
use beanstalkd_testkit::random::Random;
use beanstalkd_testkit::simulated::{Connection, SimulatedServer};
use beanstalkd_types::job::JobId;

use crate::access::{ANNA, OPERATOR, guarded};
use crate::{assert_seen, run_seeds};

/// One in this many seeds of the simulation.
const SHARE: u64 = 16;
const STEPS: usize = 80;

const ROLES: [&str; 4] = ["produce", "work", "observe", "manage"];
/// The tubes in the commands. They are also the names of groups and keys.
const TUBES: [&str; 6] = ["default", "a1", "a2", "b1", "b2", "c"];
const PATTERNS: [&str; 8] = ["a*", "b?", "?1", "c", "*2", "none", "a1", "*"];

/// Anna's rights.
struct Rights {
    patterns: [Vec<&'static str>; 4],
}

impl Rights {
    /// Anna may always work in `default`, which each client watches at first: otherwise it would leave her watch list;
    /// separate tests cover that.
    fn random(random: &mut Random) -> Self {
        let mut patterns = ROLES.map(|_| Vec::new());
        for (role, patterns) in patterns.iter_mut().enumerate() {
            patterns.extend((ROLES[role] == "work").then_some("default"));
            while !random.once_in(2) {
                // She rarely has a role for all tubes.
                let most = if random.once_in(8) { PATTERNS.len() } else { PATTERNS.len() - 1 };
                patterns.push(random.pick(&PATTERNS[..most]));
            }
            patterns.sort_unstable();
            patterns.dedup();
        }
        Self { patterns }
    }

    fn rules(&self) -> String {
        let lines = |of: &dyn Fn(usize) -> String| {
            (0..ROLES.len()).map(|role| format!("{} = [{}]\n", ROLES[role], of(role))).collect::<String>()
        };
        let own = |role: usize| {
            let quoted: Vec<String> = self.patterns[role].iter().map(|name| format!("\"{name}\"")).collect();
            quoted.join(", ")
        };
        format!(
            "[identities.operator]\nunix-users = [0]\n{}[identities.anna]\nunix-users = [1]\n{}",
            lines(&|_| "\"*\"".to_owned()),
            lines(&own)
        )
    }

    fn has(&self, roles: &[&str], tube: &str) -> bool {
        self.has_where(roles, |pattern| matches(pattern, tube))
    }

    fn has_where(&self, roles: &[&str], holds: impl Fn(&str) -> bool) -> bool {
        let named = (0..ROLES.len()).filter(|&role| roles.contains(&ROLES[role]));
        named.flat_map(|role| &self.patterns[role]).any(|pattern| holds(pattern))
    }

    fn sees(&self, tube: &str) -> bool {
        self.has(&ROLES, tube)
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    match (pattern.chars().next(), name.chars().next()) {
        (None, rest) => rest.is_none(),
        (Some('*'), Some(_)) if matches(pattern, &name[1..]) => true,
        (Some('*'), _) => matches(&pattern[1..], name),
        (Some(wanted), Some(found)) => {
            (wanted == '?' || wanted == found) && matches(&pattern[1..], &name[1..])
        }
        (Some(_), None) => false,
    }
}

/// A command, and the names in it.
struct Command {
    word: &'static str,
    text: String,
    tube: &'static str,
    ids: Vec<u64>,
    /// The names of its tags that count over all tubes.
    tags: Vec<&'static str>,
}

/// The commands about a tube, about a job, and without a subject.
const OF_TUBES: [&str; 9] = [
    "use",
    "watch",
    "ignore",
    "stats-tube",
    "stats-group",
    "pause-tube",
    "flush-tube",
    "flush-buried",
    "list-jobs",
];
const OF_JOBS: [&str; 12] = [
    "reserve-job",
    "release",
    "bury",
    "touch",
    "delete",
    "peek",
    "kick-job",
    "stats-job",
    "move",
    "reprioritize",
    "complete",
    "wait-job",
];
const OTHERS: [&str; 21] = [
    "reserve-with-timeout",
    "reserve-with-abort",
    "reserve-batch",
    "touch-all",
    "peek-ready",
    "peek-delayed",
    "peek-buried",
    "peek-reserved",
    "kick",
    "list-tubes",
    "list-tube-used",
    "list-tubes-watched",
    "delete-batch",
    "reserve-mode",
    "reserve-fields",
    "session",
    "drain",
    "undrain",
    "list-clients",
    "kill-client",
    "put",
];

/// The commands that are not drawn. `tests/conformance/topics/access.rs` has cases of them.
const NOT_DRAWN: [&str; 4] = [
    "auth",    // changes who the client is
    "quit",    // ends the connection
    "reserve", // may wait
    "stats",   // shows other figures with rules; the next test draws it
];

#[test]
fn each_command_is_drawn_or_has_a_reason() {
    let words = [&OF_TUBES[..], &OF_JOBS, &OTHERS, &NOT_DRAWN].concat();
    let missing = Verb::ALL.map(Verb::as_str).into_iter().filter(|word| !words.contains(word));
    assert_eq!(missing.collect::<Vec<_>>(), [""; 0]);
    assert_eq!(words.len(), Verb::ALL.len(), "each is in one list");
}

impl Command {
    /// A command about one of `tubes`, or about a job with an id of up to `last_id` + 1.
    fn random(random: &mut Random, tubes: &[&'static str], last_id: u64) -> Self {
        let word = match random.below(8) {
            0 | 1 => "put",
            2 | 3 => random.pick(&OF_TUBES),
            4 | 5 => random.pick(&OF_JOBS),
            _ => random.pick(&OTHERS),
        };
        let tube = random.pick(tubes);
        let ids: Vec<u64> = (0..1 + random.below(4)).map(|_| 1 + random.below(last_id + 1)).collect();
        let id = ids[0];
        let mut tags = Vec::new();
        let rest = match word {
            "put" => {
                let mut line = format!("{} {} 1 1", random.below(3), random.below(2));
                for tag in ["con", "grp", "aft"] {
                    if random.once_in(6) {
                        tags.push(random.pick(tubes));
                        line += &format!(" {tag}:{}", tags[tags.len() - 1]);
                    }
                }
                line + "\r\nx"
            }
            "pause-tube" => format!("{tube} {}", random.below(2)),
            "list-jobs" => format!("{tube} {}", random.pick(&["ready", "delayed", "buried", "reserved"])),
            "release" => format!("{id} 1 {}", random.below(2)),
            "bury" | "reprioritize" => format!("{id} 2"),
            "move" => format!("{id} {tube}"),
            "reserve-with-timeout" | "reserve-with-abort" | "kill-client" => "0".to_owned(),
            "complete" | "wait-job" => format!("{id} 0"),
            "reserve-fields" => "tube".to_owned(),
            "list-clients" => format!("1 clients-{}", u32::MAX),
            "reserve-batch" | "kick" => "2".to_owned(),
            "reserve-mode" => "fifo".to_owned(),
            "session" => "s 60".to_owned(),
            "delete-batch" => ids.iter().map(u64::to_string).collect::<Vec<_>>().join(" "),
            word if OF_TUBES.contains(&word) => tube.to_owned(),
            word if OF_JOBS.contains(&word) => id.to_string(),
            _ => String::new(),
        };
        let text = format!("{word} {rest}").trim_end().to_owned() + "\r\n";
        Self { word, text, tube, ids, tags }
    }
}

/// The roles that the document requires for a command, and their subject.
fn documented(word: &str) -> (Vec<&'static str>, &'static str) {
    let document = include_str!("../../doc/security.md");
    let quoted = format!("`{word}`");
    let mut rows = document.lines().filter(|line| line.starts_with('|'));
    let row = rows.find(|row| {
        row.split('|').nth(1).is_some_and(|words| words.split(',').any(|word| word.trim() == quoted))
    });
    let cells: Vec<&str> =
        row.unwrap_or_else(|| panic!("{word} has no row")).split('|').map(str::trim).collect();
    let roles = if cells[2] == "any role" { ROLES.to_vec() } else { cells[2].split(" or ").collect() };
    (roles, cells[3])
}

/// The oracle, with a server without rules that executes the commands that Anna may use.
struct Oracle<'a> {
    rights: &'a Rights,
    open: &'a mut SimulatedServer,
    used: &'static str,
}

impl Oracle<'_> {
    fn tube_of(&self, id: u64) -> Option<String> {
        self.open.queue().job(JobId(id)).map(|job| job.tube.as_str().to_owned())
    }

    /// The reply to Anna if she may not do this.
    fn refusal(&self, command: &Command) -> Option<&'static str> {
        let (roles, subject) = documented(command.word);
        let of_job = || match self.tube_of(command.ids[0]) {
            Some(tube) if self.rights.has(&roles, &tube) => None,
            // A client that may not end a job has not reserved it.
            Some(tube) if self.rights.sees(&tube) && command.word != "complete" => Some("FORBIDDEN\r\n"),
            _ => Some("NOT_FOUND\r\n"),
        };
        let is_allowed = match subject {
            "the used tube" => {
                self.rights.has(&roles, self.used)
                    && command.tags.iter().all(|name| self.rights.has(&["produce"], name))
            }
            "the tube that it names" | "the group that it names" => self.rights.has(&roles, command.tube),
            "the job's tube" if command.word == "delete-batch" => self.rights.has_where(&roles, |_| true),
            "the job's tube" => return of_job(),
            "the job's tube; produce or manage for the other tube" => {
                if let Some(refusal) = of_job() {
                    return Some(refusal);
                }
                self.rights.has(&["produce", "manage"], command.tube)
            }
            "every tube (`*`)" => self.rights.has_where(&roles, |pattern| pattern == "*"),
            "some tube" | "each watched tube; the others leave the watch list" => {
                self.rights.has_where(&roles, |_| true)
            }
            other => panic!("{other:?} is a subject that the oracle does not know"),
        };
        (!is_allowed).then_some("FORBIDDEN\r\n")
    }

    /// The reply to Anna.
    fn reply(&mut self, anna: &Connection, command: &Command) -> String {
        if let Some(refusal) = self.refusal(command) {
            return refusal.to_owned();
        }
        match command.word {
            "delete-batch" => {
                let (roles, _) = documented("delete-batch");
                let is_hers =
                    |id: &&u64| self.tube_of(**id).is_some_and(|tube| self.rights.has(&roles, &tube));
                let hers: Vec<String> = command.ids.iter().filter(is_hers).map(u64::to_string).collect();
                let others = command.ids.len() - hers.len();
                if hers.is_empty() {
                    return format!("DELETED_BATCH 0 {others}\r\n");
                }
                let reply = self.open.say(anna, format!("delete-batch {}\r\n", hers.join(" ")));
                let counts: Vec<usize> =
                    reply.split_ascii_whitespace().skip(1).map(|count| count.parse().unwrap()).collect();
                format!("DELETED_BATCH {} {}\r\n", counts[0], counts[1] + others)
            }
            "list-tubes" => {
                let list = self.open.say(anna, "list-tubes\r\n");
                let names = list.lines().filter_map(|line| line.strip_prefix("- "));
                let seen: String =
                    names.filter(|name| self.rights.sees(name)).map(|name| format!("- {name}\n")).collect();
                format!("OK {}\r\n---\n{seen}\r\n", 4 + seen.len())
            }
            word => {
                if word == "use" {
                    self.used = command.tube;
                }
                without_session_of("operator", &self.open.say(anna, &command.text))
            }
        }
    }
}

/// The reply without the name of the session of `other`, which a client of another identity may not know.
fn without_session_of(other: &str, reply: &str) -> String {
    let Some((head, data)) = reply.split_once("\r\n").filter(|(head, _)| head.starts_with("OK ")) else {
        return reply.to_owned();
    };
    let named = format!("session: \"{other}\"");
    let kept = data.replace(&format!(", {named}"), "").replace(&named, "session: \"\"");
    let size: usize = head[3..].parse().unwrap();
    format!("OK {}\r\n{kept}", size - (data.len() - kept.len()))
}

/// Anna gets the replies of an open server to the commands that she may use. All others are refused, and change
/// nothing.
#[test]
fn random_rights_are_kept_as_the_document_says() {
    let refused = run_seeds(SHARE, |seed, is_shown| {
        let mut random = Random::new(seed);
        let rights = Rights::random(&mut random);
        let (mut closed, mut open) = (guarded(&rights.rules()), SimulatedServer::with_max_job_bytes(1000));
        let both = |server: &mut SimulatedServer, peer| server.connect_as(peer);
        let [operators, annas] =
            [OPERATOR, ANNA].map(|peer| [both(&mut closed, peer), both(&mut open, peer)]);
        let mut oracle = Oracle { rights: &rights, open: &mut open, used: "default" };
        let mut refused = 0;
        for last_id in 1..=STEPS as u64 {
            let pause_ns = random.below(2) * 700_000_000;
            closed.pass(pause_ns);
            oracle.open.pass(pause_ns);
            let mut command = Command::random(&mut random, &TUBES, last_id);
            let is_operator = random.once_in(3);
            let ([of_guarded, of_open], name) =
                if is_operator { (&operators, "operator") } else { (&annas, "anna") };
            if command.word == "session" {
                // On the open server, the same name would be the same session.
                command.text = format!("session {name} 60\r\n");
            }
            let expected = if is_operator {
                without_session_of("anna", &oracle.open.say(of_open, &command.text))
            } else {
                refused += usize::from(oracle.refusal(&command).is_some());
                oracle.reply(of_open, &command)
            };
            let reply = closed.say(of_guarded, &command.text);
            if is_shown {
                println!("{name}: {:?} -> {reply:?}", command.text);
            }
            assert_eq!(reply, expected, "{name}: {:?} with {}", command.text, rights.rules());
        }
        closed.queue().check_invariants();
        refused
    });
    assert_seen("refusals", refused.iter().sum::<usize>() as u64, refused.len(), refused.len());
}

/// The keys of `stats` about the server as a whole.
const OF_THE_SERVER: [&str; 6] = [
    "buffer-bytes",
    "total-connections",
    "current-producers",
    "current-workers",
    "current-waiting",
    "current-sessions",
];

/// On one of two servers, the tubes that Anna may not see have jobs. She gets the same replies from both, whatever she
/// sends.
#[test]
fn jobs_in_tubes_that_a_client_may_not_see_change_none_of_its_replies() {
    let jobs = run_seeds(SHARE, |seed, is_shown| {
        let mut random = Random::new(seed);
        let rights = Rights::random(&mut random);
        let hidden: Vec<&str> = TUBES.into_iter().filter(|tube| !rights.sees(tube)).collect();
        if hidden.is_empty() {
            return 0;
        }
        let mut servers = [(); 2].map(|()| guarded(&rights.rules()));
        let operators = servers.each_mut().map(|server| server.connect_as(OPERATOR));
        let annas = servers.each_mut().map(|server| server.connect_as(ANNA));
        let first = hidden[0];
        for (server, operator) in servers.iter_mut().zip(&operators) {
            server.say(operator, format!("use {first}\r\nwatch {first}\r\nignore default\r\n"));
        }
        let mut last_id = 0;
        for _ in 0..STEPS {
            let pause_ns = random.below(2) * 700_000_000;
            servers.iter_mut().for_each(|server| server.pass(pause_ns));
            if random.once_in(2) {
                let mut command = Command::random(&mut random, &hidden, last_id);
                if command.word == "put" {
                    // Ids ascend over all tubes, so both servers take one.
                    let tube = random.pick(&hidden);
                    let put = format!("use {tube}\r\n{}", command.text);
                    if servers[0].say(&operators[0], &put).contains("INSERTED") {
                        last_id += 1;
                        let unseen = format!("use {tube}\r\nput 0 0 1 0\r\n\r\ndelete {last_id}\r\n");
                        servers[1].say(&operators[1], &unseen);
                    }
                } else if !OF_JOBS.contains(&command.word) && !["drain", "undrain"].contains(&command.word) {
                    if command.word == "delete-batch" {
                        command.text = String::new();
                    }
                    servers[0].say(&operators[0], &command.text);
                }
                continue;
            }
            let mut command = Command::random(&mut random, &TUBES, last_id);
            if random.once_in(16) {
                command.text = "stats\r\n".to_owned();
            }
            let replies = [0, 1].map(|at| {
                let reply = servers[at].say(&annas[at], &command.text);
                let shown =
                    reply.lines().filter(|line| !OF_THE_SERVER.iter().any(|key| line.starts_with(key)));
                let mut shown = shown.collect::<Vec<_>>();
                if command.word == "list-tubes" {
                    // Their order depends on the creation and removal of all tubes.
                    shown.sort_unstable();
                }
                shown.join("\n")
            });
            last_id += u64::from(replies[0].starts_with("INSERTED"));
            if is_shown {
                println!("{:?} -> {:?}", command.text, replies[0]);
            }
            let [shown, of_nothing] = replies.each_ref().map(|reply| reply.lines().collect::<Vec<_>>());
            let differs = shown.iter().zip(&of_nothing).find(|(one, other)| one != other);
            assert!(shown == of_nothing, "{:?}: {differs:?} with {}", command.text, rights.rules());
        }
        last_id
    });
    assert_seen("jobs beside hidden tubes", jobs.iter().sum(), jobs.len(), jobs.len());
}

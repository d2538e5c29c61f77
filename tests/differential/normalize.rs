//! The differences that two correct servers may show, in one list.
//!
//! Owns: the normal form of a reply. Everything that is not named here is compared byte by byte.

/// Values of `stats` that belong to the process, the machine or the runner's own questions (it asks for
/// `stats` on a separate connection until something has happened).
const OWN_VALUES: &[&str] = &[
    "pid",
    "version",
    "rusage-utime",
    "rusage-stime",
    "uptime",
    "id",
    "hostname",
    "os",
    "platform",
    "cmd-stats",
];

/// Values that depend on when the question came. In a pipeline ours takes one time for all commands that it has
/// read at once, and C a later one for each, which rounds to a second less.
const TIMES: &[&str] = &["age", "time-left", "pause-time-left"];

/// The last key that C knows, in each of the three dictionaries: what follows is a server's own.
const LAST_KEYS: &[&str] = &["platform", "pause-time-left", "kicks"];

/// The reply in its normal form; `alone` where its command was the only one that was sent.
pub fn normalize(reply: &[u8], alone: bool) -> String {
    let text = reply.escape_ascii().to_string();
    if !text.starts_with("OK ") || !text.contains(": ") {
        return text;
    }
    // A dictionary: without its length, which follows from its values.
    let mut pairs = Vec::new();
    for line in text.split("\\n").skip(2) {
        let Some((key, value)) = line.split_once(": ") else { break };
        // 1.12 quotes no name; a word's own quotes are escaped once in the text.
        let bare = value.replace("\\\"", "");
        let left_out =
            OWN_VALUES.contains(&key) && !is_id_of_job(key, &pairs) || !alone && TIMES.contains(&key);
        pairs.push(if left_out { key.to_owned() } else { format!("{key}: {bare}") });
        if LAST_KEYS.contains(&key) {
            break;
        }
    }
    pairs.join(", ")
}

/// The id of a job comes first; that of a server does not.
fn is_id_of_job(key: &str, before: &[String]) -> bool {
    key == "id" && before.is_empty()
}

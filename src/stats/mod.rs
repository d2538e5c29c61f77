//! The figures of the server, of a tube and of a job: one table for each of the three.
//!
//! Owns: every figure's key, kind, meaning and reader, in the order in which they are printed. C's keys come first, in
//! C's order and with C's quoting; ours follow. Everything that prints figures goes through these tables: the YAML of
//! the protocol's stats commands (here), the metrics and the page (in `http`). Never changes anything. The server
//! provides the views.

mod client;
mod database;
mod histogram;
mod identity;
mod job;
mod server;
mod tube;

use std::fmt::{self, Display};
use std::time::Duration;

pub use self::client::{CLIENT, ClientView, ConnectionView, Connections, write_client};
pub use self::database::DATABASE;
pub use self::histogram::Histogram;
pub use self::identity::{IDENTITY, Identities, IdentityFigures, IdentityView};
pub use self::job::{JOB, StatsJob, TAGS, WAITS_FOR, write_line};
pub use self::server::{CommandCounts, SERVER, ServerInfo, ServerView, Timings, TubeSums, extensions};
pub use self::tube::TUBE;

use crate::binlog::DatabaseFigures;
use crate::protocol::{DictionaryWriter, Verb};
use crate::queue::TubeView;

/// The subject of a table of figures.
pub trait StatsSubject {
    /// The view from which its values are read.
    type View<'a>;
}

/// Defines the subjects.
macro_rules! subjects {
    ($($(#[$doc:meta])* $subject:ident<$a:lifetime>: $view:ty;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub enum $subject {}

        impl StatsSubject for $subject {
            type View<$a> = $view;
        }
    )+};
}

subjects! {
    /// The server as a whole: `stats`.
    ServerStats<'a>: ServerView<'a>;
    /// A tube: `stats-tube`.
    TubeStats<'a>: TubeView;
    /// A client: `list-clients`.
    ClientStats<'a>: ClientView<'a>;
    /// The identities of access rules: `stats`, of the client that asks.
    IdentityStats<'a>: IdentityView<'a>;
    /// The database that holds the binlog: `stats`.
    DatabaseStats<'a>: DatabaseFigures;
    /// A job: `stats-job`.
    JobStats<'a>: StatsJob<'a>;
}

/// A row of a table.
#[derive(Clone, Copy)]
pub struct Figure<S: StatsSubject> {
    /// The key in the stats and on the page.
    pub key: &'static str,
    /// The kind, and how to read the value.
    pub read: Read<S>,
    /// Form of the figure in the metrics.
    pub series: Series,
}

/// Reads a value.
pub type ReadValue<S, T> = for<'v, 'a> fn(&'v <S as StatsSubject>::View<'a>) -> T;
/// Reads a number.
pub type ReadNumber<S> = ReadValue<S, u64>;
/// Reads how often a command was received.
pub type ReadCount<S> = for<'v, 'a> fn(&'v <S as StatsSubject>::View<'a>, Verb) -> u64;
/// Reads a text.
pub type ReadText<S> = for<'v, 'a> fn(&'v <S as StatsSubject>::View<'a>) -> &'v str;

/// The kind of a figure, with its reader.
#[derive(Clone, Copy)]
pub enum Read<S: StatsSubject> {
    /// A number that only grows.
    Counter(ReadNumber<S>),
    /// How often this command was received.
    Command(ReadCount<S>, Verb),
    /// A number that goes up and down.
    Gauge(ReadNumber<S>),
    /// Time so far in microseconds; the metrics have it in seconds.
    Microseconds(ReadNumber<S>),
    /// Time so far in seconds, with six decimals.
    Seconds(ReadValue<S, Duration>),
    /// `true` or `false`; 1 or 0 in the metrics.
    Flag(ReadValue<S, bool>),
    /// A word, which needs no quotes.
    Word(ReadText<S>),
    /// A text, in quotes.
    Text(ReadText<S>),
}

/// The form of a figure in the metrics.
#[derive(Clone, Copy)]
pub enum Series {
    /// A separate family, called `name`, or like the key; without prefix and `_total`.
    Own {
        /// The name, if it differs from the key. It ends with the unit.
        name: Option<&'static str>,
        /// The meaning.
        help: &'static str,
    },
    /// A line of the family for all commands.
    Command,
    /// A label on the line of texts.
    Info,
    /// Not in the metrics.
    None,
}

/// The value of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'v> {
    /// A number.
    Number(u64),
    /// Written in seconds with six decimals.
    Seconds(Duration),
    /// Whether something is so.
    Flag(bool),
    /// A word, without quotes in YAML.
    Word(&'v str),
    /// A text, in quotes.
    Text(&'v str),
}

impl Value<'_> {
    /// The number; 0 for a text, a flag or a time.
    #[must_use]
    pub fn number(self) -> u64 {
        match self {
            Self::Number(number) => number,
            Self::Seconds(_) | Self::Flag(_) | Self::Word(_) | Self::Text(_) => 0,
        }
    }
}

/// The value as in YAML. Only the alternate form, `{:#}`, has the quotes of a text.
impl Display for Value<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(out),
            Self::Seconds(time) => write!(out, "{}.{:06}", time.as_secs(), time.subsec_micros()),
            Self::Flag(flag) => flag.fmt(out),
            Self::Text(text) if out.alternate() => write!(out, "\"{text}\""),
            Self::Word(text) | Self::Text(text) => out.write_str(text),
        }
    }
}

impl<S: StatsSubject> Figure<S> {
    const fn new(key: &'static str, help: &'static str, read: Read<S>) -> Self {
        Self { key, read, series: Series::Own { name: None, help } }
    }

    const fn counter(key: &'static str, help: &'static str, read: ReadNumber<S>) -> Self {
        Self::new(key, help, Read::Counter(read))
    }

    const fn gauge(key: &'static str, help: &'static str, read: ReadNumber<S>) -> Self {
        Self::new(key, help, Read::Gauge(read))
    }

    const fn info(key: &'static str, read: Read<S>) -> Self {
        Self { key, read, series: Series::Info }
    }

    /// A figure that the metrics do not have.
    const fn plain(key: &'static str, read: Read<S>) -> Self {
        Self { key, read, series: Series::None }
    }

    /// The same figure, called `name` in the metrics.
    const fn named(self, name: &'static str) -> Self {
        let Series::Own { help, .. } = self.series else { panic!("only a family has a name") };
        Self { series: Series::Own { name: Some(name), help }, ..self }
    }

    /// The value in `view`.
    #[must_use]
    pub fn value<'v>(&self, view: &'v S::View<'_>) -> Value<'v> {
        match self.read {
            Read::Counter(read) | Read::Gauge(read) | Read::Microseconds(read) => Value::Number(read(view)),
            Read::Command(read, verb) => Value::Number(read(view, verb)),
            Read::Seconds(read) => Value::Seconds(read(view)),
            Read::Flag(read) => Value::Flag(read(view)),
            Read::Word(read) => Value::Word(read(view)),
            Read::Text(read) => Value::Text(read(view)),
        }
    }
}

/// The key of the asking client's id.
const CLIENT_ID: &str = "client-id";

/// All figures of `tables`, in the format of the protocol's stats commands.
#[must_use]
pub fn yaml<S: StatsSubject>(tables: &[&[Figure<S>]], view: &S::View<'_>) -> Vec<u8> {
    let mut dictionary = DictionaryWriter::default();
    tables.iter().for_each(|table| add(&mut dictionary, table, view));
    dictionary.into_bytes()
}

/// The figures of the server. The last row is the client's id; before it come the figures of the database, if there is
/// one, and the figures of the identity of the client that asks.
#[must_use]
pub fn server_yaml(server: &ServerView<'_>, identity: Option<&IdentityView<'_>>, client: u64) -> Vec<u8> {
    let (rows, last) = SERVER.split_at(SERVER.len() - 1);
    let mut dictionary = DictionaryWriter::default();
    add(&mut dictionary, rows, server);
    if let Some(database) = &server.binlog.database {
        add(&mut dictionary, DATABASE, database);
    }
    if let Some(identity) = identity {
        add(&mut dictionary, IDENTITY, identity);
    }
    dictionary.plain(CLIENT_ID, client);
    add(&mut dictionary, last, server);
    dictionary.into_bytes()
}

/// Adds the figures of a table.
fn add<S: StatsSubject>(dictionary: &mut DictionaryWriter, table: &[Figure<S>], view: &S::View<'_>) {
    for figure in table {
        dictionary.plain(figure.key, format_args!("{:#}", figure.value(view)));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn check<S: StatsSubject>(table: &[Figure<S>]) {
        let mut keys = HashSet::new();
        for Figure { key, read, series } in table {
            assert!(keys.insert(*key), "{key} is in one row");
            let is_text = matches!(read, Read::Text(_) | Read::Word(_));
            match series {
                Series::Own { name, help } => {
                    assert!(help.ends_with('.') && !help.contains(['\\', '\n']), "{key}: {help}");
                    assert!(!matches!(read, Read::Text(_)), "{key}: a text is no value");
                    let name = name.map_or_else(|| key.replace('-', "_"), str::to_owned);
                    assert!(
                        !name.ends_with("_total")
                            && name.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase()),
                        "{name}"
                    );
                    let is_time = matches!(read, Read::Seconds(_) | Read::Microseconds(_));
                    assert!(!is_time || name.ends_with("_seconds"), "{name} is in the base unit");
                }
                Series::Command => {
                    assert!(key.starts_with("cmd-") && matches!(read, Read::Command(..)), "{key}")
                }
                Series::Info => assert!(is_text, "{key}"),
                Series::None => {}
            }
        }
    }

    #[test]
    fn every_row_is_one_that_the_metrics_can_print() {
        check(&SERVER);
        check(TUBE);
        check(JOB);
        check(TAGS);
        check(CLIENT);
        check(IDENTITY);
        check(DATABASE);
    }
}

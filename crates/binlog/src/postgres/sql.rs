//! The tables, and every statement that the store uses, with the values for it. `doc/binlog.md` has their meaning.

/// The version of the tables.
pub(super) const VERSION: i64 = 1;

/// [`PIECE_BYTES`] in the text of a statement.
macro_rules! piece_bytes {
    () => {
        8000
    };
}

/// The bytes in a row of the log: a row must fit into a page with its header, so that no row is stored separately.
pub(super) const PIECE_BYTES: usize = piece_bytes!();

// Codes of errors, from the SQL standard and from PostgreSQL.

/// The error of a pooler that does not pass a setting of the log-in on.
pub(super) const PROTOCOL_VIOLATION: &str = "08P01";
/// The error of a proof that finds no row.
pub(super) const DIVISION_BY_ZERO: &str = "22012";
/// The error of rows that exist already.
pub(super) const UNIQUE_VIOLATION: &str = "23505";
/// The error of a log-in that was refused. This server also uses the code for a log-in that it cannot try.
pub(super) const INVALID_AUTHORIZATION: &str = "28000";
/// The error of a role that may not make a table.
pub(super) const INSUFFICIENT_PRIVILEGE: &str = "42501";
/// The error of a database that cannot extend its files.
pub(super) const DISK_FULL: &str = "53100";

/// Makes the tables. Two servers that start at the same time make them one after the other.
pub(super) const CREATE: &str = "
    SELECT pg_advisory_xact_lock(7094021551);
    CREATE TABLE IF NOT EXISTS beanstalkd.version (version integer PRIMARY KEY);
    INSERT INTO beanstalkd.version VALUES (1) ON CONFLICT DO NOTHING;
    CREATE TABLE IF NOT EXISTS beanstalkd.queue (
        id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name text NOT NULL UNIQUE,
        epoch bigint NOT NULL DEFAULT 0,
        owner text NOT NULL DEFAULT '',
        heartbeat timestamptz,
        clock bigint,
        clock_at timestamptz
    ) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
    CREATE TABLE IF NOT EXISTS beanstalkd.file (
        queue integer NOT NULL,
        file integer NOT NULL,
        length bigint NOT NULL,
        removed boolean NOT NULL DEFAULT false,
        PRIMARY KEY (queue, file)
    );
    CREATE TABLE IF NOT EXISTS beanstalkd.log (
        queue integer NOT NULL,
        file integer NOT NULL,
        start bigint NOT NULL,
        bytes bytea NOT NULL,
        PRIMARY KEY (queue, file, start)
    ) WITH (toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
            autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
            autovacuum_vacuum_cost_delay = 0);
    ALTER TABLE beanstalkd.log ALTER COLUMN bytes SET STORAGE EXTERNAL;
    CREATE TABLE IF NOT EXISTS beanstalkd.lost (
        queue integer NOT NULL,
        file integer NOT NULL,
        cut bigint NOT NULL,
        start bigint NOT NULL,
        bytes bytea NOT NULL,
        kept timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (queue, file, cut, start)
    )";

/// A role that does not own the database may use an existing schema, but may not even try to make it.
pub(super) const LACKS_SCHEMA: &str = "SELECT 1 WHERE to_regnamespace('beanstalkd') IS NULL";
pub(super) const CREATE_SCHEMA: &str = "CREATE SCHEMA IF NOT EXISTS beanstalkd";
/// Whether the tables exist.
pub(super) const HAS_TABLES: &str = "SELECT 1 WHERE to_regclass('beanstalkd.version') IS NOT NULL";
pub(super) const READ_VERSION: &str = "SELECT version FROM beanstalkd.version";

/// The epoch of a queue.
pub(super) fn epoch_of(queue: &str) -> String {
    format!("SELECT epoch FROM beanstalkd.queue WHERE name = '{queue}'")
}

/// The state of a host: whether it is a standby, whether it is set to be read-only, how it commits, and how many
/// attached standbys may be synchronous. A role that may not see the state of the standbys sees their number.
pub(super) const HOST: &str = "
    SELECT pg_is_in_recovery(), current_setting('transaction_read_only'),
        current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
        (SELECT count(*) FROM pg_stat_replication
            WHERE sync_state IS NULL OR sync_state IN ('sync', 'quorum'))";

/// The settings of each connection. They are part of the log-in, so they replace the settings of the server, the role
/// and the database before the first statement. `synchronous_commit` and `default_transaction_read_only` are not among
/// them, because with these an operator decides how durable a commit is and that nothing may be written: [`HOST`] reads
/// them.
///
/// No statement waits long for a lock, which may be held through an abandoned connection. Every statement finds its
/// rows through a primary key: a statement that was planned while a table was empty would otherwise read the whole
/// table later. A policy that hides rows causes an error, because hidden rows are lost jobs.
pub(super) const SESSION: &[(&str, &str)] = &[
    ("application_name", "beanstalkd"),
    ("client_encoding", "UTF8"),
    ("client_min_messages", "warning"),
    ("DateStyle", "ISO, MDY"),
    ("TimeZone", "UTC"),
    ("bytea_output", "hex"),
    ("standard_conforming_strings", "on"),
    ("search_path", "pg_catalog"),
    ("row_security", "off"),
    ("statement_timeout", "0"),
    ("lock_timeout", "5s"),
    ("idle_in_transaction_session_timeout", "0"),
    ("idle_session_timeout", "0"),
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_deferrable", "off"),
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_indexscan", "on"),
    ("enable_indexonlyscan", "on"),
    ("enable_tidscan", "on"),
    ("max_parallel_workers_per_gather", "0"),
    ("jit", "off"),
    ("plan_cache_mode", "force_generic_plan"),
    ("vacuum_cost_delay", "0"),
];
/// The first version with a setting that limits a transaction.
pub(super) const HAS_TRANSACTION_TIMEOUT: u32 = 17;
pub(super) const TRANSACTION_TIMEOUT: (&str, &str) = ("transaction_timeout", "0");
pub(super) const SET_TRANSACTION_TIMEOUT: &str = "SET transaction_timeout = 0";
pub(super) const SET_SYNCHRONOUS: &str = "SET synchronous_commit = on";
pub(super) const SET_REMOTE_APPLY: &str = "SET synchronous_commit = remote_apply";

pub(super) const TABLE_BYTES: &str = "SELECT pg_total_relation_size('beanstalkd.log')";
/// Frees the space of deleted rows for new ones. It does not shorten the table, because that would delay commits; and
/// it skips a table that another process vacuums.
pub(super) const VACUUM: &str = "VACUUM (TRUNCATE false, SKIP_LOCKED) beanstalkd.log";

/// Whether this database replicates each commit, or need not: the last value of a statement.
macro_rules! is_synchronous {
    ($allow_async:literal) => {
        concat!("(", $allow_async, "::int4 = 1 OR current_setting('synchronous_standby_names') <> '')")
    };
}

/// A heartbeat as a number: a time as text would depend on the settings of the connection.
macro_rules! heartbeat_number {
    () => {
        "(extract(epoch FROM heartbeat) * 1000000)::int8"
    };
}

/// The value that each heartbeat sets. It grows even if the clock of the database is set back: a standby only checks
/// for a change. It is a time, so that a new owner does not begin with a value that a standby has seen before.
macro_rules! next_heartbeat {
    () => {
        "heartbeat = greatest(clock_timestamp(), heartbeat + interval '1 microsecond')"
    };
}

/// The other values that each heartbeat sets: the time of the queue's clock, and the time of the database's clock.
macro_rules! set_clock {
    ($clock:literal) => {
        concat!("clock = ", $clock, "::int8, clock_at = clock_timestamp()")
    };
}

/// The number of rows of the ballast, and the minimum size of its table.
const BALLAST_ROWS: i64 = 1050;
pub(super) const BALLAST_BYTES: i64 = BALLAST_ROWS * 8192;

/// The size of a queue's ballast; 0 if it has none.
pub(super) fn ballast_size(queue: i64) -> String {
    format!("SELECT coalesce(pg_relation_size(to_regclass('beanstalkd.ballast_{queue}')), 0)")
}

/// Makes the ballast, in one transaction. Nothing waits for it, and it waits for no standby.
pub(super) fn make_ballast(queue: i64) -> String {
    let table = format!("beanstalkd.ballast_{queue}");
    format!(
        "SET synchronous_commit = off;
        DROP TABLE IF EXISTS {table};
        CREATE UNLOGGED TABLE {table} (bytes bytea) WITH (autovacuum_enabled = false);
        ALTER TABLE {table} ALTER COLUMN bytes SET STORAGE PLAIN;
        INSERT INTO {table} SELECT decode(repeat('00', {PIECE_BYTES}), 'hex') FROM generate_series(1, {BALLAST_ROWS})"
    )
}

/// Drops the ballast.
pub(super) fn drop_ballast(queue: i64) -> String {
    format!("DROP TABLE IF EXISTS beanstalkd.ballast_{queue}")
}

/// A statement that a connection prepares, with its name in the database.
#[derive(Clone, Copy, Debug)]
pub(super) struct Statement {
    pub(super) name: &'static str,
    pub(super) text: &'static str,
}

/// A value for a statement.
#[derive(Clone, Copy, Debug)]
pub(super) enum SqlValue<'a> {
    Int(i64),
    Text(&'a str),
    Bytes(&'a [u8]),
}

/// A number as an integer of the database; `true` is 1.
pub(super) fn int(number: impl TryInto<i64>) -> SqlValue<'static> {
    SqlValue::Int(number.try_into().unwrap_or(i64::MAX))
}

/// Defines statements, and the set of them that a connection prepares together.
macro_rules! statements {
    ($(#[$about_set:meta])* $set:ident: $($(#[$about:meta])* $id:ident = $text:expr;)+) => {
        $($(#[$about])* pub(super) const $id: Statement = Statement { name: stringify!($id), text: $text };)+
        $(#[$about_set])*
        pub(super) const $set: &[Statement] = &[$($id),+];
    };
}

statements! {
    /// The statements of each connection that writes.
    PREPARED:
    ADD_QUEUE = "INSERT INTO beanstalkd.queue (name) VALUES ($1::text) ON CONFLICT DO NOTHING";
    SEE_QUEUE = concat!(
        "SELECT id, epoch, owner, ",
        heartbeat_number!(),
        ", clock, (extract(epoch FROM clock_timestamp() - clock_at) * 1000000)::int8
        FROM beanstalkd.queue WHERE name = $1::text"
    );
    /// $3 is -1 for NULL, which means a queue without an owner.
    TAKE_OVER = concat!(
        "UPDATE beanstalkd.queue SET epoch = epoch + 1, owner = $4::text, ",
        next_heartbeat!(),
        ", ",
        set_clock!("$6"),
        " WHERE id = $1::int4 AND epoch = $2::int8 AND coalesce(",
        heartbeat_number!(),
        ", -1) = $3::int8 AND ",
        is_synchronous!("$5"),
        " RETURNING epoch, true"
    );
    /// After the takeover, in the same transaction.
    REMOVED = "SELECT file FROM beanstalkd.file WHERE queue = $1::int4 AND removed ORDER BY file";
    RAISE = concat!(
        "UPDATE beanstalkd.queue SET epoch = epoch + 1, ",
        next_heartbeat!(),
        ", ",
        set_clock!("$5"),
        " WHERE id = $1::int4 AND epoch >= $2::int8 AND owner = $3::text AND ",
        is_synchronous!("$4"),
        " RETURNING epoch"
    );
    /// Fails, together with its whole transaction, if the queue has another epoch. The ticket distinguishes this answer
    /// from a late one to another transaction. It locks the row without changing it: an update would leave a dead
    /// version of the row with each commit, and each commit reads all of them while another client has a transaction
    /// open.
    PROVE = concat!(
        "WITH mine AS (SELECT id FROM beanstalkd.queue WHERE id = $1::int4 AND epoch = $2::int8 AND ",
        is_synchronous!("$3"),
        " FOR NO KEY UPDATE) SELECT $4::int8 / count(*) FROM mine"
    );
    /// The same proof with a heartbeat.
    BEAT = concat!(
        "WITH mine AS (UPDATE beanstalkd.queue SET ",
        next_heartbeat!(),
        ", ",
        set_clock!("$5"),
        " WHERE id = $1::int4 AND epoch = $2::int8 AND ",
        is_synchronous!("$3"),
        " RETURNING id) SELECT $4::int8 / count(*) FROM mine"
    );
    STANDBY_NAMES = "SHOW synchronous_standby_names";
    /// The proof with an append, the most frequent transaction.
    PROVE_AND_APPEND = concat!(
        "WITH mine AS (SELECT id FROM beanstalkd.queue WHERE id = $1::int4 AND epoch = $2::int8 AND ",
        is_synchronous!("$3"),
        " FOR NO KEY UPDATE), rows AS (INSERT INTO beanstalkd.log (queue, file, start, bytes)
        SELECT id, $5::int4, $6::int8 + piece, substr($7::bytea, piece + 1, ",
        piece_bytes!(),
        ") FROM mine, generate_series(0, length($7::bytea) - 1, ",
        piece_bytes!(),
        ") AS piece)
        SELECT $4::int8 / count(*) FROM mine"
    );
    APPEND = concat!(
        "INSERT INTO beanstalkd.log (queue, file, start, bytes)
        SELECT $1::int4, $2::int4, $3::int8 + piece, substr($4::bytea, piece + 1, ",
        piece_bytes!(),
        ") FROM generate_series(0, length($4::bytea) - 1, ",
        piece_bytes!(),
        ") AS piece"
    );
    IS_APPENDED = "SELECT EXISTS (SELECT 1 FROM beanstalkd.log
            WHERE queue = $1::int4 AND file = $2::int4 AND start = $3::int8)
        FROM beanstalkd.queue WHERE id = $1::int4 AND epoch = $4::int8";
    CLEAR_FILE = "DELETE FROM beanstalkd.log WHERE queue = $1::int4 AND file = $2::int4";
    MAKE_FILE = "INSERT INTO beanstalkd.file (queue, file, length) VALUES ($1::int4, $2::int4, $3::int8)
        ON CONFLICT (queue, file) DO UPDATE SET length = excluded.length, removed = false";
    SET_LENGTH = "UPDATE beanstalkd.file SET length = $3::int8 WHERE queue = $1::int4 AND file = $2::int4";
    CUT_ROWS = "DELETE FROM beanstalkd.log WHERE queue = $1::int4 AND file = $2::int4 AND start >= $3::int8";
    CUT_ROW = "UPDATE beanstalkd.log SET bytes = substr(bytes, 1, ($3::int8 - start)::int4)
        WHERE queue = $1::int4 AND file = $2::int4
        AND start = (SELECT max(start) FROM beanstalkd.log
            WHERE queue = $1::int4 AND file = $2::int4 AND start < $3::int8)
        AND start + length(bytes) > $3::int8";
    REMOVE_FILE = "UPDATE beanstalkd.file SET removed = true WHERE queue = $1::int4 AND file = $2::int4";
    PURGE_ROWS = "DELETE FROM beanstalkd.log WHERE ctid = ANY (ARRAY(SELECT ctid FROM beanstalkd.log
        WHERE queue = $1::int4 AND file = $2::int4 ORDER BY start LIMIT $3::int8))";
    PURGE_FILE = "DELETE FROM beanstalkd.file WHERE queue = $1::int4 AND file = $2::int4 AND removed
        AND NOT EXISTS (SELECT 1 FROM beanstalkd.log WHERE queue = $1::int4 AND file = $2::int4)
        RETURNING file";
    RELEASE = concat!(
        "UPDATE beanstalkd.queue SET heartbeat = NULL, ",
        set_clock!("$3"),
        " WHERE id = $1::int4 AND epoch = $2::int8"
    );
}

statements! {
    /// The statements of a connection that reads the log at the start.
    READING:
    QUEUE = "SELECT id, epoch FROM beanstalkd.queue WHERE name = $1::text";
    LIST = "SELECT file FROM beanstalkd.file WHERE queue = $1::int4 AND NOT removed ORDER BY file";
    LENGTH = "SELECT length FROM beanstalkd.file WHERE queue = $1::int4 AND file = $2::int4 AND NOT removed";
    READ = "SELECT start, bytes FROM beanstalkd.log WHERE queue = $1::int4 AND file = $2::int4
        AND start >= coalesce((SELECT max(start) FROM beanstalkd.log
            WHERE queue = $1::int4 AND file = $2::int4 AND start <= $3::int8), 0)
        ORDER BY start";
}

statements! {
    /// The additional statements of a start in spite of damage.
    KEEPING:
    KEEP_TAIL = "WITH kept AS (INSERT INTO beanstalkd.lost (queue, file, cut, start, bytes)
        SELECT queue, file, $3::int8, greatest(start, $3::int8),
            substr(bytes, (greatest(start, $3::int8) - start + 1)::int4)
        FROM beanstalkd.log WHERE queue = $1::int4 AND file = $2::int4 AND start + length(bytes) > $3::int8
        ON CONFLICT (queue, file, cut, start) DO UPDATE SET bytes = excluded.bytes, kept = now()
        RETURNING start + length(bytes) AS ends)
        SELECT coalesce(max(ends) - $3::int8, 0) FROM kept";
    DROP_FILE = "WITH rows AS (DELETE FROM beanstalkd.log WHERE queue = $1::int4 AND file = $2::int4)
        DELETE FROM beanstalkd.file WHERE queue = $1::int4 AND file = $2::int4 RETURNING file";
}

statements! {
    /// The statements of a copy into a queue that has no log.
    COPYING:
    COUNT_FILES = "SELECT count(*) FROM beanstalkd.file WHERE queue = $1::int4 AND NOT removed";
    CLEAR_LOG = "DELETE FROM beanstalkd.log WHERE queue = $1::int4";
    CLEAR_FILES = "DELETE FROM beanstalkd.file WHERE queue = $1::int4";
    COPY_FILE = "INSERT INTO beanstalkd.file (queue, file, length, removed)
        VALUES ($1::int4, $2::int4, $3::int8, false)";
}

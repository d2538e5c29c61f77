//! A connection to one server of the database: messages in, messages out.
//!
//! Owns: the socket, its encryption, the log-in, and the answers to statements. It waits for answers, so it is used
//! only on the helper thread and at the start. Knows nothing about the log.

// Most messages of PostgreSQL, and most errors of the system, mean nothing special here.
#![allow(clippy::wildcard_enum_match_arm)]

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::IsNull;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::backend::{ErrorFields, Message};
use postgres_protocol::message::frontend;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::address::DatabaseAddress;
use super::password::Password;
use super::sql::{SqlValue, Statement};
use super::{sql, within};
use crate::os::socket;

/// The bytes of one read.
const MAX_READ_BYTES: usize = 64 * 1024;

// The formats of rows.
const TEXT: i16 = 0;
pub(super) const BYTES: i16 = 1;

/// The values with which to log in.
#[derive(Clone)]
pub(super) struct LogIn {
    pub(super) user: String,
    pub(super) database: String,
    pub(super) password: Password,
    pub(super) tls: Option<Arc<ClientConfig>>,
    /// The time limit for an answer of the database.
    pub(super) answer_timeout: Duration,
    /// The time limit for a connection to an address, and again for the log-in.
    pub(super) connect_timeout: Duration,
    /// No wait lasts longer than this.
    pub(super) limit: Option<Instant>,
}

/// Without the password, which must not appear in a log.
impl fmt::Debug for LogIn {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LogIn").field("user", &self.user).finish_non_exhaustive()
    }
}

/// The reason why a statement has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StatementError {
    /// The connection cannot be used any more. The effect of the last statement is not known.
    Lost(String),
    /// The database has refused the statement, and nothing has changed.
    Refused {
        /// The five-character code of the SQL standard.
        code: String,
        message: String,
    },
}

impl StatementError {
    /// A log-in that failed, or that this server cannot try.
    fn of_log_in(message: &str) -> Self {
        Self::Refused { code: sql::INVALID_AUTHORIZATION.to_owned(), message: message.to_owned() }
    }

    /// Whether the disk of the database is full, or its quota.
    pub(super) fn is_lack_of_room(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == sql::DISK_FULL)
    }

    /// Whether the same statement may succeed later without any intervention.
    pub(super) fn is_retryable(&self) -> bool {
        self.is_transient() && !matches!(self, Self::Refused { code, .. } if code == sql::PROTOCOL_VIOLATION)
    }

    /// Whether the cause is the state of the database or of the connection, and not the request.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Lost(_) => true,
            Self::Refused { code, .. } => {
                matches!(code.get(..2), Some("08" | "25" | "40" | "53" | "55" | "57"))
            }
        }
    }
}

impl fmt::Display for StatementError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(reason) => out.write_str(reason),
            Self::Refused { code, message } => write!(out, "{message} (SQLSTATE {code})"),
        }
    }
}

impl From<io::Error> for StatementError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Self::Lost("no answer in time".to_owned()),
            ErrorKind::UnexpectedEof => Self::Lost("the database has closed the connection".to_owned()),
            _ => Self::Lost(error.to_string()),
        }
    }
}

/// A row of a result.
#[derive(Debug)]
pub(super) struct ResultRow {
    /// Columns of the row as bytes, `None` for NULL.
    pub(super) columns: Vec<Option<Vec<u8>>>,
}

impl ResultRow {
    /// The bytes in a column; empty for NULL.
    pub(super) fn bytes(&self, column: usize) -> &[u8] {
        self.columns.get(column).and_then(Option::as_deref).unwrap_or_default()
    }

    /// The text in a column; empty for NULL.
    pub(super) fn text(&self, column: usize) -> &str {
        std::str::from_utf8(self.bytes(column)).unwrap_or_default()
    }

    /// The number in a column.
    pub(super) fn number(&self, column: usize) -> Option<i64> {
        self.text(column).parse().ok()
    }

    /// The number in a column without negative numbers.
    pub(super) fn natural(&self, column: usize) -> Option<u64> {
        self.number(column)?.try_into().ok()
    }
}

/// The number in the first column of the first row.
pub(super) fn first_number(rows: &[ResultRow]) -> Option<i64> {
    rows.first()?.number(0)
}

enum DatabaseStream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl DatabaseStream {
    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => set_timeouts(stream, timeout),
            Self::Tls(stream) => set_timeouts(&stream.sock, timeout),
            Self::Unix(stream) => {
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))
            }
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(bytes),
            Self::Unix(stream) => stream.read(bytes),
            Self::Tls(stream) => stream.read(bytes),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(bytes),
            Self::Unix(stream) => stream.write_all(bytes),
            Self::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        }
    }
}

fn set_timeouts(stream: &TcpStream, timeout: Duration) -> io::Result<()> {
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))
}

/// A connection after the log-in.
pub(super) struct DatabaseConnection {
    stream: DatabaseStream,
    /// Received bytes that have not been processed yet.
    input: BytesMut,
    output: BytesMut,
    answer_timeout: Duration,
    /// No wait lasts longer than this.
    pub(super) limit: Option<Instant>,
    /// The time limit of the expected answer.
    deadline: Instant,
    /// A warning that came with the last answers: the database may not have kept a guarantee.
    warning: Option<String>,
    /// The major version of the database.
    version: u32,
}

impl fmt::Debug for DatabaseConnection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("DatabaseConnection").finish_non_exhaustive()
    }
}

impl DatabaseConnection {
    /// Connects to `address` and logs in.
    pub(super) fn open(address: &DatabaseAddress, log_in: &LogIn) -> Result<Self, StatementError> {
        let mut connection = Self::log_in(address, log_in, &[])?;
        // An older version refuses a setting that it does not have, so the version must be known first.
        if connection.version >= sql::HAS_TRANSACTION_TIMEOUT
            && connection.query(sql::SET_TRANSACTION_TIMEOUT).is_err()
        {
            // The setting that must be replaced has ended that statement.
            return Self::log_in(address, log_in, &[sql::TRANSACTION_TIMEOUT]);
        }
        Ok(connection)
    }

    /// Logs in with the settings of [`sql::SESSION`] and `more`, so that no statement runs with the settings of the
    /// role or the database.
    fn log_in(
        address: &DatabaseAddress,
        log_in: &LogIn,
        more: &[(&str, &str)],
    ) -> Result<Self, StatementError> {
        let mut connection = Self {
            stream: connect(address, log_in)?,
            input: BytesMut::new(),
            output: BytesMut::new(),
            answer_timeout: log_in.answer_timeout,
            limit: log_in.limit,
            deadline: Instant::now() + within(log_in.limit, log_in.connect_timeout),
            warning: None,
            version: 0,
        };
        let identity = [("user", &*log_in.user), ("database", &log_in.database)];
        let parameters = identity.iter().chain(sql::SESSION).chain(more).copied();
        frontend::startup_message(parameters, &mut connection.output)?;
        connection.send()?;
        connection.authenticate(log_in).and_then(|()| connection.await_ready()).map_err(explained)?;
        Ok(connection)
    }

    fn authenticate(&mut self, log_in: &LogIn) -> Result<(), StatementError> {
        let password = || {
            log_in.password.read().ok_or_else(|| {
                StatementError::of_log_in(
                    "the database asks for a password: use --store-password-file or PGPASSWORD",
                )
            })
        };
        match self.receive()? {
            Message::AuthenticationOk => return Ok(()),
            Message::AuthenticationCleartextPassword => {
                if matches!(self.stream, DatabaseStream::Tcp(_)) {
                    return Err(StatementError::of_log_in(
                        "the database asks for the password as plain text, which is only sent over TLS: use \
                         scram-sha-256 in pg_hba.conf",
                    ));
                }
                frontend::password_message(password()?.as_bytes(), &mut self.output)?;
                self.send()?;
            }
            Message::AuthenticationMd5Password(body) => {
                let hash = md5_hash(log_in.user.as_bytes(), password()?.as_bytes(), body.salt());
                frontend::password_message(hash.as_bytes(), &mut self.output)?;
                self.send()?;
            }
            Message::AuthenticationSasl(body) => {
                let known = body.mechanisms().any(|mechanism| Ok(mechanism == SCRAM_SHA_256))?;
                if !known {
                    return Err(unexpected());
                }
                self.prove(&password()?)?;
            }
            Message::ErrorResponse(body) => return Err(refused(&mut body.fields())),
            _ => {
                return Err(StatementError::of_log_in(
                    "the database asks for a way to log in that is not known: use scram-sha-256",
                ));
            }
        }
        match self.receive()? {
            Message::AuthenticationOk => Ok(()),
            Message::ErrorResponse(body) => Err(refused(&mut body.fields())),
            _ => Err(unexpected()),
        }
    }

    /// Proves that both sides know the password, with SCRAM.
    fn prove(&mut self, password: &str) -> Result<(), StatementError> {
        let mut scram = ScramSha256::new(password.as_bytes(), ChannelBinding::unsupported());
        frontend::sasl_initial_response(SCRAM_SHA_256, scram.message(), &mut self.output)?;
        self.send()?;
        match self.receive()? {
            Message::AuthenticationSaslContinue(body) => scram.update(body.data())?,
            Message::ErrorResponse(body) => return Err(refused(&mut body.fields())),
            _ => return Err(unexpected()),
        }
        frontend::sasl_response(scram.message(), &mut self.output)?;
        self.send()?;
        match self.receive()? {
            Message::AuthenticationSaslFinal(body) => Ok(scram.finish(body.data())?),
            Message::ErrorResponse(body) => Err(refused(&mut body.fields())),
            _ => Err(unexpected()),
        }
    }

    // ---- statements ----

    /// Executes `sql`, which may be several statements in one transaction, and returns the rows of all of them as text.
    pub(super) fn query(&mut self, sql: &str) -> Result<Vec<ResultRow>, StatementError> {
        frontend::query(sql, &mut self.output)?;
        self.flush()?;
        self.rows()
    }

    /// Prepares statements. The types of their values are in their texts.
    pub(super) fn prepare(&mut self, statements: &[Statement]) -> Result<(), StatementError> {
        for Statement { name, text } in statements {
            frontend::parse(name, text, [], &mut self.output)?;
        }
        frontend::sync(&mut self.output);
        self.flush()?;
        self.rows().map(|_| ())
    }

    /// Adds a prepared statement to the transaction that [`DatabaseConnection::end`] ends. The database returns the
    /// rows as text.
    pub(super) fn add(
        &mut self,
        statement: &Statement,
        values: &[SqlValue<'_>],
    ) -> Result<(), StatementError> {
        self.add_with(TEXT, statement, values)
    }

    /// As `add`, with rows in this format.
    pub(super) fn add_with(
        &mut self,
        format: i16,
        statement: &Statement,
        values: &[SqlValue<'_>],
    ) -> Result<(), StatementError> {
        let formats = values.iter().map(|value| i16::from(matches!(value, SqlValue::Bytes(_))));
        let write = |value: &SqlValue<'_>, out: &mut BytesMut| {
            match value {
                SqlValue::Int(number) => out.extend_from_slice(number.to_string().as_bytes()),
                SqlValue::Text(text) => out.extend_from_slice(text.as_bytes()),
                SqlValue::Bytes(bytes) => out.extend_from_slice(bytes),
            }
            Ok(IsNull::No)
        };
        let bound = frontend::bind("", statement.name, formats, values, write, [format], &mut self.output);
        if bound.is_err() {
            return Err(StatementError::Lost("a statement is too long".to_owned()));
        }
        Ok(frontend::execute("", 0, &mut self.output)?)
    }

    /// Ends the transaction of [`DatabaseConnection::add`]: the database commits all of it, or none.
    pub(super) fn end(&mut self) {
        frontend::sync(&mut self.output);
    }

    /// Sends everything that was added.
    pub(super) fn flush(&mut self) -> Result<(), StatementError> {
        self.warning = None;
        self.extend();
        self.send()
    }

    /// Executes a prepared statement in its own transaction.
    pub(super) fn run(
        &mut self,
        statement: &Statement,
        values: &[SqlValue<'_>],
    ) -> Result<Vec<ResultRow>, StatementError> {
        self.add(statement, values)?;
        self.end();
        self.flush()?;
        self.rows()
    }

    /// The rows of all statements of a transaction, once it is committed.
    pub(super) fn rows(&mut self) -> Result<Vec<ResultRow>, StatementError> {
        let mut rows = Vec::new();
        while let Some(row) = self.next_row()? {
            rows.push(row);
        }
        Ok(rows)
    }

    /// The next row; `None` once the transaction is committed.
    pub(super) fn next_row(&mut self) -> Result<Option<ResultRow>, StatementError> {
        loop {
            match self.receive()? {
                Message::DataRow(body) => {
                    let columns =
                        body.ranges().map(|range| Ok(range.map(|range| body.buffer()[range].to_vec())));
                    return Ok(Some(ResultRow { columns: columns.collect()? }));
                }
                Message::ReadyForQuery(_) => {
                    return match self.warning.take() {
                        Some(warning) => Err(StatementError::Lost(warning)),
                        None => Ok(None),
                    };
                }
                Message::ErrorResponse(body) => {
                    let failure = refused(&mut body.fields());
                    self.await_ready()?;
                    return Err(failure);
                }
                Message::BindComplete
                | Message::CommandComplete(_)
                | Message::EmptyQueryResponse
                | Message::NoData
                | Message::ParseComplete
                | Message::RowDescription(_) => {}
                _ => return Err(unexpected()),
            }
        }
    }

    /// Extends the time limit of an answer whose rows are read slowly.
    pub(super) fn extend(&mut self) {
        self.deadline = Instant::now() + within(self.limit, self.answer_timeout);
    }

    /// Ends the connection.
    pub(super) fn close(mut self) {
        frontend::terminate(&mut self.output);
        // The database sees the end of the connection in any case.
        let _ = self.send();
    }

    fn await_ready(&mut self) -> Result<(), StatementError> {
        loop {
            match self.receive()? {
                Message::ReadyForQuery(_) => return Ok(()),
                Message::BackendKeyData(_) => {}
                Message::ErrorResponse(body) => return Err(refused(&mut body.fields())),
                _ => return Err(unexpected()),
            }
        }
    }

    // ---- bytes ----

    fn send(&mut self) -> Result<(), StatementError> {
        self.stream.set_timeout(within(Some(self.deadline), self.answer_timeout))?;
        self.stream.write_all(&self.output)?;
        self.output.clear();
        Ok(())
    }

    /// The next message that is an answer.
    fn receive(&mut self) -> Result<Message, StatementError> {
        loop {
            match Message::parse(&mut self.input)? {
                Some(Message::NoticeResponse(body)) => {
                    let warning = refused(&mut body.fields());
                    self.warning = Some(warning.to_string());
                }
                Some(Message::ParameterStatus(body)) => {
                    if body.name()? == "server_version" {
                        let digits = |letter: &char| letter.is_ascii_digit();
                        let major: String = body.value()?.chars().take_while(digits).collect();
                        self.version = major.parse().unwrap_or(0);
                    }
                }
                Some(Message::NotificationResponse(_)) => {}
                Some(message) => return Ok(message),
                None => self.fill()?,
            }
        }
    }

    fn fill(&mut self) -> Result<(), StatementError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::from(ErrorKind::TimedOut).into());
        }
        self.stream.set_timeout(left)?;
        let start = self.input.len();
        self.input.resize(start + MAX_READ_BYTES, 0);
        let read = self.stream.read(&mut self.input[start..]);
        self.input.truncate(start + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn unexpected() -> StatementError {
    StatementError::Lost("the answer is not one of PostgreSQL's".to_owned())
}

fn refused(fields: &mut ErrorFields<'_>) -> StatementError {
    let (mut code, mut message) = (String::new(), String::new());
    while let Ok(Some(field)) = fields.next() {
        let value = || String::from_utf8_lossy(field.value_bytes()).into_owned();
        match field.type_() {
            b'C' => code = value(),
            b'M' => message = value(),
            _ => {}
        }
    }
    StatementError::Refused { code, message }
}

/// The error of a failed log-in, with advice.
fn explained(failure: StatementError) -> StatementError {
    match failure {
        StatementError::Refused { code, message } if code == sql::PROTOCOL_VIOLATION => {
            let message = format!(
                "{message}; if a pooler such as PgBouncer is there: the server needs sessions with settings of its \
                 own, so the address must be that of PostgreSQL itself"
            );
            StatementError::Refused { code, message }
        }
        other => other,
    }
}

fn connect(address: &DatabaseAddress, log_in: &LogIn) -> Result<DatabaseStream, StatementError> {
    match address {
        DatabaseAddress::Unix(path) => {
            Ok(DatabaseStream::Unix(UnixStream::connect(path).map_err(unreached)?))
        }
        DatabaseAddress::Tcp { name, address } => {
            let stream = TcpStream::connect_timeout(address, within(log_in.limit, log_in.connect_timeout))
                .map_err(unreached)?;
            socket::set_database_options(&stream)?;
            encrypt(stream, name, log_in)
        }
    }
}

/// The error if no address has accepted a connection.
fn unreached(error: io::Error) -> StatementError {
    match error.kind() {
        ErrorKind::ConnectionRefused => StatementError::Lost(
            "connection refused: PostgreSQL is not running there, or its listen_addresses does not name this address"
                .to_owned(),
        ),
        _ => error.into(),
    }
}

/// Requests TLS and does the handshake, if the URL says so.
fn encrypt(mut stream: TcpStream, name: &str, log_in: &LogIn) -> Result<DatabaseStream, StatementError> {
    let Some(config) = &log_in.tls else { return Ok(DatabaseStream::Tcp(stream)) };
    set_timeouts(&stream, within(log_in.limit, log_in.connect_timeout))?;
    let mut request = BytesMut::new();
    frontend::ssl_request(&mut request);
    stream.write_all(&request)?;
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    if answer != *b"S" {
        return Err(StatementError::Lost(
            "the database does not offer TLS: set `ssl = on` with a certificate in its postgresql.conf, or in a \
             network that you trust use sslmode=disable in the address"
                .to_owned(),
        ));
    }
    let name =
        ServerName::try_from(name.to_owned()).map_err(|error| StatementError::Lost(error.to_string()))?;
    let tls = ClientConnection::new(Arc::clone(config), name)
        .map_err(|error| StatementError::Lost(error.to_string()))?;
    let mut stream = StreamOwned::new(tls, stream);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(DatabaseStream::Tls(Box::new(stream)))
}

//! A connection to one server of the database: messages in, messages out.
//!
//! Owns: the socket, its encryption, the log-in, and the answers to statements. It waits for answers, so it is used on the
//! helper thread and at the start alone. It knows nothing of the log.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
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

use crate::database_url::DatabaseHost;
use crate::os::socket;

/// The bytes of one read.
const READ_BYTES: usize = 64 * 1024;

/// What is needed to log in.
#[derive(Clone)]
pub(super) struct LogIn {
    pub(super) user: String,
    pub(super) database: String,
    pub(super) password: Option<String>,
    pub(super) tls: Option<Arc<ClientConfig>>,
    /// How long the database may take for an answer.
    pub(super) answer_timeout: Duration,
    /// How long a host may take to accept a connection.
    pub(super) connect_timeout: Duration,
}

/// The password is nobody's business.
impl fmt::Debug for LogIn {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LogIn").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Why a statement has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The connection is of no use any more. What the last statement has done is unknown.
    Lost(String),
    /// The database has refused it, and nothing has changed.
    Refused {
        /// The five characters of the SQL standard.
        code: String,
        /// In the words of the database.
        message: String,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(reason) => out.write_str(reason),
            Self::Refused { code, message } => write!(out, "{message} (SQLSTATE {code})"),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Self::Lost("no answer in time".to_owned()),
            ErrorKind::UnexpectedEof => Self::Lost("the database has closed the connection".to_owned()),
            _ => Self::Lost(error.to_string()),
        }
    }
}

/// A value that a statement is given.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    Int(i64),
    Text(&'a str),
    Bytes(&'a [u8]),
}

/// A row of a result: its columns as bytes, `None` for NULL.
pub(super) type Row = Vec<Option<Vec<u8>>>;

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
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

/// A connection that is logged in.
pub(super) struct Session {
    stream: Stream,
    /// What came and was not taken yet.
    input: BytesMut,
    /// What is to be sent.
    output: BytesMut,
    answer_timeout: Duration,
    /// When the answer that is awaited must be there.
    deadline: Instant,
    /// A warning that came with the last answers: the database may not have kept what it has promised.
    warning: Option<String>,
}

impl fmt::Debug for Session {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Session").finish_non_exhaustive()
    }
}

impl Session {
    /// Connects to `host` and logs in.
    pub(super) fn open(host: &DatabaseHost, log_in: &LogIn) -> Result<Self, Failure> {
        let stream = connect(host, log_in)?;
        let mut session = Self {
            stream,
            input: BytesMut::new(),
            output: BytesMut::new(),
            answer_timeout: log_in.answer_timeout,
            deadline: Instant::now() + log_in.connect_timeout,
            warning: None,
        };
        let parameters = [
            ("user", &*log_in.user),
            ("database", &log_in.database),
            ("application_name", "beanstalkd"),
            ("client_encoding", "UTF8"),
            ("client_min_messages", "warning"),
        ];
        frontend::startup_message(parameters, &mut session.output)?;
        session.send()?;
        session.authenticate(log_in)?;
        session.await_ready()?;
        Ok(session)
    }

    fn authenticate(&mut self, log_in: &LogIn) -> Result<(), Failure> {
        let password = || {
            let missing = || Failure::Refused {
                code: "28000".to_owned(),
                message: "the database asks for a password: use --store-password-file or PGPASSWORD"
                    .to_owned(),
            };
            log_in.password.as_deref().ok_or_else(missing)
        };
        match self.receive()? {
            Message::AuthenticationOk => return Ok(()),
            Message::AuthenticationCleartextPassword => {
                if matches!(self.stream, Stream::Tcp(_)) {
                    return Err(Failure::Refused {
                        code: "28000".to_owned(),
                        message: "the database asks for the password as plain text, which is only sent over TLS: use \
                                  scram-sha-256 in pg_hba.conf"
                            .to_owned(),
                    });
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
                self.prove(password()?)?;
            }
            Message::ErrorResponse(body) => return Err(refused(&mut body.fields())),
            _ => {
                return Err(Failure::Refused {
                    code: "28000".to_owned(),
                    message: "the database asks for a way to log in that is not known: use scram-sha-256"
                        .to_owned(),
                });
            }
        }
        match self.receive()? {
            Message::AuthenticationOk => Ok(()),
            Message::ErrorResponse(body) => Err(refused(&mut body.fields())),
            _ => Err(unexpected()),
        }
    }

    /// Proves that both sides know the password, with SCRAM.
    fn prove(&mut self, password: &str) -> Result<(), Failure> {
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

    /// Does `sql`, which may be several statements in one transaction, and returns the rows of all of them as text.
    pub(super) fn query(&mut self, sql: &str) -> Result<Vec<Row>, Failure> {
        frontend::query(sql, &mut self.output)?;
        self.flush()?;
        self.rows()
    }

    /// Prepares statements, each with its name. The types of their values stand in their texts.
    pub(super) fn prepare(&mut self, statements: &[(&str, &str)]) -> Result<(), Failure> {
        for (name, sql) in statements {
            frontend::parse(name, sql, [], &mut self.output)?;
        }
        frontend::sync(&mut self.output);
        self.flush()?;
        self.rows().map(|_| ())
    }

    /// Adds a prepared statement to the transaction that [`Session::end`] ends. Its rows come as bytes if `binary`, else
    /// as text.
    pub(super) fn add(&mut self, name: &str, values: &[Value<'_>], binary: bool) -> Result<(), Failure> {
        let formats = values.iter().map(|value| i16::from(matches!(value, Value::Bytes(_))));
        let write = |value: &Value<'_>, out: &mut BytesMut| {
            match value {
                Value::Int(number) => out.extend_from_slice(number.to_string().as_bytes()),
                Value::Text(text) => out.extend_from_slice(text.as_bytes()),
                Value::Bytes(bytes) => out.extend_from_slice(bytes),
            }
            Ok(IsNull::No)
        };
        let bound = frontend::bind("", name, formats, values, write, [i16::from(binary)], &mut self.output);
        if bound.is_err() {
            return Err(Failure::Lost("a statement is too long".to_owned()));
        }
        Ok(frontend::execute("", 0, &mut self.output)?)
    }

    /// Ends what [`Session::add`] has begun: the database commits it, or none of it.
    pub(super) fn end(&mut self) {
        frontend::sync(&mut self.output);
    }

    /// Sends all that was added.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        self.warning = None;
        self.deadline = Instant::now() + self.answer_timeout;
        self.send()
    }

    /// Does a prepared statement in a transaction of its own.
    pub(super) fn run(&mut self, name: &str, values: &[Value<'_>]) -> Result<Vec<Row>, Failure> {
        self.add(name, values, false)?;
        self.end();
        self.flush()?;
        self.rows()
    }

    /// The rows of all statements of a transaction, once it is committed.
    pub(super) fn rows(&mut self) -> Result<Vec<Row>, Failure> {
        let mut rows = Vec::new();
        while let Some(row) = self.next_row()? {
            rows.push(row);
        }
        Ok(rows)
    }

    /// The next row; `None` once the transaction is committed.
    pub(super) fn next_row(&mut self) -> Result<Option<Row>, Failure> {
        loop {
            match self.receive()? {
                Message::DataRow(body) => {
                    let columns =
                        body.ranges().map(|range| Ok(range.map(|range| body.buffer()[range].to_vec())));
                    return Ok(Some(columns.collect()?));
                }
                Message::ReadyForQuery(_) => {
                    return match self.warning.take() {
                        Some(warning) => Err(Failure::Lost(warning)),
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

    /// Makes the time that an answer may take as long as it has to be for `rows` that are taken slowly.
    pub(super) fn extend(&mut self) {
        self.deadline = Instant::now() + self.answer_timeout;
    }

    /// Says good-bye.
    pub(super) fn close(mut self) {
        frontend::terminate(&mut self.output);
        // The database sees the end of the connection anyway.
        let _ = self.send();
    }

    fn await_ready(&mut self) -> Result<(), Failure> {
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

    fn send(&mut self) -> Result<(), Failure> {
        self.stream.set_timeout(self.answer_timeout)?;
        self.stream.write_all(&self.output)?;
        self.output.clear();
        Ok(())
    }

    /// The next message that is an answer.
    fn receive(&mut self) -> Result<Message, Failure> {
        loop {
            match Message::parse(&mut self.input)? {
                Some(Message::NoticeResponse(body)) => {
                    let warning = refused(&mut body.fields());
                    self.warning = Some(warning.to_string());
                }
                Some(Message::ParameterStatus(_) | Message::NotificationResponse(_)) => {}
                Some(message) => return Ok(message),
                None => self.fill()?,
            }
        }
    }

    fn fill(&mut self) -> Result<(), Failure> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::from(ErrorKind::TimedOut).into());
        }
        self.stream.set_timeout(left)?;
        let start = self.input.len();
        self.input.resize(start + READ_BYTES, 0);
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

fn unexpected() -> Failure {
    Failure::Lost("the answer is not one of PostgreSQL's".to_owned())
}

fn refused(fields: &mut ErrorFields<'_>) -> Failure {
    let (mut code, mut message) = (String::new(), String::new());
    while let Ok(Some(field)) = fields.next() {
        let value = || String::from_utf8_lossy(field.value_bytes()).into_owned();
        match field.type_() {
            b'C' => code = value(),
            b'M' => message = value(),
            _ => {}
        }
    }
    Failure::Refused { code, message }
}

fn connect(host: &DatabaseHost, log_in: &LogIn) -> Result<Stream, Failure> {
    let (name, port) = match host {
        DatabaseHost::Unix(path) => return Ok(Stream::Unix(UnixStream::connect(path)?)),
        DatabaseHost::Tcp { host, port } => (host.as_str(), *port),
    };
    let mut last = Failure::Lost(format!("{name} has no address"));
    for address in (name, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, log_in.connect_timeout) {
            Ok(stream) => {
                socket::set_database_options(&stream)?;
                return encrypt(stream, name, log_in);
            }
            Err(error) => last = error.into(),
        }
    }
    Err(last)
}

/// Asks for TLS and does the handshake, if the address says so.
fn encrypt(mut stream: TcpStream, name: &str, log_in: &LogIn) -> Result<Stream, Failure> {
    let Some(config) = &log_in.tls else { return Ok(Stream::Tcp(stream)) };
    set_timeouts(&stream, log_in.connect_timeout)?;
    let mut request = BytesMut::new();
    frontend::ssl_request(&mut request);
    stream.write_all(&request)?;
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    if answer != *b"S" {
        return Err(Failure::Lost("the database does not offer TLS".to_owned()));
    }
    let name = ServerName::try_from(name.to_owned()).map_err(|error| Failure::Lost(error.to_string()))?;
    let tls =
        ClientConnection::new(Arc::clone(config), name).map_err(|error| Failure::Lost(error.to_string()))?;
    let mut stream = StreamOwned::new(tls, stream);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(Stream::Tls(Box::new(stream)))
}

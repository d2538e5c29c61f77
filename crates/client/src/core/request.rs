//! Requests, and the effect of a lost connection on each.

use beanstalkd_protocol::{CRLF, Command, MAX_COMPLETED_PUTS, Origin, Verb};
use beanstalkd_types::job::{Counting, JobId};
use beanstalkd_types::seconds::Seconds;
use beanstalkd_types::tags::TagKind;

use super::data::Cursor;
use super::put::PutOptions;
use super::token::Token;

/// A request: a command, for a put with its body.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Request<'a> {
    /// A command without a body. A `put`, and a `complete` with puts, are [`Error::Invalid`](crate::Error::Invalid) in
    /// this form: the server would take the next commands for what has to follow. So is an `auth` whose text is not a
    /// [`Token`]: it could be a line of its own.
    Line(Command<'a>),
    /// Puts a job with this body into the used tube.
    Put(&'a PutOptions, &'a [u8]),
    /// Deletes a reserved job and puts these, at most a hundred, all or nothing.
    Complete(JobId, &'a [(PutOptions, &'a [u8])]),
    /// A command that lists a page, without its cursor, and the cursor, which only the server understands. Any other
    /// command is [`Error::Invalid`](crate::Error::Invalid) in this form.
    PageAfter(Command<'a>, &'a Cursor),
}

impl<'a> From<Command<'a>> for Request<'a> {
    fn from(command: Command<'a>) -> Self {
        Self::Line(command)
    }
}

/// Whether a command is sent again if the connection was lost before its reply, so that it is not known whether the
/// server has executed it. A command whose last byte the server has not received is always sent again: it was not
/// executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Repeat {
    /// The command is sent again: executing it twice has the same effect as once.
    Always,
    /// The command is sent again. If the server then finds no such job, the first one may have been executed: the
    /// result is [`Error::Unconfirmed`](crate::Error::Unconfirmed).
    MayFindNothing,
    /// The command is not sent again; the result is [`Error::Unconfirmed`](crate::Error::Unconfirmed).
    Never,
    /// The command is sent again within this time, while the server recognises the repetition, and never afterwards.
    Within(Seconds),
}

impl<'a> Request<'a> {
    /// The page after a cursor, or the first one, of this command without a cursor.
    pub fn page(command: Command<'a>, after: Option<&'a Cursor>) -> Self {
        match after {
            Some(after) => Self::PageAfter(command, after),
            None => Self::Line(command),
        }
    }
}

impl Request<'_> {
    /// Appends the bytes of the command.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Line(command) => command.write(out),
            Self::Put(options, body) => put(options, body, out),
            Self::Complete(id, puts) => {
                Command::Complete { id, count: puts.len() as u32 }.write(out);
                for (options, body) in puts {
                    out.extend_from_slice(CRLF);
                    put(options, body, out);
                }
            }
            Self::PageAfter(command, after) => {
                command.write(out);
                out.push(b' ');
                out.extend_from_slice(after.as_str().as_bytes());
            }
        }
        out.extend_from_slice(CRLF);
    }

    /// The verb of its command.
    pub fn verb(&self) -> Verb {
        match self {
            Self::Line(command) | Self::PageAfter(command, _) => command.verb(),
            Self::Put(..) => Verb::Put,
            Self::Complete(..) => Verb::Complete,
        }
    }

    /// Whether the command is repeated if the connection is lost before its reply.
    pub fn repeat(&self) -> Repeat {
        match self {
            Self::Line(_) | Self::PageAfter(..) | Self::Complete(..) => match effect_of(self.verb()) {
                Effect::State | Effect::Reserve | Effect::Wait => Repeat::Always,
                Effect::InUsedTube(repeat) | Effect::Other(repeat) => repeat,
            },
            Self::Put(options, _) => options.duplicate_window().map_or(Repeat::Never, Repeat::Within),
        }
    }

    /// How long the server may wait before it replies: 0 if it replies at once, `None` if there is no limit.
    pub(crate) fn longest_wait(&self) -> Option<Seconds> {
        match *self {
            Self::Line(
                Command::Reserve
                | Command::ReserveWithAbort { timeout_s: None }
                | Command::WaitJob { timeout_s: None, .. },
            ) => None,
            Self::Line(
                Command::ReserveWithTimeout { timeout_s }
                | Command::ReserveWithAbort { timeout_s: Some(timeout_s) }
                | Command::ReserveBatch { timeout_s: Some(timeout_s), .. }
                | Command::WaitJob { timeout_s: Some(timeout_s), .. },
            ) => Some(timeout_s),
            Self::Line(Command::ReserveBatch { timeout_s: None, .. }) => Some(Seconds::ZERO),
            Self::Line(_) | Self::Put(..) | Self::Complete(..) | Self::PageAfter(..) => {
                let may_wait = matches!(effect_of(self.verb()), Effect::Reserve | Effect::Wait);
                debug_assert!(!may_wait, "{} has an arm", self.verb().as_str());
                Some(Seconds::ZERO)
            }
        }
    }

    /// The extensions that the request needs and that a server without them would not refuse cleanly: the server would
    /// read a body as commands, or wait for another time.
    pub(crate) fn required_extensions(&self) -> impl Iterator<Item = &str> {
        let (word, put, puts) = match *self {
            Self::Put(options, _) => (None, Some(options), &[][..]),
            Self::Complete(_, puts) => (Some(Verb::Complete.as_str()), None, puts),
            Self::Line(Command::ReserveWithTimeout { timeout_s }) if timeout_s.thousandths() > 0 => {
                (Some("fractions"), None, &[][..])
            }
            Self::Line(_) | Self::PageAfter(..) => (None, None, &[][..]),
        };
        let all_options = put.into_iter().chain(puts.iter().map(|(options, _)| options));
        word.into_iter().chain(all_options.flat_map(PutOptions::extensions))
    }

    /// Whether the effect of the command depends on the used tube.
    pub(crate) fn needs_used_tube(&self) -> bool {
        let has_no_tube = |options: &PutOptions| options.tags.iter().all(|tag| tag.kind() != TagKind::Tube);
        match self {
            Self::Put(options, _) => has_no_tube(options),
            Self::Complete(_, puts) => puts.iter().any(|(options, _)| has_no_tube(options)),
            Self::PageAfter(..) => false,
            Self::Line(command) => matches!(effect_of(command.verb()), Effect::InUsedTube(_)),
        }
    }

    /// The rule that the request breaks; `None` if it can be sent. Without the rule, the server could take a part of
    /// the request for another command, or the command cannot have this form.
    pub(crate) fn broken_rule(&self) -> Option<&'static str> {
        let too_big =
            |body: &[u8]| u32::try_from(body.len()).is_err().then_some("a body has at most 4294967295 bytes");
        match *self {
            Self::Line(Command::Put(_) | Command::PutWith(..)) => {
                Some("a put with its body is a Request::Put")
            }
            Self::Line(Command::Complete { count: 1.., .. }) => {
                Some("a complete with its puts is a Request::Complete")
            }
            // Such a text could be a line of its own.
            Self::Line(Command::Auth(token)) => (!Token::is_valid(token)).then_some(Token::RULE),
            Self::Line(_) => None,
            // The size of a larger body does not fit into the line: the server would read a part of it as commands.
            Self::Put(_, body) => too_big(body),
            // After more puts, the server could not find the next command.
            Self::Complete(_, puts) if puts.len() > MAX_COMPLETED_PUTS as usize => {
                Some("complete has at most 100 puts")
            }
            Self::Complete(_, puts) => puts.iter().find_map(|(_, body)| too_big(body)),
            Self::PageAfter(
                Command::ListJobs { after: None, .. } | Command::ListClients { after_client: None, .. },
                _,
            ) => None,
            Self::PageAfter(..) => Some("only list-jobs and list-clients have a cursor, and only one"),
        }
    }

    /// The extension without which a server answers UNKNOWN_COMMAND or BAD_FORMAT.
    pub(crate) fn extension(&self) -> Option<&'static str> {
        if let Some(word) = extension_of(self.verb()) {
            return Some(word);
        }
        let fraction = |seconds: Seconds| (seconds.thousandths() > 0).then_some("fractions");
        match *self {
            Self::Line(Command::Touch { for_s: Some(_), .. }) => Some("touch-seconds"),
            Self::Line(Command::Release { counting: Counting::Uncounted, .. }) => Some("release-uncounted"),
            // There is no word for weights; the mode that uses them was introduced together with them.
            Self::Line(Command::Watch { weight, .. }) if weight != 1 => Some("reserve-mode"),
            Self::Line(Command::PauseTube { delay_s, .. } | Command::Release { delay_s, .. }) => {
                fraction(delay_s)
            }
            Self::Line(_) | Self::Put(..) | Self::Complete(..) | Self::PageAfter(..) => None,
        }
    }
}

/// The extension that the command is, if C does not have it.
pub(crate) fn extension_of(verb: Verb) -> Option<&'static str> {
    matches!(verb.origin(), Origin::Ours | Origin::OursGuarded).then_some(verb.as_str())
}

/// Whether the command reserves the next job of the watched tubes.
pub(crate) fn is_reserve(verb: Verb) -> bool {
    effect_of(verb) == Effect::Reserve
}

/// Appends a put with its body, without the last CRLF.
fn put(options: &PutOptions, body: &[u8], out: &mut Vec<u8>) {
    options.write(body.len() as u32, out);
    out.extend_from_slice(CRLF);
    out.extend_from_slice(body);
}

/// Whether the command changes the state of the connection that each later one gets too.
pub(crate) fn changes_state(verb: Verb) -> bool {
    effect_of(verb) == Effect::State
}

/// What a command means for its connection. The documentation of the crate, "When the connection is lost", has the
/// table of the repeats.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// It changes the state that each later connection gets too, so it is always sent again. `StateChange::of` has an
    /// arm for it.
    State,
    /// It reserves the next job of the watched tubes, and may wait for it. A job that was reserved on the lost
    /// connection is ready again, or the session has it.
    Reserve,
    /// It may wait for something else.
    Wait,
    /// It is about the used tube.
    InUsedTube(Repeat),
    Other(Repeat),
}

fn effect_of(verb: Verb) -> Effect {
    use Effect::{InUsedTube, Other, Reserve, State, Wait};
    use Verb as V;
    match verb {
        V::Use | V::Watch | V::Ignore | V::Session | V::Auth => State,
        V::ReserveMode | V::ReserveFields => State,
        V::Reserve | V::ReserveWithTimeout | V::ReserveBatch | V::ReserveWithAbort => Reserve,
        V::WaitJob => Wait,
        V::PeekReady | V::PeekDelayed | V::PeekBuried | V::PeekReserved => InUsedTube(Repeat::Always),
        V::ListTubeUsed => InUsedTube(Repeat::Always),
        V::Put | V::Kick => InUsedTube(Repeat::Never),
        V::Peek | V::Stats | V::StatsJob | V::StatsTube | V::StatsGroup => Other(Repeat::Always),
        V::ListTubes | V::ListTubesWatched | V::ListJobs | V::ListClients => Other(Repeat::Always),
        V::Touch | V::TouchAll | V::PauseTube | V::Reprioritize | V::Drain | V::Undrain => {
            Other(Repeat::Always)
        }
        V::Delete | V::Complete | V::Release | V::Bury | V::ReserveJob | V::KillClient => {
            Other(Repeat::MayFindNothing)
        }
        V::KickJob | V::Move | V::FlushTube | V::FlushBuried | V::DeleteBatch | V::Quit => {
            Other(Repeat::Never)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &str) -> Request<'_> {
        Request::Line(beanstalkd_protocol::parse(line.as_bytes()).unwrap())
    }

    #[test]
    fn a_refusal_of_the_server_is_blamed_on_an_extension_only_if_the_command_has_one() {
        for (line, extension) in [
            ("delete 1", None),
            ("release 1 0 60", None),
            ("release 1 0 0.5", Some("fractions")),
            ("release 1 0 60 uncounted", Some("release-uncounted")),
            ("pause-tube t 60", None),
            ("pause-tube t 0.5", Some("fractions")),
            ("touch 1", None),
            ("touch 1 60", Some("touch-seconds")),
            ("watch t", None),
            ("watch t 2", Some("reserve-mode")),
            ("touch-all", Some("touch-all")),
        ] {
            assert_eq!(request(line).extension(), extension, "{line}");
        }
    }

    #[test]
    fn some_commands_depend_on_the_used_tube() {
        for (line, needs) in [("kick 1", true), ("peek-ready", true), ("peek 1", false), ("delete 1", false)]
        {
            assert_eq!(request(line).needs_used_tube(), needs, "{line}");
        }
        let here = PutOptions::new().tag("grp:g".parse().unwrap());
        let there = PutOptions::new().tag("grp:g".parse().unwrap()).tag("tub:t".parse().unwrap());
        assert!(Request::Put(&here, b"").needs_used_tube() && !Request::Put(&there, b"").needs_used_tube());
        let complete =
            |options: &PutOptions| Request::Complete(JobId(1), &[(options.clone(), b"")]).needs_used_tube();
        assert!(complete(&here) && !complete(&there));
    }
}

//! The state of a connection that must be restored on the next one.

use beanstalkd_protocol::{Command, FieldList, Grace, ModeWord};
use beanstalkd_types::tube_name::TubeName;

use super::request::changes_state;
use super::token::Token;

/// The log-in, the session, the used tube, the watched tubes, the mode and the fields of a connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ConnectionState {
    token: Option<Token>,
    session: Option<(TubeName, Grace)>,
    /// `None` means the tube `default`, which every connection uses first.
    used: Option<TubeName>,
    /// Whether an earlier borrower of a pool has chosen the used tube: a command that needs a tube needs `default`.
    is_use_stale: bool,
    /// The watched tubes with their weights; `None` means `default`, which every connection watches first.
    watched: Option<Vec<(TubeName, u16)>>,
    mode: Option<ModeWord>,
    /// The fields of each RESERVED line.
    fields: FieldList,
}

/// A change of the state, which counts once the server has accepted it.
#[derive(Debug)]
pub(crate) enum StateChange {
    Token(Token),
    Session(TubeName, Grace),
    Use(TubeName),
    Watch(TubeName, u16),
    Ignore(TubeName),
    Mode(ModeWord),
    Fields(FieldList),
}

impl StateChange {
    /// The change by this command, if it makes one. `effect_of` says which of them make one.
    #[allow(clippy::wildcard_enum_match_arm, reason = "an assertion finds a change that has no arm")]
    pub(crate) fn of(command: &Command<'_>) -> Option<Self> {
        match *command {
            Command::Auth(token) => str::from_utf8(token).ok().and_then(Token::parse).map(Self::Token),
            Command::Session { name, grace } => Some(Self::Session(name.into(), grace)),
            Command::Use(tube) => Some(Self::Use(tube.into())),
            Command::Watch { tube, weight } => Some(Self::Watch(tube.into(), weight)),
            Command::Ignore(tube) => Some(Self::Ignore(tube.into())),
            Command::ReserveMode(mode) => Some(Self::Mode(mode)),
            Command::ReserveFields(fields) => Some(Self::Fields(fields)),
            _ => {
                let verb = command.verb();
                debug_assert!(!changes_state(verb), "a new connection needs the change by {}", verb.as_str());
                None
            }
        }
    }
}

impl ConnectionState {
    /// The state with which the first connection begins.
    pub(crate) fn new(token: Option<Token>, session: Option<(TubeName, Grace)>) -> Self {
        Self { token, session, ..Self::default() }
    }

    pub(crate) fn apply(&mut self, change: StateChange) {
        match change {
            StateChange::Token(token) => self.token = Some(token),
            StateChange::Session(name, grace) => self.session = Some((name, grace)),
            StateChange::Use(tube) => (self.used, self.is_use_stale) = (Some(tube), false),
            StateChange::Mode(mode) => self.mode = Some(mode),
            StateChange::Fields(fields) => self.fields = fields,
            StateChange::Watch(tube, weight) => {
                let watched = self.watched();
                match watched.iter_mut().find(|(name, _)| *name == tube) {
                    Some(known) => known.1 = weight,
                    None => watched.push((tube, weight)),
                }
            }
            StateChange::Ignore(tube) => self.watched().retain(|(name, _)| *name != tube),
        }
    }

    fn watched(&mut self) -> &mut Vec<(TubeName, u16)> {
        self.watched.get_or_insert_with(|| vec![(TubeName::default_tube(), 1)])
    }

    /// Whether the tube is the used one for the caller.
    pub(crate) fn uses(&self, tube: &TubeName) -> bool {
        match &self.used {
            Some(used) if !self.is_use_stale => used == tube,
            _ => *tube == TubeName::default_tube(),
        }
    }

    /// Chooses the tube for the caller if it is the used one. Returns whether it is; otherwise the caller must use it.
    pub(crate) fn choose_if_used(&mut self, tube: &TubeName) -> bool {
        self.is_use_stale &= self.used.as_ref() != Some(tube);
        self.uses(tube) && !self.is_use_stale
    }

    /// Notes that the next commands are another caller's.
    pub(crate) fn forget_choice(&mut self) {
        self.is_use_stale = self.used.as_ref().is_some_and(|used| *used != TubeName::default_tube());
    }

    /// Whether `default` must be used before a command that needs a tube.
    pub(crate) fn is_use_stale(&self) -> bool {
        self.is_use_stale
    }

    /// The next connection uses `default` first.
    pub(crate) fn begin_again(&mut self) {
        if self.is_use_stale {
            (self.used, self.is_use_stale) = (None, false);
        }
    }

    /// The fields of each RESERVED line.
    pub(crate) fn fields(&self) -> FieldList {
        self.fields
    }

    /// Whether the connection has a session.
    pub(crate) fn has_session(&self) -> bool {
        self.session.is_some()
    }

    /// Whether the states are equal, except perhaps for the used tube.
    pub(crate) fn equals_except_used_tube(&self, other: &Self) -> bool {
        (&self.token, &self.session, &self.watched, self.mode, self.fields)
            == (&other.token, &other.session, &other.watched, other.mode, other.fields)
    }

    /// Passes the commands that restore the state on a new connection to `each`. The log-in is the first, then the
    /// session, so that no other connection gets the jobs in the meantime. A new connection uses and watches `default`;
    /// it does not ask for it, because access rules may forbid that.
    pub(crate) fn for_each_command(&self, mut each: impl FnMut(Command<'_>)) {
        if let Some(token) = &self.token {
            each(Command::Auth(token.as_bytes()));
        }
        if let Some((name, grace)) = &self.session {
            each(Command::Session { name: name.into(), grace: *grace });
        }
        let default = TubeName::default_tube();
        if let Some(used) = self.used.as_ref().filter(|used| **used != default) {
            each(Command::Use(used.into()));
        }
        if let Some(watched) = &self.watched {
            for (tube, weight) in watched.iter().filter(|watched| **watched != (default.clone(), 1)) {
                each(Command::Watch { tube: tube.into(), weight: *weight });
            }
            if watched.iter().all(|(name, _)| *name != default) {
                each(Command::Ignore((&default).into()));
            }
        }
        if let Some(mode) = self.mode {
            each(Command::ReserveMode(mode));
        }
        if !self.fields.is_empty() {
            each(Command::ReserveFields(self.fields));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(commands: &[&str]) -> ConnectionState {
        let mut state = ConnectionState::default();
        for line in commands {
            let command = beanstalkd_protocol::parse(line.as_bytes()).unwrap();
            state.apply(StateChange::of(&command).unwrap());
        }
        state
    }

    fn restored(commands: &[&str]) -> Vec<String> {
        let state = after(commands);
        let mut lines = Vec::new();
        state.for_each_command(|command| {
            let mut line = Vec::new();
            command.write(&mut line);
            lines.push(String::from_utf8(line).unwrap());
        });
        lines
    }

    #[test]
    fn a_new_connection_gets_the_state_of_the_last_one() {
        assert!(restored(&[]).is_empty());
        assert_eq!(restored(&["watch a", "watch b 3", "watch a 2", "ignore b"]), ["watch a 2"]);
        assert_eq!(restored(&["watch default 2", "watch a"]), ["watch default 2", "watch a"]);
        assert_eq!(
            restored(&[
                "reserve-fields age tube",
                "reserve-mode fifo",
                "watch a",
                "ignore default",
                "use b",
                "auth t"
            ]),
            ["auth t", "use b", "watch a", "ignore default", "reserve-mode fifo", "reserve-fields age tube"]
        );
        assert_eq!(restored(&["use b", "session s 5"]), ["session s 5", "use b"]);
        assert!(restored(&["reserve-fields age", "reserve-fields"]).is_empty());
        assert!(restored(&["watch a", "ignore a", "use a", "use default"]).is_empty());
        assert_eq!(restored(&["use a", "use b"]), ["use b"]);
    }

    #[test]
    fn each_caller_begins_with_the_default_tube() {
        let [a, b]: [TubeName; 2] = ["a", "b"].map(|name| name.parse().unwrap());
        let default = TubeName::default_tube();
        let mut state = after(&[]);
        assert!(state.uses(&default) && !state.uses(&a) && state.choose_if_used(&default));
        state.forget_choice();
        assert!(!state.is_use_stale(), "it uses the default tube");

        let mut state = after(&["use a"]);
        assert!(state.uses(&a) && !state.uses(&b) && !state.uses(&default) && !state.is_use_stale());
        state.forget_choice();
        assert!(state.is_use_stale() && state.uses(&default) && !state.uses(&a));
        assert!(!state.choose_if_used(&default), "the connection uses another tube");
        assert!(!state.choose_if_used(&b) && state.is_use_stale());
        assert!(state.choose_if_used(&a) && !state.is_use_stale() && state.uses(&a));

        let mut state = after(&["use a", "use default"]);
        state.forget_choice();
        assert!(!state.is_use_stale());
    }

    #[test]
    fn only_the_used_tube_may_differ() {
        let one = after(&["use a", "watch c"]);
        assert!(one.equals_except_used_tube(&after(&["use b", "watch c"])));
        for other in ["watch d", "auth t", "session s 5", "reserve-mode weighted", "reserve-fields age"] {
            assert!(!one.equals_except_used_tube(&after(&["use a", "watch c", other])), "{other}");
        }
    }
}

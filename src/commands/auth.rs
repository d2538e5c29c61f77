//! The command `auth`, which only a server with access rules has.
//!
//! Owns: its replies and its cost. A wrong token closes the connection, so that each guess needs another connection.
//! The guard has the rules.

use crate::executor::{Caller, Executor, LogInResult, Outcome, answer, answer_last};
use crate::protocol::{Reply, Verb};

/// The cost of checking a token, in simple requests, and how many tokens in the rules add one simple request.
const TOKEN_COST: u64 = 4;
const TOKENS_PER_COST: u64 = 64;

impl Executor {
    pub(super) fn authenticate(&mut self, caller: &mut Caller<'_>, token: &[u8]) -> Outcome {
        let Some(guard) = &mut self.guard else {
            self.counters.commands.uncount(Verb::Auth);
            self.counters.malformed += 1;
            return answer(caller.output, &Reply::UnknownCommand);
        };
        let log_in = guard.log_in(caller.client, token, caller.now);
        let cost = TOKEN_COST + guard.rules.token_count() as u64 / TOKENS_PER_COST;
        self.count_cost(cost);
        match log_in {
            LogInResult::Done => answer(caller.output, &Reply::Authenticated),
            LogInResult::Refused => answer_last(caller.output, &Reply::Unauthorized),
            LogInResult::Full => answer_last(caller.output, &Reply::TooManyConnections),
        }
    }
}

//! Another program takes over the server and its log, between two steps.

use beanstalkd_testkit::simulated::hand_over;

use super::*;

impl Steps {
    /// Does nothing if the log has no room for changes that it must have.
    pub(super) fn hand_over(&mut self) {
        self.disk.take_back(self.slow.take().into_iter());
        self.server.executor_mut().quiesce_binlog(self.now);
        if self.server.executor().has_failed() {
            return assert!(self.disk.has_crashed(), "the log has failed");
        }
        if self.server.executor().has_unlogged_changes() {
            return assert!(
                self.is_disk_full || self.disk.has_crashed(),
                "changes that wait for room get it"
            );
        }
        assert!(self.server.is_quiet(), "no command is half done");
        self.say(|| "hands over".to_owned());
        self.outcome.hand_overs += 1;
        let mut executor = executor(PoisonLimits::default(), MAX_JOB_BYTES);
        executor.set_tube_rules(self.settings.rules.clone(), self.now);
        let connections = self.clients.iter().map(|client| &client.connection);
        hand_over(&mut self.server, Server::new(executor), connections, true, self.now);
        let config = self.config();
        let log = self.server.executor_mut().continue_with_binlog(self.disk.storage(), config, self.now, 0);
        if let Err(error) = log {
            return assert!(self.disk.has_crashed(), "the log does not go on: {error}");
        }
        self.oracle.model.judge_ages_again();
        self.oracle.model.hand_over();
        self.advance_model();
        self.settle();
    }
}

//! A real terminal: tmux sends keys and reads the screen.

use std::process::Command;
use std::time::{Duration, Instant};

/// A tmux server with one window.
pub struct Terminal {
    socket: String,
    _directory: tempfile::TempDir,
}

impl Terminal {
    /// Runs the program in a terminal, followed by a line with its exit code; `None` if tmux is not installed.
    pub fn with(address: &str, arguments: &str) -> Option<Self> {
        Self::sized(130, address, arguments)
    }

    /// Runs the program in a terminal with this many columns; as `with`.
    pub fn sized(columns: u16, address: &str, arguments: &str) -> Option<Self> {
        let columns = columns.to_string();
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("tmux").to_str().unwrap().to_owned();
        let terminal = Self { socket, _directory: directory };
        let program = env!("CARGO_BIN_EXE_beanstalkctl");
        // Ctrl-C is also for the shell, which must not end before it has shown the exit code.
        let line =
            format!("trap : INT; '{program}' --server '{address}' {arguments}; echo ended with $?; cat");
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", &columns, "-y", "20", &line])?;
        Some(terminal)
    }

    fn tmux(&self, arguments: &[&str]) -> Option<String> {
        let output = match Command::new("tmux").arg("-S").arg(&self.socket).args(arguments).output() {
            Ok(output) => output,
            Err(_) => {
                beanstalkd_testkit::skip("there is no tmux");
                return None;
            }
        };
        assert!(output.status.success(), "{output:?}");
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The process id of the program.
    pub fn program_id(&self) -> String {
        let shell = self.tmux(&["display-message", "-p", "#{pane_pid}"]).unwrap();
        let children = Command::new("ps").args(["-o", "pid=", "--ppid", shell.trim()]).output().unwrap();
        String::from_utf8(children.stdout).unwrap().trim().to_owned()
    }

    /// Sends keys, in the notation of `tmux send-keys`.
    pub fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat()).unwrap();
    }

    /// Waits until the screen contains `what`, and returns the screen.
    #[track_caller]
    pub fn shows(&self, what: &str) -> String {
        let give_up_at = Instant::now() + Duration::from_secs(60);
        loop {
            let screen = self.tmux(&["capture-pane", "-p"]).unwrap();
            if screen.contains(what) {
                return screen;
            }
            assert!(Instant::now() < give_up_at, "no {what:?} on\n{screen}");
            std::thread::sleep(Duration::from_millis(30));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = Command::new("tmux").arg("-S").arg(&self.socket).arg("kill-server").output();
    }
}

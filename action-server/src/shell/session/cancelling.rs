//! Cancels a command within [`CANCEL_TIMEOUT`], whatever it does.
//!
//! Kills the processes of the command. Its shell is interrupted, and only killed if it does not
//! return to its prompt.

use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::time::{Instant, sleep, sleep_until};

use super::super::answers::CommandOutcome;
use super::super::baseline;
use super::{KILL_TIMEOUT, OutputSink, Session, next_event};

/// Maximum time for a shell to return to its prompt after its processes were killed.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);

/// Delay after which processes that were forked meanwhile are killed. Doubled each time, because a
/// shell that is interrupted repeatedly does not return to its prompt.
const CANCEL_RETRY_DELAY: Duration = Duration::from_millis(10);

impl Session {
    /// Kills the processes of the running command, and the shell if it does not return to its
    /// prompt.
    pub(super) async fn cancel(&mut self, output: &mut OutputSink) -> CommandOutcome {
        let deadline = Instant::now() + CANCEL_TIMEOUT;
        let mut shell_lost = self.ignores_interrupt();
        let mut retry_delay = CANCEL_RETRY_DELAY;
        while !shell_lost && !self.has_ended() {
            self.kill_once();
            if let Some(process) = &mut self.process {
                process.on_interrupt();
            }
            let round = deadline.min(Instant::now() + retry_delay);
            retry_delay *= 2;
            while !self.has_ended() {
                tokio::select! {
                    biased;
                    () = sleep_until(round) => break,
                    event = next_event(&mut self.process) => self.on_event(event, &mut Some(&mut **output)),
                }
            }
            shell_lost = round == deadline && !self.has_ended();
        }
        shell_lost |= self.process.is_none();
        if shell_lost && let Some(process) = self.process.take() {
            process.kill(KILL_TIMEOUT).await;
        }
        self.kill_remaining(deadline).await;
        CommandOutcome::Cancelled { shell_lost }
    }

    /// Kills the shell and all its descendants, within half a second.
    pub(super) async fn kill(&mut self) -> CommandOutcome {
        if let Some(process) = self.process.take() {
            process.kill_all(KILL_TIMEOUT).await;
        }
        CommandOutcome::Cancelled { shell_lost: true }
    }

    fn has_ended(&self) -> bool {
        self.running
            .as_ref()
            .is_none_or(|running| running.ending().is_some())
    }

    /// Returns whether the shell ignores SIGINT. It would continue its script when the process that
    /// it waits for is killed.
    fn ignores_interrupt(&self) -> bool {
        self.running
            .as_ref()
            .is_some_and(|running| baseline::ignores_interrupt(running.baseline().shell()))
    }

    /// Sends SIGINT first, which makes a shell abort its script, before it can notice that the
    /// process that it waits for is dead.
    fn kill_once(&self) {
        let (Some(process), Some(running)) = (&self.process, &self.running) else {
            return;
        };
        let shell = running.baseline().shell();
        baseline::send(shell, Signal::SIGINT);
        if let Some(group) = process.foreground_group().filter(|&group| group != shell) {
            baseline::send_to_group(group, Signal::SIGKILL);
        }
        running.baseline().kill_new();
    }

    /// Kills processes that were forked while others were killed. Bounded: a fork bomb may be
    /// faster, and a process in uninterruptible I/O dies later.
    async fn kill_remaining(&mut self, deadline: Instant) {
        while self
            .running
            .as_ref()
            .is_some_and(|running| running.baseline().kill_new())
            && Instant::now() < deadline
        {
            sleep(CANCEL_RETRY_DELAY).await;
        }
    }
}

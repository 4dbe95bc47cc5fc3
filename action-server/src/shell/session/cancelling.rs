//! The end of a command by force, within [`CANCEL_PATIENCE`], whatever it does.
//!
//! What the command started is killed; its shell is interrupted, and killed only if it does not come back to its prompt.

use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::time::{Instant, sleep, sleep_until};

use super::super::answers::Ending;
use super::super::baseline;
use super::{KILL_PATIENCE, OutputSink, Session, next_event};

/// How long a shell may take to come back to its prompt after everything it ran was killed.
const CANCEL_PATIENCE: Duration = Duration::from_secs(1);

/// After how long a cancel looks again for what was forked while it killed. Doubled each time: a shell that is
/// interrupted again and again never gets to its prompt.
const CANCEL_ROUND: Duration = Duration::from_millis(10);

impl Session {
    /// Kills what the running command started, and the shell too if that does not bring it back to its prompt.
    pub(super) async fn cancel(&mut self, output: &mut OutputSink) -> Ending {
        let give_up = Instant::now() + CANCEL_PATIENCE;
        let mut shell_lost = self.ignores_interrupt();
        let mut patience = CANCEL_ROUND;
        while !shell_lost && !self.has_ended() {
            self.kill_once();
            if let Some(process) = &mut self.process {
                process.on_interrupt();
            }
            let round = give_up.min(Instant::now() + patience);
            patience *= 2;
            while !self.has_ended() {
                tokio::select! {
                    biased;
                    () = sleep_until(round) => break,
                    event = next_event(&mut self.process) => self.on_event(event, &mut Some(&mut **output)),
                }
            }
            shell_lost = round == give_up && !self.has_ended();
        }
        shell_lost |= self.process.is_none();
        if shell_lost && let Some(process) = self.process.take() {
            process.kill(KILL_PATIENCE).await;
        }
        self.kill_stragglers(give_up).await;
        Ending::Cancelled { shell_lost }
    }

    /// Kills the shell and everything that ever came of it, in half a second, whatever hangs.
    pub(super) async fn kill(&mut self) -> Ending {
        if let Some(process) = self.process.take() {
            process.kill_all(KILL_PATIENCE).await;
        }
        Ending::Cancelled { shell_lost: true }
    }

    fn has_ended(&self) -> bool {
        self.running.as_ref().is_none_or(|running| running.ending().is_some())
    }

    /// A shell that ignores SIGINT would go on with the rest of the script when what it waits for is killed.
    fn ignores_interrupt(&self) -> bool {
        self.running.as_ref().is_some_and(|running| baseline::ignores_interrupt(running.baseline().shell()))
    }

    /// SIGINT first: it is what makes a shell give up the rest of its script, and it has it before it can notice that
    /// the process it waits for is dead.
    fn kill_once(&self) {
        let (Some(process), Some(running)) = (&self.process, &self.running) else { return };
        let shell = running.baseline().shell();
        baseline::send(shell, Signal::SIGINT);
        if let Some(group) = process.foreground_group().filter(|&group| group != shell) {
            baseline::send_to_group(group, Signal::SIGKILL);
        }
        running.baseline().kill_new();
    }

    /// What was forked while the last were killed. Bounded: a fork bomb may be quicker than we are, and a process that
    /// hangs in the kernel dies when it can.
    async fn kill_stragglers(&mut self, give_up: Instant) {
        while self.running.as_ref().is_some_and(|running| running.baseline().kill_new())
            && Instant::now() < give_up
        {
            sleep(CANCEL_ROUND).await;
        }
    }
}

//! Waits for the shell's prompt, and starts a new shell if the previous one has exited. Runs nothing of the user's, so that a
//! failure can be retried.

use std::pin::pin;
use std::time::Duration;

use tokio::time::sleep;

use super::super::shell_process::{ShellEvent, ShellProcess};
use super::super::start_error::StartError;
use super::{KILL_TIMEOUT, Session, next_event};

/// A shell without startup files takes milliseconds.
const START_TIMEOUT: Duration = Duration::from_secs(10);

impl Session {
    /// Waits until the shell accepts a command.
    pub(super) async fn make_ready(&mut self) -> Result<(), StartError> {
        let mut is_new = self.process.is_none();
        if is_new {
            self.start_process()?;
        }
        let stop = self.stop.clone();
        let mut timeout = pin!(sleep(START_TIMEOUT));
        loop {
            if self.process.as_mut().is_some_and(ShellProcess::make_ready) {
                return Ok(());
            }
            tokio::select! {
                event = next_event(&mut self.process) => {
                    let exited = if let ShellEvent::Exited { status, .. } = event { Some(status) } else { None };
                    self.on_event(event, &mut None);
                    match exited {
                        Some(status) if is_new => return Err(StartError::Ended { status }),
                        Some(_) => {
                            self.start_process()?;
                            is_new = true;
                        }
                        None => {}
                    }
                }
                () = &mut timeout => {
                    // The next command starts a new shell.
                    if let Some(process) = self.process.take() {
                        process.kill(KILL_TIMEOUT).await;
                    }
                    return Err(StartError::NoPrompt(START_TIMEOUT));
                }
                () = stop.cancelled() => return Err(StartError::Stopped),
            }
        }
    }

    /// Starts a shell in the working directory of the previous one, or in the initial one.
    pub(super) fn start_process(&mut self) -> Result<(), StartError> {
        let working_dir = self.shared.working_dir.borrow().clone();
        // A command may have removed the working directory.
        let folders = [working_dir.as_path(), self.config.working_dir.as_path(), "/".as_ref()];
        let folder = folders.into_iter().find(|folder| folder.is_dir()).unwrap_or("/".as_ref());
        let process = ShellProcess::start(
            &self.program,
            &self.config.environment.current(),
            folder,
            &self.config.scratch_dir,
        )
        .map_err(|source| StartError::Spawn { program: self.program.path.clone(), source })?;
        self.process = Some(process);
        Ok(())
    }
}

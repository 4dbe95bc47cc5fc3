//! Getting a session's shell to its prompt, and a new one when the old one is gone.
//!
//! It runs nothing of the user's: whatever fails here may be tried again.

use std::pin::pin;
use std::time::Duration;

use tokio::time::sleep;

use super::super::shell_process::{Event, ShellProcess};
use super::super::start_error::StartError;
use super::{KILL_PATIENCE, Session, next_event};

/// A shell without startup files needs milliseconds; on a machine that is this slow nothing works.
const START_PATIENCE: Duration = Duration::from_secs(10);

impl Session {
    /// A shell that takes a command.
    pub(super) async fn make_ready(&mut self) -> Result<(), StartError> {
        let mut fresh = self.process.is_none();
        if fresh {
            self.start_process()?;
        }
        let stop = self.stop.clone();
        let mut patience = pin!(sleep(START_PATIENCE));
        loop {
            if self.process.as_mut().is_some_and(ShellProcess::make_ready) {
                return Ok(());
            }
            tokio::select! {
                event = next_event(&mut self.process) => {
                    let exited = if let Event::Exited { status, .. } = event { Some(status) } else { None };
                    self.on_event(event, &mut None);
                    match exited {
                        Some(status) if fresh => return Err(StartError::Ended { status }),
                        Some(_) => {
                            self.start_process()?;
                            fresh = true;
                        }
                        None => {}
                    }
                }
                () = &mut patience => {
                    // The next command tries a new one.
                    if let Some(process) = self.process.take() {
                        process.kill(KILL_PATIENCE).await;
                    }
                    return Err(StartError::NoPrompt(START_PATIENCE));
                }
                () = stop.cancelled() => return Err(StartError::Stopped),
            }
        }
    }

    /// A shell where the last one was, or where the session began.
    pub(super) fn start_process(&mut self) -> Result<(), StartError> {
        let here = self.told.working_dir.borrow().clone();
        // A command may have removed the folder it was in.
        let folders = [here.as_path(), self.config.working_dir.as_path(), "/".as_ref()];
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

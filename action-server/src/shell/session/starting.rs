//! Waits for the shell's prompt, and starts a new shell if the previous one has exited. Runs
//! nothing of the user's, so that a failure can be retried.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::super::shell_process::{ShellEvent, ShellProcess};
use super::super::start_error::StartError;
use super::{KILL_TIMEOUT, Session, next_event, until};

/// A shell without startup files takes milliseconds.
const START_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) const STARTUP_FILES_ENDED: &str = "The start-up files of the shell (such as ~/.bashrc) exited or replaced it, so it runs without them.";

const STARTUP_FILES_HUNG: &str = "The start-up files of the shell (such as ~/.bashrc) did not end in time, so it runs without them.";

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
            let startup_deadline = self.startup_deadline();
            tokio::select! {
                event = next_event(&mut self.process) => {
                    let read_startup_files = self.startup_deadline().is_some();
                    let exited = if let ShellEvent::Exited { status, .. } = event { Some(status) } else { None };
                    self.on_event(event, &mut None);
                    match exited {
                        Some(_) if read_startup_files => {
                            self.start_process()?;
                            timeout.as_mut().reset(Instant::now() + START_TIMEOUT);
                        }
                        Some(status) if is_new => return Err(StartError::Ended { status }),
                        Some(_) => {
                            self.start_process()?;
                            is_new = true;
                        }
                        None => {}
                    }
                }
                () = until(startup_deadline) => {
                    self.stop_startup_files().await;
                    self.start_process()?;
                    timeout.as_mut().reset(Instant::now() + START_TIMEOUT);
                }
                () = &mut timeout, if startup_deadline.is_none() => {
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

    /// Returns when the shell must have read its start-up files. `None` if it is not reading them.
    pub(super) fn startup_deadline(&self) -> Option<Instant> {
        self.process
            .as_ref()
            .and_then(ShellProcess::startup_deadline)
    }

    /// Kills a shell whose start-up files do not end.
    pub(super) async fn stop_startup_files(&mut self) {
        self.kill().await;
        self.skip_startup_files(STARTUP_FILES_HUNG);
    }

    /// Starts no more shells with the start-up files, and informs the agent with the next command.
    pub(super) fn skip_startup_files(&mut self, note: &'static str) {
        tracing::warn!("{note}");
        self.shared
            .skips_startup_files
            .store(true, Ordering::Relaxed);
        self.note = Some(note);
    }

    /// Starts a shell in the working directory of the previous one, or in the initial one.
    pub(super) fn start_process(&mut self) -> Result<(), StartError> {
        let working_dir = self.shared.working_dir.borrow().clone();
        // A command may have removed the working directory.
        let folders = [
            working_dir.as_path(),
            self.config.working_dir.as_path(),
            "/".as_ref(),
        ];
        let folder = folders
            .into_iter()
            .find(|folder| folder.is_dir())
            .unwrap_or("/".as_ref());
        let process = ShellProcess::start(
            &self.program,
            &self.config.environment.current(),
            folder,
            self.shared.skips_startup_files.load(Ordering::Relaxed),
        )
        .map_err(|source| StartError::Spawn {
            program: self.program.path.clone(),
            source,
        })?;
        self.process = Some(process);
        Ok(())
    }
}

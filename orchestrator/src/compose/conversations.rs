//! The application layer on the state folder, which holds its workspaces.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::Context as _;
use async_trait::async_trait;
use conversations::{HostError, Workspaces};
use protocol::ConversationId;
use protocol::record::ConversationStarted;

use super::StateDir;
use crate::config::{Config, Overrides, UnknownRuntime};
use crate::exit::UsageError;
use crate::workspace;

/// Converts an error for the application layer, which distinguishes those that the user can correct.
pub(crate) fn host_error(error: anyhow::Error) -> HostError {
    match error.downcast::<UsageError>() {
        Ok(UsageError(text)) => HostError::Refused(text),
        Err(error) => HostError::Failed(error.into()),
    }
}

#[async_trait]
impl Workspaces for StateDir {
    async fn fork(
        &self,
        from: &ConversationId,
        recorded: Option<&str>,
        to: &ConversationId,
    ) -> Result<Option<String>, HostError> {
        let Some(own) = self.workspace_in_log(from, recorded) else { return Ok(None) };
        workspace::check_not_replaced("workspace", &own).map_err(|error| host_error(error.into()))?;
        let copy = self.workspace(to).map_err(host_error)?;
        if own.exists() {
            copy_tree(&own, &copy).await.map_err(host_error)?;
        }
        Ok(Some(copy.to_string_lossy().into_owned()))
    }

    fn is_empty(&self, conversation: &ConversationId) -> bool {
        let entries = self.workspace_path(conversation).read_dir();
        entries.is_ok_and(|mut entries| entries.next().is_none())
    }

    fn remove_if_empty(&self, conversation: &ConversationId) {
        // Fails on a folder that is not empty.
        let _ = std::fs::remove_dir(self.workspace_path(conversation));
    }

    fn remove(&self, conversation: &ConversationId) -> Result<(), HostError> {
        let path = self.workspace_path(conversation);
        match std::fs::remove_dir_all(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                let error = anyhow::Error::new(error);
                Err(host_error(error.context(format!("cannot remove the folder {}", path.display()))))
            }
            _ => Ok(()),
        }
    }
}

/// Copies a folder with owners, modes and links. Runs `cp`, because the standard library copies only contents and modes.
async fn copy_tree(from: &Path, to: &Path) -> anyhow::Result<()> {
    let copying = || format!("copying the workspace {} to {}", from.display(), to.display());
    let mut copy = tokio::process::Command::new("cp");
    copy.arg("-a").arg("--").arg(from.join(".")).arg(to).kill_on_drop(true);
    let copied = copy.output().await.with_context(copying)?;
    if !copied.status.success() {
        anyhow::bail!("{}: {}", copying(), String::from_utf8_lossy(&copied.stderr).trim_end());
    }
    Ok(())
}

/// Sets the runtime, model and network of a stored conversation, unless the command line names others.
pub(crate) fn restore_settings(
    config: &mut Config,
    started: &ConversationStarted,
    overrides: &Overrides,
) -> Result<(), UsageError> {
    if overrides.runtime.is_none() {
        config.runtime =
            started.runtime.parse().map_err(|error: UnknownRuntime| UsageError(error.to_string()))?;
    }
    config.sandbox.set_network(overrides.network.clone().or_else(|| started.network.clone()));
    if overrides.model.is_none() {
        config.llm.model = Some(started.model.clone());
    }
    Ok(())
}

//! The application layer on the state folder, which holds its workspaces.

use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::Context as _;
use async_trait::async_trait;
use conversations::{HostError, Workspaces};
use protocol::ConversationId;
use protocol::record::ConversationStarted;
use remove_folder::{ProtectedFolders, remove_folder};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::StateDir;
use super::user_model::OPERATORS_MODEL;
use crate::config::{Config, Overrides, Runtime, UnknownRuntime};
use crate::exit::UsageError;
use crate::{untrusted_folder, workspace};

/// Maximum number of concurrent copies of workspaces: each has a blocking thread and up to 260
/// descriptors.
static COPIES: Semaphore = Semaphore::const_new(4);

/// Maximum number of concurrent removals of workspaces. Each has a blocking thread and up to 66
/// descriptors. A user of a server has at most a quarter of them.
static REMOVALS: Semaphore = Semaphore::const_new(16);

/// Converts an error for the application layer, which distinguishes those that the user can
/// correct.
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
        let Some(own) = self.workspace_in_log(from, recorded) else {
            return Ok(None);
        };
        workspace::check_not_replaced("workspace", &own)
            .map_err(|error| host_error(error.into()))?;
        let copy = self.workspace(to).map_err(host_error)?;
        if own.exists() {
            copy_workspace(own, copy.clone())
                .await
                .map_err(host_error)?;
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

    async fn remove(&self, conversation: &ConversationId) -> Result<(), HostError> {
        let path = self.workspace_path(conversation);
        let context = format!("cannot remove the folder {}", path.display());
        let permit = REMOVALS.acquire().await;
        let removed = spawn_blocking(move || {
            let _permit = permit;
            match remove_folder(&path, ProtectedFolders::Remove) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
        });
        let removed = removed.await.map_err(anyhow::Error::from);
        removed
            .and_then(|removed| removed.context(context))
            .map_err(host_error)
    }
}

/// Copies a workspace, which a sandbox may be changing. Leaves no incomplete copy behind, also if
/// the caller is dropped.
async fn copy_workspace(from: PathBuf, to: PathBuf) -> anyhow::Result<()> {
    let context = format!(
        "cannot copy the workspace {} to {}",
        from.display(),
        to.display()
    );
    let permit = COPIES.acquire().await?;
    let cancelled = CancellationToken::new();
    let _cancel_on_drop = cancelled.clone().drop_guard();
    let copied = spawn_blocking(move || {
        let _permit = permit;
        untrusted_folder::copy_contents(&from, &to, &cancelled).inspect_err(|_| {
            let _ = remove_folder(&to, ProtectedFolders::Remove);
        })
    });
    copied.await?.context(context)
}

/// Sets the runtime, its host, the model and the network of a stored conversation, unless the
/// command line names others. The host stays: the conversation's files are there.
pub(crate) fn restore_settings(
    config: &mut Config,
    started: &ConversationStarted,
    overrides: &Overrides,
) -> Result<(), UsageError> {
    if overrides.runtime.is_none() {
        config.runtime = started
            .runtime
            .parse()
            .map_err(|error: UnknownRuntime| UsageError(error.to_string()))?;
    }
    if let Some(host) = started
        .host
        .clone()
        .filter(|_| config.runtime == Runtime::Ssh)
    {
        if let Some(other) = overrides.ssh_host.as_ref().filter(|other| **other != host) {
            return Err(UsageError(format!(
                "the files of the conversation are on the host {host}, not on {other}: omit --host; if the machine has another \
                 address now, enter that under the name {host} in ~/.ssh/config"
            )));
        }
        config.sandbox.ssh.target = Some(host);
    }
    config.sandbox.set_network(
        overrides
            .network
            .clone()
            .or_else(|| started.network.clone()),
    );
    // A server's script is the one of the configuration.
    if overrides.model.is_none() && started.model != OPERATORS_MODEL {
        config.llm.model = Some(started.model.clone());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn incomplete_copy_of_a_workspace_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
        std::fs::create_dir_all(from.join("d/".repeat(200))).unwrap();
        std::fs::create_dir(&to).unwrap();
        let error = copy_workspace(from.clone(), to.clone()).await.unwrap_err();
        assert!(format!("{error:#}").contains("folders deep"), "{error:#}");
        assert!(!to.exists());
        std::fs::create_dir(&to).unwrap();
        std::fs::remove_dir_all(from.join("d")).unwrap();
        std::fs::write(from.join("file"), "text").unwrap();
        copy_workspace(from, to.clone()).await.unwrap();
        assert_eq!(std::fs::read_to_string(to.join("file")).unwrap(), "text");
    }

    #[test]
    fn host_of_a_stored_conversation_stays() {
        let started = ConversationStarted {
            runtime: "ssh".into(),
            host: Some("one".into()),
            ..Default::default()
        };
        let restored = |ssh_host: Option<&str>| {
            let overrides = Overrides {
                ssh_host: ssh_host.map(str::to_owned),
                without_folder_file: true,
                ..Overrides::default()
            };
            let home = |name: &str| (name == "HOME").then(|| "/nowhere".to_owned());
            let mut config = Config::load(&overrides, home).unwrap();
            restore_settings(&mut config, &started, &overrides).map(|()| config.sandbox.ssh.target)
        };
        for host in [None, Some("one")] {
            assert_eq!(restored(host).unwrap().as_deref(), Some("one"), "{host:?}");
        }
        let refused = restored(Some("two")).unwrap_err().to_string();
        assert!(refused.contains("on the host one, not on two"), "{refused}");
    }
}

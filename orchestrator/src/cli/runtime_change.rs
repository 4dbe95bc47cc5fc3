//! The change of a stored conversation to another runtime.

use engine::sandbox::SandboxError;
use protocol::ConversationId;
use protocol::record::{ConversationStarted, SandboxLeased};

use super::print;
use crate::compose::{self, StateDir};
use crate::config::{Config, Runtime, UnknownRuntime};
use crate::exit::UsageError;

/// A change between runtimes that mount the same workspace.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RuntimeChange {
    from: Runtime,
}

impl RuntimeChange {
    /// Changes the runtime in the settings of a conversation. `None` if it stays the same.
    ///
    /// Fails if one of the runtimes keeps workspaces on another machine: the agent would find none
    /// of its files, or the path would name another folder.
    pub(super) fn new(
        id: &ConversationId,
        started: &mut ConversationStarted,
        to: Runtime,
    ) -> Result<Option<Self>, UsageError> {
        let from: Runtime = started
            .runtime
            .parse()
            .map_err(|error: UnknownRuntime| UsageError(error.to_string()))?;
        if from == to {
            return Ok(None);
        }
        if let Some(other) = [from, to]
            .into_iter()
            .find(|runtime| runtime.is_on_other_machine())
        {
            return Err(UsageError(format!(
                "cannot change the runtime of conversation {id} from {from} to {to}: sandboxes of {other} have their files on \
                 another machine; start a new conversation with `glovebox run --runtime {to}`"
            )));
        }
        started.runtime = to.to_string();
        Ok(Some(Self { from }))
    }

    /// Removes the sandbox of the earlier runtime, whose processes could still write to the
    /// workspace. A failure is a warning: perhaps that runtime is not available any more, which is
    /// why the user changes it.
    pub(super) async fn remove_sandbox(
        &self,
        config: &Config,
        state_dir: &StateDir,
        lease: Option<&SandboxLeased>,
    ) {
        let Some(SandboxLeased { sandbox_id, .. }) = lease else {
            return;
        };
        let config = Config {
            runtime: self.from,
            ..config.clone()
        };
        let removed = match compose::provider(&config, state_dir) {
            Ok(provider) => provider
                .destroy(sandbox_id)
                .await
                .map_err(|error: SandboxError| error.into()),
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            print::warning(&format!(
                "cannot remove the sandbox {sandbox_id} of {}, whose programs may still change the workspace: {error:#}",
                self.from
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(from: &str, to: Runtime) -> (Result<Option<RuntimeChange>, String>, String) {
        let mut started = ConversationStarted {
            runtime: from.to_owned(),
            ..Default::default()
        };
        let change = RuntimeChange::new(&"one".parse().unwrap(), &mut started, to);
        (change.map_err(|error| error.to_string()), started.runtime)
    }

    #[test]
    fn runtime_changes_only_between_those_of_this_machine() {
        assert_eq!(
            change("docker", Runtime::Docker),
            (Ok(None), "docker".to_owned())
        );
        let changed = RuntimeChange {
            from: Runtime::Docker,
        };
        assert_eq!(
            change("docker", Runtime::Local),
            (Ok(Some(changed)), "local".to_owned())
        );
        for (from, to) in [
            ("ssh", Runtime::Local),
            ("docker", Runtime::Remote),
            ("ssh", Runtime::Remote),
        ] {
            let (refused, runtime) = change(from, to);
            assert!(
                refused.unwrap_err().contains("on another machine"),
                "{from}"
            );
            assert_eq!(runtime, from);
        }
    }
}

//! One runtime, with the configuration and the state folder that its sandboxes need.

use std::sync::Arc;

use engine::sandbox::{
    Lifetime, Sandbox, SandboxError, SandboxProvider, SandboxState, SandboxSummary,
};

use super::arguments::RuntimeChoice;
use super::name::{SandboxName, display_name};
use crate::cli::{prepare, prepare_existing, print};
use crate::compose::{self, Lock, StateDir};
use crate::config::{Config, Overrides, Runtime};
use crate::exit::UsageError;

/// A runtime that provisions sandboxes.
pub(super) struct SandboxRuntime {
    pub(super) config: Config,
    pub(super) state_dir: StateDir,
    pub(super) provider: Arc<dyn SandboxProvider>,
}

impl SandboxRuntime {
    /// Opens the chosen runtime to create a sandbox.
    pub(super) async fn open(
        choice: &RuntimeChoice,
        overrides: &Overrides,
    ) -> anyhow::Result<Self> {
        let (config, state_dir) = prepare(&choice.overrides(overrides)).await?;
        Self::new(config, state_dir)
    }

    /// Opens the chosen runtime to use its existing sandboxes.
    pub(super) async fn open_existing(
        choice: &RuntimeChoice,
        overrides: &Overrides,
    ) -> anyhow::Result<Self> {
        let (config, state_dir) = prepare_existing(&choice.overrides(overrides)).await?;
        Self::new(config, state_dir)
    }

    fn new(config: Config, state_dir: StateDir) -> anyhow::Result<Self> {
        let provider = compose::provider(&config, &state_dir)?;
        Ok(Self {
            config,
            state_dir,
            provider,
        })
    }

    /// Finds a sandbox by its full name. `None` if there is none.
    pub(super) async fn find(&self, name: &SandboxName) -> anyhow::Result<Option<SandboxSummary>> {
        let id = name.sandbox()?;
        let listed = print::with_notice("the list of sandboxes", self.provider.list()).await?;
        Ok(listed.into_iter().find(|summary| summary.sandbox == id))
    }

    /// Connects to a sandbox. Fails if it is not running.
    pub(super) async fn connect(
        &self,
        summary: &SandboxSummary,
    ) -> anyhow::Result<Box<dyn Sandbox>> {
        let name = display_name(summary);
        match summary.condition {
            SandboxState::Running => Ok(self.provider.find(&summary.sandbox).await?),
            SandboxState::Paused => {
                let text = format!(
                    "the sandbox {name} is paused: `glovebox sandbox resume {name}` resumes it"
                );
                Err(UsageError(text).into())
            }
            // The runtime may know the cause, such as a lack of memory.
            SandboxState::Ended => match self.provider.find(&summary.sandbox).await {
                // A service has no logs.
                Err(SandboxError::Lost { detail }) if self.config.runtime != Runtime::Remote => {
                    Err(SandboxError::Lost {
                        detail: format!("{detail}; `glovebox sandbox logs {name}` may say more"),
                    }
                    .into())
                }
                found => Ok(found?),
            },
        }
    }

    /// Locks the conversation of a sandbox. Fails if another process runs the conversation. `None`
    /// for a sandbox without a conversation.
    pub(super) fn lock_conversation(
        &self,
        summary: &SandboxSummary,
    ) -> anyhow::Result<Option<Lock>> {
        match (&summary.conversation, summary.lifetime) {
            (Some(conversation), Lifetime::Conversation) => {
                self.state_dir.lock(conversation).map(Some)
            }
            _ => Ok(None),
        }
    }
}

//! The configuration and the provider of one runtime, which all commands of `glovebox sandbox` need.

use std::sync::Arc;

use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use engine::sandbox::{Lifetime, Sandbox, SandboxError, SandboxProvider, SandboxState, SandboxSummary};

use super::name::Name;
use crate::cli::{candidates, prepare};
use crate::compose::{self, Lock, StateDir};
use crate::config::{Config, Overrides, Runtime};
use crate::exit::UsageError;

/// Which runtime is meant.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct At {
    /// The runtime of the sandbox: docker, local, ssh, remote, or auto (docker if it answers, else local). Without it a
    /// sandbox that is there is found wherever it is.
    #[arg(long, value_name = "RUNTIME", add = ArgValueCandidates::new(candidates::runtimes))]
    pub(super) runtime: Option<Runtime>,

    /// The machine for --runtime ssh: user@host:port, or a name from ~/.ssh/config.
    #[arg(long, value_name = "HOST")]
    pub(super) host: Option<String>,
}

/// One sandbox.
#[derive(Debug, clap::Args)]
pub(super) struct OneSandbox {
    /// The sandbox.
    #[arg(add = ArgValueCompleter::new(candidates::sandboxes))]
    pub(super) name: Name,

    #[command(flatten)]
    pub(super) at: At,
}

/// One or more.
#[derive(Debug, clap::Args)]
pub(super) struct SomeSandboxes {
    /// The sandboxes.
    #[arg(required = true, value_name = "NAME", add = ArgValueCompleter::new(candidates::sandboxes))]
    pub(super) names: Vec<Name>,

    #[command(flatten)]
    pub(super) at: At,
}

/// A runtime that provisions sandboxes.
pub(super) struct Host {
    pub(super) config: Config,
    pub(super) state_dir: StateDir,
    pub(super) provider: Arc<dyn SandboxProvider>,
}

impl Host {
    pub(super) async fn open(at: &At, overrides: &Overrides) -> anyhow::Result<Self> {
        let At { runtime, host } = at.clone();
        let (config, state_dir) =
            prepare(&Overrides { runtime, ssh_host: host, ..overrides.clone() }).await?;
        let provider = compose::provider(&config, &state_dir)?;
        Ok(Self { config, state_dir, provider })
    }

    /// Finds a sandbox by name. `None` if there is none.
    pub(super) async fn find(&self, name: &Name) -> anyhow::Result<Option<SandboxSummary>> {
        let sandbox = name.sandbox()?;
        Ok(self.provider.list().await?.into_iter().find(|placed| placed.sandbox == sandbox))
    }

    /// Connects to a sandbox. Fails if it is not running.
    pub(super) async fn connect(&self, placed: &SandboxSummary) -> anyhow::Result<Box<dyn Sandbox>> {
        let name = Name::of(placed);
        match placed.condition {
            SandboxState::Running => Ok(self.provider.find(&placed.sandbox).await?),
            SandboxState::Paused => {
                let text =
                    format!("the sandbox {name} is paused: `glovebox sandbox resume {name}` lets it go on");
                Err(UsageError(text).into())
            }
            SandboxState::Ended => Err(SandboxError::Lost {
                detail: format!("the server of {name} has ended; `glovebox sandbox logs {name}` may say why"),
            }
            .into()),
        }
    }

    /// Fails while another process works on the conversation whose sandbox this is.
    pub(super) fn lock_if_of_a_conversation(&self, placed: &SandboxSummary) -> anyhow::Result<Option<Lock>> {
        match (&placed.conversation, placed.lifetime) {
            (Some(conversation), Lifetime::Conversation) => self.state_dir.lock(conversation).map(Some),
            _ => Ok(None),
        }
    }
}

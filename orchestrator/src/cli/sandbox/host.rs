//! What every command begins with: the configuration, the runtime's provider, and the sandbox that is meant.

use std::sync::Arc;

use clap_complete::engine::ArgValueCompleter;
use engine::sandbox::{Condition, Lifetime, Placed, Sandbox, SandboxError, SandboxProvider};

use super::name::Name;
use crate::cli::conversation_id::meant;
use crate::cli::{completions, prepare};
use crate::compose::{self, Lock, StateDir};
use crate::config::{Config, Overrides};
use crate::exit::UsageError;

/// Which runtime is meant.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct At {
    /// The runtime of the sandbox: docker, local, ssh, remote, or auto (docker if it answers, else local).
    #[arg(long, value_name = "RUNTIME")]
    pub(super) runtime: Option<String>,

    /// The machine for --runtime ssh: user@host:port, or a name from ~/.ssh/config.
    #[arg(long, value_name = "HOST")]
    pub(super) host: Option<String>,
}

/// One sandbox.
#[derive(Debug, clap::Args)]
pub(super) struct OneSandbox {
    /// The sandbox.
    #[arg(add = ArgValueCompleter::new(completions::sandboxes))]
    pub(super) name: Name,

    #[command(flatten)]
    pub(super) at: At,
}

/// One or more.
#[derive(Debug, clap::Args)]
pub(super) struct SomeSandboxes {
    /// The sandboxes.
    #[arg(required = true, value_name = "NAME", add = ArgValueCompleter::new(completions::sandboxes))]
    pub(super) names: Vec<Name>,

    #[command(flatten)]
    pub(super) at: At,
}

/// The side that places sandboxes.
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

    /// The same for each runtime that may have sandboxes, beside the configured one: docker, local, and those that the
    /// configuration says how to reach. What keeps one of them from being asked is told with its name.
    pub(super) fn of_all_runtimes(self) -> (Vec<Self>, Vec<(&'static str, anyhow::Error)>) {
        let sandbox = &self.config.sandbox;
        let is_remote = sandbox.remote.server_url.is_some() || sandbox.remote.api_url.is_some();
        let known =
            [("docker", true), ("local", true), ("ssh", sandbox.ssh.target.is_some()), ("remote", is_remote)];
        let (mut all, mut failed) = (Vec::new(), Vec::new());
        for (name, _) in
            known.into_iter().filter(|(name, may_have)| *may_have && *name != self.config.runtime)
        {
            let mut config = Config { runtime: name.to_owned(), ..self.config.clone() };
            // Nobody is asked about a machine that was not named.
            config.sandbox.ssh.unknown_hosts = Some("refuse".into());
            match compose::provider(&config, &self.state_dir) {
                Ok(provider) => all.push(Self { config, state_dir: self.state_dir.clone(), provider }),
                Err(error) => failed.push((name, error)),
            }
        }
        all.push(self);
        (all, failed)
    }

    /// The sandbox of this name, if there is one.
    pub(super) async fn find(&self, name: &Name) -> anyhow::Result<Option<Placed>> {
        let sandbox = name.sandbox()?;
        Ok(self.provider.list().await?.into_iter().find(|placed| placed.sandbox == sandbox))
    }

    /// The sandbox of this name, which there must be. Of a conversation's, which has its id, the beginning is enough.
    pub(super) async fn existing(&self, name: &Name) -> anyhow::Result<Placed> {
        let name = name.to_string();
        let mut all = self.provider.list().await?;
        all.retain(|placed| placed.lifetime == Lifetime::Conversation || Name::of(placed) == name);
        let names: Vec<_> = all.iter().map(Name::of).collect();
        let place = meant("sandboxes", &name, names.iter().map(String::as_str))?;
        place.and_then(|place| all.into_iter().nth(place)).ok_or_else(|| {
            let runtime = self.provider.runtime();
            let text = format!(
                "there is no sandbox {name} at the runtime {runtime}: `glovebox sandbox ls` lists those of every runtime, and \
                 --runtime chooses another"
            );
            UsageError(text).into()
        })
    }

    /// Speaks with the sandbox of this name, which must run.
    pub(super) async fn connect(&self, name: &Name) -> anyhow::Result<Box<dyn Sandbox>> {
        let placed = self.existing(name).await?;
        match placed.condition {
            Condition::Running => Ok(self.provider.find(&placed.sandbox).await?),
            Condition::Paused => {
                let text =
                    format!("the sandbox {name} is paused: `glovebox sandbox resume {name}` lets it go on");
                Err(UsageError(text).into())
            }
            Condition::Ended => Err(SandboxError::Lost {
                detail: format!("the server of {name} has ended; `glovebox sandbox logs {name}` may say why"),
            }
            .into()),
        }
    }

    /// Fails while another process works on the conversation whose sandbox this is.
    pub(super) fn lock_if_of_a_conversation(&self, placed: &Placed) -> anyhow::Result<Option<Lock>> {
        match (&placed.conversation, placed.lifetime) {
            (Some(conversation), Lifetime::Conversation) => self.state_dir.lock(conversation).map(Some),
            _ => Ok(None),
        }
    }
}

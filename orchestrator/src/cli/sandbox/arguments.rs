//! Arguments that the commands of `glovebox sandbox` share.

use std::sync::Arc;

use clap::builder::NonEmptyStringValueParser;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use engine::sandbox::{Sandbox, SandboxSummary};

use super::name::SandboxName;
use super::runtime::SandboxRuntime;
use super::runtimes::SandboxRuntimes;
use crate::cli::candidates;
use crate::config::{Overrides, Runtime};

/// A runtime.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct RuntimeChoice {
    /// Runtime of the sandbox: docker, local, ssh, remote, or auto (docker if an engine answers,
    /// else local). By default, new sandboxes use the configured runtime, and existing ones are
    /// searched for in all runtimes.
    #[arg(long, value_name = "RUNTIME", add = ArgValueCandidates::new(candidates::runtimes))]
    pub(super) runtime: Option<Runtime>,

    /// Host of the runtime ssh: user@host:port, or a name from ~/.ssh/config.
    #[arg(long, value_name = "HOST", value_parser = NonEmptyStringValueParser::new())]
    pub(super) host: Option<String>,
}

impl RuntimeChoice {
    /// Adds the choice to the overrides of the configuration.
    pub(super) fn overrides(&self, overrides: &Overrides) -> Overrides {
        Overrides {
            runtime: self.runtime,
            ssh_host: self.host.clone(),
            ..overrides.clone()
        }
    }
}

/// One existing sandbox.
#[derive(Debug, clap::Args)]
pub(super) struct SandboxChoice {
    /// Name of the sandbox.
    #[arg(add = ArgValueCompleter::new(candidates::sandboxes))]
    pub(super) name: SandboxName,

    #[command(flatten)]
    runtime: RuntimeChoice,
}

/// One or more existing sandboxes.
#[derive(Debug, clap::Args)]
pub(super) struct SandboxesChoice {
    /// Names of the sandboxes.
    #[arg(required = true, value_name = "NAME", add = ArgValueCompleter::new(candidates::sandboxes))]
    pub(super) names: Vec<SandboxName>,

    #[command(flatten)]
    pub(super) runtime: RuntimeChoice,
}

impl SandboxChoice {
    /// Finds the sandbox. Fails if it does not exist.
    pub(super) async fn find(
        &self,
        overrides: &Overrides,
    ) -> anyhow::Result<(Arc<SandboxRuntime>, SandboxSummary)> {
        SandboxRuntimes::open(&self.runtime, overrides)
            .await?
            .find(&self.name)
            .await
    }

    /// Connects to the sandbox. Fails if it is not running.
    pub(super) async fn connect(
        &self,
        overrides: &Overrides,
    ) -> anyhow::Result<(Arc<SandboxRuntime>, Box<dyn Sandbox>)> {
        SandboxRuntimes::open(&self.runtime, overrides)
            .await?
            .connect(&self.name)
            .await
    }
}

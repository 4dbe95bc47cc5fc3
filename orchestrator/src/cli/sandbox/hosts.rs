//! The runtimes among which a sandbox is looked for: the one that was asked for, or all that may have some.

use std::time::Duration;

use conversations::find_by_prefix;
use engine::sandbox::{Lifetime, Sandbox, SandboxSummary};
use futures_util::future::join_all;
use tokio::time::timeout;

use super::host::{At, Host};
use super::name::Name;
use crate::cli::print;
use crate::compose;
use crate::config::{Config, Overrides, Runtime, UnknownHostPolicy};
use crate::exit::{Exit, UsageError};

/// How long one runtime may keep those of the others from being shown.
const PATIENCE: Duration = Duration::from_secs(20);

/// One or more.
pub(super) struct Hosts {
    /// The configured runtime's.
    first: Host,
    others: Vec<Host>,
    /// What cannot even be asked.
    failed: Vec<Silent>,
}

/// A runtime that does not tell what it has, and why.
type Silent = (&'static str, anyhow::Error);

/// A runtime that does, and what it has.
pub(super) type Answered<'a> = (&'a Host, Vec<SandboxSummary>);

impl Hosts {
    pub(super) async fn open(at: &At, overrides: &Overrides) -> anyhow::Result<Self> {
        let first = Host::open(at, overrides).await?;
        Ok(if at.runtime.is_some() { Self::alone(first) } else { Self::with_others(first) })
    }

    /// No other runtime.
    pub(super) fn alone(first: Host) -> Self {
        Self { first, others: Vec::new(), failed: Vec::new() }
    }

    /// Beside the configured runtime: docker, local, and those that the configuration says how to reach.
    pub(super) fn with_others(first: Host) -> Self {
        let sandbox = &first.config.sandbox;
        let is_remote = sandbox.remote.server_url.is_some() || sandbox.remote.api_url.is_some();
        let known = [
            (Runtime::Docker, true),
            (Runtime::Local, true),
            (Runtime::Ssh, sandbox.ssh.target.is_some()),
            (Runtime::Remote, is_remote),
        ];
        let (mut others, mut failed) = (Vec::new(), Vec::new());
        for (runtime, _) in
            known.into_iter().filter(|(runtime, may_have)| *may_have && *runtime != first.config.runtime)
        {
            let mut config = Config { runtime, ..first.config.clone() };
            // Nobody is asked about a machine that was not named.
            config.sandbox.ssh.unknown_hosts = Some(UnknownHostPolicy::Refuse);
            match compose::provider(&config, &first.state_dir) {
                Ok(provider) => others.push(Host { config, state_dir: first.state_dir.clone(), provider }),
                Err(error) => failed.push((runtime.name(), error)),
            }
        }
        Self { first, others, failed }
    }

    /// The configured runtime's.
    pub(super) fn first(&self) -> &Host {
        &self.first
    }

    /// Those that answer within this time, and of the others why they do not: the configured one's reason first.
    pub(super) async fn ask(&self, patience: Duration) -> (Vec<Answered<'_>>, Vec<Silent>) {
        let all = std::iter::once(&self.first).chain(&self.others);
        let asked = all.map(|host| async move { (host, list(host, patience).await) });
        let (mut answered, mut silent) = (Vec::new(), Vec::new());
        for (host, listed) in join_all(asked).await {
            match listed {
                Ok(placed) => answered.push((host, placed)),
                Err(error) => silent.push((host.provider.runtime(), error)),
            }
        }
        (answered, silent)
    }

    /// Those that answer. Of one that does not, people are told; if none does, that is the error.
    pub(super) async fn answering(&self) -> anyhow::Result<Vec<Answered<'_>>> {
        let (answered, mut silent) = self.ask(PATIENCE).await;
        if answered.is_empty() {
            return Err(silent.swap_remove(0).1);
        }
        for (runtime, error) in silent.iter().chain(&self.failed) {
            print::warning(&format!("{runtime} is left out: {error:#}"));
        }
        Ok(answered)
    }

    /// All sandboxes of those that answer, each with whose it is.
    pub(super) async fn list(&self) -> anyhow::Result<Vec<(&Host, SandboxSummary)>> {
        let answered = self.answering().await?.into_iter();
        Ok(answered.flat_map(|(host, all)| all.into_iter().map(move |placed| (host, placed))).collect())
    }

    /// The sandbox of this name, which there must be: at the configured runtime, or else at another.
    pub(super) async fn existing(&self, name: &Name) -> anyhow::Result<(&Host, SandboxSummary)> {
        let (mut known, mut silent) = (Vec::new(), Vec::new());
        for host in std::iter::once(&self.first).chain(&self.others) {
            let runtime = host.provider.runtime();
            match list(host, PATIENCE).await {
                Ok(all) => {
                    if let Some(placed) = named(&all, name)? {
                        return Ok((host, placed));
                    }
                    known.push(runtime);
                }
                Err(error) => silent.push((runtime, error)),
            }
        }
        if known.is_empty() {
            return Err(silent.swap_remove(0).1);
        }
        let unknown: String =
            silent.iter().map(|(runtime, error)| format!("; {runtime} does not tell: {error:#}")).collect();
        let text = format!(
            "there is no sandbox {name} at {}: `glovebox sandbox ls` lists those there are{unknown}",
            known.join(", ")
        );
        Err(UsageError(text).into())
    }

    /// Those of these names that there are, each once. The others are reported; with one of them the command has failed.
    pub(super) async fn existing_of(
        &self,
        names: &[Name],
    ) -> anyhow::Result<(Vec<(&Host, SandboxSummary)>, Exit)> {
        let (mut existing, mut exit) = (Vec::<(&Host, SandboxSummary)>::new(), Exit::Finished);
        for name in names {
            match self.existing(name).await {
                Ok((_, placed)) if existing.iter().any(|(_, known)| known.sandbox == placed.sandbox) => {}
                Ok(found) => existing.push(found),
                Err(error) => {
                    print::problem(&format!("{error:#}"));
                    exit = Exit::Failed;
                }
            }
        }
        Ok((existing, exit))
    }

    /// Speaks with the sandbox of this name, which must run.
    pub(super) async fn connect(&self, name: &Name) -> anyhow::Result<(&Host, Box<dyn Sandbox>)> {
        let (host, placed) = self.existing(name).await?;
        Ok((host, host.connect(&placed).await?))
    }
}

async fn list(host: &Host, patience: Duration) -> anyhow::Result<Vec<SandboxSummary>> {
    match timeout(patience, host.provider.list()).await {
        Ok(listed) => Ok(listed?),
        Err(_) => anyhow::bail!("it does not answer within {} s", patience.as_secs_f32()),
    }
}

/// The one of this name. Of a conversation's, which has its id, the beginning is enough.
fn named(all: &[SandboxSummary], name: &Name) -> Result<Option<SandboxSummary>, UsageError> {
    let name = name.to_string();
    let could_be =
        |placed: &&SandboxSummary| placed.lifetime == Lifetime::Conversation || Name::of(placed) == name;
    let all: Vec<_> = all.iter().filter(could_be).collect();
    let names: Vec<_> = all.iter().map(|placed| Name::of(placed)).collect();
    let place = find_by_prefix("sandboxes", &name, names.iter().map(String::as_str))
        .map_err(|error| UsageError(error.to_string()))?;
    Ok(place.and_then(|place| all.into_iter().nth(place)).cloned())
}

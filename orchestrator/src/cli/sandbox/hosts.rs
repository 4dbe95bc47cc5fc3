//! The runtimes that are searched for a sandbox: the requested one, or all that may have sandboxes.

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

/// Maximum time for the response of one runtime, which delays those of the others.
const LIST_TIMEOUT: Duration = Duration::from_secs(20);

/// One or more runtimes.
pub(super) struct Hosts {
    /// The configured runtime.
    first: Host,
    others: Vec<Host>,
    /// Runtimes whose provider could not be created.
    failed: Vec<Silent>,
}

/// A runtime that does not list its sandboxes, and the error.
type Silent = (&'static str, anyhow::Error);

/// A runtime and its sandboxes.
pub(super) type Answered<'a> = (&'a Host, Vec<SandboxSummary>);

impl Hosts {
    pub(super) async fn open(at: &At, overrides: &Overrides) -> anyhow::Result<Self> {
        let first = Host::open(at, overrides).await?;
        Ok(if at.runtime.is_some() { Self::alone(first) } else { Self::with_others(first) })
    }

    /// Searches only this runtime.
    pub(super) fn alone(first: Host) -> Self {
        Self { first, others: Vec::new(), failed: Vec::new() }
    }

    /// Searches also docker, local, and the runtimes whose host is configured.
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
            // The user did not name this host, so there is no question about its key.
            config.sandbox.ssh.unknown_hosts = Some(UnknownHostPolicy::Refuse);
            match compose::provider(&config, &first.state_dir) {
                Ok(provider) => others.push(Host { config, state_dir: first.state_dir.clone(), provider }),
                Err(error) => failed.push((runtime.name(), error)),
            }
        }
        Self { first, others, failed }
    }

    /// Returns the configured runtime.
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

    /// Returns the runtimes that respond. Warns about the others. Fails if none responds.
    pub(super) async fn answering(&self) -> anyhow::Result<Vec<Answered<'_>>> {
        let (answered, mut silent) = self.ask(LIST_TIMEOUT).await;
        if answered.is_empty() {
            return Err(silent.swap_remove(0).1);
        }
        for (runtime, error) in silent.iter().chain(&self.failed) {
            print::warning(&format!("{runtime} is left out: {error:#}"));
        }
        Ok(answered)
    }

    /// Lists the sandboxes of all runtimes that respond.
    pub(super) async fn list(&self) -> anyhow::Result<Vec<(&Host, SandboxSummary)>> {
        let answered = self.answering().await?.into_iter();
        Ok(answered.flat_map(|(host, all)| all.into_iter().map(move |placed| (host, placed))).collect())
    }

    /// Finds a sandbox by name, in the configured runtime first. Fails if there is none.
    pub(super) async fn existing(&self, name: &Name) -> anyhow::Result<(&Host, SandboxSummary)> {
        let (mut known, mut silent) = (Vec::new(), Vec::new());
        for host in std::iter::once(&self.first).chain(&self.others) {
            let runtime = host.provider.runtime();
            match list(host, LIST_TIMEOUT).await {
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

    /// Finds sandboxes by name, each once. Missing ones are reported, and the returned exit is a failure.
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

    /// Connects to the sandbox of this name. Fails if it is not running.
    pub(super) async fn connect(&self, name: &Name) -> anyhow::Result<(&Host, Box<dyn Sandbox>)> {
        let (host, placed) = self.existing(name).await?;
        Ok((host, host.connect(&placed).await?))
    }
}

async fn list(host: &Host, list_timeout: Duration) -> anyhow::Result<Vec<SandboxSummary>> {
    match timeout(list_timeout, host.provider.list()).await {
        Ok(listed) => Ok(listed?),
        Err(_) => anyhow::bail!("it does not answer within {} s", list_timeout.as_secs_f32()),
    }
}

/// Finds a sandbox by name. A prefix is enough for the sandbox of a conversation, whose name is the conversation's id.
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

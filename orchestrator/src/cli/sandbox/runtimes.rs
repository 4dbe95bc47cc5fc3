//! The runtimes that are searched for a sandbox: the requested one, or all that may have sandboxes.

use std::sync::Arc;
use std::time::Duration;

use conversations::find_by_id_part;
use engine::sandbox::{Lifetime, Sandbox, SandboxSummary};
use futures_util::future::join_all;
use tokio::time::timeout;

use super::arguments::RuntimeChoice;
use super::name::{SandboxName, display_name};
use super::runtime::SandboxRuntime;
use crate::cli::print;
use crate::compose;
use crate::config::{Config, Overrides, Runtime, UnknownHostPolicy};
use crate::exit::{self, Exit, UsageError};

/// Timeout of listing the sandboxes of one runtime, which delays the list of the others.
const LIST_TIMEOUT: Duration = Duration::from_secs(20);

/// One or more runtimes.
pub(super) struct SandboxRuntimes {
    configured: Arc<SandboxRuntime>,
    others: Vec<Arc<SandboxRuntime>>,
    /// Runtimes whose provider could not be created.
    failures: Vec<RuntimeFailure>,
    /// Runtimes that are not searched, for the error about a missing sandbox.
    unsearched: &'static str,
}

/// Name of a runtime that cannot list its sandboxes, and the error.
type RuntimeFailure = (&'static str, anyhow::Error);

/// A runtime and its sandboxes.
type RuntimeSandboxes<'a> = (&'a Arc<SandboxRuntime>, Vec<SandboxSummary>);

impl SandboxRuntimes {
    pub(super) async fn open(
        choice: &RuntimeChoice,
        overrides: &Overrides,
    ) -> anyhow::Result<Self> {
        let configured = SandboxRuntime::open_existing(choice, overrides).await?;
        Ok(Self::new(configured, choice.runtime.is_some()))
    }

    /// Returns the configured runtime. If the user has not chosen it, also local, docker if its
    /// engine was used or is configured, and the runtimes whose host is configured.
    pub(super) fn new(configured: SandboxRuntime, is_chosen: bool) -> Self {
        let (mut others, mut failures) = (Vec::new(), Vec::new());
        let sandbox = &configured.config.sandbox;
        let unsearched = match &sandbox.ssh.target {
            _ if is_chosen => "; other runtimes were not searched: omit `--runtime`",
            None => "; ssh was not searched: `--runtime ssh --host HOST`",
            Some(_) => "",
        };
        let is_remote = sandbox.remote.server_url.is_some() || sandbox.remote.api_url.is_some();
        let has_engine =
            configured.config.host.docker_host.is_some() || configured.state_dir.had_engine();
        for (runtime, may_have_sandboxes) in [
            (Runtime::Docker, has_engine),
            (Runtime::Local, true),
            (Runtime::Ssh, sandbox.ssh.target.is_some()),
            (Runtime::Remote, is_remote),
        ] {
            if is_chosen || !may_have_sandboxes || runtime == configured.config.runtime {
                continue;
            }
            let mut config = Config {
                runtime,
                ..configured.config.clone()
            };
            // The user did not name this host, so there is no question about its key.
            config.sandbox.ssh.unknown_hosts = Some(UnknownHostPolicy::Refuse);
            match compose::provider(&config, &configured.state_dir) {
                Ok(provider) => {
                    let state_dir = configured.state_dir.clone();
                    others.push(Arc::new(SandboxRuntime {
                        config,
                        state_dir,
                        provider,
                    }));
                }
                Err(error) => failures.push((runtime.name(), error)),
            }
        }
        Self {
            configured: Arc::new(configured),
            others,
            failures,
            unsearched,
        }
    }

    /// Returns the configured runtime.
    pub(super) fn configured(&self) -> &SandboxRuntime {
        &self.configured
    }

    fn all(&self) -> impl Iterator<Item = &Arc<SandboxRuntime>> {
        std::iter::once(&self.configured).chain(&self.others)
    }

    /// Lists the sandboxes of each runtime. Returns with them the runtimes that failed or timed
    /// out, the configured one first.
    pub(super) async fn list_within(
        &self,
        list_timeout: Duration,
    ) -> (Vec<RuntimeSandboxes<'_>>, Vec<RuntimeFailure>) {
        let lists = self
            .all()
            .map(|runtime| async move { (runtime, list(runtime, list_timeout).await) });
        let (mut lists_by_runtime, mut failures) = (Vec::new(), Vec::new());
        for (runtime, listed) in join_all(lists).await {
            match listed {
                Ok(sandboxes) => lists_by_runtime.push((runtime, sandboxes)),
                Err(error) => failures.push((runtime.provider.runtime(), error)),
            }
        }
        (lists_by_runtime, failures)
    }

    /// Lists the sandboxes of each runtime that responds. Warns about the others, for which the
    /// exit is [`Exit::Failed`]. Fails if none responds.
    pub(super) async fn list_by_runtime(
        &self,
    ) -> anyhow::Result<(Vec<RuntimeSandboxes<'_>>, Exit)> {
        let lists = self.list_within(LIST_TIMEOUT);
        let (lists, mut failures) = print::with_notice("the list of sandboxes", lists).await;
        if lists.is_empty() {
            return Err(failures.swap_remove(0).1);
        }
        let mut exit = Exit::Finished;
        for (runtime, error) in failures.iter().chain(&self.failures) {
            print::warning(&format!("{runtime} is left out: {error:#}"));
            exit = Exit::Failed;
        }
        Ok((lists, exit))
    }

    /// Lists the sandboxes that match, of all runtimes that respond, with the exit of
    /// [`Self::list_by_runtime`].
    pub(super) async fn list(
        &self,
        is_match: impl Fn(&SandboxSummary) -> bool,
    ) -> anyhow::Result<(Vec<(Arc<SandboxRuntime>, SandboxSummary)>, Exit)> {
        let mut found = Vec::new();
        let (lists, exit) = self.list_by_runtime().await?;
        for (runtime, sandboxes) in lists {
            let sandboxes = remove_expired(runtime, sandboxes).await;
            let matching = sandboxes.into_iter().filter(|summary| is_match(summary));
            found.extend(matching.map(|summary| (Arc::clone(runtime), summary)));
        }
        Ok((found, exit))
    }

    /// Finds a sandbox by name, in the configured runtime first. A [`UsageError`] if there is none,
    /// another error if a runtime that may have it does not respond.
    pub(super) async fn find(
        &self,
        name: &SandboxName,
    ) -> anyhow::Result<(Arc<SandboxRuntime>, SandboxSummary)> {
        let (mut searched, mut failures) = (Vec::new(), Vec::new());
        for runtime in self.all() {
            let runtime_name = runtime.provider.runtime();
            let listed = list(runtime, LIST_TIMEOUT);
            match print::with_notice(&server_of(&runtime.config), listed).await {
                Ok(sandboxes) => {
                    let sandboxes = remove_expired(runtime, sandboxes).await;
                    if let Some(summary) = find_by_name(&sandboxes, name)? {
                        return Ok((Arc::clone(runtime), summary));
                    }
                    searched.push(runtime_name);
                }
                Err(error) => failures.push((runtime_name, error)),
            }
        }
        if searched.is_empty() {
            return Err(failures.swap_remove(0).1);
        }
        let searched = searched.join(", ");
        if !failures.is_empty() {
            let causes = failures
                .iter()
                .map(|(runtime, error)| format!("; {runtime} cannot be searched: {error:#}"));
            anyhow::bail!(
                "the sandbox {name} was not found: it is not at {searched}{}",
                causes.collect::<String>()
            );
        }
        let text = format!(
            "there is no sandbox {name} at {searched}: `glovebox sandbox ls` lists all sandboxes{}",
            self.unsearched
        );
        Err(UsageError(text).into())
    }

    /// Finds sandboxes by name, each once. Missing ones are reported, and the exit is that of their
    /// error.
    pub(super) async fn find_all(
        &self,
        names: &[SandboxName],
    ) -> anyhow::Result<(Vec<(Arc<SandboxRuntime>, SandboxSummary)>, Exit)> {
        let (mut found, mut exit) = (
            Vec::<(Arc<SandboxRuntime>, SandboxSummary)>::new(),
            Exit::Finished,
        );
        for name in names {
            match self.find(name).await {
                Ok((_, summary))
                    if found
                        .iter()
                        .any(|(_, known)| known.sandbox == summary.sandbox) => {}
                Ok(sandbox) => found.push(sandbox),
                Err(error) => {
                    print::error(&format!("{error:#}"));
                    exit = exit::of_error(&error);
                }
            }
        }
        Ok((found, exit))
    }

    /// Connects to the sandbox of this name. Fails if it is not running.
    pub(super) async fn connect(
        &self,
        name: &SandboxName,
    ) -> anyhow::Result<(Arc<SandboxRuntime>, Box<dyn Sandbox>)> {
        let (runtime, summary) = self.find(name).await?;
        let sandbox = runtime.connect(&summary).await?;
        Ok((runtime, sandbox))
    }
}

async fn list(
    runtime: &SandboxRuntime,
    list_timeout: Duration,
) -> anyhow::Result<Vec<SandboxSummary>> {
    match timeout(list_timeout, runtime.provider.list()).await {
        Ok(listed) => Ok(listed?),
        Err(_) => anyhow::bail!(
            "{} does not respond within {} s: check that it runs{}",
            server_of(&runtime.config),
            list_timeout.as_secs_f32(),
            if runtime.config.runtime == Runtime::Ssh {
                ", and that the start-up files of the account there end"
            } else {
                ""
            }
        ),
    }
}

/// Describes the server that a runtime's provider connects to.
fn server_of(config: &Config) -> String {
    match config.runtime {
        Runtime::Ssh => format!(
            "the host {}",
            config.sandbox.ssh.target.as_deref().unwrap_or_default()
        ),
        Runtime::Remote => match &config.sandbox.remote.api_url {
            Some(url) => format!("the sandbox service at {url}"),
            None => "the action server".to_owned(),
        },
        Runtime::Local => "this machine".to_owned(),
        Runtime::Docker | Runtime::Auto => match &config.host.docker_host {
            Some(host) => format!("the container engine at {host}"),
            None => "the container engine".to_owned(),
        },
    }
}

/// Removes the sandboxes whose time is over, and returns the others. Warns about one that cannot be
/// removed, and leaves it to the next command.
async fn remove_expired(
    runtime: &SandboxRuntime,
    sandboxes: Vec<SandboxSummary>,
) -> Vec<SandboxSummary> {
    let (expired, mut current): (Vec<_>, Vec<_>) = sandboxes
        .into_iter()
        .partition(|summary| summary.lifetime.is_expired());
    for summary in expired {
        let name = display_name(&summary);
        match runtime.provider.destroy(&summary.sandbox).await {
            Ok(()) => print::note(&format!("removed the sandbox {name}, whose time is over\n")),
            Err(error) => {
                print::warning(&format!(
                    "cannot remove the sandbox {name}, whose time is over: {error}"
                ));
                current.push(summary);
            }
        }
    }
    current
}

/// Finds a sandbox by name. A part is enough for the sandbox of a conversation, whose name is the
/// conversation's id.
fn find_by_name(
    sandboxes: &[SandboxSummary],
    name: &SandboxName,
) -> Result<Option<SandboxSummary>, UsageError> {
    let name = name.to_string();
    let is_candidate = |summary: &&SandboxSummary| {
        summary.lifetime == Lifetime::Conversation || display_name(summary) == name
    };
    let candidates: Vec<_> = sandboxes.iter().filter(is_candidate).collect();
    let names: Vec<_> = candidates
        .iter()
        .map(|summary| display_name(summary))
        .collect();
    let index = find_by_id_part("sandboxes", &name, names.iter().map(String::as_str))
        .map_err(|error| UsageError(error.to_string()))?;
    Ok(index
        .and_then(|index| candidates.into_iter().nth(index))
        .cloned())
}

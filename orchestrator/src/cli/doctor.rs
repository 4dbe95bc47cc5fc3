//! `glovebox doctor`: checks whether this machine and the configuration meet the requirements of a
//! run. Starts a sandbox and removes it, and sends each model one short message: only that shows
//! that they work. A service may charge for sandboxes, so only its list is requested.

use std::path::Path;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use conversations::Conversations;
use engine::errors::format_chain;
use serde_json::json;
use storage::postgres::PostgresOpenError;
use tokio::time::timeout;

use super::fresh_sandbox::create_unless_interrupted;
use super::interrupts::Interrupts;
use super::screen::{Output, Screen};
use super::{StoreUse, load_config, open_state_of_server, print};
use crate::compose::{self, CallMode, Models, ServerKey, StateDir, Stores, provider_models};
use crate::config::{Config, Overrides, Runtime, UnknownHostPolicy};
use crate::exit::Exit;

/// Free space below which the disk is a warning: an image or a build may not fit.
const LOW_SPACE: u64 = 2 << 30;

/// Free space below which a run is likely to fail.
const MIN_SPACE: u64 = 100 << 20;

/// Timeout of the check of a remote host or service.
const REMOTE_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Starts a sandbox (not of the runtime remote, and of docker only if the image is there) and removes it. Sends each model one short \
message, which may cost a fraction of a cent. Exits with 1 if a check fails.
Example: glovebox doctor --runtime local --json")]
pub(super) struct DoctorArguments {
    /// Check for this runtime instead of the configured one.
    #[arg(long, value_name = "RUNTIME")]
    runtime: Option<Runtime>,

    /// Host of the runtime ssh: user@host:port, or a name from ~/.ssh/config.
    #[arg(long, value_name = "HOST", value_parser = NonEmptyStringValueParser::new())]
    host: Option<String>,

    /// Check for this model instead of the configured one.
    #[arg(short = 'l', long, value_name = "MODEL", value_parser = NonEmptyStringValueParser::new())]
    model: Option<String>,

    /// Print one JSON array.
    #[arg(long)]
    json: bool,
}

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Ok,
    /// A failure that may occur soon.
    Warning,
    Failed,
}

struct Check {
    name: &'static str,
    status: Status,
    detail: String,
}

impl Check {
    fn new(name: &'static str, result: anyhow::Result<String>) -> Self {
        match result {
            Ok(detail) => Self {
                name,
                status: Status::Ok,
                detail,
            },
            Err(error) => Self {
                name,
                status: Status::Failed,
                detail: format_chain(error.as_ref()),
            },
        }
    }
}

pub(super) async fn run(arguments: DoctorArguments, overrides: Overrides) -> anyhow::Result<Exit> {
    let mut interrupts = Interrupts::listen()?;
    let as_json = arguments.json;
    let checking = interrupts.unless_interrupted(check(arguments, overrides));
    let Some((config, state_dir, mut checks)) = checking.await.transpose()? else {
        return Ok(Exit::Interrupted);
    };
    let runtime = checks.first().map(|runtime| runtime.status);
    if let Some(config) = config
        && runtime != Some(Status::Failed)
    {
        let started = match sandbox(config, &state_dir, as_json, &mut interrupts).await {
            Ok(Trial::Started) => Some(Ok("starts".to_owned())),
            Ok(Trial::NotTried) => None,
            Ok(Trial::Interrupted) => return Ok(Exit::Interrupted),
            Err(error) => Some(Err(error)),
        };
        checks.extend(started.map(|started| Check::new("sandbox", started)));
    }
    report(&checks, as_json)?;
    let has_failed = checks.iter().any(|check| check.status == Status::Failed);
    Ok(if has_failed {
        Exit::Failed
    } else {
        Exit::Finished
    })
}

/// Runs all checks but the start of a sandbox. The first one is that of the runtime. Also returns
/// the configuration with the runtime that a run would choose. `None` if it could choose none.
async fn check(
    arguments: DoctorArguments,
    overrides: Overrides,
) -> anyhow::Result<(Option<Config>, StateDir, Vec<Check>)> {
    let overrides = Overrides {
        runtime: arguments.runtime,
        ssh_host: arguments.host,
        model: arguments.model,
        ..overrides
    };
    let mut config = load_config(&overrides)?;
    let state_dir = open_state_of_server(&mut config, &overrides, StoreUse::Show)?;
    let model_facts = describe_models(&config).await?;
    let key = key(&config);
    let screen = Screen::new(if arguments.json {
        Output::Silent
    } else {
        Output::Transcript
    });
    screen.set_status("checking the runtime and the model");
    let mut chosen = config.clone();
    let choice = compose::choose_runtime(&mut chosen, &state_dir).await;
    let runtime = async {
        match &choice {
            Ok(()) => runtime(&chosen, &config, &state_dir).await,
            Err(error) => Check::new("engine", Err(anyhow::anyhow!("{error:#}"))),
        }
    };
    // A model whose configuration is invalid cannot be called.
    let (runtime, model) = tokio::join!(runtime, async {
        match key.is_ok() {
            true => Some(Check::new("model", compose::call_models(&config).await)),
            false => None,
        }
    });
    drop(screen);
    let mut checks = vec![runtime, Check::new("key", key)];
    checks.extend(model);
    checks.extend(model_facts.map(|facts| Check::new("calls", Ok(facts))));
    checks.extend(budget(&config));
    let chosen = choice.is_ok().then_some(chosen);
    let agent = chosen.as_ref().and_then(|chosen| agent(chosen, &state_dir));
    checks.extend(agent.map(|agent| Check::new("agent", agent)));
    checks.push(Check::new("store", store(&config, &state_dir).await));
    checks.push(disk(&config.state_dir));
    Ok((chosen, state_dir, checks))
}

/// How the trial start of a sandbox ended.
enum Trial {
    Started,
    /// It would have cost money, or a long download.
    NotTried,
    Interrupted,
}

/// Starts a sandbox and removes it.
async fn sandbox(
    config: Config,
    state_dir: &StateDir,
    as_json: bool,
    interrupts: &mut Interrupts,
) -> anyhow::Result<Trial> {
    let can_try = match config.runtime {
        Runtime::Docker => compose::has_image(&config, state_dir).await?,
        Runtime::Local | Runtime::Ssh => true,
        Runtime::Remote | Runtime::Auto => false,
    };
    if !can_try {
        return Ok(Trial::NotTried);
    }
    let provider = compose::provider(&config, state_dir)?;
    let spec = compose::spec(&config.sandbox, Conversations::new_id());
    // Keeps sweeps of other processes from removing the sandbox.
    let _lock = state_dir.lock(&spec.conversation)?;
    let output = if as_json {
        Output::Silent
    } else {
        Output::Transcript
    };
    let created = create_unless_interrupted(provider.as_ref(), &spec, output, interrupts);
    let Some(sandbox) = created.await? else {
        return Ok(Trial::Interrupted);
    };
    let id = sandbox.lease().sandbox_id.clone();
    drop(sandbox);
    provider.destroy(&id).await?;
    Ok(Trial::Started)
}

fn report(checks: &[Check], as_json: bool) -> anyhow::Result<()> {
    if as_json {
        let checks: Vec<_> = checks
            .iter()
            .map(|check| json!({"check": check.name, "status": check.status.name(), "detail": check.detail}))
            .collect();
        return Ok(print::line(&serde_json::to_string(&checks)?)?);
    }
    for Check {
        name,
        status,
        detail,
    } in checks
    {
        let detail = print::for_terminal(detail).replace('\n', "\n                     ");
        print::line(&format!("{:<8}  {name:<9}  {detail}", status.name()))?;
    }
    Ok(())
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failed => "failed",
        }
    }
}

/// Checks the runtime that a run would choose with this configuration.
async fn runtime(chosen: &Config, configured: &Config, state_dir: &StateDir) -> Check {
    match chosen.runtime {
        Runtime::Docker => Check::new("engine", engine(chosen, state_dir).await),
        Runtime::Ssh => Check::new("ssh", remote(chosen, state_dir).await),
        Runtime::Remote => Check::new("service", remote(chosen, state_dir).await),
        Runtime::Local | Runtime::Auto => {
            let isolation = isolation(chosen, state_dir).await;
            match configured.runtime {
                Runtime::Auto => without_engine(isolation, configured),
                _ => Check::new("isolation", isolation),
            }
        }
    }
}

/// The check of a machine on which no engine answers.
fn without_engine(isolation: anyhow::Result<String>, configured: &Config) -> Check {
    let isolation = isolation.map(|detail| format!("no container engine answers; local: {detail}"));
    let check = Check::new("isolation", isolation);
    match (check.status, &configured.host.docker_host) {
        // An engine that is configured is missed.
        (Status::Ok, Some(host)) => Check {
            status: Status::Warning,
            detail: format!("{} (DOCKER_HOST is {host})", check.detail),
            ..check
        },
        _ => check,
    }
}

async fn engine(config: &Config, state_dir: &StateDir) -> anyhow::Result<String> {
    let image = compose::describe_image(config, state_dir).await?;
    Ok(format!("a container engine responds; {image}"))
}

async fn isolation(config: &Config, state_dir: &StateDir) -> anyhow::Result<String> {
    match compose::isolation(config, state_dir).await? {
        Some((isolation, bounds)) => Ok(format!("{isolation}; bounded: {bounds}")),
        None => Ok(String::new()),
    }
}

/// Checks the host or the service of sandboxes, without retries.
async fn remote(config: &Config, state_dir: &StateDir) -> anyhow::Result<String> {
    let mut config = config.clone();
    config.sandbox.remote.enable_retries = false;
    // A question on the terminal would be part of the output of a check.
    config
        .sandbox
        .ssh
        .unknown_hosts
        .get_or_insert(UnknownHostPolicy::Refuse);
    let provider = compose::provider(&config, state_dir)?;
    let check = async {
        if config.runtime == Runtime::Remote && config.sandbox.remote.server_url.is_some() {
            // Only connects, because this server exists already.
            let spec = compose::spec(&config.sandbox, Conversations::new_id());
            provider.create(&spec, &|_| {}).await?;
            return Ok("the action server responds and accepts the key".to_owned());
        }
        provider.list().await?;
        Ok("responds and accepts you".to_owned())
    };
    let limit = REMOTE_TIMEOUT;
    let checked = timeout(limit, check).await;
    let checked =
        checked.unwrap_or_else(|_| anyhow::bail!("no response within {} s", limit.as_secs()));
    checked.map_err(|error| anyhow::anyhow!("{error:#}; {}", remote_next_step(&config)))
}

/// What the user can do about a host or a service that does not respond.
fn remote_next_step(config: &Config) -> String {
    let remote = &config.sandbox.remote;
    match (
        &config.sandbox.ssh.target,
        &remote.server_url,
        &remote.api_url,
    ) {
        (Some(target), ..) if config.runtime == Runtime::Ssh => {
            format!("try `ssh ssh://{target}`, or set ssh_host in [sandbox] (SANDBOX_SSH_HOST)")
        }
        (_, Some(url), _) => {
            format!(
                "start the server at {url}, or set remote_server_url in [sandbox] (SANDBOX_REMOTE_SERVER_URL)"
            )
        }
        (_, _, url) => {
            let url = url
                .as_ref()
                .map(|url| format!(" at {url}"))
                .unwrap_or_default();
            format!(
                "start the service{url}, or set remote_runtime_api_url in [sandbox] (SANDBOX_REMOTE_RUNTIME_API_URL)"
            )
        }
    }
}

/// Checks the key and the configuration of the models.
fn key(config: &Config) -> anyhow::Result<String> {
    Models::new(config, 0, CallMode::Live)?;
    compose::check_key(config)?;
    Ok(match &config.llm.provider.api_key {
        Some(_) => "a key is set".to_owned(),
        None if provider_models(config).next().is_none() => "no key is needed".to_owned(),
        None => {
            "none is set: if the provider requires one, set LLM_API_KEY, or api_key under [llm]"
                .to_owned()
        }
    })
}

/// Warns about a budget without an effect. `None` if there is none, or the configuration of the
/// models is invalid, which another check reports.
fn budget(config: &Config) -> Option<Check> {
    let models = Models::new(config, 0, CallMode::Live).ok()?;
    let detail = models.budget_warning(config, config.max_budget)?;
    Some(Check {
        name: "budget",
        status: Status::Warning,
        detail,
    })
}

/// Composes the parts of a conversation, as a run does. `None` if the configuration of the models
/// is invalid, which another check reports.
fn agent(config: &Config, state_dir: &StateDir) -> Option<anyhow::Result<String>> {
    let models = Models::new(config, 0, CallMode::Live).ok()?;
    let compose = || {
        let agent = compose::agent(config)?;
        let spec = compose::spec(&config.sandbox, Conversations::new_id());
        compose::parts(
            config,
            state_dir,
            &models,
            agent,
            spec,
            compose::redactor(config)?,
        )?;
        Ok(config.agent.stored_name.clone())
    };
    Some(compose())
}

/// Checks that the store can be written and read. Creates no file of a store that does not exist.
async fn store(config: &Config, state_dir: &StateDir) -> anyhow::Result<String> {
    if config.store.url.is_none() && !state_dir.events_file().exists() {
        return Ok("no conversations yet".to_owned());
    }
    let checked = check_store(config, state_dir).await;
    let is_unreachable = |error: &anyhow::Error| {
        matches!(
            error.downcast_ref(),
            Some(PostgresOpenError::Connect { .. })
        )
    };
    checked.map_err(|error| {
        if is_unreachable(&error) {
            anyhow::anyhow!("{error:#}; start the database, or set url in [store] (STORE_URL)")
        } else {
            // The error has it.
            error
        }
    })
}

async fn check_store(config: &Config, state_dir: &StateDir) -> anyhow::Result<String> {
    let stores = Stores::open(config, state_dir).await?;
    let checked = async {
        stores.check_blobs().await?;
        stores.conversations().await?.check_store().await?;
        // Of the server, if one has run.
        stores.accounts_to_read().await?;
        stores.profiles_if_any().await?;
        ServerKey::check(state_dir)
    };
    let checked = checked.await;
    stores.close().await;
    checked.map(|()| format!("{} can be written and read", config.store.name()))
}

/// Describes how the models are called. `None` if no provider is. The price table is decoded on a
/// blocking thread.
async fn describe_models(config: &Config) -> anyhow::Result<Option<String>> {
    let models: Vec<_> = provider_models(config)
        .map(|(model, config)| (model.clone(), config))
        .collect();
    let describe = move || {
        let lines = models
            .iter()
            .map(|(model, config)| format!("{model}: {}", llm::describe(config)));
        lines.collect::<Vec<_>>().join("\n")
    };
    let text = tokio::task::spawn_blocking(describe).await?;
    Ok(Some(text).filter(|text| !text.is_empty()))
}

fn disk(folder: &Path) -> Check {
    match rustix::fs::statvfs(folder) {
        Ok(disk) => free_space(folder, disk.f_bavail.saturating_mul(disk.f_frsize)),
        Err(error) => {
            let detail = format!("cannot inspect {}: {error}", folder.display());
            Check {
                name: "disk",
                status: Status::Failed,
                detail,
            }
        }
    }
}

fn free_space(folder: &Path, free: u64) -> Check {
    let status = match free {
        0..MIN_SPACE => Status::Failed,
        MIN_SPACE..LOW_SPACE => Status::Warning,
        LOW_SPACE.. => Status::Ok,
    };
    let mut detail = format!(
        "{} free in {}",
        indicatif::HumanBytes(free),
        folder.display()
    );
    if status != Status::Ok {
        detail.push_str(
            ": free some, or set file_store_path under [core] to a folder on another disk",
        );
    }
    Check {
        name: "disk",
        status,
        detail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_check_fails_when_the_folder_does_not_exist() {
        assert_eq!(disk(Path::new("/nowhere/at/all")).status, Status::Failed);
        assert!(disk(Path::new("/")).detail.contains(" free in /"));
    }

    #[test]
    fn full_disk_gets_a_next_step() {
        for (free, status) in [
            (MIN_SPACE - 1, Status::Failed),
            (MIN_SPACE, Status::Warning),
            (LOW_SPACE, Status::Ok),
        ] {
            let check = free_space(Path::new("/state"), free);
            assert_eq!(check.status, status, "{free}");
            assert_eq!(
                check.detail.contains("set file_store_path under [core]"),
                status != Status::Ok
            );
        }
    }
}

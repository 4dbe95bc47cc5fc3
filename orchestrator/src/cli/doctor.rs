//! `glovebox doctor`: checks whether this machine and the configuration meet the requirements of a run. Starts no sandbox and
//! calls no model.

use std::path::Path;

use serde_json::json;

use super::interrupts::Interrupts;
use super::{load_config, print};
use crate::compose::{self, CallMode, Models, StateDir, provider_models};
use crate::config::{Config, Overrides, Runtime};
use crate::exit::Exit;

/// Free space below which the disk is a warning: an image or a build may not fit.
const LOW_SPACE: u64 = 2 << 30;

/// Free space below which a run is likely to fail.
const MIN_SPACE: u64 = 100 << 20;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exits with 1 if a requirement of the configured runtime fails.
Example: glovebox doctor --runtime local --json")]
pub(super) struct DoctorArguments {
    /// Check for this runtime instead of the configured one.
    #[arg(long, value_name = "RUNTIME")]
    runtime: Option<Runtime>,

    /// Check for this model instead of the configured one.
    #[arg(short = 'l', long, value_name = "MODEL")]
    model: Option<String>,

    /// Print one JSON array.
    #[arg(long)]
    json: bool,
}

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Ok,
    /// A failure that the configured runtime tolerates, or a failure that may occur soon.
    Warning,
    Failed,
}

struct Check {
    name: &'static str,
    status: Status,
    detail: String,
}

impl Check {
    /// A failed check is only a warning if the runtime does not need it.
    fn new(name: &'static str, is_needed: bool, result: anyhow::Result<String>) -> Self {
        match result {
            Ok(detail) => Self { name, status: Status::Ok, detail },
            Err(error) => {
                let status = if is_needed { Status::Failed } else { Status::Warning };
                Self { name, status, detail: format!("{error:#}") }
            }
        }
    }
}

pub(super) async fn run(arguments: DoctorArguments, overrides: Overrides) -> anyhow::Result<Exit> {
    let mut interrupts = Interrupts::listen()?;
    tokio::select! {
        exit = check(arguments, overrides) => exit,
        () = interrupts.next() => Ok(Exit::Interrupted),
    }
}

async fn check(arguments: DoctorArguments, overrides: Overrides) -> anyhow::Result<Exit> {
    let overrides = Overrides { runtime: arguments.runtime, model: arguments.model, ..overrides };
    let config = load_config(&overrides)?;
    let state_dir = StateDir::open(&config.state_dir)?;
    let model_facts = describe_models(&config).await?;
    let (engine, isolation) = tokio::join!(engine(&config, &state_dir), isolation(&config, &state_dir));
    // `auto` needs one of both.
    let (has_engine, is_isolated) = (engine.is_ok(), isolation.is_ok());
    let needs = |runtime: Runtime, has_other: bool| {
        config.runtime == runtime || config.runtime == Runtime::Auto && !has_other
    };
    let checks = [
        Check::new("engine", needs(Runtime::Docker, is_isolated), engine),
        Check::new("isolation", needs(Runtime::Local, has_engine), isolation),
        Check::new("key", true, key(&config)),
        Check::new("model", true, model(&config).await),
        Check::new("calls", false, Ok(model_facts)),
        disk(&config.state_dir),
    ];
    report(&checks, arguments.json)?;
    let has_failed = checks.iter().any(|check| check.status == Status::Failed);
    Ok(if has_failed { Exit::Failed } else { Exit::Finished })
}

fn report(checks: &[Check], as_json: bool) -> anyhow::Result<()> {
    if as_json {
        let checks: Vec<_> = checks
            .iter()
            .map(|check| json!({"check": check.name, "status": check.status.name(), "detail": check.detail}))
            .collect();
        return Ok(print::line(&serde_json::to_string(&checks)?)?);
    }
    for Check { name, status, detail } in checks {
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

async fn engine(config: &Config, state_dir: &StateDir) -> anyhow::Result<String> {
    compose::check_docker(config, state_dir).await?;
    Ok("a Docker engine responds".to_owned())
}

async fn isolation(config: &Config, state_dir: &StateDir) -> anyhow::Result<String> {
    let local = Config { runtime: Runtime::Local, ..config.clone() };
    match compose::isolation(&local, state_dir).await? {
        Some((isolation, bounds)) => Ok(format!("{isolation}; bounded: {bounds}")),
        None => Ok(String::new()),
    }
}

/// Checks the key and the configuration of the models.
fn key(config: &Config) -> anyhow::Result<String> {
    Models::new(config, 0, CallMode::Live)?;
    compose::check_key(config)?;
    Ok(match &config.llm.provider.api_key {
        Some(_) => "a key is set".to_owned(),
        None => "no key is needed".to_owned(),
    })
}

async fn model(config: &Config) -> anyhow::Result<String> {
    let Some(model) = &config.llm.model else { anyhow::bail!("no model is configured") };
    compose::reach_provider(config).await?;
    Ok(format!("the provider of {model} can be reached"))
}

/// Describes how the models are called. The price table is decoded on a blocking thread.
async fn describe_models(config: &Config) -> anyhow::Result<String> {
    let models: Vec<_> = provider_models(config).map(|(model, config)| (model.clone(), config)).collect();
    let describe = move || {
        let lines = models.iter().map(|(model, config)| format!("{model}: {}", llm::describe(config)));
        lines.collect::<Vec<_>>().join("\n")
    };
    let text = tokio::task::spawn_blocking(describe).await?;
    Ok(if text.is_empty() { "the responses come from a file".to_owned() } else { text })
}

fn disk(folder: &Path) -> Check {
    let free = match rustix::fs::statvfs(folder) {
        Ok(disk) => disk.f_bavail.saturating_mul(disk.f_frsize),
        Err(error) => {
            let detail = format!("cannot inspect {}: {error}", folder.display());
            return Check { name: "disk", status: Status::Failed, detail };
        }
    };
    let status = match free {
        0..MIN_SPACE => Status::Failed,
        MIN_SPACE..LOW_SPACE => Status::Warning,
        LOW_SPACE.. => Status::Ok,
    };
    let detail = format!("{} free in {}", indicatif::HumanBytes(free), folder.display());
    Check { name: "disk", status, detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_is_a_warning_when_it_is_not_needed() {
        let failed = || Err(anyhow::anyhow!("no engine"));
        assert_eq!(Check::new("engine", true, failed()).status, Status::Failed);
        assert_eq!(Check::new("engine", false, failed()).status, Status::Warning);
        assert_eq!(Check::new("engine", true, Ok(String::new())).status, Status::Ok);
        assert_ne!(disk(Path::new("/")).detail, "");
        assert_eq!(disk(Path::new("/nowhere/at/all")).status, Status::Failed);
    }
}

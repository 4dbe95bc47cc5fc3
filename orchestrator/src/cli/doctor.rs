//! `glovebox doctor`: whether this machine and this configuration have what a run needs. Starts no sandbox and asks no
//! model.

use std::path::Path;

use serde_json::json;

use super::interrupts::Interrupts;
use super::{load_config, print};
use crate::compose::{self, Models, StateDir};
use crate::config::{Config, Overrides, Runtime};
use crate::exit::Exit;

/// Below this a disk is called nearly full: an image or a build may not fit.
const LITTLE_SPACE: u64 = 2 << 30;

/// Below this a run is likely to fail.
const MIN_SPACE: u64 = 100 << 20;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Ends with 1 if something fails that the configured runtime needs.
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

/// What a check found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Ok,
    /// It fails, and the configured runtime does not need it; or it may fail soon.
    Warning,
    Failed,
}

struct Check {
    name: &'static str,
    status: Status,
    detail: String,
}

impl Check {
    /// What a check found; one that is not needed only warns.
    fn of(name: &'static str, is_needed: bool, result: anyhow::Result<String>) -> Self {
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
    let (engine, isolation) = tokio::join!(engine(&config, &state_dir), isolation(&config, &state_dir));
    // `auto` needs one of both.
    let (has_engine, is_isolated) = (engine.is_ok(), isolation.is_ok());
    let needs = |runtime: Runtime, has_other: bool| {
        config.runtime == runtime || config.runtime == Runtime::Auto && !has_other
    };
    let checks = [
        Check::of("engine", needs(Runtime::Docker, is_isolated), engine),
        Check::of("isolation", needs(Runtime::Local, has_engine), isolation),
        Check::of("key", true, key(&config)),
        Check::of("model", true, model(&config).await),
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
    Ok("a Docker engine answers".to_owned())
}

async fn isolation(config: &Config, state_dir: &StateDir) -> anyhow::Result<String> {
    let local = Config { runtime: Runtime::Local, ..config.clone() };
    match compose::isolation(&local, state_dir).await? {
        Some((isolation, bounds)) => Ok(format!("{isolation}; bounded: {bounds}")),
        None => Ok(String::new()),
    }
}

/// The key, and all else that is known of the models before they are asked.
fn key(config: &Config) -> anyhow::Result<String> {
    Models::new(config, 0)?;
    compose::check_key(config)?;
    Ok(match &config.llm.provider.api_key {
        Some(_) => "there is one".to_owned(),
        None => "none is needed, as far as is known".to_owned(),
    })
}

async fn model(config: &Config) -> anyhow::Result<String> {
    let Some(model) = &config.llm.model else { anyhow::bail!("no model is named") };
    compose::reach_provider(config).await?;
    Ok(format!("the provider of {model} can be reached"))
}

fn disk(folder: &Path) -> Check {
    let free = match rustix::fs::statvfs(folder) {
        Ok(disk) => disk.f_bavail.saturating_mul(disk.f_frsize),
        Err(error) => {
            let detail = format!("cannot look at {}: {error}", folder.display());
            return Check { name: "disk", status: Status::Failed, detail };
        }
    };
    let status = match free {
        0..MIN_SPACE => Status::Failed,
        MIN_SPACE..LITTLE_SPACE => Status::Warning,
        LITTLE_SPACE.. => Status::Ok,
    };
    let detail = format!("{} free in {}", indicatif::HumanBytes(free), folder.display());
    Check { name: "disk", status, detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_needed_only_warns() {
        let failed = || Err(anyhow::anyhow!("no engine"));
        assert_eq!(Check::of("engine", true, failed()).status, Status::Failed);
        assert_eq!(Check::of("engine", false, failed()).status, Status::Warning);
        assert_eq!(Check::of("engine", true, Ok(String::new())).status, Status::Ok);
        assert_ne!(disk(Path::new("/")).detail, "");
        assert_eq!(disk(Path::new("/nowhere/at/all")).status, Status::Failed);
    }
}

//! `glovebox sandbox create`: creates a sandbox without a conversation, which stays until it is
//! removed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use conversations::ConversationsError;
use engine::sandbox::{Lifetime, ResourceLimits, SandboxSpec, Volume};
use jiff::Timestamp;

use super::arguments::RuntimeChoice;
use super::name::SandboxName;
use super::runtime::SandboxRuntime;
use crate::cli::fresh_sandbox::create_unless_interrupted;
use crate::cli::interrupts::Interrupts;
use crate::cli::screen::Output;
use crate::cli::{duration_argument, print, print_isolation, trusted_config};
use crate::compose::{self, Lock};
use crate::config::{Config, Overrides, Runtime, size_in_bytes};
use crate::exit::{Exit, UsageError};
use crate::workspace::{self, WorkspaceFolder};

/// Maximum of `--ttl`.
const MAX_TTL: Duration = Duration::from_hours(365 * 24);

/// Minimum of `--memory`, which engines refuse otherwise.
const MIN_MEMORY: u64 = 6 << 20;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  glovebox sandbox create box --image python:3.12-slim -d . --env TOKEN --memory 2g
  box=$(glovebox sandbox create) && glovebox sandbox exec \"$box\" -- uname -a
  glovebox sandbox create --ttl 2h
A local sandbox without a client for an hour shuts down. Its files exist until you remove it.
A sandbox whose --ttl is over is removed by the next run, server or sandbox command on this machine.")]
pub(super) struct CreateArguments {
    /// Name of the sandbox. By default, a generated name.
    name: Option<SandboxName>,

    /// Image of the sandbox: any with a POSIX shell.
    #[arg(long, value_name = "IMAGE", value_parser = NonEmptyStringValueParser::new())]
    image: Option<String>,

    #[command(flatten)]
    options: SandboxOptions,

    /// Network of the sandbox: none (the default), host, or with docker a network of the engine's.
    #[arg(long, value_name = "NETWORK", value_parser = NonEmptyStringValueParser::new())]
    network: Option<String>,

    /// With the runtime local: run without isolation if this machine has none. Programs in the
    /// sandbox can then do what you can.
    #[arg(long)]
    unsafe_local: bool,

    /// Let the sandbox write a folder that contains your home or Glovebox's own files.
    #[arg(long)]
    unsafe_directory: bool,

    #[command(flatten)]
    runtime: RuntimeChoice,
}

/// Settings of a new sandbox or fork.
#[derive(Debug, clap::Args)]
pub(super) struct SandboxOptions {
    /// Workspace of the sandbox. By default, a new folder in the sandbox.
    #[arg(short = 'd', long, value_name = "DIR")]
    directory: Option<PathBuf>,

    /// Set an environment variable of all programs in the sandbox; without VALUE, to its value in
    /// this shell.
    #[arg(short = 'e', long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,

    /// Mount a path of this machine: HOST:CONTAINER or HOST:CONTAINER:ro.
    #[arg(long, value_name = "VOLUME", value_delimiter = ',')]
    volume: Vec<Volume>,

    /// Memory limit, such as 512m or 2g.
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    memory: Option<u64>,

    /// Remove the sandbox after this time, such as 30m or 2d; at most 365d.
    #[arg(long, value_name = "TIME", value_parser = time_to_live)]
    ttl: Option<Duration>,

    /// Limit of processors, such as 1.5.
    #[arg(long, value_name = "N", value_parser = processors)]
    cpus: Option<f64>,
}

pub(super) async fn run(arguments: CreateArguments, overrides: &Overrides) -> anyhow::Result<Exit> {
    let CreateArguments {
        image,
        network,
        unsafe_local,
        unsafe_directory,
        ..
    } = arguments;
    let overrides = Overrides {
        image,
        network,
        unsafe_local,
        unsafe_directory,
        ..overrides.clone()
    };
    let runtime = SandboxRuntime::open(&arguments.runtime, &overrides).await?;
    let name = arguments.name.map_or_else(SandboxName::generate, Ok)?;
    let spec = spec(
        &runtime.config,
        &name,
        runtime.config.sandbox.image.clone(),
        arguments.options,
    )?;
    let _lock = reserve_name(&runtime, &name).await?;
    print_isolation(&runtime.config, &runtime.state_dir).await?;
    create(&runtime, &name, &spec).await
}

/// Reserves a name until the lock is dropped. An existing sandbox of this name is an error: the
/// runtime would replace it, as it does after a crash. Of two processes that create the same name
/// concurrently, one fails.
pub(super) async fn reserve_name(
    runtime: &SandboxRuntime,
    name: &SandboxName,
) -> anyhow::Result<Lock> {
    let lock = runtime.state_dir.lock(name.conversation());
    let lock = lock.map_err(|error| match error.downcast_ref() {
        Some(ConversationsError::Locked(_)) => UsageError(format!(
            "another process uses the name {name}, or creates a sandbox of that name"
        ))
        .into(),
        _ => error,
    })?;
    match runtime.find(name).await? {
        None => Ok(lock),
        Some(found) if found.lifetime.is_expired() => {
            runtime.provider.destroy(&found.sandbox).await?;
            Ok(lock)
        }
        Some(_) => {
            let text = format!(
                "there is a sandbox {name} already: `glovebox sandbox rm {name}` removes it"
            );
            Err(UsageError(text).into())
        }
    }
}

/// Creates a sandbox and prints its name. After ^C nothing of it remains.
pub(super) async fn create(
    runtime: &SandboxRuntime,
    name: &SandboxName,
    spec: &SandboxSpec,
) -> anyhow::Result<Exit> {
    let mut interrupts = Interrupts::listen()?;
    let provider = runtime.provider.as_ref();
    match create_unless_interrupted(provider, spec, Output::Transcript, &mut interrupts).await? {
        Some(_) => print::line(&name.to_string())
            .map(|()| Exit::Finished)
            .map_err(Into::into),
        None => Ok(Exit::Interrupted),
    }
}

/// Returns the spec of the requested sandbox.
pub(super) fn spec(
    config: &Config,
    name: &SandboxName,
    image: Option<String>,
    options: SandboxOptions,
) -> anyhow::Result<SandboxSpec> {
    if config.runtime == Runtime::Ssh {
        for (is_given, option) in [
            (!options.volume.is_empty(), "--volume"),
            (options.memory.is_some(), "--memory"),
            (options.cpus.is_some(), "--cpus"),
        ] {
            if is_given {
                return Err(
                    UsageError(format!("{option} has no effect on {}", config.runtime)).into(),
                );
            }
        }
    }
    let default = compose::spec(&config.sandbox, name.conversation().clone());
    let mut environment = workspace::environment(&config.workspace, None);
    environment.extend(variables(&options.env)?);
    let expires_at = options
        .ttl
        .map(|ttl| Timestamp::now().checked_add(ttl))
        .transpose()?;
    let spec = SandboxSpec {
        lifetime: expires_at.map_or(Lifetime::UntilRemoved, Lifetime::Until),
        image,
        workspace: WorkspaceFolder::for_spec(config, options.directory.as_deref())?,
        volumes: if options.volume.is_empty() {
            default.volumes.clone()
        } else {
            options.volume
        },
        environment,
        resources: ResourceLimits {
            memory_bytes: options.memory.unwrap_or(default.resources.memory_bytes),
            cpus: options.cpus.unwrap_or(default.resources.cpus),
            ..default.resources
        },
        ..default
    };
    trusted_config::check_sandbox(config, &spec)?;
    Ok(spec)
}

/// Parses variables: `NAME=VALUE`, or `NAME` for its value in the environment of this process.
pub(super) fn variables(arguments: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    let variable = |text: &String| {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => match std::env::var(text) {
                Ok(value) => (text.as_str(), value),
                Err(error) => {
                    return Err(
                        UsageError(format!("cannot read the variable {text}: {error}")).into(),
                    );
                }
            },
        };
        if name.is_empty() {
            return Err(UsageError(format!("{text:?} has no variable name")).into());
        }
        Ok((name.to_owned(), value))
    };
    arguments.iter().map(variable).collect()
}

fn time_to_live(text: &str) -> Result<Duration, String> {
    let ttl = duration_argument::parse_positive(text)?;
    if ttl > MAX_TTL {
        Err("expected at most 365d".to_owned())
    } else {
        Ok(ttl)
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    let bytes = size_in_bytes(text).ok_or("expected a size such as 512m or 2g")?;
    match bytes < MIN_MEMORY {
        true => Err("expected at least 6m, which container engines require".to_owned()),
        false => Ok(bytes),
    }
}

fn processors(text: &str) -> Result<f64, String> {
    let number = text
        .parse::<f64>()
        .ok()
        .filter(|number| *number >= 0.01 && *number <= 4096.0);
    number.ok_or("expected a number of processors such as 2 or 0.5".into())
}

#[cfg(test)]
mod tests {
    use super::{MAX_TTL, bytes, processors, time_to_live, variables};

    #[test]
    fn time_to_live_is_bounded() {
        assert_eq!(time_to_live("365d"), Ok(MAX_TTL));
        assert!(
            ["0s", "366d", "8", "-1h"]
                .iter()
                .all(|text| time_to_live(text).is_err())
        );
    }

    #[test]
    fn size_is_parsed_in_the_notation_of_docker() {
        for (text, expected) in [
            ("8388608", 8 << 20),
            ("8192k", 8 << 20),
            ("6m", 6 << 20),
            ("512m", 512 << 20),
            ("2G", 2 << 30),
            ("1gb", 1 << 30),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for text in ["", "g", "0", "-1", "5m", "1.5g", "2gm", "99999999999t"] {
            assert!(bytes(text).is_err(), "{text}");
        }
        assert_eq!(processors("0.5"), Ok(0.5));
        assert!(
            ["0", "-1", "NaN", "inf", ""]
                .iter()
                .all(|text| processors(text).is_err())
        );
    }

    #[test]
    fn variable_value_may_contain_any_text() {
        let read = variables(&["A=b=c".to_owned(), "EMPTY=".to_owned()]).unwrap();
        assert_eq!(read["A"], "b=c");
        assert_eq!(read["EMPTY"], "");
        assert!(variables(&["=x".to_owned()]).is_err());
        assert!(variables(&["GLOVEBOX_NO_SUCH_VARIABLE".to_owned()]).is_err());
    }
}

//! `glovebox sandbox create`: creates a sandbox without a conversation, which stays until it is removed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use engine::sandbox::{Lifetime, ResourceLimits, SandboxSpec, Volume};

use super::host::{At, Host};
use super::name::Name;
use crate::cli::interrupts::Interrupts;
use crate::cli::screen::{Output, Screen};
use crate::cli::{decided_config, print};
use crate::compose::{self, Lock};
use crate::config::{Config, Overrides, size_in_bytes};
use crate::exit::{Exit, UsageError};
use crate::workspace::{self, WorkFolder};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  glovebox sandbox create box --image python:3.12-slim -d . --env TOKEN --memory 2g
  box=$(glovebox sandbox create) && glovebox sandbox exec \"$box\" -- uname -a
A local sandbox that nobody speaks to for an hour ends itself; its files stay until it is removed.")]
pub(super) struct CreateArguments {
    /// Its name; without one it gets one.
    name: Option<Name>,

    /// The image: any with a POSIX shell.
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,

    #[command(flatten)]
    wishes: Wishes,

    /// With --runtime local: go on where nothing can keep the sandbox in. What runs in it can do what you can.
    #[arg(long)]
    unsafe_local: bool,

    /// Let the sandbox write a folder that holds your home or Glovebox's own files.
    #[arg(long)]
    unsafe_directory: bool,

    #[command(flatten)]
    at: At,
}

/// Settings of a new sandbox or fork.
#[derive(Debug, clap::Args)]
pub(super) struct Wishes {
    /// The folder that is worked in; without it a fresh one inside.
    #[arg(short = 'd', long, value_name = "DIR")]
    directory: Option<PathBuf>,

    /// A variable for everything that runs inside; without a value, this shell's.
    #[arg(short = 'e', long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,

    /// Something of this machine that is seen inside, as HOST:CONTAINER or HOST:CONTAINER:ro.
    #[arg(long, value_name = "VOLUME", value_delimiter = ',')]
    volume: Vec<Volume>,

    /// How much memory it may use, as 512m or 2g.
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    memory: Option<u64>,

    /// How many processors it may use, as 1.5.
    #[arg(long, value_name = "N", value_parser = processors)]
    cpus: Option<f64>,
}

pub(super) async fn run(arguments: CreateArguments, overrides: &Overrides) -> anyhow::Result<Exit> {
    let CreateArguments { image, unsafe_local, unsafe_directory, .. } = arguments;
    let overrides = Overrides { image, unsafe_local, unsafe_directory, ..overrides.clone() };
    let host = Host::open(&arguments.at, &overrides).await?;
    let name = arguments.name.map_or_else(Name::fresh, Ok)?;
    let spec = spec(&host.config, &name, host.config.sandbox.image.clone(), arguments.wishes)?;
    let reserved = reserve(&host, &name).await?;
    if let Some((isolation, bounds)) = compose::isolation(&host.config, &host.state_dir).await? {
        print::note(&format!("isolation: {isolation}\nbounded: {bounds}\n"));
    }
    create(&host, &reserved, &spec).await
}

/// A sandbox name that no other process can use until this is dropped.
pub(super) struct Reserved(Name, #[expect(dead_code, reason = "held")] Lock);

/// Reserves a name. An existing sandbox of this name is an error: the runtime would replace it, as it does after a crash. Of
/// two processes that create the same name concurrently, one fails.
pub(super) async fn reserve(host: &Host, name: &Name) -> anyhow::Result<Reserved> {
    let lock = host.state_dir.lock(name.conversation())?;
    match host.find(name).await? {
        None => Ok(Reserved(name.clone(), lock)),
        Some(_) => {
            let text = format!("there is a sandbox {name} already: `glovebox sandbox rm {name}` removes it");
            Err(UsageError(text).into())
        }
    }
}

/// Creates a sandbox and prints its name. After ^C nothing of it remains.
pub(super) async fn create(
    host: &Host,
    Reserved(name, _): &Reserved,
    spec: &SandboxSpec,
) -> anyhow::Result<Exit> {
    let mut interrupts = Interrupts::listen()?;
    let screen = std::sync::Mutex::new(Screen::new(Output::Transcript));
    let on_progress = |progress| {
        screen.lock().unwrap_or_else(std::sync::PoisonError::into_inner).start(&progress);
    };
    let created = tokio::select! {
        created = host.provider.create(spec, &on_progress) => created,
        () = interrupts.next() => {
            host.provider.wait_for_cleanup().await;
            return Ok(Exit::Interrupted);
        }
    };
    created?;
    drop(screen);
    print::line(&name.to_string())?;
    Ok(Exit::Finished)
}

/// Returns the spec of the requested sandbox.
pub(super) fn spec(
    config: &Config,
    name: &Name,
    image: Option<String>,
    wishes: Wishes,
) -> anyhow::Result<SandboxSpec> {
    let usual = compose::spec(config, name.conversation().clone());
    let mut environment = workspace::environment(&config.workspace, None);
    environment.extend(variables(&wishes.env)?);
    let spec = SandboxSpec {
        lifetime: Lifetime::UntilRemoved,
        image,
        workspace: WorkFolder::for_spec(config, wishes.directory.as_deref())?,
        volumes: if wishes.volume.is_empty() { usual.volumes.clone() } else { wishes.volume },
        environment,
        resources: ResourceLimits {
            memory_bytes: wishes.memory.unwrap_or(usual.resources.memory_bytes),
            cpus: wishes.cpus.unwrap_or(usual.resources.cpus),
            ..usual.resources
        },
        ..usual
    };
    decided_config::check_sandbox(config, &spec)?;
    Ok(spec)
}

/// Parses variables: `NAME=VALUE`, or `NAME` for its value in the environment of this process.
pub(super) fn variables(given: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    let variable = |text: &String| {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => match std::env::var(text) {
                Ok(value) => (text.as_str(), value),
                Err(error) => return Err(UsageError(format!("the variable {text}: {error}")).into()),
            },
        };
        if name.is_empty() {
            return Err(UsageError(format!("{text:?} names no variable")).into());
        }
        Ok((name.to_owned(), value))
    };
    given.iter().map(variable).collect()
}

fn bytes(text: &str) -> Result<u64, String> {
    size_in_bytes(text).ok_or_else(|| "expected a size, as 512m or 2g".to_owned())
}

fn processors(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| *number >= 0.01 && *number <= 4096.0);
    number.ok_or("expected a number of processors, as 2 or 0.5".into())
}

#[cfg(test)]
mod tests {
    use super::{bytes, processors, variables};

    #[test]
    fn sizes_are_read_as_engines_write_them() {
        for (text, expected) in
            [("1024", 1024), ("4k", 4096), ("512m", 512 << 20), ("2G", 2 << 30), ("1gb", 1 << 30)]
        {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for text in ["", "g", "0", "-1", "1.5g", "2gm", "99999999999t"] {
            assert!(bytes(text).is_err(), "{text}");
        }
        assert_eq!(processors("0.5"), Ok(0.5));
        assert!(["0", "-1", "NaN", "inf", ""].iter().all(|text| processors(text).is_err()));
    }

    #[test]
    fn a_value_may_hold_everything() {
        let read = variables(&["A=b=c".to_owned(), "EMPTY=".to_owned()]).unwrap();
        assert_eq!(read["A"], "b=c");
        assert_eq!(read["EMPTY"], "");
        assert!(variables(&["=x".to_owned()]).is_err());
        assert!(variables(&["GLOVEBOX_NO_SUCH_VARIABLE".to_owned()]).is_err());
    }
}

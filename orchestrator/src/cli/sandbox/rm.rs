//! `glovebox sandbox rm`.

use clap::builder::NonEmptyStringValueParser;
use clap_complete::engine::ArgValueCompleter;
use conversations::Workspaces as _;
use engine::sandbox::{SandboxSummary, Snapshot};

use super::arguments::RuntimeChoice;
use super::ls::image_name;
use super::name::{SandboxName, display_name};
use super::runtime::SandboxRuntime;
use super::runtimes::SandboxRuntimes;
use crate::cli::{candidates, print};
use crate::config::Overrides;
use crate::exit::{self, Exit, UsageError};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Removes the sandbox and its files, except a folder that was given with -d. Refuses the sandbox of a conversation that a \
process runs now. If one of several sandboxes cannot be removed, the others are removed, and the exit code is 1.")]
pub(super) struct RmArguments {
    /// Names of the sandboxes.
    #[arg(value_name = "NAME", required_unless_present_any = ["all", "snapshot"], conflicts_with = "all")]
    #[arg(add = ArgValueCompleter::new(candidates::sandboxes))]
    names: Vec<SandboxName>,

    /// Remove all sandboxes that `sandbox create` and `sandbox fork` created, in all runtimes that
    /// `ls` shows.
    #[arg(long)]
    all: bool,

    /// Remove an image that `sandbox snapshot` created. Can be repeated.
    #[arg(long, value_name = "IMAGE", value_parser = NonEmptyStringValueParser::new())]
    snapshot: Vec<String>,

    #[command(flatten)]
    runtime: RuntimeChoice,
}

pub(super) async fn run(arguments: RmArguments, overrides: &Overrides) -> anyhow::Result<Exit> {
    let runtimes = SandboxRuntimes::open(&arguments.runtime, overrides).await?;
    let (sandboxes, mut exit) = match arguments.all {
        true => {
            runtimes
                .list(|summary| summary.lifetime.is_chosen_by_user())
                .await?
        }
        false => runtimes.find_all(&arguments.names).await?,
    };
    for (runtime, summary) in sandboxes {
        match remove(&runtime, &summary).await {
            Ok(()) => print::line(&display_name(&summary))?,
            Err(error) => {
                print::error(&format!(
                    "cannot remove the sandbox {}: {error:#}",
                    display_name(&summary)
                ));
                exit = Exit::Failed;
            }
        }
    }
    for image in &arguments.snapshot {
        match remove_snapshot(runtimes.configured(), image).await {
            Ok(()) => print::line(image)?,
            Err(error) => {
                print::error(&format!("{error:#}"));
                exit = exit::of_error(&error);
            }
        }
    }
    Ok(exit)
}

async fn remove_snapshot(runtime: &SandboxRuntime, image: &str) -> anyhow::Result<()> {
    let snapshots = runtime.provider.snapshots()?;
    let latest = format!("{image}:latest");
    let is_match = |snapshot: &Snapshot| {
        [snapshot.image.as_str(), image_name(&snapshot.image)].contains(&image)
            || snapshot.image == latest
    };
    let Some(found) = snapshots.list_snapshots().await?.into_iter().find(is_match) else {
        let text = format!(
            "there is no snapshot {image}: `glovebox sandbox ls --snapshots` lists all snapshots"
        );
        return Err(UsageError(text).into());
    };
    Ok(snapshots.remove_snapshot(&found.image).await?)
}

async fn remove(runtime: &SandboxRuntime, summary: &SandboxSummary) -> anyhow::Result<()> {
    let lock = runtime.lock_conversation(summary)?;
    runtime.provider.destroy(&summary.sandbox).await?;
    if let (Some(_), Some(conversation)) = (lock, &summary.conversation) {
        runtime.state_dir.remove_if_empty(conversation);
    }
    Ok(())
}

//! `glovebox sandbox rm`.

use clap_complete::engine::ArgValueCompleter;
use engine::sandbox::{Lifetime, SandboxSummary, Snapshot};

use super::host::{At, Host};
use super::hosts::Hosts;
use super::ls::image_name;
use super::name::Name;
use crate::cli::{candidates, print};
use crate::config::Overrides;
use crate::exit::{Exit, UsageError};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A conversation's sandbox is removed only while no process works on the conversation. A folder that was given with -d
stays; everything else in the sandbox is gone. What does not exist or cannot be removed is named, the others are removed,
and the exit code is 1.")]
pub(super) struct RmArguments {
    /// The sandboxes.
    #[arg(value_name = "NAME", required_unless_present_any = ["all", "snapshot"], conflicts_with = "all")]
    #[arg(add = ArgValueCompleter::new(candidates::sandboxes))]
    names: Vec<Name>,

    /// All that were made by hand, at every runtime that `ls` shows. Those of conversations are left to `prune`.
    #[arg(long)]
    all: bool,

    /// An image that `snapshot` made; can be given several times.
    #[arg(long, value_name = "IMAGE")]
    snapshot: Vec<String>,

    #[command(flatten)]
    at: At,
}

pub(super) async fn run(arguments: RmArguments, overrides: &Overrides) -> anyhow::Result<Exit> {
    let hosts = Hosts::open(&arguments.at, overrides).await?;
    let (chosen, mut exit) = choose(&hosts, &arguments).await?;
    for (host, placed) in chosen {
        // One that cannot be removed must not keep the others.
        match remove(host, &placed).await {
            Ok(()) => print::line(&Name::of(&placed))?,
            Err(error) => {
                print::problem(&format!("removing {}: {error:#}", Name::of(&placed)));
                exit = Exit::Failed;
            }
        }
    }
    for image in &arguments.snapshot {
        match remove_snapshot(hosts.first(), image).await {
            Ok(()) => print::line(image)?,
            Err(error) => {
                print::problem(&format!("{error:#}"));
                exit = Exit::Failed;
            }
        }
    }
    Ok(exit)
}

async fn remove_snapshot(host: &Host, image: &str) -> anyhow::Result<()> {
    let snapshots = host.provider.snapshots()?;
    let latest = format!("{image}:latest");
    let is_meant = |snapshot: &Snapshot| {
        [snapshot.image.as_str(), image_name(&snapshot.image)].contains(&image) || snapshot.image == latest
    };
    let Some(found) = snapshots.list_snapshots().await?.into_iter().find(is_meant) else {
        let text =
            format!("there is no snapshot {image}: `glovebox sandbox ls --snapshots` lists those there are");
        return Err(UsageError(text).into());
    };
    Ok(snapshots.remove_snapshot(&found.image).await?)
}

/// The sandboxes to remove, and the exit code so far. One that does not exist is reported and keeps none of the others.
async fn choose<'a>(
    hosts: &'a Hosts,
    arguments: &RmArguments,
) -> anyhow::Result<(Vec<(&'a Host, SandboxSummary)>, Exit)> {
    if arguments.all {
        let mut all = hosts.list().await?;
        all.retain(|(_, placed)| placed.lifetime == Lifetime::UntilRemoved);
        return Ok((all, Exit::Finished));
    }
    hosts.existing_of(&arguments.names).await
}

async fn remove(host: &Host, placed: &SandboxSummary) -> anyhow::Result<()> {
    let lock = host.lock_if_of_a_conversation(placed)?;
    host.provider.destroy(&placed.sandbox).await?;
    if let (Some(_), Some(conversation)) = (lock, &placed.conversation) {
        host.state_dir.remove_empty_workspace(conversation);
    }
    Ok(())
}

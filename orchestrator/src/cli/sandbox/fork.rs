//! `glovebox sandbox fork`: takes a snapshot and creates a sandbox from it.

use clap_complete::engine::ArgValueCompleter;
use engine::sandbox::{SandboxSpec, SnapshotPurpose};

use super::create::{self, Wishes};
use super::host::At;
use super::hosts::Hosts;
use super::name::Name;
use crate::cli::{candidates, print};
use crate::config::Overrides;
use crate::exit::Exit;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The new sandbox has the files of the other and nothing else of it: what runs there, what is mounted there and its
environment are not taken over. No image stays: what was copied goes with the last sandbox that came of it.
Example: glovebox sandbox fork box attempt-2 --env TOKEN")]
pub(super) struct ForkArguments {
    /// The sandbox.
    #[arg(add = ArgValueCompleter::new(candidates::sandboxes))]
    name: Name,

    /// The new one's name; without it, it gets one.
    new: Option<Name>,

    #[command(flatten)]
    wishes: Wishes,

    #[command(flatten)]
    at: At,
}

pub(super) async fn run(arguments: ForkArguments, overrides: &Overrides) -> anyhow::Result<Exit> {
    let hosts = Hosts::open(&arguments.at, overrides).await?;
    let (host, placed) = hosts.existing(&arguments.name).await?;
    let new = arguments.new.map_or_else(Name::fresh, Ok)?;
    // Invalid arguments are reported before the snapshot, which takes long.
    let spec = create::spec(&host.config, &new, None, arguments.wishes)?;
    let reserved = create::reserve(host, &new).await?;
    let snapshots = host.provider.snapshots()?;
    let purpose = SnapshotPurpose::Fork(new.conversation());
    let image = snapshots.create_snapshot(&placed.sandbox, purpose).await?;
    let spec = SandboxSpec { image: Some(image.clone()), ..spec };
    let exit = create::create(host, &reserved, &spec).await;
    if !matches!(exit, Ok(Exit::Finished))
        && let Err(error) = snapshots.remove_snapshot(&image).await
    {
        print::warning(&format!("{error:#}; `glovebox sandbox prune` tries again"));
    }
    exit
}

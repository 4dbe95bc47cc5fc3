//! `glovebox sandbox snapshot`.

use clap_complete::engine::ArgValueCompleter;
use engine::sandbox::SnapshotPurpose;

use super::host::At;
use super::hosts::Hosts;
use super::name::Name;
use crate::cli::{candidates, print};
use crate::config::Overrides;
use crate::exit::Exit;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
What is mounted into the sandbox, its workspace from -d for one, is not in the image. It stays until
`glovebox sandbox rm --snapshot` removes it; `glovebox sandbox ls --snapshots` lists all.
Example: glovebox sandbox create other --image \"$(glovebox sandbox snapshot box)\"")]
pub(super) struct SnapshotArguments {
    /// The sandbox.
    #[arg(add = ArgValueCompleter::new(candidates::sandboxes))]
    name: Name,

    /// What the image is called; without it, it gets a name.
    image: Option<String>,

    #[command(flatten)]
    at: At,
}

pub(super) async fn run(arguments: SnapshotArguments, overrides: &Overrides) -> anyhow::Result<Exit> {
    let hosts = Hosts::open(&arguments.at, overrides).await?;
    let (host, placed) = hosts.existing(&arguments.name).await?;
    let purpose = SnapshotPurpose::Keep(arguments.image.as_deref());
    let image = host.provider.snapshots()?.create_snapshot(&placed.sandbox, purpose).await?;
    print::line(&image)?;
    Ok(Exit::Finished)
}

//! `glovebox sandbox fork`: takes a snapshot and creates a sandbox from it.

use engine::sandbox::{SandboxSpec, SnapshotPurpose};

use super::arguments::SandboxChoice;
use super::create::{self, SandboxOptions};
use super::name::SandboxName;
use crate::cli::print;
use crate::config::Overrides;
use crate::exit::Exit;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Copies the files of the sandbox, but not its processes, mounts and environment. The copy is removed with the last fork \
that uses it.
Example: glovebox sandbox fork box attempt-2 --env TOKEN")]
pub(super) struct ForkArguments {
    #[command(flatten)]
    sandbox: SandboxChoice,

    /// Name of the fork. By default, a generated name.
    new: Option<SandboxName>,

    #[command(flatten)]
    options: SandboxOptions,
}

pub(super) async fn run(arguments: ForkArguments, overrides: &Overrides) -> anyhow::Result<Exit> {
    let (runtime, summary) = arguments.sandbox.find(overrides).await?;
    let new = arguments.new.map_or_else(SandboxName::generate, Ok)?;
    // Invalid arguments are reported before the snapshot, which takes long.
    let spec = create::spec(&runtime.config, &new, None, arguments.options)?;
    let _lock = create::reserve_name(&runtime, &new).await?;
    let purpose = SnapshotPurpose::Fork(new.conversation());
    let snapshots = runtime.provider.snapshots()?;
    let image = snapshots.create_snapshot(&summary.sandbox, purpose).await?;
    let spec = SandboxSpec {
        image: Some(image.clone()),
        ..spec
    };
    let exit = create::create(&runtime, &new, &spec).await;
    if !matches!(exit, Ok(Exit::Finished))
        && let Err(error) = snapshots.remove_snapshot(&image).await
    {
        print::warning(&format!("{error:#}; `glovebox sandbox prune` retries"));
    }
    exit
}

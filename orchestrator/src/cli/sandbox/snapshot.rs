//! `glovebox sandbox snapshot`.

use engine::sandbox::SnapshotPurpose;

use super::arguments::SandboxChoice;
use crate::cli::print;
use crate::config::Overrides;
use crate::exit::Exit;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The image excludes mounts, such as a workspace from -d. List images with `glovebox sandbox ls --snapshots`, and remove \
them with `glovebox sandbox rm --snapshot`.
Example: glovebox sandbox create other --image \"$(glovebox sandbox snapshot box)\"")]
pub(super) struct SnapshotArguments {
    #[command(flatten)]
    sandbox: SandboxChoice,

    /// Name of the image. By default, a generated name.
    image: Option<String>,
}

pub(super) async fn run(
    arguments: SnapshotArguments,
    overrides: &Overrides,
) -> anyhow::Result<Exit> {
    let (runtime, summary) = arguments.sandbox.find(overrides).await?;
    let purpose = SnapshotPurpose::Keep(arguments.image.as_deref());
    let image = runtime
        .provider
        .snapshots()?
        .create_snapshot(&summary.sandbox, purpose)
        .await?;
    print::line(&image)?;
    Ok(Exit::Finished)
}

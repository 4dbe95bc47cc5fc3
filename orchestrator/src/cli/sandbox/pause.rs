//! `glovebox sandbox pause` and `glovebox sandbox resume`.

use super::arguments::SandboxesChoice;
use super::name::display_name;
use super::runtimes::SandboxRuntimes;
use crate::cli::print;
use crate::config::Overrides;
use crate::exit::Exit;

pub(super) async fn pause(
    arguments: SandboxesChoice,
    overrides: &Overrides,
) -> anyhow::Result<Exit> {
    change(arguments, overrides, true).await
}

pub(super) async fn resume(
    arguments: SandboxesChoice,
    overrides: &Overrides,
) -> anyhow::Result<Exit> {
    change(arguments, overrides, false).await
}

/// Pauses or resumes all sandboxes, also if one of them fails.
async fn change(
    arguments: SandboxesChoice,
    overrides: &Overrides,
    pauses: bool,
) -> anyhow::Result<Exit> {
    let runtimes = SandboxRuntimes::open(&arguments.runtime, overrides).await?;
    let (sandboxes, mut exit) = runtimes.find_all(&arguments.names).await?;
    for (runtime, summary) in sandboxes {
        let changed = async {
            match pauses {
                true => runtime.provider.pausing()?.pause(&summary.sandbox).await,
                false => runtime.provider.pausing()?.resume(&summary.sandbox).await,
            }
        };
        if let Err(error) = changed.await {
            print::error(&format!("{}: {error:#}", display_name(&summary)));
            exit = Exit::Failed;
        }
    }
    Ok(exit)
}

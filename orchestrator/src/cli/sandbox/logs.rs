//! `glovebox sandbox logs`.

use super::host::{Host, OneSandbox};
use crate::cli::print;
use crate::config::Overrides;
use crate::exit::Exit;

pub(super) async fn run(arguments: OneSandbox, overrides: &Overrides) -> anyhow::Result<Exit> {
    let host = Host::open(&arguments.at, overrides).await?;
    let placed = host.existing(&arguments.name).await?;
    print::command_output(host.provider.logs(&placed.sandbox).await?.as_bytes())?;
    Ok(Exit::Finished)
}

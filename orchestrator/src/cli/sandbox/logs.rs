//! `glovebox sandbox logs`.

use super::host::{Host, OneSandbox};
use crate::cli::print;
use crate::compose;
use crate::config::Overrides;
use crate::exit::Exit;

pub(super) async fn run(arguments: OneSandbox, overrides: &Overrides) -> anyhow::Result<Exit> {
    let host = Host::open(&arguments.at, overrides).await?;
    let placed = host.existing(&arguments.name).await?;
    let logs = host.provider.logs(&placed.sandbox).await?;
    print::command_output(compose::redactor(&host.config)?.text(&logs).as_bytes())?;
    Ok(Exit::Finished)
}

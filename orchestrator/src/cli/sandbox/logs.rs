//! `glovebox sandbox logs`.

use super::host::OneSandbox;
use super::hosts::Hosts;
use crate::cli::print;
use crate::compose;
use crate::config::Overrides;
use crate::exit::Exit;

pub(super) async fn run(arguments: OneSandbox, overrides: &Overrides) -> anyhow::Result<Exit> {
    let hosts = Hosts::open(&arguments.at, overrides).await?;
    let (host, placed) = hosts.existing(&arguments.name).await?;
    let logs = host.provider.monitoring()?.logs(&placed.sandbox).await?;
    print::command_output(compose::redactor(&host.config)?.text(&logs).as_bytes())?;
    Ok(Exit::Finished)
}

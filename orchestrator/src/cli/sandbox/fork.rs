//! `glovebox sandbox fork`: a snapshot, and a sandbox from it.

use super::create::{self, Wishes};
use super::host::{At, Host};
use super::name::Name;
use crate::cli::print;
use crate::config::Overrides;
use crate::exit::Exit;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The new sandbox has the files of the other and nothing else of it: what runs there, what is mounted there and its
environment are not taken over. The image of the files stays, and is named on standard error.
Example: glovebox sandbox fork box attempt-2 --env TOKEN")]
pub(super) struct ForkArguments {
    /// The sandbox.
    name: Name,

    /// The new one's name; without it, it gets one.
    new: Option<Name>,

    #[command(flatten)]
    wishes: Wishes,

    #[command(flatten)]
    at: At,
}

pub(super) async fn run(arguments: ForkArguments, overrides: &Overrides) -> anyhow::Result<Exit> {
    let host = Host::open(&arguments.at, overrides).await?;
    let placed = host.existing(&arguments.name).await?;
    let new = arguments.new.map_or_else(Name::fresh, Ok)?;
    // Before the work of a snapshot.
    create::must_be_free(&host, &new).await?;
    let image = host.provider.snapshot(&placed.sandbox, None).await?;
    print::note(&format!("the files of {} are the image {}\n", arguments.name, print::for_terminal(&image)));
    create::place(&host, &new, Some(image), arguments.wishes).await
}

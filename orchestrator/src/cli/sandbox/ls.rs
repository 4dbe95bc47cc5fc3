//! `glovebox sandbox ls`.

use engine::sandbox::{Lifetime, SandboxState, SandboxSummary, Snapshot};
use indicatif::BinaryBytes;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::host::{At, Host};
use super::hosts::Hosts;
use super::name::Name;
use crate::cli::{print, table};
use crate::config::Overrides;
use crate::exit::Exit;

const SHORT_ID_LENGTH: usize = 12;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without --runtime: the sandboxes of docker, local, and what the configuration names of ssh and remote. A runtime that does
not answer is named on standard error.")]
pub(super) struct LsArguments {
    /// Print one JSON array.
    #[arg(long)]
    json: bool,

    /// List the images that `snapshot` and `fork` made instead.
    #[arg(long)]
    snapshots: bool,

    #[command(flatten)]
    at: At,
}

pub(super) async fn run(arguments: LsArguments, overrides: &Overrides) -> anyhow::Result<Exit> {
    let hosts = Hosts::open(&arguments.at, overrides).await?;
    if arguments.snapshots {
        return list_snapshots(hosts.first(), arguments.json).await;
    }
    let mut all = hosts.list().await?;
    all.sort_by_cached_key(|(_, placed)| (placed.created_at, Name::of(placed)));
    if arguments.json {
        let all: Vec<Value> = all.iter().map(|(host, placed)| as_json(placed, host)).collect();
        print::line(&serde_json::to_string(&all)?)?;
    } else {
        let rows: Vec<_> = all.iter().map(|(host, placed)| row(placed, host)).collect();
        table::print(["NAME", "RUNTIME", "STATE", "IMAGE", "AGE", "MADE"], &rows)?;
    }
    Ok(Exit::Finished)
}

fn as_json(placed: &SandboxSummary, host: &Host) -> Value {
    json!({
        "name": Name::of(placed),
        "runtime": host.provider.runtime(),
        "state": state(placed.condition),
        "image": placed.image,
        "created_at": placed.created_at.map(|at| at.to_string()),
        "made": maker(placed),
        "sandbox_id": placed.sandbox,
    })
}

async fn list_snapshots(host: &Host, json: bool) -> anyhow::Result<Exit> {
    let mut all = match host.provider.snapshots() {
        Ok(snapshots) => snapshots.list_snapshots().await?,
        Err(_) => Vec::new(),
    };
    all.sort_by(|one, other| (one.created_at, &one.image).cmp(&(other.created_at, &other.image)));
    if json {
        let all: Vec<Value> = all.iter().map(snapshot_as_json).collect();
        print::line(&serde_json::to_string(&all)?)?;
    } else {
        let rows: Vec<_> = all.iter().map(snapshot_row).collect();
        table::print(["IMAGE", "SIZE", "AGE", "MADE"], &rows)?;
    }
    Ok(Exit::Finished)
}

fn snapshot_as_json(snapshot: &Snapshot) -> Value {
    json!({
        "image": snapshot.image,
        "size_bytes": snapshot.size_bytes,
        "created_at": snapshot.created_at.map(|at| at.to_string()),
        "fork": snapshot.fork,
    })
}

fn snapshot_row(Snapshot { image, fork, size_bytes, created_at }: &Snapshot) -> [String; 4] {
    let made = fork.as_ref().map_or_else(|| "to be kept".to_owned(), |fork| format!("for the fork {fork}"));
    [image_name(image).to_owned(), BinaryBytes(*size_bytes).to_string(), age_of(*created_at), made]
}

/// An image without a name is shown by the beginning of its id, as engines show it and take it.
pub(super) fn image_name(image: &str) -> &str {
    match image.strip_prefix("sha256:") {
        Some(digits) => digits.get(..SHORT_ID_LENGTH).unwrap_or(digits),
        None => image,
    }
}

fn age_of(created_at: Option<Timestamp>) -> String {
    created_at.map_or_else(|| "-".into(), |at| table::age(Timestamp::now().as_second() - at.as_second()))
}

fn row(placed: &SandboxSummary, host: &Host) -> [String; 6] {
    [
        Name::of(placed),
        host.provider.runtime().to_owned(),
        state(placed.condition).to_owned(),
        placed.image.as_deref().map_or("-", image_name).to_owned(),
        age_of(placed.created_at),
        maker(placed).to_owned(),
    ]
}

fn state(condition: SandboxState) -> &'static str {
    match condition {
        SandboxState::Running => "running",
        SandboxState::Paused => "paused",
        SandboxState::Ended => "ended",
    }
}

fn maker(placed: &SandboxSummary) -> &'static str {
    match (placed.lifetime, &placed.conversation) {
        (Lifetime::UntilRemoved, _) => "by hand",
        (Lifetime::Conversation, Some(_)) => "for a conversation",
        (Lifetime::Conversation, None) => "ahead",
    }
}

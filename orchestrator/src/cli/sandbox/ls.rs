//! `glovebox sandbox ls`.

use engine::sandbox::{Lifetime, SandboxState, SandboxSummary, Snapshot};
use indicatif::BinaryBytes;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::arguments::RuntimeChoice;
use super::name::display_name;
use super::runtime::SandboxRuntime;
use super::runtimes::SandboxRuntimes;
use crate::cli::{print, table};
use crate::config::Overrides;
use crate::exit::Exit;

const SHORT_ID_LENGTH: usize = 12;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
By default, lists the sandboxes of local, of docker if it was used, and of ssh and remote if they are configured; --host \
names another ssh host. Warns about a \
runtime that does not respond, and exits with 1. LEFT is the time until a sandbox of `create --ttl` is removed.")]
pub(super) struct LsArguments {
    /// Print one JSON array.
    #[arg(long)]
    json: bool,

    /// Print only the names, one per line.
    #[arg(short = 'q', long, conflicts_with = "json")]
    quiet: bool,

    /// List the images of `snapshot` and `fork` instead.
    #[arg(long)]
    snapshots: bool,

    #[command(flatten)]
    runtime: RuntimeChoice,
}

pub(super) async fn run(arguments: LsArguments, overrides: &Overrides) -> anyhow::Result<Exit> {
    let runtimes = SandboxRuntimes::open(&arguments.runtime, overrides).await?;
    if arguments.snapshots {
        return list_snapshots(runtimes.configured(), &arguments).await;
    }
    let (mut all, exit) = runtimes.list(|_| true).await?;
    all.sort_by_cached_key(|(_, summary)| (summary.created_at, display_name(summary)));
    if arguments.json {
        let all: Vec<Value> = all
            .iter()
            .map(|(runtime, summary)| as_json(summary, runtime))
            .collect();
        print::line(&serde_json::to_string(&all)?)?;
    } else if arguments.quiet {
        all.iter()
            .try_for_each(|(_, summary)| print::line(&display_name(summary)))?;
    } else {
        let rows: Vec<_> = all
            .iter()
            .map(|(runtime, summary)| row(summary, runtime))
            .collect();
        table::print(
            ["NAME", "RUNTIME", "STATE", "IMAGE", "AGE", "LEFT", "MADE"],
            &rows,
        )?;
    }
    Ok(exit)
}

pub(super) fn as_json(summary: &SandboxSummary, runtime: &SandboxRuntime) -> Value {
    json!({
        "name": display_name(summary),
        "runtime": runtime.provider.runtime(),
        "state": state(summary.condition),
        "image": summary.image,
        "created_at": summary.created_at.map(|at| at.to_string()),
        "expires_at": summary.lifetime.expires_at().map(|at| at.to_string()),
        "made": maker(summary),
        "sandbox_id": summary.sandbox,
    })
}

async fn list_snapshots(runtime: &SandboxRuntime, arguments: &LsArguments) -> anyhow::Result<Exit> {
    let mut all = match runtime.provider.snapshots() {
        Ok(snapshots) => snapshots.list_snapshots().await?,
        Err(_) => Vec::new(),
    };
    all.sort_by(|one, other| (one.created_at, &one.image).cmp(&(other.created_at, &other.image)));
    if arguments.json {
        let all: Vec<Value> = all.iter().map(snapshot_as_json).collect();
        print::line(&serde_json::to_string(&all)?)?;
    } else if arguments.quiet {
        all.iter()
            .try_for_each(|snapshot| print::line(image_name(&snapshot.image)))?;
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

fn snapshot_row(
    Snapshot {
        image,
        fork,
        size_bytes,
        created_at,
    }: &Snapshot,
) -> [String; 4] {
    let made = fork.as_ref().map_or_else(
        || "to be kept".to_owned(),
        |fork| format!("for the fork {fork}"),
    );
    [
        image_name(image).to_owned(),
        BinaryBytes(*size_bytes).to_string(),
        age_of(*created_at),
        made,
    ]
}

/// Name of an image. For an image without a name, the prefix of its id, which engines show and
/// accept.
pub(super) fn image_name(image: &str) -> &str {
    match image.strip_prefix("sha256:") {
        Some(digits) => digits.get(..SHORT_ID_LENGTH).unwrap_or(digits),
        None => image,
    }
}

/// Formats the time until a sandbox is removed.
pub(super) fn remaining(lifetime: Lifetime) -> String {
    let seconds = |at: Timestamp| at.as_second() - Timestamp::now().as_second();
    lifetime
        .expires_at()
        .map_or_else(|| "-".into(), |at| table::age(seconds(at)))
}

pub(super) fn age_of(created_at: Option<Timestamp>) -> String {
    created_at.map_or_else(
        || "-".into(),
        |at| table::age(Timestamp::now().as_second() - at.as_second()),
    )
}

fn row(summary: &SandboxSummary, runtime: &SandboxRuntime) -> [String; 7] {
    [
        display_name(summary),
        runtime.provider.runtime().to_owned(),
        state(summary.condition).to_owned(),
        summary.image.as_deref().map_or("-", image_name).to_owned(),
        age_of(summary.created_at),
        remaining(summary.lifetime),
        maker(summary).to_owned(),
    ]
}

pub(super) fn state(condition: SandboxState) -> &'static str {
    match condition {
        SandboxState::Running => "running",
        SandboxState::Paused => "paused",
        SandboxState::Ended => "ended",
    }
}

fn maker(summary: &SandboxSummary) -> &'static str {
    match (summary.lifetime, &summary.conversation) {
        (Lifetime::UntilRemoved | Lifetime::Until(_), _) => "by hand",
        (Lifetime::Conversation, Some(_)) => "for a conversation",
        (Lifetime::Conversation, None) => "ahead",
    }
}

//! `glovebox sandbox ls`.

use std::time::Duration;

use engine::sandbox::{Condition, Lifetime, Placed, Snapshot};
use futures_util::future::join_all;
use indicatif::BinaryBytes;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::host::{At, Host};
use super::name::Name;
use super::table;
use crate::cli::print;
use crate::config::Overrides;
use crate::exit::Exit;

const SHORT_ID_LENGTH: usize = 12;

/// How long one runtime may keep those of the others from being shown.
const PATIENCE: Duration = Duration::from_secs(20);

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
    let host = Host::open(&arguments.at, overrides).await?;
    if arguments.snapshots {
        return list_snapshots(&host, arguments.json).await;
    }
    let (hosts, failed) = match arguments.at.runtime {
        Some(_) => (vec![host], Vec::new()),
        None => host.of_all_runtimes(),
    };
    let mut all = list(&hosts, failed).await?;
    all.sort_by_cached_key(|(_, placed)| (placed.created_at, Name::of(placed)));
    if arguments.json {
        let all: Vec<Value> = all.iter().map(|(runtime, placed)| as_json(placed, runtime)).collect();
        print::line(&serde_json::to_string(&all)?)?;
    } else {
        let rows: Vec<_> = all.iter().map(|(runtime, placed)| row(placed, runtime)).collect();
        table::print(["NAME", "RUNTIME", "STATE", "IMAGE", "AGE", "MADE"], &rows)?;
    }
    Ok(Exit::Finished)
}

/// What the runtimes that answer have. Of one that does not, people are told; if none does, that is the error.
async fn list(
    hosts: &[Host],
    mut silent: Vec<(&'static str, anyhow::Error)>,
) -> anyhow::Result<Vec<(&'static str, Placed)>> {
    let asked = hosts.iter().map(|host| async {
        let listed = match timeout(PATIENCE, host.provider.list()).await {
            Ok(listed) => listed.map_err(anyhow::Error::from),
            Err(_) => Err(anyhow::anyhow!("it does not answer within {} s", PATIENCE.as_secs())),
        };
        (host.provider.runtime(), listed)
    });
    let (mut all, mut answers) = (Vec::new(), false);
    for (runtime, listed) in join_all(asked).await {
        match listed {
            Ok(placed) => {
                answers = true;
                all.extend(placed.into_iter().map(|placed| (runtime, placed)));
            }
            Err(error) => silent.push((runtime, error)),
        }
    }
    if !answers && let Some((_, error)) = silent.pop() {
        return Err(error);
    }
    for (runtime, error) in silent {
        print::warning(&format!("{runtime} is left out: {error:#}"));
    }
    Ok(all)
}

fn as_json(placed: &Placed, runtime: &str) -> Value {
    json!({
        "name": Name::of(placed),
        "runtime": runtime,
        "state": state(placed.condition),
        "image": placed.image,
        "created_at": placed.created_at.map(|at| at.to_string()),
        "made": maker(placed),
        "sandbox_id": placed.sandbox,
    })
}

async fn list_snapshots(host: &Host, json: bool) -> anyhow::Result<Exit> {
    let mut all = host.provider.snapshots().await?;
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
    created_at.map_or_else(|| "-".into(), |at| age(Timestamp::now().as_second() - at.as_second()))
}

fn row(placed: &Placed, runtime: &str) -> [String; 6] {
    [
        Name::of(placed),
        runtime.to_owned(),
        state(placed.condition).to_owned(),
        placed.image.as_deref().map_or("-", image_name).to_owned(),
        age_of(placed.created_at),
        maker(placed).to_owned(),
    ]
}

fn state(condition: Condition) -> &'static str {
    match condition {
        Condition::Running => "running",
        Condition::Paused => "paused",
        Condition::Ended => "ended",
    }
}

fn maker(placed: &Placed) -> &'static str {
    match (placed.lifetime, &placed.conversation) {
        (Lifetime::UntilRemoved, _) => "by hand",
        (Lifetime::Conversation, Some(_)) => "for a conversation",
        (Lifetime::Conversation, None) => "ahead",
    }
}

fn age(seconds: i64) -> String {
    match seconds.max(0) {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::age;

    #[test]
    fn an_age_is_one_number() {
        for (seconds, shown) in
            [(-5, "0 s"), (119, "119 s"), (120, "2 min"), (7_200, "2 h"), (864_000, "10 d")]
        {
            assert_eq!(age(seconds), shown);
        }
    }
}

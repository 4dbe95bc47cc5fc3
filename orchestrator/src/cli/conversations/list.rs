//! `glovebox conversations ls`.

use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use engine::clock;
use engine::events::{ConversationSummary, EventStore, StoreError};
use futures_util::stream::{self, StreamExt as _};
use protocol::AgentState;
use serde_json::{Value, json};

use super::overview::Overview;
use crate::cli::{print, table};
use crate::compose::StateDir;
use crate::exit::Exit;

/// Conversations that are read concurrently: as many as the store has connections for.
const CONCURRENT_READS: usize = 4;

/// The state of a conversation whose process is gone while its agent worked.
const INTERRUPTED: &str = "interrupted";

/// The state of a conversation that cannot be read.
const DAMAGED: &str = "damaged";

/// The values of `--state`: what the column shows.
fn states() -> [&'static str; 15] {
    [
        AgentState::Loading.as_str(),
        AgentState::Init.as_str(),
        AgentState::Running.as_str(),
        AgentState::RateLimited.as_str(),
        AgentState::AwaitingUserInput.as_str(),
        AgentState::AwaitingUserConfirmation.as_str(),
        AgentState::UserConfirmed.as_str(),
        AgentState::UserRejected.as_str(),
        AgentState::Paused.as_str(),
        AgentState::Stopped.as_str(),
        AgentState::Finished.as_str(),
        AgentState::Rejected.as_str(),
        AgentState::Error.as_str(),
        INTERRUPTED,
        DAMAGED,
    ]
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
AGE is the time since the last event, COST what the calls of the models have cost. A conversation is `interrupted` if
its process was killed while the agent worked, and `damaged` if it cannot be read.
Examples:
  glovebox conversations ls --here -n 5
  glovebox conversations ls --state interrupted --state error
  glovebox conversations ls login --json")]
pub(in crate::cli) struct ListArguments {
    /// Only those whose title, first message, model or folder contain this text, in any case.
    text: Option<String>,

    /// Only those in this state. Can be repeated.
    #[arg(long, value_name = "STATE", value_delimiter = ',', value_parser = PossibleValuesParser::new(states()))]
    state: Vec<String>,

    /// Only those that work in this folder.
    #[arg(short = 'd', long, value_name = "DIR")]
    directory: Option<PathBuf>,

    /// Only those that work in the current folder.
    #[arg(long, conflicts_with = "directory")]
    here: bool,

    /// At most this many, the latest.
    #[arg(short = 'n', long, value_name = "N")]
    limit: Option<usize>,

    /// Print one JSON array.
    #[arg(long)]
    json: bool,
}

/// One conversation of the list.
struct Row {
    /// `None` if not even that can be read.
    summary: Option<ConversationSummary>,
    overview: Result<Overview, StoreError>,
    /// Whether another process runs it.
    is_locked: bool,
}

pub(super) async fn run(
    arguments: ListArguments,
    store: &dyn EventStore,
    state_dir: &StateDir,
) -> anyhow::Result<Exit> {
    let list = store.conversations().await?;
    let readable = stream::iter(list.conversations)
        .map(|summary| async move {
            let overview = Overview::read(store, &summary).await;
            let is_locked = state_dir.is_locked(&summary.id);
            Row { summary: Some(summary), overview, is_locked }
        })
        .buffered(CONCURRENT_READS);
    let damaged = list.damaged.into_iter();
    let damaged = damaged.map(|error| Row { summary: None, overview: Err(error), is_locked: false });
    let filter = Filter::new(&arguments);
    let rows: Vec<Row> = readable
        .chain(stream::iter(damaged))
        .filter(|row| std::future::ready(filter.passes(row)))
        .take(arguments.limit.unwrap_or(usize::MAX))
        .collect()
        .await;
    if arguments.json {
        let rows: Vec<Value> = rows.iter().map(Row::to_json).collect();
        print::line(&serde_json::to_string(&rows)?)?;
    } else {
        let rows: Vec<_> = rows.iter().map(Row::to_cells).collect();
        table::print(["ID", "STATE", "AGE", "COST", "MODEL", "FOLDER", "TITLE"], &rows)?;
    }
    Ok(Exit::Finished)
}

/// What a conversation must be like to be listed.
struct Filter<'a> {
    text: Option<String>,
    states: &'a [String],
    folder: Option<PathBuf>,
}

impl<'a> Filter<'a> {
    fn new(arguments: &'a ListArguments) -> Self {
        let folder = arguments.directory.as_deref().or(arguments.here.then_some(Path::new(".")));
        Self {
            text: arguments.text.as_ref().map(|text| text.to_lowercase()),
            states: &arguments.state,
            // One that is gone, or on another machine, is compared as it was given.
            folder: folder.map(|path| path.canonicalize().unwrap_or_else(|_| path.to_owned())),
        }
    }

    fn passes(&self, row: &Row) -> bool {
        let overview = row.overview.as_ref().ok();
        let is_in_folder = |folder| overview.and_then(Overview::folder).map(Path::new) == Some(folder);
        (self.states.is_empty() || self.states.iter().any(|state| state == row.state()))
            && self.folder.as_deref().is_none_or(is_in_folder)
            && self.text.as_ref().is_none_or(|text| overview.is_some_and(|overview| overview.contains(text)))
    }
}

impl Row {
    fn is_interrupted(&self) -> bool {
        !self.is_locked && self.overview.as_ref().is_ok_and(Overview::is_working)
    }

    /// As people read it: `running` would read as if it were, of one whose process is gone.
    fn state(&self) -> &'static str {
        match &self.overview {
            _ if self.is_interrupted() => INTERRUPTED,
            Ok(overview) => overview.agent_state.as_str(),
            Err(_) => DAMAGED,
        }
    }

    /// The id, or what stands in its place.
    fn id(&self) -> &str {
        match (&self.summary, &self.overview) {
            (Some(summary), _) => summary.id.as_str(),
            (None, Err(StoreError::DamagedEntry { conversation, .. })) => conversation,
            (None, _) => "",
        }
    }

    fn error(&self) -> Option<String> {
        let error = self.overview.as_ref().err()?;
        let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
        Some(format!("{error}{}", cause.unwrap_or_default()))
    }

    fn to_json(&self) -> Value {
        let (summary, overview) = (self.summary.as_ref(), self.overview.as_ref().ok());
        json!({
            "conversation_id": self.id(),
            "title": overview.map(Overview::title),
            "agent_state": overview.map_or(DAMAGED, |overview| overview.agent_state.as_str()),
            "interrupted": self.is_interrupted(),
            "model": overview.map(Overview::model),
            "cost": overview.map(|overview| overview.cost),
            "folder": overview.and_then(Overview::folder),
            "events": summary.map(|summary| summary.events),
            "created_at": summary.map(|summary| &summary.created_at),
            "last_updated_at": summary.map(|summary| &summary.last_updated_at),
            "error": self.error(),
        })
    }

    fn to_cells(&self) -> [String; 7] {
        let none = || "-".to_owned();
        let overview = self.overview.as_ref().ok();
        let age = self.summary.as_ref().map(|summary| {
            let seconds =
                clock::epoch_seconds(&clock::now()) - clock::epoch_seconds(&summary.last_updated_at);
            #[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
            table::age(seconds as i64)
        });
        let cost = overview.map(|overview| overview.cost).filter(|cost| *cost > 0.0);
        [
            self.id().to_owned(),
            self.state().to_owned(),
            age.unwrap_or_else(none),
            cost.map_or_else(none, |cost| format!("${cost:.4}")),
            overview.map_or_else(none, |overview| overview.model().to_owned()),
            overview.and_then(Overview::folder).map_or_else(none, str::to_owned),
            self.error().unwrap_or_else(|| overview.map(Overview::title).unwrap_or_default()),
        ]
    }
}

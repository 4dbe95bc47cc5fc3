//! `glovebox conversations ls`.

use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use conversations::{ConversationEntry, ConversationFilter, Conversations, Overview};
use engine::clock;
use protocol::client_api::v2::ConversationStatus;
use serde_json::{Value, json};

use crate::cli::{print, table};
use crate::exit::Exit;

/// The values of `--state`.
fn states() -> [&'static str; ConversationStatus::ALL.len()] {
    ConversationStatus::ALL.map(ConversationStatus::as_str)
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
AGE is the time since the last event, COST the cost of all model calls. A conversation is `interrupted` if its process was \
killed while the agent worked, and `damaged` if its entry in the list cannot be read. A terminal shows cut cells, a pipe the \
whole ones.
Examples:
  glovebox conversations ls --here -n 5
  glovebox conversations ls --state interrupted --state error
  glovebox conversations ls login --json")]
pub(in crate::cli) struct ListArguments {
    /// Only those whose title, first 500 characters of the first message, model or folder contain
    /// this text, in any case.
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

pub(super) async fn run(
    arguments: ListArguments,
    conversations: &Conversations,
) -> anyhow::Result<Exit> {
    let entries = conversations.list(&arguments.filter()).await?;
    if arguments.json {
        let rows: Vec<Value> = entries.iter().map(to_json).collect();
        print::line(&serde_json::to_string(&rows)?)?;
    } else {
        let rows: Vec<_> = entries.iter().map(to_cells).collect();
        table::print_fitted(
            ["ID", "STATE", "AGE", "COST", "MODEL", "FOLDER", "TITLE"],
            &rows,
        )?;
    }
    Ok(Exit::Finished)
}

impl ListArguments {
    fn filter(&self) -> ConversationFilter {
        let folder = self
            .directory
            .as_deref()
            .or(self.here.then_some(Path::new(".")));
        ConversationFilter {
            text: self.text.clone(),
            statuses: self
                .state
                .iter()
                .filter_map(|name| name.parse().ok())
                .collect(),
            // A folder that does not exist here is compared as it was given.
            folder: folder.map(|path| path.canonicalize().unwrap_or_else(|_| path.to_owned())),
            limit: self.limit,
            ..ConversationFilter::default()
        }
    }
}

fn model(overview: &Overview) -> &str {
    overview.model.as_deref().unwrap_or_default()
}

pub(super) fn to_json(entry: &ConversationEntry) -> Value {
    let (summary, overview) = (entry.summary.as_ref(), entry.overview.as_ref().ok());
    let agent_state = overview.map(|overview| ConversationStatus::Agent(overview.agent_state()));
    json!({
        "conversation_id": entry.id(),
        "title": overview.map(Overview::title),
        "agent_state": agent_state.unwrap_or(ConversationStatus::Damaged).as_str(),
        "interrupted": entry.status() == ConversationStatus::Interrupted,
        "model": overview.map(model),
        "cost": overview.map(Overview::cost),
        "owner": overview.and_then(|overview| overview.owner.as_ref()),
        "folder": overview.and_then(|overview| overview.folder.as_deref()),
        "events": summary.map(|summary| summary.events),
        "created_at": summary.map(|summary| &summary.created_at),
        "last_updated_at": summary.map(|summary| &summary.last_updated_at),
        "error": entry.error(),
    })
}

fn to_cells(entry: &ConversationEntry) -> [String; 7] {
    let none = || "-".to_owned();
    let overview = entry.overview.as_ref().ok();
    let age = entry.summary.as_ref().map(|summary| {
        let seconds =
            clock::epoch_seconds(&clock::now()) - clock::epoch_seconds(&summary.last_updated_at);
        #[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
        table::age(seconds as i64)
    });
    let cost = overview.map(Overview::cost).filter(|cost| *cost > 0.0);
    [
        entry.id().to_owned(),
        entry.status().as_str().to_owned(),
        age.unwrap_or_else(none),
        cost.map_or_else(none, |cost| format!("${cost:.4}")),
        overview.map_or_else(none, |overview| model(overview).to_owned()),
        overview
            .and_then(|overview| overview.folder.clone())
            .unwrap_or_else(none),
        entry
            .error()
            .unwrap_or_else(|| overview.map_or("", Overview::title).to_owned()),
    ]
}

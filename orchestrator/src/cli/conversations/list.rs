//! `glovebox conversations ls`.

use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use conversations::{ConversationEntry, ConversationFilter, Conversations, Overview};
use engine::clock;
use protocol::client_api::v2::{ConversationItem, ConversationStatus, ListConversations};
use protocol::{Timestamp, UserId};
use serde_json::{Value, json};

use crate::cli::remote::{self, RemoteServer};
use crate::cli::{print, table};
use crate::exit::{Exit, UsageError};

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
    print_rows(entries.iter().map(Row::from), arguments.json)
}

/// Lists the conversations of a server.
pub(super) async fn run_on_server(
    arguments: ListArguments,
    server: &RemoteServer,
) -> anyhow::Result<Exit> {
    if arguments.here || arguments.directory.is_some() {
        let text = "folders of a server are not those of this machine: leave out --here and -d";
        return Err(UsageError(text.to_owned()).into());
    }
    let request = ListConversations {
        text: arguments.text,
        status: arguments.state,
        ..ListConversations::default()
    };
    let items = remote::list(server, request, arguments.limit).await?;
    print_rows(items.iter().map(Row::from), arguments.json)
}

fn print_rows<'a>(rows: impl Iterator<Item = Row<'a>>, as_json: bool) -> anyhow::Result<Exit> {
    if as_json {
        let rows: Vec<Value> = rows.map(|row| row.to_json()).collect();
        print::line(&serde_json::to_string(&rows)?)?;
    } else {
        let rows: Vec<_> = rows.map(|row| row.to_cells()).collect();
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

/// A row of the list. `None` for what cannot be read.
pub(super) struct Row<'a> {
    id: &'a str,
    status: ConversationStatus,
    /// The last state of the agent, or that the log is damaged.
    agent_state: ConversationStatus,
    title: Option<&'a str>,
    model: Option<&'a str>,
    cost: Option<f64>,
    owner: Option<&'a UserId>,
    folder: Option<&'a str>,
    event_count: Option<u64>,
    created_at: Option<&'a Timestamp>,
    last_updated_at: Option<&'a Timestamp>,
    error: Option<String>,
}

impl<'a> From<&'a ConversationEntry> for Row<'a> {
    fn from(entry: &'a ConversationEntry) -> Self {
        let (summary, overview) = (entry.summary.as_ref(), entry.overview.as_ref().ok());
        let agent_state =
            overview.map(|overview| ConversationStatus::Agent(overview.agent_state()));
        Self {
            id: entry.id(),
            status: entry.status(),
            agent_state: agent_state.unwrap_or(ConversationStatus::Damaged),
            title: overview.map(Overview::title),
            model: overview.map(|overview| overview.model.as_deref().unwrap_or_default()),
            cost: overview.map(Overview::cost),
            owner: overview.and_then(|overview| overview.owner.as_ref()),
            folder: overview.and_then(|overview| overview.folder.as_deref()),
            event_count: summary.map(|summary| summary.events),
            created_at: summary.map(|summary| &summary.created_at),
            last_updated_at: summary.map(|summary| &summary.last_updated_at),
            error: entry.error(),
        }
    }
}

impl<'a> From<&'a ConversationItem> for Row<'a> {
    fn from(item: &'a ConversationItem) -> Self {
        let agent_state = item.agent_state.map(ConversationStatus::Agent);
        Self {
            id: item.id.as_str(),
            status: item.status,
            agent_state: agent_state.unwrap_or(ConversationStatus::Damaged),
            title: Some(&item.title),
            model: Some(item.model.as_deref().unwrap_or_default()),
            cost: Some(item.cost),
            owner: item.owner.as_ref(),
            folder: item.folder.as_deref(),
            event_count: Some(item.event_count),
            created_at: Some(&item.created_at),
            last_updated_at: Some(&item.last_updated_at),
            error: None,
        }
    }
}

impl Row<'_> {
    pub(super) fn to_json(&self) -> Value {
        json!({
            "conversation_id": self.id,
            "title": self.title,
            "agent_state": self.agent_state.as_str(),
            "interrupted": self.status == ConversationStatus::Interrupted,
            "model": self.model,
            "cost": self.cost,
            "owner": self.owner,
            "folder": self.folder,
            "events": self.event_count,
            "created_at": self.created_at,
            "last_updated_at": self.last_updated_at,
            "error": self.error,
        })
    }

    fn to_cells(&self) -> [String; 7] {
        let none = || "-".to_owned();
        let age = self.last_updated_at.map(|time| {
            let seconds = clock::epoch_seconds(&clock::now()) - clock::epoch_seconds(time);
            #[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
            table::age(seconds as i64)
        });
        let cost = self.cost.filter(|cost| *cost > 0.0);
        let error = self.error.clone();
        [
            self.id.to_owned(),
            self.status.as_str().to_owned(),
            age.unwrap_or_else(none),
            cost.map_or_else(none, |cost| format!("${cost:.4}")),
            self.model.map_or_else(none, str::to_owned),
            self.folder.map_or_else(none, str::to_owned),
            error.unwrap_or_else(|| self.title.unwrap_or_default().to_owned()),
        ]
    }
}

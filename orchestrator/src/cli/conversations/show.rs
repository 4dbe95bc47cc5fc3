//! `glovebox conversations show`: the state and the settings of a conversation, and its events.

use anyhow::Context as _;
use conversations::{ConversationEntry, ConversationService as _, Conversations};
use engine::conversation::State;
use protocol::client_api::v2::ConversationItem;
use protocol::record::ConversationStarted;
use protocol::{ConversationId, Event, EventQuery};
use serde_json::{Value, json};

use super::list::Row;
use crate::cli::conversation_id::ConversationChoice;
use crate::cli::print;
use crate::cli::remote::RemoteServer;
use crate::cli::transcript::Transcript;
use crate::exit::Exit;

pub(super) async fn run(
    conversations: &Conversations,
    id: &ConversationId,
    as_json: bool,
) -> anyhow::Result<Exit> {
    let events = conversations.events(id).await?;
    let entry = conversations.entry(id).await?;
    let entry = entry.with_context(|| format!("conversation {id} was removed"))?;
    let head = Head::new(&entry, &events);
    if as_json {
        print::line(&json!({ "conversation": head.to_json() }).to_string())?;
        for event in &events {
            print::line(&serde_json::to_string(event)?)?;
        }
    } else {
        print::text(&head.to_text())?;
        let mut transcript = Transcript::new().with_ids();
        events
            .iter()
            .try_for_each(|event| print::text(&transcript.format_event(event)))?;
    }
    Ok(Exit::Finished)
}

/// Shows a conversation of a server.
pub(super) async fn run_on_server(
    server: &RemoteServer,
    conversation: &ConversationChoice,
    as_json: bool,
) -> anyhow::Result<Exit> {
    let item = server.find(conversation).await?;
    if as_json {
        let head = Row::from(&item).to_json();
        print::line(&json!({ "conversation": head }).to_string())?;
    } else {
        print::text(&remote_head(&item))?;
    }
    let mut transcript = Transcript::new().with_ids();
    let mut query = EventQuery::default();
    loop {
        let page = server.conversations.events(&item.id, query.clone()).await?;
        for event in page.parse()? {
            match as_json {
                true => print::line(&serde_json::to_string(&event)?)?,
                false => print::text(&transcript.format_event(&event))?,
            }
        }
        let Some(next) = page.next_id else {
            return Ok(Exit::Finished);
        };
        query.from = next;
    }
}

/// Returns a line for each setting that a server shows, and an empty one.
fn remote_head(item: &ConversationItem) -> String {
    let cost = Some(item.cost).filter(|cost| *cost > 0.0);
    let lines = [
        ("conversation", Some(item.id.to_string())),
        ("title", Some(item.title.clone())),
        ("state", Some(item.status.to_string())),
        ("model", item.model.clone()),
        ("cost", cost.map(|cost| format!("${cost:.4}"))),
        ("folder", item.folder.clone()),
        ("repository", item.repository.clone()),
        ("branch", item.branch.clone()),
        ("owner", item.owner.as_ref().map(ToString::to_string)),
        ("created", Some(item.created_at.as_str().to_owned())),
        ("updated", Some(item.last_updated_at.as_str().to_owned())),
    ];
    to_lines(lines.into_iter())
}

/// Returns a line for each value that is not empty, and an empty one.
fn to_lines(values: impl Iterator<Item = (&'static str, Option<String>)>) -> String {
    let lines = values.filter_map(|(name, value)| {
        let value = print::visible_line(&value.filter(|value| !value.is_empty())?);
        Some(format!("{name:<12}  {value}\n"))
    });
    lines.chain(["\n".to_owned()]).collect()
}

/// The state and the settings of a conversation.
struct Head<'a> {
    entry: &'a ConversationEntry,
    started: ConversationStarted,
    state: State,
}

impl<'a> Head<'a> {
    fn new(entry: &'a ConversationEntry, events: &[Event]) -> Self {
        let state = State::fold(events);
        Self {
            entry,
            started: state.started.clone().unwrap_or_default(),
            state,
        }
    }

    /// Returns the row of `conversations ls --json`, and the settings that the list lacks.
    fn to_json(&self) -> Value {
        let (started, state) = (&self.started, &self.state);
        let mut head = Row::from(self.entry).to_json();
        let overview = self.entry.overview.as_ref().ok();
        let more = json!({
            "agent": started.agent,
            "status": self.entry.status().as_str(),
            "repository": overview.and_then(|overview| overview.repository.as_ref()),
            "branch": overview.and_then(|overview| overview.branch.as_ref()),
            "runtime": self.runtime(),
            "host": started.host,
            "image": started.image,
            "network": started.network,
            "sandbox_id": state.lease.as_ref().map(|lease| &lease.sandbox_id),
            "steps": state.iterations,
            "prompt_tokens": state.metrics.accumulated_token_usage.prompt_tokens,
            "completion_tokens": state.metrics.accumulated_token_usage.completion_tokens,
        });
        if let (Value::Object(head), Value::Object(more)) = (&mut head, more) {
            head.extend(more);
        }
        head
    }

    /// Returns a line for each setting, and an empty one.
    fn to_text(&self) -> String {
        let (started, state) = (&self.started, &self.state);
        let usage = &state.metrics.accumulated_token_usage;
        let overview = self.entry.overview.as_ref().ok();
        let cost = Some(state.metrics.accumulated_cost).filter(|cost| *cost > 0.0);
        let cost = cost.map_or_else(|| "unknown".to_owned(), |cost| format!("${cost:.4}"));
        let branch = |branch: &String| format!(", branch {branch}");
        let host = started.host.as_ref().map(|host| format!(" at {host}"));
        let host = host.unwrap_or_default();
        let image = started
            .image
            .as_ref()
            .map(|image| format!(", image {image}"))
            .unwrap_or_default();
        let network = started
            .network
            .as_ref()
            .map(|network| format!(", network {network}"));
        let summary = self.entry.summary.as_ref();
        let lines = [
            ("conversation", Some(self.entry.id().to_owned())),
            (
                "title",
                overview.map(|overview| overview.title().to_owned()),
            ),
            ("state", Some(self.entry.status().as_str().to_owned())),
            ("agent", Some(started.agent.clone())),
            ("model", Some(started.model.clone())),
            (
                "cost",
                Some(format!(
                    "{cost}; {} tokens in, {} out; {} of {} steps",
                    usage.prompt_tokens,
                    usage.completion_tokens,
                    state.iterations,
                    state.max_iterations
                )),
            ),
            ("folder", started.workspace.clone()),
            (
                "repository",
                overview.and_then(|overview| {
                    let branch = overview.branch.as_ref().map(branch).unwrap_or_default();
                    Some(format!("{}{branch}", overview.repository.as_ref()?))
                }),
            ),
            (
                "runtime",
                Some(format!(
                    "{}{host}{image}{}",
                    self.runtime(),
                    network.unwrap_or_default()
                )),
            ),
            (
                "sandbox",
                Some(
                    state
                        .lease
                        .as_ref()
                        .map_or("none", |lease| lease.sandbox_id.as_str())
                        .to_owned(),
                ),
            ),
            (
                "created",
                summary.map(|summary| summary.created_at.as_str().to_owned()),
            ),
            (
                "updated",
                summary.map(|summary| summary.last_updated_at.as_str().to_owned()),
            ),
        ];
        to_lines(lines.into_iter())
    }

    /// Returns the runtime of the latest sandbox, which `resume --runtime` may have changed.
    fn runtime(&self) -> &str {
        self.state
            .latest_lease
            .as_ref()
            .map_or(&self.started.runtime, |lease| &lease.runtime)
    }
}

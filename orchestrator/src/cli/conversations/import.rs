//! `glovebox conversations import`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap_complete::engine::ArgValueCandidates;
use conversations::{Conversations, ConversationsError};
use protocol::ConversationId;
use protocol::record::ConversationStarted;
use secrecy::SecretString;
use serde_json::json;

use crate::cli::{candidates, print};
use crate::compose::{self, StateDir, clone_url};
use crate::config::{Config, Runtime};
use crate::exit::{Exit, UsageError};
use crate::v0_folder::{self, V0Conversation};
use crate::workspace::{self, WorkspaceFolder};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints the ids of the imported conversations, which keep their ids. Those that exist already are left as they are, so that an \
import can be repeated. An agent that was working is paused; continue it with `glovebox resume ID`. V0's sandboxes and \
workspaces are not imported: a resumed conversation gets a new sandbox, into which its repository is cloned.
Examples:
  glovebox conversations import ~/.openhands
  glovebox conversations import ./file_store/sessions/6c1bb5f0d0a64be9a4a0fa6ed2d2cc55")]
pub(in crate::cli) struct ImportArguments {
    /// V0's folder (file_store_path), or the folder of one of its conversations.
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// Runtime of the sandboxes with which the conversations are resumed, like `run --runtime`.
    #[arg(long, value_name = "RUNTIME", add = ArgValueCandidates::new(candidates::runtimes))]
    pub(super) runtime: Option<Runtime>,

    /// Print a JSON object for each conversation: its id, status (imported, exists or failed),
    /// events and problems.
    #[arg(long)]
    json: bool,
}

/// What was done with a conversation.
enum Imported {
    Now { events: usize, skipped: Vec<String> },
    Before,
}

pub(super) async fn run(
    arguments: ImportArguments,
    config: &Config,
    conversations: &Conversations,
    state_dir: &StateDir,
) -> anyhow::Result<Exit> {
    let ImportArguments { folder, json, .. } = arguments;
    let found = v0_folder::find(&folder).map_err(|error| {
        UsageError(format!(
            "cannot read the folder {}: {error}",
            folder.display()
        ))
    })?;
    if found.is_empty() {
        let text = format!(
            "{} has no conversations of V0: no sessions/ID/events",
            folder.display()
        );
        return Err(UsageError(text).into());
    }
    let mut exit = Exit::Finished;
    for folder in found {
        let name = folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let imported = import(&name, &folder, config, conversations, state_dir).await;
        if imported.is_err() {
            exit = Exit::Failed;
        }
        report(&name, imported, json)?;
    }
    Ok(exit)
}

async fn import(
    name: &str,
    folder: &Path,
    config: &Config,
    conversations: &Conversations,
    state_dir: &StateDir,
) -> anyhow::Result<Imported> {
    let id: ConversationId = name.parse()?;
    if conversations.entry(&id).await?.is_some() {
        return Ok(Imported::Before);
    }
    let V0Conversation {
        metadata,
        events,
        skipped,
    } = v0_folder::read(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    anyhow::ensure!(!events.is_empty(), "it has no events");
    let mut config = config.clone();
    let mut git_provider = metadata.git_provider;
    if let Some(repository) = metadata.selected_repository {
        let chosen = clone_url::choose(&repository, git_provider, &BTreeMap::new())?;
        git_provider = chosen.provider;
        let branch = metadata
            .selected_branch
            .map(|branch| format!("#{branch}"))
            .unwrap_or_default();
        config.workspace.selected_repository =
            Some(SecretString::from(format!("{}{branch}", chosen.url)));
    }
    let model = metadata
        .llm_model
        .unwrap_or_else(|| compose::stored_model_name(&config.llm));
    let workspace = WorkspaceFolder::choose(&config, state_dir, &id, None)?;
    let setup = workspace::setup(&config.workspace, &workspace)?;
    let started = ConversationStarted {
        git_provider,
        ..compose::started(&config, &workspace, setup, model)?
    };
    let count = events.len();
    match conversations
        .import(&id, started, metadata.title, events)
        .await
    {
        Ok(()) => Ok(Imported::Now {
            events: count,
            skipped,
        }),
        Err(ConversationsError::Exists(_)) => Ok(Imported::Before),
        Err(error) => Err(error.into()),
    }
}

fn report(name: &str, imported: anyhow::Result<Imported>, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        let value = match imported {
            Ok(Imported::Now { events, skipped }) => {
                json!({"id": name, "status": "imported", "events": events, "problems": skipped})
            }
            Ok(Imported::Before) => {
                json!({"id": name, "status": "exists", "events": 0, "problems": []})
            }
            Err(error) => {
                json!({"id": name, "status": "failed", "events": 0, "problems": [format!("{error:#}")]})
            }
        };
        print::line(&value.to_string())?;
        return Ok(());
    }
    match imported {
        Ok(Imported::Now { skipped, .. }) => {
            for problem in skipped {
                print::warning(&format!(
                    "an event of conversation {name} is not imported: {problem}"
                ));
            }
            print::line(name)?;
        }
        Ok(Imported::Before) => print::note(&format!("conversation {name} exists already\n")),
        Err(error) => print::error(&format!("cannot import conversation {name}: {error:#}")),
    }
    Ok(())
}

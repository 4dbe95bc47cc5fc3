//! `glovebox store export`.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap_complete::engine::ArgValueCompleter;
use conversations::{ConversationSelector, Conversations, ConversationsError};
use engine::events::StoreError;
use protocol::ConversationId;
use serde_json::json;

use super::progress::StoreProgress;
use super::stop::StopSignal;
use crate::cli::{candidates, print};
use crate::compose::{StateDir, Stores};
use crate::config::Config;
use crate::exit::{Exit, UsageError};
use crate::v0_folder::{Exported, V0Export};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Writes sessions/ID/events/N.json and sessions/ID/metadata.json, which OpenHands V0 reads in its file_store_path and \
`glovebox conversations import DIR` imports. Events have V0's ids, from 0, and screenshots of pages are included. \
Glovebox's own records (settings, sandboxes, titles) are left out, except what V0 has in the metadata. Prints the ids.
Examples:
  glovebox store export ./v0
  glovebox store export --add ~/.openhands 5e8c41f2")]
pub(in crate::cli) struct ExportArguments {
    /// Folder to write to: a new or an empty one.
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// Ids of the conversations, or unique starts or ends of ids. By default, all.
    #[arg(value_name = "ID", add = ArgValueCompleter::new(candidates::conversations))]
    ids: Vec<ConversationId>,

    /// Add to a folder that is not empty. A conversation that it has is left as it is.
    #[arg(long)]
    add: bool,

    /// Print a JSON object for each conversation: its id, status (exported, exists or failed),
    /// events and problem.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(
    arguments: ExportArguments,
    config: &Config,
    state_dir: &StateDir,
    stop: &StopSignal,
) -> anyhow::Result<Exit> {
    open_folder(&arguments.folder, arguments.add)?;
    let stores = Stores::open(config, state_dir).await?;
    let exported = export_all(&arguments, &stores, stop).await;
    stores.close().await;
    exported
}

/// Creates the folder. Fails if it has entries, unless `is_added`.
fn open_folder(folder: &Path, is_added: bool) -> anyhow::Result<()> {
    let created = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder);
    let entries = created.and_then(|()| folder.read_dir());
    let mut entries = entries
        .map_err(|error| UsageError(format!("cannot create {}: {error}", folder.display())))?;
    if !is_added && entries.next().is_some() {
        let text = format!(
            "{} is not empty: add to it with --add, or name another folder",
            folder.display()
        );
        return Err(UsageError(text).into());
    }
    Ok(())
}

async fn export_all(
    arguments: &ExportArguments,
    stores: &Stores,
    stop: &StopSignal,
) -> anyhow::Result<Exit> {
    let events = stores.events_to_read().await?;
    let list = events.conversations().await?;
    let conversations = stores.conversations_of(events);
    let mut exit = Exit::Finished;
    let ids = if arguments.ids.is_empty() {
        for error in list.damaged {
            exit = Exit::Failed;
            print::error(&format!(
                "cannot export a conversation: {:#}",
                anyhow::Error::new(error)
            ));
        }
        list.conversations
            .into_iter()
            .rev()
            .map(|summary| summary.id)
            .collect()
    } else {
        let selectors: Vec<_> = arguments
            .ids
            .iter()
            .cloned()
            .map(ConversationSelector::IdPart)
            .collect();
        conversations
            .find_all(&selectors)
            .await?
            .into_iter()
            .collect::<Result<Vec<_>, _>>()?
    };
    let export = V0Export::open(&arguments.folder)
        .with_context(|| format!("cannot write to {}", arguments.folder.display()))?;
    let progress = StoreProgress::new("exporting", Some(ids.len() as u64));
    for id in ids {
        stop.check()?;
        let exported = export_one(&id, &conversations, &export).await;
        match &exported {
            Err(error) if !concerns_conversation(error) => return exported.map(|_| exit),
            Err(_) => exit = Exit::Failed,
            Ok(_) => {}
        }
        progress.advance();
        progress.suspend(|| report(&id, exported, arguments.json))?;
    }
    Ok(exit)
}

/// Exports a conversation. Returns its number of events, and whether it was written.
async fn export_one(
    id: &ConversationId,
    conversations: &Conversations,
    export: &V0Export,
) -> anyhow::Result<(usize, Exported)> {
    let events = conversations.export_v0(id).await?;
    let entry = conversations
        .entry(id)
        .await?
        .ok_or_else(|| ConversationsError::Unknown(id.clone()))?;
    let started = conversations.started(id).await?;
    Ok((
        events.len(),
        export.write(&entry, started.as_ref(), &events)?,
    ))
}

/// Whether other conversations can be exported in spite of an error.
fn concerns_conversation(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(
            ConversationsError::Unknown(_)
                | ConversationsError::Store(
                    StoreError::Damaged { .. } | StoreError::DamagedEntry { .. }
                )
        )
    )
}

fn report(
    id: &ConversationId,
    exported: anyhow::Result<(usize, Exported)>,
    as_json: bool,
) -> anyhow::Result<()> {
    if as_json {
        let (status, events, problem) = match exported {
            Ok((events, Exported::Written)) => ("exported", events, None),
            Ok((_, Exported::Exists)) => ("exists", 0, None),
            Err(error) => ("failed", 0, Some(format!("{error:#}"))),
        };
        let value = json!({"id": id, "status": status, "events": events, "problem": problem});
        print::line(&value.to_string())?;
        return Ok(());
    }
    match exported {
        Ok((_, Exported::Written)) => print::line(id.as_str())?,
        Ok((_, Exported::Exists)) => print::note(&format!("conversation {id} exists already\n")),
        Err(error) => print::error(&format!("cannot export conversation {id}: {error:#}")),
    }
    Ok(())
}

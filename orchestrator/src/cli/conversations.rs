//! `glovebox conversations`: lists, shows, exports, forks, imports and removes conversations.

mod import;
mod list;
mod remove;
mod show;

use std::path::{Path, PathBuf};

use conversations::{ConversationService as _, Conversations};
use protocol::client_api::v2::{ExportConversation, ForkConversation};
use protocol::{ConversationId, Event, EventId};

use super::conversation_id::ConversationChoice;
use super::remote::RemoteServer;
use super::trajectory_file::{self, TrajectoryFile};
use super::{StoreUse, load_config_to_read, open_state, print};
use crate::compose::{self, StateDir, Stores};
use crate::config::{Config, Overrides};
use crate::exit::{Exit, UsageError};

#[derive(Debug, clap::Subcommand)]
pub(super) enum ConversationsCommand {
    /// List conversations, the latest first.
    Ls(list::ListArguments),
    /// Create a conversation with a copy of the first events of another one.
    #[command(after_help = "\
Copies the workspace as it is now, except a folder that was given with -d, which both conversations use. The fork gets its \
own sandbox. Prints the id of the fork; continue it with `glovebox resume ID -t TEXT`.")]
    Fork {
        #[command(flatten)]
        conversation: ConversationChoice,
        /// Last event to copy, by its id, which `show` prints. By default, the latest.
        #[arg(long, value_name = "EVENT")]
        at: Option<u64>,
    },
    /// Show a conversation: its state and settings, and its transcript.
    #[command(after_help = "\
A number such as #12 is the id of an event, for `fork --at`. With --json, the first line is an object `conversation` with \
the state and the settings, and each further line an event.")]
    Show {
        #[command(flatten)]
        conversation: ConversationChoice,
        /// Print JSON, one object per line.
        #[arg(long)]
        json: bool,
    },
    /// Write a conversation's trajectory, a JSON array of V0's events, like `run
    /// --save-trajectory`.
    #[command(
        after_help = "On standard output, control characters are escaped, so that terminals ignore them."
    )]
    Export {
        #[command(flatten)]
        conversation: ConversationChoice,
        /// File to write, or a folder for a file named by the conversation's id. By default,
        /// standard output.
        #[arg(short = 'o', long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Import conversations of OpenHands V0.
    Import(import::ImportArguments),
    /// Remove conversations with their sandboxes.
    Rm(remove::RemoveArguments),
}

pub(super) async fn run(
    command: ConversationsCommand,
    overrides: &Overrides,
) -> anyhow::Result<Exit> {
    let overrides = overrides.clone();
    let overrides = match &command {
        ConversationsCommand::Rm(arguments) => Overrides {
            ssh_host: arguments.host.clone(),
            ..overrides
        },
        ConversationsCommand::Import(arguments) => Overrides {
            runtime: arguments.runtime,
            ..overrides
        },
        _ => overrides,
    };
    let config = load_config_to_read(&overrides)?;
    let store_use = match &command {
        // The workspaces of a server's conversations are removed too, whichever store lists them.
        ConversationsCommand::Rm(_) => StoreUse::ChangeOrCopy,
        _ => StoreUse::Show,
    };
    let state_dir = open_state(&config, &overrides, store_use)?;
    let stores = Stores::open(&config, &state_dir).await?;
    let exit = run_in(&stores, command, config, &state_dir).await;
    stores.close().await;
    exit
}

/// Runs the command on the conversations of a server.
pub(super) async fn run_on_server(
    command: ConversationsCommand,
    url: &str,
    overrides: &Overrides,
) -> anyhow::Result<Exit> {
    let server = RemoteServer::open(url, overrides)?;
    match command {
        ConversationsCommand::Ls(arguments) => list::run_on_server(arguments, &server).await,
        ConversationsCommand::Show { conversation, json } => {
            show::run_on_server(&server, &conversation, json).await
        }
        ConversationsCommand::Fork { conversation, at } => {
            let item = server.find(&conversation).await?;
            let request = ForkConversation {
                last_event: at.map(EventId),
                ..ForkConversation::default()
            };
            let forked = server.conversations.fork(&item.id, request).await?;
            print::line(forked.as_str())?;
            Ok(Exit::Finished)
        }
        ConversationsCommand::Rm(arguments) => remove::run_on_server(arguments, &server).await,
        ConversationsCommand::Export {
            conversation,
            output,
        } => {
            let item = server.find(&conversation).await?;
            let file = export_file(output, &item.id)?;
            let request = ExportConversation {
                with_screenshots: load_config_to_read(overrides)?.saves_screenshots,
            };
            let exporting = server.conversations.export(&item.id, request);
            let events = print::with_notice("the server", exporting).await?;
            export(&events, file)
        }
        ConversationsCommand::Import(_) => {
            let text =
                "conversations are imported on the machine of a server: leave out --server there";
            Err(UsageError(text.to_owned()).into())
        }
    }
}

async fn run_in(
    stores: &Stores,
    command: ConversationsCommand,
    mut config: Config,
    state_dir: &StateDir,
) -> anyhow::Result<Exit> {
    let events = match &command {
        ConversationsCommand::Fork { .. }
        | ConversationsCommand::Import(_)
        | ConversationsCommand::Rm(_) => stores.events().await?,
        _ => stores.events_to_read().await?,
    };
    let conversations = stores.conversations_of(events);
    match command {
        ConversationsCommand::Fork { conversation, at } => {
            let id = conversations.find(&conversation.selector()).await?;
            let forked = Conversations::new_id();
            conversations.fork(&id, at.map(EventId), &forked).await?;
            print::line(forked.as_str())?;
            Ok(Exit::Finished)
        }
        ConversationsCommand::Ls(arguments) => list::run(arguments, &conversations).await,
        ConversationsCommand::Show { conversation, json } => {
            show::run(
                &conversations,
                &conversations.find(&conversation.selector()).await?,
                json,
            )
            .await
        }
        ConversationsCommand::Export {
            conversation,
            output,
        } => {
            let id = conversations.find(&conversation.selector()).await?;
            let file = export_file(output, &id)?;
            let events = conversations.export(&id, config.saves_screenshots).await?;
            export(&events, file)
        }
        ConversationsCommand::Import(arguments) => {
            compose::choose_runtime(&mut config, state_dir).await?;
            import::run(arguments, &config, &conversations, state_dir).await
        }
        ConversationsCommand::Rm(arguments) => {
            remove::run(arguments, &config, &conversations, state_dir).await
        }
    }
}

/// Opens the file of an export. `None` for standard output.
fn export_file(
    output: Option<PathBuf>,
    id: &ConversationId,
) -> anyhow::Result<Option<TrajectoryFile>> {
    let path = output.filter(|path| path != Path::new("-"));
    path.map(|path| trajectory_file::open_in_existing_folder(&path, id))
        .transpose()
}

/// Writes a trajectory to a file, or prints it.
fn export(events: &[Event], file: Option<TrajectoryFile>) -> anyhow::Result<Exit> {
    match file {
        Some(file) => trajectory_file::save(events, file)?,
        None => print::line(&serde_json::to_string_pretty(events)?)?,
    }
    Ok(Exit::Finished)
}

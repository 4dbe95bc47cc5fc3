//! `glovebox conversations rm`.

use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap_complete::engine::ArgValueCompleter;
use conversations::{
    ConversationSelector, ConversationService as _, Conversations, ConversationsError, DeleteMode,
    HostError,
};
use protocol::ConversationId;

use crate::cli::conversation_id::ConversationChoice;
use crate::cli::remote::RemoteServer;
use crate::cli::{candidates, duration_argument, print};
use crate::compose::{self, StateDir};
use crate::config::{Config, UnknownRuntime};
use crate::exit::{Exit, UsageError};
use crate::terminal_input;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Removes the log, the sandbox and the workspace of each conversation, but not a folder that was given with -d. Refuses a \
conversation that a process runs now. Prints the ids of the removed conversations.
Examples:
  glovebox conversations rm 5e8c41f2
  glovebox conversations rm --older-than 30d --yes")]
pub(in crate::cli) struct RemoveArguments {
    /// Ids of the conversations, or unique starts or ends of ids.
    #[arg(
        value_name = "ID",
        required_unless_present = "older_than",
        conflicts_with = "older_than"
    )]
    #[arg(add = ArgValueCompleter::new(candidates::conversations))]
    ids: Vec<ConversationId>,

    /// Remove all conversations whose last event is older than this, such as 12h, 30d or 8w.
    #[arg(long, value_name = "TIME", value_parser = duration_argument::parse)]
    older_than: Option<Duration>,

    /// Do not ask for confirmation.
    #[arg(short = 'y', long)]
    yes: bool,

    /// Remove a conversation also if its sandbox or its folder cannot be removed.
    #[arg(short = 'f', long)]
    force: bool,

    /// Host of the runtime ssh: user@host:port, or a name from ~/.ssh/config.
    #[arg(long, value_name = "HOST", value_parser = NonEmptyStringValueParser::new())]
    pub(super) host: Option<String>,
}

pub(super) async fn run(
    arguments: RemoveArguments,
    config: &Config,
    conversations: &Conversations,
    state_dir: &StateDir,
) -> anyhow::Result<Exit> {
    let (chosen, mut exit) = choose(&arguments, conversations).await?;
    if !arguments.yes && !is_confirmed(chosen.len(), arguments.older_than.is_some())? {
        return Ok(Exit::Failed);
    }
    let mode = if arguments.force {
        DeleteMode::Force
    } else {
        DeleteMode::KeepOnFailure
    };
    let find_provider = |runtime: &str, host: Option<&str>| {
        let mut config = config.clone();
        config.runtime = runtime
            .parse()
            .map_err(|error: UnknownRuntime| HostError::Refused(error.to_string()))?;
        if let Some(host) = host.filter(|_| arguments.host.is_none()) {
            config.sandbox.ssh.target = Some(host.to_owned());
        }
        compose::provider(&config, state_dir).map_err(compose::host_error)
    };
    for id in chosen {
        let mut warn = |error| print::warning(&format!("{:#}", with_hint(error)));
        match conversations
            .delete(&id, mode, &find_provider, &mut warn)
            .await
        {
            Ok(()) => print::line(id.as_str())?,
            Err(error) => {
                print::error(&format!(
                    "cannot remove conversation {id}: {:#}",
                    with_hint(error)
                ));
                exit = Exit::Failed;
            }
        }
    }
    Ok(exit)
}

/// Removes conversations of a server.
pub(super) async fn run_on_server(
    arguments: RemoveArguments,
    server: &RemoteServer,
) -> anyhow::Result<Exit> {
    if arguments.force || arguments.host.is_some() || arguments.older_than.is_some() {
        let text = "with --server, only ids and --yes: the server removes sandboxes and workspaces";
        return Err(UsageError(text.to_owned()).into());
    }
    let (mut chosen, mut exit) = (Vec::new(), Exit::Finished);
    for id in arguments.ids {
        let choice = ConversationChoice::from(id);
        match server.find(&choice).await {
            Ok(item) if chosen.contains(&item.id) => {}
            Ok(item) => chosen.push(item.id),
            Err(error) if crate::exit::of_error(&error) == Exit::Usage => {
                print::error(&format!("{error:#}"));
                exit = Exit::Usage;
            }
            Err(error) => return Err(error),
        }
    }
    if !arguments.yes && !is_confirmed(chosen.len(), false)? {
        return Ok(Exit::Failed);
    }
    for id in chosen {
        match server.conversations.delete(&id).await {
            Ok(()) => print::line(id.as_str())?,
            Err(error) => {
                let error = anyhow::Error::from(error);
                print::error(&format!("cannot remove conversation {id}: {error:#}"));
                exit = Exit::Failed;
            }
        }
    }
    Ok(exit)
}

fn with_hint(error: ConversationsError) -> anyhow::Error {
    match error {
        ConversationsError::RemoveSandbox(source) => anyhow::Error::new(source)
            .context("cannot remove its sandbox (--force leaves it to `glovebox sandbox prune`)"),
        error => error.into(),
    }
}

/// Finds the conversations to remove. Missing ones are reported, and the returned exit is wrong
/// usage.
async fn choose(
    arguments: &RemoveArguments,
    conversations: &Conversations,
) -> anyhow::Result<(Vec<ConversationId>, Exit)> {
    if let Some(age) = arguments.older_than {
        // The list is computed once, so that exactly the confirmed conversations are removed.
        return Ok((conversations.find_older_than(age).await?, Exit::Finished));
    }
    let (mut chosen, mut exit) = (Vec::new(), Exit::Finished);
    let selectors: Vec<_> = arguments
        .ids
        .iter()
        .cloned()
        .map(ConversationSelector::IdPart)
        .collect();
    for found in conversations.find_all(&selectors).await? {
        match found {
            Ok(id) if chosen.contains(&id) => {}
            Ok(id) => chosen.push(id),
            Err(error) if error.is_bad_request() => {
                print::error(&error.to_string());
                exit = Exit::Usage;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok((chosen, exit))
}

/// Asks at a terminal before several conversations are removed. Without a terminal, named ones are
/// removed without a question.
fn is_confirmed(count: usize, is_by_age: bool) -> anyhow::Result<bool> {
    if count == 0 || (count == 1 && !is_by_age) {
        return Ok(true);
    }
    if !terminal_input::has_user() {
        if is_by_age {
            let text = format!("{count} conversations would be removed: confirm with --yes");
            return Err(UsageError(text).into());
        }
        return Ok(true);
    }
    let conversations = if count == 1 {
        "conversation"
    } else {
        "conversations"
    };
    let question = format!("Remove {count} {conversations} with sandboxes and workspaces?");
    Ok(terminal_input::confirm(&question)?)
}

//! `glovebox user`: adds, lists and removes users of the server, and their keys.

mod key;

use std::sync::Arc;

use accounts::{AccountError, Users};
use anyhow::Context as _;
use clap_complete::engine::ArgValueCompleter;
use jiff::Timestamp;
use protocol::UserId;
use serde_json::json;

use super::{StoreUse, candidates, load_config_to_read, open_state_of_server, print, table};
use crate::compose::Stores;
use crate::config::Overrides;
use crate::exit::{Exit, UsageError};
use crate::terminal_input;
use key::KeyCommand;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each user of `glovebox serve` sees only own conversations, sandboxes and settings, and signs in with a key. The key of the server \
is the operator's: it needs no user, and sees all conversations. Changes take effect at once, also in a running server.
Examples:
  glovebox user add ada
  glovebox user key add ada --expires 90d
  glovebox user key revoke 3f0c2a9be417
  glovebox user rm ada")]
pub(super) struct UserArguments {
    #[command(subcommand)]
    command: UserCommand,
}

#[derive(Debug, clap::Subcommand)]
enum UserCommand {
    /// Add a user, who then needs a key.
    Add {
        /// The name: lower-case letters, digits, `-`, `_` and `.`, the first a letter.
        name: UserId,
        /// Restore a removed user of this name, who then owns the same conversations again.
        #[arg(long)]
        restore: bool,
    },
    /// List users.
    Ls {
        /// Print one JSON array.
        #[arg(long)]
        json: bool,
    },
    /// Remove a user, with all keys, settings and secrets.
    #[command(
        alias = "remove",
        after_help = "\
The conversations stay, and only the operator sees them. One that runs continues until it waits for its user."
    )]
    Rm {
        /// The name.
        #[arg(add = ArgValueCompleter::new(candidates::users))]
        name: UserId,

        /// Do not ask for confirmation.
        #[arg(short = 'y', long)]
        yes: bool,
    },
    /// Add, list and revoke keys of users.
    #[command(subcommand)]
    Key(KeyCommand),
}

pub(super) async fn run(arguments: UserArguments, overrides: &Overrides) -> anyhow::Result<Exit> {
    let mut config = load_config_to_read(overrides)?;
    let state_dir = open_state_of_server(&mut config, overrides, arguments.command.store_use())?;
    let stores = Stores::open(&config, &state_dir).await?;
    let done = execute(arguments.command, &stores).await;
    stores.close().await;
    done
}

impl UserCommand {
    fn store_use(&self) -> StoreUse {
        match self {
            Self::Ls { .. } | Self::Key(KeyCommand::Ls { .. }) => StoreUse::Show,
            Self::Add { .. } | Self::Rm { .. } | Self::Key(_) => StoreUse::ChangeOrCopy,
        }
    }
}

async fn execute(command: UserCommand, stores: &Stores) -> anyhow::Result<Exit> {
    let accounts = match command.store_use() {
        StoreUse::Show => stores.accounts_to_read().await?,
        StoreUse::ChangeOrCopy => None,
    };
    let accounts = match accounts {
        Some(accounts) => accounts,
        None => stores.accounts().await?,
    };
    let users = Users::new(Arc::clone(&accounts.users));
    let record = |action| accounts.record_command(action);
    match command {
        UserCommand::Add {
            name,
            restore: true,
        } => {
            users.restore(&name).await?;
            record(format!("user restore {name}")).await?;
        }
        UserCommand::Add {
            name,
            restore: false,
        } => {
            add(&users, &name).await?;
            record(format!("user add {name}")).await?;
        }
        UserCommand::Ls { json } => list(&users, json).await?,
        UserCommand::Rm { name, yes } => {
            if !yes && !is_removal_confirmed(&name)? {
                return Ok(Exit::Failed);
            }
            users.remove(&name).await?;
            record(format!("user rm {name}")).await?;
            remove_settings(&name, stores).await?;
        }
        UserCommand::Key(command) => {
            if let Some(action) = key::run(command, &users).await? {
                record(action).await?;
            }
        }
    }
    Ok(Exit::Finished)
}

/// Asks at a terminal, because keys, settings and secrets cannot be restored.
fn is_removal_confirmed(name: &UserId) -> anyhow::Result<bool> {
    if !terminal_input::has_user() {
        return Ok(true);
    }
    let question = format!("Remove the user {name}, with all keys, settings and secrets?");
    Ok(terminal_input::confirm(&question)?)
}

async fn add(users: &Users, name: &UserId) -> anyhow::Result<()> {
    match users.add(name).await {
        Err(error @ AccountError::UserRemoved(_)) => {
            let advice = format!("`glovebox user add {name} --restore` restores it");
            Err(UsageError(format!("{error}; {advice}")).into())
        }
        added => Ok(added?),
    }
}

async fn list(users: &Users, as_json: bool) -> anyhow::Result<()> {
    let (all, keys) = (users.list().await?, users.keys(None).await?);
    let key_count = |name: &UserId| keys.iter().filter(|key| key.user == *name).count();
    let last_used = |name: &UserId| {
        keys.iter()
            .filter(|key| key.user == *name)
            .filter_map(|key| key.last_used_at)
            .max()
    };
    if as_json {
        let rows = all.iter().map(|user| {
            json!({
                "name": user.name, "created_at": date(user.created_at), "keys": key_count(&user.name),
                "last_used_at": last_used(&user.name).map(date),
            })
        });
        print::line(&rows.collect::<serde_json::Value>().to_string())?;
    } else {
        let rows = all.iter().map(|user| {
            let last = last_used(&user.name).map_or_else(|| "never".to_owned(), age);
            [
                user.name.to_string(),
                age(user.created_at),
                key_count(&user.name).to_string(),
                last,
            ]
        });
        table::print(
            ["NAME", "AGE", "KEYS", "LAST USED"],
            &rows.collect::<Vec<_>>(),
        )?;
    }
    Ok(())
}

/// Removes the settings of a user who is removed, and thus cannot store any.
async fn remove_settings(name: &UserId, stores: &Stores) -> anyhow::Result<()> {
    let removed = async {
        match stores.profiles_if_any().await? {
            Some(profiles) => Ok(profiles.remove(Some(name)).await?),
            None => anyhow::Ok(()),
        }
    };
    removed.await.with_context(|| {
        format!("the user {name} is removed, but not the stored settings: restore and remove the user again")
    })
}

/// Returns a time, given in seconds since the Unix epoch, as text.
fn date(seconds: u64) -> Option<String> {
    let seconds = i64::try_from(seconds).ok()?;
    Timestamp::from_second(seconds)
        .ok()
        .map(|time| time.to_string())
}

/// Returns the age of a time, given in seconds since the Unix epoch.
fn age(seconds: u64) -> String {
    let age = accounts::unix_now().saturating_sub(seconds);
    table::age(i64::try_from(age).unwrap_or(i64::MAX))
}

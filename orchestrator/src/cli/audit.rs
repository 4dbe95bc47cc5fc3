//! `glovebox audit`: prints the audit log of the server.

use accounts::{AuditActor, AuditEntry, AuditFilter};
use clap_complete::engine::ArgValueCompleter;
use jiff::Timestamp;
use protocol::{ConversationId, UserId};
use serde_json::{Value, json};

use super::{StoreUse, candidates, load_config_to_read, open_state_of_server, print, table};
use crate::compose::Stores;
use crate::config::Overrides;
use crate::exit::Exit;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The log has each change by a client of the server, each sign-in and each wrong key, what `glovebox user` did, and each copy that \
`glovebox store` made into this store: when, who, from which address, to which conversation, and the status of the response. It has \
no content and no secret. The latest million entries are kept.
Examples:
  glovebox audit --user ada -n 20
  glovebox audit --conversation 0199a3c4d5e6f708192a3b4c5d6e7f80 --json")]
pub(super) struct AuditArguments {
    /// Only entries of this user.
    #[arg(long, value_name = "NAME", add = ArgValueCompleter::new(candidates::users))]
    user: Option<UserId>,

    /// Only entries of this conversation.
    #[arg(long, value_name = "ID", add = ArgValueCompleter::new(candidates::conversations))]
    conversation: Option<ConversationId>,

    /// At most this many, the latest.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1000)]
    limit: usize,

    /// Print a JSON object for each entry.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(arguments: AuditArguments, overrides: &Overrides) -> anyhow::Result<Exit> {
    let AuditArguments {
        user,
        conversation,
        limit,
        json,
    } = arguments;
    let mut config = load_config_to_read(overrides)?;
    let state_dir = open_state_of_server(&mut config, overrides, StoreUse::Show)?;
    let stores = Stores::open(&config, &state_dir).await?;
    let entries = match stores.accounts_to_read().await? {
        Some(accounts) => {
            accounts
                .audit
                .read(&AuditFilter {
                    user,
                    conversation,
                    limit,
                })
                .await?
        }
        None => Vec::new(),
    };
    stores.close().await;
    if json {
        for entry in &entries {
            print::line(&to_json(entry).to_string())?;
        }
    } else {
        let rows: Vec<_> = entries.iter().map(to_cells).collect();
        table::print(
            [
                "TIME",
                "WHO",
                "KEY",
                "ADDRESS",
                "ACTION",
                "CONVERSATION",
                "STATUS",
            ],
            &rows,
        )?;
    }
    Ok(Exit::Finished)
}

/// Returns the kind of the actor, the name of the user and the id of the key.
fn actor(entry: &AuditEntry) -> (&'static str, Option<String>, Option<String>) {
    match &entry.actor {
        AuditActor::Unknown => ("unknown", None, None),
        AuditActor::Operator => ("operator", None, None),
        AuditActor::User { name, key } => (
            "user",
            Some(name.to_string()),
            key.as_ref().map(ToString::to_string),
        ),
    }
}

fn date(entry: &AuditEntry) -> String {
    let time = i64::try_from(entry.at_ms)
        .ok()
        .and_then(|time| Timestamp::from_millisecond(time).ok());
    time.map(|time| format!("{time:.3}")).unwrap_or_default()
}

fn to_json(entry: &AuditEntry) -> Value {
    let (kind, user, key) = actor(entry);
    json!({
        "at": date(entry),
        "actor": kind,
        "user": user,
        "key": key,
        "address": entry.address,
        "action": entry.action,
        "conversation": entry.conversation,
        "status": entry.status,
    })
}

fn to_cells(entry: &AuditEntry) -> [String; 7] {
    let (kind, user, key) = actor(entry);
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    [
        date(entry),
        user.unwrap_or_else(|| kind.to_owned()),
        or_none(key),
        or_none(entry.address.map(|address| address.to_string())),
        entry.action.clone(),
        or_none(entry.conversation.as_ref().map(ToString::to_string)),
        or_none(entry.status.map(|status| status.to_string())),
    ]
}

//! `glovebox user key`.

use std::time::Duration;

use accounts::{Key, KeyId, KeyScope, Users};
use clap::builder::PossibleValuesParser;
use clap_complete::engine::ArgValueCompleter;
use protocol::UserId;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::{age, date};
use crate::cli::{candidates, duration_argument, print, table};

/// The values of `--scope`.
fn scopes() -> [&'static str; KeyScope::ALL.len()] {
    KeyScope::ALL.map(KeyScope::as_str)
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum KeyCommand {
    /// Add a key of a user, and print it. It is shown only this time.
    #[command(after_help = "\
Clients send the key as X-Session-API-Key, or as a bearer token. A key with the scope `read` lists and reads conversations, files \
and settings, and follows streams. It starts and changes nothing, and reaches no port of a sandbox.")]
    Add {
        /// The user.
        #[arg(add = ArgValueCompleter::new(candidates::users))]
        user: UserId,
        /// What the key allows.
        #[arg(long, value_name = "SCOPE", default_value = "write", value_parser = PossibleValuesParser::new(scopes()))]
        scope: String,
        /// Time after which the key expires, such as 12h or 90d. By default, never.
        #[arg(long, value_name = "TIME", value_parser = duration_argument::parse_positive)]
        expires: Option<Duration>,
        /// Print a JSON object with the key and its id.
        #[arg(long)]
        json: bool,
    },
    /// List keys, without their secrets.
    Ls {
        /// Only those of this user.
        #[arg(add = ArgValueCompleter::new(candidates::users))]
        user: Option<UserId>,
        /// Print one JSON array.
        #[arg(long)]
        json: bool,
    },
    /// Revoke a key. Its sessions, streams and links end too.
    Revoke {
        /// Id of the key. `glovebox user key ls` lists all.
        id: KeyId,
    },
}

/// Returns what has been changed, for the audit log.
pub(super) async fn run(command: KeyCommand, users: &Users) -> anyhow::Result<Option<String>> {
    match command {
        KeyCommand::Add {
            user,
            scope,
            expires,
            json,
        } => {
            // Clap accepts only names of scopes.
            let scope = KeyScope::from_name(&scope).unwrap_or(KeyScope::Read);
            let new = users.add_key(&user, scope, expires).await?;
            let secret = new.secret.expose_secret();
            if json {
                let mut value = to_json(&new.key);
                value["key"] = json!(secret);
                print::line(&value.to_string())?;
            } else {
                print::line(secret)?;
                print::note(&format!(
                    "key {} of {user}; it is not shown again\n",
                    new.key.id
                ));
            }
            Ok(Some(format!(
                "user key add {user}: {} {}",
                new.key.id,
                scope.as_str()
            )))
        }
        KeyCommand::Ls { user, json } => {
            let keys = users.keys(user.as_ref()).await?;
            if json {
                print::line(&keys.iter().map(to_json).collect::<Value>().to_string())?;
            } else {
                let rows: Vec<_> = keys.iter().map(to_cells).collect();
                table::print(
                    ["ID", "USER", "SCOPE", "AGE", "EXPIRES IN", "LAST USED"],
                    &rows,
                )?;
            }
            Ok(None)
        }
        KeyCommand::Revoke { id } => {
            users.revoke_key(&id).await?;
            Ok(Some(format!("user key revoke {id}")))
        }
    }
}

fn to_json(key: &Key) -> Value {
    json!({
        "id": key.id.as_str(),
        "user": key.user,
        "scope": key.scope.as_str(),
        "created_at": date(key.created_at),
        "expires_at": key.expires_at.map(date),
        "last_used_at": key.last_used_at.map(date),
    })
}

fn to_cells(key: &Key) -> [String; 6] {
    let now = accounts::unix_now();
    let expires = match key.expires_at {
        None => "never".to_owned(),
        Some(_) if key.is_expired(now) => "expired".to_owned(),
        Some(end) => table::age(i64::try_from(end.saturating_sub(now)).unwrap_or(i64::MAX)),
    };
    [
        key.id.to_string(),
        key.user.to_string(),
        key.scope.as_str().to_owned(),
        age(key.created_at),
        expires,
        key.last_used_at.map_or_else(|| "never".to_owned(), age),
    ]
}

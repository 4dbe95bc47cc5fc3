//! `glovebox login` and `glovebox logout`.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use conversations::ConversationService as _;
use protocol::client_api::v2::ListConversations;
use secrecy::SecretString;

use super::keys::ServerKeys;
use super::server::{KEY_VARIABLE, RemoteServer, SERVER_VARIABLE, normalize_url, state_dir};
use crate::cli::print;
use crate::compose::key_from_variable;
use crate::config::Overrides;
use crate::exit::{Exit, UsageError};
use crate::input_file::{self, MAX_SETTINGS_LENGTH};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The server prints its operator's key when it starts for the first time, and `glovebox user key add` prints one of a user. \
The key is checked with the server, and stored in servers.json of the state folder, which only you can read.
Example: glovebox login https://glovebox.example.org")]
pub(in crate::cli) struct LoginArguments {
    /// Address of the server, such as https://host:3000.
    #[arg(value_name = "URL")]
    url: String,

    /// File with the key; - is standard input. By default, the variable GLOVEBOX_KEY, else the key
    /// is asked for.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct LogoutArguments {
    /// Address of the server.
    #[arg(value_name = "URL")]
    url: String,
}

/// Checks and stores the key of a server.
pub(in crate::cli) async fn login(
    arguments: LoginArguments,
    overrides: &Overrides,
) -> anyhow::Result<Exit> {
    let url = normalize_url(&arguments.url)?;
    let state_dir = state_dir(overrides)?;
    let key = read_key(arguments.key_file.as_deref())?;
    let server = RemoteServer::with_key(url, &key)?;
    let one = ListConversations {
        limit: 1,
        ..ListConversations::default()
    };
    server.conversations.list(one).await?;
    ServerKeys::load(&state_dir)?.set(&server.url, &key)?;
    print::note(&format!(
        "the key for {url} is stored; use the server with --server {url}, or with {SERVER_VARIABLE}={url}\n",
        url = server.url
    ));
    Ok(Exit::Finished)
}

/// Removes the stored key of a server.
pub(in crate::cli) fn logout(
    arguments: &LogoutArguments,
    overrides: &Overrides,
) -> anyhow::Result<Exit> {
    let url = normalize_url(&arguments.url)?;
    if !ServerKeys::load(&state_dir(overrides)?)?.remove(&url)? {
        return Err(UsageError(format!("there is no key for {url}")).into());
    }
    print::note(&format!("the key for {url} is removed\n"));
    Ok(Exit::Finished)
}

fn read_key(file: Option<&Path>) -> anyhow::Result<SecretString> {
    let bytes = match file {
        Some(path) if path != Path::new("-") => {
            input_file::read_named(path, MAX_SETTINGS_LENGTH)
                .with_context(|| format!("cannot read the key in {}", path.display()))?
        }
        None if let Some(key) = key_from_variable(KEY_VARIABLE)? => return Ok(key),
        None if std::io::stdin().is_terminal() => rpassword::prompt_password("key: ")?.into_bytes(),
        _ => input_file::read_bounded(std::io::stdin().lock(), MAX_SETTINGS_LENGTH)
            .context("cannot read the key from standard input")?,
    };
    let text =
        String::from_utf8(bytes).map_err(|_| UsageError("the key is not text".to_owned()))?;
    match text.trim() {
        "" => Err(UsageError("no key was given".to_owned()).into()),
        key => Ok(SecretString::from(key)),
    }
}

//! A server, and the key for it.

use std::ffi::OsString;
use std::net::IpAddr;

use client::{RemoteConversations, normalize_address};
use conversations::{ConversationService as _, ServiceErrorKind, find_by_id_part};
use protocol::ConversationId;
use protocol::client_api::v2::{ConversationItem, ListConversations};
use reqwest::Url;
use secrecy::SecretString;

use super::keys::ServerKeys;
use crate::cli::conversation_id::ConversationChoice;
use crate::cli::{load_config_to_read, print};
use crate::compose::{StateDir, key_from_variable};
use crate::config::Overrides;
use crate::exit::UsageError;

/// Environment variable of the address of a server.
pub(super) const SERVER_VARIABLE: &str = "GLOVEBOX_SERVER";

/// Environment variable of the key for a server.
pub(super) const KEY_VARIABLE: &str = "GLOVEBOX_KEY";

/// Maximum number of conversations of a page of the list.
pub(super) const PAGE_SIZE: usize = 100;

/// Maximum number of conversations among which a part of an id is looked for, the latest first.
const MAX_SEARCHED: usize = 2000;

/// Returns the address of [`SERVER_VARIABLE`]. `None` if it is not set, or empty.
pub(in crate::cli) fn default_server() -> Result<Option<String>, UsageError> {
    let address = std::env::var_os(SERVER_VARIABLE).filter(|address| !address.is_empty());
    let address = address.map(OsString::into_string).transpose();
    address.map_err(|_| UsageError(format!("{SERVER_VARIABLE} is not UTF-8")))
}

/// A server, and its conversations.
pub(in crate::cli) struct RemoteServer {
    pub(in crate::cli) url: String,
    pub(in crate::cli) conversations: RemoteConversations,
}

impl RemoteServer {
    /// Returns the server at an address, with the key of the environment, else the one of `login`.
    pub(in crate::cli) fn open(url: &str, overrides: &Overrides) -> anyhow::Result<Self> {
        let url = normalize_url(url)?;
        let key = match key_from_variable(KEY_VARIABLE)? {
            Some(key) => key,
            None => stored_key(&url, overrides)?,
        };
        Self::with_key(url, &key)
    }

    pub(super) fn with_key(url: String, key: &SecretString) -> anyhow::Result<Self> {
        let conversations = RemoteConversations::new(&url, key, tls::roots())
            .map_err(|error| UsageError(error.to_string()))?;
        warn_about_plain_text(&url);
        Ok(Self { url, conversations })
    }

    /// Finds a conversation by its id, a part of it, or as the latest one.
    pub(in crate::cli) async fn find(
        &self,
        choice: &ConversationChoice,
    ) -> anyhow::Result<ConversationItem> {
        let mut request = ListConversations {
            limit: PAGE_SIZE,
            ..ListConversations::default()
        };
        let Some(part) = choice.id() else {
            request.limit = 1;
            let latest = self.conversations.list(request).await?;
            let latest = latest.conversations.into_iter().next();
            return latest.ok_or_else(|| UsageError("there is no conversation yet".into()).into());
        };
        match self.conversations.get(part).await {
            Err(error) if error.kind == ServiceErrorKind::NotFound => {}
            found => return Ok(found?),
        }
        let mut items = Vec::new();
        while items.len() < MAX_SEARCHED {
            let page = self.conversations.list(request.clone()).await?;
            items.extend(page.conversations);
            request.before = page.next;
            if request.before.is_none() {
                break;
            }
        }
        let ids = items.iter().map(|item| item.id.as_str());
        let found = find_by_id_part("conversations", part.as_str(), ids)
            .map_err(|error| UsageError(error.to_string()))?;
        let unknown = || UsageError(unknown(part, &self.url));
        Ok(items.swap_remove(found.ok_or_else(unknown)?))
    }
}

fn unknown(id: &ConversationId, url: &str) -> String {
    format!("there is no conversation {id} at {url}: `glovebox conversations ls` lists all")
}

fn stored_key(url: &str, overrides: &Overrides) -> anyhow::Result<SecretString> {
    let keys = ServerKeys::load(&state_dir(overrides)?)?;
    let key = keys.find(url);
    key.ok_or_else(|| {
        let text = format!(
            "there is no key for {url}: store one with `glovebox login {url}`, or set {KEY_VARIABLE}"
        );
        UsageError(text).into()
    })
}

pub(super) fn state_dir(overrides: &Overrides) -> anyhow::Result<StateDir> {
    StateDir::open(&load_config_to_read(overrides)?.state_dir)
}

/// Returns an address in the form in which keys are stored for it.
pub(super) fn normalize_url(url: &str) -> Result<String, UsageError> {
    normalize_address(url).map_err(|error| UsageError(error.to_string()))
}

/// Warns if the key is sent through a network in plain text.
fn warn_about_plain_text(url: &str) {
    let Ok(url) = Url::parse(url) else { return };
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    let is_local = host == "localhost"
        || host.ends_with(".localhost")
        || address.is_ok_and(|address| address.is_loopback());
    if url.scheme() == "http" && !is_local {
        print::warning(&format!(
            "the key is sent to {url} in plain text: others in its network can read it; use https"
        ));
    }
}

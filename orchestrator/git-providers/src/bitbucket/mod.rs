//! Bitbucket Cloud: the REST API, version 2.0.
//!
//! It has no list of repositories across workspaces (removed in 2026), so that each workspace is
//! asked, and no issues.

mod branches;
mod microagents;
mod repositories;
mod tasks;

use protocol::client_api::git::User;
use reqwest::Url;
use secrecy::ExposeSecret as _;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::client::GitClient;
use crate::error::RequestError;
use crate::http::{Api, Credentials};
use crate::names::foreign_host;
use crate::paging::MAX_PAGES;
use crate::token::ProviderToken;

const MEDIA_TYPE: &str = "application/json";

/// Bitbucket with a token.
#[derive(Debug)]
pub(crate) struct Bitbucket {
    api: Api,
}

/// A page of a list.
#[derive(Deserialize)]
struct Values<T> {
    values: Vec<T>,
    /// The URL of the next page.
    next: Option<String>,
    /// Number of items of the list.
    size: Option<u64>,
}

#[derive(Deserialize)]
struct Account {
    uuid: String,
    username: Option<String>,
    nickname: Option<String>,
    display_name: Option<String>,
    links: Option<Links>,
}

#[derive(Deserialize)]
struct Links {
    avatar: Option<Link>,
}

#[derive(Deserialize)]
struct Link {
    href: String,
}

impl Bitbucket {
    pub(crate) fn new(client: &GitClient, token: &ProviderToken) -> Result<Self, RequestError> {
        if foreign_host(
            token.host.as_deref(),
            &["bitbucket.org", "api.bitbucket.org"],
        )?
        .is_some()
        {
            let problem = "only Bitbucket Cloud is supported, at bitbucket.org";
            return Err(RequestError::InvalidInput {
                field: "host",
                problem,
            });
        }
        let credentials = match token.token.expose_secret().split_once(':') {
            Some((name, password)) => Credentials::basic(name, password)?,
            None => Credentials::bearer(&token.token)?,
        };
        let base = client.shared.base_urls.bitbucket.clone();
        Ok(Self {
            api: Api::new(client.clone(), base, credentials, MEDIA_TYPE),
        })
    }

    /// Whether web pages of Bitbucket are at a host.
    pub(crate) fn is_at(&self, host: &str) -> bool {
        self.api
            .base()
            .host_str()
            .is_some_and(|base| base.strip_prefix("api.").unwrap_or(base) == host)
    }

    pub(crate) async fn user(&self) -> Result<User, RequestError> {
        let account = self.account().await?;
        let avatar = account.links.and_then(|links| links.avatar);
        Ok(User {
            id: account.uuid,
            login: account.username.or(account.nickname).unwrap_or_default(),
            avatar_url: avatar.map(|link| link.href).unwrap_or_default(),
            company: None,
            name: account.display_name,
            email: None,
        })
    }

    async fn account(&self) -> Result<Account, RequestError> {
        self.api.get(self.api.url(&["user"], &[])?).await
    }

    /// Requests all pages of a list, by the URLs that they contain.
    async fn list<T: DeserializeOwned>(&self, first: Url) -> Result<Vec<T>, RequestError> {
        let (mut items, mut next) = (Vec::new(), Some(first));
        for _ in 0..MAX_PAGES {
            let Some(url) = next.take() else {
                return Ok(items);
            };
            let page: Values<T> = self.api.get(url).await?;
            items.extend(page.values);
            next = page.next.map(|url| self.api.next_url(&url)).transpose()?;
        }
        Ok(items)
    }
}

/// Quotes a text for the query language of lists.
fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_cannot_end_the_quotation() {
        assert_eq!(quote(r#"a" OR name ~ "\"#), r#""a\" OR name ~ \"\\""#);
    }
}

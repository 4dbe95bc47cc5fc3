//! GitHub and GitHub Enterprise Server: the REST API, and GraphQL where REST needs a request for
//! each item.

mod branches;
mod graphql;
mod microagents;
mod repositories;
mod tasks;

use protocol::client_api::git::User;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::client::GitClient;
use crate::error::RequestError;
use crate::http::{Api, Credentials};
use crate::names::{foreign_host, url_below};
use crate::token::ProviderToken;

const MEDIA_TYPE: &str = "application/vnd.github+json";
const VERSION: (&str, &str) = ("x-github-api-version", "2022-11-28");

/// GitHub with a token.
#[derive(Debug)]
pub(crate) struct GitHub {
    api: Api,
    graphql: Api,
}

#[derive(Deserialize)]
struct Account {
    id: u64,
    login: String,
    avatar_url: Option<String>,
    company: Option<String>,
    name: Option<String>,
    email: Option<String>,
}

impl GitHub {
    pub(crate) fn new(client: &GitClient, token: &ProviderToken) -> Result<Self, RequestError> {
        let base = match foreign_host(token.host.as_deref(), &["github.com", "api.github.com"])? {
            Some(host) => url_below(&host, "api/v3"),
            None => client.shared.base_urls.github.clone(),
        };
        let credentials = Credentials::bearer(&token.token)?.with_header(VERSION.0, VERSION.1);
        let api = Api::new(client.clone(), base, credentials, MEDIA_TYPE);
        let graphql = api.with_base(graphql::base_url(api.base()));
        Ok(Self { api, graphql })
    }

    /// Whether web pages of this GitHub are at a host.
    pub(crate) fn is_at(&self, host: &str) -> bool {
        self.api
            .base()
            .host_str()
            .is_some_and(|base| base.strip_prefix("api.").unwrap_or(base) == host)
    }

    /// Requests the root of the API, because tokens of GitHub's apps have no user.
    pub(crate) async fn check_token(&self) -> Result<(), RequestError> {
        let _: IgnoredAny = self.api.get(self.api.url(&[], &[])?).await?;
        Ok(())
    }

    pub(crate) async fn user(&self) -> Result<User, RequestError> {
        let account: Account = self.api.get(self.api.url(&["user"], &[])?).await?;
        Ok(User {
            id: account.id.to_string(),
            login: account.login,
            avatar_url: account.avatar_url.unwrap_or_default(),
            company: account.company,
            name: account.name,
            email: account.email,
        })
    }
}

//! GitLab: the REST API, version 4.

mod branches;
mod microagents;
mod projects;
mod tasks;

use protocol::client_api::git::User;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::client::GitClient;
use crate::error::RequestError;
use crate::http::{Api, Credentials, Decoded};
use crate::names::{foreign_host, segments, url_below};
use crate::paging::{Page, PageRequest, collect_pages, has_next_link};
use crate::token::ProviderToken;

const MEDIA_TYPE: &str = "application/json";

/// GitLab with a token.
#[derive(Debug)]
pub(crate) struct GitLab {
    api: Api,
}

#[derive(Deserialize)]
struct Account {
    id: u64,
    username: String,
    name: Option<String>,
    avatar_url: Option<String>,
    email: Option<String>,
    organization: Option<String>,
}

impl GitLab {
    pub(crate) fn new(client: &GitClient, token: &ProviderToken) -> Result<Self, RequestError> {
        let base = match foreign_host(token.host.as_deref(), &["gitlab.com"])? {
            Some(host) => url_below(&host, "api/v4"),
            None => client.shared.base_urls.gitlab.clone(),
        };
        let api = Api::new(
            client.clone(),
            base,
            Credentials::bearer(&token.token)?,
            MEDIA_TYPE,
        );
        Ok(Self { api })
    }

    /// Whether web pages of this GitLab are at a host.
    pub(crate) fn is_at(&self, host: &str) -> bool {
        self.api.base().host_str() == Some(host)
    }

    pub(crate) async fn user(&self) -> Result<User, RequestError> {
        let account: Account = self.api.get(self.api.url(&["user"], &[])?).await?;
        Ok(User {
            id: account.id.to_string(),
            login: account.username,
            avatar_url: account.avatar_url.unwrap_or_default(),
            company: account.organization.filter(|company| !company.is_empty()),
            name: account.name,
            email: account.email,
        })
    }

    /// Requests a page of a list.
    async fn page<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
        page: PageRequest,
    ) -> Result<Decoded<Vec<T>>, RequestError> {
        let (number, size) = (page.number.to_string(), page.size.to_string());
        let query = [query, &[("page", &number), ("per_page", &size)]].concat();
        self.api.get_with_headers(self.api.url(path, &query)?).await
    }

    /// Requests all pages of a list.
    async fn list<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<Vec<T>, RequestError> {
        collect_pages(|request| async move {
            let Decoded { body, headers } = self.page(path, query, request).await?;
            Ok(Page {
                items: body,
                has_next: has_next_link(&headers),
                total: None,
            })
        })
        .await
    }
}

/// Validates the name of a project. With its `/` escaped it is an id of the API.
fn project_id(repository: &str) -> Result<&str, RequestError> {
    segments(repository)?;
    Ok(repository)
}

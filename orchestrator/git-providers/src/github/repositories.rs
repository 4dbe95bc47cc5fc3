//! Repositories and installations.

use protocol::client_api::git::{
    GitProvider, OwnerType, Repository, RepositorySort, SearchSort, SortOrder,
};
use serde::Deserialize;

use super::GitHub;
use crate::error::RequestError;
use crate::http::Decoded;
use crate::names::owner_and_name;
use crate::paging::{Page, PageRequest, has_next_link, link_header};
use crate::service::NameSearch;

/// Maximum number of organizations that a search names. A longer query would be rejected.
const MAX_SEARCHED_ORGANIZATIONS: usize = 30;

#[derive(Deserialize)]
struct RepositoryJson {
    id: u64,
    full_name: String,
    private: bool,
    stargazers_count: Option<u64>,
    pushed_at: Option<String>,
    default_branch: Option<String>,
    owner: Option<Owner>,
}

#[derive(Deserialize)]
struct Owner {
    #[serde(rename = "type")]
    kind: Option<String>,
}

#[derive(Deserialize)]
struct Login {
    login: String,
}

#[derive(Deserialize)]
struct Installations {
    installations: Vec<Installation>,
}

#[derive(Deserialize)]
struct Installation {
    id: u64,
}

#[derive(Deserialize)]
struct InstallationRepositories {
    repositories: Vec<RepositoryJson>,
}

#[derive(Deserialize)]
struct SearchResult {
    items: Vec<RepositoryJson>,
}

impl GitHub {
    pub(crate) async fn installations(&self) -> Result<Vec<String>, RequestError> {
        let url = self
            .api
            .url(&["user", "installations"], &[("per_page", "100")])?;
        let found: Installations = self.api.get(url).await?;
        Ok(found
            .installations
            .into_iter()
            .map(|installation| installation.id.to_string())
            .collect())
    }

    pub(crate) async fn repositories(
        &self,
        sort: RepositorySort,
        page: PageRequest,
        installation: Option<&str>,
    ) -> Result<Page<Repository>, RequestError> {
        let (number, size) = (page.number.to_string(), page.size.to_string());
        let mut query = vec![("page", number.as_str()), ("per_page", &size)];
        let Decoded {
            body: repositories,
            headers,
        } = match installation {
            Some(id) => {
                let url = self
                    .api
                    .url(&["user", "installations", id, "repositories"], &query)?;
                let found: Decoded<InstallationRepositories> =
                    self.api.get_with_headers(url).await?;
                Decoded {
                    body: found.body.repositories,
                    headers: found.headers,
                }
            }
            None => {
                query.push(("sort", sort_name(sort)));
                let url = self.api.url(&["user", "repos"], &query)?;
                self.api.get_with_headers(url).await?
            }
        };
        let link = link_header(&headers);
        let items = repositories
            .into_iter()
            .map(|json| json.into_repository(link.clone()))
            .collect();
        Ok(Page {
            items,
            has_next: has_next_link(&headers),
            total: None,
        })
    }

    pub(crate) async fn repository(&self, name: &str) -> Result<Repository, RequestError> {
        let (owner, name) = owner_and_name(name)?;
        let json: RepositoryJson = self
            .api
            .get(self.api.url(&["repos", owner, name], &[])?)
            .await?;
        Ok(json.into_repository(None))
    }

    /// Searches the repositories of the user and of the user's organizations; with `owner/part`,
    /// those of that owner.
    pub(crate) async fn search(
        &self,
        search: NameSearch<'_>,
    ) -> Result<Vec<Repository>, RequestError> {
        let (part, owners) = match search.query.split_once('/') {
            Some((owner, part)) => (part, vec![format!("user:{owner}")]),
            None => (search.query, self.owners().await?),
        };
        let query = format!("{part} in:name fork:true {}", owners.join(" "));
        let sort = match search.sort {
            SearchSort::Stars => "stars",
            SearchSort::Forks => "forks",
            SearchSort::Updated => "updated",
        };
        let order = if search.order == SortOrder::Asc {
            "asc"
        } else {
            "desc"
        };
        let limit = search.limit.to_string();
        let query = [
            ("q", query.trim()),
            ("sort", sort),
            ("order", order),
            ("per_page", &limit),
        ];
        let result: SearchResult = self
            .api
            .get(self.api.url(&["search", "repositories"], &query)?)
            .await?;
        Ok(result
            .items
            .into_iter()
            .map(|json| json.into_repository(None))
            .collect())
    }

    /// Returns the qualifiers of the user and of the user's organizations.
    async fn owners(&self) -> Result<Vec<String>, RequestError> {
        let user: Login = self.api.get(self.api.url(&["user"], &[])?).await?;
        let url = self.api.url(&["user", "orgs"], &[("per_page", "100")])?;
        let organizations: Vec<Login> = self.api.get(url).await?;
        let organizations = organizations.into_iter().take(MAX_SEARCHED_ORGANIZATIONS);
        let owners = std::iter::once(user).chain(organizations);
        Ok(owners
            .map(|owner| format!("user:{}", owner.login))
            .collect())
    }
}

impl RepositoryJson {
    fn into_repository(self, link_header: Option<String>) -> Repository {
        let owner_type = self.owner.and_then(|owner| match owner.kind.as_deref() {
            Some("Organization") => Some(OwnerType::Organization),
            Some("User") => Some(OwnerType::User),
            _ => None,
        });
        Repository {
            id: self.id.to_string(),
            full_name: self.full_name,
            git_provider: GitProvider::GitHub,
            is_public: !self.private,
            stargazers_count: self.stargazers_count,
            link_header,
            pushed_at: self.pushed_at,
            owner_type,
            main_branch: self.default_branch,
        }
    }
}

fn sort_name(sort: RepositorySort) -> &'static str {
    match sort {
        RepositorySort::Pushed => "pushed",
        RepositorySort::Updated => "updated",
        RepositorySort::Created => "created",
        RepositorySort::FullName => "full_name",
    }
}

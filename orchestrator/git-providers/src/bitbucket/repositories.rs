//! Repositories and workspaces.

use protocol::client_api::git::{
    GitProvider, OwnerType, Repository, RepositorySort, SearchSort, SortOrder,
};
use serde::Deserialize;

use super::{Bitbucket, Values, quote};
use crate::concurrently::concurrently;
use crate::error::RequestError;
use crate::names::owner_and_name;
use crate::paging::{Page, PageRequest};
use crate::service::NameSearch;

/// Maximum number of workspaces whose repositories are listed.
pub(super) const MAX_WORKSPACES: usize = 30;

#[derive(Deserialize)]
pub(super) struct RepositoryJson {
    uuid: String,
    full_name: String,
    is_private: bool,
    updated_on: Option<String>,
    created_on: Option<String>,
    pub(super) mainbranch: Option<MainBranch>,
}

#[derive(Deserialize)]
pub(super) struct MainBranch {
    pub(super) name: String,
}

#[derive(Deserialize)]
struct Membership {
    workspace: Workspace,
}

#[derive(Deserialize)]
struct Workspace {
    slug: String,
}

impl Bitbucket {
    pub(crate) async fn workspaces(&self) -> Result<Vec<String>, RequestError> {
        let url = self
            .api
            .url(&["user", "workspaces"], &[("pagelen", "100")])?;
        let memberships: Vec<Membership> = self.list(url).await?;
        Ok(memberships
            .into_iter()
            .map(|membership| membership.workspace.slug)
            .collect())
    }

    /// Lists a page of a workspace; without one, a page of the list of all.
    pub(crate) async fn repositories(
        &self,
        sort: RepositorySort,
        page: PageRequest,
        workspace: Option<&str>,
    ) -> Result<Page<Repository>, RequestError> {
        let Some(workspace) = workspace else {
            let mut page_of_all = page.slice(self.all_repositories(sort).await?);
            set_link(&mut page_of_all.items, page.next_link(page_of_all.has_next));
            return Ok(page_of_all);
        };
        let (number, size) = (page.number.to_string(), page.size.to_string());
        let query = [
            ("page", number.as_str()),
            ("pagelen", &size),
            ("sort", sort_key(sort)),
        ];
        let url = self.api.url(&["repositories", workspace], &query)?;
        let found: Values<RepositoryJson> = self.api.get(url).await?;
        let has_next = found.next.is_some();
        let mut items: Vec<_> = found
            .values
            .into_iter()
            .map(RepositoryJson::into_repository)
            .collect();
        set_link(&mut items, page.next_link(has_next));
        Ok(Page {
            items,
            has_next,
            total: found.size,
        })
    }

    pub(crate) async fn all_repositories(
        &self,
        sort: RepositorySort,
    ) -> Result<Vec<Repository>, RequestError> {
        let mut found = self.in_workspaces(&[("sort", sort_key(sort))]).await?;
        match sort {
            RepositorySort::Pushed | RepositorySort::Updated => {
                found.sort_by(|one, other| other.updated_on.cmp(&one.updated_on));
            }
            RepositorySort::Created => {
                found.sort_by(|one, other| other.created_on.cmp(&one.created_on));
            }
            RepositorySort::FullName => {
                found.sort_by(|one, other| one.full_name.cmp(&other.full_name));
            }
        }
        Ok(found
            .into_iter()
            .map(RepositoryJson::into_repository)
            .collect())
    }

    pub(crate) async fn repository(&self, name: &str) -> Result<Repository, RequestError> {
        Ok(self.repository_json(name).await?.into_repository())
    }

    pub(super) async fn repository_json(&self, name: &str) -> Result<RepositoryJson, RequestError> {
        let (workspace, slug) = owner_and_name(name)?;
        self.api
            .get(self.api.url(&["repositories", workspace, slug], &[])?)
            .await
    }

    /// Searches the repositories of the user's workspaces; with `workspace/part`, those of that
    /// workspace.
    pub(crate) async fn search(
        &self,
        search: NameSearch<'_>,
    ) -> Result<Vec<Repository>, RequestError> {
        let sort = match (search.sort, search.order) {
            // There are no counts of stars and forks.
            (SearchSort::Stars | SearchSort::Forks | SearchSort::Updated, SortOrder::Desc) => {
                "-updated_on"
            }
            (SearchSort::Stars | SearchSort::Forks | SearchSort::Updated, SortOrder::Asc) => {
                "updated_on"
            }
        };
        let found = match search.query.split_once('/') {
            Some((workspace, part)) => {
                let filter = format!("name ~ {}", quote(part));
                self.in_workspace(workspace, &[("q", &filter), ("sort", sort)])
                    .await?
            }
            None => {
                let filter = format!("name ~ {}", quote(search.query));
                self.in_workspaces(&[("q", &filter), ("sort", sort)])
                    .await?
            }
        };
        let found = found.into_iter().take(search.limit as usize);
        Ok(found.map(RepositoryJson::into_repository).collect())
    }

    async fn in_workspaces(
        &self,
        query: &[(&str, &str)],
    ) -> Result<Vec<RepositoryJson>, RequestError> {
        let workspaces = self.workspaces().await?.into_iter().take(MAX_WORKSPACES);
        let lists =
            workspaces.map(|workspace| async move { self.in_workspace(&workspace, query).await });
        Ok(concurrently(lists).await?.into_iter().flatten().collect())
    }

    async fn in_workspace(
        &self,
        workspace: &str,
        query: &[(&str, &str)],
    ) -> Result<Vec<RepositoryJson>, RequestError> {
        let query = [query, &[("pagelen", "100")]].concat();
        self.list(self.api.url(&["repositories", workspace], &query)?)
            .await
    }
}

impl RepositoryJson {
    fn into_repository(self) -> Repository {
        Repository {
            id: self.uuid,
            full_name: self.full_name,
            git_provider: GitProvider::Bitbucket,
            is_public: !self.is_private,
            stargazers_count: None,
            link_header: None,
            pushed_at: self.updated_on,
            // A workspace, also that of a person.
            owner_type: Some(OwnerType::Organization),
            main_branch: self.mainbranch.map(|branch| branch.name),
        }
    }
}

fn set_link(repositories: &mut [Repository], link: Option<String>) {
    repositories
        .iter_mut()
        .for_each(|repository| repository.link_header.clone_from(&link));
}

fn sort_key(sort: RepositorySort) -> &'static str {
    match sort {
        RepositorySort::Pushed | RepositorySort::Updated => "-updated_on",
        RepositorySort::Created => "-created_on",
        RepositorySort::FullName => "name",
    }
}

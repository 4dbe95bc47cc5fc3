//! Repositories, which GitLab calls projects.

use protocol::client_api::git::{
    GitProvider, OwnerType, Repository, RepositorySort, SearchSort, SortOrder,
};
use serde::Deserialize;

use super::{GitLab, project_id};
use crate::error::RequestError;
use crate::http::Decoded;
use crate::paging::{Page, PageRequest, has_next_link, link_header};
use crate::service::NameSearch;

#[derive(Deserialize)]
struct Project {
    id: u64,
    path_with_namespace: String,
    visibility: Option<String>,
    star_count: Option<u64>,
    last_activity_at: Option<String>,
    default_branch: Option<String>,
    namespace: Option<Namespace>,
}

#[derive(Deserialize)]
struct Namespace {
    kind: Option<String>,
}

impl GitLab {
    /// Lists the projects of which the user is a member. There are no installations.
    pub(crate) async fn repositories(
        &self,
        sort: RepositorySort,
        page: PageRequest,
        _installation: Option<&str>,
    ) -> Result<Page<Repository>, RequestError> {
        let (key, direction) = match sort {
            RepositorySort::Pushed | RepositorySort::Updated => ("last_activity_at", "desc"),
            RepositorySort::Created => ("created_at", "desc"),
            RepositorySort::FullName => ("path", "asc"),
        };
        let query = [
            ("membership", "true"),
            ("order_by", key),
            ("sort", direction),
        ];
        let Decoded { body, headers }: Decoded<Vec<Project>> =
            self.page(&["projects"], &query, page).await?;
        let link = link_header(&headers);
        let items = body
            .into_iter()
            .map(|project| project.into_repository(link.clone()))
            .collect();
        Ok(Page {
            items,
            has_next: has_next_link(&headers),
            total: None,
        })
    }

    pub(crate) async fn repository(&self, name: &str) -> Result<Repository, RequestError> {
        let project: Project = self
            .api
            .get(self.api.url(&["projects", project_id(name)?], &[])?)
            .await?;
        Ok(project.into_repository(None))
    }

    /// Searches the projects of which the user is a member; with `/`, also in the names of their
    /// groups.
    pub(crate) async fn search(
        &self,
        search: NameSearch<'_>,
    ) -> Result<Vec<Repository>, RequestError> {
        let key = match search.sort {
            SearchSort::Stars => "star_count",
            SearchSort::Forks | SearchSort::Updated => "last_activity_at",
        };
        let query = [
            ("membership", "true"),
            ("search", search.query),
            (
                "search_namespaces",
                if search.query.contains('/') {
                    "true"
                } else {
                    "false"
                },
            ),
            ("order_by", key),
            (
                "sort",
                if search.order == SortOrder::Asc {
                    "asc"
                } else {
                    "desc"
                },
            ),
        ];
        let page = PageRequest::new(1, search.limit);
        let found: Decoded<Vec<Project>> = self.page(&["projects"], &query, page).await?;
        Ok(found
            .body
            .into_iter()
            .map(|project| project.into_repository(None))
            .collect())
    }
}

impl Project {
    fn into_repository(self, link_header: Option<String>) -> Repository {
        let owner_type = self
            .namespace
            .and_then(|namespace| match namespace.kind.as_deref() {
                Some("group") => Some(OwnerType::Organization),
                Some("user") => Some(OwnerType::User),
                _ => None,
            });
        Repository {
            id: self.id.to_string(),
            full_name: self.path_with_namespace,
            git_provider: GitProvider::GitLab,
            is_public: self.visibility.as_deref() == Some("public"),
            stargazers_count: self.star_count,
            link_header,
            pushed_at: self.last_activity_at,
            owner_type,
            main_branch: self.default_branch,
        }
    }
}

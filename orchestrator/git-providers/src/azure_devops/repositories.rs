//! Repositories.

use protocol::client_api::git::{GitProvider, OwnerType, Repository, RepositorySort, SortOrder};
use serde::Deserialize;

use super::{AzureDevOps, VERSION, Values};
use crate::error::RequestError;
use crate::paging::{Page, PageRequest};
use crate::service::NameSearch;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RepositoryJson {
    id: String,
    name: String,
    project: Project,
    default_branch: Option<String>,
    #[serde(default)]
    is_disabled: bool,
}

#[derive(Deserialize)]
struct Project {
    name: String,
    visibility: Option<String>,
}

impl AzureDevOps {
    /// Lists a page of an organization's repositories, by name: there are no times of updates.
    pub(crate) async fn repositories(
        &self,
        sort: RepositorySort,
        page: PageRequest,
        organization: Option<&str>,
    ) -> Result<Page<Repository>, RequestError> {
        let mut page_of_all = page.slice(self.all_repositories(sort, organization).await?);
        let link = page.next_link(page_of_all.has_next);
        page_of_all
            .items
            .iter_mut()
            .for_each(|repository| repository.link_header.clone_from(&link));
        Ok(page_of_all)
    }

    pub(crate) async fn all_repositories(
        &self,
        _sort: RepositorySort,
        organization: Option<&str>,
    ) -> Result<Vec<Repository>, RequestError> {
        let organization = organization.unwrap_or(&self.organization);
        let url = self
            .api
            .url(&[organization, "_apis", "git", "repositories"], &[VERSION])?;
        let found: Values<RepositoryJson> = self.api.get(url).await?;
        let enabled = found
            .value
            .into_iter()
            .filter(|repository| !repository.is_disabled);
        let mut repositories: Vec<_> = enabled
            .map(|repository| repository.into_repository(organization))
            .collect();
        repositories.sort_by(|one, other| one.full_name.cmp(&other.full_name));
        Ok(repositories)
    }

    pub(crate) async fn repository(&self, name: &str) -> Result<Repository, RequestError> {
        let name = self.split(name)?;
        let found: RepositoryJson = self.api.get(self.repository_url(&name, &[], &[])?).await?;
        Ok(found.into_repository(name.organization))
    }

    /// Searches the names of repositories and projects.
    pub(crate) async fn search(
        &self,
        search: NameSearch<'_>,
    ) -> Result<Vec<Repository>, RequestError> {
        let part = search.query.to_lowercase();
        let mut found = self
            .all_repositories(RepositorySort::FullName, None)
            .await?;
        found.retain(|repository| repository.full_name.to_lowercase().contains(&part));
        if search.order == SortOrder::Desc {
            found.reverse();
        }
        found.truncate(search.limit as usize);
        Ok(found)
    }
}

impl RepositoryJson {
    fn into_repository(self, organization: &str) -> Repository {
        Repository {
            id: self.id,
            full_name: format!("{organization}/{}/{}", self.project.name, self.name),
            git_provider: GitProvider::AzureDevOps,
            is_public: self.project.visibility.as_deref() == Some("public"),
            stargazers_count: None,
            link_header: None,
            pushed_at: None,
            owner_type: Some(OwnerType::Organization),
            main_branch: self
                .default_branch
                .map(|name| name.strip_prefix("refs/heads/").unwrap_or(&name).to_owned()),
        }
    }
}

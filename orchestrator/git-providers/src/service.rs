//! A provider with a token: the same operations for all of them.

use protocol::client_api::git::{
    Branch, GitProvider, Repository, RepositorySort, SearchSort, SortOrder, SuggestedTask, User,
};

use crate::azure_devops::AzureDevOps;
use crate::bitbucket::Bitbucket;
use crate::client::GitClient;
use crate::error::RequestError;
use crate::github::GitHub;
use crate::gitlab::GitLab;
use crate::names::repository_in_url;
use crate::paging::{Page, PageRequest, collect_pages};
use crate::token::ProviderToken;

/// Maximum number of open pull requests of which each one's checks and comments are requested.
pub(crate) const MAX_INSPECTED_PULL_REQUESTS: usize = 30;

/// A search for repositories by a part of their name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NameSearch<'a> {
    pub(crate) query: &'a str,
    pub(crate) sort: SearchSort,
    pub(crate) order: SortOrder,
    pub(crate) limit: u32,
}

/// A provider with a token.
#[derive(Debug)]
pub(crate) enum Service {
    GitHub(GitHub),
    GitLab(GitLab),
    Bitbucket(Bitbucket),
    AzureDevOps(AzureDevOps),
}

/// Calls a method that all providers have.
macro_rules! call {
    ($self:ident.$method:ident($($argument:expr),*)) => {
        match $self {
            Self::GitHub(service) => service.$method($($argument),*).await,
            Self::GitLab(service) => service.$method($($argument),*).await,
            Self::Bitbucket(service) => service.$method($($argument),*).await,
            Self::AzureDevOps(service) => service.$method($($argument),*).await,
        }
    };
}

impl Service {
    /// Validates the token and its host. Opens no connection. `None` if the provider has no
    /// repositories.
    pub(crate) fn new(
        client: &GitClient,
        provider: GitProvider,
        token: &ProviderToken,
    ) -> Result<Option<Self>, RequestError> {
        Ok(Some(match provider {
            GitProvider::GitHub => Self::GitHub(GitHub::new(client, token)?),
            GitProvider::GitLab => Self::GitLab(GitLab::new(client, token)?),
            GitProvider::Bitbucket => Self::Bitbucket(Bitbucket::new(client, token)?),
            GitProvider::AzureDevOps => Self::AzureDevOps(AzureDevOps::new(client, token)?),
            GitProvider::EnterpriseSso => return Ok(None),
        }))
    }

    /// Checks that the provider accepts the token.
    pub(crate) async fn check_token(&self) -> Result<(), RequestError> {
        match self {
            Self::GitHub(service) => service.check_token().await,
            Self::AzureDevOps(service) => service.check_token().await,
            Self::GitLab(_) | Self::Bitbucket(_) => self.user().await.map(drop),
        }
    }

    pub(crate) async fn user(&self) -> Result<User, RequestError> {
        call!(self.user())
    }

    /// Lists what `installation_id` can name. `None` if the provider has nothing like that.
    pub(crate) async fn installations(&self) -> Result<Option<Vec<String>>, RequestError> {
        Ok(Some(match self {
            Self::GitHub(service) => service.installations().await?,
            Self::Bitbucket(service) => service.workspaces().await?,
            Self::AzureDevOps(service) => service.organizations(),
            Self::GitLab(_) => return Ok(None),
        }))
    }

    /// Lists a page of the user's repositories, each with the `Link` header.
    pub(crate) async fn repositories(
        &self,
        sort: RepositorySort,
        page: PageRequest,
        installation: Option<&str>,
    ) -> Result<Page<Repository>, RequestError> {
        call!(self.repositories(sort, page, installation))
    }

    /// Lists the repositories of all pages.
    pub(crate) async fn all_repositories(
        &self,
        sort: RepositorySort,
    ) -> Result<Vec<Repository>, RequestError> {
        let mut repositories = match self {
            Self::GitHub(_) | Self::GitLab(_) => {
                collect_pages(|page| self.repositories(sort, page, None)).await?
            }
            Self::Bitbucket(service) => service.all_repositories(sort).await?,
            Self::AzureDevOps(service) => service.all_repositories(sort, None).await?,
        };
        repositories
            .iter_mut()
            .for_each(|repository| repository.link_header = None);
        Ok(repositories)
    }

    pub(crate) async fn repository(&self, name: &str) -> Result<Repository, RequestError> {
        call!(self.repository(name))
    }

    /// Searches the user's repositories. If the query is a URL, returns the repository there, which
    /// may be any public one.
    pub(crate) async fn search(
        &self,
        search: NameSearch<'_>,
    ) -> Result<Vec<Repository>, RequestError> {
        let Some((host, path)) = repository_in_url(search.query) else {
            return call!(self.search(search));
        };
        let Some(name) = self.repository_at(&host, &path) else {
            return Ok(Vec::new());
        };
        match self.repository(&name).await {
            Ok(repository) => Ok(vec![repository]),
            Err(RequestError::NotFound | RequestError::InvalidInput { .. }) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn branches(
        &self,
        repository: &str,
        page: PageRequest,
    ) -> Result<Page<Branch>, RequestError> {
        call!(self.branches(repository, page))
    }

    pub(crate) async fn search_branches(
        &self,
        repository: &str,
        query: &str,
        limit: u32,
    ) -> Result<Vec<Branch>, RequestError> {
        call!(self.search_branches(repository, query, limit))
    }

    pub(crate) async fn suggested_tasks(&self) -> Result<Vec<SuggestedTask>, RequestError> {
        call!(self.suggested_tasks())
    }

    /// Lists the paths of the files in a folder and below it.
    pub(crate) async fn files_in(
        &self,
        repository: &str,
        folder: &str,
    ) -> Result<Vec<String>, RequestError> {
        call!(self.files_in(repository, folder))
    }

    /// Returns the text of a file in the default branch.
    pub(crate) async fn file(&self, repository: &str, path: &str) -> Result<String, RequestError> {
        call!(self.file(repository, path))
    }

    /// Returns the date of the oldest of the latest hundred commits of a file. `None` if there is
    /// no commit.
    pub(crate) async fn oldest_commit_date(
        &self,
        repository: &str,
        path: &str,
    ) -> Result<Option<String>, RequestError> {
        call!(self.oldest_commit_date(repository, path))
    }

    /// Returns the name of the repository at a URL. `None` if it is at another host.
    fn repository_at(&self, host: &str, path: &str) -> Option<String> {
        match self {
            Self::GitHub(service) => service.is_at(host).then(|| first_segments(path, 2)),
            Self::GitLab(service) => service.is_at(host).then(|| path.to_owned()),
            Self::Bitbucket(service) => service.is_at(host).then(|| first_segments(path, 2)),
            Self::AzureDevOps(service) => service
                .is_at(host)
                .then(|| first_segments(&path.replacen("/_git/", "/", 1), 3)),
        }
    }
}

fn first_segments(path: &str, count: usize) -> String {
    path.split('/').take(count).collect::<Vec<_>>().join("/")
}

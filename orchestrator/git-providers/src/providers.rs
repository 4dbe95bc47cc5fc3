//! The providers of one user.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use protocol::client_api::git::{
    Branch, BranchPage, GitProvider, Microagent, Repository, RepositorySort, SearchSort, SortOrder,
    SuggestedTask, User,
};
use tracing::Instrument as _;

use crate::client::GitClient;
use crate::error::{GitError, RequestError};
use crate::microagents::{self, MicroagentSource};
use crate::paging::{MAX_PAGE_ITEMS, PageRequest};
use crate::service::{NameSearch, Service};
use crate::token::ProviderToken;

/// The providers that a user has tokens for.
///
/// Where `provider` is `None`, lists and searches combine all providers. They leave out one that
/// fails, with a warning in the log, unless all fail. A repository is looked for at one provider
/// after the other.
#[derive(Debug, Clone)]
pub struct GitProviders {
    client: GitClient,
    tokens: BTreeMap<GitProvider, ProviderToken>,
}

/// The query of [`GitProviders::repositories`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepositoryQuery {
    /// `selected_provider`. `None` lists the repositories of all providers, without pages.
    pub provider: Option<GitProvider>,
    /// The order.
    pub sort: RepositorySort,
    /// The number of the page, from 1.
    pub page: u32,
    /// Maximum number of repositories in a page; 1 to 100.
    pub per_page: u32,
    /// An element of [`GitProviders::installations`] that owns the repositories. `None` for all
    /// that the user can access.
    pub installation_id: Option<String>,
}

/// The query of [`GitProviders::search_repositories`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchQuery {
    /// `selected_provider`. `None` searches all providers.
    pub provider: Option<GitProvider>,
    /// A part of the name, or the URL of a repository.
    pub query: String,
    /// Maximum number of repositories of each provider; 1 to 100.
    pub per_page: u32,
    /// The key to sort by. Providers without it sort by the last update.
    pub sort: SearchSort,
    /// The direction.
    pub order: SortOrder,
}

impl GitProviders {
    /// Combines a user's tokens with the client that all users share. Opens no connection.
    pub fn new(client: GitClient, tokens: BTreeMap<GitProvider, ProviderToken>) -> Self {
        Self { client, tokens }
    }

    /// Checks that each provider accepts its token.
    ///
    /// # Errors
    /// Of the first provider that fails; see [`GitError`]. [`RequestError::TokenRejected`] if the
    /// token is invalid.
    pub async fn check_tokens(&self) -> Result<(), GitError> {
        let checks = self.tokens.keys().map(|provider| {
            self.call(*provider, "check the token", |service| async move {
                service.check_token().await
            })
        });
        join_all(checks).await.into_iter().collect()
    }

    /// Lists what [`RepositoryQuery::installation_id`] can name: GitHub's installations of an app,
    /// Bitbucket's workspaces, the organization of Azure DevOps.
    ///
    /// # Errors
    /// See [`GitError`]. [`GitError::Unsupported`] for GitLab.
    pub async fn installations(&self, provider: GitProvider) -> Result<Vec<String>, GitError> {
        const OPERATION: &str = "list installations";
        let found = self
            .call(provider, OPERATION, |service| async move {
                service.installations().await
            })
            .await?;
        found.ok_or(GitError::Unsupported {
            operation: OPERATION,
            provider,
        })
    }

    /// Lists the user's repositories: a page of one provider, or up to a thousand of each.
    ///
    /// # Errors
    /// See [`GitError`].
    pub async fn repositories(&self, query: &RepositoryQuery) -> Result<Vec<Repository>, GitError> {
        const OPERATION: &str = "list repositories";
        let sort = query.sort;
        let Some(provider) = query.provider else {
            let list = |service: Arc<Service>| async move { service.all_repositories(sort).await };
            return self.call_all(OPERATION, list).await;
        };
        let page = PageRequest::new(query.page, query.per_page);
        let installation = query.installation_id.as_deref().filter(|id| !id.is_empty());
        let list = |service: Arc<Service>| async move {
            service.repositories(sort, page, installation).await
        };
        Ok(self.call(provider, OPERATION, list).await?.items)
    }

    /// Looks up a repository that a token can see.
    ///
    /// # Errors
    /// See [`GitError`].
    pub async fn repository(
        &self,
        provider: Option<GitProvider>,
        name: &str,
    ) -> Result<Repository, GitError> {
        let look_up = |service: Arc<Service>, _| async move { service.repository(name).await };
        self.call_first(provider, "look up the repository", look_up)
            .await
    }

    /// Returns the owner of the first token that works.
    ///
    /// # Errors
    /// See [`GitError`].
    pub async fn user(&self) -> Result<User, GitError> {
        let look_up = |service: Arc<Service>, _| async move { service.user().await };
        self.call_first(None, "look up the user", look_up).await
    }

    /// Searches the user's repositories by name, or looks up the URL of one.
    ///
    /// # Errors
    /// See [`GitError`].
    pub async fn search_repositories(
        &self,
        query: &SearchQuery,
    ) -> Result<Vec<Repository>, GitError> {
        const OPERATION: &str = "search repositories";
        let search = NameSearch {
            query: query.query.trim(),
            sort: query.sort,
            order: query.order,
            limit: query.per_page.clamp(1, MAX_PAGE_ITEMS),
        };
        let run = |service: Arc<Service>| async move { service.search(search).await };
        match query.provider {
            Some(provider) => self.call(provider, OPERATION, run).await,
            None => self.call_all(OPERATION, run).await,
        }
    }

    /// Lists a page of a repository's branches.
    ///
    /// # Errors
    /// See [`GitError`].
    pub async fn branches(
        &self,
        provider: Option<GitProvider>,
        repository: &str,
        page: u32,
        per_page: u32,
    ) -> Result<BranchPage, GitError> {
        let request = PageRequest::new(page, per_page);
        let list =
            |service: Arc<Service>, _| async move { service.branches(repository, request).await };
        let page = self.call_first(provider, "list branches", list).await?;
        Ok(BranchPage {
            branches: page.items,
            has_next_page: page.has_next,
            current_page: request.number,
            per_page: request.size,
            total_count: page.total,
        })
    }

    /// Lists up to `per_page` branches of a repository whose name contains `query`.
    ///
    /// # Errors
    /// See [`GitError`].
    pub async fn search_branches(
        &self,
        provider: Option<GitProvider>,
        repository: &str,
        query: &str,
        per_page: u32,
    ) -> Result<Vec<Branch>, GitError> {
        let limit = per_page.clamp(1, MAX_PAGE_ITEMS);
        let search = |service: Arc<Service>, _| async move {
            service.search_branches(repository, query, limit).await
        };
        self.call_first(provider, "search branches", search).await
    }

    /// Lists the user's open pull requests that need work, and the open issues that are assigned to
    /// the user.
    ///
    /// # Errors
    /// See [`GitError`].
    pub async fn suggested_tasks(&self) -> Result<Vec<SuggestedTask>, GitError> {
        let list = |service: Arc<Service>| async move { service.suggested_tasks().await };
        self.call_all("list suggested tasks", list).await
    }

    /// Lists the microagents of a repository's default branch.
    ///
    /// # Errors
    /// See [`GitError`].
    pub async fn microagents(
        &self,
        provider: Option<GitProvider>,
        repository: &str,
    ) -> Result<Vec<Microagent>, GitError> {
        let list = |service: Arc<Service>, provider| async move {
            microagents::list(&service, provider, repository).await
        };
        self.call_first(provider, "list microagents", list).await
    }

    /// Returns a microagent's file in the default branch.
    ///
    /// # Errors
    /// See [`GitError`].
    pub async fn microagent_source(
        &self,
        provider: Option<GitProvider>,
        repository: &str,
        path: &str,
    ) -> Result<MicroagentSource, GitError> {
        let read = |service: Arc<Service>, git_provider| async move {
            let text = service.file(repository, path).await?;
            Ok(MicroagentSource {
                path: path.to_owned(),
                text,
                git_provider,
            })
        };
        self.call_first(provider, "read the microagent", read).await
    }

    /// Calls one provider, with the time limit of a call.
    ///
    /// `call` owns the service: a future that borrows an argument of its closure is not provably
    /// `Send`.
    async fn call<T, F: Future<Output = Result<T, RequestError>>>(
        &self,
        provider: GitProvider,
        operation: &'static str,
        call: impl FnOnce(Arc<Service>) -> F,
    ) -> Result<T, GitError> {
        let token = self
            .tokens
            .get(&provider)
            .ok_or(GitError::NoToken(provider))?;
        let failed = |source| GitError::Request {
            operation,
            provider,
            source,
        };
        let service = Service::new(&self.client, provider, token)
            .map_err(failed)?
            .ok_or(GitError::Unsupported {
                operation,
                provider,
            })?;
        let limit = self.client.shared.limits.call_timeout;
        let span = tracing::info_span!("git_call", %provider, operation);
        tokio::time::timeout(limit, call(Arc::new(service)).instrument(span))
            .await
            .unwrap_or(Err(RequestError::TimedOut { limit }))
            .map_err(failed)
    }

    /// Calls all providers concurrently, and combines their lists.
    async fn call_all<T, F: Future<Output = Result<Vec<T>, RequestError>>>(
        &self,
        operation: &'static str,
        call: impl Fn(Arc<Service>) -> F,
    ) -> Result<Vec<T>, GitError> {
        let calls = self
            .tokens
            .keys()
            .map(|provider| self.call(*provider, operation, &call));
        let (mut items, mut error, mut has_success) = (Vec::new(), None, false);
        for result in join_all(calls).await {
            match result {
                Ok(found) => {
                    has_success = true;
                    items.extend(found);
                }
                Err(failed) => {
                    log_failure(&failed);
                    error.get_or_insert(failed);
                }
            }
        }
        if has_success {
            Ok(items)
        } else {
            Err(error.unwrap_or(GitError::NoTokens))
        }
    }

    /// Calls the given provider, or else one after the other until one succeeds. Returns the first
    /// error if none does.
    async fn call_first<T, F: Future<Output = Result<T, RequestError>>>(
        &self,
        provider: Option<GitProvider>,
        operation: &'static str,
        call: impl Fn(Arc<Service>, GitProvider) -> F,
    ) -> Result<T, GitError> {
        if let Some(provider) = provider {
            return self
                .call(provider, operation, |service| call(service, provider))
                .await;
        }
        let mut error = None;
        for provider in self.tokens.keys().copied() {
            match self
                .call(provider, operation, |service| call(service, provider))
                .await
            {
                Ok(found) => return Ok(found),
                Err(failed) => {
                    log_failure(&failed);
                    error.get_or_insert(failed);
                }
            }
        }
        Err(error.unwrap_or(GitError::NoTokens))
    }
}

fn log_failure(error: &GitError) {
    tracing::warn!(%error, cause = std::error::Error::source(error), "a git provider failed");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The server's handlers run on any thread. Never called: that it compiles is the test.
    #[expect(dead_code, reason = "checked by the compiler")]
    fn calls_can_be_awaited_on_any_thread(providers: &GitProviders) {
        fn assert_send<T: Send>(_: T) {}
        let github = GitProvider::GitHub;
        assert_send(providers.check_tokens());
        assert_send(providers.installations(github));
        assert_send(providers.repositories(&RepositoryQuery::default()));
        assert_send(providers.repository(None, "a/b"));
        assert_send(providers.user());
        assert_send(providers.search_repositories(&SearchQuery::default()));
        assert_send(providers.branches(None, "a/b", 1, 30));
        assert_send(providers.search_branches(None, "a/b", "q", 30));
        assert_send(providers.suggested_tasks());
        assert_send(providers.microagents(None, "a/b"));
        assert_send(providers.microagent_source(None, "a/b", "c.md"));
    }
}

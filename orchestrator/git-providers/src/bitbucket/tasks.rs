//! The user's open pull requests.

use protocol::client_api::git::{GitProvider, SuggestedTask, TaskType};
use reqwest::Url;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::repositories::MAX_WORKSPACES;
use super::{Bitbucket, Values};
use crate::concurrently::concurrently;
use crate::error::RequestError;
use crate::names::owner_and_name;
use crate::service::MAX_INSPECTED_PULL_REQUESTS;

#[derive(Deserialize)]
struct PullRequest {
    id: u64,
    title: String,
    destination: Destination,
}

#[derive(Deserialize)]
struct Destination {
    repository: RepositoryName,
}

#[derive(Deserialize)]
struct RepositoryName {
    full_name: String,
}

#[derive(Deserialize)]
struct Change {
    status: String,
}

#[derive(Deserialize)]
struct CommitStatus {
    state: String,
}

#[derive(Deserialize)]
struct Comment {
    #[serde(default)]
    deleted: bool,
    /// Where it is in the change. `None` for a comment on the whole, which cannot be resolved.
    inline: Option<IgnoredAny>,
    /// `None` if it is unresolved.
    resolution: Option<IgnoredAny>,
    /// The comment that it replies to.
    parent: Option<IgnoredAny>,
}

impl Bitbucket {
    pub(crate) async fn suggested_tasks(&self) -> Result<Vec<SuggestedTask>, RequestError> {
        let user = self.account().await?.uuid;
        let workspaces = self.workspaces().await?.into_iter().take(MAX_WORKSPACES);
        let lists = workspaces.map(|workspace| self.open_pull_requests(workspace, &user));
        let inspected = concurrently(lists)
            .await?
            .into_iter()
            .flatten()
            .take(MAX_INSPECTED_PULL_REQUESTS);
        let tasks = concurrently(inspected.map(|pull_request| self.inspect(pull_request))).await?;
        Ok(tasks.into_iter().flatten().collect())
    }

    async fn open_pull_requests(
        &self,
        workspace: String,
        user: &str,
    ) -> Result<Vec<PullRequest>, RequestError> {
        let path = ["workspaces", &workspace, "pullrequests", user];
        self.list(
            self.api
                .url(&path, &[("state", "OPEN"), ("pagelen", "50")])?,
        )
        .await
    }

    /// Returns the task of a pull request. `None` if there is nothing to do.
    async fn inspect(
        &self,
        pull_request: PullRequest,
    ) -> Result<Option<SuggestedTask>, RequestError> {
        let task_type = if self.has_conflicts(&pull_request).await? {
            TaskType::MergeConflicts
        } else if self.has_failed_statuses(&pull_request).await? {
            TaskType::FailingChecks
        } else if self.has_unresolved_comments(&pull_request).await? {
            TaskType::UnresolvedComments
        } else {
            return Ok(None);
        };
        Ok(Some(SuggestedTask {
            git_provider: GitProvider::Bitbucket,
            task_type,
            repo: pull_request.destination.repository.full_name,
            issue_number: pull_request.id,
            title: pull_request.title,
        }))
    }

    async fn has_conflicts(&self, pull_request: &PullRequest) -> Result<bool, RequestError> {
        let changes: Vec<Change> = self.list(self.url_below(pull_request, "diffstat")?).await?;
        let is_conflict = |change: &Change| {
            change.status.ends_with("conflict")
                || matches!(&*change.status, "local deleted" | "remote deleted")
        };
        Ok(changes.iter().any(is_conflict))
    }

    async fn has_failed_statuses(&self, pull_request: &PullRequest) -> Result<bool, RequestError> {
        let statuses: Values<CommitStatus> = self
            .api
            .get(self.url_below(pull_request, "statuses")?)
            .await?;
        Ok(statuses
            .values
            .iter()
            .any(|status| status.state == "FAILED"))
    }

    async fn has_unresolved_comments(
        &self,
        pull_request: &PullRequest,
    ) -> Result<bool, RequestError> {
        let comments: Vec<Comment> = self.list(self.url_below(pull_request, "comments")?).await?;
        Ok(comments.iter().any(Comment::is_unresolved))
    }

    fn url_below(&self, pull_request: &PullRequest, list: &str) -> Result<Url, RequestError> {
        let (workspace, slug) = owner_and_name(&pull_request.destination.repository.full_name)?;
        let id = pull_request.id.to_string();
        let path = ["repositories", workspace, slug, "pullrequests", &id, list];
        self.api.url(&path, &[("pagelen", "100")])
    }
}

impl Comment {
    fn is_unresolved(&self) -> bool {
        let starts_thread = self.inline.is_some() && self.parent.is_none();
        starts_thread && !self.deleted && self.resolution.is_none()
    }
}

//! The user's open pull requests and issues.

use protocol::client_api::git::{GitProvider, SuggestedTask, TaskType};
use serde::Deserialize;
use serde_json::{Value, json};

use super::GitHub;
use crate::error::RequestError;
use crate::http::Decoded;
use crate::paging::{Page, collect_pages, has_next_link};

/// With REST, each pull request would need three requests.
const PULL_REQUESTS: &str = "
query {
  viewer {
    pullRequests(first: 100, states: [OPEN], orderBy: { field: UPDATED_AT, direction: DESC }) {
      nodes {
        number title mergeable reviewDecision
        repository { nameWithOwner }
        commits(last: 1) { nodes { commit { statusCheckRollup { state } } } }
        reviewThreads(first: 50) { nodes { isResolved } }
      }
    }
  }
}";

#[derive(Deserialize)]
struct Data {
    viewer: Viewer,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Viewer {
    pull_requests: Nodes<PullRequest>,
}

/// A list. Its elements are null if the token cannot see them.
#[derive(Deserialize)]
struct Nodes<T> {
    nodes: Vec<Option<T>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PullRequest {
    number: u64,
    title: String,
    mergeable: Option<String>,
    review_decision: Option<String>,
    repository: RepositoryName,
    commits: Option<Nodes<CommitNode>>,
    review_threads: Option<Nodes<ReviewThread>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RepositoryName {
    name_with_owner: String,
}

#[derive(Deserialize)]
struct CommitNode {
    commit: Commit,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Commit {
    status_check_rollup: Option<Rollup>,
}

#[derive(Deserialize)]
struct Rollup {
    state: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReviewThread {
    is_resolved: bool,
}

#[derive(Deserialize)]
struct Issue {
    number: u64,
    title: String,
    repository: IssueRepository,
    /// Pull requests are issues with this field.
    pull_request: Option<Value>,
}

#[derive(Deserialize)]
struct IssueRepository {
    full_name: String,
}

impl GitHub {
    pub(crate) async fn suggested_tasks(&self) -> Result<Vec<SuggestedTask>, RequestError> {
        let data: Data = self.query(PULL_REQUESTS, json!({})).await?;
        let pull_requests = data.viewer.pull_requests.nodes.into_iter().flatten();
        let mut tasks: Vec<_> = pull_requests.filter_map(PullRequest::into_task).collect();
        let issues = self.assigned_issues().await?.into_iter();
        tasks.extend(
            issues
                .filter(|issue| issue.pull_request.is_none())
                .map(|issue| SuggestedTask {
                    git_provider: GitProvider::GitHub,
                    task_type: TaskType::OpenIssue,
                    repo: issue.repository.full_name,
                    issue_number: issue.number,
                    title: issue.title,
                }),
        );
        Ok(tasks)
    }

    async fn assigned_issues(&self) -> Result<Vec<Issue>, RequestError> {
        collect_pages(|page| async move {
            let (number, size) = (page.number.to_string(), page.size.to_string());
            let query = [
                ("filter", "assigned"),
                ("state", "open"),
                ("page", &number),
                ("per_page", &size),
            ];
            let url = self.api.url(&["issues"], &query)?;
            let Decoded { body, headers } = self.api.get_with_headers(url).await?;
            Ok(Page {
                items: body,
                has_next: has_next_link(&headers),
                total: None,
            })
        })
        .await
    }
}

impl PullRequest {
    /// `None` if there is nothing to do.
    fn into_task(self) -> Option<SuggestedTask> {
        Some(SuggestedTask {
            git_provider: GitProvider::GitHub,
            task_type: self.task_type()?,
            issue_number: self.number,
            title: self.title,
            repo: self.repository.name_with_owner,
        })
    }

    fn task_type(&self) -> Option<TaskType> {
        if self.mergeable.as_deref() == Some("CONFLICTING") {
            Some(TaskType::MergeConflicts)
        } else if self.has_failing_checks() {
            Some(TaskType::FailingChecks)
        } else if self.has_unresolved_comments() {
            Some(TaskType::UnresolvedComments)
        } else {
            None
        }
    }

    fn has_failing_checks(&self) -> bool {
        let commits = self
            .commits
            .iter()
            .flat_map(|commits| commits.nodes.iter().flatten());
        let mut rollups = commits.filter_map(|node| node.commit.status_check_rollup.as_ref());
        rollups.any(|rollup| matches!(rollup.state.as_str(), "FAILURE" | "ERROR"))
    }

    fn has_unresolved_comments(&self) -> bool {
        let mut threads = self
            .review_threads
            .iter()
            .flat_map(|threads| threads.nodes.iter().flatten());
        self.review_decision.as_deref() == Some("CHANGES_REQUESTED")
            || threads.any(|thread| !thread.is_resolved)
    }
}

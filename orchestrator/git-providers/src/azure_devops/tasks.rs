//! The user's active pull requests and open work items.

use protocol::client_api::git::{GitProvider, SuggestedTask, TaskType};
use serde::Deserialize;
use serde_json::json;

use super::{AzureDevOps, RepositoryName, VERSION, Values};
use crate::concurrently::concurrently;
use crate::error::RequestError;
use crate::http::Decoded;
use crate::service::MAX_INSPECTED_PULL_REQUESTS;

/// Maximum number of projects whose pull requests are listed.
const MAX_PROJECTS: usize = 50;

/// Maximum number of work items; also the API's limit of a batch is 200.
const MAX_WORK_ITEMS: usize = 100;

/// The states of finished work in the processes that Azure DevOps comes with.
const WORK_ITEMS: &str = "SELECT [System.Id] FROM WorkItems WHERE [System.AssignedTo] = @Me \
    AND [System.State] NOT IN ('Closed', 'Done', 'Removed', 'Resolved') ORDER BY [System.ChangedDate] DESC";

#[derive(Deserialize)]
struct Project {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PullRequest {
    pull_request_id: u64,
    title: String,
    merge_status: Option<String>,
    repository: Repository,
}

#[derive(Deserialize)]
struct Repository {
    name: String,
    project: Project,
}

#[derive(Deserialize)]
struct PullRequestStatus {
    state: Option<String>,
    context: Option<StatusContext>,
}

#[derive(Deserialize, PartialEq)]
struct StatusContext {
    name: Option<String>,
    genre: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Thread {
    /// `None` for what the system reports.
    status: Option<String>,
    #[serde(default)]
    is_deleted: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct QueryResult {
    work_items: Vec<WorkItemReference>,
}

#[derive(Deserialize)]
struct WorkItemReference {
    id: u64,
}

#[derive(Deserialize)]
struct WorkItem {
    id: u64,
    fields: Fields,
}

#[derive(Deserialize)]
struct Fields {
    #[serde(rename = "System.Title")]
    title: String,
    #[serde(rename = "System.TeamProject")]
    project: String,
}

impl AzureDevOps {
    pub(crate) async fn suggested_tasks(&self) -> Result<Vec<SuggestedTask>, RequestError> {
        let user = self.profile().await?.id;
        let url = self.api.url(
            &[&self.organization, "_apis", "projects"],
            &[("$top", "100"), VERSION],
        )?;
        let projects: Values<Project> = self.api.get(url).await?;
        let projects = projects.value.into_iter().take(MAX_PROJECTS);
        let lists = projects.map(|project| self.active_pull_requests(project.name, &user));
        let inspected = concurrently(lists)
            .await?
            .into_iter()
            .flatten()
            .take(MAX_INSPECTED_PULL_REQUESTS);
        let tasks = concurrently(inspected.map(|pull_request| self.inspect(pull_request))).await?;
        Ok(tasks
            .into_iter()
            .flatten()
            .chain(self.assigned_work_items().await?)
            .collect())
    }

    async fn active_pull_requests(
        &self,
        project: String,
        user: &str,
    ) -> Result<Vec<PullRequest>, RequestError> {
        let query = [
            ("searchCriteria.creatorId", user),
            ("searchCriteria.status", "active"),
            ("$top", "100"),
            VERSION,
        ];
        let url = self.api.url(
            &[&self.organization, &project, "_apis", "git", "pullrequests"],
            &query,
        )?;
        let found: Values<PullRequest> = self.api.get(url).await?;
        Ok(found.value)
    }

    /// Returns the task of a pull request. `None` if there is nothing to do.
    async fn inspect(
        &self,
        pull_request: PullRequest,
    ) -> Result<Option<SuggestedTask>, RequestError> {
        let task_type = if pull_request.merge_status.as_deref() == Some("conflicts") {
            TaskType::MergeConflicts
        } else if self.has_failed_statuses(&pull_request).await? {
            TaskType::FailingChecks
        } else if self.has_active_threads(&pull_request).await? {
            TaskType::UnresolvedComments
        } else {
            return Ok(None);
        };
        let Repository { name, project } = pull_request.repository;
        Ok(Some(SuggestedTask {
            git_provider: GitProvider::AzureDevOps,
            task_type,
            repo: format!("{}/{}/{name}", self.organization, project.name),
            issue_number: pull_request.pull_request_id,
            title: pull_request.title,
        }))
    }

    async fn has_failed_statuses(&self, pull_request: &PullRequest) -> Result<bool, RequestError> {
        let statuses: Vec<PullRequestStatus> = self.list_below(pull_request, "statuses").await?;
        Ok(statuses.iter().enumerate().any(|(index, status)| {
            // The list is in the order of creation. The last status of a context counts.
            let is_replaced = statuses
                .iter()
                .skip(index + 1)
                .any(|later| later.context == status.context);
            !is_replaced && matches!(status.state.as_deref(), Some("failed" | "error"))
        }))
    }

    async fn has_active_threads(&self, pull_request: &PullRequest) -> Result<bool, RequestError> {
        let threads: Vec<Thread> = self.list_below(pull_request, "threads").await?;
        let is_active =
            |thread: &Thread| matches!(thread.status.as_deref(), Some("active" | "pending"));
        Ok(threads
            .iter()
            .any(|thread| is_active(thread) && !thread.is_deleted))
    }

    async fn list_below<T: serde::de::DeserializeOwned>(
        &self,
        pull_request: &PullRequest,
        list: &str,
    ) -> Result<Vec<T>, RequestError> {
        let name = RepositoryName {
            organization: &self.organization,
            project: &pull_request.repository.project.name,
            name: &pull_request.repository.name,
        };
        let id = pull_request.pull_request_id.to_string();
        let found: Values<T> = self
            .api
            .get(self.repository_url(&name, &["pullRequests", &id, list], &[])?)
            .await?;
        Ok(found.value)
    }

    async fn assigned_work_items(&self) -> Result<Vec<SuggestedTask>, RequestError> {
        let top = MAX_WORK_ITEMS.to_string();
        let url = self.api.url(
            &[&self.organization, "_apis", "wit", "wiql"],
            &[("$top", &top), VERSION],
        )?;
        let found: Decoded<QueryResult> =
            self.api.post(url, &json!({ "query": WORK_ITEMS })).await?;
        let ids = found
            .body
            .work_items
            .iter()
            .take(MAX_WORK_ITEMS)
            .map(|item| item.id.to_string());
        let ids = ids.collect::<Vec<_>>().join(",");
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let query = [
            ("ids", ids.as_str()),
            ("fields", "System.Title,System.TeamProject"),
            VERSION,
        ];
        let url = self
            .api
            .url(&[&self.organization, "_apis", "wit", "workitems"], &query)?;
        let items: Values<WorkItem> = self.api.get(url).await?;
        Ok(items
            .value
            .into_iter()
            .map(|item| self.work_item_task(item))
            .collect())
    }

    fn work_item_task(&self, item: WorkItem) -> SuggestedTask {
        SuggestedTask {
            git_provider: GitProvider::AzureDevOps,
            task_type: TaskType::OpenIssue,
            repo: format!("{}/{}", self.organization, item.fields.project),
            issue_number: item.id,
            title: item.fields.title,
        }
    }
}

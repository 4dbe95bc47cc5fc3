//! The user's open merge requests and issues.

use protocol::client_api::git::{GitProvider, SuggestedTask, TaskType};
use serde::Deserialize;

use super::GitLab;
use crate::concurrently::concurrently;
use crate::error::RequestError;
use crate::http::Decoded;
use crate::paging::PageRequest;
use crate::service::MAX_INSPECTED_PULL_REQUESTS;

/// A merge request or an issue.
#[derive(Deserialize)]
struct Item {
    iid: u64,
    project_id: u64,
    title: String,
    references: References,
    #[serde(default)]
    has_conflicts: bool,
}

#[derive(Deserialize)]
struct References {
    /// `group/project!1` or `group/project#1`.
    full: String,
}

#[derive(Deserialize)]
struct MergeRequest {
    head_pipeline: Option<Pipeline>,
}

#[derive(Deserialize)]
struct Pipeline {
    status: String,
}

#[derive(Deserialize)]
struct Discussion {
    notes: Vec<Note>,
}

#[derive(Deserialize)]
struct Note {
    #[serde(default)]
    resolvable: bool,
    #[serde(default)]
    resolved: bool,
}

impl GitLab {
    pub(crate) async fn suggested_tasks(&self) -> Result<Vec<SuggestedTask>, RequestError> {
        let query = [
            ("scope", "created_by_me"),
            ("state", "opened"),
            ("order_by", "updated_at"),
        ];
        let largest = PageRequest::first();
        let merge_requests: Decoded<Vec<Item>> =
            self.page(&["merge_requests"], &query, largest).await?;
        let inspected = merge_requests
            .body
            .into_iter()
            .take(MAX_INSPECTED_PULL_REQUESTS);
        let tasks = concurrently(inspected.map(|item| self.inspect(item))).await?;
        let query = [("scope", "assigned_to_me"), ("state", "opened")];
        let issues: Vec<Item> = self.list(&["issues"], &query).await?;
        let issues = issues
            .into_iter()
            .map(|issue| issue.into_task(TaskType::OpenIssue));
        Ok(tasks.into_iter().flatten().chain(issues).collect())
    }

    /// Returns the task of a merge request. `None` if there is nothing to do.
    async fn inspect(&self, item: Item) -> Result<Option<SuggestedTask>, RequestError> {
        let task_type = if item.has_conflicts {
            TaskType::MergeConflicts
        } else if self.has_failed_pipeline(&item).await? {
            TaskType::FailingChecks
        } else if self.has_unresolved_discussions(&item).await? {
            TaskType::UnresolvedComments
        } else {
            return Ok(None);
        };
        Ok(Some(item.into_task(task_type)))
    }

    async fn has_failed_pipeline(&self, item: &Item) -> Result<bool, RequestError> {
        let (project, iid) = (item.project_id.to_string(), item.iid.to_string());
        let url = self
            .api
            .url(&["projects", &project, "merge_requests", &iid], &[])?;
        let merge_request: MergeRequest = self.api.get(url).await?;
        Ok(merge_request
            .head_pipeline
            .is_some_and(|pipeline| pipeline.status == "failed"))
    }

    async fn has_unresolved_discussions(&self, item: &Item) -> Result<bool, RequestError> {
        let (project, iid) = (item.project_id.to_string(), item.iid.to_string());
        let path = ["projects", &project, "merge_requests", &iid, "discussions"];
        let discussions: Vec<Discussion> = self.list(&path, &[]).await?;
        let mut notes = discussions.iter().flat_map(|discussion| &discussion.notes);
        Ok(notes.any(|note| note.resolvable && !note.resolved))
    }
}

impl Item {
    fn into_task(self, task_type: TaskType) -> SuggestedTask {
        let repo = self
            .references
            .full
            .split(['!', '#'])
            .next()
            .unwrap_or_default()
            .to_owned();
        SuggestedTask {
            git_provider: GitProvider::GitLab,
            task_type,
            repo,
            issue_number: self.iid,
            title: self.title,
        }
    }
}

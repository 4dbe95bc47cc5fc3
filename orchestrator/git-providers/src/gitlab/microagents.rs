//! Files of a repository.

use serde::Deserialize;

use super::{GitLab, project_id};
use crate::error::RequestError;
use crate::http::Decoded;
use crate::names::file_segments;
use crate::paging::PageRequest;

#[derive(Deserialize)]
struct Entry {
    path: String,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Commit {
    committed_date: Option<String>,
}

impl GitLab {
    pub(crate) async fn files_in(
        &self,
        repository: &str,
        folder: &str,
    ) -> Result<Vec<String>, RequestError> {
        let path = ["projects", project_id(repository)?, "repository", "tree"];
        let entries: Vec<Entry> = self
            .list(&path, &[("path", folder), ("recursive", "true")])
            .await?;
        Ok(entries
            .into_iter()
            .filter(|entry| entry.kind == "blob")
            .map(|entry| entry.path)
            .collect())
    }

    pub(crate) async fn file(&self, repository: &str, path: &str) -> Result<String, RequestError> {
        file_segments(path)?;
        let segments = [
            "projects",
            project_id(repository)?,
            "repository",
            "files",
            path,
            "raw",
        ];
        self.api
            .get_text(self.api.url(&segments, &[("ref", "HEAD")])?, "*/*")
            .await
    }

    pub(crate) async fn oldest_commit_date(
        &self,
        repository: &str,
        path: &str,
    ) -> Result<Option<String>, RequestError> {
        let segments = ["projects", project_id(repository)?, "repository", "commits"];
        let commits: Decoded<Vec<Commit>> = self
            .page(&segments, &[("path", path)], PageRequest::first())
            .await?;
        Ok(commits
            .body
            .into_iter()
            .next_back()
            .and_then(|commit| commit.committed_date))
    }
}

//! Files of a repository.

use serde::Deserialize;

use super::{Bitbucket, Values};
use crate::error::RequestError;
use crate::names::{file_segments, owner_and_name};

/// Maximum depth of folders below that of microagents.
const MAX_DEPTH: &str = "5";

#[derive(Deserialize)]
struct Entry {
    path: String,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Commit {
    date: Option<String>,
}

impl Bitbucket {
    pub(crate) async fn files_in(
        &self,
        repository: &str,
        folder: &str,
    ) -> Result<Vec<String>, RequestError> {
        let head = self.head(repository).await?;
        let query = [("pagelen", "100"), ("max_depth", MAX_DEPTH)];
        let mut url = self
            .api
            .url(&source_path(repository, &head, folder)?, &query)?;
        url.set_path(&format!("{}/", url.path())); // without it, the response is a redirect
        let entries: Vec<Entry> = self.list(url).await?;
        Ok(entries
            .into_iter()
            .filter(|entry| entry.kind == "commit_file")
            .map(|entry| entry.path)
            .collect())
    }

    pub(crate) async fn file(&self, repository: &str, path: &str) -> Result<String, RequestError> {
        file_segments(path)?;
        let head = self.head(repository).await?;
        let url = self.api.url(&source_path(repository, &head, path)?, &[])?;
        self.api.get_text(url, "*/*").await
    }

    pub(crate) async fn oldest_commit_date(
        &self,
        repository: &str,
        path: &str,
    ) -> Result<Option<String>, RequestError> {
        let (workspace, slug) = owner_and_name(repository)?;
        let query = [("path", path), ("pagelen", "100")];
        let url = self
            .api
            .url(&["repositories", workspace, slug, "commits"], &query)?;
        let commits: Values<Commit> = self.api.get(url).await?;
        Ok(commits
            .values
            .into_iter()
            .next_back()
            .and_then(|commit| commit.date))
    }
}

fn source_path<'a>(
    repository: &'a str,
    commit: &'a str,
    path: &'a str,
) -> Result<Vec<&'a str>, RequestError> {
    let (workspace, slug) = owner_and_name(repository)?;
    Ok([
        vec!["repositories", workspace, slug, "src", commit],
        file_segments(path)?,
    ]
    .concat())
}

//! Files of a repository.

use serde::Deserialize;

use super::{AzureDevOps, Values};
use crate::error::RequestError;
use crate::names::file_segments;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    path: String,
    #[serde(default)]
    is_folder: bool,
}

#[derive(Deserialize)]
struct Commit {
    author: Option<Signature>,
}

#[derive(Deserialize)]
struct Signature {
    date: Option<String>,
}

impl AzureDevOps {
    pub(crate) async fn files_in(
        &self,
        repository: &str,
        folder: &str,
    ) -> Result<Vec<String>, RequestError> {
        let folder = absolute(folder)?;
        let query = [("scopePath", folder.as_str()), ("recursionLevel", "full")];
        let url = self.repository_url(&self.split(repository)?, &["items"], &query)?;
        let items: Values<Item> = self.api.get(url).await?;
        let files = items.value.into_iter().filter(|item| !item.is_folder);
        Ok(files
            .map(|item| item.path.trim_start_matches('/').to_owned())
            .collect())
    }

    pub(crate) async fn file(&self, repository: &str, path: &str) -> Result<String, RequestError> {
        let path = absolute(path)?;
        let query = [("path", path.as_str()), ("$format", "text")];
        let url = self.repository_url(&self.split(repository)?, &["items"], &query)?;
        self.api.get_text(url, "text/plain").await
    }

    pub(crate) async fn oldest_commit_date(
        &self,
        repository: &str,
        path: &str,
    ) -> Result<Option<String>, RequestError> {
        let path = absolute(path)?;
        let query = [
            ("searchCriteria.itemPath", path.as_str()),
            ("searchCriteria.$top", "100"),
        ];
        let url = self.repository_url(&self.split(repository)?, &["commits"], &query)?;
        let commits: Values<Commit> = self.api.get(url).await?;
        Ok(commits
            .value
            .into_iter()
            .next_back()
            .and_then(|commit| commit.author?.date))
    }
}

/// Returns the path as the API has it.
fn absolute(path: &str) -> Result<String, RequestError> {
    file_segments(path)?;
    Ok(format!("/{path}"))
}

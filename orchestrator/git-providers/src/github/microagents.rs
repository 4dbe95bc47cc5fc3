//! Files of a repository.

use serde::Deserialize;

use super::GitHub;
use crate::error::RequestError;
use crate::names::{file_segments, owner_and_name};

/// Maximum number of folders that are listed, each with a request.
const MAX_FOLDERS: usize = 20;

#[derive(Deserialize)]
struct Entry {
    path: String,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct CommitEntry {
    commit: Commit,
}

#[derive(Deserialize)]
struct Commit {
    author: Option<Signature>,
}

#[derive(Deserialize)]
struct Signature {
    date: Option<String>,
}

impl GitHub {
    pub(crate) async fn files_in(
        &self,
        repository: &str,
        folder: &str,
    ) -> Result<Vec<String>, RequestError> {
        let mut folders = vec![folder.to_owned()];
        let (mut files, mut listed) = (Vec::new(), 0);
        while let Some(folder) = folders.pop() {
            listed += 1;
            for entry in self.entries(repository, &folder).await? {
                match entry.kind.as_str() {
                    "file" => files.push(entry.path),
                    "dir" if listed + folders.len() < MAX_FOLDERS => folders.push(entry.path),
                    _ => {}
                }
            }
        }
        Ok(files)
    }

    pub(crate) async fn file(&self, repository: &str, path: &str) -> Result<String, RequestError> {
        let url = self.api.url(&contents_path(repository, path)?, &[])?;
        self.api
            .get_text(url, "application/vnd.github.raw+json")
            .await
    }

    pub(crate) async fn oldest_commit_date(
        &self,
        repository: &str,
        path: &str,
    ) -> Result<Option<String>, RequestError> {
        let (owner, name) = owner_and_name(repository)?;
        let query = [("path", path), ("per_page", "100")];
        let url = self.api.url(&["repos", owner, name, "commits"], &query)?;
        let commits: Vec<CommitEntry> = self.api.get(url).await?;
        Ok(commits
            .into_iter()
            .next_back()
            .and_then(|entry| entry.commit.author?.date))
    }

    async fn entries(&self, repository: &str, folder: &str) -> Result<Vec<Entry>, RequestError> {
        self.api
            .get(self.api.url(&contents_path(repository, folder)?, &[])?)
            .await
    }
}

fn contents_path<'a>(repository: &'a str, path: &'a str) -> Result<Vec<&'a str>, RequestError> {
    let (owner, name) = owner_and_name(repository)?;
    Ok([vec!["repos", owner, name, "contents"], file_segments(path)?].concat())
}

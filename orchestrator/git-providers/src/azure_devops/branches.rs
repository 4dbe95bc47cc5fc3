//! Branches. The API continues a list with a token instead of a page number.

use protocol::client_api::git::Branch;
use serde::Deserialize;

use super::{AzureDevOps, Values};
use crate::error::RequestError;
use crate::http::Decoded;
use crate::paging::{MAX_PAGES, Page, PageRequest};

const CONTINUATION_HEADER: &str = "x-ms-continuationtoken";

/// Number of branches in a response.
const BATCH: &str = "1000";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Ref {
    name: String,
    object_id: String,
    #[serde(default)]
    is_locked: bool,
}

impl AzureDevOps {
    pub(crate) async fn branches(
        &self,
        repository: &str,
        page: PageRequest,
    ) -> Result<Page<Branch>, RequestError> {
        Ok(page.slice(
            self.all_branches(repository, &[("filter", "heads/")])
                .await?,
        ))
    }

    pub(crate) async fn search_branches(
        &self,
        repository: &str,
        query: &str,
        limit: u32,
    ) -> Result<Vec<Branch>, RequestError> {
        let filter = [("filter", "heads/"), ("filterContains", query)];
        let mut branches = self.all_branches(repository, &filter).await?;
        branches.truncate(limit as usize);
        Ok(branches)
    }

    async fn all_branches(
        &self,
        repository: &str,
        filter: &[(&str, &str)],
    ) -> Result<Vec<Branch>, RequestError> {
        let name = self.split(repository)?;
        let (mut branches, mut continuation) = (Vec::new(), String::new());
        for _ in 0..MAX_PAGES {
            let mut query = [filter, &[("$top", BATCH)]].concat();
            if !continuation.is_empty() {
                query.push(("continuationToken", &continuation));
            }
            let url = self.repository_url(&name, &["refs"], &query)?;
            let Decoded { body, headers }: Decoded<Values<Ref>> =
                self.api.get_with_headers(url).await?;
            branches.extend(body.value.into_iter().map(Ref::into_branch));
            let next = headers
                .get(CONTINUATION_HEADER)
                .and_then(|value| value.to_str().ok());
            match next {
                Some(next) if !next.is_empty() => continuation = next.to_owned(),
                _ => break,
            }
        }
        Ok(branches)
    }
}

impl Ref {
    fn into_branch(self) -> Branch {
        Branch {
            name: self
                .name
                .strip_prefix("refs/heads/")
                .unwrap_or(&self.name)
                .to_owned(),
            commit_sha: self.object_id,
            protected: self.is_locked,
            last_push_date: None,
        }
    }
}

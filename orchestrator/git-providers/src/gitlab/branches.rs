//! Branches.

use protocol::client_api::git::Branch;
use serde::Deserialize;

use super::{GitLab, project_id};
use crate::error::RequestError;
use crate::http::Decoded;
use crate::paging::{Page, PageRequest, has_next_link};

#[derive(Deserialize)]
struct BranchJson {
    name: String,
    commit: Commit,
    #[serde(default)]
    protected: bool,
}

#[derive(Deserialize)]
struct Commit {
    id: String,
    committed_date: Option<String>,
}

impl GitLab {
    pub(crate) async fn branches(
        &self,
        repository: &str,
        page: PageRequest,
    ) -> Result<Page<Branch>, RequestError> {
        self.branch_page(repository, &[], page).await
    }

    pub(crate) async fn search_branches(
        &self,
        repository: &str,
        query: &str,
        limit: u32,
    ) -> Result<Vec<Branch>, RequestError> {
        let page = PageRequest::new(1, limit);
        Ok(self
            .branch_page(repository, &[("search", query)], page)
            .await?
            .items)
    }

    async fn branch_page(
        &self,
        repository: &str,
        query: &[(&str, &str)],
        page: PageRequest,
    ) -> Result<Page<Branch>, RequestError> {
        let path = [
            "projects",
            project_id(repository)?,
            "repository",
            "branches",
        ];
        let Decoded { body, headers }: Decoded<Vec<BranchJson>> =
            self.page(&path, query, page).await?;
        let total = headers
            .get("x-total")
            .and_then(|value| value.to_str().ok()?.parse().ok());
        let items = body.into_iter().map(|branch| Branch {
            name: branch.name,
            commit_sha: branch.commit.id,
            protected: branch.protected,
            last_push_date: branch.commit.committed_date,
        });
        Ok(Page {
            items: items.collect(),
            has_next: has_next_link(&headers),
            total,
        })
    }
}

//! Branches.

use protocol::client_api::git::Branch;
use serde::Deserialize;

use super::{Bitbucket, Values, quote};
use crate::error::RequestError;
use crate::names::owner_and_name;
use crate::paging::{Page, PageRequest};

#[derive(Deserialize)]
struct BranchJson {
    name: String,
    target: Target,
}

#[derive(Deserialize)]
struct Target {
    hash: String,
    date: Option<String>,
}

impl Bitbucket {
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
        let filter = format!("name ~ {}", quote(query));
        Ok(self
            .branch_page(repository, &[("q", &filter)], PageRequest::new(1, limit))
            .await?
            .items)
    }

    async fn branch_page(
        &self,
        repository: &str,
        query: &[(&str, &str)],
        page: PageRequest,
    ) -> Result<Page<Branch>, RequestError> {
        let (workspace, slug) = owner_and_name(repository)?;
        let (number, size) = (page.number.to_string(), page.size.to_string());
        let page_query = [
            ("page", number.as_str()),
            ("pagelen", &size),
            ("sort", "-target.date"),
        ];
        let query = [query, &page_query].concat();
        let url = self.api.url(
            &["repositories", workspace, slug, "refs", "branches"],
            &query,
        )?;
        let found: Values<BranchJson> = self.api.get(url).await?;
        let has_next = found.next.is_some();
        let items = found
            .values
            .into_iter()
            .map(BranchJson::into_branch)
            .collect();
        Ok(Page {
            items,
            has_next,
            total: found.size,
        })
    }

    /// Returns the latest commit of the default branch. [`RequestError::NotFound`] for an empty
    /// repository.
    pub(super) async fn head(&self, repository: &str) -> Result<String, RequestError> {
        let (workspace, slug) = owner_and_name(repository)?;
        let main = self
            .repository_json(repository)
            .await?
            .mainbranch
            .ok_or(RequestError::NotFound)?;
        let parts = ["repositories", workspace, slug, "refs", "branches"];
        // The name of a branch contains `/`, which is no part of a segment in this API.
        let path: Vec<&str> = parts.into_iter().chain(main.name.split('/')).collect();
        let branch: BranchJson = self.api.get(self.api.url(&path, &[])?).await?;
        Ok(branch.target.hash)
    }
}

impl BranchJson {
    fn into_branch(self) -> Branch {
        Branch {
            name: self.name,
            commit_sha: self.target.hash,
            protected: false,
            last_push_date: self.target.date,
        }
    }
}

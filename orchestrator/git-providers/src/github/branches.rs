//! Branches.

use protocol::client_api::git::Branch;
use serde::Deserialize;
use serde_json::{Value, json};

use super::GitHub;
use crate::error::RequestError;
use crate::http::Decoded;
use crate::names::owner_and_name;
use crate::paging::{Page, PageRequest, has_next_link};

/// REST finds branches by prefix only.
const SEARCH: &str = "
query($owner: String!, $name: String!, $query: String!, $first: Int!) {
  repository(owner: $owner, name: $name) {
    refs(refPrefix: \"refs/heads/\", query: $query, first: $first) {
      nodes { name target { oid ... on Commit { committedDate } } branchProtectionRule { id } }
    }
  }
}";

#[derive(Deserialize)]
struct BranchJson {
    name: String,
    commit: Commit,
    #[serde(default)]
    protected: bool,
}

#[derive(Deserialize)]
struct Commit {
    sha: String,
}

#[derive(Deserialize)]
struct SearchResult {
    repository: Option<SearchedRepository>,
}

#[derive(Deserialize)]
struct SearchedRepository {
    refs: Option<Refs>,
}

#[derive(Deserialize)]
struct Refs {
    nodes: Vec<Ref>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Ref {
    name: String,
    target: Target,
    branch_protection_rule: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Target {
    oid: String,
    committed_date: Option<String>,
}

impl GitHub {
    pub(crate) async fn branches(
        &self,
        repository: &str,
        page: PageRequest,
    ) -> Result<Page<Branch>, RequestError> {
        let (owner, name) = owner_and_name(repository)?;
        let (number, size) = (page.number.to_string(), page.size.to_string());
        let query = [("page", number.as_str()), ("per_page", &size)];
        let url = self.api.url(&["repos", owner, name, "branches"], &query)?;
        let Decoded { body, headers }: Decoded<Vec<BranchJson>> =
            self.api.get_with_headers(url).await?;
        let items = body.into_iter().map(|branch| Branch {
            name: branch.name,
            commit_sha: branch.commit.sha,
            protected: branch.protected,
            last_push_date: None,
        });
        Ok(Page {
            items: items.collect(),
            has_next: has_next_link(&headers),
            total: None,
        })
    }

    pub(crate) async fn search_branches(
        &self,
        repository: &str,
        query: &str,
        limit: u32,
    ) -> Result<Vec<Branch>, RequestError> {
        let (owner, name) = owner_and_name(repository)?;
        let variables = json!({ "owner": owner, "name": name, "query": query, "first": limit });
        let result: SearchResult = self.query(SEARCH, variables).await?;
        let repository = result.repository.ok_or(RequestError::NotFound)?;
        let refs = repository.refs.map(|refs| refs.nodes).unwrap_or_default();
        Ok(refs.into_iter().map(Ref::into_branch).collect())
    }
}

impl Ref {
    fn into_branch(self) -> Branch {
        Branch {
            name: self.name,
            commit_sha: self.target.oid,
            protected: self.branch_protection_rule.is_some(),
            last_push_date: self.target.committed_date,
        }
    }
}

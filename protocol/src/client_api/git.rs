//! The JSON of `/api/user/*`: repositories, branches, tasks and microagents of git providers.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A host of git repositories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum GitProvider {
    /// GitHub, or GitHub Enterprise Server.
    #[serde(rename = "github")]
    GitHub,
    /// GitLab.
    #[serde(rename = "gitlab")]
    GitLab,
    /// Bitbucket Cloud.
    Bitbucket,
    /// Azure DevOps.
    #[serde(rename = "azure_devops")]
    AzureDevOps,
    /// Single sign-on of V0's enterprise edition, which has no repositories.
    EnterpriseSso,
}

/// A repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Repository {
    /// The provider's id.
    pub id: String,
    /// `owner/name`; with more parts for groups of GitLab, `organization/project/name` for Azure
    /// DevOps.
    pub full_name: String,
    /// Where it is hosted.
    pub git_provider: GitProvider,
    /// Whether everyone can read it.
    pub is_public: bool,
    /// Number of stars. `None` if the provider has none.
    pub stargazers_count: Option<u64>,
    /// The `Link` header of the page that contains it. Clients look for `rel="next"`. `None` if
    /// there is one page.
    pub link_header: Option<String>,
    /// Time of the last push or activity, in ISO 8601. `None` if the provider does not report it.
    pub pushed_at: Option<String>,
    /// The kind of owner. `None` if the provider does not report it.
    pub owner_type: Option<OwnerType>,
    /// The default branch. `None` for an empty repository.
    pub main_branch: Option<String>,
}

/// The kind of a repository's owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OwnerType {
    /// A person.
    User,
    /// An organization, group or workspace.
    Organization,
}

/// The order of `/repositories`, with GitHub's names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RepositorySort {
    /// Last push first.
    #[default]
    Pushed,
    /// Last update first.
    Updated,
    /// Newest first.
    Created,
    /// By name.
    FullName,
}

/// The key that `/search/repositories` sorts by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SearchSort {
    /// Number of stars.
    #[default]
    Stars,
    /// Number of forks.
    Forks,
    /// Time of the last update.
    Updated,
}

/// The direction of `/search/repositories`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SortOrder {
    /// Smallest first.
    Asc,
    /// Largest first.
    #[default]
    Desc,
}

/// The owner of a token: the response to `/info`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct User {
    /// The provider's id.
    pub id: String,
    /// The account name.
    pub login: String,
    /// URL of the picture; empty if there is none.
    pub avatar_url: String,
    /// The company in the profile.
    pub company: Option<String>,
    /// The displayed name.
    pub name: Option<String>,
    /// The address that is visible to the token.
    pub email: Option<String>,
}

/// A branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Branch {
    /// Its name, without `refs/heads/`.
    pub name: String,
    /// Its latest commit.
    pub commit_sha: String,
    /// Whether the provider restricts pushes. `false` if it does not report that.
    pub protected: bool,
    /// Time of the latest commit, in ISO 8601. `None` if the provider does not report it.
    pub last_push_date: Option<String>,
}

/// A page of branches: the response to `/repository/branches`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BranchPage {
    /// The branches of this page.
    pub branches: Vec<Branch>,
    /// Whether there is another page.
    pub has_next_page: bool,
    /// The number of this page, from 1.
    pub current_page: u32,
    /// Maximum number of branches in a page.
    pub per_page: u32,
    /// Number of branches in all pages. `None` if the provider does not report it.
    pub total_count: Option<u64>,
}

/// Work that an agent can do: an element of the response to `/suggested-tasks`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SuggestedTask {
    /// Where the repository is hosted.
    pub git_provider: GitProvider,
    /// What is to do.
    pub task_type: TaskType,
    /// The full name of the repository. For work items of Azure DevOps, which have none,
    /// `organization/project`.
    pub repo: String,
    /// The number of the issue or pull request.
    pub issue_number: u64,
    /// Its title.
    pub title: String,
}

/// A kind of [`SuggestedTask`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TaskType {
    /// The pull request conflicts with its target.
    MergeConflicts,
    /// Checks of the pull request failed.
    FailingChecks,
    /// Reviewers' comments on the pull request are unresolved.
    UnresolvedComments,
    /// The issue is open and assigned to the user.
    OpenIssue,
    /// The pull request is open.
    OpenPr,
    /// A microagent is to be written.
    CreateMicroagent,
}

/// A microagent in a repository: an element of the response to `/repository/{name}/microagents`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Microagent {
    /// The file name without `.md`.
    pub name: String,
    /// Time of the oldest known commit of the file, in ISO 8601. `None` if the provider reports no
    /// commit.
    pub created_at: Option<String>,
    /// Where the repository is hosted.
    pub git_provider: GitProvider,
    /// The path in the repository.
    pub path: String,
}

/// The response to `/repository/{name}/microagents/content`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MicroagentContent {
    /// The text after the front matter.
    pub content: String,
    /// The path in the repository.
    pub path: String,
    /// The words that activate it, from the front matter.
    #[serde(default)]
    pub triggers: Vec<String>,
    /// Where the repository is hosted.
    pub git_provider: Option<GitProvider>,
}

impl GitProvider {
    /// Returns the name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::GitHub => "github",
            Self::GitLab => "gitlab",
            Self::Bitbucket => "bitbucket",
            Self::AzureDevOps => "azure_devops",
            Self::EnterpriseSso => "enterprise_sso",
        }
    }
}

impl fmt::Display for GitProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn provider_name_is_its_json() {
        use GitProvider::*;
        for provider in [GitHub, GitLab, Bitbucket, AzureDevOps, EnterpriseSso] {
            assert_eq!(json!(provider), json!(provider.as_str()));
            assert_eq!(
                serde_json::from_value::<GitProvider>(json!(provider.as_str())).unwrap(),
                provider
            );
        }
    }

    #[test]
    fn task_has_the_names_of_v0() {
        let task = SuggestedTask {
            git_provider: GitProvider::AzureDevOps,
            task_type: TaskType::OpenPr,
            repo: "org/project/app".into(),
            issue_number: 7,
            title: "Fix it".into(),
        };
        let expected = json!({
            "git_provider": "azure_devops", "task_type": "OPEN_PR", "repo": "org/project/app",
            "issue_number": 7, "title": "Fix it",
        });
        assert_eq!(json!(task), expected);
    }

    #[test]
    fn orders_have_the_names_and_defaults_of_v0() {
        assert_eq!(json!(RepositorySort::FullName), json!("full_name"));
        let defaults = json!([
            RepositorySort::default(),
            SearchSort::default(),
            SortOrder::default()
        ]);
        assert_eq!(defaults, json!(["pushed", "stars", "desc"]));
    }
}

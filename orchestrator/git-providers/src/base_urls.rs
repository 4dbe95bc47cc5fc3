//! The URLs of the providers' APIs.

use reqwest::Url;

/// The base URLs of the APIs. Used for every token that names no other host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrls {
    /// GitHub's REST API. GraphQL is expected at `graphql` below it; at `/api/graphql` if this ends in `/api/v3`.
    pub github: Url,
    /// GitLab's REST API, version 4.
    pub gitlab: Url,
    /// Bitbucket Cloud's REST API, version 2.0.
    pub bitbucket: Url,
    /// Azure DevOps, without the organization.
    pub azure_devops: Url,
    /// The profiles of Azure DevOps, without the organization.
    pub azure_devops_profile: Url,
}

impl Default for BaseUrls {
    #[expect(clippy::unwrap_used, reason = "constants, parsed by a test")]
    fn default() -> Self {
        Self {
            github: Url::parse("https://api.github.com/").unwrap(),
            gitlab: Url::parse("https://gitlab.com/api/v4/").unwrap(),
            bitbucket: Url::parse("https://api.bitbucket.org/2.0/").unwrap(),
            azure_devops: Url::parse("https://dev.azure.com/").unwrap(),
            azure_devops_profile: Url::parse("https://vssps.dev.azure.com/").unwrap(),
        }
    }
}

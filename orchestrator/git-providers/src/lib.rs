//! Clients of git providers: GitHub, GitLab, Bitbucket Cloud and Azure DevOps, for V0's routes
//! below `/api/user`.
//!
//! [`GitProviders`] holds the tokens of one user and calls the providers. All users share a
//! [`GitClient`], which holds the connections. Nothing is stored or cached.
//!
//! Everything is bounded: bodies, pages, retries, time, and the number of requests for one call.
//! Tokens are sent to the provider's origin only, over connections that an [`AddressPolicy`]
//! allows, and appear in no error, log or `Debug` output.
//!
//! A provider is a folder: `github` knows GitHub's JSON and paths, and nothing outside of it does.
//! `http` sends requests, classifies failures, and knows no provider's JSON.

pub mod address_policy;
mod azure_devops;
mod base_urls;
mod bitbucket;
mod client;
mod concurrently;
mod error;
mod github;
mod gitlab;
mod http;
mod microagents;
mod names;
mod paging;
mod providers;
mod service;
mod token;

pub use address_policy::{
    AddressException, AddressKind, AddressPolicy, AddressResolver, InvalidException,
    RefusedAddress, SystemResolver,
};
pub use base_urls::{BaseUrl, BaseUrls, InvalidBaseUrl};
pub use client::{ClientError, GitClient, RequestLimits};
pub use error::{GitError, RequestError};
pub use microagents::MicroagentSource;
pub use names::repository_name;
pub use providers::{GitProviders, RepositoryQuery, SearchQuery};
pub use token::ProviderToken;

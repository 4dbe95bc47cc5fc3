//! Providers of a test server, with a token for some.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use git_providers::{
    AddressPolicy, BaseUrls, GitClient, GitError, GitProviders, ProviderToken, RequestError,
    RequestLimits,
};
use protocol::client_api::git::GitProvider;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};

use crate::server::Server;

pub(crate) const TOKEN: &str = "canary-1234567890";

/// Returns the host that each provider's token needs.
fn host(provider: GitProvider) -> Option<String> {
    (provider == GitProvider::AzureDevOps).then(|| "acme".to_owned())
}

pub(crate) fn token(token: &str, host: Option<&str>) -> ProviderToken {
    ProviderToken {
        token: token.into(),
        user_id: None,
        host: host.map(str::to_owned),
    }
}

/// Returns base URLs below a server, each with the name of its provider.
fn base_urls(url: &str) -> BaseUrls {
    let base = |name: &str| format!("{url}/{name}").parse().unwrap();
    BaseUrls {
        github: base("github"),
        gitlab: base("gitlab"),
        bitbucket: base("bitbucket"),
        azure_devops: base("azure"),
        azure_devops_profile: base("profile"),
    }
}

pub(crate) fn limits() -> RequestLimits {
    RequestLimits {
        retry_delay: Duration::ZERO,
        ..RequestLimits::default()
    }
}

pub(crate) fn client(url: &str, policy: AddressPolicy, limits: RequestLimits) -> GitClient {
    let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    GitClient::new(tls, policy, base_urls(url), limits).unwrap()
}

pub(crate) fn loopback() -> AddressPolicy {
    AddressPolicy::new(["127.0.0.0/8".parse().unwrap()])
}

/// Returns providers of `server` with the same token.
pub(crate) fn providers(server: &Server, with_token: &[GitProvider]) -> GitProviders {
    providers_at(&server.url, with_token)
}

pub(crate) fn providers_at(url: &str, with_token: &[GitProvider]) -> GitProviders {
    let tokens = with_token
        .iter()
        .map(|provider| (*provider, token(TOKEN, host(*provider).as_deref())));
    GitProviders::new(client(url, loopback(), limits()), tokens.collect())
}

/// Returns GitHub at `server` with a token.
pub(crate) fn with_token(url: &str, provider: GitProvider, token: ProviderToken) -> GitProviders {
    GitProviders::new(
        client(url, loopback(), limits()),
        BTreeMap::from([(provider, token)]),
    )
}

/// Returns the cause of a failed request.
pub(crate) fn cause<T: std::fmt::Debug>(result: Result<T, GitError>) -> RequestError {
    match result.unwrap_err() {
        GitError::Request { source, .. } => source,
        other => panic!("{other:?}"),
    }
}

/// Returns the texts of an error and of its causes.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

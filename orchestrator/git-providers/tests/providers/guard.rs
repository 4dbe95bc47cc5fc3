//! The guard of addresses, as the calls use it.

use std::collections::BTreeMap;

use git_providers::{AddressKind, AddressPolicy, GitProviders, RequestError};
use protocol::client_api::git::GitProvider;

use crate::scene::{TOKEN, cause, client, limits, token, with_token};
use crate::server::Server;

async fn refusal(url: &str, policy: AddressPolicy) -> AddressKind {
    let tokens = BTreeMap::from([(GitProvider::GitHub, token(TOKEN, None))]);
    let cause = cause(
        GitProviders::new(client(url, policy, limits()), tokens)
            .user()
            .await,
    );
    let RequestError::AddressRefused { source } = cause else {
        panic!("{cause}")
    };
    source.kind
}

#[tokio::test]
async fn loopback_is_refused_unless_it_is_allowed() {
    let server = Server::start().await;
    let by_name = server.url.replace("127.0.0.1", "localhost");
    for url in [&server.url, &by_name] {
        assert_eq!(
            refusal(url, AddressPolicy::default()).await,
            AddressKind::Loopback,
            "{url}"
        );
    }
    let other_network = AddressPolicy::new(["10.0.0.0/8".parse().unwrap()]);
    assert_eq!(
        refusal(&by_name, other_network).await,
        AddressKind::Loopback
    );
    assert!(server.lines().is_empty());
}

/// The policy of these tests allows 127.0.0.0/8 only.
#[tokio::test]
async fn host_of_a_token_is_checked() {
    let hosts = [
        ("169.254.169.254", AddressKind::LinkLocal),
        ("https://[fd00:ec2::254]", AddressKind::Metadata),
        ("10.0.0.1:8443", AddressKind::Private),
        ("0", AddressKind::Unspecified),
        ("[::ffff:169.254.169.254]", AddressKind::LinkLocal),
        ("[64:ff9b::a9fe:a9fe]", AddressKind::LinkLocal),
        ("2852039166", AddressKind::LinkLocal),
        ("0xa9.0376.169.254", AddressKind::LinkLocal),
    ];
    for (host, kind) in hosts {
        for provider in [GitProvider::GitHub, GitProvider::GitLab] {
            let providers = with_token("http://127.0.0.1:9", provider, token(TOKEN, Some(host)));
            let cause = cause(providers.user().await);
            let RequestError::AddressRefused { source } = cause else {
                panic!("{host}: {cause}")
            };
            assert_eq!(source.kind, kind, "{host}");
        }
    }
}

#[tokio::test]
async fn host_of_a_token_must_be_https() {
    let server = Server::start().await;
    let providers = with_token(
        &server.url,
        GitProvider::GitLab,
        token(TOKEN, Some(&server.url)),
    );
    let cause = cause(providers.user().await);
    assert_eq!(
        cause.to_string(),
        "the host is unusable: its scheme must be https"
    );
    assert!(server.lines().is_empty());
}

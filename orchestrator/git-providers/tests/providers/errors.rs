//! Failures of providers, and the limits of requests.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use git_providers::{GitProviders, RequestError, RequestLimits, SearchQuery};
use jiff::Timestamp;
use protocol::client_api::git::GitProvider;
use serde_json::json;
use tokio::net::TcpListener;

use crate::scene::{
    TOKEN, cause, chain, client, limits, loopback, providers, providers_at, token, with_token,
};
use crate::server::{Reply, Server};

const USER: &str = "GET /github/user";

async fn start() -> (Server, GitProviders) {
    let server = Server::start().await;
    let providers = providers(&server, &[GitProvider::GitHub]);
    (server, providers)
}

async fn cause_of(reply: Reply) -> (RequestError, usize) {
    let (server, providers) = start().await;
    server.on(USER, reply);
    (cause(providers.user().await), server.requests().len())
}

#[tokio::test]
async fn rejected_token_is_reported_without_a_retry() {
    for status in [401, 403] {
        let (cause, requests) =
            cause_of(Reply::new(status, r#"{"message":"Bad credentials"}"#)).await;
        assert!(
            matches!(cause, RequestError::TokenRejected { .. }),
            "{cause}"
        );
        assert_eq!(
            cause.to_string(),
            format!("the token was rejected with status {status}: Bad credentials")
        );
        assert_eq!(requests, 1);
    }
}

#[tokio::test]
async fn rate_limit_is_reported_with_the_time_of_retry() {
    let time = "2030-01-01T00:00:00Z".parse::<Timestamp>().unwrap();
    let seconds = time.as_second().to_string();
    for reply in [
        Reply::new(403, "{}")
            .with_header("x-ratelimit-remaining", "0")
            .with_header("x-ratelimit-reset", &*seconds),
        Reply::new(429, "{}").with_header("ratelimit-reset", &*seconds),
        Reply::new(429, "{}").with_header("retry-after", "Tue, 01 Jan 2030 00:00:00 GMT"),
        Reply::new(403, "{}").with_header("retry-after", "Tue, 01 Jan 2030 00:00:00 GMT"),
    ] {
        let (cause, requests) = cause_of(reply).await;
        let RequestError::RateLimited { retry_at } = cause else {
            panic!("{cause}")
        };
        assert_eq!((retry_at, requests), (Some(time), 1));
        assert!(
            cause
                .to_string()
                .ends_with(": retry after 2030-01-01T00:00:00Z"),
            "{cause}"
        );
    }
}

#[tokio::test]
async fn rate_limit_of_a_query_is_reported() {
    let (server, providers) = start().await;
    let body =
        json!({ "data": null, "errors": [{ "type": "RATE_LIMITED", "message": "exceeded" }] });
    server.on(
        "POST /github/graphql",
        Reply::json(&body).with_header("x-ratelimit-reset", "1893456000"),
    );
    let cause = cause(providers.suggested_tasks().await);
    let RequestError::RateLimited {
        retry_at: Some(time),
    } = cause
    else {
        panic!("{cause}")
    };
    assert_eq!(time.as_second(), 1_893_456_000);
}

#[tokio::test]
async fn errors_of_a_query_are_classified() {
    for (kind, expected) in [
        ("NOT_FOUND", "not found, or not visible to the token"),
        (
            "INSUFFICIENT_SCOPES",
            "the token was rejected with status 403: no",
        ),
        ("OTHER", "the provider responded with status 200: no"),
    ] {
        let (server, providers) = start().await;
        let body = json!({ "data": null, "errors": [{ "type": kind, "message": "no" }] });
        server.on_json("POST /github/graphql", &body);
        let cause = cause(providers.search_branches(None, "a/b", "x", 5).await);
        assert_eq!(cause.to_string(), expected, "{kind}");
    }
}

#[tokio::test]
async fn server_error_is_retried_until_it_is_gone() {
    let (server, providers) = start().await;
    for status in [500, 502, 503] {
        server.on(USER, Reply::new(status, ""));
    }
    server.on_json(USER, &json!({ "id": 1, "login": "octocat" }));
    assert_eq!(providers.user().await.unwrap().login, "octocat");
    assert_eq!(server.requests().len(), 4);
}

#[tokio::test]
async fn server_error_is_reported_after_three_retries() {
    let (cause, requests) = cause_of(Reply::new(502, r#"{"message":"Server Error"}"#)).await;
    assert_eq!(
        cause.to_string(),
        "the provider responded with status 502: Server Error"
    );
    assert_eq!(requests, 4);
}

#[tokio::test]
async fn post_is_not_retried() {
    let (server, providers) = start().await;
    server.on("POST /github/graphql", Reply::new(502, ""));
    let cause = cause(providers.suggested_tasks().await);
    assert!(
        matches!(cause, RequestError::Status { status: 502, .. }),
        "{cause}"
    );
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn broken_connection_is_retried_and_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let counter = connections.clone();
    let serving = tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            counter.fetch_add(1, Ordering::SeqCst);
        }
    });
    let cause = cause(providers_at(&url, &[GitProvider::GitHub]).user().await);
    serving.abort();
    assert!(matches!(cause, RequestError::Unreachable { .. }), "{cause}");
    assert_eq!(connections.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn closed_port_is_unreachable() {
    let url = format!(
        "http://{}",
        TcpListener::bind("127.0.0.1:0")
            .await
            .unwrap()
            .local_addr()
            .unwrap()
    );
    let error = providers_at(&url, &[GitProvider::GitHub])
        .user()
        .await
        .unwrap_err();
    let text = chain(&error);
    assert!(
        text.starts_with("cannot look up the user on github: the provider is unreachable: "),
        "{text}"
    );
    assert!(!text.contains(&url), "{text}");
}

#[tokio::test]
async fn long_response_is_refused() {
    let (cause, requests) = cause_of(Reply::new(200, "x".repeat((16 << 20) + 1))).await;
    assert!(
        matches!(cause, RequestError::TooLarge { limit: 16_777_216 }),
        "{cause}"
    );
    assert_eq!(requests, 1);
}

#[tokio::test]
async fn long_error_response_counts_as_empty() {
    let body = format!(r#"{{"message":"{}"}}"#, "x".repeat(64 << 10));
    let (cause, _) = cause_of(Reply::new(401, body)).await;
    assert_eq!(cause.to_string(), "the token was rejected with status 401");
}

#[tokio::test]
async fn malformed_response_names_the_field() {
    let (cause, _) = cause_of(Reply::new(200, r#"{"id":"one","login":"x"}"#)).await;
    let RequestError::Malformed { source } = &cause else {
        panic!("{cause}")
    };
    assert_eq!(source.path().to_string(), "id");
    let (cause, _) = cause_of(Reply::new(200, "[".repeat(100_000))).await;
    assert!(matches!(cause, RequestError::Malformed { .. }), "{cause}");
}

#[tokio::test]
async fn slow_server_exceeds_the_time_limit() {
    let (server, providers) = start().await;
    server.on(USER, Reply::Silence);
    let call = tokio::spawn(async move { providers.user().await });
    // Connected: from here on, only timers are left.
    server.silenced().await;
    tokio::time::pause();
    let cause = cause(call.await.unwrap());
    let RequestError::TimedOut { limit } = cause else {
        panic!("{cause}")
    };
    assert_eq!(
        (limit, server.requests().len()),
        (limits().attempt_timeout, 1)
    );
}

#[tokio::test]
async fn call_of_many_requests_exceeds_its_time_limit() {
    let server = Server::start().await;
    server.on(USER, Reply::Silence);
    let limits = RequestLimits {
        call_timeout: Duration::from_secs(5),
        ..limits()
    };
    let tokens = BTreeMap::from([(GitProvider::GitHub, token(TOKEN, None))]);
    let providers = GitProviders::new(client(&server.url, loopback(), limits), tokens);
    let query = SearchQuery {
        query: "app".into(),
        ..SearchQuery::default()
    };
    let call = tokio::spawn(async move { providers.search_repositories(&query).await });
    server.silenced().await;
    tokio::time::pause();
    let cause = cause(call.await.unwrap());
    assert!(
        matches!(cause, RequestError::TimedOut { limit } if limit == limits.call_timeout),
        "{cause}"
    );
}

#[tokio::test]
async fn redirect_is_followed_within_the_origin() {
    let (server, providers) = start().await;
    let redirect = Reply::new(301, "").with_header("location", "/github/repositories/7");
    server.on("GET /github/repos/a/old", redirect);
    server.on_json(
        "GET /github/repositories/7",
        &json!({ "id": 7, "full_name": "a/new", "private": true }),
    );
    assert_eq!(
        providers.repository(None, "a/old").await.unwrap().full_name,
        "a/new"
    );
    assert_eq!(
        server.requests()[1].headers["authorization"],
        format!("Bearer {TOKEN}")
    );
}

#[tokio::test]
async fn redirect_to_another_origin_is_not_followed() {
    let (server, providers) = start().await;
    let other = Server::start().await;
    for location in [
        format!("{}/github/user", other.url),
        other.url.replace("127.0.0.1", "127.0.0.2"),
    ] {
        server.on(USER, Reply::new(302, "").with_header("location", location));
        let cause = cause(providers.user().await);
        assert!(matches!(cause, RequestError::OtherOrigin), "{cause}");
    }
    assert!(other.lines().is_empty());
}

#[tokio::test]
async fn redirects_are_bounded() {
    let (server, providers) = start().await;
    server.on(
        USER,
        Reply::new(302, "").with_header("location", "/github/user"),
    );
    let cause = cause(providers.user().await);
    assert!(matches!(cause, RequestError::OtherOrigin), "{cause}");
    assert_eq!(server.requests().len(), 4);
}

#[tokio::test]
async fn unusable_names_are_sent_to_no_provider() {
    let (server, providers) = start().await;
    for name in ["", "app", "../app", "a/..", "a/b/c", "a//b"] {
        let cause = cause(providers.branches(None, name, 1, 30).await);
        assert!(
            matches!(
                cause,
                RequestError::InvalidInput {
                    field: "repository",
                    ..
                }
            ),
            "{name}: {cause}"
        );
    }
    for path in ["", "../secret", "/etc/passwd", "a/./b"] {
        let cause = cause(providers.microagent_source(None, "a/b", path).await);
        assert!(
            matches!(
                cause,
                RequestError::InvalidInput {
                    field: "file path",
                    ..
                }
            ),
            "{path}: {cause}"
        );
    }
    assert!(server.lines().is_empty());
}

/// A provider that repeats what it got.
#[tokio::test]
async fn token_is_in_no_error_log_or_debug_output() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let writer = Arc::new(log.reopen().unwrap());
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(writer);
    let _guard = tracing::subscriber::set_default(subscriber.finish());
    let server = Server::start().await;
    let body = json!({ "message": format!("no access with Bearer {TOKEN}") }).to_string();
    server
        .on(USER, Reply::new(500, body.clone()))
        .on(USER, Reply::new(401, body));
    let providers = with_token(&server.url, GitProvider::GitHub, token(TOKEN, None));
    let error = providers.user().await.unwrap_err();
    let mut text = format!("{} {error:?} {providers:?}", chain(&error));
    assert!(text.contains("no access with Bearer [redacted]"), "{text}");
    log.reopen().unwrap().read_to_string(&mut text).unwrap();
    assert!(text.contains("retrying the request"), "{text}");
    assert!(!text.contains(TOKEN), "{text}");
}

//! Calls to all providers of a user.

use git_providers::{GitError, RepositoryQuery, RequestError, SearchQuery};
use protocol::client_api::git::GitProvider;
use serde_json::json;

use crate::scene::{cause, providers};
use crate::server::{Reply, Server};

const BOTH: [GitProvider; 2] = [GitProvider::GitHub, GitProvider::GitLab];
const HUB_REPOSITORIES: &str = "GET /github/user/repos?page=1&per_page=100&sort=pushed";
const LAB_PROJECTS: &str =
    "GET /gitlab/projects?membership=true&order_by=last_activity_at&sort=desc&page=1&per_page=100";

#[tokio::test]
async fn list_combines_all_providers() {
    let server = Server::start().await;
    server.on_json(
        HUB_REPOSITORIES,
        &json!([{ "id": 1, "full_name": "a/hub", "private": false }]),
    );
    server.on_json(
        LAB_PROJECTS,
        &json!([{ "id": 2, "path_with_namespace": "a/lab" }]),
    );
    let found = providers(&server, &BOTH)
        .repositories(&RepositoryQuery::default())
        .await
        .unwrap();
    let found: Vec<_> = found
        .into_iter()
        .map(|found| (found.git_provider, found.full_name))
        .collect();
    let expected = [
        (GitProvider::GitHub, "a/hub".to_owned()),
        (GitProvider::GitLab, "a/lab".to_owned()),
    ];
    assert_eq!(found, expected);
}

#[tokio::test]
async fn list_leaves_out_a_provider_that_fails() {
    let server = Server::start().await;
    server.on(HUB_REPOSITORIES, Reply::new(401, "{}"));
    server.on_json(
        LAB_PROJECTS,
        &json!([{ "id": 2, "path_with_namespace": "a/lab" }]),
    );
    let found = providers(&server, &BOTH)
        .repositories(&RepositoryQuery::default())
        .await
        .unwrap();
    assert_eq!(found.len(), 1);
}

#[tokio::test]
async fn list_fails_with_the_first_error_when_all_fail() {
    let server = Server::start().await;
    server
        .on(HUB_REPOSITORIES, Reply::new(401, "{}"))
        .on(LAB_PROJECTS, Reply::new(403, "{}"));
    let cause = cause(
        providers(&server, &BOTH)
            .repositories(&RepositoryQuery::default())
            .await,
    );
    assert!(
        matches!(cause, RequestError::TokenRejected { status: 401, .. }),
        "{cause}"
    );
}

#[tokio::test]
async fn repository_is_looked_for_at_every_provider() {
    let server = Server::start().await;
    server.on_json(
        "GET /gitlab/projects/a%2Flab",
        &json!({ "id": 2, "path_with_namespace": "a/lab" }),
    );
    let found = providers(&server, &BOTH)
        .repository(None, "a/lab")
        .await
        .unwrap();
    assert_eq!(found.git_provider, GitProvider::GitLab);
    assert_eq!(
        server.lines(),
        ["GET /github/repos/a/lab", "GET /gitlab/projects/a%2Flab"]
    );
}

#[tokio::test]
async fn token_is_checked_at_each_provider() {
    let server = Server::start().await;
    let all = [
        GitProvider::GitHub,
        GitProvider::GitLab,
        GitProvider::Bitbucket,
        GitProvider::AzureDevOps,
    ];
    let azure = "GET /azure/acme/_apis/connectionData";
    server
        .on_json("GET /github", &json!({}))
        .on_json("GET /gitlab/user", &json!({ "id": 1, "username": "john" }))
        .on_json("GET /bitbucket/user", &json!({ "uuid": "{u-1}" }))
        .on_json(azure, &json!({}))
        .on(azure, Reply::new(401, "{}"));
    providers(&server, &all).check_tokens().await.unwrap();
    let cause = cause(providers(&server, &all).check_tokens().await);
    assert!(
        matches!(cause, RequestError::TokenRejected { status: 401, .. }),
        "{cause}"
    );
    assert_eq!(server.lines().len(), 8);
}

#[tokio::test]
async fn user_is_that_of_the_first_token_that_works() {
    let server = Server::start().await;
    server.on("GET /github/user", Reply::new(401, "{}"));
    server.on_json("GET /gitlab/user", &json!({ "id": 1, "username": "john" }));
    assert_eq!(
        providers(&server, &BOTH).user().await.unwrap().login,
        "john"
    );
}

#[tokio::test]
async fn call_without_a_token_asks_for_one() {
    let server = Server::start().await;
    let lab_only = providers(&server, &[GitProvider::GitLab]);
    let error = lab_only
        .installations(GitProvider::GitHub)
        .await
        .unwrap_err();
    assert!(matches!(error, GitError::NoToken(GitProvider::GitHub)));
    assert_eq!(
        error.to_string(),
        "no token for github: add one in the settings"
    );
    let error = providers(&server, &[])
        .search_repositories(&SearchQuery::default())
        .await
        .unwrap_err();
    assert!(matches!(error, GitError::NoTokens));
    assert_eq!(
        error.to_string(),
        "no token for any git provider: add one in the settings"
    );
    assert!(server.lines().is_empty());
}

#[tokio::test]
async fn enterprise_sign_on_is_unsupported() {
    let server = Server::start().await;
    let error = providers(&server, &[GitProvider::EnterpriseSso])
        .user()
        .await
        .unwrap_err();
    assert!(matches!(
        error,
        GitError::Unsupported {
            provider: GitProvider::EnterpriseSso,
            ..
        }
    ));
}

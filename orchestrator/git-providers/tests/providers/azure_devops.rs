//! Azure DevOps' routes.

use git_providers::{GitProviders, RepositoryQuery, RequestError, SearchQuery};
use protocol::client_api::git::{GitProvider, SortOrder};
use serde_json::{Value, json};

use crate::scene::{TOKEN, cause, providers, token, with_token};
use crate::server::{Reply, Server};

const AZURE: Option<GitProvider> = Some(GitProvider::AzureDevOps);
const PROFILE: &str = "GET /profile/acme/_apis/profile/profiles/me?api-version=7.1";
const REPOSITORY: &str = "/azure/acme/web/_apis/git/repositories/app";

async fn start() -> (Server, GitProviders) {
    let server = Server::start().await;
    let providers = providers(&server, &[GitProvider::AzureDevOps]);
    (server, providers)
}

fn repository(name: &str) -> Value {
    json!({
        "id": format!("id-{name}"), "name": name, "url": "x", "size": 728, "isDisabled": false,
        "project": { "id": "p", "name": "web", "state": "wellFormed", "visibility": "private" },
        "defaultBranch": "refs/heads/release/1",
    })
}

fn expected_repository(name: &str, link: Option<&str>) -> Value {
    json!({
        "id": format!("id-{name}"), "full_name": format!("acme/web/{name}"), "git_provider": "azure_devops",
        "is_public": false, "stargazers_count": null, "link_header": link, "pushed_at": null,
        "owner_type": "organization", "main_branch": "release/1",
    })
}

fn script_repositories(server: &Server, names: &[&str]) {
    let mut values: Vec<Value> = names.iter().map(|name| repository(name)).collect();
    values.push(
        json!({ "id": "d", "name": "disabled", "project": { "name": "web" }, "isDisabled": true }),
    );
    let list = json!({ "count": values.len(), "value": values });
    server.on_json(
        "GET /azure/acme/_apis/git/repositories?api-version=7.1",
        &list,
    );
}

#[tokio::test]
async fn user_is_the_owner_of_the_token() {
    let (server, providers) = start().await;
    let profile = json!({
        "displayName": "Jo", "publicAlias": "p", "emailAddress": "jo@example.com", "coreRevision": 1,
        "id": "u-1",
    });
    server.on_json(PROFILE, &profile);
    let expected = json!({
        "id": "u-1", "login": "jo@example.com", "avatar_url": "", "company": null, "name": "Jo",
        "email": "jo@example.com",
    });
    assert_eq!(json!(providers.user().await.unwrap()), expected);
    let headers = server.requests().remove(0).headers;
    // ":canary-1234567890" in base64.
    assert_eq!(headers["authorization"], "Basic OmNhbmFyeS0xMjM0NTY3ODkw");
    assert_eq!(headers["x-tfs-fedauthredirect"], "Suppress");
}

#[tokio::test]
async fn web_token_is_sent_as_it_is() {
    let server = Server::start().await;
    server.on_json(PROFILE, &json!({ "id": "u-1" }));
    let token = token("eyJh.eyJi.c", Some("dev.azure.com/acme"));
    with_token(&server.url, GitProvider::AzureDevOps, token)
        .user()
        .await
        .unwrap();
    assert_eq!(
        server.requests()[0].headers["authorization"],
        "Bearer eyJh.eyJi.c"
    );
}

/// Azure DevOps sends its sign-in page instead of an error.
#[tokio::test]
async fn sign_in_page_means_that_the_token_was_rejected() {
    let (server, providers) = start().await;
    server.on(PROFILE, Reply::new(203, "<html>Sign in"));
    let cause = cause(providers.user().await);
    assert!(
        matches!(cause, RequestError::TokenRejected { status: 203, .. }),
        "{cause}"
    );
}

#[tokio::test]
async fn host_must_name_the_organization() {
    let providers = with_token(
        "http://127.0.0.1:9",
        GitProvider::AzureDevOps,
        token(TOKEN, None),
    );
    let cause = cause(providers.user().await);
    let expected =
        "the host is unusable: expected the organization, for example dev.azure.com/acme";
    assert_eq!(cause.to_string(), expected);
}

#[tokio::test]
async fn installation_is_the_organization() {
    let (_, providers) = start().await;
    assert_eq!(
        providers
            .installations(GitProvider::AzureDevOps)
            .await
            .unwrap(),
        ["acme"]
    );
}

#[tokio::test]
async fn repositories_are_cut_into_pages() {
    let (server, providers) = start().await;
    script_repositories(&server, &["c", "a", "b"]);
    let query = |page| RepositoryQuery {
        provider: AZURE,
        page,
        per_page: 2,
        ..RepositoryQuery::default()
    };
    let link = Some("<?page=2&per_page=2>; rel=\"next\"");
    let first = json!([
        expected_repository("a", link),
        expected_repository("b", link)
    ]);
    assert_eq!(
        json!(providers.repositories(&query(1)).await.unwrap()),
        first
    );
    let second = json!([expected_repository("c", None)]);
    assert_eq!(
        json!(providers.repositories(&query(2)).await.unwrap()),
        second
    );
}

#[tokio::test]
async fn search_finds_a_part_of_the_name() {
    let (server, providers) = start().await;
    script_repositories(&server, &["my-app", "other"]);
    let query = |text: &str, order| SearchQuery {
        query: text.into(),
        per_page: 5,
        order,
        ..SearchQuery::default()
    };
    let found = providers
        .search_repositories(&query("APP", SortOrder::Asc))
        .await
        .unwrap();
    assert_eq!(json!(found), json!([expected_repository("my-app", None)]));
    let found = providers
        .search_repositories(&query("web/", SortOrder::Desc))
        .await
        .unwrap();
    assert_eq!(
        json!(found),
        json!([
            expected_repository("other", None),
            expected_repository("my-app", None)
        ])
    );
}

#[tokio::test]
async fn repository_is_found_by_its_name_or_url() {
    let (server, providers) = start().await;
    server.on_json(
        &format!("GET {REPOSITORY}?api-version=7.1"),
        &repository("app"),
    );
    for name in ["acme/web/app", "web/app"] {
        let found = providers.repository(AZURE, name).await.unwrap();
        assert_eq!(json!(found), expected_repository("app", None), "{name}");
    }
    let query = SearchQuery {
        query: "http://127.0.0.1/acme/web/_git/app".into(),
        ..SearchQuery::default()
    };
    let found = providers.search_repositories(&query).await.unwrap();
    assert_eq!(json!(found), json!([expected_repository("app", None)]));
}

#[tokio::test]
async fn branches_are_continued_with_a_token() {
    let (server, providers) = start().await;
    let branch = |name: &str| json!({ "name": format!("refs/heads/{name}"), "objectId": "f1a2", "creator": {} });
    let path = format!("GET {REPOSITORY}/refs?filter=heads%2F&%24top=1000");
    let first = Reply::json(&json!({ "value": [branch("a"), branch("b")], "count": 2 }));
    server.on(
        &format!("{path}&api-version=7.1"),
        first.with_header("x-ms-continuationtoken", "refs/heads/c"),
    );
    let second = json!({ "value": [branch("c/d")], "count": 1 });
    server.on_json(
        &format!("{path}&continuationToken=refs%2Fheads%2Fc&api-version=7.1"),
        &second,
    );
    let expected = json!({
        "branches": [{ "name": "c/d", "commit_sha": "f1a2", "protected": false, "last_push_date": null }],
        "has_next_page": false, "current_page": 2, "per_page": 2, "total_count": 3,
    });
    assert_eq!(
        json!(
            providers
                .branches(AZURE, "acme/web/app", 2, 2)
                .await
                .unwrap()
        ),
        expected
    );
}

#[tokio::test]
async fn branches_are_searched_by_any_part() {
    let (server, providers) = start().await;
    let path = format!(
        "GET {REPOSITORY}/refs?filter=heads%2F&filterContains=fix&%24top=1000&api-version=7.1"
    );
    let branch = |name: &str| json!({ "name": name, "objectId": "f1a2", "isLocked": true });
    server.on_json(
        &path,
        &json!({ "value": [branch("refs/heads/fix-1"), branch("refs/heads/fix-2")] }),
    );
    let found = providers
        .search_branches(AZURE, "acme/web/app", "fix", 1)
        .await
        .unwrap();
    let expected = json!([{ "name": "fix-1", "commit_sha": "f1a2", "protected": true, "last_push_date": null }]);
    assert_eq!(json!(found), expected);
}

#[tokio::test]
async fn tasks_are_pull_requests_with_problems_and_work_items() {
    let (server, providers) = start().await;
    server.on_json(PROFILE, &json!({ "id": "u-1", "displayName": "Jo" }));
    let projects = json!({ "count": 1, "value": [{ "id": "p", "name": "web" }] });
    server.on_json(
        "GET /azure/acme/_apis/projects?%24top=100&api-version=7.1",
        &projects,
    );
    let pull_request = |id: u64, merge: &str| {
        json!({
            "pullRequestId": id, "title": "t", "status": "active", "mergeStatus": merge,
            "repository": { "id": "r", "name": "app", "project": { "id": "p", "name": "web" } },
        })
    };
    let list = json!({ "value": [
        pull_request(1, "conflicts"), pull_request(2, "succeeded"), pull_request(3, "succeeded"),
        pull_request(4, "queued"),
    ] });
    let query =
        "searchCriteria.creatorId=u-1&searchCriteria.status=active&%24top=100&api-version=7.1";
    server.on_json(
        &format!("GET /azure/acme/web/_apis/git/pullrequests?{query}"),
        &list,
    );
    let below =
        |id: u64, part: &str| format!("GET {REPOSITORY}/pullRequests/{id}/{part}?api-version=7.1");
    let status = |state: &str, name: &str| json!({ "state": state, "context": { "name": name, "genre": "ci" } });
    for (id, statuses) in [
        (2, json!([status("succeeded", "a"), status("failed", "b")])),
        (3, json!([status("failed", "a"), status("succeeded", "a")])),
        (4, json!([])),
    ] {
        server.on_json(&below(id, "statuses"), &json!({ "value": statuses }));
    }
    let threads = json!([{ "id": 1, "isDeleted": false }, { "id": 2, "status": "active", "isDeleted": false }]);
    server.on_json(&below(3, "threads"), &json!({ "value": threads }));
    let threads = json!([{ "status": "fixed", "isDeleted": false }, { "status": "active", "isDeleted": true }]);
    server.on_json(&below(4, "threads"), &json!({ "value": threads }));
    let found =
        json!({ "queryType": "flat", "workItems": [{ "id": 300, "url": "x" }, { "id": 299 }] });
    server.on_json(
        "POST /azure/acme/_apis/wit/wiql?%24top=100&api-version=7.1",
        &found,
    );
    let item = |id: u64| json!({ "id": id, "fields": { "System.Title": "w", "System.TeamProject": "web" } });
    let query = "ids=300%2C299&fields=System.Title%2CSystem.TeamProject&api-version=7.1";
    let items = json!({ "count": 2, "value": [item(300), item(299)] });
    server.on_json(
        &format!("GET /azure/acme/_apis/wit/workitems?{query}"),
        &items,
    );
    let task = |task_type: &str, repo: &str, number: u64, title: &str| {
        json!({
            "git_provider": "azure_devops", "task_type": task_type, "repo": repo, "issue_number": number,
            "title": title,
        })
    };
    let expected = json!([
        task("MERGE_CONFLICTS", "acme/web/app", 1, "t"),
        task("FAILING_CHECKS", "acme/web/app", 2, "t"),
        task("UNRESOLVED_COMMENTS", "acme/web/app", 3, "t"),
        task("OPEN_ISSUE", "acme/web", 300, "w"),
        task("OPEN_ISSUE", "acme/web", 299, "w"),
    ]);
    assert_eq!(json!(providers.suggested_tasks().await.unwrap()), expected);
}

#[tokio::test]
async fn microagents_are_found_in_the_tree() {
    let (server, providers) = start().await;
    let query = "scopePath=%2F.openhands%2Fmicroagents&recursionLevel=full&api-version=7.1";
    let list = json!({ "count": 2, "value": [
        { "objectId": "a", "gitObjectType": "tree", "path": "/.openhands/microagents", "isFolder": true },
        { "objectId": "b", "gitObjectType": "blob", "path": "/.openhands/microagents/a.md" },
    ] });
    server.on_json(&format!("GET {REPOSITORY}/items?{query}"), &list);
    let file = "path=%2F.openhands%2Fmicroagents%2Fa.md&%24format=text&api-version=7.1";
    server.on(
        &format!("GET {REPOSITORY}/items?{file}"),
        Reply::new(200, "Be good."),
    );
    let query =
        "searchCriteria.itemPath=%2F.openhands%2Fmicroagents%2Fa.md&searchCriteria.%24top=100";
    let commits = json!({ "value": [{ "author": { "date": "2025-02-02T00:00:00Z" } }] });
    server.on_json(
        &format!("GET {REPOSITORY}/commits?{query}&api-version=7.1"),
        &commits,
    );
    let expected = json!([{
        "name": "a", "path": ".openhands/microagents/a.md", "created_at": "2025-02-02T00:00:00Z",
        "git_provider": "azure_devops",
    }]);
    assert_eq!(
        json!(providers.microagents(AZURE, "acme/web/app").await.unwrap()),
        expected
    );
    let source = providers
        .microagent_source(AZURE, "acme/web/app", ".openhands/microagents/a.md")
        .await
        .unwrap();
    assert_eq!(source.text, "Be good.");
}

//! Bitbucket's routes.

use git_providers::{GitProviders, RepositoryQuery, RequestError, SearchQuery};
use protocol::client_api::git::GitProvider;
use serde_json::{Value, json};

use crate::scene::{TOKEN, cause, providers, token, with_token};
use crate::server::{Reply, Server};

const BUCKET: Option<GitProvider> = Some(GitProvider::Bitbucket);

async fn start() -> (Server, GitProviders) {
    let server = Server::start().await;
    let providers = providers(&server, &[GitProvider::Bitbucket]);
    (server, providers)
}

fn repository(name: &str, updated: &str) -> Value {
    json!({
        "type": "repository", "uuid": format!("{{{name}}}"), "full_name": name, "is_private": false,
        "created_on": "2020-01-01T00:00:00+00:00", "updated_on": updated, "scm": "git",
        "mainbranch": { "type": "branch", "name": "release/1" }, "workspace": { "slug": "acme" },
    })
}

fn expected_repository(name: &str, updated: &str, link: Option<&str>) -> Value {
    json!({
        "id": format!("{{{name}}}"), "full_name": name, "git_provider": "bitbucket", "is_public": true,
        "stargazers_count": null, "link_header": link, "pushed_at": updated, "owner_type": "organization",
        "main_branch": "release/1",
    })
}

fn script_workspaces(server: &Server, slugs: &[&str]) {
    let membership =
        |slug: &&str| json!({ "type": "workspace_access", "workspace": { "slug": slug } });
    let values: Vec<Value> = slugs.iter().map(membership).collect();
    server.on_json(
        "GET /bitbucket/user/workspaces?pagelen=100",
        &json!({ "values": values }),
    );
}

fn account() -> Value {
    json!({
        "type": "user", "uuid": "{u-1}", "nickname": "john", "display_name": "John Smith",
        "links": { "avatar": { "href": "https://avatar.example/john" } },
    })
}

#[tokio::test]
async fn user_is_the_owner_of_the_token() {
    let (server, providers) = start().await;
    server.on_json("GET /bitbucket/user", &account());
    let expected = json!({
        "id": "{u-1}", "login": "john", "avatar_url": "https://avatar.example/john", "company": null,
        "name": "John Smith", "email": null,
    });
    assert_eq!(json!(providers.user().await.unwrap()), expected);
    assert_eq!(
        server.requests()[0].headers["authorization"],
        format!("Bearer {TOKEN}")
    );
}

#[tokio::test]
async fn token_with_a_name_is_sent_as_a_password() {
    let server = Server::start().await;
    server.on_json("GET /bitbucket/user", &account());
    let token = token("me@example.com:pass:word", Some("bitbucket.org"));
    with_token(&server.url, GitProvider::Bitbucket, token)
        .user()
        .await
        .unwrap();
    // "me@example.com:pass:word" in base64.
    assert_eq!(
        server.requests()[0].headers["authorization"],
        "Basic bWVAZXhhbXBsZS5jb206cGFzczp3b3Jk"
    );
}

#[tokio::test]
async fn other_host_is_unusable() {
    let token = token(TOKEN, Some("bitbucket.example.com"));
    let providers = with_token("http://127.0.0.1:9", GitProvider::Bitbucket, token);
    let cause = cause(providers.user().await);
    assert!(
        matches!(cause, RequestError::InvalidInput { field: "host", .. }),
        "{cause}"
    );
}

#[tokio::test]
async fn installations_are_workspaces_of_all_pages() {
    let (server, providers) = start().await;
    let membership = |slug: &str| json!({ "workspace": { "slug": slug } });
    let next = format!(
        "{}/bitbucket/user/workspaces?pagelen=100&page=2",
        server.url
    );
    let first = json!({ "values": [membership("acme")], "next": next });
    server.on_json("GET /bitbucket/user/workspaces?pagelen=100", &first);
    let second = json!({ "values": [membership("lab")] });
    server.on_json("GET /bitbucket/user/workspaces?pagelen=100&page=2", &second);
    assert_eq!(
        providers
            .installations(GitProvider::Bitbucket)
            .await
            .unwrap(),
        ["acme", "lab"]
    );
}

#[tokio::test]
async fn token_is_not_sent_to_a_next_page_at_another_host() {
    let (server, providers) = start().await;
    let other = Server::start().await;
    let first = json!({ "values": [], "next": format!("{}/bitbucket/user/workspaces", other.url) });
    server.on_json("GET /bitbucket/user/workspaces?pagelen=100", &first);
    let cause = cause(providers.installations(GitProvider::Bitbucket).await);
    assert!(matches!(cause, RequestError::OtherOrigin), "{cause}");
    assert!(other.lines().is_empty());
}

#[tokio::test]
async fn repositories_of_a_workspace_are_paged() {
    let (server, providers) = start().await;
    let list = json!({
        "values": [repository("acme/app", "2025-11-02")], "page": 2, "pagelen": 1, "size": 3,
        "next": format!("{}/bitbucket/repositories/acme?page=3", server.url),
    });
    server.on_json(
        "GET /bitbucket/repositories/acme?page=2&pagelen=1&sort=-updated_on",
        &list,
    );
    let query = RepositoryQuery {
        provider: BUCKET,
        page: 2,
        per_page: 1,
        installation_id: Some("acme".into()),
        ..RepositoryQuery::default()
    };
    let link = "<?page=3&per_page=1>; rel=\"next\"";
    let expected = json!([expected_repository("acme/app", "2025-11-02", Some(link))]);
    assert_eq!(
        json!(providers.repositories(&query).await.unwrap()),
        expected
    );
}

#[tokio::test]
async fn repositories_of_all_workspaces_are_combined() {
    let (server, providers) = start().await;
    script_workspaces(&server, &["acme", "lab"]);
    let list = |name: &str, updated: &str| json!({ "values": [repository(name, updated)] });
    let query = "sort=-updated_on&pagelen=100";
    server.on_json(
        &format!("GET /bitbucket/repositories/acme?{query}"),
        &list("acme/app", "2025-01-01"),
    );
    server.on_json(
        &format!("GET /bitbucket/repositories/lab?{query}"),
        &list("lab/new", "2025-02-02"),
    );
    let query = RepositoryQuery {
        provider: BUCKET,
        page: 1,
        per_page: 1,
        ..RepositoryQuery::default()
    };
    let link = "<?page=2&per_page=1>; rel=\"next\"";
    let expected = json!([expected_repository("lab/new", "2025-02-02", Some(link))]);
    assert_eq!(
        json!(providers.repositories(&query).await.unwrap()),
        expected
    );
    let all = providers
        .repositories(&RepositoryQuery::default())
        .await
        .unwrap();
    let expected = json!([
        expected_repository("lab/new", "2025-02-02", None),
        expected_repository("acme/app", "2025-01-01", None),
    ]);
    assert_eq!(json!(all), expected);
}

#[tokio::test]
async fn search_in_a_workspace_quotes_the_query() {
    let (server, providers) = start().await;
    let line =
        "GET /bitbucket/repositories/acme?q=name+%7E+%22a%5C%22pp%22&sort=-updated_on&pagelen=100";
    server.on_json(
        line,
        &json!({ "values": [repository("acme/app", "2025-01-01")] }),
    );
    let query = SearchQuery {
        query: "acme/a\"pp".into(),
        per_page: 5,
        ..SearchQuery::default()
    };
    let expected = json!([expected_repository("acme/app", "2025-01-01", None)]);
    assert_eq!(
        json!(providers.search_repositories(&query).await.unwrap()),
        expected
    );
}

#[tokio::test]
async fn branches_are_paged_and_searched() {
    let (server, providers) = start().await;
    let values = json!([{
        "type": "branch", "name": "main", "target": { "hash": "f1a2", "date": "2025-10-01T00:00:00+00:00" },
    }]);
    let path = "GET /bitbucket/repositories/acme/app/refs/branches";
    let list = json!({ "values": values, "size": 1, "page": 1 });
    server.on_json(
        &format!("{path}?page=1&pagelen=30&sort=-target.date"),
        &list,
    );
    server.on_json(
        &format!("{path}?q=name+%7E+%22ma%22&page=1&pagelen=5&sort=-target.date"),
        &list,
    );
    let branch = json!({
        "name": "main", "commit_sha": "f1a2", "protected": false,
        "last_push_date": "2025-10-01T00:00:00+00:00",
    });
    let expected = json!({
        "branches": [branch], "has_next_page": false, "current_page": 1, "per_page": 30, "total_count": 1,
    });
    assert_eq!(
        json!(providers.branches(BUCKET, "acme/app", 1, 30).await.unwrap()),
        expected
    );
    assert_eq!(
        json!(
            providers
                .search_branches(BUCKET, "acme/app", "ma", 5)
                .await
                .unwrap()
        ),
        json!([branch])
    );
}

#[tokio::test]
async fn tasks_are_pull_requests_with_problems() {
    let (server, providers) = start().await;
    server.on_json("GET /bitbucket/user", &account());
    script_workspaces(&server, &["acme"]);
    let pull_request = |id: u64| {
        json!({
            "type": "pullrequest", "id": id, "title": "t", "state": "OPEN",
            "destination": { "branch": { "name": "main" }, "repository": { "full_name": "acme/app" } },
        })
    };
    let values = [1, 2, 3, 4].map(pull_request);
    let list = json!({ "values": values });
    server.on_json(
        "GET /bitbucket/workspaces/acme/pullrequests/%7Bu-1%7D?state=OPEN&pagelen=50",
        &list,
    );
    let below = |id: u64, part: &str| {
        format!("GET /bitbucket/repositories/acme/app/pullrequests/{id}/{part}?pagelen=100")
    };
    for (id, status) in [(1, "merge conflict"), (2, "modified"), (3, "added")] {
        server.on_json(
            &below(id, "diffstat"),
            &json!({ "values": [{ "status": status, "lines_added": 1 }] }),
        );
    }
    // As the API does it: a redirect to the repository's route.
    let redirect = Reply::new(302, "")
        .with_header("location", "/bitbucket/repositories/acme/app/diffstat/a..b");
    server.on(&below(4, "diffstat"), redirect);
    server.on_json(
        "GET /bitbucket/repositories/acme/app/diffstat/a..b",
        &json!({ "values": [] }),
    );
    for (id, state) in [(2, "FAILED"), (3, "SUCCESSFUL"), (4, "INPROGRESS")] {
        server.on_json(
            &below(id, "statuses"),
            &json!({ "values": [{ "state": state, "key": "ci" }] }),
        );
    }
    let comments = |resolution: Value| {
        json!({ "values": [
            { "id": 1, "deleted": false, "content": {} },
            { "id": 2, "deleted": true, "inline": { "path": "a" } },
            { "id": 3, "deleted": false, "inline": { "path": "a", "to": 1 }, "resolution": resolution },
            { "id": 4, "deleted": false, "inline": { "path": "a", "to": 1 }, "parent": { "id": 3 } },
        ] })
    };
    server.on_json(&below(3, "comments"), &comments(Value::Null));
    server.on_json(
        &below(4, "comments"),
        &comments(json!({ "type": "comment_resolution" })),
    );
    let task = |task_type: &str, number: u64| {
        json!({
            "git_provider": "bitbucket", "task_type": task_type, "repo": "acme/app", "issue_number": number,
            "title": "t",
        })
    };
    let expected = json!([
        task("MERGE_CONFLICTS", 1),
        task("FAILING_CHECKS", 2),
        task("UNRESOLVED_COMMENTS", 3)
    ]);
    assert_eq!(json!(providers.suggested_tasks().await.unwrap()), expected);
}

#[tokio::test]
async fn microagents_are_those_of_the_main_branch() {
    let (server, providers) = start().await;
    let base = "GET /bitbucket/repositories/acme/app";
    server.on_json(base, &repository("acme/app", "2025-01-01"));
    let branch = json!({ "name": "release/1", "target": { "hash": "f1a2" } });
    server.on_json(&format!("{base}/refs/branches/release/1"), &branch);
    let list = json!({ "values": [
        { "type": "commit_file", "path": ".openhands/microagents/a.md", "size": 3 },
        { "type": "commit_directory", "path": ".openhands/microagents/sub.md" },
    ] });
    server.on_json(
        &format!("{base}/src/f1a2/.openhands/microagents/?pagelen=100&max_depth=5"),
        &list,
    );
    server.on(
        &format!("{base}/src/f1a2/.openhands/microagents/a.md"),
        Reply::new(200, "Be good."),
    );
    let commits = json!({ "values": [{ "date": "2025-02-02" }, { "date": "2025-01-01" }] });
    let path = format!("{base}/commits?path=.openhands%2Fmicroagents%2Fa.md&pagelen=100");
    server.on_json(&path, &commits);
    let expected = json!([{
        "name": "a", "path": ".openhands/microagents/a.md", "created_at": "2025-01-01",
        "git_provider": "bitbucket",
    }]);
    assert_eq!(
        json!(providers.microagents(BUCKET, "acme/app").await.unwrap()),
        expected
    );
    let source = providers
        .microagent_source(BUCKET, "acme/app", ".openhands/microagents/a.md")
        .await
        .unwrap();
    assert_eq!(source.text, "Be good.");
}

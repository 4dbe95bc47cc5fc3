//! GitHub's routes.

use git_providers::{GitProviders, RepositoryQuery, SearchQuery};
use protocol::client_api::git::{GitProvider, RepositorySort, SortOrder};
use serde_json::{Value, json};

use crate::scene::{TOKEN, providers};
use crate::server::{Reply, Server};

const HUB: Option<GitProvider> = Some(GitProvider::GitHub);

async fn start() -> (Server, GitProviders) {
    let server = Server::start().await;
    let providers = providers(&server, &[GitProvider::GitHub]);
    (server, providers)
}

fn account(login: &str) -> Value {
    json!({
        "login": login, "id": 583231, "node_id": "MDQ6VXNlcjE=", "type": "User", "site_admin": false,
        "avatar_url": "https://avatars.githubusercontent.com/u/583231", "name": "The Octocat",
        "company": "@github", "email": null,
    })
}

fn repository(id: u64, name: &str) -> Value {
    json!({
        "id": id, "node_id": "x", "name": "app", "full_name": name, "private": true,
        "owner": { "login": "acme", "id": 1, "type": "Organization" }, "fork": false,
        "stargazers_count": 80, "default_branch": "main", "pushed_at": "2025-11-02T10:00:00Z",
        "visibility": "private", "permissions": { "admin": false, "push": true, "pull": true },
    })
}

fn expected_repository(id: &str, name: &str, link: Option<&str>) -> Value {
    json!({
        "id": id, "full_name": name, "git_provider": "github", "is_public": false, "stargazers_count": 80,
        "link_header": link, "pushed_at": "2025-11-02T10:00:00Z", "owner_type": "organization",
        "main_branch": "main",
    })
}

#[tokio::test]
async fn user_is_the_owner_of_the_token() {
    let (server, providers) = start().await;
    server.on_json("GET /github/user", &account("octocat"));
    let expected = json!({
        "id": "583231", "login": "octocat", "avatar_url": "https://avatars.githubusercontent.com/u/583231",
        "company": "@github", "name": "The Octocat", "email": null,
    });
    assert_eq!(json!(providers.user().await.unwrap()), expected);
    let request = server.requests().remove(0);
    assert_eq!(request.headers["authorization"], format!("Bearer {TOKEN}"));
    assert_eq!(request.headers["accept"], "application/vnd.github+json");
    assert_eq!(request.headers["x-github-api-version"], "2022-11-28");
    assert!(
        request.headers["user-agent"]
            .to_str()
            .unwrap()
            .starts_with("glovebox/")
    );
}

#[tokio::test]
async fn installations_are_ids() {
    let (server, providers) = start().await;
    let body =
        json!({ "total_count": 2, "installations": [{ "id": 1, "account": {} }, { "id": 3 }] });
    server.on_json("GET /github/user/installations?per_page=100", &body);
    assert_eq!(
        providers.installations(GitProvider::GitHub).await.unwrap(),
        ["1", "3"]
    );
}

#[tokio::test]
async fn repositories_have_the_link_to_the_next_page() {
    let (server, providers) = start().await;
    let link = "<https://api.github.com/user/repos?page=3>; rel=\"next\"";
    let reply = Reply::json(&json!([repository(1296269, "acme/app")])).with_header("link", link);
    server.on(
        "GET /github/user/repos?page=2&per_page=30&sort=updated",
        reply,
    );
    let query = RepositoryQuery {
        provider: HUB,
        sort: RepositorySort::Updated,
        page: 2,
        per_page: 30,
        installation_id: None,
    };
    let expected = json!([expected_repository("1296269", "acme/app", Some(link))]);
    assert_eq!(
        json!(providers.repositories(&query).await.unwrap()),
        expected
    );
}

#[tokio::test]
async fn repositories_of_an_installation_are_listed() {
    let (server, providers) = start().await;
    let body = json!({ "total_count": 1, "repositories": [repository(7, "acme/app")] });
    server.on_json(
        "GET /github/user/installations/42/repositories?page=1&per_page=10",
        &body,
    );
    let query = RepositoryQuery {
        provider: HUB,
        page: 1,
        per_page: 10,
        installation_id: Some("42".into()),
        ..RepositoryQuery::default()
    };
    let expected = json!([expected_repository("7", "acme/app", None)]);
    assert_eq!(
        json!(providers.repositories(&query).await.unwrap()),
        expected
    );
}

/// A list that never ends.
#[tokio::test]
async fn repositories_of_at_most_ten_pages_are_collected() {
    let (server, providers) = start().await;
    for page in 1..=20 {
        let reply = Reply::json(&json!([repository(page, "acme/app")]))
            .with_header("link", "<https://evil.example/?page=9>; rel=\"next\"");
        server.on(
            &format!("GET /github/user/repos?page={page}&per_page=100&sort=pushed"),
            reply,
        );
    }
    let found = providers
        .repositories(&RepositoryQuery::default())
        .await
        .unwrap();
    let ids: Vec<_> = found
        .iter()
        .map(|repository| repository.id.clone())
        .collect();
    assert_eq!(ids, ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]);
    assert_eq!(
        (server.requests().len(), &found[0].link_header),
        (10, &None)
    );
}

#[tokio::test]
async fn search_covers_the_user_and_the_organizations() {
    let (server, providers) = start().await;
    server.on_json("GET /github/user", &account("octocat"));
    server.on_json(
        "GET /github/user/orgs?per_page=100",
        &json!([{ "login": "acme", "id": 1 }]),
    );
    server.on_json(
        "GET /github/search/repositories?q=app+in%3Aname+fork%3Atrue+user%3Aoctocat+user%3Aacme\
         &sort=stars&order=asc&per_page=5",
        &json!({ "total_count": 1, "incomplete_results": false, "items": [repository(7, "acme/app")] }),
    );
    let query = SearchQuery {
        provider: HUB,
        query: " app ".into(),
        per_page: 5,
        order: SortOrder::Asc,
        ..SearchQuery::default()
    };
    let expected = json!([expected_repository("7", "acme/app", None)]);
    assert_eq!(
        json!(providers.search_repositories(&query).await.unwrap()),
        expected
    );
}

#[tokio::test]
async fn search_for_a_url_looks_up_its_repository() {
    let (server, providers) = start().await;
    server.on_json("GET /github/repos/acme/app", &repository(7, "acme/app"));
    let search = |url: &str| SearchQuery {
        query: url.into(),
        ..SearchQuery::default()
    };
    let found = providers
        .search_repositories(&search("http://127.0.0.1/acme/app.git"))
        .await
        .unwrap();
    assert_eq!(
        json!(found),
        json!([expected_repository("7", "acme/app", None)])
    );
    for url in [
        "http://127.0.0.1/acme/missing",
        "http://127.0.0.1/acme",
        "https://example.com/acme/app",
    ] {
        assert_eq!(
            providers.search_repositories(&search(url)).await.unwrap(),
            [],
            "{url}"
        );
    }
    assert_eq!(
        server.lines(),
        [
            "GET /github/repos/acme/app",
            "GET /github/repos/acme/missing"
        ]
    );
}

#[tokio::test]
async fn branches_are_paged() {
    let (server, providers) = start().await;
    let reply = Reply::json(&json!([
        { "name": "main", "commit": { "sha": "c5b97d5", "url": "x" }, "protected": true },
        { "name": "fix/a", "commit": { "sha": "aa218f5", "url": "x" }, "protected": false },
    ]));
    let link = "<https://api.github.com/repositories/1/branches?page=2>; rel=\"next\"";
    server.on(
        "GET /github/repos/acme/app/branches?page=1&per_page=2",
        reply.with_header("link", link),
    );
    let expected = json!({
        "branches": [
            { "name": "main", "commit_sha": "c5b97d5", "protected": true, "last_push_date": null },
            { "name": "fix/a", "commit_sha": "aa218f5", "protected": false, "last_push_date": null },
        ],
        "has_next_page": true, "current_page": 1, "per_page": 2, "total_count": null,
    });
    assert_eq!(
        json!(providers.branches(HUB, "acme/app", 1, 2).await.unwrap()),
        expected
    );
}

#[tokio::test]
async fn branches_are_searched_by_any_part() {
    let (server, providers) = start().await;
    let node = json!({
        "name": "fix/a", "branchProtectionRule": null,
        "target": { "oid": "aa218f5", "committedDate": "2025-11-01T08:00:00Z" },
    });
    let body = json!({ "data": { "repository": { "refs": { "nodes": [node] } } } });
    server.on_json("POST /github/graphql", &body);
    let expected = json!([{
        "name": "fix/a", "commit_sha": "aa218f5", "protected": false,
        "last_push_date": "2025-11-01T08:00:00Z",
    }]);
    assert_eq!(
        json!(
            providers
                .search_branches(HUB, "acme/app", "x\"", 5)
                .await
                .unwrap()
        ),
        expected
    );
    let sent: Value = serde_json::from_str(&server.requests()[0].body).unwrap();
    let variables = json!({ "owner": "acme", "name": "app", "query": "x\"", "first": 5 });
    assert_eq!(sent["variables"], variables);
}

fn pull_request(number: u64, changes: Value) -> Value {
    let mut node = json!({
        "number": number, "title": "t", "mergeable": "MERGEABLE", "reviewDecision": null,
        "repository": { "nameWithOwner": "acme/app" },
        "commits": { "nodes": [{ "commit": { "statusCheckRollup": { "state": "SUCCESS" } } }] },
        "reviewThreads": { "nodes": [{ "isResolved": true }, null] },
    });
    for (key, value) in changes.as_object().unwrap() {
        node[key] = value.clone();
    }
    node
}

#[tokio::test]
async fn tasks_are_pull_requests_with_problems_and_issues() {
    let (server, providers) = start().await;
    let failing =
        json!({ "nodes": [{ "commit": { "statusCheckRollup": { "state": "FAILURE" } } }] });
    let unresolved = json!({ "nodes": [{ "isResolved": false }] });
    let no_checks = json!({ "nodes": [{ "commit": { "statusCheckRollup": null } }] });
    let nodes = json!([
        pull_request(1, json!({ "mergeable": "CONFLICTING", "commits": failing })),
        pull_request(
            2,
            json!({ "commits": failing, "reviewThreads": unresolved })
        ),
        pull_request(3, json!({ "reviewThreads": unresolved })),
        pull_request(4, json!({ "reviewDecision": "CHANGES_REQUESTED" })),
        pull_request(5, json!({ "commits": no_checks, "mergeable": "UNKNOWN" })),
        null,
    ]);
    let data = json!({ "data": { "viewer": { "pullRequests": { "nodes": nodes } } } });
    server.on_json("POST /github/graphql", &data);
    let issue = |number: u64| json!({ "number": number, "title": "i", "repository": { "full_name": "acme/lib" } });
    let mut pull_request = issue(9);
    pull_request["pull_request"] = json!({ "url": "x" });
    let list = json!([issue(8), pull_request]);
    server.on_json(
        "GET /github/issues?filter=assigned&state=open&page=1&per_page=100",
        &list,
    );
    let tasks = providers.suggested_tasks().await.unwrap();
    let task = |task_type: &str, repo: &str, number: u64, title: &str| {
        json!({
            "git_provider": "github", "task_type": task_type, "repo": repo, "issue_number": number,
            "title": title,
        })
    };
    let expected = json!([
        task("MERGE_CONFLICTS", "acme/app", 1, "t"),
        task("FAILING_CHECKS", "acme/app", 2, "t"),
        task("UNRESOLVED_COMMENTS", "acme/app", 3, "t"),
        task("UNRESOLVED_COMMENTS", "acme/app", 4, "t"),
        task("OPEN_ISSUE", "acme/lib", 8, "i"),
    ]);
    assert_eq!(json!(tasks), expected);
}

#[tokio::test]
async fn microagents_are_found_in_all_folders() {
    let (server, providers) = start().await;
    let contents = "GET /github/repos/acme/app/contents";
    let folder = ".openhands/microagents";
    let entry =
        |path: &str, kind: &str| json!({ "path": path, "type": kind, "name": "x", "size": 1 });
    server.on_json(
        &format!("{contents}/{folder}"),
        &json!([
            entry(".openhands/microagents/repo.md", "file"),
            entry(".openhands/microagents/README.md", "file"),
            entry(".openhands/microagents/notes.txt", "file"),
            entry(".openhands/microagents/sub", "dir"),
        ]),
    );
    let nested = json!([entry(".openhands/microagents/sub/deploy.md", "file")]);
    server.on_json(&format!("{contents}/{folder}/sub"), &nested);
    server.on(
        &format!("{contents}/.cursorrules"),
        Reply::new(200, "be good"),
    );
    let commit =
        |date: &str| json!({ "sha": "x", "commit": { "author": { "name": "n", "date": date } } });
    for (file, commits) in [
        (
            ".openhands%2Fmicroagents%2Frepo.md",
            json!([
                commit("2025-02-02T00:00:00Z"),
                commit("2025-01-01T00:00:00Z")
            ]),
        ),
        (
            ".openhands%2Fmicroagents%2Fsub%2Fdeploy.md",
            json!([commit("2025-03-03T00:00:00Z")]),
        ),
        (".cursorrules", json!([])),
    ] {
        server.on_json(
            &format!("GET /github/repos/acme/app/commits?path={file}&per_page=100"),
            &commits,
        );
    }
    let microagent = |name: &str, path: &str, created: Option<&str>| json!({ "name": name, "path": path, "created_at": created, "git_provider": "github" });
    let expected = json!([
        microagent(
            "repo",
            ".openhands/microagents/repo.md",
            Some("2025-01-01T00:00:00Z")
        ),
        microagent(
            "deploy",
            ".openhands/microagents/sub/deploy.md",
            Some("2025-03-03T00:00:00Z")
        ),
        microagent("cursorrules", ".cursorrules", None),
    ]);
    assert_eq!(
        json!(providers.microagents(HUB, "acme/app").await.unwrap()),
        expected
    );
}

#[tokio::test]
async fn microagents_are_none_when_the_folder_is_missing() {
    let (server, providers) = start().await;
    server.on_json(
        "GET /github/repos/acme/.openhands",
        &repository(7, "acme/.openhands"),
    );
    assert_eq!(
        providers.microagents(HUB, "acme/.openhands").await.unwrap(),
        []
    );
    assert_eq!(
        server.lines()[0],
        "GET /github/repos/acme/.openhands/contents/microagents"
    );
}

#[tokio::test]
async fn microagent_source_is_the_whole_file() {
    let (server, providers) = start().await;
    let text = "---\ntriggers: [deploy]\n---\nRun it.\n";
    server.on(
        "GET /github/repos/acme/app/contents/.openhands/microagents/a%20b.md",
        Reply::new(200, text),
    );
    let source = providers
        .microagent_source(HUB, "acme/app", ".openhands/microagents/a b.md")
        .await
        .unwrap();
    assert_eq!(
        (source.text.as_str(), source.git_provider),
        (text, GitProvider::GitHub)
    );
    assert_eq!(
        server.requests()[0].headers["accept"],
        "application/vnd.github.raw+json"
    );
}

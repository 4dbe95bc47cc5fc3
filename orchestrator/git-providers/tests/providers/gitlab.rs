//! GitLab's routes.

use git_providers::{GitError, GitProviders, RepositoryQuery, SearchQuery};
use protocol::client_api::git::{GitProvider, RepositorySort};
use serde_json::{Value, json};

use crate::scene::{TOKEN, providers};
use crate::server::{Reply, Server};

const LAB: Option<GitProvider> = Some(GitProvider::GitLab);

async fn start() -> (Server, GitProviders) {
    let server = Server::start().await;
    let providers = providers(&server, &[GitProvider::GitLab]);
    (server, providers)
}

fn project(id: u64) -> Value {
    json!({
        "id": id, "name": "App", "path": "app", "path_with_namespace": "acme/web/app",
        "default_branch": "main", "visibility": "public", "star_count": 3, "forks_count": 0,
        "last_activity_at": "2025-11-02T10:00:00.000Z",
        "namespace": { "id": 2, "name": "web", "kind": "group", "full_path": "acme/web" },
    })
}

fn expected_repository(id: &str, link: Option<&str>) -> Value {
    json!({
        "id": id, "full_name": "acme/web/app", "git_provider": "gitlab", "is_public": true,
        "stargazers_count": 3, "link_header": link, "pushed_at": "2025-11-02T10:00:00.000Z",
        "owner_type": "organization", "main_branch": "main",
    })
}

#[tokio::test]
async fn user_is_the_owner_of_the_token() {
    let (server, providers) = start().await;
    let account = json!({
        "id": 1, "username": "john", "name": "John Smith", "state": "active", "email": "john@example.com",
        "avatar_url": null, "organization": "",
    });
    server.on_json("GET /gitlab/user", &account);
    let expected = json!({
        "id": "1", "login": "john", "avatar_url": "", "company": null, "name": "John Smith",
        "email": "john@example.com",
    });
    assert_eq!(json!(providers.user().await.unwrap()), expected);
    assert_eq!(
        server.requests()[0].headers["authorization"],
        format!("Bearer {TOKEN}")
    );
}

#[tokio::test]
async fn installations_are_unsupported() {
    let (_, providers) = start().await;
    let error = providers
        .installations(GitProvider::GitLab)
        .await
        .unwrap_err();
    assert!(matches!(
        error,
        GitError::Unsupported {
            provider: GitProvider::GitLab,
            ..
        }
    ));
    assert_eq!(
        error.to_string(),
        "cannot list installations on gitlab: it does not support that"
    );
}

#[tokio::test]
async fn repositories_are_those_of_members() {
    let (server, providers) = start().await;
    let link = "<https://gitlab.com/api/v4/projects?page=2>; rel=\"next\"";
    let line = "GET /gitlab/projects?membership=true&order_by=path&sort=asc&page=1&per_page=20";
    server.on(
        line,
        Reply::json(&json!([project(4)])).with_header("link", link),
    );
    let query = RepositoryQuery {
        provider: LAB,
        sort: RepositorySort::FullName,
        page: 1,
        per_page: 20,
        installation_id: None,
    };
    let found = providers.repositories(&query).await.unwrap();
    assert_eq!(json!(found), json!([expected_repository("4", Some(link))]));
}

#[tokio::test]
async fn search_includes_groups_when_the_query_has_a_slash() {
    let (server, providers) = start().await;
    let line = "GET /gitlab/projects?membership=true&search=web%2Fapp&search_namespaces=true\
                &order_by=star_count&sort=desc&page=1&per_page=5";
    server.on_json(line, &json!([project(4)]));
    let query = SearchQuery {
        query: "web/app".into(),
        per_page: 5,
        ..SearchQuery::default()
    };
    let found = providers.search_repositories(&query).await.unwrap();
    assert_eq!(json!(found), json!([expected_repository("4", None)]));
}

#[tokio::test]
async fn project_is_found_by_its_escaped_path() {
    let (server, providers) = start().await;
    server.on_json("GET /gitlab/projects/acme%2Fweb%2Fapp", &project(4));
    let found = providers.repository(LAB, "acme/web/app").await.unwrap();
    assert_eq!(json!(found), expected_repository("4", None));
}

#[tokio::test]
async fn branches_are_paged_and_searched() {
    let (server, providers) = start().await;
    let body = json!([{
        "name": "main", "merged": false, "protected": true, "default": true,
        "commit": { "id": "7b5c3cc", "committed_date": "2025-06-27T03:44:20Z", "title": "x" },
    }]);
    let path = "GET /gitlab/projects/acme%2Fapp/repository/branches";
    let reply = Reply::json(&body)
        .with_header("x-total", "41")
        .with_header("link", "<x>; rel=\"next\"");
    server.on(&format!("{path}?page=2&per_page=30"), reply);
    server.on_json(&format!("{path}?search=ma&page=1&per_page=5"), &body);
    let branch = json!({
        "name": "main", "commit_sha": "7b5c3cc", "protected": true,
        "last_push_date": "2025-06-27T03:44:20Z",
    });
    let expected = json!({
        "branches": [branch], "has_next_page": true, "current_page": 2, "per_page": 30, "total_count": 41,
    });
    assert_eq!(
        json!(providers.branches(LAB, "acme/app", 2, 30).await.unwrap()),
        expected
    );
    assert_eq!(
        json!(
            providers
                .search_branches(LAB, "acme/app", "ma", 5)
                .await
                .unwrap()
        ),
        json!([branch])
    );
}

#[tokio::test]
async fn tasks_are_merge_requests_with_problems_and_issues() {
    let (server, providers) = start().await;
    let item = |iid: u64, mark: &str, has_conflicts: bool| {
        json!({
            "id": 100 + iid, "iid": iid, "project_id": 4, "title": "t", "has_conflicts": has_conflicts,
            "references": { "short": "x", "full": format!("acme/app{mark}{iid}") },
        })
    };
    server.on_json(
        "GET /gitlab/merge_requests?scope=created_by_me&state=opened&order_by=updated_at&page=1&per_page=100",
        &json!([item(1, "!", true), item(2, "!", false), item(3, "!", false), item(4, "!", false)]),
    );
    for (iid, pipeline) in [
        (2, json!({ "status": "failed" })),
        (3, Value::Null),
        (4, json!({ "status": "success" })),
    ] {
        let body = json!({ "iid": iid, "head_pipeline": pipeline });
        server.on_json(
            &format!("GET /gitlab/projects/4/merge_requests/{iid}"),
            &body,
        );
    }
    let note = |resolvable: bool, resolved: bool| json!({ "id": 1, "resolvable": resolvable, "resolved": resolved });
    for (iid, notes) in [
        (
            3,
            json!([{ "id": 1, "resolvable": false }, note(true, false)]),
        ),
        (4, json!([note(true, true)])),
    ] {
        let path =
            format!("GET /gitlab/projects/4/merge_requests/{iid}/discussions?page=1&per_page=100");
        server.on_json(&path, &json!([{ "id": "d", "notes": notes }]));
    }
    let path = "GET /gitlab/issues?scope=assigned_to_me&state=opened&page=1&per_page=100";
    server.on_json(path, &json!([item(9, "#", false)]));
    let task = |task_type: &str, number: u64| {
        json!({
            "git_provider": "gitlab", "task_type": task_type, "repo": "acme/app", "issue_number": number,
            "title": "t",
        })
    };
    let expected = json!([
        task("MERGE_CONFLICTS", 1),
        task("FAILING_CHECKS", 2),
        task("UNRESOLVED_COMMENTS", 3),
        task("OPEN_ISSUE", 9),
    ]);
    assert_eq!(json!(providers.suggested_tasks().await.unwrap()), expected);
}

#[tokio::test]
async fn microagents_are_found_in_the_tree() {
    let (server, providers) = start().await;
    let repository = "GET /gitlab/projects/acme%2Fopenhands-config/repository";
    let tree = json!([
        { "id": "a", "name": "a.md", "type": "blob", "path": "microagents/a.md", "mode": "100644" },
        { "id": "b", "name": "sub.md", "type": "tree", "path": "microagents/sub.md", "mode": "040000" },
    ]);
    let query = "path=microagents&recursive=true&page=1&per_page=100";
    server.on_json(&format!("{repository}/tree?{query}"), &tree);
    let commits = json!([{ "id": "x", "committed_date": "2025-02-02T00:00:00.000+00:00" }]);
    server.on_json(
        &format!("{repository}/commits?path=microagents%2Fa.md&page=1&per_page=100"),
        &commits,
    );
    let file = format!("{repository}/files/microagents%2Fa.md/raw?ref=HEAD");
    server.on(&file, Reply::new(200, "Be good."));
    let expected = json!([{
        "name": "a", "path": "microagents/a.md", "created_at": "2025-02-02T00:00:00.000+00:00",
        "git_provider": "gitlab",
    }]);
    assert_eq!(
        json!(
            providers
                .microagents(LAB, "acme/openhands-config")
                .await
                .unwrap()
        ),
        expected
    );
    let source = providers
        .microagent_source(LAB, "acme/openhands-config", "microagents/a.md")
        .await
        .unwrap();
    assert_eq!(source.text, "Be good.");
}

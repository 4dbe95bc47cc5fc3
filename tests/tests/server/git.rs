//! `/api/user/*` with a scripted git provider.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use reqwest::Method;
use serde_json::{Value, json};
use tests::glovebox::{Home, bash, finish};
use tests::host_server::{HostServer, is_state};
use tokio::net::TcpListener;

use super::workspace_git::create_repository;

const TOKEN: &str = "ghp_canary1234567890";

/// A port of this machine on which nothing listens.
const UNREACHABLE: &str = "127.0.0.1:1";

/// GitHub's API on loopback, with one reply for each method and path. Stops with the test's
/// runtime.
pub(super) struct GitHub {
    pub(super) url: String,
    script: Arc<Script>,
}

#[derive(Default)]
struct Script {
    replies: Mutex<BTreeMap<String, (u16, Value)>>,
    /// Method, path, query and `Authorization` of each request.
    requests: Mutex<Vec<(String, String)>>,
}

impl GitHub {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let script = Arc::<Script>::default();
        let router = Router::new()
            .fallback(reply)
            .with_state(Arc::clone(&script));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let github = Self { url, script };
        github.accept_tokens();
        github
    }

    /// Accepts all tokens that a server checks before it stores them, also for GitLab and
    /// Bitbucket.
    fn accept_tokens(&self) {
        self.on("GET /", 200, json!({}));
        self.on(
            "GET /user",
            200,
            json!({"id": 1, "username": "a", "uuid": "b"}),
        );
    }

    /// Returns the options of a server that sends the tokens of all providers here.
    pub(super) fn options(&self) -> Vec<String> {
        let apis = ["github", "gitlab", "bitbucket"].map(|name| format!("{name}={}", self.url));
        let apis = apis
            .into_iter()
            .flat_map(|api| ["--git-api".to_owned(), api]);
        apis.chain(["--allow-address", "127.0.0.0/8"].map(str::to_owned))
            .collect()
    }

    /// Sets the reply to a method and path. Other requests get 404.
    fn on(&self, line: &str, status: u16, body: Value) {
        self.script
            .replies
            .lock()
            .unwrap()
            .insert(line.to_owned(), (status, body));
    }

    /// Starts a server whose tokens for GitHub are sent here.
    fn serve(&self, home: &Home) -> HostServer {
        self.serve_script(home, &json!([finish()]))
    }

    fn serve_script(&self, home: &Home, script: &Value) -> HostServer {
        let options = self.options();
        let options: Vec<_> = options.iter().map(String::as_str).collect();
        HostServer::start(home, &home.script(script), &options)
    }
}

async fn reply(State(script): State<Arc<Script>>, request: Request) -> Response {
    let authorization = request.headers().get(header::AUTHORIZATION);
    let authorization = authorization
        .map(|value| value.to_str().unwrap().to_owned())
        .unwrap_or_default();
    let line = format!("{} {}", request.method(), request.uri());
    script.requests.lock().unwrap().push((line, authorization));
    let line = format!("{} {}", request.method(), request.uri().path());
    match script.replies.lock().unwrap().get(&line).cloned() {
        Some((status, Value::String(text))) => {
            (StatusCode::from_u16(status).unwrap(), text).into_response()
        }
        Some((status, body)) => {
            (StatusCode::from_u16(status).unwrap(), body.to_string()).into_response()
        }
        None => (StatusCode::NOT_FOUND, "{}").into_response(),
    }
}

async fn add_token(server: &HostServer) {
    let tokens = json!({"provider_tokens": {"github": {"token": TOKEN, "host": null}}});
    server.post("/api/add-git-providers", &tokens).await;
}

fn repository(name: &str) -> Value {
    json!({
        "id": 7, "full_name": name, "private": true, "owner": {"login": "acme", "type": "Organization"},
        "stargazers_count": 80, "default_branch": "main", "pushed_at": "2025-11-02T10:00:00Z",
    })
}

#[tokio::test]
async fn git_routes_have_the_shapes_of_v0() {
    let github = GitHub::start().await;
    let home = Home::new();
    let server = github.serve(&home);
    add_token(&server).await;
    let account = json!({"login": "octocat", "id": 1, "avatar_url": "https://a/", "name": "O"});
    github.on("GET /user", 200, account);
    github.on(
        "GET /user/installations",
        200,
        json!({"installations": [{"id": 42}]}),
    );
    github.on("GET /user/repos", 200, json!([repository("acme/app")]));
    github.on("GET /user/orgs", 200, json!([]));
    github.on(
        "GET /search/repositories",
        200,
        json!({"items": [repository("acme/app")]}),
    );
    let branch = json!({"name": "main", "commit": {"sha": "c5b97d5"}, "protected": true});
    github.on("GET /repos/acme/app/branches", 200, json!([branch]));
    let folder = "/repos/acme/app/contents/.openhands/microagents";
    let file = json!({"path": ".openhands/microagents/deploy.md", "type": "file"});
    github.on(&format!("GET {folder}"), 200, json!([file]));
    github.on("GET /repos/acme/app/commits", 200, json!([]));
    let text = "---\ntriggers: [deploy]\n---\nRun it.\n";
    github.on(&format!("GET {folder}/deploy.md"), 200, json!(text));

    let info = server.get("/api/user/info").await;
    assert_eq!(
        (&info["login"], &info["id"], &info["company"]),
        (&json!("octocat"), &json!("1"), &Value::Null)
    );
    assert_eq!(
        server.get("/api/user/installations?provider=github").await,
        json!(["42"])
    );
    let listed = json!([{
        "id": "7", "full_name": "acme/app", "git_provider": "github", "is_public": false, "stargazers_count": 80,
        "link_header": null, "pushed_at": "2025-11-02T10:00:00Z", "owner_type": "organization", "main_branch": "main",
    }]);
    let query = "selected_provider=github&sort=updated&page=2&per_page=7";
    assert_eq!(
        server.get(&format!("/api/user/repositories?{query}")).await,
        listed
    );
    assert_eq!(
        server
            .get("/api/user/search/repositories?query=app&order=asc")
            .await,
        listed
    );
    let branches = server
        .get("/api/user/repository/branches?repository=acme/app")
        .await;
    let main =
        json!({"name": "main", "commit_sha": "c5b97d5", "protected": true, "last_push_date": null});
    let page = json!({
        "branches": [main], "has_next_page": false, "current_page": 1, "per_page": 30, "total_count": null,
    });
    assert_eq!(branches, page);
    // Clients of V0 send the slash as it is, or encoded.
    for name in ["acme/app", "acme%2Fapp"] {
        let microagents = server
            .get(&format!("/api/user/repository/{name}/microagents"))
            .await;
        let deploy = json!({
            "name": "deploy", "path": ".openhands/microagents/deploy.md", "created_at": null, "git_provider": "github",
        });
        assert_eq!(microagents, json!([deploy]), "{name}");
        let path = "content?file_path=.openhands/microagents/deploy.md";
        let content = server
            .get(&format!("/api/user/repository/{name}/microagents/{path}"))
            .await;
        let expected = json!({
            "content": "Run it.", "path": ".openhands/microagents/deploy.md", "triggers": ["deploy"],
            "git_provider": "github",
        });
        assert_eq!(content, expected, "{name}");
    }
    let node = json!({"name": "fix/a", "branchProtectionRule": null, "target": {"oid": "aa218f5"}});
    github.on(
        "POST /graphql",
        200,
        json!({"data": {"repository": {"refs": {"nodes": [node]}}}}),
    );
    let found = server
        .get("/api/user/search/branches?repository=acme/app&query=fix")
        .await;
    assert_eq!(found[0]["name"], "fix/a");
    github.on(
        "POST /graphql",
        200,
        json!({"data": {"viewer": {"pullRequests": {"nodes": []}}}}),
    );
    let issue = json!({"number": 8, "title": "i", "repository": {"full_name": "acme/lib"}});
    github.on("GET /issues", 200, json!([issue]));
    let task = json!({
        "git_provider": "github", "task_type": "OPEN_ISSUE", "repo": "acme/lib", "issue_number": 8, "title": "i",
    });
    assert_eq!(server.get("/api/user/suggested-tasks").await, json!([task]));

    let requests = github.script.requests.lock().unwrap().clone();
    assert!(
        requests
            .iter()
            .all(|(_, authorization)| *authorization == format!("Bearer {TOKEN}"))
    );
    let lines: Vec<_> = requests.iter().map(|(line, _)| line.as_str()).collect();
    assert!(
        lines.contains(&"GET /user/repos?page=2&per_page=7&sort=updated"),
        "{lines:#?}"
    );
    let search = lines
        .iter()
        .find(|line| line.starts_with("GET /search/repositories"))
        .unwrap();
    assert!(
        search.ends_with("&sort=stars&order=asc&per_page=5"),
        "{search}"
    );
}

/// Stores tokens of three providers.
async fn add_tokens(server: &HostServer) {
    let token = json!({"token": TOKEN});
    let tokens = json!({"github": token, "gitlab": token, "bitbucket": token});
    server
        .post(
            "/api/add-git-providers",
            &json!({"provider_tokens": tokens}),
        )
        .await;
}

/// Returns the configuration of sandboxes that clone from `url` instead of the providers.
fn clone_from(url: &str) -> String {
    let hosts = ["github.com", "gitlab.com", "bitbucket.org"];
    let rules: Vec<_> = hosts
        .iter()
        .enumerate()
        .map(|(at, host)| {
            format!(
                "GIT_CONFIG_KEY_{at} = 'url.{url}.insteadOf', GIT_CONFIG_VALUE_{at} = 'https://{host}/acme/'"
            )
        })
        .collect();
    let count = hosts.len();
    let rules = rules.join(", ");
    format!("runtime_startup_env_vars = {{ GIT_CONFIG_COUNT = '{count}', {rules} }}\n")
}

/// Creates a conversation, and returns its description.
async fn info(server: &HostServer, request: Value) -> Value {
    let created = server.post("/api/conversations", &request).await;
    server
        .get(&format!(
            "/api/conversations/{}",
            created["conversation_id"].as_str().unwrap()
        ))
        .await
}

#[tokio::test]
async fn new_conversation_has_its_provider_and_trigger() {
    let github = GitHub::start().await;
    let home = Home::new();
    // Nothing is cloned from the providers.
    let config = format!(
        "[sandbox]\n{}",
        clone_from(&format!("https://{UNREACHABLE}/"))
    );
    home.write(".glovebox/config.toml", config);
    let server = github.serve_script(&home, &json!([finish(), finish(), finish()]));
    add_tokens(&server).await;
    let plain = info(&server, json!({})).await;
    assert_eq!(
        (&plain["git_provider"], &plain["trigger"]),
        (&Value::Null, &json!("gui"))
    );
    assert_eq!(plain["pr_number"], json!([]));

    let request =
        json!({"repository": "acme/sub/app", "git_provider": "gitlab", "selected_branch": "next"});
    let chosen = info(&server, request).await;
    assert_eq!(
        (&chosen["git_provider"], &chosen["selected_branch"]),
        (&json!("gitlab"), &json!("next"))
    );
    assert_eq!(chosen["selected_repository"], "acme/sub/app");

    let task = json!({
        "git_provider": "bitbucket", "task_type": "OPEN_PR", "repo": "acme/app", "issue_number": 7, "title": "Fix",
    });
    let created = server
        .post("/api/conversations", &json!({"suggested_task": task}))
        .await;
    let id = created["conversation_id"].as_str().unwrap().to_owned();
    let suggested = server.get(&format!("/api/conversations/{id}")).await;
    assert_eq!(
        (&suggested["git_provider"], &suggested["trigger"]),
        (&json!("bitbucket"), &json!("suggested_task"))
    );
    assert_eq!(suggested["selected_repository"], "acme/app");
    let events = server
        .wait_for_event(&id, |event| event["action"] == "message")
        .await;
    let message = events
        .iter()
        .find(|event| event["action"] == "message")
        .unwrap();
    assert!(
        message["args"]["content"]
            .as_str()
            .unwrap()
            .contains("pull request 7 of acme/app"),
        "{message}"
    );

    let microagent = json!({"repo": "acme/lib", "title": "Learn"});
    let request = json!({"create_microagent": microagent, "initial_user_msg": "Remember."});
    let learning = info(&server, request).await;
    assert_eq!(
        (&learning["trigger"], &learning["title"]),
        (&json!("microagent_management"), &json!("Learn"))
    );
    assert_eq!(learning["selected_repository"], "acme/lib");
    let bearer = server
        .request_without_key(Method::POST, "/api/conversations")
        .bearer_auth(&server.key);
    assert_eq!(bearer.send().await.unwrap().status(), 200);

    let triggers = async |query: &str| {
        let page = server.get(&format!("/api/conversations?{query}")).await;
        let results = page["results"].as_array().unwrap().clone();
        let triggers: Vec<_> = results
            .iter()
            .map(|info| info["trigger"].as_str().unwrap().to_owned())
            .collect();
        (triggers, page["next_page_id"].as_str().map(str::to_owned))
    };
    let all = [
        "openhands_api",
        "microagent_management",
        "suggested_task",
        "gui",
        "gui",
    ];
    let mut found = triggers("").await.0;
    found.sort_unstable();
    let mut expected = all.map(str::to_owned);
    expected.sort_unstable();
    assert_eq!(found, expected);
    assert_eq!(
        triggers("conversation_trigger=suggested_task").await,
        (vec!["suggested_task".to_owned()], None)
    );
    assert_eq!(triggers("conversation_trigger=slack").await, (vec![], None));
    // A conversation that gets an event between two pages moves to the first one.
    for started in [&plain, &chosen] {
        let id = started["conversation_id"].as_str().unwrap();
        let is_at_its_end = |event: &Value| {
            ["awaiting_user_input", "error"]
                .map(Value::from)
                .contains(&event["extras"]["agent_state"])
        };
        server.wait_for_event(id, is_at_its_end).await;
    }
    let (first, next) = triggers("conversation_trigger=gui&limit=1").await;
    let second = triggers(&format!(
        "conversation_trigger=gui&limit=1&page_id={}",
        next.unwrap()
    ))
    .await;
    assert_eq!(
        (first, second),
        (vec!["gui".to_owned()], (vec!["gui".to_owned()], None))
    );

    // Lists read no logs: from here on, these cannot be read.
    let database = rusqlite::Connection::open(home.path().join(".glovebox/glovebox.db")).unwrap();
    database
        .execute_batch("UPDATE events SET json = '{'")
        .unwrap();
    let expected = (vec!["microagent_management".to_owned()], None);
    assert_eq!(
        triggers("conversation_trigger=microagent_management").await,
        expected
    );

    let microagents = async |query: &str| {
        let path = format!("/api/microagent-management/conversations?{query}");
        let (status, page) = server.send(Method::GET, &path, None).await;
        let ids = page["results"].as_array().map(|results| {
            results
                .iter()
                .map(|info| info["conversation_id"].clone())
                .collect::<Vec<_>>()
        });
        (status.as_u16(), ids, page["next_page_id"].clone())
    };
    let only = (
        200,
        Some(vec![learning["conversation_id"].clone()]),
        Value::Null,
    );
    assert_eq!(
        microagents("selected_repository=acme/lib&limit=1").await,
        only
    );
    // Of another repository, of another trigger, and a part of a name.
    for other in ["acme/none", "acme/app", "acme/li"] {
        let found = microagents(&format!("selected_repository={other}")).await;
        assert_eq!(found, (200, Some(vec![]), Value::Null), "{other}");
    }
    assert_eq!(microagents("limit=1").await.0, 422);
    let listed = async |query: &str| {
        server.get(&format!("/api/conversations?{query}")).await["results"].clone()
    };
    let by_name = listed("selected_repository=acme/sub/app").await;
    assert_eq!(
        (
            by_name.as_array().unwrap().len(),
            &by_name[0]["git_provider"]
        ),
        (1, &json!("gitlab"))
    );
    assert_eq!(
        listed("selected_repository=/acme/")
            .await
            .as_array()
            .unwrap()
            .len(),
        3
    );

    for (request, status, code, field) in [
        (
            json!({"git_provider": "gitea"}),
            422,
            "API$INVALID_REQUEST",
            json!("git_provider"),
        ),
        (
            json!({"suggested_task": {"repo": "a/b"}}),
            422,
            "API$INVALID_REQUEST",
            json!("suggested_task"),
        ),
        (
            json!({"repository": "a/../b", "git_provider": "gitlab"}),
            400,
            "CONVERSATION$REJECTED",
            Value::Null,
        ),
        (
            json!({"repository": "a/b/c", "git_provider": "github"}),
            400,
            "CONVERSATION$REJECTED",
            Value::Null,
        ),
    ] {
        let (found, body) = server
            .send(Method::POST, "/api/conversations", Some(&request))
            .await;
        let found = (found.as_u16(), &body["msg_id"], &body["field"]);
        assert_eq!(found, (status, &json!(code), &field), "{body}");
    }
    let unknown = server
        .send(
            Method::GET,
            "/api/conversations?conversation_trigger=x",
            None,
        )
        .await;
    assert_eq!(
        (unknown.0.as_u16(), &unknown.1["field"]),
        (422, &json!("conversation_trigger"))
    );
}

/// Commands see the credentials for the clone; the log and the model do not.
#[tokio::test]
async fn token_of_the_provider_is_used_for_the_clone() {
    let gitlab = GitHub::start().await;
    let home = Home::new();
    let upstream = home.path().join("upstream");
    create_repository(&upstream.join("b.git"), &[("README", "")], &[]);
    // Of two rules, git uses the one with the longer prefix.
    let rule = format!(
        "GIT_CONFIG_KEY_0 = 'url.file://{}/.insteadOf'",
        upstream.display()
    );
    let rules =
        format!("GIT_CONFIG_COUNT = '1', {rule}, GIT_CONFIG_VALUE_0 = 'https://gitlab.com/a/'");
    let volume = format!("{0}:{0}:ro", upstream.display());
    home.write(
        ".glovebox/config.toml",
        format!("[sandbox]\nvolumes = \"{volume}\"\nruntime_startup_env_vars = {{ {rules} }}\n"),
    );
    let command = "find \"$PWD\" -name README; printenv GIT_CONFIG_KEY_1; printf %s \"$GIT_CONFIG_KEY_1\" | sha256sum";
    let server = gitlab.serve_script(&home, &json!([bash(command), finish()]));
    let tokens = json!({"gitlab": {"token": TOKEN}});
    server
        .post(
            "/api/add-git-providers",
            &json!({"provider_tokens": tokens}),
        )
        .await;
    let request = json!({"repository": "a/b", "git_provider": "gitlab", "initial_user_msg": "Go."});
    let created = server.post("/api/conversations", &request).await;
    let id = created["conversation_id"].as_str().unwrap();
    let events = server
        .wait_for_event(id, |event| is_state(event, "finished"))
        .await;
    let text = json!(events).to_string();
    let key = format!("url.https://oauth2:{TOKEN}@gitlab.com/.insteadOf");
    let digest = ring::digest::digest(&ring::digest::SHA256, key.as_bytes());
    let hex: String = digest
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert!(
        text.contains(&hex) && text.contains("b/README"),
        "{events:#?}"
    );
    assert!(!text.contains("canary"), "{events:#?}");
    server.terminate();
    let log = std::fs::read_to_string(home.path().join("serve.log")).unwrap();
    assert!(!log.contains("canary"), "{log}");
}

#[tokio::test]
async fn token_is_stored_only_if_its_provider_accepts_it() {
    let github = GitHub::start().await;
    let home = Home::new();
    let server = github.serve(&home);
    server.post("/api/settings", &json!({})).await;
    add_token(&server).await;
    let add = async |token: &str, host: Option<&str>| {
        let tokens = json!({"provider_tokens": {"github": {"token": token, "host": host}}});
        let (status, body) = server
            .send(Method::POST, "/api/add-git-providers", Some(&tokens))
            .await;
        (status.as_u16(), body)
    };
    for (reply, status, code) in [
        (401, 401, "GIT$TOKEN_REJECTED"),
        (500, 502, "GIT$PROVIDER_FAILED"),
    ] {
        github.on("GET /", reply, json!({}));
        let (found, body) = add("ghp_other", None).await;
        assert_eq!((found, &body["msg_id"]), (status, &json!(code)), "{body}");
        // V0's page shows this text.
        let invalid = "Invalid token. Please make sure it is a valid github token.";
        assert_eq!(body["error"] == invalid, reply == 401, "{body}");
    }
    // The stored token is checked with a new host only.
    assert_eq!(add("", None).await.0, 200);
    let (found, body) = add("", Some(UNREACHABLE)).await;
    assert_eq!(
        (found, &body["msg_id"]),
        (502, &json!("GIT$PROVIDER_FAILED"))
    );
    let stored = server.get("/api/settings").await;
    assert_eq!(stored["provider_tokens_set"], json!({"github": null}));
    server.send(Method::GET, "/api/user/info", None).await;
    let (line, authorization) = github.script.requests.lock().unwrap().pop().unwrap();
    assert_eq!(
        (line.as_str(), authorization),
        ("GET /user", format!("Bearer {TOKEN}"))
    );
    server.terminate();
}

#[tokio::test]
async fn git_routes_ask_for_a_token_when_there_is_none() {
    let github = GitHub::start().await;
    let home = Home::new();
    let server = github.serve(&home);
    for path in [
        "installations?provider=github",
        "repositories",
        "info",
        "search/repositories?query=a",
        "search/branches?repository=a/b&query=c",
        "suggested-tasks",
        "repository/branches?repository=a/b",
        "repository/a/b/microagents",
        "repository/a/b/microagents/content?file_path=c.md",
    ] {
        let path = format!("/api/user/{path}");
        assert_eq!(server.status_with_key(&path, None).await, 401, "{path}");
        let (status, body) = server.send(Method::GET, &path, None).await;
        assert_eq!(
            (status.as_u16(), &body["msg_id"]),
            (401, &json!("GIT$NO_TOKEN")),
            "{path}"
        );
        assert!(
            body["error"]
                .as_str()
                .unwrap()
                .contains("add one in the settings"),
            "{body}"
        );
    }
    assert_eq!(github.script.requests.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn git_route_names_the_field_when_it_is_malformed() {
    let home = Home::new();
    let server = GitHub::start().await.serve(&home);
    let long = format!("search/repositories?query={}", "a".repeat(1025));
    for (path, field) in [
        ("installations", "query"),
        ("installations?provider=gitea", "provider"),
        ("repositories?sort=size", "sort"),
        ("repositories?page=-1", "page"),
        ("search/branches?query=a", "query"),
        ("repository/a/b/microagents/content", "file_path"),
        (&long, "query"),
    ] {
        let (status, body) = server
            .send(Method::GET, &format!("/api/user/{path}"), None)
            .await;
        assert_eq!(&body["field"], field, "{path}: {body}");
        assert!(
            [400, 422].contains(&status.as_u16()),
            "{path}: {status} {body}"
        );
    }
    for path in ["repository/a/b", "repository/a/b/other", "other"] {
        assert_eq!(
            server
                .send(Method::GET, &format!("/api/user/{path}"), None)
                .await
                .0,
            404,
            "{path}"
        );
    }
    assert_eq!(
        server.send(Method::POST, "/api/user/info", None).await.0,
        405
    );
}

#[tokio::test]
async fn failure_of_a_provider_does_not_leak_the_token() {
    let github = GitHub::start().await;
    let home = Home::new();
    let server = github.serve(&home);
    add_token(&server).await;
    let echo = json!({"message": format!("bad token {TOKEN}")});
    for (status, expected, code) in [
        (401, 401, "GIT$TOKEN_REJECTED"),
        (429, 429, "GIT$RATE_LIMITED"),
        (500, 502, "GIT$PROVIDER_FAILED"),
        (200, 502, "GIT$PROVIDER_FAILED"),
    ] {
        github.on("GET /user", status, echo.clone());
        let (found, body) = server.send(Method::GET, "/api/user/info", None).await;
        assert_eq!(
            (found.as_u16(), &body["msg_id"]),
            (expected, &json!(code)),
            "{status}: {body}"
        );
        assert!(!body.to_string().contains("canary"), "{body}");
    }
    let (status, body) = server
        .send(Method::GET, "/api/user/repository/a/b/microagents", None)
        .await;
    assert_eq!(
        (status.as_u16(), &body["msg_id"]),
        (404, &json!("GIT$NOT_FOUND")),
        "{body}"
    );
    // Addresses of this machine's networks are refused, unless the operator allows them.
    for host in [
        "169.254.169.254",
        "https://10.0.0.1/git",
        "https://[fd00::1]",
    ] {
        let tokens = json!({"provider_tokens": {"github": {"token": TOKEN, "host": host}}});
        let (status, body) = server
            .send(Method::POST, "/api/add-git-providers", Some(&tokens))
            .await;
        assert_eq!(
            (status.as_u16(), &body["msg_id"]),
            (400, &json!("GIT$ADDRESS_REFUSED")),
            "{host}: {body}"
        );
    }
    server.terminate();
    let log = std::fs::read_to_string(home.path().join("serve.log")).unwrap();
    assert!(!log.contains("canary"), "{log}");
}

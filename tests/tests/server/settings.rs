//! Settings, tokens and secrets: their routes, their effect on conversations, and that no value of
//! a secret gets out.

use std::path::Path;

use reqwest::Method;
use serde_json::{Value, json};
use tests::glovebox::{Home, bash, finish, tool_call};
use tests::host_server::{HostServer, is_state};
use tests::model_server::{ModelReply, ModelServer};

use super::git::GitHub;

/// Part of every secret of these tests.
const NEEDLE: &str = "needle-in-the-files";

/// Starts a server whose model finishes at once.
fn start(home: &Home) -> HostServer {
    HostServer::start(home, &home.script(&json!([finish()])), &[])
}

fn strs(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}

/// Starts a server without a model of its own, which logs everything that it can.
fn start_without_model(home: &Home, arguments: &[&str]) -> HostServer {
    let own = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--runtime",
        "local",
        "--rate-limit",
        "off",
    ];
    let mut command = home.glovebox(&[&own, arguments].concat());
    HostServer::from_command(home, command.env("RUST_LOG", "trace"))
}

/// Checks that no file below the folder contains a secret.
#[track_caller]
fn assert_no_needle(folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => assert_no_needle(&path),
            kind if kind.is_file() => {
                let bytes = std::fs::read(&path).unwrap();
                let has_needle = bytes
                    .windows(NEEDLE.len())
                    .any(|window| window == NEEDLE.as_bytes());
                assert!(!has_needle, "{} has a secret", path.display());
            }
            _ => {}
        }
    }
}

#[tokio::test]
async fn settings_are_returned_as_stored_without_keys() {
    let home = Home::new();
    let server = start(&home);
    let (status, missing) = server.send(Method::GET, "/api/settings", None).await;
    assert_eq!(
        (status.as_u16(), missing["error"].is_string()),
        (404, true),
        "{missing}"
    );

    let mut posted = json!({
        "language": "de", "agent": "CodeActAgent", "max_iterations": 30, "security_analyzer": "llm",
        "confirmation_mode": true, "remote_runtime_resource_factor": 2.0, "enable_default_condenser": false,
        "enable_sound_notifications": true, "user_consents_to_analytics": false,
        "sandbox_base_container_image": "base", "sandbox_runtime_container_image": "image",
        "mcp_config": {"sse_servers": [{"url": "https://h/", "api_key": null}], "stdio_servers": []},
        "max_budget_per_task": 1.5, "condenser_max_size": 100, "email": "a@example.org",
        "git_user_name": "A", "git_user_email": "a@example.org", "llm_model": "openai/gpt-4o",
        "llm_base_url": "https://models.example/v1", "enable_solvability_analysis": true,
    });
    let mut with_keys = posted.clone();
    for key in ["llm_api_key", "search_api_key", "sandbox_api_key"] {
        with_keys[key] = json!(format!("{NEEDLE}-{key}"));
    }
    // A field of the page that this server does not know.
    with_keys["is_new_user"] = json!(false);
    assert!(server.post("/api/settings", &with_keys).await["message"].is_string());
    let stored = server.get("/api/settings").await;
    // V0's page needs all lists.
    posted["mcp_config"]["shttp_servers"] = json!([]);
    for (field, value) in posted.as_object().unwrap() {
        assert_eq!(&stored[field], value, "{field}");
    }
    assert_eq!(
        (&stored["llm_api_key_set"], &stored["search_api_key_set"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(
        (&stored["llm_api_key"], &stored["provider_tokens_set"]),
        (&Value::Null, &json!({}))
    );

    // V0's page sends back what it has received.
    server.post("/api/settings", &stored).await;
    assert_eq!(server.get("/api/settings").await, stored);
    server.kill();
    let server = start(&home);
    assert_eq!(server.get("/api/settings").await, stored);
    server.terminate();
    assert_no_needle(home.path());
}

#[tokio::test]
async fn git_tokens_are_stored_by_provider_and_removed() {
    let providers = GitHub::start().await;
    let home = Home::new();
    let model = home.script(&json!([finish()]));
    let server = HostServer::start(&home, &model, &strs(&providers.options()));
    server.post("/api/settings", &json!({})).await;
    let tokens = json!({"provider_tokens": {
        "github": {"token": format!("{NEEDLE}-1"), "user_id": null, "host": null},
        "gitlab": {"token": format!("{NEEDLE}-2"), "host": "gitlab.com"},
    }});
    server.post("/api/add-git-providers", &tokens).await;
    let stored = server.get("/api/settings").await;
    assert_eq!(
        stored["provider_tokens_set"],
        json!({"github": null, "gitlab": "gitlab.com"})
    );
    let unknown = json!({"provider_tokens": {"other": {"token": "x"}}});
    assert_eq!(
        server
            .send(Method::POST, "/api/add-git-providers", Some(&unknown))
            .await
            .0,
        422
    );
    server.post("/api/unset-provider-tokens", &json!({})).await;
    assert_eq!(
        server.get("/api/settings").await["provider_tokens_set"],
        json!({})
    );
    server.terminate();
    assert_no_needle(home.path());
}

#[tokio::test]
async fn secrets_are_listed_without_values_and_changed() {
    let home = Home::new();
    let server = start(&home);
    let send = |method: Method, path: &'static str, body: Value| {
        let server = &server;
        async move {
            let (status, body) = server.send(method, path, Some(&body)).await;
            assert!(!body.to_string().contains(NEEDLE), "{body}");
            (status.as_u16(), body)
        }
    };
    let secret = json!({"name": "A", "value": NEEDLE, "description": "first"});
    assert_eq!(
        send(Method::POST, "/api/secrets", secret.clone()).await.0,
        201
    );
    let (status, exists) = send(Method::POST, "/api/secrets", secret).await;
    assert_eq!((status, &exists["msg_id"]), (400, &json!("SECRET$EXISTS")));
    assert_eq!(
        send(Method::PUT, "/api/secrets/A", json!({"name": "B"}))
            .await
            .0,
        200
    );
    assert_eq!(
        send(Method::PUT, "/api/secrets/A", json!({"name": "C"}))
            .await
            .0,
        404
    );
    assert_eq!(
        send(Method::DELETE, "/api/secrets/A", json!({})).await.0,
        404
    );
    let listed = json!({"custom_secrets": [{"name": "B", "description": ""}]});
    assert_eq!(server.get("/api/secrets").await, listed);
    assert_eq!(
        send(Method::DELETE, "/api/secrets/B", json!({})).await.0,
        200
    );
    assert_eq!(
        server.get("/api/secrets").await,
        json!({"custom_secrets": []})
    );
    server.terminate();
    assert_no_needle(home.path());
}

#[tokio::test]
async fn malformed_settings_name_their_field_and_no_value() {
    let home = Home::new();
    let server = start(&home);
    let number: u64 = 4_242_424_242;
    for (path, body, field) in [
        (
            "/api/settings",
            json!({"llm_api_key": number}),
            "llm_api_key",
        ),
        (
            "/api/settings",
            json!({"search_api_key": {"a": number}}),
            "search_api_key",
        ),
        (
            "/api/settings",
            json!({"llm_api_key": "4242424242 with\nlines"}),
            "llm_api_key",
        ),
        ("/api/settings", json!({"agent": "Other"}), "agent"),
        (
            "/api/settings",
            json!({"security_analyzer": "/etc/passwd"}),
            "security_analyzer",
        ),
        (
            "/api/settings",
            json!({"llm_model": "scripted:/etc/passwd"}),
            "llm_model",
        ),
        (
            "/api/settings",
            json!({"condenser_max_size": 1}),
            "condenser_max_size",
        ),
        (
            "/api/settings",
            json!({"max_iterations": -1}),
            "max_iterations",
        ),
        (
            "/api/settings",
            json!({"llm_base_url": "http://169.254.169.254/latest"}),
            "llm_base_url",
        ),
        (
            "/api/settings",
            json!({"llm_base_url": "http://127.0.0.1:1"}),
            "llm_base_url",
        ),
        (
            "/api/settings",
            json!({"llm_base_url": "file:///etc/passwd"}),
            "llm_base_url",
        ),
        (
            "/api/secrets",
            json!({"name": "A", "value": number}),
            "value",
        ),
        (
            "/api/secrets",
            json!({"name": "A", "value": "4242"}),
            "value",
        ),
        (
            "/api/secrets",
            json!({"name": "A B", "value": "4242424242"}),
            "name",
        ),
        ("/api/secrets", json!({"name": "A"}), "value"),
    ] {
        let (status, error) = server.send(Method::POST, path, Some(&body)).await;
        assert!(
            [400, 422].contains(&status.as_u16()),
            "{body}: {status} {error}"
        );
        let named = error["field"].as_str().unwrap_or_default();
        assert!(
            named == field || error["message"].as_str().unwrap().contains(field),
            "{body}: {error}"
        );
        assert!(!error.to_string().contains("4242"), "{error}");
    }
    assert_eq!(
        server.send(Method::GET, "/api/settings", None).await.0,
        404,
        "nothing is stored"
    );
    // Last, because the server may close the connection. One byte too many, so that it has read all
    // of them.
    let large = server
        .request(Method::POST, "/api/settings")
        .body(" ".repeat((1 << 20) + 1));
    assert_eq!(large.send().await.unwrap().status(), 413);
}

#[tokio::test]
async fn secrets_and_author_reach_commands_and_are_redacted() {
    let home = Home::new();
    let command =
        "echo \"$GIT_AUTHOR_NAME ${#MY_SECRET} ${#GITHUB_TOKEN} [$MY_SECRET] [$GITHUB_TOKEN]\"";
    let script = home.script(&json!([bash(command), finish()]));
    let github = GitHub::start().await;
    let arguments = [["-l".to_owned(), script].as_slice(), &github.options()].concat();
    let server = start_without_model(&home, &strs(&arguments));
    server
        .post("/api/settings", &json!({"git_user_name": "Ada"}))
        .await;
    let secret = format!("{NEEDLE}-secret");
    server
        .post(
            "/api/secrets",
            &json!({"name": "MY_SECRET", "value": secret}),
        )
        .await;
    let token = format!("{NEEDLE}-of-github");
    server
        .post(
            "/api/add-git-providers",
            &json!({"provider_tokens": {"github": {"token": token}}}),
        )
        .await;
    let id = server.create("Use them.").await;
    let events = server
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;
    let run = events
        .iter()
        .find(|event| event["observation"] == "run")
        .unwrap();
    let output = run["content"].as_str().unwrap();
    assert!(
        output.starts_with(&format!("Ada {} {} [", secret.len(), token.len())),
        "{output}"
    );
    assert!(!json!(events).to_string().contains(NEEDLE), "{events:#?}");
    server.terminate();
    assert_no_needle(home.path());
}

#[tokio::test]
async fn confirmation_of_the_settings_is_required() {
    let home = Home::new();
    let server = HostServer::start(&home, &home.script(&json!([bash("echo a"), finish()])), &[]);
    server
        .post("/api/settings", &json!({"confirmation_mode": true}))
        .await;
    let id = server.create("Echo.").await;
    server
        .wait_for_event(&id, |event| is_state(event, "awaiting_user_confirmation"))
        .await;
}

#[tokio::test]
async fn limit_of_the_settings_lowers_that_of_the_operator() {
    let home = Home::new();
    let script = home.script(&json!([
        bash("echo a"),
        bash("echo b"),
        bash("echo c"),
        finish()
    ]));
    let server = HostServer::start(&home, &script, &[]);
    server
        .post("/api/settings", &json!({"max_iterations": 2}))
        .await;
    let id = server.create("Echo.").await;
    let events = server
        .wait_for_event(&id, |event| is_state(event, "error"))
        .await;
    let runs = events
        .iter()
        .filter(|event| event["observation"] == "run")
        .count();
    assert_eq!(runs, 2, "{events:#?}");
}

#[tokio::test]
async fn model_of_the_settings_is_called() {
    let home = Home::new();
    let model =
        ModelServer::start([ModelReply::call("finish", &json!({"message": "Done."}))]).await;
    let server = start_without_model(&home, &["--allow-address", "127.0.0.1"]);
    server
        .post("/api/settings", &json!({"llm_model": "openai/gpt-4o"}))
        .await;
    let (status, error) = server
        .send(Method::POST, "/api/conversations", Some(&json!({})))
        .await;
    assert_eq!(
        (status.as_u16(), &error["msg_id"]),
        (400, &json!("STATUS$ERROR_LLM_AUTHENTICATION"))
    );
    assert_eq!(
        server.get("/api/conversations").await["results"],
        json!([]),
        "no half-written conversation"
    );

    let settings =
        json!({"llm_base_url": model.base_url, "llm_api_key": format!("{NEEDLE}-of-the-model")});
    server.post("/api/settings", &settings).await;
    let id = server.create("Finish.").await;
    server
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;
    model.called(1).await;
    server.terminate();
    assert_no_needle(home.path());
}

/// Without an analyzer, every risk is unknown.
#[tokio::test]
async fn risk_that_the_model_declares_avoids_no_confirmation() {
    let home = Home::new();
    home.write(
        ".glovebox/config.toml",
        "[security]\nconfirmation_policy = \"high\"\n",
    );
    let command = json!({"command": "touch ran", "security_risk": "LOW"});
    let script = home.script(&json!([tool_call("execute_bash", &command), finish()]));
    let server = HostServer::start(&home, &script, &[]);
    let id = server.create("Run it.").await;
    let events = server
        .wait_for_event(&id, |event| is_state(event, "awaiting_user_confirmation"))
        .await;
    assert!(
        events.iter().all(|event| event["observation"] != "run"),
        "{events:#?}"
    );
    server
        .post(&format!("/api/conversations/{id}/stop"), &json!({}))
        .await;
    server.terminate();
    home.assert_nothing_runs();
}

/// A server without a model has a scripted one, so that a first look needs no key.
#[tokio::test]
async fn first_look_needs_no_model() {
    let home = Home::new();
    let server = start_without_model(&home, &[]);
    // V0's page asks for a model before the first conversation. Its name has no path of this
    // machine.
    let models = server.get("/api/options/models").await;
    assert_eq!(models[0], "glovebox/scripted", "{models}");
    server
        .post("/api/settings", &json!({"llm_model": models[0]}))
        .await;
    let id = server.create("Hello.").await;
    let events = server
        .wait_for_event(&id, |event| is_state(event, "awaiting_user_input"))
        .await;
    assert!(
        events.iter().any(|event| event["observation"] == "run"),
        "{events:#?}"
    );
    server
        .wait_for_event(&id, |event| {
            event["source"] == "agent" && event["action"] == "message"
        })
        .await;
    server
        .post(&format!("/api/conversations/{id}/stop"), &json!({}))
        .await;
    server.terminate();
    home.assert_nothing_runs();
}

/// The name passes the check of URLs: only the connection shows where it leads.
#[tokio::test]
async fn model_in_the_operators_network_is_not_called() {
    let home = Home::new();
    home.write(".glovebox/config.toml", "[llm]\nnum_retries = 0\n");
    let model = ModelServer::start([]).await;
    let server = start_without_model(&home, &[]);
    let base_url = model.base_url.replace("127.0.0.1", "localhost");
    let settings =
        json!({"llm_model": "openai/m", "llm_base_url": base_url, "llm_api_key": "a-key"});
    server.post("/api/settings", &settings).await;
    let id = server.create("Finish.").await;
    server
        .wait_for_event(&id, |event| is_state(event, "error"))
        .await;
    assert_eq!(model.call_count(), 0);
}

#[tokio::test]
async fn settings_of_another_key_are_refused_at_the_start() {
    let home = Home::new();
    let with_key = |key: &str| {
        let mut command =
            home.glovebox(&["serve", "--listen", "127.0.0.1:0", "--runtime", "local"]);
        command.env("GLOVEBOX_SECRETS_KEY", key);
        command
    };
    let server = HostServer::from_command(&home, &mut with_key("a-key-of-the-operator"));
    server
        .post("/api/settings", &json!({"language": "de"}))
        .await;
    server.terminate();
    let refused = with_key("another-key-by-mistake").output().unwrap();
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && error.contains("restore the key"),
        "{error}"
    );
    // The key that the first start generates fits nothing, and does not stay.
    let serve = ["serve", "--listen", "127.0.0.1:0", "--runtime", "local"];
    let refused = home.run(&serve).expect(2);
    assert!(refused.stderr.contains("restore the key"), "{refused:?}");
    assert!(!home.path().join(".glovebox/secrets-key").exists());
    let file = home.write("key", "a-key-of-the-operator\n");
    let mut command = home.glovebox(&["serve", "--listen", "127.0.0.1:0", "--runtime", "local"]);
    let server = HostServer::from_command(&home, command.env("GLOVEBOX_SECRETS_KEY_FILE", file));
    assert_eq!(server.get("/api/settings").await["language"], "de");
}

#[tokio::test]
async fn damaged_settings_are_an_error_and_not_a_crash() {
    let home = Home::new();
    let server = start(&home);
    server
        .post("/api/settings", &json!({"language": "de"}))
        .await;
    let file = home.path().join(".glovebox/settings.db");
    let database = rusqlite::Connection::open(file).unwrap();
    database
        .execute("UPDATE documents SET sealed = zeroblob(100)", [])
        .unwrap();
    for (method, path) in [
        (Method::GET, "/api/settings"),
        (Method::POST, "/api/settings"),
    ] {
        let (status, error) = server.send(method, path, Some(&json!({}))).await;
        assert_eq!(
            (status.as_u16(), &error["msg_id"]),
            (500, &json!("SERVER$FAILED"))
        );
    }
    assert_eq!(
        server
            .send(Method::POST, "/api/conversations", Some(&json!({})))
            .await
            .0,
        500
    );
    assert_eq!(server.get("/api/conversations").await["results"], json!([]));
    assert_eq!(server.get("/health").await, "OK");
}

//! Faulty servers: unresponsive, with invalid output, or with too much of it.

use std::time::{Duration, Instant};

use engine::tool_servers::ToolServers as _;
use serde_json::json;

use crate::fixture::{call, is_error, names, servers, wait_until};
use crate::script::{Script, list, text_result};

#[tokio::test(flavor = "multi_thread")]
async fn unresponsive_server_delays_no_other_and_times_out() {
    let good = Script::default().write();
    let silent = Script {
        on_initialize: "echo still thinking >&2".into(),
        ..Default::default()
    }
    .write();
    let mut slow = silent.server("silent");
    slow.start_timeout = Duration::from_millis(500);
    let servers = servers(vec![slow.clone(), good.server("good"), slow]);
    let started = Instant::now();
    let offer = servers.offer(None).await;
    assert!(
        started.elapsed() < Duration::from_secs(20),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(names(&offer), ["echo"]);
    assert_eq!(offer.failures.len(), 2);
    assert_eq!(
        offer.failures[0].reason,
        "it was not ready within 0.5 seconds; it wrote: still thinking"
    );
    // It is not started again.
    let started = Instant::now();
    assert_eq!(servers.offer(None).await, offer);
    assert!(
        started.elapsed() < Duration::from_millis(400),
        "{:?}",
        started.elapsed()
    );
    servers.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_quoted_without_secrets_when_server_exits() {
    let script = Script {
        at_start: "echo \"no key like $TOKEN is known\" >&2; exit 3".into(),
        ..Default::default()
    }
    .write();
    let mut server = script.server("picky");
    let mcp::Transport::Host(program) = &mut server.transport else {
        panic!()
    };
    program.env.insert("TOKEN".into(), "hunter2-hunter2".into());
    let servers = servers(vec![server]);
    let offer = servers.offer(None).await;
    let reason = &offer.failures[0].reason;
    assert!(reason.starts_with("the MCP handshake failed: "), "{reason}");
    assert!(
        reason.ends_with("it wrote: no key like [redacted] is known"),
        "{reason}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn output_between_messages_is_ignored() {
    let noisy =
        "echo 'debug: not JSON'; echo '{\"half\":'; echo; echo '[]'; printf '\\377\\376\\n'"
            .to_owned();
    let script = Script {
        at_start: noisy.clone(),
        on_call: format!("{noisy}\n{}", text_result("still here")),
        ..Default::default()
    }
    .write();
    let servers = servers(vec![script.server("noisy")]);
    assert_eq!(names(&servers.offer(None).await), ["echo"]);
    assert_eq!(
        call(&servers, "echo", json!({})).await.content,
        "still here"
    );
    servers.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn line_is_dropped_when_it_does_not_end() {
    let script = Script {
        on_call: "head -c 40000000 /dev/zero | tr '\\0' x; echo; sleep 1000".into(),
        ..Default::default()
    };
    let script = script.write();
    let mut server = script.server("endless");
    server.call_timeout = Duration::from_secs(5);
    let servers = servers(vec![server]);
    servers.offer(None).await;
    let observation = call(&servers, "echo", json!({})).await;
    assert!(
        is_error(&observation)
            && observation
                .content
                .contains("did not respond within 5 seconds"),
        "{observation:?}"
    );
    servers.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tool_list_is_truncated_when_it_does_not_end() {
    let page = r#"{"tools":[{"name":"t%s","inputSchema":{"type":"object"}}],"nextCursor":"%s"}"#;
    let on_list = format!("page=$((page + 1)); answer \"$(printf '{page}' $page $page)\"");
    let script = Script {
        on_list,
        ..Default::default()
    }
    .write();
    let servers = servers(vec![script.server("endless")]);
    let offer = servers.offer(None).await;
    assert_eq!(
        (offer.tools.len(), offer.tools[99].name.as_str()),
        (100, "t100")
    );
    servers.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tool_list_ends_when_a_cursor_repeats() {
    let page = r#"{"tools":[{"name":"t","inputSchema":{"type":"object"}}],"nextCursor":"more"}"#;
    let on_list = format!("echo >>pages; answer '{page}'");
    let script = Script {
        on_list,
        ..Default::default()
    }
    .write();
    let servers = servers(vec![script.server("endless")]);
    let offer = servers.offer(None).await;
    assert_eq!(
        (names(&offer), offer.failures.as_slice()),
        (vec!["t"], &[][..])
    );
    assert_eq!(
        std::fs::read_to_string(script.path("pages")).unwrap(),
        "\n\n"
    );
    servers.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_invalid_entries_of_a_tool_list_are_left_out() {
    let page = r#"{"tools":[{"name":"bare"},{"inputSchema":{}},{"name":"echo","inputSchema":{"type":"object"}}]}"#;
    let script = Script {
        on_list: format!("answer '{page}'"),
        ..Default::default()
    }
    .write();
    let servers = servers(vec![script.server("odd")]);
    let offer = servers.offer(None).await;
    assert_eq!(names(&offer), ["echo"]);
    let reason = &offer.failures[0].reason;
    assert!(
        reason.starts_with("2 of its 3 tools are left out (bare, number 2, without a name): "),
        "{reason}"
    );
    assert_eq!(call(&servers, "echo", json!({})).await.content, "hello");
    servers.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_tool_names_are_replaced_and_mapped_back() {
    let script = Script {
        on_list: list(&["think", "a.b/c", "a b c"]),
        on_call: "case $line in *'\"name\":\"a b c\"'*) \n".to_owned()
            + &text_result("mapped back")
            + "\n;; esac",
        ..Default::default()
    }
    .write();
    let servers = servers(vec![script.server("odd")]);
    assert_eq!(
        names(&servers.offer(None).await),
        ["odd_think", "a_b_c", "odd_a_b_c"]
    );
    assert_eq!(
        call(&servers, "odd_a_b_c", json!({})).await.content,
        "mapped back"
    );
    servers.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn response_is_truncated_when_it_has_many_megabytes() {
    let long = "printf '{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"' \"$id\"\n\
                head -c 5000000 /dev/zero | tr '\\0' y\nprintf '\"}]}}\\n'";
    let script = Script {
        on_call: long.into(),
        ..Default::default()
    }
    .write();
    let servers = servers(vec![script.server("long")]);
    servers.offer(None).await;
    let observation = call(&servers, "echo", json!({})).await;
    assert!(
        !is_error(&observation) && observation.content.len() < 70_000,
        "{}",
        observation.content.len()
    );
    assert!(observation.content.ends_with("bytes more were cut off]"));
    servers.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn call_is_cancelled_and_server_survives_when_unanswered() {
    let script = Script {
        on_call: "[ -e asked ] && { ".to_owned() + &text_result("now") + "; } || : >asked",
        on_cancelled: ": >cancelled".into(),
        ..Default::default()
    }
    .write();
    let mut server = script.server("slow");
    server.call_timeout = Duration::from_millis(500);
    let servers = servers(vec![server]);
    servers.offer(None).await;
    let observation = call(&servers, "echo", json!({})).await;
    assert!(
        is_error(&observation)
            && observation
                .content
                .contains("did not respond within 0.5 seconds"),
        "{observation:?}"
    );
    wait_until("the server is notified", || {
        script.path("cancelled").exists()
    })
    .await;
    assert_eq!(call(&servers, "echo", json!({})).await.content, "now");
    servers.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn call_is_cancelled_when_its_future_is_dropped() {
    let script = Script {
        on_call: ": >asked".into(),
        on_cancelled: ": >cancelled".into(),
        ..Default::default()
    }
    .write();
    let servers = servers(vec![script.server("slow")]);
    servers.offer(None).await;
    tokio::select! {
        observation = call(&servers, "echo", json!({})) => panic!("{observation:?}"),
        () = wait_until("the call is made", || script.path("asked").exists()) => {}
    }
    wait_until("the server is notified", || {
        script.path("cancelled").exists()
    })
    .await;
    servers.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_is_disconnected_when_it_floods_with_requests() {
    let flood = "yes '{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}'".to_owned();
    let flood_once = format!(
        "[ -e flooded ] || {{ : >flooded; {flood}; }}\n{}",
        text_result("calm")
    );
    let script = Script {
        on_call: flood_once,
        ..Default::default()
    }
    .write();
    let servers = servers(vec![script.server("flood")]);
    servers.offer(None).await;
    let observation = call(&servers, "echo", json!({})).await;
    assert!(
        is_error(&observation) && observation.content.contains("exited during the call"),
        "{observation:?}"
    );
    assert_eq!(call(&servers, "echo", json!({})).await.content, "calm");
    servers.shut_down().await;
}

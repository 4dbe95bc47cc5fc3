//! Lifecycle of servers: restarts, changed tool lists, shutdown, and cleanup of their processes.

use engine::tool_servers::ToolServers as _;
use serde_json::json;

use crate::fixture::{call, is_error, names, runs, servers, wait_until};
use crate::script::{Script, list, text_result};

#[tokio::test(flavor = "multi_thread")]
async fn server_is_restarted_when_it_has_exited() {
    let exits_once = format!(
        "[ -e exited ] || {{ : >exited; echo out of memory >&2; exit 1; }}\n{}",
        text_result("back")
    );
    let script = Script {
        on_call: exits_once,
        ..Default::default()
    }
    .write();
    let servers = servers(vec![script.server("weak")]);
    let offer = servers.offer(None).await;
    let failed = call(&servers, "echo", json!({})).await;
    assert!(
        is_error(&failed) && failed.content.contains("exited during the call"),
        "{failed:?}"
    );
    assert!(
        failed.content.ends_with("it wrote: out of memory"),
        "{failed:?}"
    );
    assert_eq!(
        servers.offer(None).await,
        offer,
        "its tools are still offered"
    );
    assert_eq!(call(&servers, "echo", json!({})).await.content, "back");
    servers.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_is_restarted_again_when_a_restart_failed() {
    let second_fails = "echo >>starts; [ $(wc -l <starts) -ne 2 ] || exit 1";
    let exits_once = format!(
        "[ -e exited ] || {{ : >exited; exit 1; }}\n{}",
        text_result("back")
    );
    let script = Script {
        at_start: second_fails.into(),
        on_call: exits_once,
        ..Default::default()
    }
    .write();
    let servers = servers(vec![script.server("slow")]);
    servers.offer(None).await;
    assert!(is_error(&call(&servers, "echo", json!({})).await));
    let not_running = call(&servers, "echo", json!({})).await;
    assert!(
        not_running
            .content
            .starts_with("the MCP server slow is not running: "),
        "{not_running:?}"
    );
    assert_eq!(call(&servers, "echo", json!({})).await.content, "back");
    servers.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_is_not_restarted_when_it_exits_repeatedly() {
    let script = Script {
        at_start: "echo >>starts".into(),
        on_call: "exit 1".into(),
        ..Default::default()
    }
    .write();
    let servers = servers(vec![script.server("dead")]);
    servers.offer(None).await;
    for _ in 0..6 {
        assert!(is_error(&call(&servers, "echo", json!({})).await));
    }
    let starts = std::fs::read_to_string(script.path("starts"))
        .unwrap()
        .lines()
        .count();
    assert_eq!(starts, 4, "one start and three restarts");
    let offer = servers.offer(None).await;
    assert_eq!(names(&offer), [""; 0]);
    assert_eq!(
        offer.failures[0].reason,
        "it exited 3 times in a row and is not restarted"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_tools_are_offered_again() {
    let script = Script {
        on_list: format!("if [ -e called ]; then {}; else {}; fi", list(&["echo", "more"]), list(&["echo"])),
        on_call: r#": >called; printf '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n'; "#
            .to_owned()
            + &text_result("ok"),
        ..Default::default()
    }
    .write();
    let servers = servers(vec![script.server("growing")]);
    assert_eq!(names(&servers.offer(None).await), ["echo"]);
    assert_eq!(call(&servers, "echo", json!({})).await.content, "ok");
    // The notification and the response are two messages.
    for _ in 0..100 {
        if servers.offer(None).await.tools.len() == 2 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(names(&servers.offer(None).await), ["echo", "more"]);
    assert_eq!(call(&servers, "more", json!({})).await.content, "ok");
    servers.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_does_not_wait_for_a_starting_server() {
    let script = Script {
        on_initialize: ": >asked".into(),
        ..Default::default()
    }
    .write();
    let servers = servers(vec![script.server("silent")]);
    let started = tokio::time::Instant::now();
    let closing = async {
        wait_until("it is initialized", || script.path("asked").exists()).await;
        servers.shut_down().await;
    };
    let (offer, ()) = tokio::join!(servers.offer(None), closing);
    assert_eq!(offer.failures[0].reason, "the conversation was closed");
    assert!(started.elapsed().as_secs() < 30, "{:?}", started.elapsed());
}

/// A server that ignores the end of its input, with a child in another session.
fn server_with_daemon(mark: &str) -> Script {
    let at_start =
        format!("trap '' TERM; setsid sh -c 'sleep 1000; : {mark}' </dev/null >/dev/null 2>&1 &");
    let on_call = "sleep 1000".to_owned();
    Script {
        at_start,
        on_call,
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_process_is_left_when_servers_are_shut_down() {
    let mark = format!("left-after-end-{}", std::process::id());
    let script = server_with_daemon(&mark).write();
    let servers = servers(vec![script.server("daemon")]);
    servers.offer(None).await;
    wait_until("its child runs", || runs(&mark)).await;
    servers.shut_down().await;
    wait_until("its child has exited", || !runs(&mark)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_process_is_left_when_servers_are_dropped() {
    let mark = format!("left-after-drop-{}", std::process::id());
    let script = server_with_daemon(&mark).write();
    let servers = servers(vec![script.server("daemon")]);
    servers.offer(None).await;
    wait_until("its child runs", || runs(&mark)).await;
    drop(servers);
    wait_until("its child has exited", || !runs(&mark)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_does_not_inherit_the_environment() {
    let script = Script {
        on_call: r#"answer "{\"content\":[{\"type\":\"text\",\"text\":\"$(env | cut -d= -f1 | sort | tr '\n' ' ')\"}]}""#
            .into(),
        ..Default::default()
    }
    .write();
    let mut server = script.server("curious");
    let mcp::Transport::Host(program) = &mut server.transport else {
        panic!()
    };
    program.env.insert("OWN".into(), "1".into());
    let servers = servers(vec![server]);
    servers.offer(None).await;
    let observation = call(&servers, "echo", json!({})).await;
    let names: Vec<_> = observation.content.split_whitespace().collect();
    // The shell adds some variables.
    let known = [
        "GLOVEBOX_MCP_SERVER",
        "HOME",
        "OLDPWD",
        "OWN",
        "PATH",
        "PWD",
        "SHLVL",
        "_",
    ];
    assert!(
        names.contains(&"OWN") && names.iter().all(|name| known.contains(name)),
        "{names:?}"
    );
    servers.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_tools_are_searched_for_and_called() {
    let find = r#"{"name":"find_place","description":"Finds a place.","inputSchema":{"type":"object","properties":{"count":{"type":"integer"}}}}"#;
    let others = list(&["search_tools", "echo", "add"]);
    let on_list = others.replace("[{", &format!("[{find},{{"));
    let on_call = format!("echo \"$line\" >call\n{}", text_result("here"));
    let script = Script {
        on_list,
        on_call,
        ..Default::default()
    }
    .write();
    let servers = servers(vec![script.server("geo")]);
    let offer = servers.offer(None).await;
    assert!(offer.are_too_many);
    assert_eq!(
        names(&offer),
        ["find_place", "geo_search_tools", "echo", "add"]
    );
    let found = call(&servers, "search_tools", json!({"query": "places"})).await;
    assert!(
        !is_error(&found) && found.content.contains(r#""name":"find_place""#),
        "{found:?}"
    );
    assert!(!found.content.contains("echo"), "{found:?}");
    assert_eq!(
        call(&servers, "find_place", json!({"count": "3"}))
            .await
            .content,
        "here"
    );
    let sent = std::fs::read_to_string(script.path("call")).unwrap();
    assert!(sent.contains(r#""arguments":{"count":3}"#), "{sent}");
    let none = call(&servers, "search_tools", json!({})).await;
    assert_eq!(
        none.content,
        "No tool matches. The tools: find_place, geo_search_tools, echo, add"
    );
    servers.shut_down().await;
}

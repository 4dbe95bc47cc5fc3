//! The contract of conversation services, in process and over HTTP; and what a client survives.

use conversations::{ConversationService, MIN_QUESTION_AGE, ServiceErrorKind};
use protocol::client_api::v2::{CreateConversation, ForkConversation, ListConversations};
use protocol::update::ModelProgress;
use protocol::{AgentState, ConversationId, ConversationUpdate, Event, EventQuery, UserCommand};
use serde_json::json;
use tests::glovebox::{Home, bash, finish};
use tests::host_server::HostServer;
use tests::model_server::{ModelReply, ModelServer};
use tests::service_contract::remote::client_of;
use tests::service_contract::{greeting, kind, message, next, wait_for};
use tests::tcp_proxy::TcpProxy;

mod in_process {
    use tests::service_contract::in_process::InProcess;

    tests::service_contract!(InProcess::new());
    tests::workspace_contract!(InProcess::with_local_sandboxes());
}

mod remote {
    use tests::service_contract::remote::Remote;

    tests::service_contract!(Remote::start().await);
    tests::workspace_contract!(Remote::start().await);
}

/// Returns the ids of all events that clients see.
async fn stored(service: &dyn ConversationService, id: &ConversationId) -> Vec<u64> {
    let query = EventQuery {
        limit: 1000,
        ..EventQuery::default()
    };
    let page = service.events(id, query).await.unwrap();
    let events = page.parse().unwrap();
    events.iter().map(|event: &Event| event.id.0).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_misses_no_event_when_it_is_cut_at_every_message() {
    let home = Home::new();
    let commands = (0..4).map(|number| bash(&format!("sleep 0.2; echo {number}")));
    let responses: Vec<_> = commands.chain([finish()]).collect();
    let server = HostServer::start(&home, &home.script(&json!(responses)), &[]);
    let proxy = TcpProxy::to(server.port()).await;
    let client = client_of(proxy.port(), &server.key);
    let id = client.create(greeting()).await.unwrap();
    let mut updates = client.follow(&id, None).await.unwrap();
    let (mut received, mut gaps) = (Vec::new(), 0);
    // Every other connection ends in the headers, or in one of the first messages. The longest one
    // has the system prompt with its tools.
    proxy.limit_replies((0..).map(|number| match number % 2 {
        0 => 100 + number * 177 % 2000,
        _ => 100_000,
    }));
    loop {
        match next(&mut updates).await.unwrap().unwrap().update {
            ConversationUpdate::Event(event) => received.push(event.id.0),
            ConversationUpdate::Waiting(waiting) if waiting.is_idle => break,
            ConversationUpdate::LiveGap {} => {
                gaps += 1;
                continue;
            }
            ConversationUpdate::Attached(action) => panic!("{action:?} was received before"),
            _ => {}
        }
        proxy.cut();
    }
    proxy.limit_replies(std::iter::empty());
    assert!(gaps > 0);
    assert_eq!(received, stored(&client, &id).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_survives_a_server_that_is_killed_and_restarted() {
    let home = Home::new();
    let slow = bash("for i in 1 2 3 4 5 6; do echo $i; sleep 0.2; done");
    let model = home.script(&json!([slow, finish(), finish(), finish()]));
    let server = HostServer::start(&home, &model, &[]);
    let proxy = TcpProxy::to(server.port()).await;
    let client = client_of(proxy.port(), &server.key);
    let id = client.create(greeting()).await.unwrap();
    let mut updates = client.follow(&id, None).await.unwrap();
    let is_output =
        |update: &ConversationUpdate<_>| matches!(update, ConversationUpdate::Output { .. });
    let mut before = Vec::new();
    loop {
        let update = next(&mut updates).await.unwrap().unwrap().update;
        if is_output(&update) {
            break;
        }
        if let ConversationUpdate::Event(event) = update {
            before.push(event);
        }
    }
    server.kill();
    // Sent while no server runs, and repeated until one does.
    let sent = client.apply(&id, message("late", "And then this."));
    let restarted = async {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        let server = HostServer::start(&home, &model, &[]);
        proxy.retarget(server.port());
        server
    };
    let (sent, server) = tokio::join!(sent, restarted);
    let sent = sent.unwrap();
    let again = client.apply(&id, message("late", "And then this.")).await;
    assert_eq!(again.unwrap(), sent);
    // The agent may have finished before the message arrives, and finishes again after it.
    let mut received = before;
    while received.last().map(|event| event.id) < sent {
        let (more, _) = wait_for(&mut updates, AgentState::Finished).await;
        received.extend(more);
    }
    let ids: Vec<_> = received.iter().map(|event| event.id.0).collect();
    assert_eq!(ids, stored(&client, &id).await);
    let messages = received.iter().filter(|event| event.command.is_some());
    assert_eq!(messages.count(), 1);
    drop(server);
}

/// A request whose reply is lost is repeated if it has an id: the server may have received it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_requests_with_ids_are_repeated() {
    let home = Home::new();
    home.write(
        "asks.toml",
        "[security]\nconfirmation_policy = \"always\"\n",
    );
    let responses = json!([bash("echo first"), bash("echo second"), finish()]);
    let arguments = ["--config-file", "asks.toml"];
    let server = HostServer::start(&home, &home.script(&responses), &arguments);
    let proxy = TcpProxy::to(server.port()).await;
    let client = client_of(proxy.port(), &server.key);
    let id = client.create(greeting()).await.unwrap();
    let mut updates = client.follow(&id, None).await.unwrap();
    let (_, asked) = wait_for(&mut updates, AgentState::AwaitingUserConfirmation).await;
    // The reply to the first request of this client is lost.
    let cut_off = || {
        proxy.limit_replies([20].into_iter());
        client_of(proxy.port(), &server.key)
    };
    let forked = cut_off().fork(&id, ForkConversation::default()).await;
    assert!(forked.is_ok(), "it has an id, and is sent again");
    let all = client.list(ListConversations::default()).await.unwrap();
    assert_eq!(all.conversations.len(), 2);
    // Longer than a decision without a name must be after the question.
    tokio::time::sleep(MIN_QUESTION_AGE).await;
    let decided = cut_off()
        .apply(&id, UserCommand::confirm(None).into())
        .await
        .unwrap_err();
    assert_eq!(decided.kind, ServiceErrorKind::Unavailable);
    let next = loop {
        let (_, waiting) = wait_for(&mut updates, AgentState::AwaitingUserConfirmation).await;
        if waiting.action != asked.action {
            break waiting.action;
        }
    };
    assert!(
        next.is_some(),
        "the second action still awaits its decision"
    );
}

#[tokio::test]
async fn server_that_was_never_reached_is_reported_without_retries() {
    // Bound, but not listening.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let port = socket.local_addr().unwrap().port();
    let client = client_of(port, "key");
    let started = std::time::Instant::now();
    let error = client.list(ListConversations::default()).await.unwrap_err();
    assert_eq!(error.kind, ServiceErrorKind::Unavailable);
    assert!(
        error.message.contains(&format!("127.0.0.1:{port}")),
        "{error}"
    );
    assert!(started.elapsed() < std::time::Duration::from_secs(10));
}

#[tokio::test]
async fn key_that_is_not_valid_is_denied() {
    let home = Home::new();
    let server = HostServer::start(&home, &home.script(&json!([finish()])), &[]);
    let client = client_of(server.port(), "another key");
    let error = client
        .create(CreateConversation::default())
        .await
        .unwrap_err();
    assert_eq!(error.kind, ServiceErrorKind::Denied);
}

/// The answer of a model is streamed to clients, without a secret that arrives in pieces.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_is_streamed_without_secrets() {
    let home = Home::new();
    home.write(
        ".glovebox/config.toml",
        "[secrets]\nPASSWORD = 'hunter2-secret'\n",
    );
    let pieces = ["The pass", "word is hun", "ter2-se", "cret, thanks."];
    let chunk = |delta, reason| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": reason});
        let chunk = json!({"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "test", "choices": [choice]});
        format!("data: {chunk}\n\n")
    };
    let texts =
        pieces.map(|piece| chunk(json!({"role": "assistant", "content": piece}), json!(null)));
    let body = format!(
        "{}{}data: [DONE]\n\n",
        texts.concat(),
        chunk(json!({}), json!("stop"))
    );
    let model = ModelServer::start([ModelReply::Raw(200, "text/event-stream", body)]).await;
    let mut command = home.glovebox(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--runtime",
        "local",
        "-l",
        "openai/gpt-4o",
    ]);
    command.envs([
        ("LLM_BASE_URL", model.base_url.as_str()),
        ("LLM_API_KEY", "key"),
    ]);
    let server = HostServer::from_command(&home, &mut command);
    let client = client_of(server.port(), &server.key);
    let request = CreateConversation {
        message: None,
        ..greeting()
    };
    let id = client.create(request).await.unwrap();
    let mut updates = client.follow(&id, None).await.unwrap();
    client
        .apply(&id, message("a", "What is it?"))
        .await
        .unwrap();
    let mut streamed = String::new();
    loop {
        match next(&mut updates).await.unwrap().unwrap().update {
            ConversationUpdate::Model {
                progress: ModelProgress::Text { text },
                ..
            } => streamed.push_str(&text),
            ConversationUpdate::Waiting(waiting)
                if waiting.agent_state == AgentState::AwaitingUserInput && !streamed.is_empty() =>
            {
                break;
            }
            _ => {}
        }
    }
    assert_eq!(streamed, "The password is <secret_hidden>, thanks.");
}

/// The provider's server has both models of the operator's key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chosen_model_answers_also_after_a_restart() {
    let home = Home::new();
    let model = ModelServer::start(["one", "two", "three"].map(ModelReply::says)).await;
    let start = || {
        let mut command =
            home.glovebox(&["serve", "--listen", "127.0.0.1:0", "-l", "openai/small"]);
        command.args(["--runtime", "local"]).envs([
            ("LLM_BASE_URL", model.base_url.as_str()),
            ("LLM_API_KEY", "key"),
        ]);
        HostServer::from_command(&home, &mut command)
    };
    let set_model = |model: &str| UserCommand::SetModel {
        model: model.to_owned(),
    };
    let server = start();
    let client = client_of(server.port(), &server.key);
    let request = CreateConversation {
        title: Some("Models".to_owned()),
        ..greeting()
    };
    let id = client.create(request).await.unwrap();
    let mut updates = client.follow(&id, None).await.unwrap();
    wait_for(&mut updates, AgentState::AwaitingUserInput).await;
    let script = client.apply(&id, set_model("scripted:/etc/passwd").into());
    assert_eq!(kind(script.await), ServiceErrorKind::Invalid);
    let changed = client.apply(&id, set_model("openai/large").into());
    assert!(changed.await.unwrap().is_some());
    client.apply(&id, message("a", "Go on.")).await.unwrap();
    model.called(2).await;
    server.terminate();
    let server = start();
    let client = client_of(server.port(), &server.key);
    // Of a conversation that does not run.
    let script = client.apply(&id, set_model("scripted:/etc/passwd").into());
    assert_eq!(kind(script.await), ServiceErrorKind::Invalid);
    client.apply(&id, message("b", "Go on.")).await.unwrap();
    model.called(3).await;
    assert_eq!(model.called_models(), ["small", "large", "large"]);
    let changed = client.apply(&id, set_model("openai/small").into());
    assert!(changed.await.unwrap().is_some());
    let item = client.get(&id).await.unwrap();
    assert_eq!(item.model.as_deref(), Some("openai/small"));
}

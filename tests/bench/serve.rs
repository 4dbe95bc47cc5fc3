//! The host server as its clients see it: `glovebox serve` with the scripted model and local
//! sandboxes.
//!
//! Clients and server share the processors of the machine, so that rates are those of both.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use engine::events::EventStore as _;
use futures_util::{StreamExt as _, stream};
use protocol::action::RunAction;
use protocol::observation::RunObservation;
use protocol::record::ConversationStarted;
use protocol::{Action, Event, EventBody, EventId, EventSource, Observation, Record, Timestamp};
use reqwest::Method;
use sandbox_local::IsolationKind;
use serde_json::{Value, json};
use storage::{Durability, SqliteStore};
use tests::glovebox::{Home, bash, finish, tool_call};
use tests::host_server::HostServer;
use tests::sandbox_contract::local::LocalBackend;
use tests::sandbox_contract::{Backend as _, remove, spec};
use tests::server_sent_events::ServerSentEvents;
use tokio::net::TcpListener;
use tokio::runtime::Builder;

use super::figure::{Figure, quantile_ms};
use super::report::BenchmarkReport;
use super::server::memory_mb;

const MESSAGES: usize = 200;
const STARTS: usize = 15;
const STORED_EVENTS: u64 = 10_000;
const PAGES: usize = 500;
const CONVERSATIONS: usize = 500;
const FOLLOWERS: usize = 100;
/// Steps of the followed conversation. Each has two events.
const STEPS: usize = 2500;

pub(crate) async fn measure(report: BenchmarkReport) {
    report.add(first_event(report.repetitions(MESSAGES)).await);
    match LocalBackend::isolated(IsolationKind::Bubblewrap).await {
        Some(backend) => report.add(start(backend, report.repetitions(STARTS)).await),
        None => report.skip("serve", "no bubblewrap"),
    }
    for route in [&V0_PAGE, &PAGE] {
        report.add(page(report.repetitions(PAGES), route).await);
    }
    report.add_all(concurrent(report.repetitions(CONVERSATIONS)).await);
    report.add(fan_out(report.repetitions(FOLLOWERS), report.repetitions(STEPS)).await);
}

/// Follows a conversation from its start.
async fn follow(server: &HostServer, id: &str) -> ServerSentEvents {
    let path = format!("/api/v2/conversations/{id}/stream");
    ServerSentEvents::new(server.request(Method::GET, &path).send().await.unwrap())
}

/// Skips messages until one matches.
async fn wait_for(events: &mut ServerSentEvents, is_it: impl Fn(&Value) -> bool) {
    while !is_it(&events.next().await) {}
}

fn is_waiting(message: &Value) -> bool {
    message["type"] == "waiting"
}

/// Measures the time from a message of the user until the stream has the agent's reply.
async fn first_event(count: usize) -> Figure {
    let home = Home::new();
    let replies: Vec<_> = (0..=count)
        .map(|number| json!({"text": format!("Reply {number}.")}))
        .collect();
    let server = HostServer::start(&home, &home.script(&json!(replies)), &[]);
    let id = server.create("Reply.").await;
    let mut events = follow(&server, &id).await;
    wait_for(&mut events, is_waiting).await;
    let mut times = Vec::new();
    for _ in 0..count {
        let started = Instant::now();
        server
            .post(
                &format!("/api/conversations/{id}/message"),
                &json!({"message": "Reply."}),
            )
            .await;
        wait_for(&mut events, |message| {
            message["data"]["source"] == "agent" && message["data"]["action"] == "message"
        })
        .await;
        times.push(started.elapsed());
        wait_for(&mut events, is_waiting).await;
    }
    server.terminate();
    Figure::below(
        "a message to the agent's reply on a stream, p50",
        quantile_ms(&mut times, 0.5),
        "ms",
        5.0,
    )
}

/// Measures the time from the request for a conversation until it runs. The floor is the start of a
/// sandbox by itself, measured in turns.
async fn start(backend: LocalBackend, count: usize) -> Figure {
    const MAX_MS: f64 = 50.0;
    let home = Home::new();
    let server = HostServer::start(&home, &home.script(&json!([finish()])), &[]);
    let provider = backend.provider();
    let (mut floors, mut times) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let started = Instant::now();
        let sandbox = provider.create(&spec(&backend), &|_| {}).await.unwrap();
        floors.push(started.elapsed());
        remove(&backend, sandbox).await;

        let started = Instant::now();
        let id = server.create("Finish.").await;
        let path = format!("/api/conversations/{id}");
        while server.get(&path).await["status"] != "RUNNING" {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        times.push(started.elapsed());
        server.send(Method::DELETE, &path, None).await;
    }
    server.terminate();
    let (value, floor) = (quantile_ms(&mut times, 0.5), quantile_ms(&mut floors, 0.5));
    let figure = Figure::plain(
        "POST of a conversation to RUNNING (floor: its sandbox)",
        value,
        "ms",
    );
    Figure {
        aim: "<= floor + 50 ms".into(),
        ok: value <= floor + MAX_MS,
        ..figure.with_floor(floor)
    }
}

/// A page of a long conversation.
struct PageRoute {
    name: &'static str,
    path: &'static str,
    events: usize,
}

const V0_PAGE: PageRoute = PageRoute {
    name: "20 of 10,000 events, p50 (floor: axum with that body)",
    path: "/api/conversations/long/events?start_id=5000&limit=20",
    events: 20,
};

const PAGE: PageRoute = PageRoute {
    name: "100 of 10,000 events over /api/v2, p50 (floor: axum with that body)",
    path: "/api/v2/conversations/long/events?from=5000&limit=100",
    events: 100,
};

/// Measures a page of a long conversation. The floor is the same body from axum.
async fn page(count: usize, route: &PageRoute) -> Figure {
    let PageRoute { name, path, events } = *route;
    let home = Home::new();
    let script = home.script(&json!([finish()]));
    let file = home
        .write(".glovebox/empty", "")
        .with_file_name("glovebox.db");
    fill(
        &SqliteStore::open(file, Durability::default())
            .await
            .unwrap(),
    )
    .await;
    let server = HostServer::start(&home, &script, &[]);
    let body = server.get(path).await;
    assert_eq!(body["events"].as_array().unwrap().len(), events);
    let text = body.to_string();
    let bare = Router::new().fallback(get(async move || {
        ([("content-type", "application/json")], text)
    }));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let bare_url = format!("http://{}/", listener.local_addr().unwrap());
    // On a thread of its own, like every server. On the thread of its client it would be polled
    // without a wake-up.
    let bare_runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    bare_runtime
        .spawn(async move { axum::serve(TcpListener::from_std(listener).unwrap(), bare).await });
    let tls = tls::http_client("http").unwrap();
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_backend_preconfigured(tls)
        .build()
        .unwrap();
    let (mut times, mut floors) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let started = Instant::now();
        client
            .get(&bare_url)
            .send()
            .await
            .unwrap()
            .bytes()
            .await
            .unwrap();
        floors.push(started.elapsed());
        let started = Instant::now();
        server
            .request(Method::GET, path)
            .send()
            .await
            .unwrap()
            .bytes()
            .await
            .unwrap();
        times.push(started.elapsed());
    }
    bare_runtime.shutdown_background();
    server.terminate();
    let floor = quantile_ms(&mut floors, 0.5);
    let value = quantile_ms(&mut times, 0.5);
    Figure::within(name, value, "ms", floor, 3.0)
}

/// Appends a conversation that the server did not start.
async fn fill(store: &SqliteStore) {
    let timestamp = Timestamp::try_from("2026-01-02T03:04:05.678901".to_owned()).unwrap();
    let body = |id: u64| match id {
        0 => EventBody::from(Record::from(ConversationStarted::default())),
        _ if id % 2 == 1 => Action::from(RunAction {
            command: format!("cargo test {id}"),
            ..RunAction::default()
        })
        .into(),
        _ => Observation::new("a line of output\n".repeat(30), RunObservation::default()).into(),
    };
    let ids: Vec<_> = (0..STORED_EVENTS).collect();
    for ids in ids.chunks(100) {
        let event = |id: &u64| {
            Event::new(
                EventId(*id),
                timestamp.clone(),
                EventSource::Agent,
                body(*id),
            )
        };
        store
            .append(
                &"long".parse().unwrap(),
                &ids.iter().map(event).collect::<Vec<_>>(),
            )
            .await
            .unwrap();
    }
}

/// Measures conversations whose command runs, each with a stream.
async fn concurrent(count: usize) -> Vec<Figure> {
    let home = Home::new();
    let script = home.script(&json!([bash("sleep 3600"), finish()]));
    let maximum = count.to_string();
    let server = Arc::new(HostServer::start(
        &home,
        &script,
        &["--max-running", &maximum],
    ));
    let started = Instant::now();
    let starting = (0..count).map(|_| async {
        let id = server.create("Wait.").await;
        let mut events = follow(&server, &id).await;
        let mut received = Vec::new();
        while received
            .last()
            .is_none_or(|message: &Value| message["data"]["action"] != "run")
        {
            received.push(events.next().await);
        }
        (id, events, received)
    });
    let running: Vec<_> = stream::iter(starting).buffer_unordered(8).collect().await;
    let rate = count as f64 / started.elapsed().as_secs_f64();
    let memory = memory_mb(server.process_id(), &["Rss:"]);
    let ending = running.into_iter().map(|(id, mut events, mut received)| {
        let server = Arc::clone(&server);
        async move {
            server
                .post(&format!("/api/conversations/{id}/stop"), &json!({}))
                .await;
            let stored = server
                .get(&format!("/api/conversations/{id}/events?limit=100"))
                .await;
            let stored: Vec<_> = stored["events"].as_array().unwrap().clone();
            while received
                .iter()
                .filter(|message| message["type"] == "event")
                .count()
                < stored.len()
            {
                received.push(events.next().await);
            }
            let received = received.iter().filter(|message| message["type"] == "event");
            let received: Vec<_> = received.map(|message| message["data"].clone()).collect();
            usize::from(received != stored)
        }
    });
    let dropped = stream::iter(ending)
        .buffer_unordered(8)
        .collect::<Vec<_>>()
        .await
        .into_iter()
        .sum();
    Arc::into_inner(server)
        .expect("all requests have ended")
        .terminate();
    home.assert_nothing_runs();
    vec![
        Figure::below(
            "memory (RSS) of 500 running conversations, each streamed",
            memory,
            "MB",
            700.0,
        ),
        Figure::count("their streams that miss an event", dropped),
        Figure::plain("their starts, sandboxes included", rate, "/s"),
    ]
}

/// The agent sees only the latest events, so that a step does not take longer with each one before
/// it.
const FAN_OUT_CONFIG: &str = "
[core]
max_iterations = 100000
[condenser]
type = \"recent\"
keep_first = 1
max_events = 20
";

/// Measures one conversation with many streams, which share the processors with the agent that
/// produces the events. The floor is the rate of a single stream.
async fn fan_out(followers: usize, steps: usize) -> Figure {
    const MIN_SHARE: f64 = 0.25;
    let (one, all) = (
        event_rate(1, steps).await,
        event_rate(followers, steps).await,
    );
    let name = "events of one conversation to each of 100 streams (floor: 1 stream)";
    Figure::at_least(name, all, "events/s", one, MIN_SHARE)
}

/// Returns the events per second that the slowest of the streams of one conversation receives.
async fn event_rate(followers: usize, steps: usize) -> f64 {
    let home = Home::new();
    home.write(".glovebox/config.toml", FAN_OUT_CONFIG);
    let think = |number| tool_call("think", &json!({"thought": format!("Thought {number}.")}));
    let script: Vec<_> = [json!({"text": "Ready."})]
        .into_iter()
        .chain((0..steps).map(think))
        .chain([finish()])
        .collect();
    let server = HostServer::start(&home, &home.script(&json!(script)), &[]);
    let id = server.create("Get ready.").await;
    let mut following = Vec::new();
    for _ in 0..followers {
        let mut events = follow(&server, &id).await;
        wait_for(&mut events, is_waiting).await;
        following.push(events.into_response());
    }
    let started = Instant::now();
    server
        .post(
            &format!("/api/conversations/{id}/message"),
            &json!({"message": "Think."}),
        )
        .await;
    let counting = following
        .into_iter()
        .map(|response| tokio::spawn(count_events(response)));
    let counts = futures_util::future::join_all(counting.collect::<Vec<_>>()).await;
    let elapsed = started.elapsed().as_secs_f64();
    let fewest = counts.into_iter().map(Result::unwrap).min().unwrap();
    assert!(fewest >= 2 * steps, "{fewest} events");
    server.terminate();
    fewest as f64 / elapsed
}

/// Counts the events until the agent waits. Parses none of them, because that takes longer than to
/// send them.
async fn count_events(mut response: reqwest::Response) -> usize {
    let (mut text, mut count) = (String::new(), 0);
    loop {
        let chunk = response.chunk().await.unwrap().expect("the stream is open");
        text.push_str(std::str::from_utf8(&chunk).unwrap());
        let Some(end) = text.rfind("\n\n") else {
            continue;
        };
        count += text[..end].matches("event: event").count();
        if text[..end].contains("event: waiting") {
            return count;
        }
        text.drain(..end);
    }
}

//! The service of conversations over HTTP, and in process on the same kind of store.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conversations::{ConversationService, Updates};
use futures_util::StreamExt as _;
use protocol::client_api::v2::CreateConversation;
use protocol::{CommandRequest, ConversationId, ConversationUpdate, UserCommand};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::json;
use storage::{Durability, SqliteStore};
use tests::glovebox::{Home, finish};
use tests::host_server::HostServer;
use tests::service_contract::ServiceBackend as _;
use tests::service_contract::in_process::InProcess;
use tests::service_contract::remote::client_of;

use super::figure::{Figure, quantile_ms};
use super::report::BenchmarkReport;
use super::server::memory_mb;

const COMMANDS: usize = 500;
const STREAMS: usize = 1000;

/// Time for a stream to send its first messages.
const STREAM_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) async fn measure(report: BenchmarkReport) {
    report.add(command_to_event(report.repetitions(COMMANDS)).await);
    report.add(idle_streams(report.repetitions(STREAMS)));
}

/// Measures the time from a command to its update on a stream. The floor is the same in process.
async fn command_to_event(count: usize) -> Figure {
    const MAX_MS: f64 = 1.5;
    let home = Home::new();
    let file = home.write(".glovebox/empty", "").with_file_name("other.db");
    let store = SqliteStore::open(file, Durability::default())
        .await
        .unwrap();
    let own = InProcess::with_store(Arc::new(store)).service(None);
    let server = HostServer::start(&home, &home.script(&json!([finish()])), &[]);
    let remote = client_of(server.port(), &server.key);
    let (own_id, mut own_updates) = idle(own.as_ref()).await;
    let (remote_id, mut remote_updates) = idle(&remote).await;
    let (mut floors, mut times) = (Vec::new(), Vec::new());
    for number in 0..count {
        floors.push(retitle(own.as_ref(), &own_id, &mut own_updates, number).await);
        times.push(retitle(&remote, &remote_id, &mut remote_updates, number).await);
    }
    server.terminate();
    let (value, floor) = (quantile_ms(&mut times, 0.5), quantile_ms(&mut floors, 0.5));
    let name = "a command over /api/v2 to its update on a stream, p50 (floor: in process)";
    Figure {
        aim: format!("<= floor + {MAX_MS} ms"),
        ok: value <= floor + MAX_MS,
        ..Figure::plain(name, value, "ms").with_floor(floor)
    }
}

/// Creates a conversation whose agent waits for a message, and follows it.
async fn idle(service: &dyn ConversationService) -> (ConversationId, Updates) {
    let created = service.create(CreateConversation::default()).await;
    let id = created.unwrap();
    let mut updates = service.follow(&id, None).await.unwrap();
    loop {
        let message = updates.next().await.unwrap().unwrap();
        if matches!(message.update, ConversationUpdate::Waiting(_)) {
            return (id, updates);
        }
    }
}

/// Returns the time until the stream has a new title.
async fn retitle(
    service: &dyn ConversationService,
    id: &ConversationId,
    updates: &mut Updates,
    number: usize,
) -> Duration {
    let title = format!("Title {number}");
    let command = UserCommand::SetTitle {
        title: title.clone(),
    };
    let started = Instant::now();
    let applying = service.apply(id, CommandRequest::from(command));
    let shown = async {
        loop {
            let message = updates.next().await.unwrap().unwrap();
            if matches!(&message.update, ConversationUpdate::Title { title: shown } if *shown == title)
            {
                return started.elapsed();
            }
        }
    };
    let (applied, shown) = tokio::join!(applying, shown);
    applied.unwrap();
    shown
}

/// Measures the memory that idle streams of one conversation add to the server.
fn idle_streams(count: usize) -> Figure {
    let mut limits = getrlimit(Resource::Nofile);
    limits.current = limits.maximum;
    setrlimit(Resource::Nofile, limits).unwrap();
    let home = Home::new();
    let server = HostServer::start(&home, &home.script(&json!([finish()])), &[]);
    let (port, key) = (server.port(), &server.key);
    let runtime = tokio::runtime::Handle::current();
    let client = client_of(port, key);
    let id = tokio::task::block_in_place(|| runtime.block_on(idle(&client))).0;
    let before = memory_mb(server.process_id(), &["Rss:"]);
    let request = format!(
        "GET /api/v2/conversations/{id}/stream HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {key}\r\n\r\n"
    );
    let open = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(STREAM_TIMEOUT)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let (mut received, mut part) = (Vec::new(), [0; 16 << 10]);
        while !received.windows(14).any(|part| part == b"event: waiting") {
            let length = stream.read(&mut part).unwrap();
            assert!(length > 0, "{}", String::from_utf8_lossy(&received));
            received.extend_from_slice(&part[..length]);
        }
        stream
    };
    let streams: Vec<_> = (0..count).map(|_| open()).collect();
    let memory = memory_mb(server.process_id(), &["Rss:"]) - before;
    drop(streams);
    server.terminate();
    Figure::below(
        "memory (RSS) that 1,000 idle streams add to the server",
        memory,
        "MB",
        100.0,
    )
}

//! Accepts connections and serves each in its own task, until it is closed or the server shuts
//! down.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Activity;
use super::http;
use super::lingering::Lingering;
use super::listener::ServerListener;
use super::request_log::respond_logged;
use super::stream::SocketStream;
use crate::clients::{ClientConnection, MAX_UNAUTHENTICATED, UnauthenticatedConnections};
use crate::routes::App;

/// Maximum number of connections. A host opens one or two; a client of HTTP/1.1 opens one per
/// request. More wait in the backlog of the socket.
const MAX_CONNECTIONS: usize = 256 + MAX_UNAUTHENTICATED;

/// Delay after an error of `accept`, which nearly always means that no descriptors are available.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Never completes; dropping the future stops accepting. Connections are tasks in `tasks`, which
/// end after `stop`.
pub(super) async fn accept(
    listener: &ServerListener,
    app: App,
    tasks: &TaskTracker,
    stop: &CancellationToken,
    activity: &Activity,
) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut unauthenticated = UnauthenticatedConnections::default();
    loop {
        let permit = Arc::clone(&permits).acquire_owned().await;
        match listener.accept().await {
            Ok(stream) => {
                let (active, requests) = (activity.start(), tasks.clone());
                let client = unauthenticated.add();
                let connection = serve(stream, app.clone(), client, requests, stop.clone());
                tasks.spawn(async move {
                    connection.await;
                    drop((permit, active));
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

async fn serve(
    stream: SocketStream,
    app: App,
    client: Arc<ClientConnection>,
    requests: TaskTracker,
    stop: CancellationToken,
) {
    let builder = http::builder(requests);
    let stream = TokioIo::new(Lingering::new(stream, Arc::clone(&client)));
    let service = service_fn(|mut request: Request<Incoming>| {
        let client = Arc::clone(&client);
        request.extensions_mut().insert(Arc::clone(&client));
        let app = app.clone();
        async move {
            let response = respond_logged(request, |request| app.respond(request)).await;
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                client.skip_drain();
            }
            Ok::<_, Infallible>(response)
        }
    });
    let mut connection = std::pin::pin!(builder.serve_connection_with_upgrades(stream, service));
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = client.closed() => return,
        () = stop.cancelled() => {
            client.skip_drain();
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        // Not a warning: most often the client has closed the connection early.
        tracing::debug!(error, "connection failed");
    }
}

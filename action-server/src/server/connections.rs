//! Accepts connections and serves each in a task of its own, until it ends or the server does.

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
use super::listener::Listener;
use super::stream::Stream;
use crate::clients::{Client, MAX_UNAUTHENTICATED, UnauthenticatedConnections};
use crate::routes::App;

/// One host opens one or two; clients of HTTP/1.1 one a request. More wait in the socket's queue.
const MAX_CONNECTIONS: usize = 256 + MAX_UNAUTHENTICATED;

/// After an error of `accept`, which is nearly always that descriptors are short for the moment.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Never returns; dropping it stops accepting. Connections end by themselves, or after `stop`, in `tasks`.
pub(super) async fn accept(
    listener: &Listener,
    app: App,
    tasks: &TaskTracker,
    stop: &CancellationToken,
    activity: &Activity,
) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut unauthenticated = UnauthenticatedConnections::default();
    loop {
        let place = Arc::clone(&places).acquire_owned().await;
        match listener.accept().await {
            Ok(stream) => {
                let (active, requests) = (activity.start(), tasks.clone());
                let client = unauthenticated.add();
                let connection = serve(stream, app.clone(), client, requests, stop.clone());
                tasks.spawn(async move {
                    connection.await;
                    drop((place, active));
                });
            }
            Err(error) => {
                tracing::warn!(%error, "accepting a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve(
    stream: Stream,
    app: App,
    client: Arc<Client>,
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
            let response = app.respond(request).await;
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                client.skip_drain();
            }
            Ok::<_, Infallible>(response)
        }
    });
    let mut connection = std::pin::pin!(builder.serve_connection_with_upgrades(stream, service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = client.closed() => return,
        () = stop.cancelled() => {
            client.skip_drain();
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        // A client that goes away in the middle is no fault of ours, and not of interest to most.
        tracing::debug!(error, "a connection has failed");
    }
}

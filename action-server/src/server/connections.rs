//! Accepts connections and serves each in a task of its own, until it ends or the server does.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Activity;
use super::http;
use super::listener::Listener;
use super::stream::Stream;

/// One host opens one or two; clients of HTTP/1.1 one a request. More wait in the socket's queue.
const MAX_CONNECTIONS: usize = 256;

/// After an error of `accept`, which is nearly always that descriptors are short for the moment.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Never returns; dropping it stops accepting. Connections end by themselves, or after `stop`, in `tasks`.
pub(super) async fn accept(
    listener: &Listener,
    router: Router,
    tasks: &TaskTracker,
    stop: &CancellationToken,
    activity: &Activity,
) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let place = Arc::clone(&places).acquire_owned().await;
        match listener.accept().await {
            Ok(stream) => {
                let (active, requests) = (activity.begin(), tasks.clone());
                let connection = serve(stream, router.clone(), requests, stop.clone());
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

async fn serve(stream: Stream, router: Router, requests: TaskTracker, stop: CancellationToken) {
    let builder = http::builder(requests);
    let service = TowerToHyperService::new(router);
    let mut connection =
        std::pin::pin!(builder.serve_connection_with_upgrades(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        // A client that goes away in the middle is no fault of ours, and not of interest to most.
        tracing::debug!(error, "a connection has failed");
    }
}

//! Accepts connections, and serves each in its own task until it ends or the server shuts down.
//!
//! Not `axum::serve`: it sets no timer, without which a client may send the head of a request for as long as it likes, and it
//! bounds no number of connections.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Further connections wait in the socket's queue.
const MAX_CONNECTIONS: usize = 4096;

/// Timeout for the head of each request, so that idle and slow connections do not accumulate.
const REQUEST_HEAD_TIMEOUT: Duration = Duration::from_secs(15);

/// Delay after an error of `accept`, which usually means that there are no free descriptors at the moment.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Time for open requests to end at shutdown.
const SHUTDOWN_GRACE_PERIOD: Duration = Duration::from_secs(10);

/// Accepts connections until `shutdown` is cancelled.
pub(crate) async fn accept(router: Router, listener: TcpListener, shutdown: CancellationToken) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let service = TowerToHyperService::new(router);
    let mut connections = JoinSet::new();
    loop {
        let (stream, permit) = tokio::select! {
            () = shutdown.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = accept_one(&listener, &permits) => accepted,
        };
        connections.spawn(serve(service.clone(), stream, permit, shutdown.clone()));
    }
    let ended = async { while connections.join_next().await.is_some() {} };
    if timeout(SHUTDOWN_GRACE_PERIOD, ended).await.is_err() {
        tracing::warn!(count = connections.len(), "aborting requests that are still open at shutdown");
    }
}

/// Accepts a connection once there are fewer than the maximum.
async fn accept_one(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> (TcpStream, Option<OwnedSemaphorePermit>) {
    // An error means that the semaphore is closed, which it never is.
    let permit = Arc::clone(permits).acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, permit),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

async fn serve(
    service: TowerToHyperService<Router>,
    stream: TcpStream,
    permit: Option<OwnedSemaphorePermit>,
    shutdown: CancellationToken,
) {
    // Otherwise small frames would be delayed. An error is ignored: a broken connection fails later too.
    let _ = stream.set_nodelay(true);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        // Not a warning: usually the client disconnected.
        tracing::debug!(%error, "a connection broke");
    }
    drop(permit);
}

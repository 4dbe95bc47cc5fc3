//! Accepts connections and serves each in a task of its own, until it ends or the server does.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Activity;
use super::http;
use super::listener::Listener;
use super::stream::Stream;
use crate::routes::App;

/// One host opens one or two; clients of HTTP/1.1 one a request. More wait in the socket's queue.
const MAX_CONNECTIONS: usize = 256 + MAX_STRANGERS;

/// Connections that have not shown the key. Any number of silent ones, half requests and slow writers must leave room for
/// the host: the oldest goes for the newest. A host asks its first question at once.
const MAX_STRANGERS: usize = 128;

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
    let mut strangers = Strangers::default();
    loop {
        let place = Arc::clone(&places).acquire_owned().await;
        match listener.accept().await {
            Ok(stream) => {
                let (active, requests) = (activity.begin(), tasks.clone());
                let caller = strangers.admit();
                let connection = serve(stream, app.clone(), caller, requests, stop.clone());
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

/// Who is at the other end of a connection; an extension of its requests.
#[derive(Debug, Default)]
pub(crate) struct Caller {
    known: AtomicBool,
    leave: CancellationToken,
}

impl Caller {
    /// It has shown the key, or needs none.
    pub(crate) fn mark_known(&self) {
        self.known.store(true, Ordering::Relaxed);
    }
}

/// The connections that have not shown the key, oldest first; also some that have since.
#[derive(Default)]
struct Strangers(VecDeque<Weak<Caller>>);

impl Strangers {
    fn admit(&mut self) -> Arc<Caller> {
        let caller = Arc::<Caller>::default();
        self.0.push_back(Arc::downgrade(&caller));
        if self.0.len() > MAX_STRANGERS {
            let is_strange = |caller: &Arc<Caller>| !caller.known.load(Ordering::Relaxed);
            self.0.retain(|caller| caller.upgrade().as_ref().is_some_and(is_strange));
        }
        if self.0.len() > MAX_STRANGERS
            && let Some(oldest) = self.0.pop_front().and_then(|oldest| oldest.upgrade())
        {
            oldest.leave.cancel();
        }
        caller
    }
}

async fn serve(
    stream: Stream,
    app: App,
    caller: Arc<Caller>,
    requests: TaskTracker,
    stop: CancellationToken,
) {
    let builder = http::builder(requests);
    let leave = caller.leave.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(Arc::clone(&caller));
        let app = app.clone();
        async move { Ok::<_, Infallible>(app.answer(request).await) }
    });
    let mut connection =
        std::pin::pin!(builder.serve_connection_with_upgrades(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = leave.cancelled() => return,
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

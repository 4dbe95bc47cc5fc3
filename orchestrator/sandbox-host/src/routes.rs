//! The route table of a sandbox host. The requests and responses are in
//! [`protocol::runtime_api`].
//!
//! All routes except `/alive` require a key: that of a client in `X-API-Key`, or below `/sandboxes`
//! that of the sandbox in `X-Session-API-Key`.

use std::sync::Arc;

use axum::Router;
use axum::routing::{any, get, post};

use super::error::HostError;
use super::{Shared, forward, runtimes, stream};

pub(super) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/alive", get(runtimes::alive))
        .route("/start", post(runtimes::start))
        .route("/stop", post(runtimes::stop))
        .route("/pause", post(runtimes::pause))
        .route("/resume", post(runtimes::resume))
        .route("/sessions/{session}", get(runtimes::session))
        .route("/runtime/{runtime}", get(runtimes::runtime))
        .route("/list", get(runtimes::list))
        .route("/registry_prefix", get(runtimes::registry_prefix))
        .route("/image_exists", get(runtimes::image_exists))
        .route("/sandboxes/{runtime}/stream", get(stream::stream))
        .route("/sandboxes/{runtime}/{*path}", any(forward::forward))
        .fallback(async || HostError::NoSuchRoute)
        .with_state(shared)
}

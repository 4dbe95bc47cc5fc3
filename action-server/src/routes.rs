//! The whole API: everything but `/alive` (and V0's `/server_info`) needs the key, unknown routes too. What each route takes
//! and gives is told in `protocol::sandbox_api`.

use std::path::PathBuf;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{delete, get, post, put};
use hyper::body::Incoming;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;

use crate::api::guard::guard;
use crate::api::{
    Api, actions, alive, environment, execute_action, files, info, ports, processes, sessions, terminal,
};
use crate::config::Dialect;
use crate::error::ApiError;
use crate::openapi::openapi;
use crate::v0;

/// What answers requests. Cloning shares it.
#[derive(Clone)]
pub(crate) struct App {
    api: Api,
    dialect: Dialect,
    router: TowerToHyperService<Router>,
}

impl App {
    pub(crate) fn new(api: Api, dialect: Dialect, working_dir: PathBuf) -> Self {
        let router = match dialect {
            Dialect::Native => router(api.clone()),
            Dialect::V0 => v0::router(api.clone(), working_dir),
        };
        Self { api, dialect, router: TowerToHyperService::new(router) }
    }

    /// What stands before the routes stands here once, around the router: a layer of it would be around each route, and
    /// each of its borders costs every request.
    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Response {
        let v0 = self.dialect == Dialect::V0;
        let (path, is_head) = (request.uri().path(), request.method() == Method::HEAD);
        let is_open = path == "/alive" || v0 && path == "/server_info";
        let response = if is_open {
            self.route(request).await
        } else if v0 && v0::may_be_a_page(&self.api, &request) {
            ApiError::FromWebPage.into_response()
        } else {
            guard(&self.api, request, |request| self.route(request)).await
        };
        let response = if v0 { v0::in_its_words(response) } else { response };
        // The routes leave it out themselves; HTTP/2 takes a refusal's for a fault.
        if is_head { response.map(|_| Body::empty()) } else { response }
    }

    async fn route(&self, request: Request<Incoming>) -> Response {
        self.router.call(request).await.unwrap_or_else(|never| match never {})
    }
}

/// The native API.
fn router(api: Api) -> Router {
    Router::new()
        .route("/alive", get(alive::alive))
        .route("/v1/info", get(info::info))
        .route("/v1/openapi.json", get(openapi))
        .route("/v1/actions/{id}", post(actions::begin).get(actions::attach).delete(actions::cancel))
        .route("/v1/ports", get(ports::list))
        .route("/v1/ports/{port}", get(ports::look))
        .route("/v1/ports/{port}/tunnel", get(ports::tunnel_to_port).connect(ports::tunnel_to_port))
        .route("/v1/sockets/tunnel", get(ports::tunnel_to_socket).connect(ports::tunnel_to_socket))
        .route("/v1/environment", put(environment::set))
        .route("/v1/terminal", get(terminal::open).connect(terminal::open))
        .route("/v1/sessions", get(sessions::list))
        .route("/v1/sessions/{name}", delete(sessions::end))
        .route("/v1/actions/{id}/acknowledge", post(actions::acknowledge))
        .route("/v1/processes", get(processes::list))
        .route("/v1/processes/{id}", post(processes::start).get(processes::info).delete(processes::kill))
        .route("/v1/processes/{id}/acknowledge", post(processes::acknowledge))
        .route("/v1/processes/{id}/output", get(processes::output))
        .route("/v1/processes/{id}/stdin", post(processes::stdin))
        .route("/v1/processes/{id}/signal", post(processes::signal))
        .route("/execute_action", post(execute_action::execute_action))
        .merge(files::routes())
        .fallback(async || ApiError::NoSuchRoute)
        .method_not_allowed_fallback(async || ApiError::MethodNotAllowed)
        .with_state(api)
}

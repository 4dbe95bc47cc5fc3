//! All routes. Everything but `/alive` (and V0's `/server_info`) requires the key, including
//! unknown routes. The module `protocol::sandbox_api` documents requests and responses.

use std::path::PathBuf;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{delete, get, post, put};
use hyper::body::Incoming;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;

use crate::api::error::ApiError;
use crate::api::guard::guard;
use crate::api::{
    Api, actions, alive, environment, execute_action, files, info, ports, processes, sessions,
    terminal,
};
use crate::config::ApiDialect;
use crate::openapi::openapi;
use crate::v0;

/// Responds to requests. Clones share the state.
#[derive(Clone)]
pub(crate) struct App {
    api: Api,
    dialect: ApiDialect,
    router: TowerToHyperService<Router>,
}

impl App {
    pub(crate) fn new(api: Api, dialect: ApiDialect, working_dir: PathBuf) -> Self {
        let router = match dialect {
            ApiDialect::Native => router(api.clone()),
            ApiDialect::V0 => v0::router(api.clone(), working_dir),
        };
        Self {
            api,
            dialect,
            router: TowerToHyperService::new(router),
        }
    }

    /// Runs the checks before routing here, around the router. A layer would wrap each route, and
    /// every layer costs each request time.
    pub(crate) async fn respond(&self, request: Request<Incoming>) -> Response {
        let v0 = self.dialect == ApiDialect::V0;
        let (path, is_head) = (request.uri().path(), request.method() == Method::HEAD);
        let is_open = path == "/alive" || v0 && path == "/server_info";
        let response = if is_open {
            self.route(request).await
        } else if v0 && v0::is_from_web_page(&self.api, &request) {
            ApiError::FromWebPage.into_response()
        } else {
            guard(&self.api, request, |request| self.route(request)).await
        };
        let response = if v0 {
            v0::into_v0_error(response)
        } else {
            response
        };
        // Handlers send no body for HEAD, but errors do, which HTTP/2 clients treat as a protocol
        // error.
        if is_head {
            response.map(|_| Body::empty())
        } else {
            response
        }
    }

    async fn route(&self, request: Request<Incoming>) -> Response {
        self.router
            .call(request)
            .await
            .unwrap_or_else(|never| match never {})
    }
}

/// The native API.
fn router(api: Api) -> Router {
    Router::new()
        .route("/alive", get(alive::alive))
        .route("/v1/info", get(info::info))
        .route("/v1/openapi.json", get(openapi))
        .route(
            "/v1/actions/{id}",
            post(actions::start)
                .get(actions::attach)
                .delete(actions::cancel),
        )
        .route("/v1/ports", get(ports::list))
        .route("/v1/ports/{port}", get(ports::probe))
        .route(
            "/v1/ports/{port}/tunnel",
            get(ports::tunnel_to_port).connect(ports::tunnel_to_port),
        )
        .route(
            "/v1/sockets/tunnel",
            get(ports::tunnel_to_socket).connect(ports::tunnel_to_socket),
        )
        .route("/v1/environment", put(environment::set))
        .route("/v1/terminal", get(terminal::open).connect(terminal::open))
        .route("/v1/sessions", get(sessions::list))
        .route("/v1/sessions/{name}", delete(sessions::end))
        .route("/v1/actions/{id}/acknowledge", post(actions::acknowledge))
        .route("/v1/processes", get(processes::list))
        .route(
            "/v1/processes/{id}",
            post(processes::start)
                .get(processes::info)
                .delete(processes::kill),
        )
        .route(
            "/v1/processes/{id}/acknowledge",
            post(processes::acknowledge),
        )
        .route("/v1/processes/{id}/output", get(processes::output))
        .route("/v1/processes/{id}/stdin", post(processes::stdin))
        .route("/v1/processes/{id}/signal", post(processes::signal))
        .route("/execute_action", post(execute_action::execute_action))
        .merge(files::routes())
        .fallback(async || ApiError::NoSuchRoute)
        .method_not_allowed_fallback(async || ApiError::MethodNotAllowed)
        .with_state(api)
}

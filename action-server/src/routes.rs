//! The whole API. What each route takes and gives is told in `protocol::sandbox_api`.

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{delete, get, post, put};

use crate::api::guard::guard;
use crate::api::{
    Api, actions, alive, environment, execute_action, files, info, ports, processes, sessions, terminal,
};
use crate::error::ApiError;
use crate::openapi::openapi;

/// Everything but `/alive` needs the key, unknown routes too.
pub(crate) fn router(api: Api) -> Router {
    let guarded = Router::new()
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
        .layer(from_fn_with_state(api.clone(), guard));
    Router::new().route("/alive", get(alive::alive)).merge(guarded).with_state(api)
}

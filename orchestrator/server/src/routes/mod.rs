//! The table of routes.

pub(crate) mod conversations;
pub(crate) mod events;
pub(crate) mod files;
pub(crate) mod git;
pub(crate) mod health;
pub(crate) mod knowledge;
pub(crate) mod options;
pub(crate) mod ports;
pub(crate) mod sandboxes;
pub(crate) mod secrets;
pub(crate) mod settings;
pub(crate) mod trajectory;
pub(crate) mod upload;
pub(crate) mod workspace_git;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{any, get, post};
use http::{HeaderValue, header};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::map_request_body::MapRequestBodyLayer;
use tower_http::set_header::SetResponseHeaderLayer;
use tower_http::trace::TraceLayer;

use crate::error::ApiError;
use crate::extract::MAX_BODY_BYTES;
use crate::state::ServerState;
use crate::{
    audit, auth, base_path, client_address, mcp_endpoint, metrics, openai, openapi, origin,
    other_hosts, paced_body, page, rate_limit, request_log, sign_in_host, socket_io,
    socket_sessions, stream, v2,
};

pub(crate) use events::parse_command;

pub(crate) fn router(state: Arc<ServerState>) -> Router {
    let api = Router::new()
        .route("/options/models", get(options::models))
        .route("/options/agents", get(options::agents))
        .route(
            "/options/security-analyzers",
            get(options::security_analyzers),
        )
        .route("/options/config", get(options::config))
        .route(
            "/conversations",
            get(conversations::list).post(conversations::create),
        )
        .route(
            "/conversations/{id}",
            get(conversations::find)
                .patch(conversations::rename)
                .delete(conversations::delete),
        )
        .route("/conversations/{id}/start", post(conversations::start))
        .route("/conversations/{id}/stop", post(conversations::stop))
        .route("/conversations/{id}/config", get(conversations::config))
        .route(
            "/conversations/{id}/events",
            get(events::page).post(events::append),
        )
        .route("/conversations/{id}/message", post(events::message))
        .route("/conversations/{id}/trajectory", get(trajectory::export))
        .route("/conversations/{id}/web-hosts", get(ports::web_hosts))
        .route("/conversations/{id}/vscode-url", get(ports::vscode_url))
        .route("/conversations/{id}/list-files", get(files::list))
        .route("/conversations/{id}/select-file", get(files::select))
        .route("/conversations/{id}/zip-directory", get(files::zip))
        .route("/conversations/{id}/upload-files", post(upload::upload))
        .route(
            "/conversations/{id}/git/changes",
            get(workspace_git::changes),
        )
        .route("/conversations/{id}/git/diff", get(workspace_git::diff))
        .route(
            "/conversations/{id}/microagents",
            get(knowledge::microagents),
        )
        .route(
            "/conversations/{id}/remember-prompt",
            get(knowledge::remember_prompt),
        )
        .route(
            "/conversations/{id}/submit-feedback",
            post(conversations::submit_feedback),
        )
        .route(
            "/conversations/{id}/exp-config",
            post(conversations::experiment_config),
        )
        .route(
            "/conversations/{id}/security/{*path}",
            any(conversations::security),
        )
        .route(
            "/microagent-management/conversations",
            get(conversations::list_of_microagents),
        )
        .route("/v1/sandboxes", get(sandboxes::find))
        .route(
            "/v2/conversations",
            get(v2::conversations::list).post(v2::conversations::create),
        )
        .route(
            "/v2/conversations/{id}",
            get(v2::conversations::find).delete(v2::conversations::delete),
        )
        .route("/v2/conversations/{id}/fork", post(v2::conversations::fork))
        .route("/v2/conversations/{id}/commands", post(v2::commands::apply))
        .route("/v2/conversations/{id}/events", get(v2::events::page))
        .route(
            "/v2/conversations/{id}/trajectory",
            get(v2::events::trajectory),
        )
        .route("/v2/conversations/{id}/stream", get(stream::stream))
        .merge(v2::files::router())
        .merge(v2::git::router())
        .merge(v2::sandbox::router())
        .merge(v2::profile::router())
        .merge(git::router())
        .merge(settings::router())
        .merge(secrets::router())
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(from_fn_with_state(Arc::clone(&state), other_hosts::forward))
        .layer(from_fn_with_state(Arc::clone(&state), auth::require_key));
    let openai = openai::router()
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(from_fn_with_state(Arc::clone(&state), auth::require_key));
    let router = match state.page_folder {
        Some(_) => page::router(&state),
        None => Router::new()
            .route("/", get(openapi::root))
            .fallback(no_route),
    };
    let router = router
        .merge(mcp_endpoint::router(&state))
        .route("/alive", get(health::alive))
        .route("/health", get(health::health))
        .route("/ready", get(health::ready))
        .route("/server_info", get(health::server_info))
        .route("/metrics", get(metrics::metrics))
        .route("/api/openapi.json", get(openapi::openapi))
        .route("/api/docs", get(openapi::docs))
        .nest("/api", api)
        .nest("/v1", openai)
        .method_not_allowed_fallback(no_method)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(from_fn_with_state(
            socket_io::Sockets::new(&state),
            socket_io::serve,
        ))
        .layer(from_fn_with_state(
            Arc::clone(&state),
            socket_sessions::require_owner,
        ))
        .layer(from_fn_with_state(Arc::clone(&state), other_hosts::forward))
        .layer(from_fn_with_state(
            Arc::clone(&state),
            auth::require_socket_key,
        ))
        // Outside of socket.io, and of what reads the body of a rejected request.
        .layer(MapRequestBodyLayer::new(paced_body::paced))
        .layer(from_fn_with_state(Arc::clone(&state), audit::record))
        .layer(from_fn_with_state(Arc::clone(&state), rate_limit::limit))
        .layer(from_fn_with_state(
            Arc::clone(&state),
            sign_in_host::require,
        ))
        .layer(from_fn_with_state(
            Arc::clone(&state),
            origin::require_own_origin,
        ))
        .layer(from_fn(openai::to_openai_errors))
        .layer(SetResponseHeaderLayer::if_not_present(
            header::CACHE_CONTROL,
            HeaderValue::from_static("no-store"),
        ))
        .layer(SetResponseHeaderLayer::if_not_present(
            header::X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_static("nosniff"),
        ))
        .layer(SetResponseHeaderLayer::if_not_present(
            header::CONTENT_SECURITY_POLICY,
            HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"),
        ))
        // Outside of the headers above, which are for our own content.
        .layer(from_fn_with_state(Arc::clone(&state), crate::ports::serve))
        .layer(CatchPanicLayer::new())
        .layer(from_fn_with_state(Arc::clone(&state), metrics::record))
        .layer(
            TraceLayer::new_for_http()
                .make_span_with(request_log::span)
                .on_failure(request_log::on_failure),
        )
        .layer(from_fn(request_log::assign_id))
        .layer(from_fn_with_state(
            Arc::clone(&state),
            client_address::identify,
        ))
        .with_state(Arc::clone(&state));
    // A router chooses the route before its layers, so the path is changed in front of it.
    Router::new()
        .fallback_service(router)
        .layer(from_fn_with_state(state, base_path::remove))
}

async fn no_route() -> ApiError {
    ApiError::NoRoute
}

async fn no_method() -> ApiError {
    ApiError::NoMethod
}

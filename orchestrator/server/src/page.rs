//! A web page of the operator's choice, such as a build of V0's front end, and the sign-in that gives it a session.

use std::path::Path;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{Html, IntoResponse as _, Redirect, Response};
use axum::routing::{get, post};
use axum::{Form, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use ring::digest::{SHA256, digest};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use tower_http::services::ServeDir;
use tower_http::set_header::SetResponseHeader;

use crate::cookies;
use crate::state::ServerState;

/// Policy of the page, except for its scripts. Pictures of other hosts are refused, because events could send data to them.
const PAGE_POLICY: &str = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; \
    font-src 'self' data:; worker-src 'self' blob:; object-src 'none'; base-uri 'self'; form-action 'self'; \
    frame-ancestors 'none'";

/// Policy of the sign-in.
const SIGN_IN_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'";

/// The sign-in. The placeholder is the problem with the last attempt.
const SIGN_IN: &str = r#"<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Sign in to Glovebox</title>
<style>body { font: 1rem sans-serif; margin: 20vh auto; max-width: 24rem } input { width: 100% }</style>
<h1>Sign in to Glovebox</h1>
<p role="alert">{problem}</p>
<form method="post" action="sign-in">
<p><label>Key of the server <input type="password" name="key" autocomplete="current-password" required autofocus></label></p>
<p><button>Sign in</button></p>
</form>
"#;

/// The form of the sign-in.
#[derive(Deserialize)]
struct SignIn {
    key: SecretString,
}

/// Serves the files of a folder, and its `index.html` for all other paths.
pub(crate) fn router(state: &Arc<ServerState>, folder: &Path) -> Router<Arc<ServerState>> {
    let fallback = get(page).with_state(Arc::clone(state));
    let files = ServeDir::new(folder).append_index_html_on_directories(false).fallback(fallback);
    // Copies of a browser are used while the files have not changed.
    let policy = HeaderValue::from_static("no-cache");
    let files = SetResponseHeader::if_not_present(files, header::CACHE_CONTROL, policy);
    Router::new()
        .route("/index.html", get(page))
        .route("/sign-in", get(sign_in_form).post(sign_in))
        .route("/sign-out", post(sign_out))
        .fallback_service(files)
}

/// The page. Without a session, leads to the sign-in. It is read for each request, because a new build has other scripts.
async fn page(State(state): State<Arc<ServerState>>, headers: HeaderMap) -> Response {
    if !cookies::has_session(&state.signatures, &headers) {
        return Redirect::to("/sign-in").into_response();
    }
    let path = state.page_folder.as_deref().unwrap_or(Path::new("")).join("index.html");
    let html = match tokio::fs::read_to_string(&path).await {
        Ok(html) => html,
        Err(error) => {
            tracing::error!(%error, path = %path.display(), "cannot read the page");
            return StatusCode::NOT_FOUND.into_response();
        }
    };
    let scripts = script_sources(&html);
    let policy = format!("{PAGE_POLICY}; script-src 'self'{scripts}");
    ([(header::CONTENT_SECURITY_POLICY, policy), (header::CACHE_CONTROL, "no-store".to_owned())], Html(html))
        .into_response()
}

/// Returns the sources of the scripts in a page, for its policy. A script that is not found is not run.
fn script_sources(html: &str) -> String {
    let mut sources = String::new();
    let mut rest = html;
    while let Some(start) = rest.find("<script") {
        rest = &rest[start..];
        let (Some(tag_end), Some(end)) = (rest.find('>'), rest.find("</script")) else { break };
        if let Some(script) = rest.get(tag_end + 1..end).filter(|script| !script.is_empty()) {
            let hash = STANDARD.encode(digest(&SHA256, script.as_bytes()));
            sources.push_str(&format!(" 'sha256-{hash}'"));
        }
        rest = &rest[end..];
    }
    sources
}

async fn sign_in_form() -> Response {
    sign_in_page(StatusCode::OK, "")
}

async fn sign_in(State(state): State<Arc<ServerState>>, Form(SignIn { key }): Form<SignIn>) -> Response {
    if !state.key.is(key.expose_secret().trim().as_bytes()) {
        return sign_in_page(StatusCode::UNAUTHORIZED, "This is not the key of the server.");
    }
    (
        cookies::start_session(&state.signatures).map(|cookie| [(header::SET_COOKIE, cookie)]),
        Redirect::to("/"),
    )
        .into_response()
}

async fn sign_out() -> Response {
    ([(header::SET_COOKIE, cookies::end_session())], Redirect::to("/sign-in")).into_response()
}

fn sign_in_page(status: StatusCode, problem: &str) -> Response {
    let policy = HeaderValue::from_static(SIGN_IN_POLICY);
    let html = Html(SIGN_IN.replace("{problem}", problem));
    (status, [(header::CONTENT_SECURITY_POLICY, policy)], html).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_scripts_of_the_page_are_allowed() {
        let html = "<script src=a.js></script><script>a</script><script type=module>b</script><script>c";
        let [a, b] =
            ["ypeBEsobvcr6wjGzmiPcTaeG7/gUfE5yuYB3ha/uSLs=", "PiPoFgA5WUoziU9lZOGxNIu9egCI1CxKy3PurtWcAJ0="];
        assert_eq!(script_sources(html), format!(" 'sha256-{a}' 'sha256-{b}'"));
        assert_eq!(script_sources("<p>text"), "");
    }
}

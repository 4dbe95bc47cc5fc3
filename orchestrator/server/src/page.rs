//! A web page of the operator's choice, such as a build of V0's front end, and the sign-in that
//! gives it a session.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{Html, IntoResponse as _, Redirect, Response};
use axum::routing::get;
use axum::{Extension, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use html5gum::emitters::default::DefaultEmitter;
use html5gum::{Token, Tokenizer};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use ring::digest::{SHA256, digest};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use tower_http::services::ServeFile;

use crate::client_address::Client;
use crate::error::ApiError;
use crate::extract::FormBody;
use crate::page_source::PageSource;
use crate::ports::PortHosts;
use crate::sign_in_host::SignInHost;
use crate::state::ServerState;
use crate::{auth, cookies};

/// Policy of the page, except for what other hosts may be the source of.
const PAGE_POLICY: &str = "default-src 'self'; worker-src 'self' blob:; object-src 'none'; base-uri 'self'; \
    form-action 'self'; frame-ancestors 'none'";

/// Policy of the sign-in and the sign-out.
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
<p><label>Key <input type="password" name="key" autocomplete="current-password" required autofocus></label></p>
<p><button>Sign in</button></p>
</form>
"#;

/// The sign-out. A link to it from another page has no effect until its button is pressed.
const SIGN_OUT: &str = r#"<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Sign out of Glovebox</title>
<style>body { font: 1rem sans-serif; margin: 20vh auto; max-width: 24rem }</style>
<h1>Sign out of Glovebox</h1>
<form method="post" action="sign-out">
<p><button>Sign out</button></p>
</form>
"#;

/// The form of the sign-in.
#[derive(Deserialize)]
struct SignIn {
    key: SecretString,
}

/// Serves the files of the page's folder, and its `index.html` for all other paths.
pub(crate) fn router(state: &Arc<ServerState>) -> Router<Arc<ServerState>> {
    let files = get(file_or_page).fallback(async || ApiError::NoMethod);
    Router::new()
        .route("/index.html", get(page))
        .route("/sign-in", get(sign_in_form).post(sign_in))
        .route("/sign-out", get(sign_out_form).post(sign_out))
        .fallback_service(files.with_state(Arc::clone(state)))
}

async fn file_or_page(State(state): State<Arc<ServerState>>, request: Request) -> Response {
    let file = match &state.page_folder {
        Some(folder) => find_file(folder, request.uri().path()).await,
        None => None,
    };
    let Some(file) = file else {
        return page(State(state), request).await;
    };
    match ServeFile::new(file).try_call(request).await {
        Ok(mut response) => {
            // Copies of a browser are used while the file has not changed.
            response
                .headers_mut()
                .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            response.map(Body::new)
        }
        Err(error) => {
            tracing::warn!(%error, "cannot read a file of the page");
            StatusCode::NOT_FOUND.into_response()
        }
    }
}

/// Returns the regular file for a path. `None` for hidden files, and for links to them or out of
/// the folder.
async fn find_file(folder: &Path, path: &str) -> Option<PathBuf> {
    let is_name = |name: &str| {
        !name.is_empty() && !name.starts_with('.') && !name.contains(['%', '\\', '\0'])
    };
    let path = path
        .strip_prefix('/')
        .filter(|path| path.split('/').all(is_name))?;
    let folder = tokio::fs::canonicalize(folder).await.ok()?;
    let file = tokio::fs::canonicalize(folder.join(path)).await.ok()?;
    // A pipe would never end.
    let is_file = tokio::fs::metadata(&file)
        .await
        .is_ok_and(|metadata| metadata.is_file());
    let is_shown = |path: &Path| {
        !path
            .iter()
            .any(|name| name.as_encoded_bytes().starts_with(b"."))
    };
    (is_file && file.strip_prefix(&folder).is_ok_and(is_shown)).then_some(file)
}

/// The page. Without a session, leads to the sign-in. It is read for each request, because a new
/// build has other scripts.
async fn page(State(state): State<Arc<ServerState>>, request: Request) -> Response {
    if let Some(host) = request.extensions().get::<SignInHost>() {
        let path = request
            .uri()
            .path_and_query()
            .map_or("/", PathAndQuery::as_str);
        return Redirect::to(&host.url(&state.base_path, path)).into_response();
    }
    match auth::find_session(
        &state,
        Client::find(request.extensions()),
        request.headers(),
    )
    .await
    {
        Ok(Some(_)) => {}
        Ok(None) => return Redirect::to(&format!("{}/sign-in", state.base_path)).into_response(),
        Err(error) => return error.into_response(),
    }
    let path = state
        .page_folder
        .as_deref()
        .unwrap_or(Path::new(""))
        .join("index.html");
    let html = match tokio::fs::read_to_string(&path).await {
        Ok(html) => html,
        Err(error) => {
            tracing::error!(%error, path = %path.display(), "cannot read the page");
            return StatusCode::NOT_FOUND.into_response();
        }
    };
    let policy = page_policy(&html, &state.page_sources, &state.port_hosts);
    (
        [
            (header::CONTENT_SECURITY_POLICY, policy),
            (header::CACHE_CONTROL, "no-store".to_owned()),
        ],
        Html(html),
    )
        .into_response()
}

/// Returns the policy of a page. Pictures of hosts that are not among the sources are refused,
/// because events could send data to them.
fn page_policy(html: &str, sources: &[PageSource], ports: &PortHosts) -> String {
    let scripts = script_sources(html);
    let others: String = sources.iter().map(|source| format!(" {source}")).collect();
    let ports = ports.to_source();
    format!(
        "{PAGE_POLICY}; connect-src 'self' {ports}; frame-src 'self' {ports}; script-src 'self'{scripts}{others}; style-src 'self' 'unsafe-inline'{others}; \
         img-src 'self' data: blob:{others}; font-src 'self' data:{others}"
    )
}

/// Returns the sources of the scripts in a page, for its policy. A script that is not found is not
/// run.
fn script_sources(html: &str) -> String {
    let mut tokens = DefaultEmitter::default();
    // The content of a script is text.
    tokens.naively_switch_states(true);
    let (mut sources, mut script) = (String::new(), None);
    for Ok(token) in Tokenizer::new_with_emitter(html, tokens) {
        match token {
            Token::StartTag(tag) => script = (*tag.name == b"script"[..]).then(Vec::new),
            Token::String(text) => script
                .iter_mut()
                .for_each(|script| script.extend_from_slice(&text)),
            Token::EndTag(_) => {
                let script = script.take().filter(|script| !script.is_empty());
                let source = script.map(|script| STANDARD.encode(digest(&SHA256, &script)));
                sources.extend(source.map(|hash| format!(" 'sha256-{hash}'")));
            }
            _ => {}
        }
    }
    sources
}

async fn sign_in_form(
    State(state): State<Arc<ServerState>>,
    host: Option<Extension<SignInHost>>,
) -> Response {
    match host {
        Some(Extension(host)) => {
            Redirect::to(&host.url(&state.base_path, "/sign-in")).into_response()
        }
        None => sign_in_page(StatusCode::OK, ""),
    }
}

async fn sign_in(
    State(state): State<Arc<ServerState>>,
    Extension(client): Extension<Client>,
    host: Option<Extension<SignInHost>>,
    FormBody(SignIn { key }): FormBody<SignIn>,
) -> Result<Response, ApiError> {
    if let Some(Extension(host)) = host {
        let problem = format!("Sign in at {}", host.url(&state.base_path, "/sign-in"));
        return Ok(sign_in_page(StatusCode::MISDIRECTED_REQUEST, &problem));
    }
    let key = key.expose_secret().trim();
    let caller = match auth::check_key(&state, Some(client), key.as_bytes()).await {
        Ok(caller) => caller,
        Err(ApiError::WrongKey) => {
            return Ok(sign_in_page(
                StatusCode::UNAUTHORIZED,
                "This is not a key of the server.",
            ));
        }
        Err(ApiError::TooManyWrongKeys(_)) => {
            return Ok(sign_in_page(
                StatusCode::TOO_MANY_REQUESTS,
                "Too many wrong keys. Try again in a minute.",
            ));
        }
        Err(error) => return Err(error),
    };
    let token = state.authenticator.start_session(&caller).await?;
    let cookie = cookies::start_session(&token, client.is_tls, &state.base_path).to_string();
    let response = (
        [(header::SET_COOKIE, cookie)],
        Redirect::to(&format!("{}/", state.base_path)),
    );
    Ok((Extension(caller), response).into_response())
}

/// Ends the session, also for copies of its cookie.
async fn sign_out(
    State(state): State<Arc<ServerState>>,
    Extension(client): Extension<Client>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let caller = auth::find_session(&state, Some(client), &headers).await?;
    for token in cookies::session_tokens(&headers, client.is_tls, &state.base_path) {
        state.authenticator.end_session(token.as_bytes()).await?;
    }
    let cookie = cookies::end_session(client.is_tls, &state.base_path).to_string();
    let response = (
        [(header::SET_COOKIE, cookie)],
        Redirect::to(&format!("{}/sign-in", state.base_path)),
    );
    Ok((caller.map(Extension), response).into_response())
}

fn sign_in_page(status: StatusCode, problem: &str) -> Response {
    form_page(status, SIGN_IN.replace("{problem}", problem))
}

async fn sign_out_form() -> Response {
    form_page(StatusCode::OK, SIGN_OUT.to_owned())
}

fn form_page(status: StatusCode, html: String) -> Response {
    let policy = HeaderValue::from_static(SIGN_IN_POLICY);
    (
        status,
        [(header::CONTENT_SECURITY_POLICY, policy)],
        Html(html),
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_scripts_of_the_page_are_allowed() {
        let html =
            "<script src=a.js></script><script>a</script><script type=module>b</script><script>c";
        let [a, b] = [
            "ypeBEsobvcr6wjGzmiPcTaeG7/gUfE5yuYB3ha/uSLs=",
            "PiPoFgA5WUoziU9lZOGxNIu9egCI1CxKy3PurtWcAJ0=",
        ];
        assert_eq!(script_sources(html), format!(" 'sha256-{a}' 'sha256-{b}'"));
        assert_eq!(script_sources("<p>text"), "");
    }

    #[test]
    fn sources_are_added_to_what_the_page_loads() {
        let sources = ["https://cdn.example.com/vs/", "https://*.example.org"]
            .map(|source| source.parse().unwrap());
        let ports = PortHosts::localhost(false, 3000);
        let policy = page_policy("<p>text", &sources, &ports);
        let directives: Vec<_> = policy.split("; ").collect();
        let others = "https://cdn.example.com/vs/ https://*.example.org/";
        for directive in [
            "connect-src 'self' http://*.localhost:3000".to_owned(),
            "frame-src 'self' http://*.localhost:3000".to_owned(),
            format!("script-src 'self' {others}"),
            format!("style-src 'self' 'unsafe-inline' {others}"),
            format!("img-src 'self' data: blob: {others}"),
            format!("font-src 'self' data: {others}"),
        ] {
            assert!(directives.contains(&directive.as_str()), "{policy}");
        }
        assert_eq!(policy.matches(others).count(), 4, "{policy}");
        assert!(!page_policy("<p>text", &[], &ports).contains("example"));
    }
}

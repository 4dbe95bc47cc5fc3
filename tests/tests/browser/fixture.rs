//! A sandbox with a browser and an HTTP server with pages on loopback.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ::browser::BrowsingProvider;
use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::http::header::CONTENT_TYPE;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use engine::sandbox::{ResourceLimits, Sandbox, SandboxError, SandboxProvider, SandboxSpec};
use protocol::action::{BrowseAction, BrowseInteractiveAction};
use protocol::observation::BrowseObservation;
use protocol::sandbox_api::{ActionRequest, SandboxAction};
use protocol::{ActionId, Observation, ObservationKind};
use tests::sandbox_contract::local::LocalBackend;
use tests::sandbox_contract::{Backend, command, id, spec};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::pages;
use crate::skip::skip_without;

/// A sandbox with a browser, and the server of its pages. [`end`](Self::end) removes both.
pub(super) struct BrowserFixture<B = LocalBackend> {
    pub(super) backend: B,
    provider: Arc<dyn SandboxProvider>,
    pub(super) sandbox: Arc<dyn Sandbox>,
    /// URL of the pages, such as `http://127.0.0.1:8000`.
    pub(super) site: String,
    server: AbortHandle,
    /// Notified by each request for `SITE/arrived`, which shows the progress of an action.
    arrived: Arc<Notify>,
    next: AtomicU32,
}

impl BrowserFixture {
    pub(super) async fn new() -> Option<Self> {
        Self::with_backend(LocalBackend::new().unwrap()).await
    }
}

impl<B: Backend> BrowserFixture<B> {
    /// Creates a sandbox. `None`, and the test is skipped, without Chromium.
    pub(super) async fn with_backend(backend: B) -> Option<Self> {
        if skip_without("chromium") {
            return None;
        }
        let provider = browsing(&backend);
        let spec = SandboxSpec {
            resources: ResourceLimits {
                memory_bytes: 3 << 30,
                pids: 1000,
                ..ResourceLimits::default()
            },
            ..spec(&backend)
        };
        let sandbox: Arc<dyn Sandbox> = Arc::from(provider.create(&spec, &|_| {}).await.unwrap());
        let arrived = Arc::new(Notify::new());
        let (site, server) = serve(Arc::clone(&arrived)).await;
        Some(Self {
            backend,
            provider,
            sandbox,
            site,
            server,
            arrived,
            next: AtomicU32::new(1),
        })
    }

    pub(super) fn next_id(&self) -> ActionId {
        id(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Runs browser calls, in which `SITE` stands for the URL of the pages.
    pub(super) async fn act(&self, calls: &str) -> PageObservation {
        PageObservation::from_observation(
            self.perform(
                self.next_id(),
                &interactive(&calls.replace("SITE", &self.site), 60.0),
            )
            .await
            .unwrap(),
        )
    }

    pub(super) async fn perform(
        &self,
        id: ActionId,
        request: &ActionRequest,
    ) -> Result<Observation, SandboxError> {
        // Longer than the browser's own timeouts.
        let performed = self.sandbox.execute(&id, request, &|_| {});
        tokio::time::timeout(Duration::from_secs(150), performed)
            .await
            .expect("the action completes")
    }

    pub(super) async fn browse(&self, page: &str) -> PageObservation {
        let browse = BrowseAction {
            url: format!("{}/{page}", self.site),
            ..Default::default()
        };
        let request = ActionRequest::new(SandboxAction::Browse(browse), Some(60.0));
        PageObservation::from_observation(self.perform(self.next_id(), &request).await.unwrap())
    }

    /// Waits for the next request for `SITE/arrived`.
    pub(super) async fn arrival(&self) {
        tokio::time::timeout(Duration::from_secs(60), self.arrived.notified())
            .await
            .expect("it arrives");
    }

    /// Runs a command in the sandbox.
    pub(super) async fn run(&self, text: &str) -> String {
        self.perform(self.next_id(), &command(text))
            .await
            .unwrap()
            .content
    }

    /// Attaches to the sandbox as a restarted host would.
    pub(super) async fn restart_host(&mut self) {
        self.provider = browsing(&self.backend);
        self.sandbox = Arc::from(self.provider.attach(self.sandbox.lease()).await.unwrap());
    }

    pub(super) async fn end(self) {
        let id = self.sandbox.lease().sandbox_id.clone();
        // An isolated sandbox has its own `/tmp`, which is removed with it.
        let folders = self
            .run("cd ${TMPDIR:-/tmp}/glovebox-browser-* && pwd")
            .await;
        let folder = folders.split_whitespace().next().unwrap();
        assert!(folder.contains("/glovebox-browser-"), "{folders}");
        self.provider.destroy(&id).await.unwrap();
        drop(self.sandbox);
        assert_eq!(self.backend.remains(&id).await, Vec::<String>::new());
        assert!(!std::path::Path::new(&folder).exists(), "{folder} is left");
        self.server.abort();
    }
}

fn browsing(backend: &dyn Backend) -> Arc<dyn SandboxProvider> {
    Arc::new(BrowsingProvider::new(Arc::from(backend.provider())))
}

pub(super) fn interactive(calls: &str, timeout: f64) -> ActionRequest {
    let action = BrowseInteractiveAction {
        browser_actions: calls.to_owned(),
        ..Default::default()
    };
    ActionRequest::new(SandboxAction::BrowseInteractive(action), Some(timeout))
}

/// The observation of a page.
#[derive(Debug)]
pub(super) struct PageObservation {
    pub(super) text: String,
    pub(super) page: BrowseObservation,
}

impl PageObservation {
    fn from_observation(observation: Observation) -> Self {
        let ObservationKind::Browse(page) = observation.kind else {
            panic!("{observation:?}")
        };
        Self {
            text: observation.content,
            page: *page,
        }
    }

    /// Checks that no call failed.
    #[track_caller]
    pub(super) fn expect_success(self) -> Self {
        assert_eq!(self.page.last_browser_action_error, "", "{}", self.text);
        assert!(!self.page.error);
        self
    }

    #[track_caller]
    pub(super) fn has(&self, part: &str) -> &Self {
        assert!(self.text.contains(part), "{part} in {}", self.text);
        self
    }

    #[track_caller]
    pub(super) fn failed(&self, part: &str) -> &Self {
        let error = &self.page.last_browser_action_error;
        assert!(
            self.page.error && error.contains(part) && !error.contains('\n'),
            "{part} in {error}"
        );
        self
    }

    /// Returns the id of the element whose line contains `part`.
    #[track_caller]
    pub(super) fn element_id(&self, part: &str) -> String {
        let line = self
            .text
            .lines()
            .find(|line| line.contains(part) && line.trim_start().starts_with('['));
        let line = line.unwrap_or_else(|| panic!("{part} in {}", self.text));
        line.trim_start()
            .trim_start_matches('[')
            .split(']')
            .next()
            .unwrap()
            .to_owned()
    }
}

async fn serve(arrived: Arc<Notify>) -> (String, AbortHandle) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let site = format!("http://{}", listener.local_addr().unwrap());
    let notify = async move || arrived.notify_one();
    let routes = Router::new()
        .route("/arrived", get(notify))
        .route("/{page}", get(page));
    let server = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    (site, server.abort_handle())
}

async fn page(Path(page): Path<String>) -> Response {
    match page.as_str() {
        // The first part is sent, the rest never.
        "endless" => {
            let first = futures_util::stream::iter([Ok::<_, std::io::Error>("<h1>started</h1>")]);
            let never = futures_util::stream::pending();
            let body = Body::from_stream(futures_util::StreamExt::chain(first, never));
            ([(CONTENT_TYPE, "text/html")], body).into_response()
        }
        "silent" => std::future::pending().await,
        "archive" => ([(CONTENT_TYPE, "application/zip")], "PK").into_response(),
        page => Html(pages::html(page)).into_response(),
    }
}

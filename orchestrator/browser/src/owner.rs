//! Task that owns a sandbox's browser. It performs actions sequentially, each id at most once, and
//! handles events in between.
//!
//! The task ends when its last handle is dropped. The browser continues, as all processes of the
//! sandbox do, and the next client that attaches to the sandbox finds it.

use std::sync::Arc;
use std::time::Duration;

use engine::browsing::BrowserCall;
use engine::sandbox::SandboxError;
use protocol::{ActionId, Observation};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::browser::{Browser, BrowserError, short_line};
use crate::folder::{ActionStart, BrowserFolder, BrowserState};
use crate::link::{Link, launch};
use crate::observe::{BrowseResult, observe};
use crate::perform::perform;

/// Maximum number of queued actions. More are refused: each running agent has one.
const MAX_QUEUED_ACTIONS: usize = 16;

/// Timeout of actions that do not set one.
const DEFAULT_ACTION_TIMEOUT: Duration = Duration::from_secs(120);

/// Timeout of the browser's start.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Timeout and number of attempts to attach to a running browser. The previous link may consume a
/// response before the new one has terminated it.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_HANDSHAKES: usize = 4;

/// Timeout of the observation of a page. After that, the page is reported as not observable.
const OBSERVATION_TIMEOUT: Duration = Duration::from_secs(45);

/// Maximum length of the output of a browser that cannot start, in characters.
const MAX_STDERR_CHARS: usize = 600;

const CANCELLED: &str = "it was cancelled; what it had started may continue";

/// A queued action.
pub(crate) struct BrowserTask {
    pub(crate) id: ActionId,
    /// `browse` or `browse_interactive`.
    pub(crate) trigger: &'static str,
    /// Source text of the calls.
    pub(crate) source: String,
    /// The parsed calls, or the parse error.
    pub(crate) calls: Result<Vec<BrowserCall>, String>,
    /// Timeout of the calls, without the observation.
    pub(crate) timeout: Option<Duration>,
    pub(crate) cancel: Arc<CancellationToken>,
    pub(crate) reply: oneshot::Sender<Result<Observation, SandboxError>>,
}

/// Starts the task, and returns the sender of its queue. After the last sender is dropped, the task
/// completes the running action and ends. Queued actions are not started, because no caller waits
/// for them.
pub(crate) fn start(folder: BrowserFolder, has_marks: bool) -> mpsc::Sender<BrowserTask> {
    let (tasks, queue) = mpsc::channel(MAX_QUEUED_ACTIONS);
    let owner = BrowserOwner {
        folder,
        has_marks,
        browser: None,
        latest: None,
        ended: CancellationToken::new(),
    };
    tokio::spawn(async move {
        let _ended = owner.ended.clone().drop_guard();
        owner.run(queue).await;
    });
    tasks
}

struct BrowserOwner {
    folder: BrowserFolder,
    /// Whether observations have a marked screenshot.
    has_marks: bool,
    browser: Option<Browser>,
    /// Result of the latest action, which is returned again for the same id.
    latest: Option<(ActionId, Observation)>,
    /// Signals the supervising task that the owner has ended.
    ended: CancellationToken,
}

impl BrowserOwner {
    async fn run(mut self, mut queue: mpsc::Receiver<BrowserTask>) {
        loop {
            let task = match &mut self.browser {
                None => queue.recv().await,
                Some(browser) => tokio::select! {
                    task = queue.recv() => task,
                    handled = browser.handle_event() => {
                        if handled.is_err() {
                            self.browser = None;
                        }
                        continue;
                    }
                },
            };
            let Some(task) = task else { return };
            self.on_task(task).await;
        }
    }

    async fn on_task(&mut self, task: BrowserTask) {
        if task.reply.is_closed() {
            return;
        }
        let BrowserTask {
            id,
            trigger,
            source,
            calls,
            timeout,
            cancel,
            reply,
        } = task;
        if let Some((_, observation)) = self.latest.as_ref().filter(|(latest, _)| *latest == id) {
            // The caller may have been cancelled.
            let _ = reply.send(Ok(observation.clone()));
            return;
        }
        let result = BrowseResult {
            trigger,
            source,
            ..BrowseResult::default()
        };
        let limit = timeout.unwrap_or(DEFAULT_ACTION_TIMEOUT);
        let observed = self.execute(&id, result, calls, limit, &cancel).await;
        if let Ok(observation) = &observed {
            self.latest = Some((id, observation.clone()));
        }
        let _ = reply.send(observed);
    }

    /// Performs an action, and observes the page.
    async fn execute(
        &mut self,
        id: &ActionId,
        mut result: BrowseResult,
        calls: Result<Vec<BrowserCall>, String>,
        limit: Duration,
        cancel: &CancellationToken,
    ) -> Result<Observation, SandboxError> {
        let has_marks = self.has_marks;
        let start = tokio::select! {
            biased;
            () = cancel.cancelled() => return Ok(result.failed("it was cancelled before it started")),
            start = self.folder.start_action(id) => start?,
        };
        let performed = tokio::select! {
            biased;
            () = cancel.cancelled() => return Ok(result.failed(CANCELLED)),
            performed = self.perform(start, &mut result, calls, limit) => performed,
        };
        let browser = match performed {
            Ok(browser) => browser,
            Err(error) => {
                self.browser = None;
                return Ok(result.failed(error));
            }
        };
        let observed = tokio::select! {
            observed = timeout(OBSERVATION_TIMEOUT, observe(browser, &mut result, has_marks)) => observed,
            () = cancel.cancelled() => return Ok(result.failed(CANCELLED)),
        };
        Ok(match observed {
            Ok(Ok(observation)) => observation,
            Ok(Err(error)) => {
                self.browser = None;
                result.failed(gone_message(&error))
            }
            Err(_) => {
                let seconds = OBSERVATION_TIMEOUT.as_secs();
                let timed_out =
                    || format!("cannot observe the page: no response within {seconds} seconds");
                result.error.get_or_insert_with(timed_out);
                result.without_page(&browser.take_notes())
            }
        })
    }

    /// Performs the calls of an action. Their failure is part of the result. `Err` if there is no
    /// browser.
    async fn perform(
        &mut self,
        start: ActionStart,
        result: &mut BrowseResult,
        calls: Result<Vec<BrowserCall>, String>,
        limit: Duration,
    ) -> Result<&mut Browser, String> {
        let folder = self.folder.clone();
        let browser = self.running_browser(start.browser).await?;
        let calls = match (start.is_repeated, calls) {
            (true, _) => {
                result.error = Some(
                    "the host was interrupted during this action, and its result is unknown: look at the page as it is now"
                        .to_owned(),
                );
                return Ok(browser);
            }
            (false, Err(error)) => {
                result.error = Some(error);
                return Ok(browser);
            }
            (false, Ok(calls)) => calls,
        };
        let all = async {
            let ready = async {
                browser.ensure_tab().await?;
                browser.ensure_responsive().await
            };
            match ready.await {
                Ok(()) => perform(browser, folder.sandbox.as_ref(), &calls).await,
                Err(error) => Err(("the browser".to_owned(), error)),
            }
        };
        match timeout(limit, all).await {
            Ok(Ok(())) => {
                result.has_sent_message = calls
                    .iter()
                    .any(|call| matches!(call, BrowserCall::SendMessage(_)));
            }
            Ok(Err((_, error @ BrowserError::Gone(_)))) => return Err(gone_message(&error)),
            Ok(Err((call, error))) => result.error = Some(format!("{call}: {error}")),
            Err(_) => {
                result.error = Some(format!(
                    "it took longer than {} seconds",
                    limit.as_secs_f64()
                ));
                // Pending waits would delay the observation. An exited browser is detected by the
                // observation.
                let _ = browser.notify("Page.stopLoading", json!({}));
            }
        }
        Ok(browser)
    }

    /// Returns the running browser, or starts one.
    async fn running_browser(&mut self, state: BrowserState) -> Result<&mut Browser, String> {
        if state == BrowserState::Running {
            // A broken connection may not have been noticed yet.
            let is_responsive = match &mut self.browser {
                Some(browser) => browser.is_responsive(HANDSHAKE_TIMEOUT).await,
                None => false,
            };
            if !is_responsive {
                self.browser = None;
                self.browser = Some(self.reattach().await?);
            }
        } else {
            let mut browser = self.start().await?;
            if state == BrowserState::Exited {
                browser.note(
                    "The browser had exited. This is a new one, without its pages and sign-ins."
                        .to_owned(),
                );
            }
            self.browser = Some(browser);
        }
        self.browser
            .as_mut()
            .ok_or_else(|| "there is no browser".to_owned())
    }

    /// Re-attaches to a browser that was started before.
    async fn reattach(&self) -> Result<Browser, String> {
        let mut reason = String::new();
        for _ in 0..MAX_HANDSHAKES {
            let link = Link::open(&self.folder, CancellationToken::new())
                .map_err(|error| error.to_string())?;
            match Browser::attach(link, HANDSHAKE_TIMEOUT).await {
                Ok(browser) => return Ok(browser),
                Err(error) => reason = error.to_string(),
            }
            sleep(HANDSHAKE_TIMEOUT / 10).await;
        }
        // The next action starts a new browser.
        if let Err(error) = self.folder.kill_browser().await {
            tracing::debug!(%error, "cannot kill an unresponsive browser");
        }
        Err(format!(
            "the browser does not respond and was killed: {reason}"
        ))
    }

    async fn start(&self) -> Result<Browser, String> {
        let process =
            launch(&self.folder, self.ended.clone()).map_err(|error| error.to_string())?;
        let link =
            Link::open(&self.folder, process.exited.clone()).map_err(|error| error.to_string())?;
        let attached = tokio::select! {
            attached = Browser::attach(link, START_TIMEOUT) => attached.map_err(|error| error.to_string()),
            () = process.exited.cancelled() => Err("it has exited".to_owned()),
        };
        attached.map_err(|reason| {
            let output = short_line(&process.output.to_text(), MAX_STDERR_CHARS);
            format!("cannot start the browser: {reason}; its output: {output}")
        })
    }
}

fn gone_message(error: &BrowserError) -> String {
    format!("{error}; the next action attaches to it, or starts a new one")
}

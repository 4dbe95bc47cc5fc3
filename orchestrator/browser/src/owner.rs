//! Task that owns a sandbox's browser. It performs actions sequentially, each id at most once, and handles events in
//! between.
//!
//! The task ends when its last handle is dropped. The browser continues, as all processes of the sandbox do, and the next
//! client that attaches to the sandbox finds it.

use std::time::Duration;

use engine::browsing::BrowserCall;
use engine::sandbox::SandboxError;
use protocol::{ActionId, Observation};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::browser::{Browser, BrowserError, short};
use crate::link::{Link, launch};
use crate::observe::{BrowseResult, observe};
use crate::perform::perform;
use crate::place::{ActionStart, BrowserFolder, BrowserState};

/// Maximum number of queued actions. More are refused: each running agent has one.
const MAX_QUEUED_ACTIONS: usize = 16;

/// Timeout of actions that do not set one.
const DEFAULT_ACTION_TIMEOUT: Duration = Duration::from_secs(120);

/// Timeout of the browser's start.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Timeout and number of attempts to attach to a running browser. The previous link may consume a response before the new
/// one has terminated it.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_HANDSHAKES: usize = 4;

/// Timeout of the observation of a page. After that, the page is reported as not observable.
const OBSERVATION_TIMEOUT: Duration = Duration::from_secs(45);

/// Maximum length of the output of a browser that cannot start, in characters.
const MAX_STDERR_CHARS: usize = 600;

const CANCELLED: &str = "it was cancelled; what it had started may continue";

/// A queued action.
pub(crate) struct Task {
    pub(crate) id: ActionId,
    /// `browse` or `browse_interactive`.
    pub(crate) trigger: &'static str,
    /// Source text of the calls.
    pub(crate) written: String,
    /// The parsed calls, or the parse error.
    pub(crate) calls: Result<Vec<BrowserCall>, String>,
    /// Timeout of the calls, without the observation.
    pub(crate) patience: Option<Duration>,
    pub(crate) cancel: CancellationToken,
    pub(crate) answer: oneshot::Sender<Result<Observation, SandboxError>>,
}

/// Handle of the task. After the last one is dropped, the task completes the running action and ends. Queued actions are
/// not started, because no caller waits for them.
pub(crate) fn start(place: BrowserFolder, has_marks: bool) -> mpsc::Sender<Task> {
    let (tasks, given) = mpsc::channel(MAX_QUEUED_ACTIONS);
    let owner = Owner { place, has_marks, browser: None, latest: None, end: CancellationToken::new() };
    tokio::spawn(async move {
        let _end = owner.end.clone().drop_guard();
        owner.run(given).await;
    });
    tasks
}

struct Owner {
    place: BrowserFolder,
    /// Whether observations have a marked screenshot.
    has_marks: bool,
    browser: Option<Browser>,
    /// Result of the latest action, which is returned again for the same id.
    latest: Option<(ActionId, Observation)>,
    /// Signals the supervising task that the owner has ended.
    end: CancellationToken,
}

impl Owner {
    async fn run(mut self, mut given: mpsc::Receiver<Task>) {
        loop {
            let task = match &mut self.browser {
                None => given.recv().await,
                Some(browser) => tokio::select! {
                    task = given.recv() => task,
                    heeded = browser.heed() => {
                        if heeded.is_err() {
                            self.browser = None;
                        }
                        continue;
                    }
                },
            };
            let Some(task) = task else { return };
            self.take(task).await;
        }
    }

    async fn take(&mut self, task: Task) {
        if task.answer.is_closed() {
            return;
        }
        let Task { id, trigger, written, calls, patience, cancel, answer } = task;
        if let Some((_, observation)) = self.latest.as_ref().filter(|(latest, _)| *latest == id) {
            // The caller may have been cancelled.
            let _ = answer.send(Ok(observation.clone()));
            return;
        }
        let outcome = BrowseResult { trigger, written, ..BrowseResult::default() };
        let observed =
            self.observe(&id, outcome, calls, patience.unwrap_or(DEFAULT_ACTION_TIMEOUT), &cancel).await;
        if let Ok(observation) = &observed {
            self.latest = Some((id, observation.clone()));
        }
        let _ = answer.send(observed);
    }

    async fn observe(
        &mut self,
        id: &ActionId,
        mut outcome: BrowseResult,
        calls: Result<Vec<BrowserCall>, String>,
        patience: Duration,
        cancel: &CancellationToken,
    ) -> Result<Observation, SandboxError> {
        let start = tokio::select! {
            biased;
            () = cancel.cancelled() => {
                outcome.error = "it was cancelled before it began".to_owned();
                return Ok(outcome.without_page(&[]));
            }
            start = self.place.begin(id) => start?,
        };
        let performed = tokio::select! {
            biased;
            () = cancel.cancelled() => {
                outcome.error = CANCELLED.to_owned();
                return Ok(outcome.without_page(&[]));
            }
            performed = self.perform(start, &mut outcome, calls, patience) => performed,
        };
        let Some(browser) = self.browser.as_mut().filter(|_| performed.is_ok()) else {
            self.browser = None;
            if let Err(error) = performed {
                outcome.error = error;
            }
            return Ok(outcome.without_page(&[]));
        };
        let (trigger, written, error) = (outcome.trigger, outcome.written.clone(), outcome.error.clone());
        let looked = tokio::select! {
            looked = timeout(OBSERVATION_TIMEOUT, observe(browser, outcome, self.has_marks)) => looked,
            () = cancel.cancelled() => {
                let error = CANCELLED.to_owned();
                return Ok(BrowseResult { trigger, written, error, ..BrowseResult::default() }.without_page(&[]));
            }
        };
        Ok(match looked {
            Ok(Ok(observation)) => observation,
            Ok(Err((mut outcome, fault))) => {
                self.browser = None;
                outcome.error = ended(&fault);
                outcome.without_page(&[])
            }
            Err(_) => {
                let error =
                    if error.is_empty() { "the page cannot be looked at in time".to_owned() } else { error };
                BrowseResult { trigger, written, error, ..BrowseResult::default() }
                    .without_page(&browser.take_notes())
            }
        })
    }

    /// Performs an action. Failures are part of the result. `Err` if there is no browser.
    async fn perform(
        &mut self,
        start: ActionStart,
        outcome: &mut BrowseResult,
        calls: Result<Vec<BrowserCall>, String>,
        patience: Duration,
    ) -> Result<(), String> {
        let place = self.place.clone();
        let browser = self.found(start.found).await?;
        let calls = match (start.is_again, calls) {
            (true, _) => {
                outcome.error = "the host was interrupted while this was done, and what came of it is not known: look at \
                                 the page as it is now"
                    .to_owned();
                return Ok(());
            }
            (false, Err(wrong)) => {
                outcome.error = wrong;
                return Ok(());
            }
            (false, Ok(calls)) => calls,
        };
        let all = async {
            let woken = async {
                browser.ensure_tab().await?;
                browser.wake().await
            };
            match woken.await {
                Ok(()) => perform(browser, place.sandbox.as_ref(), &calls).await,
                Err(fault) => Err(("the browser".to_owned(), fault)),
            }
        };
        match timeout(patience, all).await {
            Ok(Ok(said)) => outcome.said = said,
            Ok(Err((_, fault @ BrowserError::Dead(_)))) => return Err(ended(&fault)),
            Ok(Err((call, fault))) => outcome.error = format!("{call}: {fault}"),
            Err(_) => {
                outcome.error = format!("it took longer than {} seconds", patience.as_secs_f64());
                // Pending waits would delay the observation. An exited browser is detected by the observation.
                let _ = browser.notify("Page.stopLoading", json!({}));
            }
        }
        Ok(())
    }

    /// Returns the running browser, or starts one.
    async fn found(&mut self, found: BrowserState) -> Result<&mut Browser, String> {
        if found == BrowserState::Running {
            // A broken connection may not have been noticed yet.
            let answers = match &mut self.browser {
                Some(browser) => browser.answers(HANDSHAKE_TIMEOUT).await,
                None => false,
            };
            if !answers {
                self.browser = None;
                self.browser = Some(self.greet().await?);
            }
        } else {
            let mut browser = self.start().await?;
            if found == BrowserState::Ended {
                browser.note(
                    "The browser had ended. This is a new one: pages and sign-ins are gone.".to_owned(),
                );
            }
            self.browser = Some(browser);
        }
        self.browser.as_mut().ok_or_else(|| "there is no browser".to_owned())
    }

    /// Re-attaches to a browser that was started before.
    async fn greet(&self) -> Result<Browser, String> {
        let mut why = String::new();
        for _ in 0..MAX_HANDSHAKES {
            let link =
                Link::open(&self.place, CancellationToken::new()).map_err(|error| error.to_string())?;
            match Browser::meet(link, HANDSHAKE_TIMEOUT).await {
                Ok(browser) => return Ok(browser),
                Err(fault) => why = fault.to_string(),
            }
            sleep(HANDSHAKE_TIMEOUT / 10).await;
        }
        // The next action starts a new browser.
        if let Err(error) = self.place.end_browser().await {
            tracing::debug!(%error, "ending a browser that does not answer");
        }
        Err(format!("the browser does not answer and was ended: {why}"))
    }

    async fn start(&self) -> Result<Browser, String> {
        let launched = launch(&self.place, self.end.clone()).map_err(|error| error.to_string())?;
        let link = Link::open(&self.place, launched.gone.clone()).map_err(|error| error.to_string())?;
        let met = tokio::select! {
            met = Browser::meet(link, START_TIMEOUT) => met.map_err(|fault| fault.to_string()),
            () = launched.gone.cancelled() => Err("it has ended".to_owned()),
        };
        met.map_err(|why| {
            let words = short(&launched.words.end(), MAX_STDERR_CHARS);
            format!("the browser cannot be started: {why}; its last words: {words}")
        })
    }
}

fn ended(fault: &BrowserError) -> String {
    format!("{fault}; the next action finds it again, or begins with a new one")
}

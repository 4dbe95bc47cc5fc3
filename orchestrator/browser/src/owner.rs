//! The one task that has a sandbox's browser: performs actions one after the other, each id at most once, and takes in what
//! the browser says in between.
//!
//! It ends when nobody can hand it an action any more. The browser goes on then, as everything in the sandbox does: whoever
//! attaches to the sandbox finds it.

use std::time::Duration;

use engine::browsing::BrowserCall;
use engine::sandbox::SandboxError;
use protocol::{ActionId, Observation};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::browser::{Browser, Fault, short};
use crate::link::{Link, launch};
use crate::observe::{Outcome, observe};
use crate::perform::perform;
use crate::place::{Begun, Found, Place};

/// Actions that wait for the browser. More are refused: each agent at work has one.
const MOST_WAITING: usize = 16;

/// How long calls may take when the action does not say.
const USUAL: Duration = Duration::from_secs(120);

/// How long the browser may take to start.
const STARTING: Duration = Duration::from_secs(60);

/// How long a browser that runs may take to answer over a new link, and how often it is tried: the link before it is ended by
/// the new one, and may have taken an answer just then.
const GREETING: Duration = Duration::from_secs(5);
const GREETINGS: usize = 4;

/// How long it may take to look at a page: after that it is said that it cannot be looked at.
const LOOKING: Duration = Duration::from_secs(45);

/// Of what a browser that cannot start says, in characters.
const LONGEST_WORDS: usize = 600;

const CANCELLED: &str = "it was cancelled; what it had begun may go on";

/// An action for the browser.
pub(crate) struct Task {
    pub(crate) id: ActionId,
    /// `browse` or `browse_interactive`.
    pub(crate) trigger: &'static str,
    /// As it was written.
    pub(crate) written: String,
    /// What to do, or what is wrong with it.
    pub(crate) calls: Result<Vec<BrowserCall>, String>,
    /// How long that may take; looking at the page comes after it.
    pub(crate) patience: Option<Duration>,
    pub(crate) cancel: CancellationToken,
    pub(crate) answer: oneshot::Sender<Result<Observation, SandboxError>>,
}

/// The way to the task. When the last of these is dropped, it ends after the action at work: those that wait for the
/// browser then are not begun, because nobody waits for them.
pub(crate) fn start(place: Place, has_marks: bool) -> mpsc::Sender<Task> {
    let (tasks, given) = mpsc::channel(MOST_WAITING);
    let owner = Owner { place, has_marks, browser: None, latest: None, end: CancellationToken::new() };
    tokio::spawn(async move {
        let _end = owner.end.clone().drop_guard();
        owner.run(given).await;
    });
    tasks
}

struct Owner {
    place: Place,
    /// Whether pages are shown with marks too.
    has_marks: bool,
    browser: Option<Browser>,
    /// What came of the latest action: who asks for it again gets the same answer.
    latest: Option<(ActionId, Observation)>,
    /// Says that this has ended, to whoever follows the browser for it.
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
            // Whoever asked may be gone.
            let _ = answer.send(Ok(observation.clone()));
            return;
        }
        let outcome = Outcome { trigger, written, ..Outcome::default() };
        let observed = self.observe(&id, outcome, calls, patience.unwrap_or(USUAL), &cancel).await;
        if let Ok(observation) = &observed {
            self.latest = Some((id, observation.clone()));
        }
        let _ = answer.send(observed);
    }

    async fn observe(
        &mut self,
        id: &ActionId,
        mut outcome: Outcome,
        calls: Result<Vec<BrowserCall>, String>,
        patience: Duration,
        cancel: &CancellationToken,
    ) -> Result<Observation, SandboxError> {
        let begun = tokio::select! {
            biased;
            () = cancel.cancelled() => {
                outcome.error = "it was cancelled before it began".to_owned();
                return Ok(outcome.without_page(&[]));
            }
            begun = self.place.begin(id) => begun?,
        };
        let performed = tokio::select! {
            biased;
            () = cancel.cancelled() => {
                outcome.error = CANCELLED.to_owned();
                return Ok(outcome.without_page(&[]));
            }
            performed = self.perform(begun, &mut outcome, calls, patience) => performed,
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
            looked = timeout(LOOKING, observe(browser, outcome, self.has_marks)) => looked,
            () = cancel.cancelled() => {
                let error = CANCELLED.to_owned();
                return Ok(Outcome { trigger, written, error, ..Outcome::default() }.without_page(&[]));
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
                Outcome { trigger, written, error, ..Outcome::default() }.without_page(&browser.take_notes())
            }
        })
    }

    /// Does what is asked for. What goes wrong with it is in the outcome; an error says that there is no browser.
    async fn perform(
        &mut self,
        begun: Begun,
        outcome: &mut Outcome,
        calls: Result<Vec<BrowserCall>, String>,
        patience: Duration,
    ) -> Result<(), String> {
        let place = self.place.clone();
        let browser = self.found(begun.found).await?;
        let calls = match (begun.is_again, calls) {
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
            Ok(Err((_, fault @ Fault::Dead(_)))) => return Err(ended(&fault)),
            Ok(Err((call, fault))) => outcome.error = format!("{call}: {fault}"),
            Err(_) => {
                outcome.error = format!("it took longer than {} seconds", patience.as_secs_f64());
                // What is awaited in vain holds up what comes then. A dead browser is found by whoever looks at the page.
                let _ = browser.tell("Page.stopLoading", json!({}));
            }
        }
        Ok(())
    }

    /// The browser that runs, or a new one.
    async fn found(&mut self, found: Found) -> Result<&mut Browser, String> {
        if found == Found::Running {
            // The connection may have broken, and nobody noticed it yet.
            let answers = match &mut self.browser {
                Some(browser) => browser.answers(GREETING).await,
                None => false,
            };
            if !answers {
                self.browser = None;
                self.browser = Some(self.greet().await?);
            }
        } else {
            let mut browser = self.start().await?;
            if found == Found::Ended {
                browser.note(
                    "The browser had ended. This is a new one: pages and sign-ins are gone.".to_owned(),
                );
            }
            self.browser = Some(browser);
        }
        self.browser.as_mut().ok_or_else(|| "there is no browser".to_owned())
    }

    /// Speaks again with a browser that was begun before.
    async fn greet(&self) -> Result<Browser, String> {
        let mut why = String::new();
        for _ in 0..GREETINGS {
            let link =
                Link::open(&self.place, CancellationToken::new()).map_err(|error| error.to_string())?;
            match Browser::meet(link, GREETING).await {
                Ok(browser) => return Ok(browser),
                Err(fault) => why = fault.to_string(),
            }
            sleep(GREETING / 10).await;
        }
        // The next action begins with a new one.
        if let Err(error) = self.place.end_browser().await {
            tracing::debug!(%error, "ending a browser that does not answer");
        }
        Err(format!("the browser does not answer and was ended: {why}"))
    }

    async fn start(&self) -> Result<Browser, String> {
        let launched = launch(&self.place, self.end.clone()).map_err(|error| error.to_string())?;
        let link = Link::open(&self.place, launched.gone.clone()).map_err(|error| error.to_string())?;
        let met = tokio::select! {
            met = Browser::meet(link, STARTING) => met.map_err(|fault| fault.to_string()),
            () = launched.gone.cancelled() => Err("it has ended".to_owned()),
        };
        met.map_err(|why| {
            let words = short(&launched.words.end(), LONGEST_WORDS);
            format!("the browser cannot be started: {why}; its last words: {words}")
        })
    }
}

fn ended(fault: &Fault) -> String {
    format!("{fault}; the next action finds it again, or begins with a new one")
}

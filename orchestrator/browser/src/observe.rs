//! What there is to be seen, as V0 observes a page: the tabs, a picture, and as text the page's elements with their ids.

use std::time::Duration;

use protocol::Observation;
use protocol::observation::BrowseObservation;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::browser::{Browser, Fault, short};

/// How long a picture may take.
const PICTURE: Duration = Duration::from_secs(6);

/// The longest picture, in letters of base64. A worse one is taken of a page whose picture is longer.
const LONGEST_PICTURE: usize = 400_000;

/// What is told of one page. Twenty thousand nodes are looked at within a second.
const MOST_NODES: u32 = 20_000;
const MOST_LINES: u32 = 1_000;
const MOST_LETTERS: u32 = 24_000;
const MOST_NESTING: u32 = 1_000;
const DEEPEST_INDENT: u32 = 16;
const LONGEST_TEXT: u32 = 1_000;
const LONGEST_NAME: u32 = 150;

/// What is taken of our script's answer, in characters: it cuts by itself, but something else may answer in its place.
const LONGEST_TOLD: usize = 50_000;
const LONGEST_WORD: usize = 1_000;

/// What our script says of a page.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Page {
    text: String,
    title: String,
    focused: String,
    is_cut: bool,
    is_below: bool,
    scrolled: i64,
    height: i64,
    window: i64,
}

/// What an action was, and what came of it so far.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// `browse` or `browse_interactive`.
    pub(crate) trigger: &'static str,
    /// The calls, as they were written.
    pub(crate) written: String,
    /// What went wrong, in one sentence; empty when nothing did.
    pub(crate) error: String,
    /// What was said to the user.
    pub(crate) said: Vec<String>,
}

impl Outcome {
    /// An observation without a page.
    pub(crate) fn without_page(self, notes: &[String]) -> Observation {
        let content = self.words(notes);
        Observation::new(content, self.facts())
    }

    /// What is told before the page.
    fn words(&self, notes: &[String]) -> String {
        let error = (!self.error.is_empty()).then(|| format!("The action failed: {}.", self.error));
        let said = (!self.said.is_empty()).then(|| "The message was sent to the user.".to_owned());
        let lines: Vec<_> = error.into_iter().chain(said).chain(notes.iter().cloned()).collect();
        lines.join("\n")
    }

    fn facts(self) -> BrowseObservation {
        BrowseObservation {
            trigger_by_action: self.trigger.to_owned(),
            error: !self.error.is_empty(),
            last_browser_action: self.written,
            last_browser_action_error: self.error,
            ..Default::default()
        }
    }
}

/// Elements that are marked in one picture: more would hide the page.
const MOST_MARKS: u32 = 200;

/// Observes what is in front, with a second, marked picture if `has_marks`. A page that cannot be looked at is told of; a
/// dead browser is an error.
pub(crate) async fn observe(
    browser: &mut Browser,
    mut outcome: Outcome,
    has_marks: bool,
) -> Result<Observation, (Outcome, Fault)> {
    let page = match browser.look().await {
        Ok(page) => Some(page),
        Err(fault @ Fault::Dead(_)) => return Err((outcome, fault)),
        Err(fault) => {
            if outcome.error.is_empty() {
                outcome.error = format!("the page cannot be looked at: {fault}");
            }
            None
        }
    };
    let screenshot = match page {
        Some(_) => browser.picture().await,
        None => String::new(),
    };
    let set_of_marks = match page {
        Some(_) if has_marks => browser.marked_picture().await,
        _ => String::new(),
    };
    let notes = browser.take_notes();
    let tabs: Vec<String> = browser.tabs().iter().map(|tab| tab.url.clone()).collect();
    let front = browser.front_index();
    let url = tabs.get(front).cloned().unwrap_or_default();
    let mut content = outcome.words(&notes);
    if !content.is_empty() {
        content.push_str("\n\n");
    }
    if let [_, _, ..] = tabs.as_slice() {
        let lines = (0..).zip(&tabs);
        let lines: Vec<_> =
            lines.map(|(at, url)| format!("{}{at}: {url}", if at == front { "* " } else { "  " })).collect();
        content.push_str(&format!("Tabs:\n{}\n", lines.join("\n")));
    }
    content.push_str(&format!("Address: {url}\n"));
    let page = page.unwrap_or_default();
    content.push_str(&page.told());
    let facts = BrowseObservation {
        url,
        screenshot,
        set_of_marks,
        open_pages_urls: tabs,
        active_page_index: i64::try_from(front).unwrap_or_default(),
        focused_element_bid: page.focused,
        ..outcome.facts()
    };
    Ok(Observation::new(content, facts))
}

impl Page {
    fn cut(self) -> Self {
        Self {
            text: self.text.chars().take(LONGEST_TOLD).collect(),
            title: short(&self.title, LONGEST_WORD),
            focused: short(&self.focused, LONGEST_WORD),
            ..self
        }
    }

    fn told(&self) -> String {
        let mut told = match self.title.as_str() {
            "" => String::new(),
            title => format!("Title: {title}\n"),
        };
        if self.height > self.window && self.window > 0 {
            let (from, to) = (self.scrolled, self.scrolled.saturating_add(self.window));
            told.push_str(&format!("In sight: {from} to {to} of {} pixels\n", self.height));
        }
        if self.is_below {
            told.push_str("What is above the window is left out.\n");
        }
        told.push('\n');
        told.push_str(&self.text);
        if self.is_cut {
            told.push_str(
                "\nThe page is too large to be told as a whole: scroll down to be told what comes then.",
            );
        }
        told
    }
}

impl Browser {
    async fn look(&mut self) -> Result<Page, Fault> {
        let bounds = json!([{
            "nodes": MOST_NODES,
            "lines": MOST_LINES,
            "letters": MOST_LETTERS,
            "nesting": MOST_NESTING,
            "depth": DEEPEST_INDENT,
            "text": LONGEST_TEXT,
            "name": LONGEST_NAME,
        }]);
        let seen = match self.evaluate("observe", &bounds).await {
            // Its own script may never end: that is interrupted.
            Err(Fault::Slow) => {
                self.tell("Runtime.terminateExecution", json!({}))?;
                self.note("The page's script did not end, and was interrupted.".to_owned());
                self.evaluate("observe", &bounds).await
            }
            seen => seen,
        }?;
        let page: Page = serde_json::from_value(seen)
            .map_err(|_| Fault::Refused("it says nothing sensible".to_owned()))?;
        Ok(page.cut())
    }

    /// A picture on which each element that can be operated has a frame with its id. Empty if there is no such element.
    async fn marked_picture(&mut self) -> String {
        let marked = self.evaluate("mark", &json!([MOST_MARKS])).await;
        let picture = match marked.as_ref().map(|marked| marked.as_u64()) {
            Ok(Some(1..)) => self.picture().await,
            _ => String::new(),
        };
        // Also after a failure: the marks may be there nevertheless.
        if let Err(fault) = self.evaluate("unmark", &json!([])).await {
            tracing::debug!(%fault, "taking the marks from a page");
        }
        picture
    }

    /// A picture as a data URL; empty where there is none to be had.
    async fn picture(&mut self) -> String {
        for quality in [60, 15] {
            let params = json!({"format": "jpeg", "quality": quality, "optimizeForSpeed": true});
            let Ok(taken) = self.ask_within(PICTURE, "Page.captureScreenshot", params).await else { break };
            match taken.get("data") {
                Some(Value::String(data)) if data.len() <= LONGEST_PICTURE => {
                    return format!("data:image/jpeg;base64,{data}");
                }
                _ => {}
            }
        }
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_answer_is_told_within_bounds() {
        let long = "x".repeat(1 << 20);
        let (text, title, focused) = (long.clone(), long.clone(), long);
        let page = Page {
            text,
            title,
            focused,
            scrolled: i64::MAX,
            height: i64::MAX,
            window: 720,
            ..Page::default()
        };
        let page = page.cut();
        assert!(page.focused.len() < 2 * LONGEST_WORD);
        assert!(page.told().len() < 2 * LONGEST_TOLD);
    }
}

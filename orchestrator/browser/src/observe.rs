//! V0's browser observation: the tabs, a screenshot, and the page's elements with their ids as text.

use std::time::Duration;

use protocol::Observation;
use protocol::observation::BrowseObservation;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::browser::{Browser, BrowserError, short};

/// Timeout of a screenshot.
const SCREENSHOT_TIMEOUT: Duration = Duration::from_secs(6);

/// Maximum length of a screenshot in base64. A longer one is retaken with lower quality.
const MAX_SCREENSHOT_CHARS: usize = 400_000;

/// Limits of the text of one page. Twenty thousand nodes take less than a second.
const MAX_NODES: u32 = 20_000;
const MAX_LINES: u32 = 1_000;
const MAX_CHARS: u32 = 24_000;
const MAX_NESTING: u32 = 1_000;
const MAX_INDENT: u32 = 16;
const MAX_TEXT_CHARS: u32 = 1_000;
const MAX_NAME_CHARS: u32 = 150;

/// Maximum length of the script's result. The script truncates it, but a hostile process may respond in its place.
const MAX_PAGE_CHARS: usize = 50_000;
const MAX_FIELD_CHARS: usize = 1_000;

/// Result of our script for a page.
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

/// An action, and its result so far.
#[derive(Debug, Default)]
pub(crate) struct BrowseResult {
    /// `browse` or `browse_interactive`.
    pub(crate) trigger: &'static str,
    /// Source text of the calls.
    pub(crate) written: String,
    /// Error in one sentence. Empty on success.
    pub(crate) error: String,
    /// Messages to the user.
    pub(crate) said: Vec<String>,
}

impl BrowseResult {
    /// Builds an observation without a page.
    pub(crate) fn without_page(self, notes: &[String]) -> Observation {
        let content = self.words(notes);
        Observation::new(content, self.facts())
    }

    /// Builds the text that precedes the page.
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

/// Maximum number of marked elements in a screenshot. More would hide the page.
const MAX_MARKS: u32 = 200;

/// Observes the active tab, with a second, marked screenshot if `has_marks`. A page that cannot be observed is reported in
/// the observation. `Err` if the browser has exited.
pub(crate) async fn observe(
    browser: &mut Browser,
    mut outcome: BrowseResult,
    has_marks: bool,
) -> Result<Observation, (BrowseResult, BrowserError)> {
    let page = match browser.look().await {
        Ok(page) => Some(page),
        Err(fault @ BrowserError::Dead(_)) => return Err((outcome, fault)),
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
    content.push_str(&page.describe());
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
            text: self.text.chars().take(MAX_PAGE_CHARS).collect(),
            title: short(&self.title, MAX_FIELD_CHARS),
            focused: short(&self.focused, MAX_FIELD_CHARS),
            ..self
        }
    }

    fn describe(&self) -> String {
        let mut text = match self.title.as_str() {
            "" => String::new(),
            title => format!("Title: {title}\n"),
        };
        if self.height > self.window && self.window > 0 {
            let (from, to) = (self.scrolled, self.scrolled.saturating_add(self.window));
            text.push_str(&format!("In sight: {from} to {to} of {} pixels\n", self.height));
        }
        if self.is_below {
            text.push_str("What is above the window is left out.\n");
        }
        text.push('\n');
        text.push_str(&self.text);
        if self.is_cut {
            text.push_str("\nThe page is too large to be described as a whole. Scroll down for the rest.");
        }
        text
    }
}

impl Browser {
    async fn look(&mut self) -> Result<Page, BrowserError> {
        let bounds = json!([{
            "nodes": MAX_NODES,
            "lines": MAX_LINES,
            "letters": MAX_CHARS,
            "nesting": MAX_NESTING,
            "depth": MAX_INDENT,
            "text": MAX_TEXT_CHARS,
            "name": MAX_NAME_CHARS,
        }]);
        let seen = match self.evaluate("observe", &bounds).await {
            // The page's script may run forever and is interrupted.
            Err(BrowserError::Slow) => {
                self.notify("Runtime.terminateExecution", json!({}))?;
                self.note("The page's script did not end, and was interrupted.".to_owned());
                self.evaluate("observe", &bounds).await
            }
            seen => seen,
        }?;
        let page: Page = serde_json::from_value(seen)
            .map_err(|_| BrowserError::Refused("it says nothing sensible".to_owned()))?;
        Ok(page.cut())
    }

    /// Takes a screenshot in which each interactive element has a frame with its id. Empty if there is none.
    async fn marked_picture(&mut self) -> String {
        let marked = self.evaluate("mark", &json!([MAX_MARKS])).await;
        let picture = match marked.as_ref().map(|marked| marked.as_u64()) {
            Ok(Some(1..)) => self.picture().await,
            _ => String::new(),
        };
        // Also after a failure, since marks may have been added.
        if let Err(fault) = self.evaluate("unmark", &json!([])).await {
            tracing::debug!(%fault, "taking the marks from a page");
        }
        picture
    }

    /// Takes a screenshot as data URL. Empty on failure.
    async fn picture(&mut self) -> String {
        for quality in [60, 15] {
            let params = json!({"format": "jpeg", "quality": quality, "optimizeForSpeed": true});
            let Ok(taken) = self.ask_within(SCREENSHOT_TIMEOUT, "Page.captureScreenshot", params).await
            else {
                break;
            };
            match taken.get("data") {
                Some(Value::String(data)) if data.len() <= MAX_SCREENSHOT_CHARS => {
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
    fn observation_is_bounded_for_any_response() {
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
        assert!(page.focused.len() < 2 * MAX_FIELD_CHARS);
        assert!(page.describe().len() < 2 * MAX_PAGE_CHARS);
    }
}

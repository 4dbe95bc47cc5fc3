//! V0's browser observation: the tabs, a screenshot, and the page's elements with their ids as
//! text.

use std::time::Duration;

use protocol::Observation;
use protocol::observation::BrowseObservation;
use serde::Deserialize;
use serde_json::json;

use crate::browser::{Browser, BrowserError, short_line};

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

/// Maximum length of the script's result. The script truncates it, but a hostile process may
/// respond in its folder.
const MAX_PAGE_CHARS: usize = 50_000;
const MAX_FIELD_CHARS: usize = 1_000;

/// Result of our script for a page.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Page {
    text: String,
    title: String,
    focused: String,
    /// Whether the text ends before the end of the page.
    is_cut: bool,
    /// Whether the text starts at the viewport.
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
    pub(crate) source: String,
    /// Error in one sentence. `None` on success.
    pub(crate) error: Option<String>,
    /// Whether the calls have sent a message to the user.
    pub(crate) has_sent_message: bool,
}

impl BrowseResult {
    /// Builds an observation without a page.
    pub(crate) fn without_page(&self, notes: &[String]) -> Observation {
        Observation::new(self.summary(notes), self.fields())
    }

    /// Builds the observation of a failed action.
    pub(crate) fn failed(self, error: impl Into<String>) -> Observation {
        Self {
            error: Some(error.into()),
            ..self
        }
        .without_page(&[])
    }

    /// Builds the text that precedes the page.
    fn summary(&self, notes: &[String]) -> String {
        let error = self
            .error
            .as_ref()
            .map(|error| format!("The action failed: {error}."));
        let sent = self
            .has_sent_message
            .then(|| "The message was sent to the user.".to_owned());
        let lines: Vec<_> = error
            .into_iter()
            .chain(sent)
            .chain(notes.iter().cloned())
            .collect();
        lines.join("\n")
    }

    fn fields(&self) -> BrowseObservation {
        BrowseObservation {
            trigger_by_action: self.trigger.to_owned(),
            error: self.error.is_some(),
            last_browser_action: self.source.clone(),
            last_browser_action_error: self.error.clone().unwrap_or_default(),
            ..Default::default()
        }
    }
}

/// Maximum number of marked elements in a screenshot. More would hide the page.
const MAX_MARKS: u32 = 200;

/// Observes the active tab, with a second, marked screenshot if `has_marks`. A page that cannot be
/// observed is reported in the observation. `Err` if the browser has exited.
pub(crate) async fn observe(
    browser: &mut Browser,
    result: &mut BrowseResult,
    has_marks: bool,
) -> Result<Observation, BrowserError> {
    let page = match browser.inspect_page().await {
        Ok(page) => Some(page),
        Err(error @ BrowserError::Gone(_)) => return Err(error),
        Err(error) => {
            result
                .error
                .get_or_insert_with(|| format!("cannot observe the page: {error}"));
            None
        }
    };
    let screenshot = match page {
        Some(_) => browser.screenshot().await,
        None => String::new(),
    };
    let set_of_marks = match page {
        Some(_) if has_marks => browser.marked_screenshot().await,
        _ => String::new(),
    };
    let notes = browser.take_notes();
    let tabs: Vec<String> = browser.tabs().iter().map(|tab| tab.url.clone()).collect();
    let active = browser.active_index();
    let url = tabs.get(active).cloned().unwrap_or_default();
    let mut content = result.summary(&notes);
    if !content.is_empty() {
        content.push_str("\n\n");
    }
    if tabs.len() > 1 {
        content.push_str("Tabs:\n");
        for (at, url) in tabs.iter().enumerate() {
            let marker = if at == active { '*' } else { ' ' };
            content.push_str(&format!("{marker} {at}: {url}\n"));
        }
    }
    content.push_str(&format!("Address: {url}\n"));
    let page = page.unwrap_or_default();
    content.push_str(&page.describe());
    let fields = BrowseObservation {
        url,
        screenshot,
        set_of_marks,
        open_pages_urls: tabs,
        active_page_index: i64::try_from(active).unwrap_or_default(),
        focused_element_bid: page.focused,
        ..result.fields()
    };
    Ok(Observation::new(content, fields))
}

impl Page {
    fn truncate(self) -> Self {
        Self {
            text: self.text.chars().take(MAX_PAGE_CHARS).collect(),
            title: short_line(&self.title, MAX_FIELD_CHARS),
            focused: short_line(&self.focused, MAX_FIELD_CHARS),
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
            text.push_str(&format!(
                "Viewport: {from} to {to} of {} pixels\n",
                self.height
            ));
        }
        if self.is_below {
            text.push_str("Content above the viewport is omitted.\n");
        }
        text.push('\n');
        text.push_str(&self.text);
        if self.is_cut {
            text.push_str(
                "\nThe page is too large to be described as a whole. Scroll down for the rest.",
            );
        }
        text
    }
}

impl Browser {
    async fn inspect_page(&mut self) -> Result<Page, BrowserError> {
        let bounds = json!([{
            "nodes": MAX_NODES,
            "lines": MAX_LINES,
            "letters": MAX_CHARS,
            "nesting": MAX_NESTING,
            "depth": MAX_INDENT,
            "text": MAX_TEXT_CHARS,
            "name": MAX_NAME_CHARS,
        }]);
        let result = match self.evaluate("observe", &bounds).await {
            // The page's script may run forever and is interrupted.
            Err(BrowserError::Timeout) => {
                self.notify("Runtime.terminateExecution", json!({}))?;
                self.note("The page's script did not end, and was interrupted.".to_owned());
                self.evaluate("observe", &bounds).await
            }
            result => result,
        }?;
        let page: Page = serde_json::from_value(result)
            .map_err(|_| BrowserError::Refused("its response is malformed".to_owned()))?;
        Ok(page.truncate())
    }

    /// Takes a screenshot in which each interactive element has a frame with its id. Empty if there
    /// is none.
    async fn marked_screenshot(&mut self) -> String {
        let marked = self.evaluate("mark", &json!([MAX_MARKS])).await;
        let screenshot = match marked.as_ref().map(|marked| marked.as_u64()) {
            Ok(Some(1..)) => self.screenshot().await,
            _ => String::new(),
        };
        // Also after a failure, since marks may have been added.
        if let Err(error) = self.evaluate("unmark", &json!([])).await {
            tracing::debug!(%error, "cannot remove the marks from a page");
        }
        screenshot
    }

    /// Takes a screenshot as data URL. Empty on failure.
    async fn screenshot(&mut self) -> String {
        for quality in [60, 15] {
            let params = json!({"format": "jpeg", "quality": quality, "optimizeForSpeed": true});
            let Ok(taken) = self
                .call_page_within(SCREENSHOT_TIMEOUT, "Page.captureScreenshot", params)
                .await
            else {
                break;
            };
            if let Some(data) = taken["data"]
                .as_str()
                .filter(|data| data.len() <= MAX_SCREENSHOT_CHARS)
            {
                return format!("data:image/jpeg;base64,{data}");
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
        let page = page.truncate();
        assert!(page.focused.len() < 2 * MAX_FIELD_CHARS);
        assert!(page.describe().len() < 2 * MAX_PAGE_CHARS);
    }
}

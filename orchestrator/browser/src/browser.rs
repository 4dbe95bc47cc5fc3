//! Client of the browser's debugging protocol: calls and their responses, and the tabs as reported
//! by events.
//!
//! A call handles the events that arrive before its response. [`Browser::handle_event`] handles
//! them while no call is pending.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, timeout, timeout_at};

use crate::link::{BrowserGone, Link};
use crate::messages::Message;

/// Timeout of a call that does not wait for the network.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of open tabs.
const MAX_TABS: usize = 20;

/// Maximum number of events that one observation reports.
const MAX_NOTES: usize = 20;

/// Maximum length of a page's text in a note, and of a reported address, in characters.
const MAX_NOTE_CHARS: usize = 500;
const MAX_ADDRESS_CHARS: usize = 2000;

/// Size of the viewport, in pixels.
pub(crate) const WIDTH: u32 = 1280;
pub(crate) const HEIGHT: u32 = 720;

/// Error of a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BrowserError {
    /// The browser has exited, or the connection to it is lost.
    #[error(transparent)]
    Gone(#[from] BrowserGone),
    /// The browser does not respond.
    #[error("the browser does not respond")]
    Unresponsive,
    /// The page's process has crashed.
    #[error("the page has crashed")]
    Crashed,
    /// The call timed out.
    #[error("the page does not respond")]
    Timeout,
    /// The browser or the page refused the call.
    #[error("{0}")]
    Refused(String),
}

#[derive(Debug)]
pub(crate) struct Tab {
    target: String,
    pub(crate) session: String,
    pub(crate) url: String,
    pub(crate) is_loading: bool,
    pub(crate) is_crashed: bool,
    /// Execution context of our script in the current page.
    pub(crate) world: Option<i64>,
    /// Data of the current drag operation.
    pub(crate) dragged: Option<Value>,
    /// Parameters of the event that pressed the mouse. `None` if it is released.
    pub(crate) pressed_mouse: Option<Value>,
}

pub(crate) struct Browser {
    link: Link,
    last_id: u64,
    tabs: Vec<Tab>,
    /// Index of the active tab.
    active: usize,
    /// Tabs that are being opened.
    attaching: Vec<String>,
    notes: Vec<String>,
    omitted_note_count: usize,
}

impl Browser {
    /// Attaches to a running browser and its open tabs.
    pub(crate) async fn attach(link: Link, limit: Duration) -> Result<Self, BrowserError> {
        let (tabs, attaching, notes) = (Vec::new(), Vec::new(), Vec::new());
        let mut browser = Self {
            link,
            last_id: 0,
            tabs,
            active: 0,
            attaching,
            notes,
            omitted_note_count: 0,
        };
        // Terminates a partial message of a previous host.
        browser.link.send(Vec::new())?;
        if !browser.is_responsive(limit).await {
            return Err(BrowserError::Unresponsive);
        }
        browser
            .call(
                None,
                "Target.setDiscoverTargets",
                json!({"discover": false}),
            )
            .await?;
        browser
            .call(None, "Target.setDiscoverTargets", json!({"discover": true}))
            .await?;
        let downloads = json!({"behavior": "deny", "eventsEnabled": true});
        browser
            .call(None, "Browser.setDownloadBehavior", downloads)
            .await?;
        timeout(CALL_TIMEOUT, browser.wait_for_tabs())
            .await
            .map_err(|_| BrowserError::Timeout)??;
        browser.notes.clear();
        Ok(browser)
    }

    /// Whether the browser responds.
    pub(crate) async fn is_responsive(&mut self, limit: Duration) -> bool {
        self.call_within(limit, None, "Browser.getVersion", json!({}))
            .await
            .is_ok()
    }

    /// Waits for the tabs that are being opened.
    async fn wait_for_tabs(&mut self) -> Result<(), BrowserError> {
        while !self.attaching.is_empty() {
            self.handle_event().await?;
        }
        Ok(())
    }

    /// Ensures that the active tab exists and has not crashed.
    pub(crate) async fn ensure_tab(&mut self) -> Result<(), BrowserError> {
        while let Some(at) = self.tabs.iter().position(|tab| tab.is_crashed) {
            self.close_tab(at);
        }
        if self.tabs.is_empty() {
            self.open_tab("about:blank").await?;
        }
        Ok(())
    }

    /// Opens a tab and activates it.
    pub(crate) async fn open_tab(&mut self, url: &str) -> Result<(), BrowserError> {
        if self.tabs.len() >= MAX_TABS {
            return Err(BrowserError::Refused(format!(
                "there are {MAX_TABS} tabs already; close one"
            )));
        }
        let created = self
            .call(None, "Target.createTarget", json!({"url": url}))
            .await?;
        let target = string_field(&created, "targetId");
        self.attach_target(&target)?;
        let deadline = Instant::now() + CALL_TIMEOUT;
        loop {
            if let Some(at) = self.tabs.iter().position(|tab| tab.target == target) {
                return self.activate_tab(at);
            }
            timeout_at(deadline, self.handle_event())
                .await
                .map_err(|_| BrowserError::Timeout)??;
        }
    }

    /// Closes a tab, even if it does not respond.
    pub(crate) fn close_tab(&mut self, at: usize) {
        if at < self.tabs.len() {
            let tab = self.tabs.remove(at);
            // An already closed tab is no failure, and an exited browser is detected by the next
            // call.
            let _ = self.post(None, "Target.closeTarget", json!({"targetId": tab.target}));
            self.adjust_active_index(at);
        }
    }

    pub(crate) fn activate_tab(&mut self, at: usize) -> Result<(), BrowserError> {
        let Some(tab) = self.tabs.get(at) else {
            return Err(BrowserError::Refused(format!(
                "there is no tab {at}: there are {}, from 0",
                self.tabs.len()
            )));
        };
        let target = tab.target.clone();
        self.active = at;
        self.post(None, "Target.activateTarget", json!({"targetId": target}))?;
        Ok(())
    }

    pub(crate) fn tabs(&self) -> &[Tab] {
        &self.tabs
    }

    pub(crate) fn active_index(&self) -> usize {
        self.active
    }

    pub(crate) fn active_tab(&mut self) -> Result<&mut Tab, BrowserError> {
        self.tabs
            .get_mut(self.active)
            .ok_or_else(|| BrowserError::Refused("there is no tab".to_owned()))
    }

    /// Returns the notes since the last observation.
    pub(crate) fn take_notes(&mut self) -> Vec<String> {
        let mut notes = std::mem::take(&mut self.notes);
        let omitted = std::mem::take(&mut self.omitted_note_count);
        if omitted > 0 {
            notes.push(format!("{omitted} more notes are omitted."));
        }
        notes
    }

    pub(crate) fn note(&mut self, note: String) {
        if self.notes.len() < MAX_NOTES {
            self.notes.push(note);
        } else {
            self.omitted_note_count += 1;
        }
    }

    /// Calls a method on the active tab.
    pub(crate) async fn call_page(
        &mut self,
        method: &str,
        params: Value,
    ) -> Result<Value, BrowserError> {
        self.call_page_within(CALL_TIMEOUT, method, params).await
    }

    pub(crate) async fn call_page_within(
        &mut self,
        limit: Duration,
        method: &str,
        params: Value,
    ) -> Result<Value, BrowserError> {
        let session = self.active_tab()?.session.clone();
        self.call_within(limit, Some(&session), method, params)
            .await
    }

    /// Calls a method on the active tab without waiting for its response.
    pub(crate) fn notify(&mut self, method: &str, params: Value) -> Result<(), BrowserError> {
        let session = self.active_tab()?.session.clone();
        self.post(Some(&session), method, params)?;
        Ok(())
    }

    /// Releases the mouse where it was pressed, and ends the interception of drags. Does not wait
    /// for the responses.
    pub(crate) fn release_mouse(&mut self) -> Result<(), BrowserGone> {
        // A page that reacts to the press may have activated another tab.
        let pressed = self
            .tabs
            .iter_mut()
            .find_map(|tab| Some((tab.pressed_mouse.take()?, tab.session.clone())));
        if let Some((mut params, session)) = pressed {
            params["type"] = "mouseReleased".into();
            self.post(Some(&session), "Input.dispatchMouseEvent", params)?;
            self.post(
                Some(&session),
                "Input.setInterceptDrags",
                json!({"enabled": false}),
            )?;
        }
        Ok(())
    }

    async fn call(
        &mut self,
        session: Option<&str>,
        method: &str,
        params: Value,
    ) -> Result<Value, BrowserError> {
        self.call_within(CALL_TIMEOUT, session, method, params)
            .await
    }

    async fn call_within(
        &mut self,
        limit: Duration,
        session: Option<&str>,
        method: &str,
        params: Value,
    ) -> Result<Value, BrowserError> {
        let id = self.post(session, method, params)?;
        let deadline = Instant::now() + limit;
        loop {
            let message = timeout_at(deadline, self.next())
                .await
                .map_err(|_| BrowserError::Timeout)??;
            if message.id == Some(id) {
                return match message.error {
                    Some(error) => Err(BrowserError::Refused(short_line(
                        &error.message,
                        MAX_NOTE_CHARS,
                    ))),
                    None => Ok(message.result),
                };
            }
            self.on_message(message);
            let is_crashed = |tab: &Tab| tab.is_crashed && session == Some(tab.session.as_str());
            if self.tabs.iter().any(is_crashed) {
                return Err(BrowserError::Crashed);
            }
        }
    }

    fn post(
        &mut self,
        session: Option<&str>,
        method: &str,
        params: Value,
    ) -> Result<u64, BrowserGone> {
        self.last_id += 1;
        let mut message = json!({"id": self.last_id, "method": method, "params": params});
        if let (Some(session), Some(message)) = (session, message.as_object_mut()) {
            message.insert("sessionId".into(), session.into());
        }
        self.link.send(message.to_string().into_bytes())?;
        Ok(self.last_id)
    }

    async fn next(&mut self) -> Result<Message, BrowserGone> {
        loop {
            // The rest of a message that a previous host received in part is skipped.
            if let Ok(message) = protocol::untrusted_json::from_slice(&self.link.next().await?) {
                return Ok(message);
            }
        }
    }

    /// Handles an event.
    pub(crate) async fn handle_event(&mut self) -> Result<(), BrowserGone> {
        let message = self.next().await?;
        self.on_message(message);
        Ok(())
    }

    fn on_message(&mut self, message: Message) {
        let Message {
            method,
            params,
            session_id,
            ..
        } = message;
        let handled = match method.as_str() {
            "Target.targetCreated" => self.on_target_created(&params["targetInfo"]),
            "Target.attachedToTarget" => self.on_target_attached(&params),
            "Target.targetInfoChanged" => {
                let info = &params["targetInfo"];
                let target = string_field(info, "targetId");
                if let Some(tab) = self.tabs.iter_mut().find(|tab| tab.target == target) {
                    tab.url = short_line(&string_field(info, "url"), MAX_ADDRESS_CHARS);
                }
                Ok(())
            }
            "Target.targetCrashed" => {
                self.on_target_crashed(&string_field(&params, "targetId"));
                Ok(())
            }
            "Target.targetDestroyed" => {
                let target = string_field(&params, "targetId");
                self.attaching.retain(|other| *other != target);
                if let Some(at) = self.tabs.iter().position(|tab| tab.target == target) {
                    self.tabs.remove(at);
                    self.adjust_active_index(at);
                }
                Ok(())
            }
            "Browser.downloadWillBegin" => {
                let url = short_line(&string_field(&params, "url"), MAX_NOTE_CHARS);
                self.note(format!(
                    "A download of {url} was refused: fetch files by a command."
                ));
                Ok(())
            }
            _ => self.on_page_event(&method, &params, session_id.as_deref()),
        };
        // An exited browser is detected by the next call.
        let _ = handled;
    }

    fn on_page_event(
        &mut self,
        method: &str,
        params: &Value,
        session: Option<&str>,
    ) -> Result<(), BrowserGone> {
        let Some(tab) = self
            .tabs
            .iter_mut()
            .find(|tab| Some(tab.session.as_str()) == session)
        else {
            return Ok(());
        };
        // The id of the main frame is that of its tab.
        let is_main = params["frameId"] == tab.target.as_str();
        match method {
            "Page.frameStartedLoading" if is_main => tab.is_loading = true,
            "Page.frameStoppedLoading" if is_main => tab.is_loading = false,
            "Page.frameNavigated" if params["frame"]["parentId"].is_null() => {
                tab.world = None;
                tab.url = short_line(&string_field(&params["frame"], "url"), MAX_ADDRESS_CHARS);
            }
            "Input.dragIntercepted" => tab.dragged = Some(params["data"].clone()),
            "Page.fileChooserOpened" => {
                self.note("The page requests a file: use upload_file on its field.".to_owned());
            }
            "Page.javascriptDialogOpening" => {
                let session = tab.session.clone();
                let kind = string_field(params, "type");
                // A `beforeunload` dialog must not block navigation.
                let is_accepted = kind == "beforeunload";
                let message = short_line(&string_field(params, "message"), MAX_NOTE_CHARS);
                self.note(if is_accepted {
                    "The page asked whether to leave it, which was confirmed.".to_owned()
                } else {
                    format!("The page opened a dialog ({kind}), which was dismissed: {message}")
                });
                self.post(
                    Some(&session),
                    "Page.handleJavaScriptDialog",
                    json!({"accept": is_accepted}),
                )?;
            }
            _ => {}
        }
        Ok(())
    }

    fn on_target_created(&mut self, info: &Value) -> Result<(), BrowserGone> {
        let target = string_field(info, "targetId");
        if info["type"] != "page" || target.is_empty() {
            return Ok(());
        }
        if self.tabs.len() + self.attaching.len() >= MAX_TABS {
            self.note(format!("A tab was closed: there are at most {MAX_TABS}."));
            self.post(None, "Target.closeTarget", json!({"targetId": target}))?;
            return Ok(());
        }
        self.attach_target(&target)
    }

    fn attach_target(&mut self, target: &str) -> Result<(), BrowserGone> {
        let is_known = self.tabs.iter().any(|tab| tab.target == target);
        if is_known || self.attaching.iter().any(|other| other == target) {
            return Ok(());
        }
        self.attaching.push(target.to_owned());
        self.post(
            None,
            "Target.attachToTarget",
            json!({"targetId": target, "flatten": true}),
        )?;
        Ok(())
    }

    /// Activates a tab that a page has opened, as a browser with a window does.
    fn on_target_attached(&mut self, params: &Value) -> Result<(), BrowserGone> {
        let target = string_field(&params["targetInfo"], "targetId");
        let Some(at) = self.attaching.iter().position(|other| *other == target) else {
            return Ok(());
        };
        self.attaching.remove(at);
        let session = string_field(params, "sessionId");
        let screen =
            json!({"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": false});
        for (method, params) in [
            ("Page.enable", json!({})),
            ("Emulation.setDeviceMetricsOverride", screen),
            (
                "Page.setInterceptFileChooserDialog",
                json!({"enabled": true}),
            ),
        ] {
            self.post(Some(&session), method, params)?;
        }
        let url = short_line(
            &string_field(&params["targetInfo"], "url"),
            MAX_ADDRESS_CHARS,
        );
        let (is_loading, is_crashed) = (false, false);
        let (world, dragged, pressed_mouse) = (None, None, None);
        self.tabs.push(Tab {
            target,
            session,
            url,
            is_loading,
            is_crashed,
            world,
            dragged,
            pressed_mouse,
        });
        self.active = self.tabs.len() - 1;
        self.note("A tab was opened.".to_owned());
        Ok(())
    }

    fn on_target_crashed(&mut self, target: &str) {
        if let Some(tab) = self.tabs.iter_mut().find(|tab| tab.target == target) {
            (tab.is_crashed, tab.is_loading) = (true, false);
            let url = short_line(&tab.url, MAX_NOTE_CHARS);
            self.note(format!(
                "The page {url} has crashed: its tab is closed with the next action."
            ));
        }
    }

    /// Adjusts the active tab after the tab at an index was closed.
    fn adjust_active_index(&mut self, at: usize) {
        if at < self.active || (at == self.active && at >= self.tabs.len()) {
            self.active = self.active.saturating_sub(1);
        }
    }
}

/// Returns a string field of an event. Empty if there is none.
pub(crate) fn string_field(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

/// Truncates a text, and replaces control characters by spaces.
pub(crate) fn short_line(text: &str, max_chars: usize) -> String {
    let mut chars = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut line: String = chars.by_ref().take(max_chars).collect();
    if chars.next().is_some() {
        line.push('…');
    }
    line
}

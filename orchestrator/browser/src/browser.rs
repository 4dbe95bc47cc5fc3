//! The browser as it is spoken with: calls and their answers, and the tabs as its events tell of them.
//!
//! Whoever waits for an answer takes in what happens meanwhile; so does [`Browser::heed`] when nobody waits for anything.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, timeout, timeout_at};

use crate::link::{Dead, Link};
use crate::messages::Message;

/// How long a call may take that waits for no page of the network.
const CALL: Duration = Duration::from_secs(10);

/// Tabs at once.
const MOST_TABS: usize = 20;

/// What happened that an observation tells of.
const MOST_NOTES: usize = 20;

/// The longest text of a page in a note, and the longest address that is told, in characters.
const LONGEST_NOTE: usize = 500;
const LONGEST_ADDRESS: usize = 2000;

/// What pages see of the window, in pixels.
pub(crate) const WIDTH: u32 = 1280;
pub(crate) const HEIGHT: u32 = 720;

/// Why a call came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    /// There is no browser any more.
    #[error(transparent)]
    Dead(#[from] Dead),
    /// The browser itself does not answer.
    #[error("the browser does not answer")]
    Silent,
    /// The page's process is gone.
    #[error("the page has crashed")]
    Crashed,
    /// There was no answer in time.
    #[error("the page does not answer")]
    Slow,
    /// The browser, or the page, says no.
    #[error("{0}")]
    Refused(String),
}

/// One tab.
#[derive(Debug)]
pub(crate) struct Tab {
    target: String,
    pub(crate) session: String,
    pub(crate) url: String,
    pub(crate) is_loading: bool,
    pub(crate) is_crashed: bool,
    /// Where our script lives in the page that is open now.
    pub(crate) world: Option<i64>,
    /// What is being dragged.
    pub(crate) dragged: Option<Value>,
}

pub(crate) struct Browser {
    link: Link,
    last_id: u64,
    tabs: Vec<Tab>,
    /// The tab in front.
    front: usize,
    /// Tabs that are on their way.
    attaching: Vec<String>,
    notes: Vec<String>,
    left_out: usize,
}

impl Browser {
    /// Finds out what is open in a browser that runs.
    pub(crate) async fn meet(link: Link, patience: Duration) -> Result<Self, Fault> {
        let (tabs, attaching, notes) = (Vec::new(), Vec::new(), Vec::new());
        let mut browser = Self { link, last_id: 0, tabs, front: 0, attaching, notes, left_out: 0 };
        // Ends what an earlier host may have said by half.
        browser.link.send(Vec::new())?;
        if !browser.answers(patience).await {
            return Err(Fault::Silent);
        }
        browser.call(None, "Target.setDiscoverTargets", json!({"discover": false})).await?;
        browser.call(None, "Target.setDiscoverTargets", json!({"discover": true})).await?;
        let downloads = json!({"behavior": "deny", "eventsEnabled": true});
        browser.call(None, "Browser.setDownloadBehavior", downloads).await?;
        timeout(CALL, browser.arrive()).await.map_err(|_| Fault::Slow)??;
        browser.notes.clear();
        Ok(browser)
    }

    /// Whether it still answers.
    pub(crate) async fn answers(&mut self, patience: Duration) -> bool {
        self.call_within(patience, None, "Browser.getVersion", json!({})).await.is_ok()
    }

    /// Waits for the tabs that are on their way.
    async fn arrive(&mut self) -> Result<(), Fault> {
        while !self.attaching.is_empty() {
            self.heed().await?;
        }
        Ok(())
    }

    /// Sees to it that there is a tab in front that has not crashed.
    pub(crate) async fn ensure_tab(&mut self) -> Result<(), Fault> {
        while let Some(at) = self.tabs.iter().position(|tab| tab.is_crashed) {
            self.drop_tab(at);
        }
        if self.tabs.is_empty() {
            self.open_tab("about:blank").await?;
        }
        Ok(())
    }

    /// Opens a tab and brings it to the front.
    pub(crate) async fn open_tab(&mut self, url: &str) -> Result<(), Fault> {
        if self.tabs.len() >= MOST_TABS {
            return Err(Fault::Refused(format!("there are {MOST_TABS} tabs already; close one")));
        }
        let made = self.call(None, "Target.createTarget", json!({"url": url})).await?;
        let target = text(&made, "targetId");
        self.attach(&target)?;
        let deadline = Instant::now() + CALL;
        loop {
            if let Some(at) = self.tabs.iter().position(|tab| tab.target == target) {
                return self.bring_to_front(at);
            }
            timeout_at(deadline, self.heed()).await.map_err(|_| Fault::Slow)??;
        }
    }

    /// Closes a tab that may not answer.
    pub(crate) fn drop_tab(&mut self, at: usize) {
        if at < self.tabs.len() {
            let tab = self.tabs.remove(at);
            // That it is closed already is no failure, and a dead browser is found by whoever asks it something.
            let _ = self.post(None, "Target.closeTarget", json!({"targetId": tab.target}));
            self.go_on_from(at);
        }
    }

    pub(crate) fn bring_to_front(&mut self, at: usize) -> Result<(), Fault> {
        let Some(tab) = self.tabs.get(at) else {
            return Err(Fault::Refused(format!(
                "there is no tab {at}: there are {}, from 0",
                self.tabs.len()
            )));
        };
        let target = tab.target.clone();
        self.front = at;
        self.post(None, "Target.activateTarget", json!({"targetId": target}))?;
        Ok(())
    }

    pub(crate) fn tabs(&self) -> &[Tab] {
        &self.tabs
    }

    pub(crate) fn front_index(&self) -> usize {
        self.front
    }

    pub(crate) fn front(&mut self) -> Result<&mut Tab, Fault> {
        self.tabs.get_mut(self.front).ok_or_else(|| Fault::Refused("there is no tab".to_owned()))
    }

    /// What happened since the last observation.
    pub(crate) fn take_notes(&mut self) -> Vec<String> {
        let mut notes = std::mem::take(&mut self.notes);
        match std::mem::take(&mut self.left_out) {
            0 => {}
            more => notes.push(format!("{more} more of such are left out.")),
        }
        notes
    }

    pub(crate) fn note(&mut self, note: String) {
        if self.notes.len() < MOST_NOTES {
            self.notes.push(note);
        } else {
            self.left_out += 1;
        }
    }

    /// Asks the page in the tab in front.
    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> Result<Value, Fault> {
        self.ask_within(CALL, method, params).await
    }

    pub(crate) async fn ask_within(
        &mut self,
        patience: Duration,
        method: &str,
        params: Value,
    ) -> Result<Value, Fault> {
        let session = self.front()?.session.clone();
        self.call_within(patience, Some(&session), method, params).await
    }

    /// Tells the page in the tab in front, and waits for nothing.
    pub(crate) fn tell(&mut self, method: &str, params: Value) -> Result<(), Fault> {
        let session = self.front()?.session.clone();
        self.post(Some(&session), method, params)?;
        Ok(())
    }

    async fn call(&mut self, session: Option<&str>, method: &str, params: Value) -> Result<Value, Fault> {
        self.call_within(CALL, session, method, params).await
    }

    async fn call_within(
        &mut self,
        patience: Duration,
        session: Option<&str>,
        method: &str,
        params: Value,
    ) -> Result<Value, Fault> {
        let id = self.post(session, method, params)?;
        let deadline = Instant::now() + patience;
        loop {
            let message = timeout_at(deadline, self.next()).await.map_err(|_| Fault::Slow)??;
            if message.id == Some(id) {
                return match message.error {
                    Some(refusal) => Err(Fault::Refused(short(&refusal.message, LONGEST_NOTE))),
                    None => Ok(message.result),
                };
            }
            self.take_in(message);
            let is_crashed = |tab: &Tab| tab.is_crashed && session == Some(tab.session.as_str());
            if self.tabs.iter().any(is_crashed) {
                return Err(Fault::Crashed);
            }
        }
    }

    fn post(&mut self, session: Option<&str>, method: &str, params: Value) -> Result<u64, Dead> {
        self.last_id += 1;
        let mut message = json!({"id": self.last_id, "method": method, "params": params});
        if let (Some(session), Some(message)) = (session, message.as_object_mut()) {
            message.insert("sessionId".into(), session.into());
        }
        self.link.send(message.to_string().into_bytes())?;
        Ok(self.last_id)
    }

    async fn next(&mut self) -> Result<Message, Dead> {
        loop {
            // What another host heard the first half of is no message.
            if let Ok(message) = serde_json::from_slice(&self.link.next().await?) {
                return Ok(message);
            }
        }
    }

    /// Takes in the next thing that happens.
    pub(crate) async fn heed(&mut self) -> Result<(), Dead> {
        let message = self.next().await?;
        self.take_in(message);
        Ok(())
    }

    fn take_in(&mut self, message: Message) {
        let Message { method, params, session_id, .. } = message;
        let outcome = match method.as_str() {
            "Target.targetCreated" => self.meet_target(&params["targetInfo"]),
            "Target.attachedToTarget" => self.gain_tab(&params),
            "Target.targetInfoChanged" => {
                let info = &params["targetInfo"];
                let target = text(info, "targetId");
                if let Some(tab) = self.tabs.iter_mut().find(|tab| tab.target == target) {
                    tab.url = short(&text(info, "url"), LONGEST_ADDRESS);
                }
                Ok(())
            }
            "Target.targetCrashed" => {
                self.lose_page(&text(&params, "targetId"));
                Ok(())
            }
            "Target.targetDestroyed" => {
                let target = text(&params, "targetId");
                self.attaching.retain(|other| *other != target);
                if let Some(at) = self.tabs.iter().position(|tab| tab.target == target) {
                    self.tabs.remove(at);
                    self.go_on_from(at);
                }
                Ok(())
            }
            "Browser.downloadWillBegin" => {
                let url = short(&text(&params, "url"), LONGEST_NOTE);
                self.note(format!("A download of {url} was refused: fetch files by a command."));
                Ok(())
            }
            _ => self.take_in_of_page(&method, &params, session_id.as_deref()),
        };
        // A dead browser is found by whoever asks it something.
        let _ = outcome;
    }

    fn take_in_of_page(&mut self, method: &str, params: &Value, session: Option<&str>) -> Result<(), Dead> {
        let Some(tab) = self.tabs.iter_mut().find(|tab| Some(tab.session.as_str()) == session) else {
            return Ok(());
        };
        // The main frame has its tab's name.
        let is_main = params["frameId"] == tab.target.as_str();
        match method {
            "Page.frameStartedLoading" if is_main => tab.is_loading = true,
            "Page.frameStoppedLoading" if is_main => tab.is_loading = false,
            "Page.frameNavigated" if params["frame"]["parentId"].is_null() => {
                tab.world = None;
                tab.url = short(&text(&params["frame"], "url"), LONGEST_ADDRESS);
            }
            "Input.dragIntercepted" => tab.dragged = Some(params["data"].clone()),
            "Page.fileChooserOpened" => {
                self.note("The page wants a file: use upload_file on its field.".to_owned());
            }
            "Page.javascriptDialogOpening" => {
                let session = tab.session.clone();
                let kind = text(params, "type");
                // Who wants to leave a page is not to be held there.
                let is_accepted = kind == "beforeunload";
                let said = short(&text(params, "message"), LONGEST_NOTE);
                self.note(match is_accepted {
                    true => "The page asked whether to leave it: yes.".to_owned(),
                    false => format!("The page opened a dialog ({kind}), which was dismissed: {said}"),
                });
                self.post(Some(&session), "Page.handleJavaScriptDialog", json!({"accept": is_accepted}))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn meet_target(&mut self, info: &Value) -> Result<(), Dead> {
        let target = text(info, "targetId");
        if info["type"] != "page" || target.is_empty() {
            return Ok(());
        }
        if self.tabs.len() + self.attaching.len() >= MOST_TABS {
            self.note(format!("A tab was closed: there are at most {MOST_TABS}."));
            self.post(None, "Target.closeTarget", json!({"targetId": target}))?;
            return Ok(());
        }
        self.attach(&target)
    }

    fn attach(&mut self, target: &str) -> Result<(), Dead> {
        let is_known = self.tabs.iter().any(|tab| tab.target == target);
        if is_known || self.attaching.iter().any(|other| other == target) {
            return Ok(());
        }
        self.attaching.push(target.to_owned());
        self.post(None, "Target.attachToTarget", json!({"targetId": target, "flatten": true}))?;
        Ok(())
    }

    /// A tab that opens by itself comes to the front, as a person would see it.
    fn gain_tab(&mut self, params: &Value) -> Result<(), Dead> {
        let target = text(&params["targetInfo"], "targetId");
        let Some(at) = self.attaching.iter().position(|other| *other == target) else { return Ok(()) };
        self.attaching.remove(at);
        let session = text(params, "sessionId");
        let screen = json!({"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": false});
        for (method, params) in [
            ("Page.enable", json!({})),
            ("Emulation.setDeviceMetricsOverride", screen),
            ("Page.setInterceptFileChooserDialog", json!({"enabled": true})),
        ] {
            self.post(Some(&session), method, params)?;
        }
        let url = short(&text(&params["targetInfo"], "url"), LONGEST_ADDRESS);
        let (is_loading, is_crashed) = (false, false);
        self.tabs.push(Tab { target, session, url, is_loading, is_crashed, world: None, dragged: None });
        self.front = self.tabs.len() - 1;
        self.note("A tab was opened.".to_owned());
        Ok(())
    }

    fn lose_page(&mut self, target: &str) {
        if let Some(tab) = self.tabs.iter_mut().find(|tab| tab.target == target) {
            (tab.is_crashed, tab.is_loading) = (true, false);
            let url = short(&tab.url, LONGEST_NOTE);
            self.note(format!("The page {url} has crashed: its tab is closed with the next action."));
        }
    }

    /// After the tab at a place is gone.
    fn go_on_from(&mut self, at: usize) {
        if at < self.front || (at == self.front && at >= self.tabs.len()) {
            self.front = self.front.saturating_sub(1);
        }
    }
}

/// A text within an event; empty when there is none.
pub(crate) fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

/// The beginning of a text, on one line.
pub(crate) fn short(text: &str, longest: usize) -> String {
    let mut letters = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    let mut short: String = letters.by_ref().take(longest).collect();
    if letters.next().is_some() {
        short.push('…');
    }
    short
}

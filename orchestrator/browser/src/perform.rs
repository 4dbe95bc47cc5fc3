//! Sequential execution of an action's calls, up to the first failure.

use std::path::Path;
use std::time::Duration;

use engine::browsing::{BrowserCall, Button, Modifier};
use engine::sandbox::{Sandbox, SandboxError};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout_at};

use crate::browser::{Browser, BrowserError, HEIGHT, WIDTH, short_line};
use crate::keys::{self, KeyStroke};
use crate::page::Point;

/// Time for a page to load. After that it is observed in its current state.
const LOAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum length of a navigation error, in characters.
const MAX_ERROR_CHARS: usize = 300;

/// Time for a page to react to an input. Later changes are not part of the observation.
const REACTION_DELAY: Duration = Duration::from_millis(250);

/// Timeout after which a page counts as unresponsive.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Performs calls in a browser. `Err` has a description of the failed call, and the cause.
pub(crate) async fn perform(
    browser: &mut Browser,
    sandbox: &dyn Sandbox,
    calls: &[BrowserCall],
) -> Result<(), (String, BrowserError)> {
    let browser = MouseRelease(browser);
    for (number, call) in (1..).zip(calls) {
        browser
            .0
            .perform_call(sandbox, call)
            .await
            .map_err(|error| {
                let which = if calls.len() > 1 {
                    format!("call {number} of {}, ", calls.len())
                } else {
                    String::new()
                };
                (format!("{which}{}", call_name(call)), error)
            })?;
    }
    Ok(())
}

/// Releases the mouse when it is dropped: after a failed call, and if the action times out or is
/// cancelled.
struct MouseRelease<'a>(&'a mut Browser);

impl Drop for MouseRelease<'_> {
    fn drop(&mut self) {
        // An exited browser is detected by the next call.
        let _ = self.0.release_mouse();
    }
}

impl Browser {
    /// Ensures that the active page responds. A page whose script does not end is interrupted, or
    /// else closed.
    pub(crate) async fn ensure_responsive(&mut self) -> Result<(), BrowserError> {
        for _ in 0..2 {
            let probe = json!({"expression": "1", "returnByValue": true});
            match self
                .call_page_within(RESPONSE_TIMEOUT, "Runtime.evaluate", probe)
                .await
            {
                // It may be navigating to another page.
                Ok(_) | Err(BrowserError::Refused(_)) => return Ok(()),
                Err(BrowserError::Timeout) => {
                    self.notify("Runtime.terminateExecution", json!({}))?;
                }
                Err(BrowserError::Crashed) => break,
                Err(error @ (BrowserError::Gone(_) | BrowserError::Unresponsive)) => {
                    return Err(error);
                }
            }
        }
        self.note("The active page did not respond any more, and its tab was closed.".to_owned());
        self.close_tab(self.active_index());
        self.ensure_tab().await
    }

    async fn perform_call(
        &mut self,
        sandbox: &dyn Sandbox,
        call: &BrowserCall,
    ) -> Result<(), BrowserError> {
        match call {
            BrowserCall::Goto(url) => return self.go_to(url).await,
            BrowserCall::GoBack => self.go_in_history(-1).await?,
            BrowserCall::GoForward => self.go_in_history(1).await?,
            BrowserCall::Noop(wait) => self.wait(*wait).await?,
            BrowserCall::Scroll(x, y) => {
                let middle = Point {
                    x: f64::from(WIDTH) / 2.0,
                    y: f64::from(HEIGHT) / 2.0,
                };
                let wheel = json!({"deltaX": x, "deltaY": y});
                self.mouse("mouseWheel", middle, wheel).await?;
            }
            BrowserCall::Fill(element, value) => self.fill(element, value).await?,
            BrowserCall::Clear(element) => self.fill(element, "").await?,
            BrowserCall::SelectOption(element, options) => {
                self.evaluate("select", &json!([element, options])).await?;
            }
            BrowserCall::Click {
                element,
                button,
                modifiers,
                times,
            } => {
                let point = self.scroll_to(element).await?;
                self.click(point, *button, modifiers, *times).await?;
            }
            BrowserCall::Hover(element) => {
                let point = self.scroll_to(element).await?;
                self.mouse("mouseMoved", point, json!({})).await?;
            }
            BrowserCall::Press(element, keys) => {
                let stroke = parse_stroke(keys)?;
                self.evaluate("focus", &json!([element])).await?;
                self.press(&stroke).await?;
            }
            BrowserCall::PressAnywhere(keys) => self.press(&parse_stroke(keys)?).await?,
            BrowserCall::Focus(element) => {
                self.evaluate("focus", &json!([element])).await?;
            }
            BrowserCall::DragAndDrop(from, to) => self.drag(from, to).await?,
            BrowserCall::UploadFile(element, files) => self.upload(sandbox, element, files).await?,
            BrowserCall::NewTab => self.open_tab("about:blank").await?,
            BrowserCall::TabClose => {
                self.close_tab(self.active_index());
                self.ensure_tab().await?;
                self.activate_tab(self.active_index())?;
            }
            BrowserCall::TabFocus(index) => self.activate_tab(*index)?,
            BrowserCall::SendMessage(_) => return Ok(()),
        }
        self.settle().await
    }

    async fn go_to(&mut self, url: &str) -> Result<(), BrowserError> {
        let response = match self
            .call_page_within(LOAD_TIMEOUT, "Page.navigate", json!({"url": url}))
            .await
        {
            Ok(response) => response,
            Err(BrowserError::Timeout) => {
                self.notify("Page.stopLoading", json!({}))?;
                return Err(BrowserError::Refused(format!(
                    "no response within {} seconds",
                    LOAD_TIMEOUT.as_secs()
                )));
            }
            Err(error) => return Err(error),
        };
        match response["errorText"].as_str() {
            // A download, or a page that is replaced. A note reports it.
            Some("net::ERR_ABORTED") | None => self.settle().await,
            Some(error) => {
                let error = short_line(error, MAX_ERROR_CHARS);
                Err(BrowserError::Refused(format!(
                    "cannot open the page: {error}"
                )))
            }
        }
    }

    async fn go_in_history(&mut self, step: i64) -> Result<(), BrowserError> {
        let history = self
            .call_page("Page.getNavigationHistory", json!({}))
            .await?;
        let at = history["currentIndex"]
            .as_i64()
            .unwrap_or_default()
            .saturating_add(step);
        let entry = usize::try_from(at)
            .ok()
            .and_then(|at| history["entries"][at]["id"].as_i64());
        let entry = entry.ok_or_else(|| {
            BrowserError::Refused("there is no such page in the tab's history".to_owned())
        })?;
        self.call_page("Page.navigateToHistoryEntry", json!({"entryId": entry}))
            .await?;
        Ok(())
    }

    /// Handles events for a given time.
    async fn wait(&mut self, time: Duration) -> Result<(), BrowserError> {
        let elapsed = sleep(time);
        tokio::pin!(elapsed);
        loop {
            tokio::select! {
                () = &mut elapsed => return Ok(()),
                handled = self.handle_event() => handled?,
            }
        }
    }

    /// Waits for the effect of a call and for the page that it navigates to. A note reports a page
    /// that does not finish.
    async fn settle(&mut self) -> Result<(), BrowserError> {
        self.wait(REACTION_DELAY).await?;
        let deadline = Instant::now() + LOAD_TIMEOUT;
        while self.active_tab().is_ok_and(|tab| tab.is_loading) {
            match timeout_at(deadline, self.handle_event()).await {
                Ok(handled) => handled?,
                Err(_) => {
                    self.note(format!(
                        "The page has not finished loading after {} seconds.",
                        LOAD_TIMEOUT.as_secs()
                    ));
                    self.notify("Page.stopLoading", json!({}))?;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    async fn fill(&mut self, element: &str, value: &str) -> Result<(), BrowserError> {
        let is_typed = self.evaluate("fill", &json!([element, value])).await?;
        match is_typed.as_bool() {
            Some(true) if value.is_empty() => self.press(&parse_stroke("Delete")?).await,
            Some(true) => self
                .call_page("Input.insertText", json!({"text": value}))
                .await
                .map(drop),
            _ => Ok(()),
        }
    }

    async fn upload(
        &mut self,
        sandbox: &dyn Sandbox,
        element: &str,
        files: &[String],
    ) -> Result<(), BrowserError> {
        let refused = |error: SandboxError| BrowserError::Refused(error.to_string());
        let sandbox_files = sandbox.files().map_err(refused)?;
        let mut paths = Vec::new();
        for file in files {
            let path = Path::new(&sandbox.lease().working_dir)
                .join(file)
                .display()
                .to_string();
            // The browser accepts a missing file, and the page would then fail to read it.
            match sandbox_files.status(&path).await.map_err(refused)? {
                Some(_) => paths.push(path),
                None => return Err(BrowserError::Refused(format!("there is no file {path}"))),
            }
        }
        let object = self.resolve_element(element).await?;
        self.call_page(
            "DOM.setFileInputFiles",
            json!({"objectId": object, "files": paths}),
        )
        .await?;
        Ok(())
    }

    async fn mouse(&mut self, kind: &str, point: Point, more: Value) -> Result<(), BrowserError> {
        let mut params = json!({"type": kind, "x": point.x, "y": point.y});
        if let (Some(params), Value::Object(more)) = (params.as_object_mut(), more) {
            params.extend(more);
        }
        let tab = self.active_tab()?;
        match kind {
            "mousePressed" => tab.pressed_mouse = Some(params.clone()),
            "mouseReleased" => tab.pressed_mouse = None,
            _ => {}
        }
        self.call_page("Input.dispatchMouseEvent", params).await?;
        Ok(())
    }

    async fn click(
        &mut self,
        point: Point,
        button: Button,
        held: &[Modifier],
        times: u8,
    ) -> Result<(), BrowserError> {
        let button = match button {
            Button::Left => "left",
            Button::Middle => "middle",
            Button::Right => "right",
        };
        self.mouse("mouseMoved", point, json!({})).await?;
        for count in 1..=times {
            let press = json!({"button": button, "clickCount": count, "modifiers": keys::modifier_bits(held)});
            self.mouse("mousePressed", point, press.clone()).await?;
            self.mouse("mouseReleased", point, press).await?;
        }
        Ok(())
    }

    async fn press(&mut self, stroke: &KeyStroke) -> Result<(), BrowserError> {
        let press = match stroke.text.as_deref() {
            Some(text) => ("keyDown", text),
            None => ("rawKeyDown", ""),
        };
        for (kind, text) in [press, ("keyUp", "")] {
            let params = json!({
                "type": kind,
                "key": stroke.key,
                "code": stroke.code,
                "text": text,
                "windowsVirtualKeyCode": stroke.key_code,
                "modifiers": keys::modifier_bits(&stroke.modifiers),
            });
            self.call_page("Input.dispatchKeyEvent", params).await?;
        }
        Ok(())
    }

    /// Drags with the mouse. A page's own drag implementation follows the mouse events; native
    /// drags need drag events.
    async fn drag(&mut self, from: &str, to: &str) -> Result<(), BrowserError> {
        // Both positions are resolved before the mouse is pressed.
        self.scroll_to(to).await?;
        let start = self.scroll_to(from).await?;
        self.active_tab()?.dragged = None;
        self.mouse("mouseMoved", start, json!({})).await?;
        self.mouse("mousePressed", start, left_button()).await?;
        // Only while the mouse is pressed: its release after a failure also ends the interception.
        self.call_page("Input.setInterceptDrags", json!({"enabled": true}))
            .await?;
        let end = self.scroll_to(to).await?;
        let halfway = Point {
            x: f64::midpoint(start.x, end.x),
            y: f64::midpoint(start.y, end.y),
        };
        let moved = json!({"button": "left", "buttons": 1});
        self.mouse("mouseMoved", halfway, moved.clone()).await?;
        self.mouse("mouseMoved", end, moved).await?;
        if let Some(data) = self.active_tab()?.dragged.take() {
            for kind in ["dragEnter", "dragOver", "drop"] {
                let params = json!({"type": kind, "x": end.x, "y": end.y, "data": data});
                self.call_page("Input.dispatchDragEvent", params).await?;
            }
        }
        self.call_page("Input.setInterceptDrags", json!({"enabled": false}))
            .await?;
        self.mouse("mouseReleased", end, left_button()).await
    }
}

fn left_button() -> Value {
    json!({"button": "left", "buttons": 1, "clickCount": 1})
}

fn parse_stroke(text: &str) -> Result<KeyStroke, BrowserError> {
    let unknown = || {
        BrowserError::Refused(format!(
            "{text:?} is not a key: write Enter, a, Control+a, ArrowDown"
        ))
    };
    keys::parse(text).ok_or_else(unknown)
}

/// Returns the name of a call in the language of the agent.
fn call_name(call: &BrowserCall) -> &'static str {
    match call {
        BrowserCall::Goto(_) => "goto",
        BrowserCall::GoBack => "go_back",
        BrowserCall::GoForward => "go_forward",
        BrowserCall::Noop(_) => "noop",
        BrowserCall::Scroll(..) => "scroll",
        BrowserCall::Fill(..) => "fill",
        BrowserCall::SelectOption(..) => "select_option",
        BrowserCall::Click { times: 1, .. } => "click",
        BrowserCall::Click { .. } => "dblclick",
        BrowserCall::Hover(_) => "hover",
        BrowserCall::Press(..) => "press",
        BrowserCall::PressAnywhere(_) => "keyboard_press",
        BrowserCall::Focus(_) => "focus",
        BrowserCall::Clear(_) => "clear",
        BrowserCall::DragAndDrop(..) => "drag_and_drop",
        BrowserCall::UploadFile(..) => "upload_file",
        BrowserCall::NewTab => "new_tab",
        BrowserCall::TabClose => "tab_close",
        BrowserCall::TabFocus(_) => "tab_focus",
        BrowserCall::SendMessage(_) => "send_msg_to_user",
    }
}

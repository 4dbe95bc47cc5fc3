//! The calls there are, and how a text becomes them.

use std::time::Duration;

use super::reader::{self, Argument, Value};

/// Calls of one action.
pub const MAX_CALLS: usize = 50;

/// The longest text of one action, in bytes.
const LONGEST_TEXT: usize = 256 << 10;

/// The longest that a `noop` may wait, in milliseconds.
const LONGEST_WAIT_MS: f64 = 60_000.0;

/// The farthest that one call scrolls, in pixels.
const FARTHEST: f64 = 10_000_000.0;

/// Something that is done in a browser. Elements are named by the id that stands before them in an observation.
#[derive(Debug, Clone, PartialEq)]
pub enum BrowserCall {
    /// Open a page in the tab in front.
    Goto(String),
    /// One page back.
    GoBack,
    /// One page forward.
    GoForward,
    /// Wait.
    Noop(Duration),
    /// Scroll the page, in pixels to the right and down.
    Scroll(f64, f64),
    /// Put a text into a field, in the place of what is there.
    Fill(String, String),
    /// Choose in a list, by values or by what is shown.
    SelectOption(String, Vec<String>),
    /// Press a button of the mouse on an element, so many times.
    Click {
        /// The element.
        element: String,
        /// The button.
        button: Button,
        /// Keys that are held down.
        modifiers: Vec<Modifier>,
        /// 2 for a double click.
        times: u8,
    },
    /// Move the mouse over an element.
    Hover(String),
    /// Press keys while an element has the focus: `Enter`, `Control+a`.
    Press(String, String),
    /// Press keys wherever the focus is.
    PressAnywhere(String),
    /// Give an element the focus.
    Focus(String),
    /// Empty a field.
    Clear(String),
    /// Drag one element onto another.
    DragAndDrop(String, String),
    /// Choose files of the sandbox in a file field.
    UploadFile(String, Vec<String>),
    /// Open a tab.
    NewTab,
    /// Close the tab in front.
    TabClose,
    /// Bring a tab to the front, counted from 0.
    TabFocus(usize),
    /// Say something to the user. Nothing happens in the browser.
    SendMessage(String),
}

/// A button of the mouse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Button {
    /// The usual one.
    #[default]
    Left,
    /// The wheel.
    Middle,
    /// The menu's.
    Right,
}

/// A key that is held down while something else happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Modifier {
    /// Alt.
    Alt,
    /// Control.
    Control,
    /// Meta: Command, or the Windows key.
    Meta,
    /// Shift.
    Shift,
}

impl Modifier {
    /// The modifier of that name; `ControlOrMeta` is Control in a sandbox.
    pub fn find(name: &str) -> Option<Self> {
        match name {
            "Alt" => Some(Self::Alt),
            "Control" | "Ctrl" | "ControlOrMeta" => Some(Self::Control),
            "Meta" => Some(Self::Meta),
            "Shift" => Some(Self::Shift),
            _ => None,
        }
    }
}

/// Why a text is not calls. One sentence, for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidCalls(pub(super) String);

/// Each call by its name, and what it takes; what has a question mark may be missing.
const SIGNATURES: [(&str, &[&str]); 22] = [
    ("goto", &["url"]),
    ("go_back", &[]),
    ("go_forward", &[]),
    ("noop", &["wait_ms?"]),
    ("scroll", &["delta_x", "delta_y"]),
    ("fill", &["bid", "value", "enable_autocomplete_menu?"]),
    ("select_option", &["bid", "options"]),
    ("click", &["bid", "button?", "modifiers?"]),
    ("dblclick", &["bid", "button?", "modifiers?"]),
    ("hover", &["bid"]),
    ("press", &["bid", "key_comb"]),
    ("keyboard_press", &["key"]),
    ("focus", &["bid"]),
    ("clear", &["bid"]),
    ("drag_and_drop", &["from_bid", "to_bid"]),
    ("upload_file", &["bid", "file"]),
    ("new_tab", &[]),
    ("tab_close", &[]),
    ("close_tab", &[]),
    ("tab_focus", &["index"]),
    ("send_msg_to_user", &["text"]),
    ("wait", &["wait_ms?"]),
];

/// Reads calls: one after the other, on lines of their own or with `;` between them. Lines that begin with `#`, and the
/// fences that models put around code, are passed over.
///
/// # Errors
/// The first thing that is wrong. Nothing of a text that is wrong is to be performed.
pub fn parse(text: &str) -> Result<Vec<BrowserCall>, InvalidCalls> {
    if text.len() > LONGEST_TEXT {
        return Err(InvalidCalls(format!("the calls are longer than {LONGEST_TEXT} bytes")));
    }
    let written = reader::read(text)?;
    if written.is_empty() {
        return Err(InvalidCalls("there is no call; write one such as click('12')".into()));
    }
    if written.len() > MAX_CALLS {
        return Err(InvalidCalls(format!("there are {} calls, at most {MAX_CALLS} are made", written.len())));
    }
    written.into_iter().map(|call| bound(&call.name, call.arguments)).collect()
}

/// One call with its arguments in their places.
fn bound(name: &str, arguments: Vec<Argument>) -> Result<BrowserCall, InvalidCalls> {
    let Some((name, parameters)) = SIGNATURES.iter().find(|(known, _)| *known == name) else {
        let known: Vec<_> = SIGNATURES.iter().map(|(name, _)| *name).collect();
        return Err(InvalidCalls(format!("there is no call {name}: there are {}", known.join(", "))));
    };
    let mut given = Given { name, parameters, values: vec![None; parameters.len()] };
    given.take(arguments)?;
    given.call()
}

/// What one call was given.
struct Given {
    name: &'static str,
    parameters: &'static [&'static str],
    values: Vec<Option<Value>>,
}

impl Given {
    fn wrong(&self, problem: &str) -> InvalidCalls {
        InvalidCalls(format!("{}({}): {problem}", self.name, self.parameters.join(", ")))
    }

    fn take(&mut self, arguments: Vec<Argument>) -> Result<(), InvalidCalls> {
        for (at, Argument { name, value }) in arguments.into_iter().enumerate() {
            let place = match &name {
                None => at,
                Some(name) => self
                    .parameters
                    .iter()
                    .position(|parameter| parameter.trim_end_matches('?') == name)
                    .ok_or_else(|| self.wrong(&format!("there is no argument {name}")))?,
            };
            match self.values.get_mut(place) {
                Some(free @ None) => *free = Some(value),
                Some(Some(_)) => return Err(self.wrong("an argument is given twice")),
                None => return Err(self.wrong("there are too many arguments")),
            }
        }
        let missing = self.parameters.iter().zip(&self.values);
        match missing.into_iter().find(|(name, value)| value.is_none() && !name.ends_with('?')) {
            Some((name, _)) => Err(self.wrong(&format!("{name} is missing"))),
            None => Ok(()),
        }
    }

    fn value(&mut self, at: usize) -> Value {
        self.values.get_mut(at).and_then(Option::take).unwrap_or(Value::None)
    }

    fn name_of(&self, at: usize) -> &'static str {
        self.parameters.get(at).copied().unwrap_or_default().trim_end_matches('?')
    }

    /// A number is a text too: models write ids without quotes.
    fn text(&mut self, at: usize) -> Result<String, InvalidCalls> {
        match self.value(at) {
            Value::Text(text) => Ok(text),
            Value::Number(number) => Ok(number.to_string()),
            _ => Err(self.wrong(&format!("{} must be a text", self.name_of(at)))),
        }
    }

    fn number(&mut self, at: usize, usual: f64, least: f64, most: f64) -> Result<f64, InvalidCalls> {
        match self.value(at) {
            Value::None => Ok(usual),
            Value::Number(number) if (least..=most).contains(&number) => Ok(number),
            _ => {
                let name = self.name_of(at);
                Err(self.wrong(&format!("{name} must be a number from {least} to {most}")))
            }
        }
    }

    /// One text, or a list of them.
    fn texts(&mut self, at: usize) -> Result<Vec<String>, InvalidCalls> {
        match self.value(at) {
            Value::None => Ok(Vec::new()),
            Value::Text(text) => Ok(vec![text]),
            Value::Number(number) => Ok(vec![number.to_string()]),
            Value::List(texts) => Ok(texts),
            Value::Flag => {
                Err(self.wrong(&format!("{} must be a text or a list of texts", self.name_of(at))))
            }
        }
    }

    fn click(&mut self, times: u8) -> Result<BrowserCall, InvalidCalls> {
        let element = self.text(0)?;
        let button = match self.value(1) {
            Value::None => Button::Left,
            Value::Text(name) => match name.as_str() {
                "left" => Button::Left,
                "middle" => Button::Middle,
                "right" => Button::Right,
                _ => return Err(self.wrong("button must be 'left', 'middle' or 'right'")),
            },
            _ => return Err(self.wrong("button must be 'left', 'middle' or 'right'")),
        };
        let held = self.texts(2)?.iter().map(|name| Modifier::find(name)).collect::<Option<Vec<_>>>();
        let modifiers = held.ok_or_else(|| {
            self.wrong("modifiers are 'Alt', 'Control', 'ControlOrMeta', 'Meta' and 'Shift'")
        })?;
        Ok(BrowserCall::Click { element, button, modifiers, times })
    }

    fn call(mut self) -> Result<BrowserCall, InvalidCalls> {
        Ok(match self.name {
            "goto" => {
                let url = self.text(0)?;
                BrowserCall::Goto(super::address(&url).map_err(|error| self.wrong(&error.to_string()))?)
            }
            "go_back" => BrowserCall::GoBack,
            "go_forward" => BrowserCall::GoForward,
            "noop" | "wait" => {
                let wait_ms = self.number(0, 1000.0, 0.0, LONGEST_WAIT_MS)?;
                BrowserCall::Noop(Duration::from_secs_f64(wait_ms / 1000.0))
            }
            "scroll" => BrowserCall::Scroll(
                self.number(0, 0.0, -FARTHEST, FARTHEST)?,
                self.number(1, 0.0, -FARTHEST, FARTHEST)?,
            ),
            "fill" => BrowserCall::Fill(self.text(0)?, self.text(1)?),
            "select_option" => BrowserCall::SelectOption(self.text(0)?, self.texts(1)?),
            "click" => self.click(1)?,
            "dblclick" => self.click(2)?,
            "hover" => BrowserCall::Hover(self.text(0)?),
            "press" => BrowserCall::Press(self.text(0)?, self.text(1)?),
            "keyboard_press" => BrowserCall::PressAnywhere(self.text(0)?),
            "focus" => BrowserCall::Focus(self.text(0)?),
            "clear" => BrowserCall::Clear(self.text(0)?),
            "drag_and_drop" => BrowserCall::DragAndDrop(self.text(0)?, self.text(1)?),
            "upload_file" => BrowserCall::UploadFile(self.text(0)?, self.texts(1)?),
            "new_tab" => BrowserCall::NewTab,
            "tab_close" | "close_tab" => BrowserCall::TabClose,
            "tab_focus" => {
                let index = self.number(0, 0.0, 0.0, 1000.0)?;
                BrowserCall::TabFocus(
                    (0..=1000).find(|at| f64::from(*at) >= index).map_or(0, |at: u16| at.into()),
                )
            }
            _ => BrowserCall::SendMessage(self.text(0)?),
        })
    }
}

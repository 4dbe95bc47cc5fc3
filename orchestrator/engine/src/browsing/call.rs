//! The calls of a browser, and their validation.

use std::time::Duration;

use super::parser::{self, Argument, ArgumentValue};

/// Maximum number of calls of one action.
pub const MAX_CALLS: usize = 50;

/// Maximum length of the text of one action, in bytes.
const MAX_TEXT_BYTES: usize = 256 << 10;

/// Maximum duration of a `noop`, in milliseconds.
const MAX_WAIT_MS: f64 = 60_000.0;

/// Maximum distance of a scroll, in pixels.
const MAX_SCROLL_PIXELS: f64 = 10_000_000.0;

/// A call of a browser. Elements are identified by their ids in the observation.
#[derive(Debug, Clone, PartialEq)]
pub enum BrowserCall {
    /// Open a page in the active tab.
    Goto(String),
    /// Go back by one page.
    GoBack,
    /// Go forward by one page.
    GoForward,
    /// Wait.
    Noop(Duration),
    /// Scroll the page, by pixels to the right and down.
    Scroll(f64, f64),
    /// Replace the text of a field.
    Fill(String, String),
    /// Select options of a list, by value or label.
    SelectOption(String, Vec<String>),
    /// Click an element.
    Click {
        /// The element.
        element: String,
        /// The button.
        button: Button,
        /// Modifier keys that are held down.
        modifiers: Vec<Modifier>,
        /// The number of clicks: 2 for a double click.
        times: u8,
    },
    /// Move the mouse over an element.
    Hover(String),
    /// Press keys on an element: `Enter`, `Control+a`.
    Press(String, String),
    /// Press keys on the focused element.
    PressAnywhere(String),
    /// Focus an element.
    Focus(String),
    /// Clear a field.
    Clear(String),
    /// Drag one element onto another.
    DragAndDrop(String, String),
    /// Select files of the sandbox in a file field.
    UploadFile(String, Vec<String>),
    /// Open a tab.
    NewTab,
    /// Close the active tab.
    TabClose,
    /// Activate a tab, by its index from 0.
    TabFocus(usize),
    /// Send a message to the user. Has no effect in the browser.
    SendMessage(String),
}

/// A mouse button.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Button {
    /// The left button.
    #[default]
    Left,
    /// The middle button.
    Middle,
    /// The right button.
    Right,
}

/// A modifier key.
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
    /// Returns the modifier of that name. `ControlOrMeta` is Control in a sandbox.
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

/// The error of invalid calls: one sentence for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidCalls(pub(super) String);

/// The names of the calls with their parameters. A question mark means optional.
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

/// Parses calls, which are separated by line breaks or `;`. Ignores comments, and the code fences
/// of models.
///
/// # Errors
/// The first problem found. The caller must not perform any call then.
pub fn parse(text: &str) -> Result<Vec<BrowserCall>, InvalidCalls> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(InvalidCalls(format!(
            "the calls are longer than {MAX_TEXT_BYTES} bytes"
        )));
    }
    let calls = parser::parse(text)?;
    if calls.is_empty() {
        return Err(InvalidCalls(
            "there is no call; write one such as click('12')".into(),
        ));
    }
    if calls.len() > MAX_CALLS {
        return Err(InvalidCalls(format!(
            "there are {} calls, at most {MAX_CALLS} are made",
            calls.len()
        )));
    }
    calls
        .into_iter()
        .map(|call| bind(&call.name, call.arguments))
        .collect()
}

/// Binds the arguments of a call to its parameters.
fn bind(name: &str, arguments: Vec<Argument>) -> Result<BrowserCall, InvalidCalls> {
    let Some((name, parameters)) = SIGNATURES.iter().find(|(known, _)| *known == name) else {
        let known: Vec<_> = SIGNATURES.iter().map(|(name, _)| *name).collect();
        return Err(InvalidCalls(format!(
            "there is no call {name}: there are {}",
            known.join(", ")
        )));
    };
    let mut bound = BoundArguments {
        name,
        parameters,
        values: vec![None; parameters.len()],
    };
    bound.bind_all(arguments)?;
    bound.into_call()
}

/// The bound arguments of a call.
struct BoundArguments {
    name: &'static str,
    parameters: &'static [&'static str],
    values: Vec<Option<ArgumentValue>>,
}

impl BoundArguments {
    fn error(&self, problem: &str) -> InvalidCalls {
        InvalidCalls(format!(
            "{}({}): {problem}",
            self.name,
            self.parameters.join(", ")
        ))
    }

    fn bind_all(&mut self, arguments: Vec<Argument>) -> Result<(), InvalidCalls> {
        for (position, Argument { name, value }) in arguments.into_iter().enumerate() {
            let index = match &name {
                None => position,
                Some(name) => self
                    .parameters
                    .iter()
                    .position(|parameter| parameter.trim_end_matches('?') == name)
                    .ok_or_else(|| self.error(&format!("there is no argument {name}")))?,
            };
            match self.values.get_mut(index) {
                Some(free @ None) => *free = Some(value),
                Some(Some(_)) => return Err(self.error("an argument is given twice")),
                None => return Err(self.error("there are too many arguments")),
            }
        }
        let missing = self.parameters.iter().zip(&self.values);
        match missing
            .into_iter()
            .find(|(name, value)| value.is_none() && !name.ends_with('?'))
        {
            Some((name, _)) => Err(self.error(&format!("{name} is missing"))),
            None => Ok(()),
        }
    }

    fn value(&mut self, index: usize) -> ArgumentValue {
        self.values
            .get_mut(index)
            .and_then(Option::take)
            .unwrap_or(ArgumentValue::None)
    }

    fn parameter_name(&self, index: usize) -> &'static str {
        self.parameters
            .get(index)
            .copied()
            .unwrap_or_default()
            .trim_end_matches('?')
    }

    /// Takes a string argument. Accepts a number, because models write ids without quotes.
    fn text(&mut self, index: usize) -> Result<String, InvalidCalls> {
        match self.value(index) {
            ArgumentValue::Text(text) => Ok(text),
            ArgumentValue::Number(number) => Ok(number.to_string()),
            _ => Err(self.error(&format!("{} must be a text", self.parameter_name(index)))),
        }
    }

    fn number(
        &mut self,
        index: usize,
        default: f64,
        min: f64,
        max: f64,
    ) -> Result<f64, InvalidCalls> {
        match self.value(index) {
            ArgumentValue::None => Ok(default),
            ArgumentValue::Number(number) if (min..=max).contains(&number) => Ok(number),
            _ => {
                let name = self.parameter_name(index);
                Err(self.error(&format!("{name} must be a number from {min} to {max}")))
            }
        }
    }

    /// Takes a string or a list of strings.
    fn texts(&mut self, index: usize) -> Result<Vec<String>, InvalidCalls> {
        match self.value(index) {
            ArgumentValue::None => Ok(Vec::new()),
            ArgumentValue::Text(text) => Ok(vec![text]),
            ArgumentValue::Number(number) => Ok(vec![number.to_string()]),
            ArgumentValue::List(texts) => Ok(texts),
            ArgumentValue::Flag => Err(self.error(&format!(
                "{} must be a text or a list of texts",
                self.parameter_name(index)
            ))),
        }
    }

    fn click(&mut self, times: u8) -> Result<BrowserCall, InvalidCalls> {
        let element = self.text(0)?;
        let button = match self.value(1) {
            ArgumentValue::None => Button::Left,
            ArgumentValue::Text(name) => match name.as_str() {
                "left" => Button::Left,
                "middle" => Button::Middle,
                "right" => Button::Right,
                _ => return Err(self.error("button must be 'left', 'middle' or 'right'")),
            },
            _ => return Err(self.error("button must be 'left', 'middle' or 'right'")),
        };
        let held = self
            .texts(2)?
            .iter()
            .map(|name| Modifier::find(name))
            .collect::<Option<Vec<_>>>();
        let modifiers = held.ok_or_else(|| {
            self.error("modifiers are 'Alt', 'Control', 'ControlOrMeta', 'Meta' and 'Shift'")
        })?;
        Ok(BrowserCall::Click {
            element,
            button,
            modifiers,
            times,
        })
    }

    fn into_call(mut self) -> Result<BrowserCall, InvalidCalls> {
        Ok(match self.name {
            "goto" => {
                let url = self.text(0)?;
                BrowserCall::Goto(
                    super::normalize_address(&url)
                        .map_err(|error| self.error(&error.to_string()))?,
                )
            }
            "go_back" => BrowserCall::GoBack,
            "go_forward" => BrowserCall::GoForward,
            "noop" | "wait" => {
                let wait_ms = self.number(0, 1000.0, 0.0, MAX_WAIT_MS)?;
                BrowserCall::Noop(Duration::from_secs_f64(wait_ms / 1000.0))
            }
            "scroll" => BrowserCall::Scroll(
                self.number(0, 0.0, -MAX_SCROLL_PIXELS, MAX_SCROLL_PIXELS)?,
                self.number(1, 0.0, -MAX_SCROLL_PIXELS, MAX_SCROLL_PIXELS)?,
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
                    (0..=1000)
                        .find(|tab| f64::from(*tab) >= index)
                        .map_or(0, |tab: u16| tab.into()),
                )
            }
            _ => BrowserCall::SendMessage(self.text(0)?),
        })
    }
}

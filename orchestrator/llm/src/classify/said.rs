//! What an error's body says, whatever shape its provider gives it.

use serde_json::Value;

/// Texts are searched in their beginning only: what decides stands there, and a page that was sent for an answer may
/// be long.
const SEARCHED_BYTES: usize = 4096;

/// The parts of an error that are worth reading.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Said {
    /// For people.
    pub(crate) message: String,
    /// The message in lower case, and that of the provider behind a proxy; empty for a page.
    pub(crate) text: String,
    /// `type`, `code` and `status`, in lower case.
    pub(crate) words: Vec<String>,
    /// A code that is an HTTP status.
    pub(crate) status: Option<u16>,
    /// The field of the request that is wrong.
    pub(crate) param: Option<String>,
}

impl Said {
    pub(crate) fn read(body: &str) -> Self {
        match serde_json::from_str::<Value>(body) {
            Ok(value) if value.is_object() || value.is_array() => Self::of_value(&value),
            _ if is_page(body) => Self { message: format!("a page: {}", title(body)), ..Self::default() },
            _ => Self { message: body.to_owned(), text: searched(body), ..Self::default() },
        }
    }

    /// OpenAI's `{"error": {…}}`; Ollama's `{"error": "text"}`; Gemini's in a list; vLLM's without `error`; FastAPI's
    /// `{"detail": …}`.
    pub(crate) fn of_value(value: &Value) -> Self {
        let value = if value.is_array() { &value[0] } else { value };
        let error = value.get("error").filter(|error| !error.is_null()).unwrap_or(value);
        let message = error.as_str().map(str::to_owned).unwrap_or_else(|| message(error));
        let behind = error["metadata"]["raw"].as_str().unwrap_or_default(); // OpenRouter
        let words = [&error["type"], &error["code"], &error["status"], &error["innererror"]["code"]];
        Self {
            text: searched(&format!("{message} {behind}")),
            words: words.into_iter().filter_map(Value::as_str).map(str::to_lowercase).collect(),
            status: status(&error["code"]),
            param: error["param"].as_str().map(str::to_owned),
            message,
        }
    }

    /// OpenAI says it in `code` and `param`; Anthropic in its text; a LiteLLM proxy in its own or the provider's text.
    pub(crate) fn refused_parameter(&self) -> Option<String> {
        let by_word =
            self.words.iter().any(|word| word == "unsupported_parameter" || word == "unsupported_value");
        let named = by_word.then(|| self.param.clone()).flatten();
        named.or_else(|| {
            ["unsupported parameter: '", "unsupported value: '", "does not support parameters: ['"]
                .into_iter()
                .find_map(|before| between(&self.text, before, '\''))
                .or_else(|| REFUSALS.into_iter().find_map(|after| word_before(&self.text, after)))
                .or_else(|| between(&self.text, "n't support ", '=').filter(|name| !name.contains(' '))) // LiteLLM
        })
    }
}

/// What providers, mostly Anthropic, say after a parameter's name. Of two that exclude each other it is the last.
const REFUSALS: [&str; 5] = [
    " is deprecated for this model",
    " is not supported for this model",
    ": extra inputs are not permitted",
    " cannot both be specified for this model",
    ": only 1 is allowed for this model", // Moonshot
];

/// Without the quotes around it.
fn word_before(text: &str, after: &str) -> Option<String> {
    let (before, _) = text.split_once(after)?;
    let word = before.rsplit(char::is_whitespace).next()?;
    Some(word.trim_matches(['`', '"', '\'']).to_owned())
}

fn message(error: &Value) -> String {
    let field = ["message", "detail"].into_iter().map(|key| &error[key]).find(|field| !field.is_null());
    match field {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => error.to_string(),
    }
}

/// LiteLLM writes `"429"`, OpenRouter and Gemini `429`.
fn status(code: &Value) -> Option<u16> {
    let number = code.as_u64().or_else(|| code.as_str()?.parse().ok())?;
    u16::try_from(number).ok().filter(|status| (400..600).contains(status))
}

fn searched(text: &str) -> String {
    text[..text.floor_char_boundary(SEARCHED_BYTES)].to_lowercase()
}

pub(crate) fn is_page(body: &str) -> bool {
    body.trim_start().starts_with('<')
}

pub(crate) fn title(page: &str) -> String {
    let page = &page[..page.floor_char_boundary(SEARCHED_BYTES)];
    between(page, "<title>", '<').unwrap_or_else(|| page.to_owned())
}

fn between(text: &str, before: &str, after: char) -> Option<String> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(found, _)| found.to_owned())
}

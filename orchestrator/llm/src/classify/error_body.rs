//! The body of an error response, in any provider's format.

use serde_json::Value;

/// Maximum length of the searched text: the decisive phrases are at the start, and an HTML page may
/// be long.
const MAX_SEARCHED_BYTES: usize = 4096;

/// The relevant parts of an error response.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ErrorBody {
    /// The message, human-readable.
    pub(crate) message: String,
    /// The message, and that of the provider behind a proxy, in lower case. Empty for an HTML page.
    pub(crate) text: String,
    /// `type`, `code` and `status`, in lower case.
    pub(crate) codes: Vec<String>,
    /// The HTTP status, if the error has one as its code.
    pub(crate) status: Option<u16>,
    /// The invalid field of the request.
    pub(crate) param: Option<String>,
}

impl ErrorBody {
    pub(crate) fn parse(body: &str) -> Self {
        match protocol::untrusted_json::from_str::<Value>(body) {
            Ok(value) if value.is_object() || value.is_array() => Self::from_value(&value),
            _ if is_html(body) => Self {
                message: format!("an HTML page: {}", title(body)),
                ..Self::default()
            },
            _ => Self {
                message: body.to_owned(),
                text: search_text(body),
                ..Self::default()
            },
        }
    }

    /// Converts OpenAI's `{"error": {…}}`, Ollama's `{"error": "text"}`, Gemini's list, vLLM's
    /// error without `error`, and FastAPI's `{"detail": …}`.
    pub(crate) fn from_value(value: &Value) -> Self {
        let value = if value.is_array() { &value[0] } else { value };
        let error = value
            .get("error")
            .filter(|error| !error.is_null())
            .unwrap_or(value);
        let message = error
            .as_str()
            .map(str::to_owned)
            .unwrap_or_else(|| message(error));
        let inner = error["metadata"]["raw"].as_str().unwrap_or_default(); // OpenRouter
        let codes = [
            &error["type"],
            &error["code"],
            &error["status"],
            &error["innererror"]["code"],
        ];
        Self {
            text: search_text(&format!("{message} {inner}")),
            codes: codes
                .into_iter()
                .filter_map(Value::as_str)
                .map(str::to_lowercase)
                .collect(),
            status: status(&error["code"]),
            param: error["param"].as_str().map(str::to_owned),
            message,
        }
    }

    /// Finds the error in a successful response, or in an event of a stream. OpenAI's Responses API
    /// has it in the failed response, or has no object around its fields.
    pub(crate) fn find(value: &Value) -> Option<Self> {
        let errors = [value.get("error"), value.pointer("/response/error")];
        let error = errors.into_iter().flatten().find(|error| !error.is_null());
        error
            .or_else(|| (value["type"] == "error").then_some(value))
            .map(Self::from_value)
    }

    /// Whether it names an image, as refusals of images do.
    pub(crate) fn names_image(&self) -> bool {
        self.text.contains("image") || self.codes.iter().any(|code| code.contains("image"))
    }

    /// Whether OpenAI serves the model, or its tool calls, with the Responses API only.
    pub(crate) fn requires_responses(&self) -> bool {
        self.text.contains("v1/responses")
    }

    /// Returns the name of a refused parameter. OpenAI has it in `param`, Anthropic in the text,
    /// and a LiteLLM proxy in its own or the provider's text.
    pub(crate) fn refused_parameter(&self) -> Option<String> {
        let is_refusal = self
            .codes
            .iter()
            .any(|code| code == "unsupported_parameter" || code == "unsupported_value");
        let named = is_refusal.then(|| self.param.clone()).flatten();
        // OpenAI's error for a model that does not reason has no code.
        let include = self
            .text
            .contains("encrypted content is not supported")
            .then(|| "include".to_owned());
        named.or(include).or_else(|| {
            [
                "unsupported parameter: '",
                "unsupported value: '",
                "does not support parameters: ['",
            ]
            .into_iter()
            .find_map(|before| between(&self.text, before, '\''))
            .or_else(|| {
                REFUSALS
                    .into_iter()
                    .find_map(|after| word_before(&self.text, after))
            })
            .or_else(|| between(&self.text, "n't support ", '=').filter(|name| !name.contains(' '))) // LiteLLM
        })
    }
}

/// Texts after a refused parameter's name, mostly of Anthropic. Of two that exclude each other it
/// is the last.
const REFUSALS: [&str; 5] = [
    " is deprecated for this model",
    " is not supported for this model",
    ": extra inputs are not permitted",
    " cannot both be specified for this model",
    ": only 1 is allowed for this model", // Moonshot
];

/// Returns the word before a text, without quotes.
fn word_before(text: &str, after: &str) -> Option<String> {
    let (before, _) = text.split_once(after)?;
    let word = before.rsplit(char::is_whitespace).next()?;
    Some(word.trim_matches(['`', '"', '\'']).to_owned())
}

fn message(error: &Value) -> String {
    let field = ["message", "detail"]
        .into_iter()
        .map(|key| &error[key])
        .find(|field| !field.is_null());
    match field {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => error.to_string(),
    }
}

/// Parses a status: LiteLLM sends `"429"`, OpenRouter and Gemini `429`.
fn status(code: &Value) -> Option<u16> {
    let number = code.as_u64().or_else(|| code.as_str()?.parse().ok())?;
    u16::try_from(number)
        .ok()
        .filter(|status| (400..600).contains(status))
}

fn search_text(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_SEARCHED_BYTES)].to_lowercase()
}

pub(crate) fn is_html(body: &str) -> bool {
    body.trim_start().starts_with('<')
}

pub(crate) fn title(page: &str) -> String {
    let page = &page[..page.floor_char_boundary(MAX_SEARCHED_BYTES)];
    between(page, "<title>", '<').unwrap_or_else(|| page.to_owned())
}

fn between(text: &str, before: &str, after: char) -> Option<String> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(found, _)| found.to_owned())
}

//! Relates an action or observation to a tool call in a model's response.

use std::fmt;
use std::sync::Arc;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// V0's `tool_call_metadata`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCallMetadata {
    /// The name of the tool.
    pub function_name: String,
    /// The model's id of the call.
    pub tool_call_id: String,
    /// The whole response as an OpenAI `chat.completion`.
    pub model_response: ModelResponseText,
    /// The number of tool calls in that response.
    pub total_calls_in_response: u64,
}

/// A model's response as its original JSON text: fields unknown to us must go back to the provider
/// unchanged.
///
/// Most responses of a log are never inspected, so the text is parsed only on demand. All events of
/// one response share the text, so clones are cheap. Two responses are equal if their texts are.
#[derive(Clone)]
pub struct ModelResponseText(Arc<RawValue>);

impl ModelResponseText {
    /// Validates that a [`Value`] can be read from `text`.
    pub(crate) fn new(text: &RawValue) -> Result<Self, serde_json::Error> {
        serde_json::from_str::<ValidatedJson>(text.get())?;
        Ok(Self(Arc::from(text.to_owned())))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// Parses the text.
    pub fn to_value(&self) -> Value {
        // `new` has validated it.
        serde_json::from_str(self.as_str()).unwrap_or_default()
    }
}

impl From<&Value> for ModelResponseText {
    fn from(response: &Value) -> Self {
        // Every value serializes.
        Self(Arc::from(
            serde_json::value::to_raw_value(response).unwrap_or_default(),
        ))
    }
}

impl Default for ModelResponseText {
    fn default() -> Self {
        Self(Arc::from(Box::<RawValue>::default()))
    }
}

impl PartialEq for ModelResponseText {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.as_str() == other.as_str()
    }
}

impl fmt::Debug for ModelResponseText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for ModelResponseText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ModelResponseText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|response| Self::from(&response))
    }
}

/// Deserializes from any JSON that a [`Value`] can hold, without building it. Unlike
/// [`serde::de::IgnoredAny`] it rejects excessive depth, numbers out of range and unpaired
/// surrogates.
struct ValidatedJson;

impl<'de> Deserialize<'de> for ValidatedJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for ValidatedJson {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self, A::Error> {
        while elements.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self, A::Error> {
        while fields.next_entry::<Self, Self>()?.is_some() {}
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use serde_json::value::RawValue;

    use super::ModelResponseText;

    #[test]
    fn response_text_is_valid_exactly_when_a_value_is() {
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let texts = [
            "1e999",
            r#""\ud800""#,
            r#"{"a\udfff":1}"#,
            &deep(127),
            &deep(128),
            r#"{"a":[1,-2,0.5,"é",null,true]}"#,
        ];
        let mut valid = 0;
        for text in texts {
            let raw: &RawValue = serde_json::from_str(text).unwrap();
            let (response, value) = (
                ModelResponseText::new(raw),
                serde_json::from_str::<Value>(text),
            );
            assert_eq!(response.is_ok(), value.is_ok(), "{text}");
            if let (Ok(response), Ok(value)) = (response, value) {
                assert_eq!((response.as_str(), response.to_value()), (text, value));
                valid += 1;
            }
        }
        assert_eq!(valid, 2);
    }
}

//! What a model may call, one file a tool: its definition, and how a call becomes an action.

mod execute_bash;
mod finish;
mod str_replace_editor;
mod think;

use protocol::{Action, SecurityRisk};
use serde::de::{Deserialize, DeserializeOwned, Deserializer};
use serde_json::json;

use crate::llm::{Tool, ToolCall};

/// V0's name of the argument in which a call says how dangerous it is.
const RISK: &str = "security_risk";

/// Why a call cannot become an action. The text is for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// There is no such tool.
    #[error("there is no tool {0}")]
    NoSuchTool(String),
    /// The arguments are not JSON.
    #[error("the arguments of {tool} are not JSON: {problem}")]
    NotJson {
        /// The tool.
        tool: String,
        /// Where the text goes wrong.
        problem: String,
    },
    /// An argument is missing or has the wrong type.
    #[error("the arguments of {tool}: {problem}")]
    Arguments {
        /// The tool.
        tool: String,
        /// Which argument, and what is wrong.
        problem: String,
    },
    /// The tool has no such command.
    #[error("{tool} has no command {command}")]
    NoSuchCommand {
        /// The tool.
        tool: &'static str,
        /// The command.
        command: String,
    },
}

/// All tools.
pub fn definitions() -> Vec<Tool> {
    vec![
        execute_bash::definition(),
        str_replace_editor::definition(),
        think::definition(),
        finish::definition(),
    ]
}

/// The same tools, asking for the risk of each call that does something.
pub fn asking_for_risk(mut tools: Vec<Tool>) -> Vec<Tool> {
    let acting = tools.iter_mut().filter(|tool| ![think::NAME, finish::NAME].contains(&tool.name.as_str()));
    for tool in acting {
        if let Some(properties) = tool.parameters["properties"].as_object_mut() {
            properties.insert(RISK.into(), risk_parameter());
        }
        if let Some(required) = tool.parameters["required"].as_array_mut() {
            required.push(RISK.into());
        }
    }
    tools
}

fn risk_parameter() -> serde_json::Value {
    json!({
        "type": "string",
        "enum": ["LOW", "MEDIUM", "HIGH"],
        "description": "What this call may break. LOW: it reads, or changes only what can be made again. MEDIUM: it changes \
                        what the user cares about within the workspace, or fetches from outside. HIGH: it may leak secrets, \
                        destroy what cannot be restored, or change the system.",
    })
}

/// What a call says of its own risk. A word that is none of ours says nothing.
fn declared_risk(call: &ToolCall) -> SecurityRisk {
    let arguments: serde_json::Value = serde_json::from_str(&call.arguments).unwrap_or_default();
    let word = arguments[RISK].as_str().map(|word| word.trim().to_ascii_uppercase());
    match word.as_deref() {
        Some("LOW") => SecurityRisk::Low,
        Some("MEDIUM") => SecurityRisk::Medium,
        Some("HIGH") => SecurityRisk::High,
        _ => SecurityRisk::Unknown,
    }
}

/// The action that a call asks for, and how long it may take if the model says so, in seconds. `thought` is what the
/// model said beside it.
///
/// # Errors
/// See [`ToolError`].
pub fn to_action(call: &ToolCall, thought: &str) -> Result<(Action, Option<f64>), ToolError> {
    let (mut action, timeout) = to_unjudged_action(call, thought)?;
    action.set_security_risk(declared_risk(call));
    Ok((action, timeout))
}

fn to_unjudged_action(call: &ToolCall, thought: &str) -> Result<(Action, Option<f64>), ToolError> {
    match call.name.as_str() {
        execute_bash::NAME => execute_bash::to_action(arguments(call)?, thought),
        str_replace_editor::NAME => {
            str_replace_editor::to_action(arguments(call)?, thought).map(|action| (action, None))
        }
        think::NAME => Ok((think::to_action(arguments(call)?), None)),
        finish::NAME => Ok((finish::to_action(arguments(call)?, thought), None)),
        other => Err(ToolError::NoSuchTool(other.to_owned())),
    }
}

fn arguments<T: DeserializeOwned>(call: &ToolCall) -> Result<T, ToolError> {
    // Some providers write nothing where there are no arguments.
    let text = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
    let tool = || call.name.clone();
    let value: serde_json::Value = serde_json::from_str(text)
        .map_err(|error| ToolError::NotJson { tool: tool(), problem: error.to_string() })?;
    T::deserialize(value).map_err(|error| ToolError::Arguments { tool: tool(), problem: error.to_string() })
}

/// For `deserialize_with`: models write flags and numbers as text now and then.
fn from_text_too<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    use serde::de::Error;
    let value = match serde_json::Value::deserialize(deserializer)? {
        serde_json::Value::String(text) => {
            serde_json::from_str(&text.to_ascii_lowercase()).unwrap_or(serde_json::Value::String(text))
        }
        other => other,
    };
    Option::deserialize(value).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_says_how_dangerous_it_is_in_whatever_case() {
        for (word, risk) in [
            (r#""LOW""#, SecurityRisk::Low),
            (r#"" medium""#, SecurityRisk::Medium),
            (r#""HIGH""#, SecurityRisk::High),
            (r#""fine""#, SecurityRisk::Unknown),
            ("3", SecurityRisk::Unknown),
            ("null", SecurityRisk::Unknown),
        ] {
            let arguments = format!(r#"{{"command": "ls", "security_risk": {word}}}"#);
            let call = ToolCall { id: "c".into(), name: execute_bash::NAME.into(), arguments };
            assert_eq!(to_action(&call, "").unwrap().0.security_risk(), risk, "{word}");
        }
    }

    #[test]
    fn only_what_does_something_is_asked_for_its_risk() {
        let asking: Vec<_> = asking_for_risk(definitions())
            .into_iter()
            .filter(|tool| {
                let is_named = tool.parameters["properties"].get(RISK).is_some();
                let required = tool.parameters["required"].as_array().unwrap();
                assert_eq!(required.contains(&RISK.into()), is_named);
                is_named
            })
            .map(|tool| tool.name)
            .collect();
        assert_eq!(asking, [execute_bash::NAME, str_replace_editor::NAME]);
        assert!(definitions().iter().all(|tool| !tool.parameters.to_string().contains(RISK)));
    }
}

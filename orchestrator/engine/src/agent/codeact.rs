//! An agent defined by a prompt and tools: V0's main agent and all custom agents.

use async_trait::async_trait;
use protocol::action::{MessageAction, SystemAction};
use protocol::tool_call::{ModelResponseText, ToolCallMetadata};
use protocol::{Action, EventBody, Observation};

use super::definition::AgentDefinition;
use super::tools::{self, ToolError};
use super::{Agent, AgentStep, ModelCall};
use crate::llm::{
    AssistantMessage, Llm, LlmError, LlmErrorKind, LlmProgress, LlmRequest, ModelResponse, Tool,
    ToolCall,
};
use crate::sandbox_tools::SandboxTool;
use crate::view::View;

/// The `error_id` of the observation of an invalid tool call.
const MALFORMED_CALL: &str = "AGENT$MALFORMED_CALL";

/// Maximum number of calls of one response. As in V0, the event of each call holds the whole
/// response, so the size of the log would grow with the square of the number of calls.
const MAX_CALLS: usize = 32;

/// Maximum length of a response as JSON, in bytes: many times a context window.
const MAX_RESPONSE_BYTES: usize = 4 << 20;

/// The version of V0 whose event format is used.
const V0_VERSION: &str = "0.62.0";

/// Makes the tool calls of a model, one per step.
#[derive(Debug, Clone)]
pub struct CodeActAgent {
    /// The definition of the agent.
    pub definition: AgentDefinition,
    /// The default timeout of commands, in seconds.
    pub command_timeout: f64,
    /// Whether the model declares the risk of each call.
    pub declares_risk: bool,
}

#[async_trait]
impl Agent for CodeActAgent {
    fn name(&self) -> &str {
        &self.definition.name
    }

    fn system(&self) -> SystemAction {
        SystemAction {
            content: self.definition.prompt.clone(),
            tools: Some(self.tools().iter().map(Tool::to_stored).collect()),
            openhands_version: Some(V0_VERSION.to_owned()),
            agent_class: Some(self.name().to_owned()),
        }
    }

    fn sandbox_tools(&self) -> Vec<SandboxTool> {
        let tools = tools::sandbox_tools(&self.definition).into_iter();
        tools
            .map(|late| SandboxTool {
                tool: self.with_declared_risk(late.tool),
                ..late
            })
            .collect()
    }

    async fn step(
        &self,
        view: &View,
        llm: &dyn Llm,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<AgentStep, LlmError> {
        let offered = view.offered_tools();
        if let Some((call, metadata)) = view.pending_call() {
            return Ok(self.step_from_call(&call, metadata, "", offered));
        }
        let own = self.tools();
        // A later configuration may give the agent a tool whose name the log has for a server's.
        let late = offered
            .iter()
            .filter(|tool| own.iter().all(|own| own.name != tool.name));
        let tools = own.iter().chain(late).cloned().collect();
        let request = LlmRequest {
            messages: view.messages(),
            tools,
        };
        let mut completion = llm.complete(&request, on_progress).await?;
        let stored = limit_response(&mut completion.response)?;
        let mut step = self.step_from_response(&completion.response.message, stored, offered);
        step.call = Some(ModelCall::from(&completion));
        Ok(step)
    }
}

impl CodeActAgent {
    fn tools(&self) -> Vec<Tool> {
        tools::definitions(&self.definition)
            .into_iter()
            .map(|tool| self.with_declared_risk(tool))
            .collect()
    }

    /// Adds the risk parameter to a tool if the model has to declare the risk.
    fn with_declared_risk(&self, tool: Tool) -> Tool {
        if self.declares_risk {
            tools::with_risk_parameter(tool)
        } else {
            tool
        }
    }

    /// Converts a response to a step: its first call, or a message that waits for the user.
    fn step_from_response(
        &self,
        message: &AssistantMessage,
        stored: ModelResponseText,
        offered: &[Tool],
    ) -> AgentStep {
        match message.tool_calls.first() {
            Some(call) => {
                let metadata = ToolCallMetadata {
                    function_name: call.name.clone(),
                    tool_call_id: call.id.clone(),
                    model_response: stored,
                    total_calls_in_response: message.tool_calls.len() as u64,
                };
                self.step_from_call(call, metadata, &message.text, offered)
            }
            None => {
                let content = message.text.clone();
                let message = MessageAction {
                    content,
                    wait_for_response: true,
                    ..Default::default()
                };
                AgentStep::new(Action::from(message))
            }
        }
    }

    fn step_from_call(
        &self,
        call: &ToolCall,
        metadata: ToolCallMetadata,
        thought: &str,
        offered: &[Tool],
    ) -> AgentStep {
        let (body, timeout) = match tools::to_action(&self.definition, offered, call, thought) {
            Ok((action, timeout)) => {
                // Includes file actions: a mount that hangs must not block the agent.
                let is_performed = matches!(
                    action,
                    Action::Run(_)
                        | Action::RunIpython(_)
                        | Action::Read(_)
                        | Action::Edit(_)
                        | Action::BrowseInteractive(_)
                );
                let timeout = is_performed.then(|| timeout.unwrap_or(self.command_timeout));
                (EventBody::from(action), timeout)
            }
            Err(error) => (malformed_call(&error).into(), None),
        };
        AgentStep {
            timeout,
            tool_call_metadata: Some(metadata),
            ..AgentStep::new(body)
        }
    }
}

/// Limits an untrusted response, and returns the text of it that is stored.
fn limit_response(response: &mut ModelResponse) -> Result<ModelResponseText, LlmError> {
    response.message.tool_calls.truncate(MAX_CALLS);
    let stored = ModelResponseText::from(&response.to_stored());
    match stored.as_str().len() {
        length if length > MAX_RESPONSE_BYTES => Err(LlmError {
            kind: LlmErrorKind::Malformed,
            detail: format!("the response has {length} bytes, more than {MAX_RESPONSE_BYTES}"),
            retry_after: None,
        }),
        _ => Ok(stored),
    }
}

fn malformed_call(error: &ToolError) -> Observation {
    Observation::error(error.to_string(), MALFORMED_CALL)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::agent::definition::Prompt;
    use crate::agent::tools::ToolName;

    fn respond(message: serde_json::Value) -> AgentStep {
        let stored = json!({"id": "r", "choices": [{"message": message}]});
        let message = ModelResponse::from_stored(stored.clone()).message;
        let definition = AgentDefinition::code_act(Prompt::Unattended, ToolName::ALL.to_vec());
        CodeActAgent {
            definition,
            command_timeout: 120.0,
            declares_risk: false,
        }
        .step_from_response(&message, ModelResponseText::from(&stored), &[echo()])
    }

    fn echo() -> Tool {
        Tool {
            name: "echo".into(),
            description: String::new(),
            parameters: json!({"type": "object"}),
        }
    }

    fn call(name: &str, arguments: &str) -> AgentStep {
        respond(json!({"content": "why", "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}},
        ]}))
    }

    #[test]
    fn text_of_a_response_is_the_thought_of_its_action() {
        let step = call("execute_bash", r#"{"command": "ls"}"#);
        let EventBody::Action(Action::Run(run)) = &step.body else {
            panic!("{step:?}")
        };
        assert_eq!(
            (run.command.as_str(), run.thought.as_str(), step.timeout),
            ("ls", "why", Some(120.0))
        );
    }

    #[test]
    fn call_of_a_server_tool_becomes_an_mcp_action() {
        let step = call("echo", r#"{"message": "hi"}"#);
        let EventBody::Action(Action::CallToolMcp(mcp)) = &step.body else {
            panic!("{step:?}")
        };
        assert_eq!(
            (mcp.name.as_str(), mcp.thought.as_str(), step.timeout),
            ("echo", "why", None)
        );
        assert_eq!(
            serde_json::Value::from(mcp.arguments.clone()),
            json!({"message": "hi"})
        );
        assert_eq!(step.tool_call_metadata.unwrap().tool_call_id, "c");
        let EventBody::Observation(wrong) = call("echo", "[1]").body else {
            panic!("an observation")
        };
        assert!(
            wrong.content.starts_with("the arguments of echo: "),
            "{}",
            wrong.content
        );
    }

    #[test]
    fn timeout_of_the_model_is_used() {
        let step = call("execute_bash", r#"{"command": "make", "timeout": "600"}"#);
        assert_eq!(step.timeout, Some(600.0));
    }

    #[test]
    fn invalid_call_becomes_an_error_for_the_model() {
        for (name, arguments, problem) in [
            (
                "execute_bash",
                "{",
                "the arguments of execute_bash are not JSON",
            ),
            (
                "execute_bash",
                "{}",
                "the arguments of execute_bash: missing field `command`",
            ),
            ("fly", "{}", "there is no tool fly"),
            (
                "str_replace_editor",
                r#"{"command": "eat", "path": "/a"}"#,
                "str_replace_editor has no command eat",
            ),
        ] {
            let step = call(name, arguments);
            let EventBody::Observation(observation) = &step.body else {
                panic!("{step:?}")
            };
            assert!(
                observation.content.starts_with(problem),
                "{}",
                observation.content
            );
            assert!(step.tool_call_metadata.is_some());
        }
    }

    #[test]
    fn hostile_response_is_limited() {
        let response = |calls: usize, length: usize| {
            let call = ToolCall {
                id: "c".into(),
                name: "x".repeat(length),
                ..Default::default()
            };
            let message = AssistantMessage {
                tool_calls: vec![call; calls],
                ..Default::default()
            };
            ModelResponse {
                message,
                ..Default::default()
            }
        };
        let mut many = response(3000, 1);
        limit_response(&mut many).unwrap();
        assert_eq!(many.message.tool_calls.len(), MAX_CALLS);
        limit_response(&mut response(1, MAX_RESPONSE_BYTES)).unwrap_err();
    }

    #[test]
    fn response_without_calls_waits_for_the_user() {
        let step = respond(json!({"content": "Which one?"}));
        let EventBody::Action(Action::Message(message)) = &step.body else {
            panic!("{step:?}")
        };
        assert!(message.wait_for_response);
        assert_eq!(message.content, "Which one?");
    }
}

//! A model with a prompt and tools: V0's main agent, and every other that is data.

use async_trait::async_trait;
use protocol::action::{MessageAction, SystemAction};
use protocol::tool_call::{ModelResponseText, ToolCallMetadata};
use protocol::{Action, EventBody, Observation};

use super::definition::AgentDefinition;
use super::tools::{self, ToolError};
use super::{Agent, AgentStep, ModelCall};
use crate::llm::{Llm, LlmError, LlmErrorKind, LlmProgress, LlmRequest, ModelResponse, Tool, ToolCall};
use crate::sandbox_tools::SandboxTool;
use crate::view::View;

/// The observation's `error_id` of a call that cannot become an action.
const MALFORMED_CALL: &str = "AGENT$MALFORMED_CALL";

/// Calls of one response that are made. Each call's event holds the whole response, as V0's do: without this bound a
/// response costs the square of its calls.
const MAX_CALLS: usize = 32;

/// The longest response that is kept, as JSON, in bytes: many times what a model's window holds.
const LONGEST_RESPONSE: usize = 4 << 20;

/// The version of V0 whose events are spoken.
const V0_VERSION: &str = "0.62.0";

/// Makes the model's calls, one a step.
#[derive(Debug, Clone)]
pub struct CodeActAgent {
    /// Which agent it is.
    pub definition: AgentDefinition,
    /// How long a command may take when the model does not say, in seconds.
    pub command_timeout: f64,
    /// Whether the model says of each call how dangerous it is.
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
            tools: Some(self.tools().iter().map(Tool::to_openai).collect()),
            openhands_version: Some(V0_VERSION.to_owned()),
            agent_class: Some(self.name().to_owned()),
        }
    }

    fn sandbox_tools(&self) -> Vec<SandboxTool> {
        let tools = tools::sandbox_tools(&self.definition).into_iter();
        tools.map(|late| SandboxTool { tool: self.judged(late.tool), ..late }).collect()
    }

    async fn step(
        &self,
        view: &View,
        llm: &dyn Llm,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<AgentStep, LlmError> {
        let offered = view.offered_tools();
        if let Some((call, metadata)) = view.pending_call() {
            return Ok(self.make_call(&call, metadata, "", offered));
        }
        let tools = self.tools().into_iter().chain(offered.iter().cloned()).collect();
        let request = LlmRequest { messages: view.messages(), tools };
        let mut completion = llm.complete(&request, on_progress).await?;
        bound(&mut completion.response)?;
        let mut step = self.follow(&completion.response, offered);
        step.call = Some(ModelCall::from(&completion));
        Ok(step)
    }
}

impl CodeActAgent {
    fn tools(&self) -> Vec<Tool> {
        tools::definitions(&self.definition).into_iter().map(|tool| self.judged(tool)).collect()
    }

    /// The same tool, asking for the risk of a call if the model is to say it.
    fn judged(&self, tool: Tool) -> Tool {
        if self.declares_risk { tools::asking_for_risk(tool) } else { tool }
    }

    /// The first thing that a response asks for: its first call, or an answer from the user.
    fn follow(&self, response: &ModelResponse, offered: &[Tool]) -> AgentStep {
        let calls = response.tool_calls();
        match calls.first() {
            Some(call) => {
                let metadata = ToolCallMetadata {
                    function_name: call.name.clone(),
                    tool_call_id: call.id.clone(),
                    model_response: ModelResponseText::from(&response.0),
                    total_calls_in_response: calls.len() as u64,
                };
                self.make_call(call, metadata, response.text(), offered)
            }
            None => {
                let content = response.text().to_owned();
                let message = MessageAction { content, wait_for_response: true, ..Default::default() };
                AgentStep::new(Action::from(message))
            }
        }
    }

    fn make_call(
        &self,
        call: &ToolCall,
        metadata: ToolCallMetadata,
        thought: &str,
        offered: &[Tool],
    ) -> AgentStep {
        let (body, timeout) = match tools::to_action(&self.definition, offered, call, thought) {
            Ok((action, timeout)) => {
                // File actions too: a mount that hangs must not hold the agent.
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
            Err(error) => (misused(&error).into(), None),
        };
        AgentStep { timeout, tool_call_metadata: Some(metadata), ..AgentStep::new(body) }
    }
}

/// A model may be hostile, or its provider.
fn bound(response: &mut ModelResponse) -> Result<(), LlmError> {
    response.truncate_calls(MAX_CALLS);
    match response.0.to_string().len() {
        length if length > LONGEST_RESPONSE => Err(LlmError {
            kind: LlmErrorKind::Malformed,
            detail: format!("an answer of {length} bytes, at most {LONGEST_RESPONSE} are kept"),
            retry_after: None,
        }),
        _ => Ok(()),
    }
}

fn misused(error: &ToolError) -> Observation {
    Observation::error(error.to_string(), MALFORMED_CALL)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::agent::definition::Prompt;
    use crate::agent::tools::ToolName;

    fn respond(message: serde_json::Value) -> AgentStep {
        let response = ModelResponse(json!({"id": "r", "choices": [{"message": message}]}));
        let definition = AgentDefinition::code_act(Prompt::Unattended, ToolName::ALL.to_vec());
        CodeActAgent { definition, command_timeout: 120.0, declares_risk: false }.follow(&response, &[echo()])
    }

    fn echo() -> Tool {
        Tool { name: "echo".into(), description: String::new(), parameters: json!({"type": "object"}) }
    }

    fn call(name: &str, arguments: &str) -> AgentStep {
        respond(json!({"content": "why", "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}},
        ]}))
    }

    #[test]
    fn a_call_becomes_an_action_with_the_text_beside_it_as_thought() {
        let step = call("execute_bash", r#"{"command": "ls"}"#);
        let EventBody::Action(Action::Run(run)) = &step.body else { panic!("{step:?}") };
        assert_eq!((run.command.as_str(), run.thought.as_str(), step.timeout), ("ls", "why", Some(120.0)));
    }

    #[test]
    fn a_call_of_a_servers_tool_becomes_its_action() {
        let step = call("echo", r#"{"message": "hi"}"#);
        let EventBody::Action(Action::CallToolMcp(mcp)) = &step.body else { panic!("{step:?}") };
        assert_eq!((mcp.name.as_str(), mcp.thought.as_str(), step.timeout), ("echo", "why", None));
        assert_eq!(serde_json::Value::from(mcp.arguments.clone()), json!({"message": "hi"}));
        assert_eq!(step.tool_call_metadata.unwrap().tool_call_id, "c");
        let EventBody::Observation(wrong) = call("echo", "[1]").body else { panic!("an observation") };
        assert!(wrong.content.starts_with("the arguments of echo: "), "{}", wrong.content);
    }

    #[test]
    fn a_timeout_of_the_models_is_kept() {
        let step = call("execute_bash", r#"{"command": "make", "timeout": "600"}"#);
        assert_eq!(step.timeout, Some(600.0));
    }

    #[test]
    fn a_call_that_does_not_parse_is_told_to_the_model() {
        for (name, arguments, problem) in [
            ("execute_bash", "{", "the arguments of execute_bash are not JSON"),
            ("execute_bash", "{}", "the arguments of execute_bash: missing field `command`"),
            ("fly", "{}", "there is no tool fly"),
            (
                "str_replace_editor",
                r#"{"command": "eat", "path": "/a"}"#,
                "str_replace_editor has no command eat",
            ),
        ] {
            let step = call(name, arguments);
            let EventBody::Observation(observation) = &step.body else { panic!("{step:?}") };
            assert!(observation.content.starts_with(problem), "{}", observation.content);
            assert!(step.tool_call_metadata.is_some());
        }
    }

    #[test]
    fn a_hostile_response_is_bounded() {
        let response = |calls: usize, length: usize| {
            let call = json!({"id": "c", "type": "function", "function": {"name": "x".repeat(length), "arguments": ""}});
            ModelResponse(json!({"choices": [{"message": {"tool_calls": vec![call; calls]}}]}))
        };
        let mut many = response(3000, 1);
        bound(&mut many).unwrap();
        assert_eq!(many.tool_calls().len(), MAX_CALLS);
        bound(&mut response(1, LONGEST_RESPONSE)).unwrap_err();
    }

    #[test]
    fn a_response_without_calls_waits_for_the_user() {
        let step = respond(json!({"content": "Which one?"}));
        let EventBody::Action(Action::Message(message)) = &step.body else { panic!("{step:?}") };
        assert!(message.wait_for_response);
        assert_eq!(message.content, "Which one?");
    }
}

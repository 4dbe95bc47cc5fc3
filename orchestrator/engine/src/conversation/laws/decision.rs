//! Decisions of scripted agents, and the steps that they become.

use std::time::Duration;

use protocol::action::{
    BrowseAction, CallToolMcpAction, CondensationAction, CondensationRequestAction, DelegateAction,
    EditAction, EditCommand, FileImplementation, FinishAction, MessageAction, RejectAction,
    RunAction, SystemAction, ThinkAction,
};
use protocol::metrics::TokenUsage;
use protocol::risk::SecurityRisk;
use protocol::tool_call::ToolCallMetadata;
use protocol::{Action, EventBody, Observation};
use serde_json::json;

use crate::agent::tools::DELEGATE;
use crate::agent::{AgentStep, ModelCall};
use crate::llm::{LlmError, LlmErrorKind};

/// Cost of every call to a model, in US dollars.
pub(super) const PRICE: f64 = 0.5;

/// What an agent decides in a step.
#[derive(Debug, Clone, Copy)]
pub(in crate::conversation) enum Decision {
    Run,
    RunRisky,
    CallTool,
    Draft,
    Think,
    Ask,
    Finish,
    Reject,
    Browse,
    Misuse,
    Condense,
    RequestCondensation,
    Fail,
    Overflow,
    /// The provider refuses the request, without a reason.
    Refused,
    /// Delegates this many tasks in one response.
    Delegate(usize),
}

/// The step of a decision that is not [`Decision::Delegate`].
pub(super) fn step(decision: Decision) -> Result<Box<AgentStep>, LlmError> {
    let body: EventBody = match decision {
        Decision::Run => Action::from(RunAction {
            command: "ls".into(),
            security_risk: SecurityRisk::Low,
            ..Default::default()
        })
        .into(),
        Decision::RunRisky => Action::from(RunAction {
            command: "rm -rf build".into(),
            security_risk: SecurityRisk::High,
            ..Default::default()
        })
        .into(),
        Decision::CallTool => Action::from(CallToolMcpAction {
            name: "look_up".into(),
            ..Default::default()
        })
        .into(),
        Decision::Draft => {
            let impl_source = FileImplementation::LlmBasedEdit;
            Action::from(EditAction {
                impl_source,
                ..EditAction::new("/a", EditCommand::Unspecified)
            })
            .into()
        }
        Decision::Think => Action::from(ThinkAction {
            thought: "hm".into(),
        })
        .into(),
        Decision::Ask => Action::from(MessageAction {
            content: "?".into(),
            wait_for_response: true,
            ..Default::default()
        })
        .into(),
        Decision::Finish => Action::from(FinishAction::default()).into(),
        Decision::Reject => Action::from(RejectAction::default()).into(),
        Decision::Browse => Action::from(BrowseAction::default()).into(),
        Decision::Misuse => Observation::error("there is no tool fly", "").into(),
        Decision::Condense => Action::from(CondensationAction::default()).into(),
        Decision::RequestCondensation => Action::from(CondensationRequestAction {}).into(),
        Decision::Fail => return Err(failure(LlmErrorKind::Authentication)),
        Decision::Overflow => return Err(failure(LlmErrorKind::ContextWindowExceeded)),
        Decision::Refused => return Err(failure(LlmErrorKind::BadRequest)),
        Decision::Delegate(_) => unreachable!("its step has metadata"),
    };
    let risk_reason = if matches!(decision, Decision::RunRisky) {
        "it deletes".into()
    } else {
        String::new()
    };
    Ok(Box::new(AgentStep {
        call: call(),
        risk_reason,
        ..AgentStep::new(body)
    }))
}

/// A call to a model that costs [`PRICE`].
pub(super) fn call() -> Option<ModelCall> {
    Some(ModelCall {
        usage: TokenUsage {
            prompt_tokens: 1,
            ..Default::default()
        },
        cost: Some(PRICE),
        latency: Duration::from_secs(1),
    })
}

/// One of the calls of a response, each of which delegates a task.
pub(super) fn delegate_step(metadata: ToolCallMetadata, call: Option<ModelCall>) -> AgentStep {
    AgentStep {
        tool_call_metadata: Some(metadata),
        call,
        briefing: Some(system()),
        ..AgentStep::new(Action::from(DelegateAction {
            agent: "helper".into(),
            ..Default::default()
        }))
    }
}

pub(super) fn system() -> SystemAction {
    SystemAction {
        content: "prompt".into(),
        ..Default::default()
    }
}

fn failure(kind: LlmErrorKind) -> LlmError {
    LlmError {
        kind,
        detail: "no".into(),
        retry_after: None,
    }
}

/// The first of the calls of a response that delegates `count` tasks. `id` is the response's id.
pub(super) fn delegate_tasks(id: &str, count: usize) -> AgentStep {
    let calls: Vec<_> = (0..count)
        .map(|call| json!({"id": format!("{id}-{call}"), "function": {"name": DELEGATE, "arguments": "{}"}}))
        .collect();
    let metadata = ToolCallMetadata {
        function_name: DELEGATE.into(),
        tool_call_id: format!("{id}-0"),
        model_response: (&json!({"id": id, "choices": [{"message": {"tool_calls": calls}}]}))
            .into(),
        total_calls_in_response: count as u64,
    };
    delegate_step(metadata, call())
}

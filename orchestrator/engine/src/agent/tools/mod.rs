//! The tools of agents, one file each: its definition, and the conversion of a call to an action.

mod arguments;
mod browser;
mod code_graph;
mod delegate;
mod edit_file;
mod execute_bash;
mod execute_ipython_cell;
mod explore_tree_structure;
mod finish;
mod get_entity_contents;
mod glob;
mod grep;
mod mcp;
mod request_condensation;
mod search;
mod search_code_snippets;
mod str_replace_editor;
mod task_tracker;
#[cfg(test)]
mod tests;
mod think;
mod view;

use protocol::{Action, SecurityRisk};
use serde_json::{Value, json};

pub use self::arguments::convert_arguments;
use self::arguments::deserialize;
use super::definition::AgentDefinition;
use crate::llm::{Tool, ToolCall};
use crate::sandbox_tools::{CHROMIUM, IPYTHON, PYTHON, SandboxTool};
use crate::tool_servers::{CALL_TOOL, SEARCH_TOOLS};

pub(crate) use code_graph::add_code_graph;
pub use delegate::DELEGATE;

/// V0's name of the argument for the risk of a call.
const RISK: &str = "security_risk";

/// The error of an invalid tool call. The text is for the model.
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
        /// The syntax error.
        problem: String,
    },
    /// An argument is missing or has the wrong type.
    #[error("the arguments of {tool}: {problem}")]
    Arguments {
        /// The tool.
        tool: String,
        /// The argument, and the problem with it.
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

/// A tool, under V0's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolName {
    /// Run a shell command in the sandbox.
    ExecuteBash,
    /// Run Python code in the sandbox's Jupyter kernel.
    ExecuteIpythonCell,
    /// Interact with the sandbox's browser.
    Browser,
    /// View, create and edit files.
    StrReplaceEditor,
    /// Edit files with drafts that a model turns into edits.
    EditFile,
    /// Log a thought.
    Think,
    /// Finish the task.
    Finish,
    /// View or set the task list.
    TaskTracker,
    /// Request a condensation of the history.
    RequestCondensation,
    /// View a file or a folder.
    View,
    /// Search for lines in files.
    Grep,
    /// Find files by name.
    Glob,
    /// Search for definitions and lines of code.
    SearchCodeSnippets,
    /// Show whole classes, functions and files.
    GetEntityContents,
    /// Explore the containment, imports, calls and inheritance of code.
    ExploreTreeStructure,
}

impl ToolName {
    /// All tools.
    pub const ALL: [Self; 15] = [
        Self::ExecuteBash,
        Self::ExecuteIpythonCell,
        Self::Browser,
        Self::StrReplaceEditor,
        Self::EditFile,
        Self::Think,
        Self::Finish,
        Self::TaskTracker,
        Self::RequestCondensation,
        Self::View,
        Self::Grep,
        Self::Glob,
        Self::SearchCodeSnippets,
        Self::GetEntityContents,
        Self::ExploreTreeStructure,
    ];

    /// The tools that change nothing in the sandbox.
    pub const READ_ONLY: [Self; 5] = [
        Self::View,
        Self::Grep,
        Self::Glob,
        Self::Think,
        Self::Finish,
    ];

    /// The tools of a browsing agent.
    pub const BROWSING: [Self; 3] = [Self::Browser, Self::Think, Self::Finish];

    /// The tools of a code localization agent.
    pub const LOCALIZING: [Self; 4] = [
        Self::SearchCodeSnippets,
        Self::GetEntityContents,
        Self::ExploreTreeStructure,
        Self::Finish,
    ];

    /// Whether it changes nothing in the sandbox.
    fn is_read_only(self) -> bool {
        Self::READ_ONLY.contains(&self) || Self::LOCALIZING.contains(&self)
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::ExecuteBash => execute_bash::NAME,
            Self::ExecuteIpythonCell => execute_ipython_cell::NAME,
            Self::Browser => browser::NAME,
            Self::StrReplaceEditor => str_replace_editor::NAME,
            Self::EditFile => edit_file::NAME,
            Self::Think => think::NAME,
            Self::Finish => finish::NAME,
            Self::TaskTracker => task_tracker::NAME,
            Self::RequestCondensation => request_condensation::NAME,
            Self::View => view::NAME,
            Self::Grep => grep::NAME,
            Self::Glob => glob::NAME,
            Self::SearchCodeSnippets => search_code_snippets::NAME,
            Self::GetEntityContents => get_entity_contents::NAME,
            Self::ExploreTreeStructure => explore_tree_structure::NAME,
        }
    }

    /// Returns the tool of that name, if any.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// Returns the fact about a sandbox that the tool requires. `None` if it is always offered.
    fn needs(self) -> Option<&'static str> {
        match self {
            Self::ExecuteIpythonCell => Some(IPYTHON),
            Self::Browser => Some(CHROMIUM),
            Self::SearchCodeSnippets | Self::GetEntityContents | Self::ExploreTreeStructure => {
                Some(PYTHON)
            }
            _ => None,
        }
    }

    fn definition(self) -> Tool {
        match self {
            Self::ExecuteBash => execute_bash::definition(),
            Self::ExecuteIpythonCell => execute_ipython_cell::definition(),
            Self::Browser => browser::definition(),
            Self::StrReplaceEditor => str_replace_editor::definition(),
            Self::EditFile => edit_file::definition(),
            Self::Think => think::definition(),
            Self::Finish => finish::definition(),
            Self::TaskTracker => task_tracker::definition(),
            Self::RequestCondensation => request_condensation::definition(),
            Self::View => view::definition(),
            Self::Grep => grep::definition(),
            Self::Glob => glob::definition(),
            Self::SearchCodeSnippets => search_code_snippets::definition(),
            Self::GetEntityContents => get_entity_contents::definition(),
            Self::ExploreTreeStructure => explore_tree_structure::definition(),
        }
    }
}

/// Returns the definitions of an agent's tools that do not depend on the sandbox.
pub fn definitions(agent: &AgentDefinition) -> Vec<Tool> {
    let tools = agent
        .tools
        .iter()
        .filter(|tool| tool.needs().is_none())
        .map(|tool| tool.definition());
    let delegate = (!agent.delegates.is_empty()).then(|| delegate::definition(&agent.delegates));
    tools.chain(delegate).collect()
}

/// Returns the tools of an agent that require something of the sandbox.
pub fn sandbox_tools(agent: &AgentDefinition) -> Vec<SandboxTool> {
    let sandbox_tool = |tool: &ToolName| {
        let is_required = agent.required.contains(tool);
        Some(SandboxTool {
            needs: tool.needs()?,
            tool: tool.definition(),
            is_required,
        })
    };
    agent.tools.iter().filter_map(sandbox_tool).collect()
}

/// Adds the risk parameter to a tool that has an effect.
pub fn with_risk_parameter(mut tool: Tool) -> Tool {
    let harmless = [
        think::NAME,
        finish::NAME,
        task_tracker::NAME,
        request_condensation::NAME,
        DELEGATE,
    ];
    if !harmless.contains(&tool.name.as_str()) {
        if let Some(properties) = tool.parameters["properties"].as_object_mut() {
            properties.insert(RISK.into(), risk_parameter());
        }
        let is_read_only = ToolName::find(&tool.name).is_some_and(ToolName::is_read_only);
        if let Some(required) = tool.parameters["required"]
            .as_array_mut()
            .filter(|_| !is_read_only)
        {
            required.push(RISK.into());
        }
    }
    tool
}

fn risk_parameter() -> Value {
    json!({
        "type": "string",
        "enum": ["LOW", "MEDIUM", "HIGH"],
        "description": "The risk of this call. LOW: it reads, or changes only files that can be regenerated. MEDIUM: it changes \
                        the user's files in the workspace, or downloads something. HIGH: it may leak secrets, destroy \
                        data that cannot be restored, or change the system.",
    })
}

/// Returns the declared risk of a call. Unknown if the value is not a risk.
fn declared_risk(call: &ToolCall) -> SecurityRisk {
    let arguments = arguments::parse(call, &json!({"type": "object"})).unwrap_or_default();
    let word = arguments
        .get(RISK)
        .and_then(Value::as_str)
        .map(|word| word.trim().to_ascii_uppercase());
    match word.as_deref() {
        Some("LOW") => SecurityRisk::Low,
        Some("MEDIUM") => SecurityRisk::Medium,
        Some("HIGH") => SecurityRisk::High,
        _ => SecurityRisk::Unknown,
    }
}

/// Converts a tool call to an action, with its timeout in seconds if the model sets one. A call of
/// [`CALL_TOOL`] becomes the action of the tool that it names. `offered` are the tools in addition
/// to the agent's own; `thought` is the text of the response.
///
/// # Errors
/// See [`ToolError`].
pub fn to_action(
    agent: &AgentDefinition,
    offered: &[Tool],
    call: &ToolCall,
    thought: &str,
) -> Result<(Action, Option<f64>), ToolError> {
    let find = |name: &str| offered.iter().find(|tool| tool.name == name);
    let found = match find(CALL_TOOL).filter(|tool| tool.name == call.name) {
        Some(definition) => mcp::found_call(call, definition)?,
        None => call.clone(),
    };
    let (mut action, timeout) = to_action_without_risk(agent, offered, &found, thought)?;
    // The servers define the arguments of their tools, so a risk in them is theirs.
    if !matches!(action, Action::CallToolMcp(_)) {
        action.set_security_risk(declared_risk(&found));
    }
    Ok((action, timeout))
}

fn to_action_without_risk(
    agent: &AgentDefinition,
    offered: &[Tool],
    call: &ToolCall,
    thought: &str,
) -> Result<(Action, Option<f64>), ToolError> {
    let find = |name: &str| offered.iter().find(|tool| tool.name == name);
    let offered = find(&call.name);
    let is_available = |tool: &ToolName| {
        agent.tools.contains(tool) && (tool.needs().is_none() || offered.is_some())
    };
    let Some(tool) = ToolName::find(&call.name).filter(is_available) else {
        return if call.name == DELEGATE && !agent.delegates.is_empty() {
            let schema = delegate::definition(&agent.delegates).parameters;
            Ok((
                delegate::to_action(deserialize(call, &schema)?, &agent.delegates, thought)?,
                None,
            ))
        } else if offered.is_some()
            || (find(SEARCH_TOOLS).is_some() && mcp::may_be_found(&call.name))
        {
            Ok((mcp::to_action(call, thought)?, None))
        } else {
            Err(ToolError::NoSuchTool(call.name.clone()))
        };
    };
    let schema = tool.definition().parameters;
    let action = match tool {
        ToolName::ExecuteBash => {
            return execute_bash::to_action(deserialize(call, &schema)?, thought);
        }
        ToolName::ExecuteIpythonCell => {
            execute_ipython_cell::to_action(deserialize(call, &schema)?, thought)
        }
        ToolName::Browser => browser::to_action(deserialize(call, &schema)?, thought)?,
        ToolName::StrReplaceEditor => {
            str_replace_editor::to_action(deserialize(call, &schema)?, thought)?
        }
        ToolName::EditFile => edit_file::to_action(deserialize(call, &schema)?, thought),
        ToolName::Think => think::to_action(deserialize(call, &schema)?, thought),
        ToolName::Finish => finish::to_action(deserialize(call, &schema)?, thought),
        ToolName::TaskTracker => task_tracker::to_action(deserialize(call, &schema)?, thought)?,
        ToolName::RequestCondensation => request_condensation::to_action(),
        ToolName::View => view::to_action(deserialize(call, &schema)?, thought),
        ToolName::Grep => grep::to_action(deserialize(call, &schema)?, thought)?,
        ToolName::Glob => glob::to_action(deserialize(call, &schema)?, thought)?,
        ToolName::SearchCodeSnippets => {
            search_code_snippets::to_action(deserialize(call, &schema)?, thought)?
        }
        ToolName::GetEntityContents => {
            get_entity_contents::to_action(deserialize(call, &schema)?, thought)?
        }
        ToolName::ExploreTreeStructure => {
            explore_tree_structure::to_action(deserialize(call, &schema)?, thought)?
        }
    };
    Ok((action, None))
}

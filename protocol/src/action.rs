//! V0's actions: the requests of agents and users.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::agent_state::AgentState;
pub use crate::edit_command::EditCommand;
use crate::kinds::kinds;
use crate::lenient::{null_is_default, null_is_minus_one, text_or_json};
use crate::risk::SecurityRisk;

kinds! {
    /// A request of an agent or a user.
    pub enum Action, wire key "action", fields under "args" {
        /// No action; separates turns in older logs.
        "null" => Null(NullAction),
        /// The agent's initial prompt and tools.
        "system" => System(SystemAction),
        /// A message of the user or the agent.
        "message" => Message(MessageAction),
        /// Run a shell command in the sandbox.
        "run" => Run(RunAction),
        /// Run Python code in the sandbox's Jupyter kernel.
        "run_ipython" => RunIpython(RunIpythonAction),
        /// Read a file.
        "read" => Read(ReadAction),
        /// Write a file, or replace a range of its lines.
        "write" => Write(WriteAction),
        /// Edit a file.
        "edit" => Edit(EditAction),
        /// Open a web page.
        "browse" => Browse(BrowseAction),
        /// Interact with the open web page.
        "browse_interactive" => BrowseInteractive(BrowseInteractiveAction),
        /// Call a tool of an MCP server.
        "call_tool_mcp" => CallToolMcp(CallToolMcpAction),
        /// Delegate a task to another agent.
        "delegate" => Delegate(DelegateAction),
        /// Log a thought.
        "think" => Think(ThinkAction),
        /// Finish the task.
        "finish" => Finish(FinishAction),
        /// Refuse the task.
        "reject" => Reject(RejectAction),
        /// Set the agent's state.
        "change_agent_state" => ChangeAgentState(ChangeAgentStateAction),
        /// Retrieve knowledge that is relevant to a text.
        "recall" => Recall(RecallAction),
        /// Remove events from the view, optionally in favor of a summary.
        "condensation" => Condensation(CondensationAction),
        /// Request a condensation.
        "condensation_request" => CondensationRequest(CondensationRequestAction),
        /// View or set the task list.
        "task_tracking" => TaskTracking(TaskTrackingAction),
        /// Recover from a loop in the way that the user chose.
        "loop_recovery" => LoopRecovery(LoopRecoveryAction),
    }
}

/// The state of an action's confirmation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ConfirmationState {
    /// Confirmed, or in no need of confirmation.
    #[default]
    Confirmed,
    /// Rejected by the user.
    Rejected,
    /// Waiting for the user's decision.
    AwaitingConfirmation,
}

/// The implementation of a read or an edit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum FileImplementation {
    /// Plain file access.
    #[default]
    Default,
    /// The agent's editor: numbered lines, snippets, undo.
    OhAci,
    /// A model turns a draft into an edit.
    LlmBasedEdit,
}

/// Fields: none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NullAction {}

/// The agent's initial prompt and tools.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SystemAction {
    /// The system prompt.
    pub content: String,
    /// The tools in OpenAI's format.
    #[serde(default)]
    pub tools: Option<Vec<Value>>,
    /// The version of V0 whose format is used.
    #[serde(default)]
    pub openhands_version: Option<String>,
    /// The agent's name.
    #[serde(default)]
    pub agent_class: Option<String>,
}

/// A message of the user or the agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MessageAction {
    /// The text.
    pub content: String,
    /// Files in the sandbox that the text refers to.
    #[serde(default)]
    pub file_urls: Option<Vec<String>>,
    /// Images, as URLs or data URLs.
    #[serde(default)]
    pub image_urls: Option<Vec<String>>,
    /// For the agent's messages: whether it waits for the user's reply.
    #[serde(default, deserialize_with = "null_is_default")]
    pub wait_for_response: bool,
    /// Its security risk.
    #[serde(default, deserialize_with = "SecurityRisk::or_unknown")]
    pub security_risk: SecurityRisk,
}

impl MessageAction {
    /// Returns the length of the text and the images, in bytes.
    pub fn length(&self) -> u64 {
        let images = self.image_urls.iter().flatten().map(String::len);
        images.fold(self.content.len(), usize::saturating_add) as u64
    }
}

/// Run a shell command in the sandbox.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunAction {
    /// Shell command of any number of lines. If empty, waits for more output of the running
    /// command.
    pub command: String,
    /// Whether the text is input for the running process; `C-c`, `C-d` and `C-z` are keys.
    #[serde(default, deserialize_with = "null_is_default")]
    pub is_input: bool,
    /// The agent's reasoning.
    #[serde(default, deserialize_with = "null_is_default")]
    pub thought: String,
    /// Whether to wait until the command exits or times out, even without output.
    #[serde(default, deserialize_with = "null_is_default")]
    pub blocking: bool,
    /// Whether to run in a new shell instead of the session.
    #[serde(default, deserialize_with = "null_is_default")]
    pub is_static: bool,
    /// The working directory of a static command.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Whether the agent does not see it.
    #[serde(default, deserialize_with = "null_is_default")]
    pub hidden: bool,
    /// The state of its confirmation.
    #[serde(default, deserialize_with = "null_is_default")]
    pub confirmation_state: ConfirmationState,
    /// Its security risk.
    #[serde(default, deserialize_with = "SecurityRisk::or_unknown")]
    pub security_risk: SecurityRisk,
}

/// Run Python code in the sandbox's Jupyter kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunIpythonAction {
    /// The code of the cell.
    pub code: String,
    /// The agent's reasoning.
    #[serde(default, deserialize_with = "null_is_default")]
    pub thought: String,
    /// Whether the observation includes the working directory and the interpreter.
    #[serde(default = "yes")]
    pub include_extra: bool,
    /// The state of its confirmation.
    #[serde(default, deserialize_with = "null_is_default")]
    pub confirmation_state: ConfirmationState,
    /// Its security risk.
    #[serde(default, deserialize_with = "SecurityRisk::or_unknown")]
    pub security_risk: SecurityRisk,
    /// Code to run before the first cell of a new kernel.
    #[serde(default, deserialize_with = "null_is_default")]
    pub kernel_init_code: String,
}

/// Read a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReadAction {
    /// The file. A relative path is resolved against the shell's working directory.
    pub path: String,
    /// The first line, from 0.
    #[serde(default, deserialize_with = "null_is_default")]
    pub start: i64,
    /// The line after the last one; −1 for the end of the file.
    #[serde(default = "minus_one", deserialize_with = "null_is_minus_one")]
    pub end: i64,
    /// The agent's reasoning.
    #[serde(default, deserialize_with = "null_is_default")]
    pub thought: String,
    /// Its security risk.
    #[serde(default, deserialize_with = "SecurityRisk::or_unknown")]
    pub security_risk: SecurityRisk,
    /// Plain file access, or the editor with its numbered lines.
    #[serde(default, deserialize_with = "null_is_default")]
    pub impl_source: FileImplementation,
    /// For the editor: first and last line, from 1; −1 for the end of the file.
    #[serde(default)]
    pub view_range: Option<Vec<i64>>,
}

/// Write a file, or replace a range of its lines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WriteAction {
    /// The file. A relative path is resolved against the shell's working directory.
    pub path: String,
    /// The text.
    pub content: String,
    /// The first line to replace, from 0.
    #[serde(default, deserialize_with = "null_is_default")]
    pub start: i64,
    /// The line after the last one to replace; −1 for the end of the file.
    #[serde(default = "minus_one", deserialize_with = "null_is_minus_one")]
    pub end: i64,
    /// The agent's reasoning.
    #[serde(default, deserialize_with = "null_is_default")]
    pub thought: String,
    /// Its security risk.
    #[serde(default, deserialize_with = "SecurityRisk::or_unknown")]
    pub security_risk: SecurityRisk,
}

/// Edit a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EditAction {
    /// The file.
    pub path: String,
    /// `view`, `create`, `str_replace`, `insert` or `undo_edit`; empty for a draft.
    #[serde(default, deserialize_with = "null_is_default")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub command: EditCommand,
    /// For `create`: the content.
    #[serde(default)]
    pub file_text: Option<String>,
    /// For `str_replace`: the text to replace. Must occur exactly once.
    #[serde(default)]
    pub old_str: Option<String>,
    /// For `str_replace` and `insert`: the new text.
    #[serde(default)]
    pub new_str: Option<String>,
    /// For `insert`: the line after which to insert; 0 for the start of the file.
    #[serde(default)]
    pub insert_line: Option<i64>,
    /// The draft of a model-based edit.
    #[serde(default, deserialize_with = "null_is_default")]
    pub content: String,
    /// The first line of a draft's range, from 1.
    #[serde(default = "one")]
    pub start: i64,
    /// The last line of a draft's range; −1 for the end of the file.
    #[serde(default = "minus_one", deserialize_with = "null_is_minus_one")]
    pub end: i64,
    /// The agent's reasoning.
    #[serde(default, deserialize_with = "null_is_default")]
    pub thought: String,
    /// Its security risk.
    #[serde(default, deserialize_with = "SecurityRisk::or_unknown")]
    pub security_risk: SecurityRisk,
    /// The editor, or a model that is given a draft.
    #[serde(default = "oh_aci")]
    pub impl_source: FileImplementation,
}

/// Open a web page.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BrowseAction {
    /// The URL.
    pub url: String,
    /// The agent's reasoning.
    #[serde(default, deserialize_with = "null_is_default")]
    pub thought: String,
    /// Its security risk.
    #[serde(default, deserialize_with = "SecurityRisk::or_unknown")]
    pub security_risk: SecurityRisk,
    /// Whether the observation includes the accessibility tree.
    #[serde(default, deserialize_with = "null_is_default")]
    pub return_axtree: bool,
}

/// Interact with the open web page.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BrowseInteractiveAction {
    /// The calls, such as `click('12')`.
    pub browser_actions: String,
    /// The agent's reasoning.
    #[serde(default, deserialize_with = "null_is_default")]
    pub thought: String,
    /// A message to the user.
    #[serde(default, deserialize_with = "null_is_default")]
    pub browsergym_send_msg_to_user: String,
    /// Its security risk.
    #[serde(default, deserialize_with = "SecurityRisk::or_unknown")]
    pub security_risk: SecurityRisk,
    /// Whether the observation includes the accessibility tree.
    #[serde(default, deserialize_with = "null_is_default")]
    pub return_axtree: bool,
}

/// Call a tool of an MCP server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CallToolMcpAction {
    /// The tool.
    pub name: String,
    /// Its arguments.
    #[serde(default, deserialize_with = "null_is_default")]
    pub arguments: Map<String, Value>,
    /// The agent's reasoning.
    #[serde(default, deserialize_with = "null_is_default")]
    pub thought: String,
    /// Its security risk.
    #[serde(default, deserialize_with = "SecurityRisk::or_unknown")]
    pub security_risk: SecurityRisk,
}

/// Delegate a task to another agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DelegateAction {
    /// The agent's name.
    pub agent: String,
    /// Its inputs; usually `task`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub inputs: Map<String, Value>,
    /// The agent's reasoning.
    #[serde(default, deserialize_with = "null_is_default")]
    pub thought: String,
}

/// Log a thought.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ThinkAction {
    /// The thought.
    #[serde(default, deserialize_with = "null_is_default")]
    pub thought: String,
}

/// Finish the task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FinishAction {
    /// The final message to the user.
    #[serde(default, deserialize_with = "null_is_default")]
    pub final_thought: String,
    /// The outputs for a parent agent.
    #[serde(default, deserialize_with = "null_is_default")]
    pub outputs: Map<String, Value>,
    /// The agent's reasoning.
    #[serde(default, deserialize_with = "null_is_default")]
    pub thought: String,
}

/// Refuse the task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RejectAction {
    /// The outputs for a parent agent; usually `reason`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub outputs: Map<String, Value>,
    /// The agent's reasoning.
    #[serde(default, deserialize_with = "null_is_default")]
    pub thought: String,
}

/// Set the agent's state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChangeAgentStateAction {
    /// The new state.
    #[serde(deserialize_with = "AgentState::or_unknown")]
    pub agent_state: AgentState,
    /// The agent's reasoning.
    #[serde(default, deserialize_with = "null_is_default")]
    pub thought: String,
}

/// A kind of knowledge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecallType {
    /// Facts about the workspace; retrieved once, at the start.
    WorkspaceContext,
    /// Knowledge whose triggers occur in the message.
    Knowledge,
}

/// Retrieve knowledge that is relevant to a text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecallAction {
    /// The kind of knowledge.
    pub recall_type: RecallType,
    /// The user's message.
    #[serde(default, deserialize_with = "null_is_default")]
    pub query: String,
    /// The agent's reasoning.
    #[serde(default, deserialize_with = "null_is_default")]
    pub thought: String,
}

/// Remove events from the view, optionally in favor of a summary. Has either the list or the range.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CondensationAction {
    /// The ids of the events to forget.
    #[serde(default)]
    pub forgotten_event_ids: Option<Vec<i64>>,
    /// The first event of a range to forget.
    #[serde(default)]
    pub forgotten_events_start_id: Option<i64>,
    /// The last event of that range.
    #[serde(default)]
    pub forgotten_events_end_id: Option<i64>,
    /// The summary that replaces them.
    #[serde(default)]
    pub summary: Option<String>,
    /// The index of the summary in the view.
    #[serde(default)]
    pub summary_offset: Option<i64>,
}

/// Request a condensation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CondensationRequestAction {}

/// A task of the agent's task list. Models do not keep to the schema, so a value that is no string
/// is read as its JSON.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TrackedTask {
    /// Its id.
    #[serde(default, deserialize_with = "text_or_json")]
    pub id: String,
    /// The description of the task.
    #[serde(default, deserialize_with = "text_or_json")]
    pub title: String,
    /// `todo`, `in_progress` or `done`, or any other text of the model.
    #[serde(default, deserialize_with = "text_or_json")]
    pub status: String,
    /// Free text.
    #[serde(default, deserialize_with = "text_or_json")]
    pub notes: String,
}

/// View or set the task list.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskTrackingAction {
    /// `view` or `plan`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub command: String,
    /// The whole list.
    #[serde(default, deserialize_with = "null_is_default")]
    pub task_list: Vec<TrackedTask>,
    /// The agent's reasoning.
    #[serde(default, deserialize_with = "null_is_default")]
    pub thought: String,
}

/// Recover from a loop in the way that the user chose.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LoopRecoveryAction {
    /// 1: restart before the loop; 2: restart with the last user message; 3: stop.
    #[serde(default = "one")]
    pub option: i64,
}

impl ReadAction {
    /// Creates a plain read of a whole file.
    pub fn whole_file(path: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            start: 0,
            end: -1,
            thought: String::new(),
            security_risk: SecurityRisk::default(),
            impl_source: FileImplementation::Default,
            view_range: None,
        }
    }
}

impl EditAction {
    /// Creates an edit of `path` with the editor's `command`. The caller sets the command's
    /// arguments.
    pub fn new(path: impl Into<String>, command: EditCommand) -> Self {
        Self {
            path: path.into(),
            command,
            file_text: None,
            old_str: None,
            new_str: None,
            insert_line: None,
            content: String::new(),
            start: 1,
            end: -1,
            thought: String::new(),
            security_risk: SecurityRisk::default(),
            impl_source: FileImplementation::OhAci,
        }
    }

    /// Whether this is a draft that a model still has to turn into an edit with a `command`.
    pub fn is_draft(&self) -> bool {
        self.impl_source == FileImplementation::LlmBasedEdit
            && self.command == EditCommand::Unspecified
    }
}

impl Action {
    /// Returns the assessed security risk.
    pub fn security_risk(&self) -> SecurityRisk {
        match self {
            Self::Message(action) => action.security_risk,
            Self::Run(action) => action.security_risk,
            Self::RunIpython(action) => action.security_risk,
            Self::Read(action) => action.security_risk,
            Self::Write(action) => action.security_risk,
            Self::Edit(action) => action.security_risk,
            Self::Browse(action) => action.security_risk,
            Self::BrowseInteractive(action) => action.security_risk,
            Self::CallToolMcp(action) => action.security_risk,
            _ => SecurityRisk::Unknown,
        }
    }

    /// Sets the security risk, on the kinds that have such a field.
    pub fn set_security_risk(&mut self, risk: SecurityRisk) {
        match self {
            Self::Message(action) => action.security_risk = risk,
            Self::Run(action) => action.security_risk = risk,
            Self::RunIpython(action) => action.security_risk = risk,
            Self::Read(action) => action.security_risk = risk,
            Self::Write(action) => action.security_risk = risk,
            Self::Edit(action) => action.security_risk = risk,
            Self::Browse(action) => action.security_risk = risk,
            Self::BrowseInteractive(action) => action.security_risk = risk,
            Self::CallToolMcp(action) => action.security_risk = risk,
            _ => {}
        }
    }

    /// Returns the state of the confirmation. Only two kinds have such a field in V0; the others
    /// count as confirmed.
    pub fn confirmation_state(&self) -> ConfirmationState {
        match self {
            Self::Run(action) => action.confirmation_state,
            Self::RunIpython(action) => action.confirmation_state,
            _ => ConfirmationState::Confirmed,
        }
    }

    /// Marks the action as waiting for confirmation, on the two kinds that have such a field in V0.
    pub fn await_confirmation(&mut self) {
        match self {
            Self::Run(action) => {
                action.confirmation_state = ConfirmationState::AwaitingConfirmation;
            }
            Self::RunIpython(action) => {
                action.confirmation_state = ConfirmationState::AwaitingConfirmation;
            }
            _ => {}
        }
    }

    /// Returns a human-readable line, V0's `message`.
    pub fn message(&self) -> String {
        match self {
            Self::Null(_) => "No action".into(),
            Self::System(action) => action.content.clone(),
            Self::Message(action) => action.content.clone(),
            Self::Run(action) => format!("Running command: {}", action.command),
            Self::RunIpython(action) => format!("Running Python code: {}", action.code),
            Self::Read(action) => format!("Reading file: {}", action.path),
            Self::Write(action) => format!("Writing file: {}", action.path),
            Self::Edit(action) => format!("Editing file: {}", action.path),
            Self::Browse(action) => format!("Browsing {}", action.url),
            Self::BrowseInteractive(action) => {
                format!("In the browser: {}", action.browser_actions)
            }
            Self::CallToolMcp(action) => format!("Calling the MCP tool {}", action.name),
            Self::Delegate(action) => format!("Delegating the task to {}", action.agent),
            Self::Think(action) => format!("Thinking: {}", action.thought),
            Self::Finish(action) if action.final_thought.is_empty() => "The task is done.".into(),
            Self::Finish(action) => action.final_thought.clone(),
            Self::Reject(_) => "The agent refuses the task.".into(),
            Self::ChangeAgentState(action) => {
                format!("Agent state changed to {}", action.agent_state)
            }
            Self::Recall(action) => format!("Looking for knowledge on: {}", action.query),
            Self::Condensation(action) => match &action.summary {
                Some(summary) => format!("Summary: {summary}"),
                None => "Older events are dropped from the agent's view.".into(),
            },
            Self::CondensationRequest(_) => "Asking for a condensation of the history.".into(),
            Self::TaskTracking(action) => {
                format!("Task list with {} entries", action.task_list.len())
            }
            Self::LoopRecovery(_) => "Leaving a loop".into(),
        }
    }
}

fn yes() -> bool {
    true
}

fn one() -> i64 {
    1
}

fn minus_one() -> i64 {
    -1
}

fn oh_aci() -> FileImplementation {
    FileImplementation::OhAci
}

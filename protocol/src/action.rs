//! V0's actions: what an agent or a user asks for.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::agent_state::AgentState;
use crate::kinds::kinds;
use crate::lenient::{null_is_default, null_is_minus_one, text_or_json};
use crate::risk::SecurityRisk;

kinds! {
    /// Everything that can be asked for.
    pub enum Action, wire key "action", fields under "args" {
        /// Nothing; older logs mark turns with it.
        "null" => Null(NullAction),
        /// The prompt and the tools that the agent began with.
        "system" => System(SystemAction),
        /// Somebody says something.
        "message" => Message(MessageAction),
        /// Run a command in the sandbox's shell.
        "run" => Run(RunAction),
        /// Run Python in the sandbox's kernel.
        "run_ipython" => RunIpython(RunIpythonAction),
        /// Read a file.
        "read" => Read(ReadAction),
        /// Write a file, or a slice of its lines.
        "write" => Write(WriteAction),
        /// Edit a file.
        "edit" => Edit(EditAction),
        /// Open a page.
        "browse" => Browse(BrowseAction),
        /// Act on the open page.
        "browse_interactive" => BrowseInteractive(BrowseInteractiveAction),
        /// Call a tool of an MCP server.
        "call_tool_mcp" => CallToolMcp(CallToolMcpAction),
        /// Hand a task to another agent.
        "delegate" => Delegate(DelegateAction),
        /// Say a thought aloud, change nothing.
        "think" => Think(ThinkAction),
        /// The task is done.
        "finish" => Finish(FinishAction),
        /// The task is refused.
        "reject" => Reject(RejectAction),
        /// Set the agent's state.
        "change_agent_state" => ChangeAgentState(ChangeAgentStateAction),
        /// Look for knowledge that fits the text.
        "recall" => Recall(RecallAction),
        /// Forget events, perhaps for a summary.
        "condensation" => Condensation(CondensationAction),
        /// Ask for a condensation.
        "condensation_request" => CondensationRequest(CondensationRequestAction),
        /// Show or set the list of tasks.
        "task_tracking" => TaskTracking(TaskTrackingAction),
        /// Leave a loop in the way the user chose.
        "loop_recovery" => LoopRecovery(LoopRecoveryAction),
    }
}

/// Whether the user has let an action pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ConfirmationState {
    /// It may run.
    #[default]
    Confirmed,
    /// It may not.
    Rejected,
    /// Nobody has answered yet.
    AwaitingConfirmation,
}

/// Which implementation of reading or editing is meant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum FileImplementation {
    /// The plain file.
    #[default]
    Default,
    /// The agent's editor: numbered lines, snippets, undo.
    OhAci,
    /// A model rewrites the file from a draft.
    LlmBasedEdit,
}

/// Fields: none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NullAction {}

/// The prompt and the tools that the agent began with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SystemAction {
    /// The system prompt.
    pub content: String,
    /// The tools in OpenAI's shape.
    #[serde(default)]
    pub tools: Option<Vec<Value>>,
    /// The version of V0 that is spoken.
    #[serde(default)]
    pub openhands_version: Option<String>,
    /// The agent's name.
    #[serde(default)]
    pub agent_class: Option<String>,
}

/// Somebody says something.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MessageAction {
    /// The text.
    pub content: String,
    /// Files in the sandbox that the text speaks of.
    #[serde(default)]
    pub file_urls: Option<Vec<String>>,
    /// Images, as URLs or data URLs.
    #[serde(default)]
    pub image_urls: Option<Vec<String>>,
    /// From the agent: it does not go on without an answer.
    #[serde(default, deserialize_with = "null_is_default")]
    pub wait_for_response: bool,
    /// How dangerous it is.
    #[serde(default, deserialize_with = "SecurityRisk::or_unknown")]
    pub security_risk: SecurityRisk,
}

/// Run a command in the sandbox's shell.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunAction {
    /// Shell text, any number of lines; empty: wait for more output of what runs.
    pub command: String,
    /// The text is input for the running process; `C-c`, `C-d`, `C-z` are keys.
    #[serde(default, deserialize_with = "null_is_default")]
    pub is_input: bool,
    /// Why.
    #[serde(default, deserialize_with = "null_is_default")]
    pub thought: String,
    /// No answer before the command ends or its timeout passes, however silent it is.
    #[serde(default, deserialize_with = "null_is_default")]
    pub blocking: bool,
    /// Run in a fresh shell, not in the session.
    #[serde(default, deserialize_with = "null_is_default")]
    pub is_static: bool,
    /// Where a static command runs.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Keep it from the agent.
    #[serde(default, deserialize_with = "null_is_default")]
    pub hidden: bool,
    /// Whether the user has let it pass.
    #[serde(default, deserialize_with = "null_is_default")]
    pub confirmation_state: ConfirmationState,
    /// How dangerous it is.
    #[serde(default, deserialize_with = "SecurityRisk::or_unknown")]
    pub security_risk: SecurityRisk,
}

/// Run Python in the sandbox's kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunIpythonAction {
    /// The cell.
    pub code: String,
    /// Why.
    #[serde(default, deserialize_with = "null_is_default")]
    pub thought: String,
    /// Add the working directory and the interpreter to the answer.
    #[serde(default = "yes")]
    pub include_extra: bool,
    /// Whether the user has let it pass.
    #[serde(default, deserialize_with = "null_is_default")]
    pub confirmation_state: ConfirmationState,
    /// How dangerous it is.
    #[serde(default, deserialize_with = "SecurityRisk::or_unknown")]
    pub security_risk: SecurityRisk,
    /// Run before the first cell of a new kernel.
    #[serde(default, deserialize_with = "null_is_default")]
    pub kernel_init_code: String,
}

/// Read a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReadAction {
    /// Relative paths begin at the shell's working directory.
    pub path: String,
    /// The first line, from 0.
    #[serde(default, deserialize_with = "null_is_default")]
    pub start: i64,
    /// The line after the last; −1: to the end.
    #[serde(default = "minus_one", deserialize_with = "null_is_minus_one")]
    pub end: i64,
    /// Why.
    #[serde(default, deserialize_with = "null_is_default")]
    pub thought: String,
    /// How dangerous it is.
    #[serde(default, deserialize_with = "SecurityRisk::or_unknown")]
    pub security_risk: SecurityRisk,
    /// The plain text, or the editor's numbered view.
    #[serde(default, deserialize_with = "null_is_default")]
    pub impl_source: FileImplementation,
    /// For the editor's view: first and last line, from 1; −1: to the end.
    #[serde(default)]
    pub view_range: Option<Vec<i64>>,
}

/// Write a file, or a slice of its lines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WriteAction {
    /// Relative paths begin at the shell's working directory.
    pub path: String,
    /// The text.
    pub content: String,
    /// The first line that is replaced, from 0.
    #[serde(default, deserialize_with = "null_is_default")]
    pub start: i64,
    /// The line after the last that is replaced; −1: to the end.
    #[serde(default = "minus_one", deserialize_with = "null_is_minus_one")]
    pub end: i64,
    /// Why.
    #[serde(default, deserialize_with = "null_is_default")]
    pub thought: String,
    /// How dangerous it is.
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
    pub command: String,
    /// For `create`.
    #[serde(default)]
    pub file_text: Option<String>,
    /// For `str_replace`: must occur exactly once.
    #[serde(default)]
    pub old_str: Option<String>,
    /// For `str_replace` and `insert`.
    #[serde(default)]
    pub new_str: Option<String>,
    /// For `insert`: the line after which to insert; 0: at the beginning.
    #[serde(default)]
    pub insert_line: Option<i64>,
    /// The draft of a model-based edit.
    #[serde(default, deserialize_with = "null_is_default")]
    pub content: String,
    /// The first line of a draft's range, from 1.
    #[serde(default = "one")]
    pub start: i64,
    /// The last line of a draft's range; −1: to the end.
    #[serde(default = "minus_one", deserialize_with = "null_is_minus_one")]
    pub end: i64,
    /// Why.
    #[serde(default, deserialize_with = "null_is_default")]
    pub thought: String,
    /// How dangerous it is.
    #[serde(default, deserialize_with = "SecurityRisk::or_unknown")]
    pub security_risk: SecurityRisk,
    /// The editor, or a model with a draft.
    #[serde(default = "oh_aci")]
    pub impl_source: FileImplementation,
}

/// Open a page.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BrowseAction {
    /// The page.
    pub url: String,
    /// Why.
    #[serde(default, deserialize_with = "null_is_default")]
    pub thought: String,
    /// How dangerous it is.
    #[serde(default, deserialize_with = "SecurityRisk::or_unknown")]
    pub security_risk: SecurityRisk,
    /// Answer with the accessibility tree too.
    #[serde(default, deserialize_with = "null_is_default")]
    pub return_axtree: bool,
}

/// Act on the open page.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BrowseInteractiveAction {
    /// Calls such as `click('12')`.
    pub browser_actions: String,
    /// Why.
    #[serde(default, deserialize_with = "null_is_default")]
    pub thought: String,
    /// Said to the user.
    #[serde(default, deserialize_with = "null_is_default")]
    pub browsergym_send_msg_to_user: String,
    /// How dangerous it is.
    #[serde(default, deserialize_with = "SecurityRisk::or_unknown")]
    pub security_risk: SecurityRisk,
    /// Answer with the accessibility tree too.
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
    /// Why.
    #[serde(default, deserialize_with = "null_is_default")]
    pub thought: String,
    /// How dangerous it is.
    #[serde(default, deserialize_with = "SecurityRisk::or_unknown")]
    pub security_risk: SecurityRisk,
}

/// Hand a task to another agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DelegateAction {
    /// The agent's name.
    pub agent: String,
    /// What it is given; `task` above all.
    #[serde(default, deserialize_with = "null_is_default")]
    pub inputs: Map<String, Value>,
    /// Why.
    #[serde(default, deserialize_with = "null_is_default")]
    pub thought: String,
}

/// Say a thought aloud, change nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ThinkAction {
    /// The thought.
    #[serde(default, deserialize_with = "null_is_default")]
    pub thought: String,
}

/// The task is done.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FinishAction {
    /// What the user reads.
    #[serde(default, deserialize_with = "null_is_default")]
    pub final_thought: String,
    /// What a parent agent gets.
    #[serde(default, deserialize_with = "null_is_default")]
    pub outputs: Map<String, Value>,
    /// Why.
    #[serde(default, deserialize_with = "null_is_default")]
    pub thought: String,
}

/// The task is refused.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RejectAction {
    /// `reason` above all.
    #[serde(default, deserialize_with = "null_is_default")]
    pub outputs: Map<String, Value>,
    /// Why.
    #[serde(default, deserialize_with = "null_is_default")]
    pub thought: String,
}

/// Set the agent's state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChangeAgentStateAction {
    /// The state to go to.
    #[serde(deserialize_with = "AgentState::or_unknown")]
    pub agent_state: AgentState,
    /// Why.
    #[serde(default, deserialize_with = "null_is_default")]
    pub thought: String,
}

/// What kind of knowledge is looked for or was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecallType {
    /// Facts of the workspace, once at the beginning.
    WorkspaceContext,
    /// Knowledge whose triggers stand in the message.
    Knowledge,
}

/// Look for knowledge that fits the text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecallAction {
    /// What kind of knowledge.
    pub recall_type: RecallType,
    /// The user's message.
    #[serde(default, deserialize_with = "null_is_default")]
    pub query: String,
    /// Why.
    #[serde(default, deserialize_with = "null_is_default")]
    pub thought: String,
}

/// Forget events, perhaps for a summary. Either the list or the range is given.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CondensationAction {
    /// The forgotten events, one by one.
    #[serde(default)]
    pub forgotten_event_ids: Option<Vec<i64>>,
    /// The first of a range of forgotten events.
    #[serde(default)]
    pub forgotten_events_start_id: Option<i64>,
    /// The last of that range.
    #[serde(default)]
    pub forgotten_events_end_id: Option<i64>,
    /// What stands in their place.
    #[serde(default)]
    pub summary: Option<String>,
    /// Where in the view it stands.
    #[serde(default)]
    pub summary_offset: Option<i64>,
}

/// Ask for a condensation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CondensationRequestAction {}

/// One task of the agent's list. The model fills it as it likes: what is no text is read as its JSON.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TrackedTask {
    /// Its id.
    #[serde(default, deserialize_with = "text_or_json")]
    pub id: String,
    /// What is to be done.
    #[serde(default, deserialize_with = "text_or_json")]
    pub title: String,
    /// `todo`, `in_progress` or `done`; the model's own words otherwise.
    #[serde(default, deserialize_with = "text_or_json")]
    pub status: String,
    /// Anything worth keeping.
    #[serde(default, deserialize_with = "text_or_json")]
    pub notes: String,
}

/// Show or set the list of tasks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskTrackingAction {
    /// `view` or `plan`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub command: String,
    /// The whole list.
    #[serde(default, deserialize_with = "null_is_default")]
    pub task_list: Vec<TrackedTask>,
    /// Why.
    #[serde(default, deserialize_with = "null_is_default")]
    pub thought: String,
}

/// Leave a loop in the way the user chose.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LoopRecoveryAction {
    /// 1: from before the loop; 2: with the last user message; 3: stop.
    #[serde(default = "one")]
    pub option: i64,
}

impl ReadAction {
    /// The plain text of the whole file.
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
    /// An edit of `path` by the editor's `command`; its arguments are still to be set.
    pub fn new(path: impl Into<String>, command: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            command: command.into(),
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

    /// Whether it says only roughly what is to be done: a model still has to write it out. Then it has a `command`.
    pub fn is_draft(&self) -> bool {
        self.impl_source == FileImplementation::LlmBasedEdit && self.command.is_empty()
    }
}

impl Action {
    /// How dangerous it is, as far as anybody has judged it.
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

    /// Writes down how dangerous it is, on the kinds that have a place for it.
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

    /// Whether the user has let it pass, in the two actions in which V0 says so.
    pub fn confirmation_state(&self) -> ConfirmationState {
        match self {
            Self::Run(action) => action.confirmation_state,
            Self::RunIpython(action) => action.confirmation_state,
            _ => ConfirmationState::Confirmed,
        }
    }

    /// Notes that it waits for the user, in the two actions in which V0 says so.
    pub fn await_confirmation(&mut self) {
        match self {
            Self::Run(action) => action.confirmation_state = ConfirmationState::AwaitingConfirmation,
            Self::RunIpython(action) => action.confirmation_state = ConfirmationState::AwaitingConfirmation,
            _ => {}
        }
    }

    /// One line for people, V0's `message`.
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
            Self::BrowseInteractive(action) => format!("In the browser: {}", action.browser_actions),
            Self::CallToolMcp(action) => format!("Calling the MCP tool {}", action.name),
            Self::Delegate(action) => format!("Handing the task to {}", action.agent),
            Self::Think(action) => format!("Thinking: {}", action.thought),
            Self::Finish(action) if action.final_thought.is_empty() => "The task is done.".into(),
            Self::Finish(action) => action.final_thought.clone(),
            Self::Reject(_) => "The agent refuses the task.".into(),
            Self::ChangeAgentState(action) => format!("Agent state changed to {}", action.agent_state),
            Self::Recall(action) => format!("Looking for knowledge on: {}", action.query),
            Self::Condensation(action) => match &action.summary {
                Some(summary) => format!("Summary: {summary}"),
                None => "Older events are dropped from the agent's view.".into(),
            },
            Self::CondensationRequest(_) => "Asking for a condensation of the history.".into(),
            Self::TaskTracking(action) => format!("Task list with {} entries", action.task_list.len()),
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

//! V0's observations: the results of actions, and facts without an action.

use std::collections::BTreeMap;

use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::action::{FileImplementation, RecallType, TrackedTask};
use crate::agent_state::AgentState;
use crate::event::EventError;
use crate::kinds::{Fields, kinds};
use crate::lenient::{self, bounded_texts, integer_or_minus_one, null_is_default};
use crate::older_fields;

/// A text for the agent, and structured data.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// The text for the agent.
    pub content: String,
    /// The kind with its data: V0's `extras`.
    pub kind: ObservationKind,
}

kinds! {
    /// A kind of observation with its data.
    pub enum ObservationKind, wire key "observation", fields under "extras" {
        /// No observation; separates turns in older logs.
        "null" => Null(NullObservation),
        /// A command's output and exit code.
        "run" => Run(RunObservation),
        /// A cell's output.
        "run_ipython" => RunIpython(RunIpythonObservation),
        /// A file's text.
        "read" => Read(ReadObservation),
        /// A file was written.
        "write" => Write(WriteObservation),
        /// A file was edited.
        "edit" => Edit(EditObservation),
        /// A web page.
        "browse" => Browse(Box<BrowseObservation>),
        /// The result of a delegated task.
        "delegate" => Delegate(DelegateObservation),
        /// The action failed.
        "error" => Error(ErrorObservation),
        /// The action succeeded, without further data.
        "success" => Success(SuccessObservation),
        /// The agent's state changed.
        "agent_state_changed" => AgentStateChanged(AgentStateChangedObservation),
        /// The user rejected the action.
        "user_rejected" => UserRejected(UserRejectedObservation),
        /// The thought was logged.
        "think" => Think(ThinkObservation),
        /// Events were condensed.
        "condense" => Condense(CondenseObservation),
        /// The retrieved knowledge.
        "recall" => Recall(Box<RecallObservation>),
        /// The result of an MCP tool.
        "mcp" => Mcp(McpObservation),
        /// A file was downloaded.
        "download" => Download(DownloadObservation),
        /// The task list.
        "task_tracking" => TaskTracking(TaskTrackingObservation),
        /// The agent is in a loop.
        "loop_detection" => LoopDetection(LoopDetectionObservation),
    }
}

macro_rules! without_extras {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $($(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        pub struct $name {})*
    };
}

without_extras! {
    /// Extras: none.
    NullObservation;
    /// Extras: none.
    SuccessObservation;
    /// Extras: none.
    UserRejectedObservation;
    /// Extras: none.
    ThinkObservation;
    /// Extras: none.
    CondenseObservation;
    /// Extras: none.
    LoopDetectionObservation;
}

/// A command's output and exit code.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunObservation {
    /// The command.
    #[serde(default, deserialize_with = "null_is_default")]
    pub command: String,
    /// Its exit status and the state of the shell.
    #[serde(default, deserialize_with = "null_is_default")]
    pub metadata: CommandMetadata,
    /// Whether the agent does not see it.
    #[serde(default, deserialize_with = "null_is_default")]
    pub hidden: bool,
}

/// The start of the notice after a command that was not executed, because the previous one runs. As
/// in V0, only this notice distinguishes it from a command that runs. The command follows, so that
/// the end may be truncated.
pub const NOT_EXECUTED_NOTICE: &str = "\n[Your command \"";

impl RunObservation {
    /// Whether the command was not executed, because the previous one runs.
    pub fn is_not_executed(&self) -> bool {
        self.metadata.exit_code == -1 && self.metadata.suffix.starts_with(NOT_EXECUTED_NOTICE)
    }
}

/// The exit status of a command, and the state of its shell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommandMetadata {
    /// The exit code; −1 while the command runs.
    #[serde(default = "minus_one", deserialize_with = "integer_or_minus_one")]
    pub exit_code: i64,
    /// The process id; −1 if unknown.
    #[serde(default = "minus_one", deserialize_with = "integer_or_minus_one")]
    pub pid: i64,
    /// The shell's user.
    #[serde(default)]
    pub username: Option<String>,
    /// The sandbox's host name.
    #[serde(default)]
    pub hostname: Option<String>,
    /// The shell's working directory.
    #[serde(default)]
    pub working_dir: Option<String>,
    /// The path of the Python interpreter that the shell finds.
    #[serde(default)]
    pub py_interpreter_path: Option<String>,
    /// A notice before the content.
    #[serde(default, deserialize_with = "null_is_default")]
    pub prefix: String,
    /// A notice after the content.
    #[serde(default, deserialize_with = "null_is_default")]
    pub suffix: String,
    /// Whether the kernel's OOM killer has been active since the shell's last command. Not part of
    /// V0; omitted if false.
    #[serde(
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub out_of_memory: bool,
}

impl Default for CommandMetadata {
    fn default() -> Self {
        Self {
            exit_code: -1,
            pid: -1,
            username: None,
            hostname: None,
            working_dir: None,
            py_interpreter_path: None,
            prefix: String::new(),
            suffix: String::new(),
            out_of_memory: false,
        }
    }
}

/// A cell's output.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunIpythonObservation {
    /// The code of the cell.
    #[serde(default, deserialize_with = "null_is_default")]
    pub code: String,
    /// Images as data URLs.
    #[serde(default, deserialize_with = "bounded_texts")]
    pub image_urls: Option<Vec<String>>,
}

impl RunIpythonObservation {
    /// Returns the cell's output: an observation's content without the trailing lines on the
    /// kernel's working directory and interpreter.
    pub fn without_kernel_info(content: &str) -> &str {
        let info = content.rfind("\n[Jupyter current working directory: ");
        info.and_then(|at| content.get(..at)).unwrap_or(content)
    }
}

/// A file's text.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ReadObservation {
    /// Absolute.
    pub path: String,
    /// Plain text, or the editor's numbered lines.
    #[serde(default, deserialize_with = "null_is_default")]
    pub impl_source: FileImplementation,
}

/// A file was written.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WriteObservation {
    /// Absolute.
    pub path: String,
}

/// A file was edited.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EditObservation {
    /// Absolute.
    #[serde(default, deserialize_with = "null_is_default")]
    pub path: String,
    /// Whether the file existed before.
    #[serde(default, deserialize_with = "null_is_default")]
    pub prev_exist: bool,
    /// The content before the edit.
    #[serde(default)]
    pub old_content: Option<String>,
    /// The content after the edit.
    #[serde(default)]
    pub new_content: Option<String>,
    /// The editor, or a model that was given a draft.
    #[serde(default, deserialize_with = "null_is_default")]
    pub impl_source: FileImplementation,
    /// A unified diff without context lines.
    #[serde(default)]
    pub diff: Option<String>,
    /// V0's cache of the diff; Glovebox always writes null.
    #[serde(default, rename = "_diff_cache")]
    pub diff_cache: Option<String>,
}

/// A web page.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BrowseObservation {
    /// The URL of the page.
    #[serde(default, deserialize_with = "null_is_default")]
    pub url: String,
    /// `browse` or `browse_interactive`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub trigger_by_action: String,
    /// The screenshot as a data URL.
    #[serde(default, deserialize_with = "null_is_default")]
    pub screenshot: String,
    /// The file that the screenshot was saved to.
    #[serde(default)]
    pub screenshot_path: Option<String>,
    /// The screenshot with marked elements, as a data URL.
    #[serde(default, deserialize_with = "null_is_default")]
    pub set_of_marks: String,
    /// Whether the action failed.
    #[serde(default, deserialize_with = "null_is_default")]
    pub error: bool,
    /// Images of the goal.
    #[serde(default, deserialize_with = "null_is_default")]
    pub goal_image_urls: Vec<Value>,
    /// The URLs of all tabs.
    #[serde(default, deserialize_with = "null_is_default")]
    pub open_pages_urls: Vec<String>,
    /// The index of the active tab; −1 if it is unknown.
    #[serde(default = "minus_one", deserialize_with = "integer_or_minus_one")]
    pub active_page_index: i64,
    /// The page's DOM.
    #[serde(default, deserialize_with = "null_is_default")]
    pub dom_object: Map<String, Value>,
    /// The page's accessibility tree.
    #[serde(default, deserialize_with = "null_is_default")]
    pub axtree_object: Map<String, Value>,
    /// Properties of the elements, by id.
    #[serde(default, deserialize_with = "null_is_default")]
    pub extra_element_properties: Map<String, Value>,
    /// The last call.
    #[serde(default, deserialize_with = "null_is_default")]
    pub last_browser_action: String,
    /// The error of the last call.
    #[serde(default, deserialize_with = "null_is_default")]
    pub last_browser_action_error: String,
    /// The id of the focused element.
    #[serde(default, deserialize_with = "null_is_default")]
    pub focused_element_bid: String,
    /// Whether the tree holds only visible elements.
    #[serde(default, deserialize_with = "null_is_default")]
    pub filter_visible_only: bool,
}

/// The result of a delegated task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DelegateObservation {
    /// The outputs of the other agent.
    #[serde(default, deserialize_with = "null_is_default")]
    pub outputs: Map<String, Value>,
}

/// The action failed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ErrorObservation {
    /// A stable name for programs; empty if there is none.
    #[serde(default, deserialize_with = "null_is_default")]
    pub error_id: String,
}

/// The agent's state changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentStateChangedObservation {
    /// The new state.
    #[serde(deserialize_with = "AgentState::or_unknown")]
    pub agent_state: AgentState,
    /// The reason, human-readable.
    #[serde(default, deserialize_with = "null_is_default")]
    pub reason: String,
}

/// The retrieved knowledge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecallObservation {
    /// The kind of knowledge.
    pub recall_type: RecallType,
    /// `owner/name`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub repo_name: String,
    /// The path of the repository in the sandbox.
    #[serde(default, deserialize_with = "null_is_default")]
    pub repo_directory: String,
    /// The branch.
    #[serde(default, deserialize_with = "null_is_default")]
    pub repo_branch: String,
    /// The repository's instructions for agents.
    #[serde(default, deserialize_with = "null_is_default")]
    pub repo_instructions: String,
    /// URLs and their ports.
    #[serde(default, deserialize_with = "null_is_default")]
    pub runtime_hosts: BTreeMap<String, u16>,
    /// The instructions of the sandbox's plugins for agents.
    #[serde(default, deserialize_with = "null_is_default")]
    pub additional_agent_instructions: String,
    /// The date as `YYYY-MM-DD`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub date: String,
    /// The descriptions of the secrets, by name.
    #[serde(default, deserialize_with = "null_is_default")]
    pub custom_secrets_descriptions: BTreeMap<String, String>,
    /// The user's instructions for this conversation.
    #[serde(default, deserialize_with = "null_is_default")]
    pub conversation_instructions: String,
    /// The shell's initial working directory.
    #[serde(default, deserialize_with = "null_is_default")]
    pub working_dir: String,
    /// The triggered knowledge.
    #[serde(default, deserialize_with = "null_is_default")]
    pub microagent_knowledge: Vec<MicroagentKnowledge>,
}

/// A piece of knowledge, and the word that triggered it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MicroagentKnowledge {
    /// Its name.
    #[serde(default, deserialize_with = "null_is_default")]
    pub name: String,
    /// The word in the message.
    #[serde(default, deserialize_with = "null_is_default")]
    pub trigger: String,
    /// The text.
    #[serde(default, deserialize_with = "null_is_default")]
    pub content: String,
}

/// The result of an MCP tool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct McpObservation {
    /// The tool.
    #[serde(default, deserialize_with = "null_is_default")]
    pub name: String,
    /// The arguments of the call.
    #[serde(default, deserialize_with = "null_is_default")]
    pub arguments: Map<String, Value>,
    /// Images of the result, as data URLs. Not part of V0.
    #[serde(
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub image_urls: Vec<String>,
}

/// A file was downloaded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DownloadObservation {
    /// Its path in the sandbox.
    pub file_path: String,
}

/// The task list.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskTrackingObservation {
    /// `view` or `plan`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub command: String,
    /// The whole list.
    #[serde(default, deserialize_with = "null_is_default")]
    pub task_list: Vec<TrackedTask>,
}

impl Observation {
    /// Creates an observation without a text.
    pub fn without_content(kind: impl Into<ObservationKind>) -> Self {
        Self::new(String::new(), kind)
    }

    /// Creates an observation with a text for the agent.
    pub fn new(content: impl Into<String>, kind: impl Into<ObservationKind>) -> Self {
        Self {
            content: content.into(),
            kind: kind.into(),
        }
    }

    /// Creates the observation of a failed action: `content` is for the agent, `error_id` for
    /// programs.
    pub fn error(content: impl Into<String>, error_id: impl Into<String>) -> Self {
        Self::new(
            content,
            ErrorObservation {
                error_id: error_id.into(),
            },
        )
    }

    /// Serializes its fields, in the format of both the action server's API and the event log.
    pub(crate) fn write_into<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        map.serialize_entry("observation", self.kind.kind())?;
        map.serialize_entry("content", &self.content)?;
        map.serialize_entry("extras", &Fields(&self.kind))?;
        map.serialize_entry("message", &self.message())?;
        if let Some(success) = self.success() {
            map.serialize_entry("success", &success)?;
        }
        Ok(())
    }

    /// Returns V0's `success`: whether a command or a cell succeeded. `None` for the other kinds.
    pub fn success(&self) -> Option<bool> {
        match &self.kind {
            ObservationKind::Run(run) => Some(run.metadata.exit_code == 0),
            ObservationKind::RunIpython(_) => Some(true),
            _ => None,
        }
    }

    /// Returns a human-readable line, V0's `message`.
    pub fn message(&self) -> String {
        match &self.kind {
            ObservationKind::Null(_) => "No observation".into(),
            ObservationKind::Run(run) => {
                format!(
                    "Command `{}` executed with exit code {}.",
                    run.command, run.metadata.exit_code
                )
            }
            ObservationKind::RunIpython(_) => "The cell was executed.".into(),
            ObservationKind::Read(read) => format!("Read the file {}.", read.path),
            ObservationKind::Write(write) => format!("Wrote the file {}.", write.path),
            ObservationKind::Edit(edit) => format!("Edited the file {}.", edit.path),
            ObservationKind::Browse(browse) => format!("Visited {}", browse.url),
            ObservationKind::Recall(_) => "Knowledge was added.".into(),
            ObservationKind::Download(download) => format!("Downloaded to {}", download.file_path),
            ObservationKind::AgentStateChanged(_)
            | ObservationKind::Delegate(_)
            | ObservationKind::LoopDetection(_) => String::new(),
            ObservationKind::Error(_)
            | ObservationKind::Success(_)
            | ObservationKind::UserRejected(_)
            | ObservationKind::Think(_)
            | ObservationKind::Condense(_)
            | ObservationKind::Mcp(_)
            | ObservationKind::TaskTracking(_) => self.content.clone(),
        }
    }

    /// Reads V0's `{observation, content, extras}`.
    pub(crate) fn from_map(map: &Map<String, Value>, kind: &str) -> Result<Self, EventError> {
        let content = match map.get("content") {
            None | Some(Value::Null) => String::new(),
            Some(content) => lenient::read("content", content)?,
        };
        let no_extras = Value::Object(Map::new());
        let extras = map.get("extras").unwrap_or(&no_extras);
        let kind = match kind {
            "run" => ObservationKind::from_fields(kind, &older_fields::current_run_extras(extras))?,
            kind => ObservationKind::from_fields(kind, extras)?,
        };
        Ok(Self { content, kind })
    }
}

/// Serializes as V0's `{observation, content, extras, message, success?}`, without the id and
/// timestamp that an event of a log has.
impl Serialize for Observation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.write_into(&mut map)?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for Observation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let map = Map::deserialize(deserializer)?;
        let kind = match map.get("observation").and_then(Value::as_str) {
            Some(kind) => kind,
            None => return Err(serde::de::Error::missing_field("observation")),
        };
        Self::from_map(&map, kind).map_err(serde::de::Error::custom)
    }
}

impl From<BrowseObservation> for ObservationKind {
    fn from(browse: BrowseObservation) -> Self {
        Self::Browse(Box::new(browse))
    }
}

impl From<RecallObservation> for ObservationKind {
    fn from(recall: RecallObservation) -> Self {
        Self::Recall(Box::new(recall))
    }
}

fn minus_one() -> i64 {
    -1
}

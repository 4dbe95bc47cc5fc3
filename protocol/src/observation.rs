//! V0's observations: what came of an action, or happened by itself.

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

/// A text for the agent, and facts beside it.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// What the agent reads.
    pub content: String,
    /// The kind and its facts: V0's `extras`.
    pub kind: ObservationKind,
}

kinds! {
    /// Everything that can be observed.
    pub enum ObservationKind, wire key "observation", fields under "extras" {
        /// Nothing; older logs mark turns with it.
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
        /// A page.
        "browse" => Browse(Box<BrowseObservation>),
        /// What another agent made of a task.
        "delegate" => Delegate(DelegateObservation),
        /// The action failed.
        "error" => Error(ErrorObservation),
        /// The action succeeded, and there is no more to say.
        "success" => Success(SuccessObservation),
        /// The agent's state changed.
        "agent_state_changed" => AgentStateChanged(AgentStateChangedObservation),
        /// The user refused the action.
        "user_rejected" => UserRejected(UserRejectedObservation),
        /// The thought was heard.
        "think" => Think(ThinkObservation),
        /// Events were condensed.
        "condense" => Condense(CondenseObservation),
        /// Knowledge that was found.
        "recall" => Recall(Box<RecallObservation>),
        /// An MCP tool's answer.
        "mcp" => Mcp(McpObservation),
        /// A file was downloaded.
        "download" => Download(DownloadObservation),
        /// The list of tasks.
        "task_tracking" => TaskTracking(TaskTrackingObservation),
        /// The agent goes in circles.
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
    /// What was run.
    #[serde(default, deserialize_with = "null_is_default")]
    pub command: String,
    /// How it ended, and where the shell is now.
    #[serde(default, deserialize_with = "null_is_default")]
    pub metadata: CommandMetadata,
    /// Kept from the agent.
    #[serde(default, deserialize_with = "null_is_default")]
    pub hidden: bool,
}

/// How a command ended, and where the shell is now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommandMetadata {
    /// −1: it has not ended.
    #[serde(default = "minus_one", deserialize_with = "integer_or_minus_one")]
    pub exit_code: i64,
    /// −1: unknown.
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
    /// The Python that the shell would start.
    #[serde(default)]
    pub py_interpreter_path: Option<String>,
    /// Said before the content.
    #[serde(default, deserialize_with = "null_is_default")]
    pub prefix: String,
    /// Said after the content.
    #[serde(default, deserialize_with = "null_is_default")]
    pub suffix: String,
    /// Ours, and only there when it is so: since the shell's last command the kernel has killed for lack of memory.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "std::ops::Not::not")]
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
    /// The cell.
    #[serde(default, deserialize_with = "null_is_default")]
    pub code: String,
    /// Images as data URLs.
    #[serde(default, deserialize_with = "bounded_texts")]
    pub image_urls: Option<Vec<String>>,
}

impl RunIpythonObservation {
    /// Of an observation's content what the cell made of it: without where the kernel is and which Python it has, which
    /// stand below.
    pub fn without_kernel_info(content: &str) -> &str {
        let place = content.rfind("\n[Jupyter current working directory: ");
        place.and_then(|at| content.get(..at)).unwrap_or(content)
    }
}

/// A file's text.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ReadObservation {
    /// Absolute.
    pub path: String,
    /// Plain text, or the editor's numbered view.
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
    /// The file was there before.
    #[serde(default, deserialize_with = "null_is_default")]
    pub prev_exist: bool,
    /// The text before.
    #[serde(default)]
    pub old_content: Option<String>,
    /// The text after.
    #[serde(default)]
    pub new_content: Option<String>,
    /// The editor, or a model with a draft.
    #[serde(default, deserialize_with = "null_is_default")]
    pub impl_source: FileImplementation,
    /// Unified, without context.
    #[serde(default)]
    pub diff: Option<String>,
    /// V0 writes its cache; always null from us.
    #[serde(default, rename = "_diff_cache")]
    pub diff_cache: Option<String>,
}

/// A page.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BrowseObservation {
    /// Where the page was found.
    #[serde(default, deserialize_with = "null_is_default")]
    pub url: String,
    /// `browse` or `browse_interactive`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub trigger_by_action: String,
    /// A data URL.
    #[serde(default, deserialize_with = "null_is_default")]
    pub screenshot: String,
    /// Where the screenshot was saved.
    #[serde(default)]
    pub screenshot_path: Option<String>,
    /// The screenshot with marks, a data URL.
    #[serde(default, deserialize_with = "null_is_default")]
    pub set_of_marks: String,
    /// The action failed.
    #[serde(default, deserialize_with = "null_is_default")]
    pub error: bool,
    /// Images of the goal.
    #[serde(default, deserialize_with = "null_is_default")]
    pub goal_image_urls: Vec<Value>,
    /// One entry a tab.
    #[serde(default, deserialize_with = "null_is_default")]
    pub open_pages_urls: Vec<String>,
    /// The tab in front.
    #[serde(default, deserialize_with = "null_is_default")]
    pub active_page_index: i64,
    /// The page's DOM.
    #[serde(default, deserialize_with = "null_is_default")]
    pub dom_object: Map<String, Value>,
    /// The page's accessibility tree.
    #[serde(default, deserialize_with = "null_is_default")]
    pub axtree_object: Map<String, Value>,
    /// Facts of the elements, by id.
    #[serde(default, deserialize_with = "null_is_default")]
    pub extra_element_properties: Map<String, Value>,
    /// The last call.
    #[serde(default, deserialize_with = "null_is_default")]
    pub last_browser_action: String,
    /// What was wrong with it.
    #[serde(default, deserialize_with = "null_is_default")]
    pub last_browser_action_error: String,
    /// The element with the focus.
    #[serde(default, deserialize_with = "null_is_default")]
    pub focused_element_bid: String,
    /// The tree holds only what can be seen.
    #[serde(default, deserialize_with = "null_is_default")]
    pub filter_visible_only: bool,
}

/// What another agent made of a task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DelegateObservation {
    /// What it hands back.
    #[serde(default, deserialize_with = "null_is_default")]
    pub outputs: Map<String, Value>,
}

/// The action failed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ErrorObservation {
    /// A name that programs may branch on; empty when there is none.
    #[serde(default, deserialize_with = "null_is_default")]
    pub error_id: String,
}

/// The agent's state changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentStateChangedObservation {
    /// The new state.
    #[serde(deserialize_with = "AgentState::or_unknown")]
    pub agent_state: AgentState,
    /// Why, for people.
    #[serde(default, deserialize_with = "null_is_default")]
    pub reason: String,
}

/// Knowledge that was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecallObservation {
    /// What kind of knowledge.
    pub recall_type: RecallType,
    /// `owner/name`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub repo_name: String,
    /// Where the repository lies in the sandbox.
    #[serde(default, deserialize_with = "null_is_default")]
    pub repo_directory: String,
    /// The branch.
    #[serde(default, deserialize_with = "null_is_default")]
    pub repo_branch: String,
    /// What the repository tells agents.
    #[serde(default, deserialize_with = "null_is_default")]
    pub repo_instructions: String,
    /// URLs and their ports.
    #[serde(default, deserialize_with = "null_is_default")]
    pub runtime_hosts: BTreeMap<String, u16>,
    /// What the sandbox's plugins tell agents.
    #[serde(default, deserialize_with = "null_is_default")]
    pub additional_agent_instructions: String,
    /// `YYYY-MM-DD`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub date: String,
    /// Names of secrets and what they are for.
    #[serde(default, deserialize_with = "null_is_default")]
    pub custom_secrets_descriptions: BTreeMap<String, String>,
    /// What this conversation's user tells the agent.
    #[serde(default, deserialize_with = "null_is_default")]
    pub conversation_instructions: String,
    /// Where the shell begins.
    #[serde(default, deserialize_with = "null_is_default")]
    pub working_dir: String,
    /// What was triggered.
    #[serde(default, deserialize_with = "null_is_default")]
    pub microagent_knowledge: Vec<MicroagentKnowledge>,
}

/// A piece of knowledge and what triggered it.
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

/// An MCP tool's answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct McpObservation {
    /// The tool.
    #[serde(default, deserialize_with = "null_is_default")]
    pub name: String,
    /// What it was called with.
    #[serde(default, deserialize_with = "null_is_default")]
    pub arguments: Map<String, Value>,
    /// Images of the answer, as data URLs. Ours: V0 keeps none.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub image_urls: Vec<String>,
}

/// A file was downloaded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DownloadObservation {
    /// Where it lies in the sandbox.
    pub file_path: String,
}

/// The list of tasks.
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
    /// An observation without a text.
    pub fn without_content(kind: impl Into<ObservationKind>) -> Self {
        Self::new(String::new(), kind)
    }

    /// An observation with a text for the agent.
    pub fn new(content: impl Into<String>, kind: impl Into<ObservationKind>) -> Self {
        Self { content: content.into(), kind: kind.into() }
    }

    /// The action failed: `content` for the agent, `error_id` for programs.
    pub fn error(content: impl Into<String>, error_id: impl Into<String>) -> Self {
        Self::new(content, ErrorObservation { error_id: error_id.into() })
    }

    /// Writes its fields, as the action server answers and a log has them.
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

    /// V0's `success`: whether a command or a cell went well; nothing for the other kinds.
    pub fn success(&self) -> Option<bool> {
        match &self.kind {
            ObservationKind::Run(run) => Some(run.metadata.exit_code == 0),
            ObservationKind::RunIpython(_) => Some(true),
            _ => None,
        }
    }

    /// One line for people, V0's `message`.
    pub fn message(&self) -> String {
        match &self.kind {
            ObservationKind::Null(_) => "No observation".into(),
            ObservationKind::Run(run) => {
                format!("Command `{}` executed with exit code {}.", run.command, run.metadata.exit_code)
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

/// As the action server answers: V0's `{observation, content, extras, message, success?}`, without the id and time that a
/// log gives it.
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

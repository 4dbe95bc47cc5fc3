//! What can be sent to a sandbox. Not every action can: that is decided by type, before anything is sent.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::action::{Action, EditAction, ReadAction, RunAction, WriteAction};
use crate::ids::SessionName;
use crate::lenient;

/// An action that a sandbox performs.
#[derive(Debug, Clone, PartialEq)]
pub enum SandboxAction {
    /// Run a command in the shell.
    Run(RunAction),
    /// Read a file.
    Read(ReadAction),
    /// Write a file.
    Write(WriteAction),
    /// Edit a file.
    Edit(EditAction),
}

/// The action is not one that a sandbox performs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a sandbox does not perform the action `{kind}`")]
pub struct NotForASandbox {
    /// The action's name on the wire.
    pub kind: &'static str,
}

impl TryFrom<Action> for SandboxAction {
    type Error = NotForASandbox;

    fn try_from(action: Action) -> Result<Self, NotForASandbox> {
        match action {
            Action::Run(action) => Ok(Self::Run(action)),
            Action::Read(action) => Ok(Self::Read(action)),
            Action::Write(action) => Ok(Self::Write(action)),
            Action::Edit(action) => Ok(Self::Edit(action)),
            other => Err(NotForASandbox { kind: other.kind() }),
        }
    }
}

impl From<SandboxAction> for Action {
    fn from(action: SandboxAction) -> Self {
        match action {
            SandboxAction::Run(action) => Self::Run(action),
            SandboxAction::Read(action) => Self::Read(action),
            SandboxAction::Write(action) => Self::Write(action),
            SandboxAction::Edit(action) => Self::Edit(action),
        }
    }
}

/// An action, how long it may take, and where: `{"action": "run", "args": {…}, "timeout": 120.0, "session": "default"}`, as
/// in V0's events but for the session, which they do not have.
#[derive(Debug, Clone, PartialEq)]
pub struct ActionRequest {
    /// What to do.
    pub action: SandboxAction,
    /// In seconds. When it passes the answer comes, what runs goes on.
    pub timeout: Option<f64>,
    /// The shell that it is for: commands run in it, relative paths begin where it is. It is begun when first named.
    pub session: SessionName,
}

impl ActionRequest {
    /// An action in the default session.
    pub fn new(action: SandboxAction, timeout: Option<f64>) -> Self {
        Self { action, timeout, session: SessionName::default() }
    }
}

impl Serialize for ActionRequest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let action = Action::from(self.action.clone());
        let mut map = Map::new();
        map.insert("action".into(), action.kind().into());
        map.insert("args".into(), action.to_fields().map_err(serde::ser::Error::custom)?);
        if let Some(timeout) = self.timeout {
            map.insert("timeout".into(), timeout.into());
        }
        if self.session != SessionName::default() {
            map.insert("session".into(), self.session.as_str().into());
        }
        map.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ActionRequest {
    /// Reads V0's action events too: what else they hold is passed over.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let map = Map::deserialize(deserializer)?;
        let kind = match map.get("action") {
            Some(Value::String(kind)) => kind,
            Some(_) => return Err(D::Error::custom("field `action`: expected a string")),
            None => return Err(D::Error::missing_field("action")),
        };
        let no_args = Value::Object(Map::new());
        let action =
            Action::from_fields(kind, map.get("args").unwrap_or(&no_args)).map_err(D::Error::custom)?;
        let timeout = match map.get("timeout") {
            Some(timeout) => lenient::read("timeout", timeout).map_err(D::Error::custom)?,
            None => None,
        };
        let session = match map.get("session") {
            Some(session) => lenient::read("session", session).map_err(D::Error::custom)?,
            None => SessionName::default(),
        };
        Ok(Self { action: action.try_into().map_err(D::Error::custom)?, timeout, session })
    }
}

//! The actions that a sandbox performs. The type excludes all other actions before a request is
//! sent.

use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::action::{
    Action, BrowseAction, BrowseInteractiveAction, EditAction, ReadAction, RunAction,
    RunIpythonAction, WriteAction,
};
use crate::event::EventError;
use crate::ids::SessionName;
use crate::lenient;
use crate::sandbox_api::CommandEnvironment;

/// An action that is performed in a sandbox, by its action server or by the host.
#[derive(Debug, Clone, PartialEq)]
pub enum SandboxAction {
    /// Run a shell command.
    Run(RunAction),
    /// Run Python code in the Jupyter kernel.
    RunIpython(RunIpythonAction),
    /// Read a file.
    Read(ReadAction),
    /// Write a file.
    Write(WriteAction),
    /// Edit a file.
    Edit(EditAction),
    /// Open a web page. Performed by the host, which drives a browser in the sandbox; no action
    /// server accepts it.
    Browse(BrowseAction),
    /// Interact with the open web page. Performed by the host, like `Browse`.
    BrowseInteractive(BrowseInteractiveAction),
}

/// The error of an action that a sandbox does not perform.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a sandbox does not perform the action `{kind}`")]
pub struct NotASandboxAction {
    /// The wire name of the action.
    pub kind: &'static str,
}

impl SandboxAction {
    /// Returns the wire name of the action.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Run(_) => "run",
            Self::RunIpython(_) => "run_ipython",
            Self::Read(_) => "read",
            Self::Write(_) => "write",
            Self::Edit(_) => "edit",
            Self::Browse(_) => "browse",
            Self::BrowseInteractive(_) => "browse_interactive",
        }
    }

    /// Does not go through [`Action`]: the (de)serializers of all of V0's actions would add 2.5 %
    /// to the action server.
    fn from_fields<E: serde::de::Error>(
        kind: &str,
        fields: &Map<String, Value>,
    ) -> Result<Self, E> {
        match kind {
            "run" => lenient::read("args", fields)
                .map(Self::Run)
                .map_err(E::custom),
            "run_ipython" => lenient::read("args", fields)
                .map(Self::RunIpython)
                .map_err(E::custom),
            "read" => lenient::read("args", fields)
                .map(Self::Read)
                .map_err(E::custom),
            "write" => lenient::read("args", fields)
                .map(Self::Write)
                .map_err(E::custom),
            "edit" => lenient::read("args", fields)
                .map(Self::Edit)
                .map_err(E::custom),
            other => match Action::KINDS.iter().find(|known| **known == other) {
                Some(kind) => Err(E::custom(NotASandboxAction { kind })),
                None => Err(E::custom(EventError::UnknownKind {
                    key: "action",
                    kind: other.to_owned(),
                })),
            },
        }
    }
}

impl TryFrom<Action> for SandboxAction {
    type Error = NotASandboxAction;

    fn try_from(action: Action) -> Result<Self, NotASandboxAction> {
        match action {
            Action::Run(action) => Ok(Self::Run(action)),
            Action::RunIpython(action) => Ok(Self::RunIpython(action)),
            Action::Read(action) => Ok(Self::Read(action)),
            Action::Write(action) => Ok(Self::Write(action)),
            Action::Edit(action) => Ok(Self::Edit(action)),
            Action::Browse(action) => Ok(Self::Browse(action)),
            Action::BrowseInteractive(action) => Ok(Self::BrowseInteractive(action)),
            other => Err(NotASandboxAction { kind: other.kind() }),
        }
    }
}

impl From<SandboxAction> for Action {
    fn from(action: SandboxAction) -> Self {
        match action {
            SandboxAction::Run(action) => Self::Run(action),
            SandboxAction::RunIpython(action) => Self::RunIpython(action),
            SandboxAction::Read(action) => Self::Read(action),
            SandboxAction::Write(action) => Self::Write(action),
            SandboxAction::Edit(action) => Self::Edit(action),
            SandboxAction::Browse(action) => Self::Browse(action),
            SandboxAction::BrowseInteractive(action) => Self::BrowseInteractive(action),
        }
    }
}

/// An action with its timeout and session: `{"action": "run", "args": {…}, "timeout": 120.0,
/// "session": "default"}`. The format of V0's events, extended by `session` and `environment`.
#[derive(Debug, Clone, PartialEq)]
pub struct ActionRequest {
    /// The action.
    pub action: SandboxAction,
    /// In seconds. After it the server responds, and the command continues to run.
    pub timeout: Option<f64>,
    /// The shell session that runs commands and resolves relative paths. The first request that
    /// names it starts it.
    pub session: SessionName,
    /// Additional environment variables for this command only: `{"NAME": "value"}`. Not compared
    /// when a request attaches to an existing id. Applies only to new commands and cells.
    pub environment: CommandEnvironment,
}

impl ActionRequest {
    /// Creates a request for the default session, without additional environment variables.
    pub fn new(action: SandboxAction, timeout: Option<f64>) -> Self {
        let environment = CommandEnvironment::default();
        Self {
            action,
            timeout,
            session: SessionName::default(),
            environment,
        }
    }
}

impl Serialize for ActionRequest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("action", self.action.kind())?;
        match &self.action {
            SandboxAction::Run(action) => map.serialize_entry("args", action)?,
            SandboxAction::RunIpython(action) => map.serialize_entry("args", action)?,
            SandboxAction::Read(action) => map.serialize_entry("args", action)?,
            SandboxAction::Write(action) => map.serialize_entry("args", action)?,
            SandboxAction::Edit(action) => map.serialize_entry("args", action)?,
            SandboxAction::Browse(action) => map.serialize_entry("args", action)?,
            SandboxAction::BrowseInteractive(action) => map.serialize_entry("args", action)?,
        }
        if let Some(timeout) = self.timeout {
            map.serialize_entry("timeout", &timeout)?;
        }
        if self.session != SessionName::default() {
            map.serialize_entry("session", &self.session)?;
        }
        if self.environment != CommandEnvironment::default() {
            map.serialize_entry("environment", &self.environment)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for ActionRequest {
    /// Accepts V0's action events too: their other fields are ignored.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let map = Map::deserialize(deserializer)?;
        let kind = match map.get("action") {
            Some(Value::String(kind)) => kind,
            Some(_) => return Err(D::Error::custom("field `action`: expected a string")),
            None => return Err(D::Error::missing_field("action")),
        };
        let no_args = Map::new();
        let args = match map.get("args") {
            Some(Value::Object(args)) => args,
            Some(_) => return Err(D::Error::custom("field `args`: expected an object")),
            None => &no_args,
        };
        let action = SandboxAction::from_fields(kind, args)?;
        let timeout = match map.get("timeout") {
            Some(timeout) => lenient::read("timeout", timeout).map_err(D::Error::custom)?,
            None => None,
        };
        let session = match map.get("session") {
            Some(session) => lenient::read("session", session).map_err(D::Error::custom)?,
            None => SessionName::default(),
        };
        let environment = match map.get("environment") {
            Some(environment) => CommandEnvironment::from_json(environment).ok_or_else(|| {
                D::Error::custom("field `environment`: expected an object of names to strings")
            })?,
            None => CommandEnvironment::default(),
        };
        Ok(Self {
            action,
            timeout,
            session,
            environment,
        })
    }
}

#[cfg(feature = "openapi")]
mod schema {
    //! [`ActionRequest`] has hand-written serde, so its schema is too.

    use utoipa::openapi::schema::{OneOfBuilder, SchemaType, Type};
    use utoipa::openapi::{ObjectBuilder, Ref, RefOr, Schema};
    use utoipa::{PartialSchema, ToSchema};

    use super::ActionRequest;
    use crate::action::{EditAction, ReadAction, RunAction, RunIpythonAction, WriteAction};
    use crate::ids::SessionName;

    /// The schema of a request for one kind of action.
    fn action_schema<T: ToSchema>(kind: &str) -> Schema {
        let seconds = ObjectBuilder::new()
            .schema_type(SchemaType::new(Type::Number))
            .minimum(Some(0))
            .description(Some(
                "In seconds. After it the server responds, and the command continues to run.",
            ));
        let name = ObjectBuilder::new()
            .schema_type(SchemaType::new(Type::String))
            .enum_values(Some([kind]));
        let values = ObjectBuilder::new().schema_type(SchemaType::new(Type::String));
        let environment = ObjectBuilder::new().additional_properties(Some(values)).description(Some(
            "Additional environment variables for this command only: an object of variable names to values.",
        ));
        ObjectBuilder::new()
            .property("action", name)
            .property("args", Ref::from_schema_name(T::name()))
            .property("timeout", seconds)
            .property("session", Ref::from_schema_name(SessionName::name()))
            .property("environment", environment)
            .required("action")
            .required("args")
            .into()
    }

    impl PartialSchema for ActionRequest {
        fn schema() -> RefOr<Schema> {
            let any = OneOfBuilder::new()
                .item(action_schema::<RunAction>("run"))
                .item(action_schema::<RunIpythonAction>("run_ipython"))
                .item(action_schema::<ReadAction>("read"))
                .item(action_schema::<WriteAction>("write"))
                .item(action_schema::<EditAction>("edit"))
                .description(Some("An action with its timeout and shell session."));
            RefOr::T(any.into())
        }
    }

    impl ToSchema for ActionRequest {
        fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
            fn add<T: ToSchema>(schemas: &mut Vec<(String, RefOr<Schema>)>) {
                schemas.push((T::name().into_owned(), T::schema()));
                T::schemas(schemas);
            }
            add::<RunAction>(schemas);
            add::<RunIpythonAction>(schemas);
            add::<ReadAction>(schemas);
            add::<WriteAction>(schemas);
            add::<EditAction>(schemas);
            add::<SessionName>(schemas);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn command_environment_round_trips_and_is_not_printed() {
        let plain = json!({"action": "run", "args": {"command": "a"}});
        let with_environment = json!({"action": "run", "args": {"command": "a"}, "environment": {"A": "it's\ns3cret"}});
        for (value, count) in [(plain, 0), (with_environment, 1)] {
            let request: ActionRequest = serde_json::from_value(value.clone()).unwrap();
            assert_eq!(request.environment.0.len(), count);
            assert!(!format!("{request:?}").contains("s3cret"), "{request:?}");
            let written = serde_json::to_value(&request).unwrap();
            assert_eq!(written.get("environment"), value.get("environment"));
            assert_eq!(
                serde_json::from_value::<ActionRequest>(written).unwrap(),
                request
            );
        }
    }
}

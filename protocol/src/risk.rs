//! The security risk of an action, as its model or an analyzer assesses it.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// V0's security risk: −1, 0, 1 or 2 on the wire.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(try_from = "i64", into = "i64")]
pub enum SecurityRisk {
    /// Not assessed.
    #[default]
    Unknown,
    /// Reads, or changes only the sandbox.
    Low,
    /// Changes the user's files within the workspace.
    Medium,
    /// May leak or destroy data.
    High,
}

#[cfg(feature = "openapi")]
impl utoipa::PartialSchema for SecurityRisk {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
        let number = ObjectBuilder::new().schema_type(SchemaType::new(Type::Integer));
        let described = number.description(Some("Unknown, low, medium or high."));
        utoipa::openapi::RefOr::T(described.minimum(Some(-1)).maximum(Some(2)).into())
    }
}

#[cfg(feature = "openapi")]
impl utoipa::ToSchema for SecurityRisk {}

impl SecurityRisk {
    /// For `deserialize_with` in events: like V0, reads an unknown risk as [`Self::Unknown`].
    pub(crate) fn or_unknown<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = Value::deserialize(deserializer)?
            .as_f64()
            .filter(|number| number.fract() == 0.0);
        Ok(number
            .and_then(|number| Self::try_from(number as i64).ok())
            .unwrap_or_default())
    }
}

impl From<SecurityRisk> for i64 {
    fn from(risk: SecurityRisk) -> Self {
        match risk {
            SecurityRisk::Unknown => -1,
            SecurityRisk::Low => 0,
            SecurityRisk::Medium => 1,
            SecurityRisk::High => 2,
        }
    }
}

/// Which actions need the user's confirmation before they run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum ConfirmationPolicy {
    /// No action.
    #[default]
    Never,
    /// Actions of at least this risk, and those of unknown risk.
    Risky {
        /// The lowest risk that needs confirmation.
        from: SecurityRisk,
    },
    /// Every action.
    Always,
}

impl ConfirmationPolicy {
    /// Whether no action needs confirmation.
    pub fn is_never(&self) -> bool {
        *self == Self::Never
    }

    /// Whether an action of this risk needs confirmation.
    pub fn requires_confirmation(self, risk: SecurityRisk) -> bool {
        match self {
            Self::Never => false,
            Self::Risky { from } => risk == SecurityRisk::Unknown || risk >= from,
            Self::Always => true,
        }
    }
}

impl TryFrom<i64> for SecurityRisk {
    type Error = String;

    fn try_from(number: i64) -> Result<Self, String> {
        match number {
            -1 => Ok(Self::Unknown),
            0 => Ok(Self::Low),
            1 => Ok(Self::Medium),
            2 => Ok(Self::High),
            other => Err(format!("a security risk is -1, 0, 1 or 2, not {other}")),
        }
    }
}

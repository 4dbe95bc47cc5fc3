//! What an action may break, as its model or an analyzer judges it.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// V0's security risk: −1, 0, 1 or 2 on the wire.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "i64")]
pub enum SecurityRisk {
    /// Nobody has judged it.
    #[default]
    Unknown,
    /// Reads, or changes only the sandbox.
    Low,
    /// Changes what the user cares about, within the workspace.
    Medium,
    /// May leak or destroy.
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
    /// For `deserialize_with`: the risk of an event, where V0 takes one that it does not know as [`Self::Unknown`].
    pub(crate) fn or_unknown<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = Value::deserialize(deserializer)?.as_f64().filter(|number| number.fract() == 0.0);
        Ok(number.and_then(|number| Self::try_from(number as i64).ok()).unwrap_or_default())
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

/// Which actions wait for the user's word before they are performed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum ConfirmationPolicy {
    /// None.
    #[default]
    Never,
    /// Those of this risk or a higher one, and those whose risk nobody knows.
    Risky {
        /// The lowest risk that is asked about.
        from: SecurityRisk,
    },
    /// All.
    Always,
}

impl ConfirmationPolicy {
    /// Whether nothing waits.
    pub fn is_never(&self) -> bool {
        *self == Self::Never
    }

    /// Whether an action of this risk waits.
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

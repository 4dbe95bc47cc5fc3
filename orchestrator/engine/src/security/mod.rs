//! The security risk of actions, and whether they need the user's confirmation.
//!
//! An analyzer assesses the risk, a policy decides. Neither isolates anything: the sandbox does. An
//! action that cannot be assessed has an unknown risk, which needs confirmation.

mod policy;
mod rules;
mod shell;

use std::time::Duration;

use async_trait::async_trait;
use protocol::{Action, SecurityRisk};

use crate::view::View;

pub use policy::{approval, covers, needs_confirmation};
pub use rules::{PolicyError, SecurityRules};

/// Maximum time that the assessment of one action takes. The risk of an action that takes longer is
/// unknown.
pub const MAX_ASSESSMENT_TIME: Duration = Duration::from_secs(30);

/// Assesses actions before they run.
#[async_trait]
pub trait SecurityAnalyzer: Send + Sync {
    /// Returns the risk of an action, with the reason. `history` is the view on which the agent
    /// decided on it. The caller applies a timeout.
    ///
    /// # Errors
    /// The assessment failed. The risk of the action is unknown then.
    async fn assess(
        &self,
        action: &Action,
        history: &View,
    ) -> Result<RiskAssessment, AnalyzerError>;

    /// Whether the model has to declare the risk of each tool call.
    fn requires_declared_risk(&self) -> bool {
        false
    }
}

/// An assessed risk, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RiskAssessment {
    /// The risk.
    pub risk: SecurityRisk,
    /// The reason in a sentence; may be empty. Untrusted text.
    pub reason: String,
}

impl From<SecurityRisk> for RiskAssessment {
    fn from(risk: SecurityRisk) -> Self {
        Self {
            risk,
            reason: String::new(),
        }
    }
}

/// Orders risks: the more policies require confirmation of a risk, the higher it is.
fn severity(risk: SecurityRisk) -> u8 {
    match risk {
        SecurityRisk::Low => 0,
        SecurityRisk::Medium => 1,
        SecurityRisk::Unknown => 2,
        SecurityRisk::High => 3,
    }
}

/// An error of an analyzer. Callers do not retry, but ask the user.
#[derive(Debug, thiserror::Error)]
#[error("the security analyzer {failure}")]
pub struct AnalyzerError {
    /// The failure, such as `cannot be reached`.
    pub failure: String,
    /// The cause.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Trusts the risk that the model declares.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeclaredRisk;

#[async_trait]
impl SecurityAnalyzer for DeclaredRisk {
    async fn assess(
        &self,
        action: &Action,
        _history: &View,
    ) -> Result<RiskAssessment, AnalyzerError> {
        Ok(action.security_risk().into())
    }

    fn requires_declared_risk(&self) -> bool {
        true
    }
}

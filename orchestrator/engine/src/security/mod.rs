//! What an action may break, and whether the user is asked before it.
//!
//! An analyzer judges, a policy decides. Neither keeps anything in: that is the sandbox's part. What nobody can judge is
//! unknown, and asks.

mod policy;
mod rules;
mod shell;

use std::time::Duration;

use async_trait::async_trait;
use protocol::{Action, SecurityRisk};

use crate::view::View;

pub use policy::{approval, asks, covers};
pub use rules::{PolicyError, SecurityRules};

/// Maximum time that the assessment of one action takes. The risk of an action that takes longer is unknown.
pub const MAX_ASSESSMENT_TIME: Duration = Duration::from_secs(30);

/// Judges actions before they are performed.
#[async_trait]
pub trait SecurityAnalyzer: Send + Sync {
    /// The risk of an action, and why. `history` is what the agent was shown before it decided on it. The caller bounds the
    /// time that this may take.
    ///
    /// # Errors
    /// When it cannot judge now; the action's risk is unknown then.
    async fn assess(&self, action: &Action, history: &View) -> Result<RiskAssessment, AnalyzerError>;

    /// Whether the agent's tools are to ask the model for the risk of each call.
    fn requires_declared_risk(&self) -> bool {
        false
    }
}

/// A risk, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RiskAssessment {
    /// The risk.
    pub risk: SecurityRisk,
    /// The reason in a sentence; empty if there is none. May come from outside.
    pub reason: String,
}

impl From<SecurityRisk> for RiskAssessment {
    fn from(risk: SecurityRisk) -> Self {
        Self { risk, reason: String::new() }
    }
}

/// Orders risks: a risk that more policies ask about is worse.
fn severity(risk: SecurityRisk) -> u8 {
    match risk {
        SecurityRisk::Low => 0,
        SecurityRisk::Medium => 1,
        SecurityRisk::Unknown => 2,
        SecurityRisk::High => 3,
    }
}

/// Why an analyzer could not judge. Not worth a retry before the user is asked.
#[derive(Debug, thiserror::Error)]
#[error("the security analyzer {doing}")]
pub struct AnalyzerError {
    /// What went wrong: `cannot be reached`, …
    pub doing: String,
    /// Why.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Trusts what the model says of its own actions.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeclaredRisk;

#[async_trait]
impl SecurityAnalyzer for DeclaredRisk {
    async fn assess(&self, action: &Action, _history: &View) -> Result<RiskAssessment, AnalyzerError> {
        Ok(action.security_risk().into())
    }

    fn requires_declared_risk(&self) -> bool {
        true
    }
}

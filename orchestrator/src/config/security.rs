//! `[security]`: the security analyzer and the confirmation policy.

use std::path::Path;

use protocol::risk::{ConfirmationPolicy, SecurityRisk};
use secrecy::SecretString;

use super::host::variable;
use super::policy_file::{self, PolicyFile};
use super::settings::Settings;
use crate::trust::TrustStore;

/// The security analyzer and the confirmation policy, as configured.
#[derive(Debug, Clone)]
pub(crate) struct SecuritySettings {
    /// V0's switch, which applies if there is no `policy`.
    pub confirmation_mode: bool,
    /// Actions that need the user's confirmation. `None` if `confirmation_mode` decides.
    pub policy: Option<ConfirmationPolicy>,
    /// `None` if no analyzer assesses actions.
    pub analyzer: Option<AnalyzerChoice>,
    /// Address of the analyzer, if its name is not its address.
    pub analyzer_url: Option<String>,
    /// Key that the analyzer's requests carry.
    pub analyzer_key: Option<SecretString>,
    /// Timeout of one assessment, in seconds.
    pub analyzer_timeout: Option<f64>,
    /// V0's `GRAYSWAN_POLICY_ID`.
    pub grayswan_policy: Option<String>,
}

/// Value of `security_analyzer`.
#[derive(Debug, Clone)]
pub(crate) enum AnalyzerChoice {
    /// `llm`: the risk that the agent's model declares.
    DeclaredRisk,
    /// `invariant`.
    Invariant,
    /// `grayswan`.
    GraySwan,
    /// An analyzer behind this HTTP address.
    Http(String),
    /// A policy file, or why it cannot be read.
    Policy {
        /// As the user wrote it.
        path: String,
        /// `Err` with a text for the user.
        file: Result<PolicyFile, String>,
    },
}

impl SecuritySettings {
    pub(super) fn read(
        settings: &Settings,
        environment: &impl Fn(&str) -> Option<String>,
        home: Option<&Path>,
        trust: &TrustStore,
    ) -> Self {
        let text = |name| settings.text("security", name);
        let analyzer =
            text("security_analyzer").and_then(|name| choose_analyzer(name, home, trust));
        let is_grayswan = matches!(analyzer, Some(AnalyzerChoice::GraySwan));
        let grayswan_key = || variable(environment, "GRAYSWAN_API_KEY").filter(|_| is_grayswan);
        Self {
            confirmation_mode: settings
                .flag("security", "confirmation_mode")
                .unwrap_or(false),
            policy: text("confirmation_policy")
                .as_deref()
                .and_then(parse_policy),
            analyzer,
            analyzer_url: text("security_analyzer_url"),
            analyzer_key: text("security_analyzer_key")
                .or_else(grayswan_key)
                .map(SecretString::from),
            analyzer_timeout: settings.number("security", "security_analyzer_timeout"),
            grayswan_policy: variable(environment, "GRAYSWAN_POLICY_ID"),
        }
    }

    /// The policy file. `None` if none is configured, or if it cannot be read.
    pub(super) fn policy_file(&self) -> Option<&PolicyFile> {
        match &self.analyzer {
            Some(AnalyzerChoice::Policy { file, .. }) => file.as_ref().ok(),
            _ => None,
        }
    }
}

/// `None` if the name turns the analyzer off.
fn choose_analyzer(
    name: String,
    home: Option<&Path>,
    trust: &TrustStore,
) -> Option<AnalyzerChoice> {
    Some(match name.as_str() {
        "none" => return None,
        "llm" => AnalyzerChoice::DeclaredRisk,
        "invariant" => AnalyzerChoice::Invariant,
        "grayswan" => AnalyzerChoice::GraySwan,
        url if url.starts_with("http://") || url.starts_with("https://") => {
            AnalyzerChoice::Http(name)
        }
        path => AnalyzerChoice::Policy {
            file: policy_file::read(path, home, trust),
            path: name,
        },
    })
}

/// `None` for any other text, which [`super::keys::Kind::Confirmation`] has refused.
fn parse_policy(name: &str) -> Option<ConfirmationPolicy> {
    Some(match name {
        "never" => ConfirmationPolicy::Never,
        "low" => ConfirmationPolicy::Risky {
            from: SecurityRisk::Low,
        },
        "medium" => ConfirmationPolicy::Risky {
            from: SecurityRisk::Medium,
        },
        "high" => ConfirmationPolicy::Risky {
            from: SecurityRisk::High,
        },
        "always" => ConfirmationPolicy::Always,
        _ => return None,
    })
}

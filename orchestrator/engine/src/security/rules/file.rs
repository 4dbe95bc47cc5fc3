//! Parses the policy file, which is TOML.

use protocol::{Action, SecurityRisk};
use serde::Deserialize;

use super::pattern::{CommandPattern, HostPattern, PathPattern, PatternError};
use super::{Rule, SecurityRules};

/// The error of an invalid policy file. The user has to correct it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {key}: {problem}")]
pub struct PolicyError {
    /// The line, from 1.
    pub line: usize,
    /// The path of the key, such as `rule[2].risk`.
    pub key: String,
    /// The problem with it.
    pub problem: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyDocument {
    #[serde(default)]
    otherwise: RiskName,
    #[serde(default)]
    rule: Vec<RuleDocument>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleDocument {
    risk: RiskName,
    reason: String,
    #[serde(default)]
    commands: Vec<ParsedPattern<CommandPattern>>,
    #[serde(default)]
    reads: Vec<ParsedPattern<PathPattern>>,
    #[serde(default)]
    writes: Vec<ParsedPattern<PathPattern>>,
    #[serde(default)]
    hosts: Vec<ParsedPattern<HostPattern>>,
    #[serde(default)]
    actions: Vec<ActionKindName>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RiskName {
    #[default]
    Unknown,
    Low,
    Medium,
    High,
}

/// A pattern that is validated during deserialization, so that an error has a position.
#[derive(Deserialize)]
#[serde(
    try_from = "String",
    bound(deserialize = "P: TryFrom<String, Error = PatternError>")
)]
struct ParsedPattern<P>(P);

impl<P: TryFrom<String, Error = PatternError>> TryFrom<String> for ParsedPattern<P> {
    type Error = PatternError;

    fn try_from(text: String) -> Result<Self, PatternError> {
        P::try_from(text).map(Self)
    }
}

/// The wire name of a kind of action.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct ActionKindName(String);

impl TryFrom<String> for ActionKindName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        if Action::KINDS.contains(&name.as_str()) {
            Ok(Self(name))
        } else {
            Err(format!("there is no action {name}"))
        }
    }
}

impl SecurityRules {
    /// Parses a policy file.
    ///
    /// # Errors
    /// See [`PolicyError`]; the first problem found.
    pub fn from_toml(text: &str) -> Result<Self, PolicyError> {
        let syntax = |error: &toml::de::Error| PolicyError {
            line: line_of(text, error),
            key: "the file".into(),
            problem: one_line(error.message()),
        };
        let deserializer = toml::Deserializer::parse(text).map_err(|error| syntax(&error))?;
        let file: PolicyDocument =
            serde_path_to_error::deserialize(deserializer).map_err(|error| PolicyError {
                key: error.path().to_string(),
                ..syntax(error.inner())
            })?;
        let rules = file.rule.into_iter().map(Rule::from).collect();
        Ok(Self {
            rules,
            otherwise: file.otherwise.into(),
        })
    }
}

impl From<RuleDocument> for Rule {
    fn from(entry: RuleDocument) -> Self {
        fn all<P>(patterns: Vec<ParsedPattern<P>>) -> Vec<P> {
            patterns
                .into_iter()
                .map(|ParsedPattern(pattern)| pattern)
                .collect()
        }
        Self {
            risk: entry.risk.into(),
            reason: entry.reason,
            commands: all(entry.commands),
            reads: all(entry.reads),
            writes: all(entry.writes),
            hosts: all(entry.hosts),
            actions: entry
                .actions
                .into_iter()
                .map(|ActionKindName(name)| name)
                .collect(),
        }
    }
}

impl From<RiskName> for SecurityRisk {
    fn from(risk: RiskName) -> Self {
        match risk {
            RiskName::Unknown => Self::Unknown,
            RiskName::Low => Self::Low,
            RiskName::Medium => Self::Medium,
            RiskName::High => Self::High,
        }
    }
}

fn line_of(text: &str, error: &toml::de::Error) -> usize {
    let offset = error.span().map_or(0, |span| span.start);
    1 + text
        .bytes()
        .take(offset)
        .filter(|byte| *byte == b'\n')
        .count()
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join(", ")
}

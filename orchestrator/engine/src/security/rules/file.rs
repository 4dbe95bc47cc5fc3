//! The policy file: TOML.

use protocol::{Action, SecurityRisk};
use serde::Deserialize;

use super::pattern::{CommandPattern, HostPattern, PathPattern, PatternError};
use super::{Rule, SecurityRules};

/// Why a policy file cannot be used. The user mends it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {key}: {problem}")]
pub struct PolicyError {
    /// The line, from 1.
    pub line: usize,
    /// The key's path, as in `rule[2].risk`.
    pub key: String,
    /// What is wrong with it.
    pub problem: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    otherwise: Risk,
    #[serde(default)]
    rule: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    risk: Risk,
    reason: String,
    #[serde(default)]
    commands: Vec<Pattern<CommandPattern>>,
    #[serde(default)]
    reads: Vec<Pattern<PathPattern>>,
    #[serde(default)]
    writes: Vec<Pattern<PathPattern>>,
    #[serde(default)]
    hosts: Vec<Pattern<HostPattern>>,
    #[serde(default)]
    actions: Vec<Kind>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Risk {
    #[default]
    Unknown,
    Low,
    Medium,
    High,
}

/// A pattern that is looked at while the file is read, so that an error has its place.
#[derive(Deserialize)]
#[serde(try_from = "String", bound(deserialize = "P: TryFrom<String, Error = PatternError>"))]
struct Pattern<P>(P);

impl<P: TryFrom<String, Error = PatternError>> TryFrom<String> for Pattern<P> {
    type Error = PatternError;

    fn try_from(text: String) -> Result<Self, PatternError> {
        P::try_from(text).map(Self)
    }
}

/// The wire's name of an action.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Kind(String);

impl TryFrom<String> for Kind {
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
    /// Reads a policy file's text.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn from_toml(text: &str) -> Result<Self, PolicyError> {
        let syntax = |error: &toml::de::Error| PolicyError {
            line: line_of(text, error),
            key: "the file".into(),
            problem: one_line(error.message()),
        };
        let deserializer = toml::Deserializer::parse(text).map_err(|error| syntax(&error))?;
        let file: File = serde_path_to_error::deserialize(deserializer)
            .map_err(|error| PolicyError { key: error.path().to_string(), ..syntax(error.inner()) })?;
        let rules = file.rule.into_iter().map(Rule::from).collect();
        Ok(Self { rules, otherwise: file.otherwise.into() })
    }
}

impl From<Entry> for Rule {
    fn from(entry: Entry) -> Self {
        fn all<P>(patterns: Vec<Pattern<P>>) -> Vec<P> {
            patterns.into_iter().map(|Pattern(pattern)| pattern).collect()
        }
        Self {
            risk: entry.risk.into(),
            reason: entry.reason,
            commands: all(entry.commands),
            reads: all(entry.reads),
            writes: all(entry.writes),
            hosts: all(entry.hosts),
            actions: entry.actions.into_iter().map(|Kind(name)| name).collect(),
        }
    }
}

impl From<Risk> for SecurityRisk {
    fn from(risk: Risk) -> Self {
        match risk {
            Risk::Unknown => Self::Unknown,
            Risk::Low => Self::Low,
            Risk::Medium => Self::Medium,
            Risk::High => Self::High,
        }
    }
}

fn line_of(text: &str, error: &toml::de::Error) -> usize {
    let offset = error.span().map_or(0, |span| span.start);
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join(", ")
}

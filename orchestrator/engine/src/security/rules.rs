//! An analyzer that applies a user's rules on commands, paths and hosts. The first matching rule
//! decides.
//!
//! A shell text is split into its simple commands, with the files and hosts that each accesses. The
//! highest risk counts. If a word is known only after the shell's expansion, a rule may or may not
//! match. If that rule has the higher risk, the result is unknown.
//!
//! Rules that lower the risk apply only to programs of the system with their usual environment:
//! `./cat` and `PATH=. cat` can be any program.
//!
//! Rules see only the text of an action: a program can hide what it does, so isolation remains the
//! sandbox's task.

mod builtins;
mod facts;
mod file;
mod pattern;
#[cfg(test)]
mod tests;

use async_trait::async_trait;
use protocol::{Action, SecurityRisk};

use self::facts::{AccessTarget, ActionFacts};
use self::pattern::{CommandPattern, HostPattern, Match, PathPattern};
use super::{AnalyzerError, RiskAssessment, SecurityAnalyzer, severity};
use crate::view::View;

pub use self::file::PolicyError;

/// The rules of a policy file, in order.
#[derive(Debug, Clone)]
pub struct SecurityRules {
    rules: Vec<Rule>,
    otherwise: SecurityRisk,
}

/// A rule. Matches if one of its patterns does.
#[derive(Debug, Clone)]
struct Rule {
    risk: SecurityRisk,
    reason: String,
    commands: Vec<CommandPattern>,
    reads: Vec<PathPattern>,
    writes: Vec<PathPattern>,
    hosts: Vec<HostPattern>,
    actions: Vec<String>,
}

impl SecurityRules {
    /// Returns the risk of an action, with the reason.
    pub fn assess_action(&self, action: &Action) -> RiskAssessment {
        let Some(facts) = ActionFacts::from_action(action) else {
            return RiskAssessment {
                risk: SecurityRisk::Unknown,
                reason: "the command cannot be parsed reliably".into(),
            };
        };
        let assessments = facts
            .iter()
            .filter_map(|facts| self.assess_facts(facts, action.kind()));
        highest(assessments).unwrap_or_else(|| RiskAssessment {
            risk: SecurityRisk::Low,
            reason: "it has no effect".into(),
        })
    }

    /// Returns the highest risk of a command and its targets. `None` if another command of the same
    /// text decides.
    fn assess_facts(&self, facts: &ActionFacts, kind: &str) -> Option<RiskAssessment> {
        let whole = self.first_match(facts, None, kind);
        let targets: Vec<_> = facts
            .targets()
            .map(|target| (target, self.first_match(facts, Some(target), kind)))
            .collect();
        // A read target is often no path at all, so only writes and hosts have to be covered by a
        // rule.
        let is_uncovered = targets.iter().any(|(target, assessed)| match target {
            AccessTarget::Write(_) => assessed.is_none(),
            AccessTarget::Host(_) => assessed.is_none() && !facts.is_wrapper,
            AccessTarget::Read(_) => false,
        });
        // A rule on targets does not lower the risk of a program that no rule names.
        let is_unnamed = whole.is_none() && !facts.words.is_empty() && !facts.is_wrapper;
        let found = highest(
            whole
                .into_iter()
                .chain(targets.into_iter().filter_map(|(_, assessed)| assessed)),
        );
        let unmatched = if facts.is_opaque {
            RiskAssessment {
                risk: SecurityRisk::Unknown,
                reason: "its effects are not visible".into(),
            }
        } else {
            RiskAssessment {
                risk: self.otherwise,
                reason: "no rule matches".into(),
            }
        };
        match found {
            None if facts.is_wrapper && !is_uncovered => None,
            Some(found) if !is_uncovered && !is_unnamed => Some(found),
            found => highest(found.into_iter().chain([unmatched])),
        }
    }

    /// Returns the first rule that matches certainly, unless a preceding one that may match has a
    /// higher risk.
    fn first_match(
        &self,
        facts: &ActionFacts,
        target: Option<AccessTarget<'_>>,
        kind: &str,
    ) -> Option<RiskAssessment> {
        let mut uncertain: Option<&Rule> = None;
        let mut found = None;
        for rule in &self.rules {
            match rule.matches(facts, target, kind, self.otherwise) {
                Match::Yes => {
                    found = Some(rule);
                    break;
                }
                Match::Maybe
                    if uncertain.is_none_or(|other| severity(rule.risk) > severity(other.risk)) =>
                {
                    uncertain = Some(rule);
                }
                Match::Maybe | Match::No => {}
            }
        }
        let certain = found.map(|rule| RiskAssessment {
            risk: rule.risk,
            reason: rule.reason.clone(),
        });
        let min_severity = severity(found.map_or(SecurityRisk::Low, |rule| rule.risk));
        match uncertain.filter(|rule| severity(rule.risk) > min_severity) {
            Some(rule) => Some(RiskAssessment {
                risk: SecurityRisk::Unknown,
                reason: format!(
                    "whether this rule matches depends on an expansion: {}",
                    rule.reason
                ),
            }),
            None => certain,
        }
    }
}

#[async_trait]
impl SecurityAnalyzer for SecurityRules {
    async fn assess(
        &self,
        action: &Action,
        _history: &View,
    ) -> Result<RiskAssessment, AnalyzerError> {
        Ok(self.assess_action(action))
    }
}

impl Rule {
    fn matches(
        &self,
        facts: &ActionFacts,
        target: Option<AccessTarget<'_>>,
        kind: &str,
        otherwise: SecurityRisk,
    ) -> Match {
        let raises_risk = severity(self.risk) > severity(otherwise);
        let lowers_risk = severity(self.risk) < severity(otherwise);
        let is_foreign = facts.has_foreign_program();
        // A rule without effect could still precede a rule that raises the risk.
        let applies = raises_risk || !facts.has_altered_environment;
        // Arguments can make an allowed program write or connect to anything.
        let is_effect = matches!(target, Some(AccessTarget::Write(_) | AccessTarget::Host(_)));
        let commands = self
            .commands
            .iter()
            .filter(|_| applies && !(lowers_risk && is_effect))
            .map(|pattern| pattern.matches(&facts.words, raises_risk || !is_foreign));
        let kinds = self
            .actions
            .iter()
            .filter(|known| *known == kind)
            .map(|_| Match::Yes);
        let best = commands.chain(kinds).max();
        // What another program does with the target is unknown.
        let is_unclear = lowers_risk && (is_foreign || facts.has_altered_environment);
        let best_of_target = match target.filter(|_| !is_unclear) {
            Some(AccessTarget::Read(path)) => {
                self.reads.iter().map(|pattern| pattern.matches(path)).max()
            }
            Some(AccessTarget::Write(path)) => self
                .writes
                .iter()
                .map(|pattern| pattern.matches(path))
                .max(),
            Some(AccessTarget::Host(host)) => {
                self.hosts.iter().map(|pattern| pattern.matches(host)).max()
            }
            None => None,
        };
        best.max(best_of_target).unwrap_or(Match::No)
    }
}

fn highest(assessments: impl Iterator<Item = RiskAssessment>) -> Option<RiskAssessment> {
    assessments.max_by_key(|assessment| severity(assessment.risk))
}

//! An analyzer of rules that people wrote: commands, paths, hosts. The first rule that matches decides.
//!
//! A text is taken apart into its simple commands and what each reads, writes and speaks with; the worst of them counts.
//! Where a word is not known before the
//! shell expands it, a rule may match or not: if that rule is the worse one, the risk is unknown. This judges what is
//! asked for in plain sight; who wants to hide something in a program of their own can, and the sandbox keeps it in.

mod facts;
mod file;
mod pattern;
#[cfg(test)]
mod tests;

use async_trait::async_trait;
use protocol::{Action, SecurityRisk};

use self::facts::{ActionFacts, Target};
use self::pattern::{CommandPattern, HostPattern, Likeness, PathPattern};
use super::{AnalyzerError, RiskAssessment, SecurityAnalyzer, severity};
use crate::view::View;

pub use self::file::PolicyError;

/// A policy file's rules, in order.
#[derive(Debug, Clone)]
pub struct SecurityRules {
    rules: Vec<Rule>,
    otherwise: SecurityRisk,
}

/// One rule. It matches where one of its patterns does.
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
    /// The risk of an action, and why.
    pub fn judge(&self, action: &Action) -> RiskAssessment {
        let Some(facts) = ActionFacts::of(action) else {
            return RiskAssessment {
                risk: SecurityRisk::Unknown,
                reason: "the text cannot be read with certainty".into(),
            };
        };
        let judgements = facts.iter().filter_map(|facts| self.judge_facts(facts, action.kind()));
        worst(judgements)
            .unwrap_or_else(|| RiskAssessment { risk: SecurityRisk::Low, reason: "it does nothing".into() })
    }

    /// The worst of what a command touches. Nothing: what decides is another part of the same text.
    fn judge_facts(&self, facts: &ActionFacts, kind: &str) -> Option<RiskAssessment> {
        let whole = self.first_match(facts, None, kind);
        let targets: Vec<_> =
            facts.targets().map(|target| (target, self.first_match(facts, Some(target), kind))).collect();
        // What is read is often no path at all; what is written and who is spoken with is covered or not.
        let is_uncovered = targets.iter().any(|(target, judged)| match target {
            Target::Write(_) => judged.is_none(),
            Target::Host(_) => judged.is_none() && !facts.is_wrapper,
            Target::Read(_) => false,
        });
        let found = worst(whole.into_iter().chain(targets.into_iter().filter_map(|(_, judged)| judged)));
        let unmatched = if facts.is_opaque {
            RiskAssessment { risk: SecurityRisk::Unknown, reason: "what it does cannot be seen".into() }
        } else {
            RiskAssessment { risk: self.otherwise, reason: "no rule matches".into() }
        };
        match found {
            None if facts.is_wrapper && !is_uncovered => None,
            Some(found) if !is_uncovered => Some(found),
            found => worst(found.into_iter().chain([unmatched])),
        }
    }

    /// The first rule that matches for sure, unless one before it that may match is worse.
    fn first_match(
        &self,
        facts: &ActionFacts,
        target: Option<Target<'_>>,
        kind: &str,
    ) -> Option<RiskAssessment> {
        let mut unsure: Option<&Rule> = None;
        let mut found = None;
        for rule in &self.rules {
            match rule.matches(facts, target, kind) {
                Likeness::Yes => {
                    found = Some(rule);
                    break;
                }
                Likeness::Maybe if unsure.is_none_or(|other| severity(rule.risk) > severity(other.risk)) => {
                    unsure = Some(rule);
                }
                Likeness::Maybe | Likeness::No => {}
            }
        }
        let certain = found.map(|rule| RiskAssessment { risk: rule.risk, reason: rule.reason.clone() });
        let harm = severity(found.map_or(SecurityRisk::Low, |rule| rule.risk));
        match unsure.filter(|rule| severity(rule.risk) > harm) {
            Some(rule) => Some(RiskAssessment {
                risk: SecurityRisk::Unknown,
                reason: format!("what a word stands for decides whether this holds: {}", rule.reason),
            }),
            None => certain,
        }
    }
}

#[async_trait]
impl SecurityAnalyzer for SecurityRules {
    async fn assess(&self, action: &Action, _history: &View) -> Result<RiskAssessment, AnalyzerError> {
        Ok(self.judge(action))
    }
}

impl Rule {
    fn matches(&self, facts: &ActionFacts, target: Option<Target<'_>>, kind: &str) -> Likeness {
        let commands = self.commands.iter().map(|pattern| pattern.matches(&facts.words));
        let kinds = self.actions.iter().filter(|known| *known == kind).map(|_| Likeness::Yes);
        let best = commands.chain(kinds).max();
        let best_of_target = match target {
            Some(Target::Read(path)) => self.reads.iter().map(|pattern| pattern.matches(path)).max(),
            Some(Target::Write(path)) => self.writes.iter().map(|pattern| pattern.matches(path)).max(),
            Some(Target::Host(host)) => self.hosts.iter().map(|pattern| pattern.matches(host)).max(),
            None => None,
        };
        best.max(best_of_target).unwrap_or(Likeness::No)
    }
}

fn worst(judgements: impl Iterator<Item = RiskAssessment>) -> Option<RiskAssessment> {
    judgements.max_by_key(|judgement| severity(judgement.risk))
}

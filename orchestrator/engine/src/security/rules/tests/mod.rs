mod commands;
mod paths;
mod policies;
mod programs;

use std::sync::LazyLock;

use proptest::prelude::*;
use protocol::SecurityRisk::{self, High, Low, Medium, Unknown};
use protocol::action::{
    BrowseAction, BrowseInteractiveAction, EditAction, EditCommand, ReadAction, RunAction,
    RunIpythonAction,
};

use super::*;

const EXAMPLE: &str = include_str!("../../../../../security-policy.toml");

/// The example with everything low that no rule matches: shows which rule matches.
static LENIENT: LazyLock<String> =
    LazyLock::new(|| EXAMPLE.replace("otherwise = \"medium\"", "otherwise = \"low\""));

/// Commands that print are low, others high.
const PRINTING: &str = "otherwise = 'high'\n[[rule]]\nrisk = 'low'\nreason = 'prints'\n\
    commands = ['echo', 'cat', 'true', ':', 'export', 'read', 'printf', 'hash', 'alias', 'test', '[[]', \
    'declare', 'readonly', 'local', 'let', 'set', 'unset', 'wait', 'mapfile', 'getopts', 'shopt', 'jobs', \
    './ours', '/opt/*/theirs']\n";

/// Rules on absolute paths only: patterns that match at any depth hide what a prefix excludes.
const ABSOLUTE_PATHS: &str = "otherwise = 'low'\n[[rule]]\nrisk = 'high'\nreason = 'secret'\n\
    reads = ['/etc/shadow', '~/.ssh/**']\nwrites = ['/etc/**']\n";

fn risk_of(rules: &str, command: &str) -> SecurityRisk {
    let run = RunAction {
        command: command.into(),
        ..Default::default()
    };
    SecurityRules::from_toml(rules)
        .unwrap()
        .assess_action(&run.into())
        .risk
}

//! Tests that were skipped because the machine lacks something. They pass, and name themselves in a
//! list (`tests/skip.rs`).

use std::collections::{BTreeMap, BTreeSet};

/// Variable with the path of the list, for tests. Each line is `NEEDED\tBINARY\tTEST`.
pub(super) const LIST_VARIABLE: &str = "GLOVEBOX_SKIPPED_TESTS";

/// Returns a note for each requirement, with the number of skipped tests of each suite.
pub(super) fn notes(list: &str) -> Vec<String> {
    let mut suites: BTreeMap<&str, BTreeMap<String, usize>> = BTreeMap::new();
    // A set, because a test may need the same in several places.
    for line in list.lines().collect::<BTreeSet<_>>() {
        let mut fields = line.splitn(3, '\t');
        if let (Some(needed), Some(binary), Some(test)) =
            (fields.next(), fields.next(), fields.next())
        {
            *suites
                .entry(needed)
                .or_default()
                .entry(suite(binary, test))
                .or_default() += 1;
        }
    }
    suites
        .into_iter()
        .map(|(needed, suites)| note(needed, &suites))
        .collect()
}

/// The first module of a test in the binary of many suites, else the binary.
fn suite(binary: &str, test: &str) -> String {
    match (binary, test.split_once("::")) {
        ("tests::main" | "main", Some((suite, _))) => suite.to_owned(),
        _ => binary.to_owned(),
    }
}

fn note(needed: &str, suites: &BTreeMap<String, usize>) -> String {
    let total: usize = suites.values().sum();
    let suites: Vec<String> = suites
        .iter()
        .map(|(suite, count)| format!("{suite} {count}"))
        .collect();
    format!(
        "skipped {total} tests that need {needed}: {}",
        suites.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_tests_are_counted_by_suite_and_requirement() {
        let list = "sshd\ttests::main\tsandbox_ssh::a\nsshd\ttests::main\tsandbox_ssh::b\n\
                    sshd\ttests::main\tsandbox_ssh::b\nsshd\tllm::wires\topenai::c\ngit\tengine\tsetup::d\n";
        let expected = [
            "skipped 1 tests that need git: engine 1",
            "skipped 3 tests that need sshd: llm::wires 1, sandbox_ssh 2",
        ];
        assert_eq!(notes(list), expected);
    }
}

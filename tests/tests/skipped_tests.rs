//! Reports of skipped tests.

use std::panic::catch_unwind;

use crate::skip::{Requirement, report};

#[test]
fn skipped_test_is_added_to_the_list() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("skipped");
    report(Requirement::PostgreSql, "not found", false, Some(&list));
    report(Requirement::Program("git"), "not found", false, Some(&list));
    let list = std::fs::read_to_string(list).unwrap();
    let lines: Vec<Vec<&str>> = list
        .lines()
        .map(|line| line.split('\t').collect())
        .collect();
    let [first, second] = lines.as_slice() else {
        panic!("{list:?}")
    };
    assert_eq!((first[0], second[0]), ("PostgreSQL", "git"));
    assert_eq!((first.len(), &first[1..]), (3, &second[1..]));
}

#[test]
fn test_fails_when_skipped_on_a_build_machine() {
    let failure =
        catch_unwind(|| report(Requirement::Bubblewrap, "not found", true, None)).unwrap_err();
    let message = failure.downcast::<String>().unwrap();
    assert_eq!(
        *message,
        "cannot skip a test with CI=true: needs bubblewrap: not found"
    );
}

//! Tests that every command line of the documentation parses: `glovebox …` and `cargo run -- …` in
//! shell blocks.

use std::path::{Path, PathBuf};

use clap::Parser as _;
use clap::error::ErrorKind;

use super::Arguments;

const SEPARATORS: [&str; 5] = ["|", "||", "&&", "&", ";"];

const REDIRECTIONS: [&str; 3] = ["<", ">", "2>"];

/// The calls of `glovebox` in a line of shell, each as its arguments. Reads what documentation
/// needs: comments, quotes, pipes, redirections at the end, and one `$(…)` or `<(…)` at the end of
/// a command.
fn calls(line: &str) -> Vec<Vec<String>> {
    let words = shlex::split(line).unwrap_or_default();
    words
        .split(|word| SEPARATORS.contains(&word.as_str()))
        .filter_map(call)
        .collect()
}

fn call(words: &[String]) -> Option<Vec<String>> {
    let words = words
        .split(|word| REDIRECTIONS.contains(&word.as_str()))
        .next()?;
    if let Some(program) = words.iter().position(|word| word.ends_with("(glovebox")) {
        let mut arguments = words[program + 1..].to_vec();
        let last = arguments.last_mut()?;
        *last = last.trim_end_matches(')').to_owned();
        return Some(arguments);
    }
    let is_assignment = |word: &&String| word.contains('=');
    let words: Vec<_> = words.iter().skip_while(is_assignment).cloned().collect();
    match words
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["glovebox", ..] => Some(words[1..].to_vec()),
        ["cargo", "run", ..] => Some(
            words
                .iter()
                .skip_while(|word| *word != "--")
                .skip(1)
                .cloned()
                .collect(),
        ),
        _ => None,
    }
}

/// `None` if it parses. Help and version are errors for clap only.
fn problem(arguments: &[String]) -> Option<String> {
    let error = Arguments::try_parse_from(["glovebox".to_owned()].iter().chain(arguments)).err()?;
    let is_printed = matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    );
    (!is_printed).then(|| error.to_string())
}

/// Lines of the shell blocks of a page.
fn shell_lines(page: &str) -> Vec<&str> {
    let mut language = None;
    let mut lines = Vec::new();
    for line in page.lines() {
        match line.trim_start().strip_prefix("```") {
            Some(fence) => language = language.is_none().then_some(fence),
            None if language == Some("sh") => lines.push(line),
            None => {}
        }
    }
    lines
}

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folders = ["", "docs", "sandbox-images"].map(|folder| root.join(folder));
    let files = folders
        .iter()
        .flat_map(|folder| folder.read_dir().unwrap())
        .map(|entry| entry.unwrap().path());
    files
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect()
}

#[test]
fn command_lines_in_the_documentation_parse() {
    let mut problems = Vec::new();
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for line in shell_lines(&text) {
            let found = calls(line)
                .iter()
                .filter_map(|arguments| problem(arguments))
                .collect::<Vec<_>>();
            problems.extend(
                found
                    .iter()
                    .map(|problem| format!("{}: {line}\n{problem}", page.display())),
            );
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn calls_are_found_in_lines_of_shell() {
    for (line, expected) in [
        (
            "A=1 glovebox run 'a task' -d . # comment",
            &["run", "a task", "-d", "."][..],
        ),
        (
            "tar c . | glovebox exec -- 'tar x && make' > log",
            &["exec", "--", "tar x && make"],
        ),
        ("name=$(glovebox sandbox create)", &["sandbox", "create"]),
        (
            "source <(glovebox completions bash)",
            &["completions", "bash"],
        ),
        ("cargo run -- demo", &["demo"]),
    ] {
        assert_eq!(calls(line), [expected], "{line}");
    }
    assert!(calls("docker build -t glovebox/base . && cargo ci").is_empty());
}

#[test]
fn unknown_flag_is_a_problem() {
    assert!(
        problem(&["run".to_owned(), "--imagine".to_owned()])
            .unwrap()
            .contains("--imagine")
    );
    assert_eq!(problem(&["--help".to_owned()]), None);
}

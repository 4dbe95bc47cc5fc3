//! Compared with bash: if bash accepts a text, it must accept the commands that it is split into.

use std::io::Write as _;
use std::process::{Command, Stdio};

use proptest::prelude::*;

use super::split;
use crate::skip::skip_without;

/// Texts with one command.
const ONE: &[&str] = &[
    "",
    "  \n\n",
    "ls",
    "\n# first\nls # list\n# last\n",
    "a; b & c && d || e",
    "a &&\n\n b ||\nc |\nd |&\ne",
    "echo 'one\ntwo'",
    "echo \"one\ntwo $(echo \"x\ny\") `a\nb` \\\" ${x:-a\nb}\"",
    "echo $'it\\'s\nfine'",
    "echo a\\\n  b\\\n  c",
    "a=(1\n2 # two\n3)",
    "a+=(1\n2) b=c ls",
    "if true\nthen\n echo a\nelif b; then c\nelse\n d\nfi",
    "for i in 1 2 3\ndo\n echo $i\ndone",
    "for i\ndo echo $i\ndone",
    "for i; do echo $i\ndone",
    "for ((i=0; i<3; i++))\ndo echo $i\ndone",
    "for ((i=0; i<3; i++)); do echo $i\ndone",
    "while read -r line\ndo echo \"$line\"\ndone < file > other",
    "until false\ndo :\ndone | sort",
    "select x in a b\ndo break\ndone",
    "case $x in\n a|b) echo a;;\n (c)\n  echo c\n ;;\n *) echo d\nesac",
    "case x in esac",
    "{ a\nb\n} > f",
    "(a\nb)",
    "((1 +\n2))",
    "((a); (b)\n)",
    "echo $((1 +\n2)) $(( (1) ))",
    "echo $((echo a); (echo\nb))",
    "[[ a == b &&\n c =~ ^(x|y)$ ]]",
    "f() {\n a\n b\n}",
    "function f {\n a\n}",
    "function f() (\n a\n)",
    "f()\n{\n a\n}",
    "cat <<EOF\nif\n'\nEOF",
    "cat <<EOF\nnever ends",
    "cat <<'E F' | sort\n$(\nE F",
    "cat <<-EOF\n\tx\n\tEOF\n",
    "cat <<A <<B\n1\nA\n2\nB\n",
    "cat <<EOF\nnot\\\nEOF\nEOF",
    "cat <<\\EOF\nnot\\\nEOF",
    "cat <<EOF && echo \"a\nb\"\nbody\nEOF",
    "if true; then cat <<EOF\nfi\nEOF\nfi",
    "x=$(cat <<EOF\n)\nEOF\n)",
    "cat <<< 'a\nb'",
    "diff <(a\nb) <(c) >(d)",
    "find . -name '*.rs' -exec echo {} \\;",
    "! true | time -p ls",
    "echo } then fi",
    "echo a#b; echo ${#a} ${a#'}'}",
    "A=1 B=2 2>/dev/null >&2 ls &> x &>> y <> z >| w",
    // Not understood, or not valid in bash: these count as one command.
    "if true\nls",
    "echo 'a\nls",
    "ls )\nls",
    "ls &&",
    "| ls\nls",
    "echo $[1 +\n2]\nls",
    "coproc cat\nls",
    "shopt -s extglob\nls !(a|b)",
];

fn trimmed(text: &str) -> Vec<&str> {
    split(text).into_iter().map(str::trim).collect()
}

#[test]
fn single_command_is_not_split() {
    for text in ONE {
        assert_eq!(split(text), [*text]);
    }
}

#[test]
fn several_commands_are_split() {
    assert_eq!(split("ls\npwd"), ["ls\n", "pwd"]);
    assert_eq!(split("\n# c\nls # d\n# e\n\npwd # f\n"), ["\n# c\nls # d\n# e\n\n", "pwd # f\n"]);
    assert_eq!(trimmed("a; b\nc &\nd"), ["a; b", "c &", "d"]);
    assert_eq!(trimmed("a;\nb"), ["a;", "b"]);
    assert_eq!(trimmed("echo 'é\n'\nls"), ["echo 'é\n'", "ls"]);
    assert_eq!(trimmed("cat <<EOF\nls\nEOF\nls"), ["cat <<EOF\nls\nEOF", "ls"]);
    assert_eq!(trimmed("if a\nthen b\nfi\nls"), ["if a\nthen b\nfi", "ls"]);
    assert_eq!(trimmed("case a in\na) b\nesac\nls"), ["case a in\na) b\nesac", "ls"]);
    assert_eq!(trimmed("f() {\na\n}\nf"), ["f() {\na\n}", "f"]);
    assert_eq!(trimmed("echo $((1))\n((2))\n(3)"), ["echo $((1))", "((2))", "(3)"]);
    assert_eq!(trimmed("echo `a`\necho $(b)\necho ${c}"), ["echo `a`", "echo $(b)", "echo ${c}"]);
    assert_eq!(trimmed("x=(1 2)\ny=3\n"), ["x=(1 2)", "y=3"]);
    assert_eq!(trimmed("[[ -f a ]]\nls"), ["[[ -f a ]]", "ls"]);
    assert_eq!(trimmed("echo a\\\nb\nls"), ["echo a\\\nb", "ls"]);
    assert_eq!(trimmed("a\r\nb"), ["a", "b"]);
}

#[test]
fn hostile_text_is_split_quickly() {
    let started = std::time::Instant::now();
    for part in ["(", "((", "$((", "$(", "\"$(", "${a:-", "`", "{ ", "if ", "((\"", "$((#(\n", "<<a ", "x=("]
    {
        let text = part.repeat(100_000 / part.len());
        assert_eq!(split(&text).concat(), text);
        let text = format!("{}\nls\nls", part.repeat(60));
        assert_eq!(split(&text).concat(), text);
    }
    assert!(started.elapsed() < std::time::Duration::from_secs(10), "{:?}", started.elapsed());
}

fn bash_accepts(text: &str) -> bool {
    let mut bash = Command::new("bash")
        .args(["--norc", "-n"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Fails if bash exits before it has read the text; then its status is an error.
    _ = bash.stdin.take().unwrap().write_all(text.as_bytes());
    bash.wait().unwrap().success()
}

#[test]
fn examples_are_valid_in_bash() {
    if skip_without("bash") {
        return;
    }
    for text in bash() {
        assert!(bash_accepts(text), "{text}");
    }
}

fn bash() -> &'static [&'static str] {
    &ONE[..ONE.iter().position(|text| text.starts_with("if true\nls")).unwrap()]
}

fn script() -> impl Strategy<Value = String> {
    let known = proptest::sample::select(bash().to_vec()).prop_map(str::to_owned);
    let whole = proptest::sample::select(vec!["\n", "\n\n", " &\n", "\n# c\n", "\nEOF\n"]);
    let any = proptest::sample::select(vec![
        "\n", " ", ";", " && ", " | ", "\\\n", "\n}\n", "\n)\n", "\n{\n", "(", "$(", ")", "\"", "'",
        "\nfi\n", "\ndo\n", "\ndone\n", " <<EOF", ";;",
    ]);
    let joint = prop_oneof![8 => whole, 1 => any];
    proptest::collection::vec((known, joint), 1..6)
        .prop_map(|parts| parts.into_iter().map(|(text, joint)| text + joint).collect())
}

#[test]
fn bash_accepts_the_commands_of_a_valid_text() {
    if skip_without("bash") {
        return;
    }
    proptest!(ProptestConfig::with_cases(200), |(text in script())| {
        let pieces = split(&text);
        prop_assert_eq!(pieces.concat(), text.clone());
        if pieces.len() > 1 && bash_accepts(&text) {
            for piece in pieces {
                prop_assert!(bash_accepts(piece), "{:?} of {:?}", piece, text);
            }
        }
    });
}

proptest! {
    #[test]
    fn any_text_is_split_without_loss(text in "([ -~\n\té]|\\$\\(|<<|\\(\\(|\\[\\[|if|do|EOF\n){0,60}") {
        let pieces = split(&text);
        prop_assert_eq!(pieces.concat(), text.clone());
        prop_assert!(!pieces.is_empty());
    }
}

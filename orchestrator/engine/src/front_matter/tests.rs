use proptest::prelude::*;

use super::{FrontMatterError, MarkdownDocument};

fn parse(text: &str) -> MarkdownDocument<'_> {
    MarkdownDocument::parse(text).unwrap()
}

#[test]
fn common_front_matter_is_parsed() {
    let text = "---\n# a comment\nname: \"github\" # why\ntype: knowledge\nversion: 1.0.0\nempty:\nnothing: ~\n\
                triggers:\n- github\n- 'it''s'\n  # between\n- \"a: b\"\nflow: [one, \"two, three\",\n  four]\n\
                commas: Read, Grep\nfolded: >-\n  first line\n  second line\n\n  third\nkept: |\n  a\n    b\n\
                long: begins here\n  and ends here\nbelow:\n\n  # comment\n  on its own line\nurl: http://h/#x\n---\nThe body\n---\nstays\n";
    let document = parse(text);
    assert_eq!(document.body, "The body\n---\nstays\n");
    let text = |name| document.text(name).unwrap();
    assert_eq!(text("name"), Some("github"));
    assert_eq!(text("version"), Some("1.0.0"));
    assert_eq!(
        (text("empty"), text("nothing"), text("missing")),
        (None, None, None)
    );
    assert_eq!(text("folded"), Some("first line second line\nthird"));
    assert_eq!(text("kept"), Some("a\n  b"));
    assert_eq!(text("long"), Some("begins here and ends here"));
    assert_eq!(text("below"), Some("on its own line"));
    assert_eq!(text("url"), Some("http://h/#x"));
    assert_eq!(
        document.texts("triggers").unwrap(),
        ["github", "it's", "a: b"]
    );
    assert_eq!(
        document.texts("flow").unwrap(),
        ["one", "two, three", "four"]
    );
    assert_eq!(document.texts("commas").unwrap(), ["Read", "Grep"]);
    assert_eq!((document.line("name"), document.line("triggers")), (3, 8));
}

#[test]
fn nested_maps_and_lists_are_parsed_within_limits() {
    let text = r#"---
mcp_tools:
  stdio_servers:
    - name: fetch
      args: ["x"]
      env:
        A: "b: c"
    - args: -m 'a b'
      env: [no]
  sse:
    - plain
anchor: &a b
inputs:
  - name: REPO
    description: "Which: one"
    deep:
      - name: no
  - name: BRANCH
  - plain
map: {a: 1}
name: last
name: wins
---
"#;
    let document = parse(text);
    assert_eq!(document.names_in("inputs", "name"), ["REPO", "BRANCH"]);
    assert_eq!(document.text("name").unwrap(), Some("wins"));
    let wrong = FrontMatterError {
        line: 2,
        problem: "`mcp_tools` must be a text".into(),
    };
    assert_eq!(document.text("mcp_tools"), Err(wrong));
    assert_eq!(
        document.texts("inputs").unwrap_err().to_string(),
        "13: `inputs` must be a list of texts"
    );
    let servers = document.maps_in("mcp_tools", "stdio_servers").unwrap();
    assert_eq!(
        (servers[0].text("name"), servers[0].words("args")),
        (Some("fetch"), Some(vec!["x".into()]))
    );
    assert_eq!(
        servers[0].texts_by_name("env"),
        Some([("A".into(), "b: c".into())].into())
    );
    assert_eq!(
        (servers[1].words("args"), servers[1].texts_by_name("env")),
        (Some(vec!["-m".into(), "a b".into()]), None)
    );
    assert!(document.maps_in("mcp_tools", "missing").unwrap().is_empty());
    assert_eq!(
        document.maps_in("name", "a").unwrap_err().problem,
        "`name` must be a map"
    );
    assert_eq!(
        document
            .maps_in("mcp_tools", "sse")
            .unwrap_err()
            .to_string(),
        "10: `sse` must be a list of maps"
    );
    assert!(document.text("anchor").is_err() && document.texts("map").is_err());
}

#[test]
fn indented_front_matter_after_blank_lines_is_parsed() {
    let text = "\n  \n ---\n  # comment\n  name: a\n  triggers:\n    - one\n  - two\n\n  folded: |\n    x\n      y\n  wrong: {a\n-----\nbody";
    let document = parse(text);
    assert_eq!(
        (document.text("name").unwrap(), document.body),
        (Some("a"), "body")
    );
    assert_eq!(document.texts("triggers").unwrap(), ["one", "two"]);
    assert_eq!(document.text("folded").unwrap(), Some("x\n  y"));
    assert_eq!(document.text("wrong").unwrap_err().line, 13);
}

#[test]
fn a_file_without_front_matter_is_all_body() {
    for text in [
        "",
        "---",
        "# Title\n---\na: b\n---\n",
        "---\nno end\n",
        "--- x\na: b\n---\n",
    ] {
        assert_eq!(
            parse(text),
            MarkdownDocument {
                fields: Vec::new(),
                body: text
            }
        );
    }
    assert_eq!(
        parse("\u{feff}---\r\na: b\r\n---\r\nbody")
            .text("a")
            .unwrap(),
        Some("b")
    );
}

#[test]
fn error_names_the_invalid_line() {
    let error = MarkdownDocument::parse("---\na: b\nnonsense\n---\n").unwrap_err();
    assert_eq!(error.to_string(), "3: expected `name: value`");
}

#[test]
fn deep_nesting_is_cheap() {
    let deep: String = (0..20_000)
        .map(|depth| format!("{}- a:\n", " ".repeat(depth % 200)))
        .collect();
    let dashes: String = (0..2000)
        .map(|depth| format!("{}-\n", " ".repeat(depth)))
        .collect();
    let brackets = "[".repeat(100_000);
    let text = format!("---\nlist:\n{deep}dashes:\n{dashes}flow: {brackets}\n---\nbody");
    assert_eq!(parse(&text).body, "body");
}

proptest! {
    #[test]
    fn arbitrary_text_fails_only_with_an_error(text in "(---\n)?([a-z:'\"\\[\\]{}#|>& \t\\-,\n\u{e9}]|---\n){0,200}") {
        if let Ok(document) = MarkdownDocument::parse(&text) {
            prop_assert!(text.ends_with(document.body));
            for name in document.names() {
                let _ = (document.text(name), document.texts(name), document.names_in(name, "a"));
            }
        }
    }

    #[test]
    fn quoted_strings_round_trip(texts in prop::collection::vec("[ -~\u{e9}]{0,20}", 0..8)) {
        let quoted = |text: &String| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        let list: String = texts.iter().map(|text| format!("- {}\n", quoted(text))).collect();
        let single: String = texts.iter().map(|text| format!("- '{}'\n", text.replace('\'', "''"))).collect();
        let head = format!("---\na:\n{list}b:\n{single}---\n");
        let document = parse(&head);
        let expected: Vec<_> = texts.iter().filter(|text| !matches!(text.as_str(), "" | "~" | "null")).cloned().collect();
        prop_assert_eq!(&document.texts("a").unwrap(), &expected);
        prop_assert_eq!(document.texts("b").unwrap(), expected);
    }
}

use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn one(text: &str) -> BrowserCall {
    let calls = parse(text).unwrap();
    let [call] = calls.as_slice() else {
        panic!("{calls:?}")
    };
    call.clone()
}

fn wrong(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn every_call_is_parsed() {
    let element = || "a12".to_owned();
    let click = |button, modifiers, times| BrowserCall::Click {
        element: element(),
        button,
        modifiers,
        times,
    };
    for (text, call) in [
        (
            "goto('https://a.b/?x=1')",
            BrowserCall::Goto("https://a.b/?x=1".into()),
        ),
        (
            "goto(url=\"localhost:8000/a\")",
            BrowserCall::Goto("http://localhost:8000/a".into()),
        ),
        ("go_back()", BrowserCall::GoBack),
        ("go_forward( )", BrowserCall::GoForward),
        ("noop()", BrowserCall::Noop(Duration::from_secs(1))),
        (
            "noop(wait_ms=250)",
            BrowserCall::Noop(Duration::from_millis(250)),
        ),
        ("scroll(0, -200.5)", BrowserCall::Scroll(0.0, -200.5)),
        (
            "fill('a12', 'it\\'s\\n\\u00e9')",
            BrowserCall::Fill(element(), "it's\né".into()),
        ),
        (
            "fill('a12', \"\"\"two\nlines\"\"\")",
            BrowserCall::Fill(element(), "two\nlines".into()),
        ),
        (
            "fill(12, r'a\\b')",
            BrowserCall::Fill("12".into(), "a\\b".into()),
        ),
        (
            "select_option('a12', 'blue')",
            BrowserCall::SelectOption(element(), vec!["blue".into()]),
        ),
        (
            "select_option('a12', ['red', 'blue',])",
            BrowserCall::SelectOption(element(), vec!["red".into(), "blue".into()]),
        ),
        ("click('a12')", click(Button::Left, vec![], 1)),
        (
            "click('a12', button='right', modifiers=['Shift', 'ControlOrMeta'])",
            click(Button::Right, vec![Modifier::Shift, Modifier::Control], 1),
        ),
        (
            "dblclick('a12', 'middle')",
            click(Button::Middle, vec![], 2),
        ),
        ("hover('a12')", BrowserCall::Hover(element())),
        (
            "press('a12', 'Control+a')",
            BrowserCall::Press(element(), "Control+a".into()),
        ),
        (
            "keyboard_press('Enter')",
            BrowserCall::PressAnywhere("Enter".into()),
        ),
        ("focus('a12')", BrowserCall::Focus(element())),
        ("clear('a12')", BrowserCall::Clear(element())),
        (
            "drag_and_drop('a12', 'b')",
            BrowserCall::DragAndDrop(element(), "b".into()),
        ),
        (
            "upload_file('a12', ['x', 'y'])",
            BrowserCall::UploadFile(element(), vec!["x".into(), "y".into()]),
        ),
        ("new_tab()", BrowserCall::NewTab),
        ("tab_close()", BrowserCall::TabClose),
        ("tab_focus(2)", BrowserCall::TabFocus(2)),
        (
            "send_msg_to_user('It is \\\\d.')",
            BrowserCall::SendMessage("It is \\d.".into()),
        ),
    ] {
        assert_eq!(one(text), call, "{text}");
    }
}

#[test]
fn calls_are_separated_by_lines_or_semicolons() {
    let text = "```python\n# first\nclick('1') ; fill('2',\n  'x',  # the value\n)\n\nnoop(0) # wait\n```\n";
    let calls = parse(text).unwrap();
    assert_eq!(calls.len(), 3, "{calls:?}");
}

#[test]
fn errors_are_one_sentence() {
    for (text, sentence) in [
        ("", "there is no call; write one such as click('12')"),
        ("click", "line 1: expected `(` after click, found the end"),
        ("click('1'", "line 1: expected `,` or `)`, found the end"),
        (
            "noop()\nclick('1) ",
            "line 2: expected the text's end, found the end",
        ),
        (
            "click('1') click('2')",
            "line 1: expected a line's end or `;`, found 'c'",
        ),
        ("click(1 + 1)", "line 1: expected `,` or `)`, found '+'"),
        (
            "click(f'1')",
            "line 1: expected a text in quotes, a number or a list, found 'f'",
        ),
        ("import os", "line 1: expected `(` after import, found 'o'"),
        ("click()", "click(bid, button?, modifiers?): bid is missing"),
        (
            "click('1', 'up')",
            "click(bid, button?, modifiers?): button must be 'left', 'middle' or 'right'",
        ),
        (
            "hover('1', '2')",
            "hover(bid): there are too many arguments",
        ),
        (
            "hover('1', bid='2')",
            "hover(bid): an argument is given twice",
        ),
        ("hover(id='1')", "hover(bid): there is no argument id"),
        (
            "hover(bid='1', '2')",
            "line 1: expected a name after a named argument, found ')'",
        ),
        (
            "noop(9e9)",
            "noop(wait_ms?): wait_ms must be a number from 0 to 60000",
        ),
        (
            "goto('javascript:alert(1)')",
            "goto(url): javascript: is not a page; use http, https, file, data or about",
        ),
        (
            "goto('chrome://settings')",
            "goto(url): chrome: is not a page; use http, https, file, data or about",
        ),
        (
            "select_option('1', [['a']])",
            "line 1: expected a text, found '['",
        ),
    ] {
        assert_eq!(wrong(text), sentence, "{text}");
    }
    assert!(wrong("fly()").starts_with("there is no call fly: there are goto, "));
    assert!(wrong(&"noop()\n".repeat(MAX_CALLS + 1)).starts_with("there are 51 calls"));
    assert!(wrong(&"#".repeat(300_000)).starts_with("the calls are longer"));
}

proptest! {
    #[test]
    fn arbitrary_text_does_not_panic(text in "\\PC{0,80}") {
        drop(parse(&text));
        drop(parse(&format!("click({text})")));
    }

    #[test]
    fn string_literals_round_trip(text in "[ -~\\n\\t\u{e9}\u{1f600}]{0,60}") {
        let written = text.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n");
        prop_assert_eq!(one(&format!("fill('1', '{written}')")), BrowserCall::Fill("1".into(), text.clone()));
        let written = text.replace('\\', "\\\\").replace('"', "\\\"");
        prop_assert_eq!(one(&format!("fill('1', \"\"\"{written}\"\"\")")), BrowserCall::Fill("1".into(), text));
    }
}

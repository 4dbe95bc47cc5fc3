//! The agent's browser tool, from the model's call to the response that the model receives.

use serde_json::{Value, json};
use tests::glovebox::{CompletedRun, Home, finish, tool_call};

use crate::skip::skip_without;

const SECRET: &str = "swordfish-7f3b9d41";

fn code(code: &str) -> Value {
    tool_call("browser", &json!({ "code": code }))
}

fn run(home: &Home, model: &str, more: &[&str]) -> CompletedRun {
    let workspace = home.workspace();
    let common = [
        "run",
        "--json",
        "-t",
        "work",
        "--runtime",
        "local",
        "-l",
        model,
        "-d",
        workspace.to_str().unwrap(),
    ];
    home.run(&[&common, more].concat())
}

#[test]
fn agent_uses_a_page_and_sees_no_secret() {
    if skip_without("chromium") {
        return;
    }
    let home = Home::new();
    let page = format!(
        "<title>Shop</title><button onclick=\"this.textContent='{SECRET} bought'\">Buy</button>"
    );
    home.write("work/page.html", page);
    let address = format!("file://{}/page.html", home.workspace().display());
    let model = home.script(&json!([
        code(&format!("goto('{address}')")),
        code("click('1')\nsend_msg_to_user('Bought.')"),
        code("click(1, 2"),
        finish(),
    ]));
    let secret = format!("WORD={SECRET}");
    let more = [
        "--agent",
        "BrowsingAgent",
        "--save-trajectory",
        "saved.json",
        "--secret",
        &secret,
    ];
    let ended = run(&home, &model, &more).expect(0);
    let events = ended.events();
    let offered = events
        .iter()
        .rfind(|event| event["action"] == "system")
        .unwrap();
    assert_eq!(offered["args"]["tools"][0]["function"]["name"], "browser");
    let pages: Vec<_> = events
        .iter()
        .filter(|event| event["observation"] == "browse")
        .collect();
    let [first, second] = pages.as_slice() else {
        panic!("{}", ended.stderr)
    };
    let text = |page: &Value| page["content"].as_str().unwrap().to_owned();
    assert!(
        text(first).contains("Title: Shop") && text(first).contains("[1] button 'Buy'"),
        "{}",
        text(first)
    );
    assert!(
        text(second).contains("bought'") && !text(second).contains(SECRET),
        "{}",
        text(second)
    );
    assert!(
        first["extras"]["screenshot"]
            .as_str()
            .unwrap()
            .starts_with("data:image/jpeg;base64,")
    );
    let message = events
        .iter()
        .find(|event| event["args"]["browsergym_send_msg_to_user"] == "Bought.");
    assert!(message.is_some());
    let wrong = events
        .iter()
        .find(|event| event["observation"] == "error")
        .unwrap();
    assert!(
        text(wrong).starts_with("the arguments of browser: line 1: expected"),
        "{wrong}"
    );
    let saved: Value =
        serde_json::from_slice(&std::fs::read(home.path().join("saved.json")).unwrap()).unwrap();
    let pictures = saved
        .as_array()
        .unwrap()
        .iter()
        .map(|event| &event["extras"]["screenshot"]);
    assert!(
        pictures.filter_map(Value::as_str).all(str::is_empty),
        "the trajectory has pictures"
    );
    home.assert_nothing_runs();
}

/// Returns the pictures of each page that an agent saw, without and with marks, and the page's
/// text.
fn pictures(home: &Home, agent: &str) -> Vec<(String, String, String)> {
    // A click on the page counts the elements on top of it.
    let page = "<title>Shop</title><dialog><button onclick=\"this.textContent = \
                document.querySelectorAll('[popover]').length + ' marks'\">Buy</button></dialog>\
                <p>Nothing to press</p><script>document.querySelector('dialog').showModal()</script>";
    home.write("work/page.html", page);
    let address = format!("file://{}/page.html", home.workspace().display());
    let model = home.script(&json!([
        code(&format!("goto('{address}')")),
        code("click('2')"),
        finish()
    ]));
    let events = run(home, &model, &["--agent", agent]).expect(0).events();
    let pages = events
        .iter()
        .filter(|event| event["observation"] == "browse");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let pages = pages.map(|page| {
        let extras = &page["extras"];
        (
            text(&extras["screenshot"]),
            text(&extras["set_of_marks"]),
            text(&page["content"]),
        )
    });
    let pages = pages.collect();
    home.assert_nothing_runs();
    pages
}

#[test]
fn visual_browsing_agent_is_shown_pages_with_marks() {
    if skip_without("chromium") {
        return;
    }
    let home = Home::new();
    let pages = pictures(&home, "VisualBrowsingAgent");
    let [(plain, marked, first), (_, _, second)] = pages.as_slice() else {
        panic!("{pages:?}")
    };
    for picture in [plain, marked] {
        assert!(
            picture.starts_with("data:image/jpeg;base64,"),
            "{picture:.40}"
        );
    }
    // A frame on an otherwise even page makes the picture larger.
    assert!(
        marked.len() > plain.len(),
        "{} {}",
        marked.len(),
        plain.len()
    );
    assert!(first.contains("[2] button 'Buy'"), "{first}");
    assert!(
        second.contains("button '0 marks'"),
        "the marks are gone: {second}"
    );
}

#[test]
fn other_agents_are_shown_marks_only_if_configured() {
    if skip_without("chromium") {
        return;
    }
    let home = Home::new();
    let marked = |home: &Home| {
        pictures(home, "BrowsingAgent")
            .iter()
            .any(|(_, marked, _)| !marked.is_empty())
    };
    assert!(!marked(&home));
    home.write(
        ".glovebox/config.toml",
        "[agent]\nenable_som_visual_browsing = true\n",
    );
    assert!(marked(&home));
}

#[test]
fn browser_is_not_offered_when_disabled() {
    let home = Home::new();
    home.write(".glovebox/config.toml", "[core]\nenable_browser = false\n");
    let model = home.script(&json!([code("noop()"), finish()]));
    let events = run(&home, &model, &[]).expect(0).events();
    let wrong = events
        .iter()
        .find(|event| event["observation"] == "error")
        .unwrap();
    assert_eq!(wrong["content"], "there is no tool browser");
    home.assert_nothing_runs();
}

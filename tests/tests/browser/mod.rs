//! A real browser in a real sandbox, with pages that the test serves.

mod backends;
mod conversation;
mod failures;
mod fixture;
mod hostile;
mod pages;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fixture::BrowserFixture;

#[tokio::test(flavor = "multi_thread")]
async fn page_is_opened_and_observed_in_v0_s_format() {
    let Some(fixture) = BrowserFixture::new().await else {
        return;
    };
    let seen = fixture.browse("form").await.expect_success();
    let page = &seen.page;
    assert_eq!(page.url, format!("{}/form", fixture.site));
    assert_eq!((page.open_pages_urls.len(), page.active_page_index), (1, 0));
    assert_eq!(page.trigger_by_action, "browse");
    for part in [
        "Title: A form",
        "heading 'Sign up', level=1",
        "textbox 'Nick', value='old'",
        "combobox 'Colour', value='r'",
        "option 'Red', selected",
        "checkbox 'Agree'",
        "button 'Never', disabled",
        "textbox 'Story'",
        "generic '', clickable",
        "StaticText 'Poke'",
    ] {
        seen.has(part);
    }
    let picture = page
        .screenshot
        .strip_prefix("data:image/jpeg;base64,")
        .unwrap();
    let picture = STANDARD.decode(picture).unwrap();
    assert_eq!(jpeg_size(&picture), (1280, 720));
    assert!(picture.len() < 300_000, "{}", picture.len());
    let own = fixture
        .run("ls ${TMPDIR:-/tmp}/glovebox-browser-*/profile")
        .await;
    assert!(
        own.contains("org.chromium.Chromium"),
        "temporary files outside of the profile: {own}"
    );
    fixture.end().await;
}

/// Returns the width and height from the header of the JPEG frame.
fn jpeg_size(picture: &[u8]) -> (u16, u16) {
    assert!(
        picture.starts_with(&[0xff, 0xd8]) && picture.ends_with(&[0xff, 0xd9]),
        "a whole JPEG"
    );
    let mut at = 2;
    loop {
        let [0xff, marker, high, low, ..] = picture[at..] else {
            panic!("no marker at {at}")
        };
        if matches!(marker, 0xc0..=0xc2) {
            let number = |at: usize| u16::from_be_bytes([picture[at], picture[at + 1]]);
            return (number(at + 7), number(at + 5));
        }
        at += 2 + usize::from(u16::from_be_bytes([high, low]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn form_is_filled_in_and_submitted() {
    let Some(fixture) = BrowserFixture::new().await else {
        return;
    };
    let seen = fixture.act("goto('SITE/form')").await.expect_success();
    let [nick, color, agree] = ["'Nick'", "'Colour'", "checkbox"].map(|part| seen.element_id(part));
    let [day, story, send] = ["'Day'", "'Story'", "'Send'"].map(|part| seen.element_id(part));
    let calls = format!(
        "fill('{nick}', 'Zoë \\'Z\\'')\nselect_option('{color}', 'Blue')\nclick('{agree}')\nfill('{day}', '2024-02-29')\n\
         fill('{story}', 'upon a time')\nclick('{send}')"
    );
    let seen = fixture.act(&calls).await.expect_success();
    seen.has("StaticText 'Zoë \\'Z\\'|b|true|2024-02-29'")
        .has("StaticText 'upon a time'");
    seen.has("checkbox 'Agree', checked");
    assert_eq!(seen.page.focused_element_bid, send);
    assert_eq!(seen.page.last_browser_action, calls);
    assert_eq!(seen.element_id("'Nick'"), nick, "an element keeps its id");

    let seen = fixture
        .act(&format!("clear('{nick}')\nfocus('{nick}')"))
        .await
        .expect_success();
    seen.has("textbox 'Nick', focused\n");
    let keys = seen.element_id("'Keys'");
    let seen = fixture
        .act(&format!(
            "press('{keys}', 'a')\npress('{keys}', 'Control+b')\nkeyboard_press('ArrowDown')"
        ))
        .await
        .expect_success();
    seen.has("StaticText 'a b! ArrowDown'")
        .has("'Keys', focused, value='a'");

    let poke = seen.element_id("generic '', clickable");
    for (call, expected) in [
        ("click('P')", "poked"),
        ("dblclick('P')", "twice"),
        ("click('P', 'right')", "right"),
    ] {
        fixture
            .act(&call.replace('P', &poke))
            .await
            .expect_success()
            .has(&format!("StaticText '{expected}'"));
    }
    fixture
        .act(&format!("hover('{send}')\nhover('{poke}')"))
        .await
        .expect_success()
        .has("Title: over");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn error_is_one_sentence_and_page_stays_when_a_call_fails() {
    let Some(fixture) = BrowserFixture::new().await else {
        return;
    };
    let seen = fixture.act("goto('SITE/form')").await.expect_success();
    let (send, color, never) = (
        seen.element_id("'Send'"),
        seen.element_id("'Colour'"),
        seen.element_id("'Never'"),
    );
    for (calls, sentence) in [
        (
            "click(".to_owned(),
            "line 1: expected a text in quotes, a number or a list, found the end",
        ),
        (
            "click('999')".to_owned(),
            "click: there is no element 999 in the latest observation",
        ),
        (
            format!("noop(1)\nfill('{send}', 'x')\nnoop(1)"),
            "call 2 of 3, fill: the element",
        ),
        (format!("fill('{never}', 'x')"), "cannot be edited"),
        (
            format!("select_option('{color}', 'Pink')"),
            "there is no option Pink",
        ),
        (
            format!("press('{send}', 'Entre')"),
            "\"Entre\" is not a key",
        ),
        (
            format!("upload_file('{send}', '/nowhere')"),
            "there is no file /nowhere",
        ),
        (
            "tab_focus(3)".to_owned(),
            "there is no tab 3: there are 1, from 0",
        ),
        ("go_forward()".to_owned(), "there is no such page"),
        (
            "goto('http://127.0.0.1:1/')".to_owned(),
            "cannot open the page: net::ERR_",
        ),
    ] {
        let seen = fixture.act(&calls).await;
        seen.failed(sentence).has("The action failed: ");
        if !calls.starts_with("goto") {
            seen.has("heading 'Sign up'");
        }
    }
    fixture
        .act("send_msg_to_user('Hello.')")
        .await
        .expect_success()
        .has("The message was sent to the user.");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_scrolled_and_revisited() {
    let Some(fixture) = BrowserFixture::new().await else {
        return;
    };
    let seen = fixture.act("goto('SITE/long')").await.expect_success();
    seen.has("Viewport: 0 to 720 of ");
    fixture
        .act("scroll(0, 500)")
        .await
        .expect_success()
        .has("Viewport: 500 to 1220 of ");
    let bottom = seen.element_id("'Bottom'");
    fixture
        .act(&format!("click('{bottom}')"))
        .await
        .expect_success()
        .has("'Bottom', focused");
    fixture
        .act("goto('SITE/second')")
        .await
        .expect_success()
        .has("Title: Second");
    fixture
        .act("go_back()")
        .await
        .expect_success()
        .has("heading 'Top'");
    let seen = fixture.act("go_forward()").await.expect_success();
    seen.has("The second page");
    assert_eq!(seen.page.url, format!("{}/second", fixture.site));
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tabs_are_opened_selected_and_closed() {
    let Some(fixture) = BrowserFixture::new().await else {
        return;
    };
    let seen = fixture.act("goto('SITE/tabs')").await.expect_success();
    let seen = fixture
        .act(&format!("click('{}')", seen.element_id("link 'Open'")))
        .await
        .expect_success();
    seen.has("A tab was opened.")
        .has("* 1: ")
        .has("Title: Second");
    assert_eq!(
        (seen.page.open_pages_urls.len(), seen.page.active_page_index),
        (2, 1)
    );
    let seen = fixture.act("tab_focus(0)").await.expect_success();
    seen.has("* 0: ").has("link 'Open'");
    let seen = fixture
        .act("new_tab()\ngoto('SITE/second')")
        .await
        .expect_success();
    assert_eq!(
        (seen.page.open_pages_urls.len(), seen.page.active_page_index),
        (3, 2)
    );
    let seen = fixture
        .act("tab_close()\ntab_close()\ntab_close()")
        .await
        .expect_success();
    assert_eq!(seen.page.open_pages_urls, ["about:blank"]);
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dialogs_are_dismissed_and_reported() {
    let Some(fixture) = BrowserFixture::new().await else {
        return;
    };
    let seen = fixture.act("goto('SITE/dialogs')").await.expect_success();
    let seen = fixture
        .act(&format!("click('{}')", seen.element_id("'Ask'")))
        .await
        .expect_success();
    seen.has("a dialog (alert), which was dismissed: Be warned")
        .has("(confirm), which was dismissed: Sure?");
    seen.has("button 'false'");
    let seen = fixture.act("goto('SITE/second')").await.expect_success();
    seen.has("The page asked whether to leave it, which was confirmed.")
        .has("Title: Second");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_drags_and_frames_work_and_downloads_are_refused() {
    let Some(fixture) = BrowserFixture::new().await else {
        return;
    };
    let seen = fixture.act("goto('SITE/upload')").await.expect_success();
    fixture.run("printf content >letter.txt").await;
    let seen = fixture
        .act(&format!(
            "upload_file('{}', 'letter.txt')",
            seen.element_id("file")
        ))
        .await
        .expect_success();
    seen.has("Title: letter.txt content");

    let seen = fixture.act("goto('SITE/download')").await.expect_success();
    let seen = fixture
        .act(&format!("click('{}')", seen.element_id("'Fetch'")))
        .await;
    seen.has("A download of ").has("link 'Fetch'");

    let seen = fixture.act("goto('SITE/drag')").await.expect_success();
    let drag = format!(
        "drag_and_drop('{}', '{}')",
        seen.element_id("'Piece'"),
        seen.element_id("'Place'")
    );
    fixture
        .act(&drag)
        .await
        .expect_success()
        .has("Title: dropped piece");

    let seen = fixture.act("goto('SITE/frames')").await.expect_success();
    seen.has("Iframe").has("'Shadowed'");
    fixture
        .act(&format!("click('{}')", seen.element_id("'Inside'")))
        .await
        .expect_success()
        .has("button '7'");
    fixture.end().await;
}

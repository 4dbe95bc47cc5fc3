//! A real browser in a real sandbox, and pages that are served here.

mod conversation;
mod ends;
mod hostile;
mod pages;
mod places;
mod scene;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use scene::Scene;

#[tokio::test(flavor = "multi_thread")]
async fn page_is_opened_and_observed_in_v0_s_format() {
    let scene = Scene::new().await;
    let seen = scene.browse("form").await.well();
    let page = &seen.page;
    assert_eq!(page.url, format!("{}/form", scene.site));
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
    let picture = page.screenshot.strip_prefix("data:image/jpeg;base64,").unwrap();
    let picture = STANDARD.decode(picture).unwrap();
    assert_eq!(jpeg_size(&picture), (1280, 720));
    assert!(picture.len() < 300_000, "{}", picture.len());
    let own = scene.run("ls ${TMPDIR:-/tmp}/glovebox-browser-*/profile").await;
    assert!(own.contains("org.chromium.Chromium"), "its temporary files go with it: {own}");
    scene.end().await;
}

/// Width and height, as the frame's header says.
fn jpeg_size(picture: &[u8]) -> (u16, u16) {
    assert!(picture.starts_with(&[0xff, 0xd8]) && picture.ends_with(&[0xff, 0xd9]), "a whole JPEG");
    let mut at = 2;
    loop {
        let [0xff, marker, high, low, ..] = picture[at..] else { panic!("no marker at {at}") };
        if matches!(marker, 0xc0..=0xc2) {
            let number = |at: usize| u16::from_be_bytes([picture[at], picture[at + 1]]);
            return (number(at + 7), number(at + 5));
        }
        at += 2 + usize::from(u16::from_be_bytes([high, low]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn form_is_filled_in_and_submitted() {
    let scene = Scene::new().await;
    let seen = scene.act("goto('SITE/form')").await.well();
    let [nick, color, agree] = ["'Nick'", "'Colour'", "checkbox"].map(|part| seen.id_of(part));
    let [day, story, send] = ["'Day'", "'Story'", "'Send'"].map(|part| seen.id_of(part));
    let calls = format!(
        "fill('{nick}', 'Zoë \\'Z\\'')\nselect_option('{color}', 'Blue')\nclick('{agree}')\nfill('{day}', '2024-02-29')\n\
         fill('{story}', 'upon a time')\nclick('{send}')"
    );
    let seen = scene.act(&calls).await.well();
    seen.has("StaticText 'Zoë \\'Z\\'|b|true|2024-02-29'").has("StaticText 'upon a time'");
    seen.has("checkbox 'Agree', checked");
    assert_eq!(seen.page.focused_element_bid, send);
    assert_eq!(seen.page.last_browser_action, calls);
    assert_eq!(seen.id_of("'Nick'"), nick, "an element keeps its id");

    let seen = scene.act(&format!("clear('{nick}')\nfocus('{nick}')")).await.well();
    seen.has("textbox 'Nick', focused\n");
    let keys = seen.id_of("'Keys'");
    let seen = scene
        .act(&format!("press('{keys}', 'a')\npress('{keys}', 'Control+b')\nkeyboard_press('ArrowDown')"))
        .await
        .well();
    seen.has("StaticText 'a b! ArrowDown'").has("'Keys', focused, value='a'");

    let poke = seen.id_of("generic '', clickable");
    for (call, told) in
        [("click('P')", "poked"), ("dblclick('P')", "twice"), ("click('P', 'right')", "right")]
    {
        scene.act(&call.replace('P', &poke)).await.well().has(&format!("StaticText '{told}'"));
    }
    scene.act(&format!("hover('{send}')\nhover('{poke}')")).await.well().has("Title: over");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn error_is_one_sentence_and_page_stays_when_a_call_fails() {
    let scene = Scene::new().await;
    let seen = scene.act("goto('SITE/form')").await.well();
    let (send, color, never) = (seen.id_of("'Send'"), seen.id_of("'Colour'"), seen.id_of("'Never'"));
    for (calls, sentence) in [
        ("click(".to_owned(), "line 1: expected a text in quotes, a number or a list, found the end"),
        ("click('999')".to_owned(), "click: there is no element 999 in what was told last"),
        (format!("noop(1)\nfill('{send}', 'x')\nnoop(1)"), "call 2 of 3, fill: the element"),
        (format!("fill('{never}', 'x')"), "cannot be edited"),
        (format!("select_option('{color}', 'Pink')"), "there is no option Pink"),
        (format!("press('{send}', 'Entre')"), "\"Entre\" is no key"),
        (format!("upload_file('{send}', '/nowhere')"), "there is no file /nowhere"),
        ("tab_focus(3)".to_owned(), "there is no tab 3: there are 1, from 0"),
        ("go_forward()".to_owned(), "there is no such page"),
        ("goto('http://127.0.0.1:1/')".to_owned(), "cannot be opened: net::ERR_"),
    ] {
        let seen = scene.act(&calls).await;
        seen.failed(sentence).has("The action failed: ");
        if !calls.starts_with("goto") {
            seen.has("heading 'Sign up'");
        }
    }
    scene.act("send_msg_to_user('Hello.')").await.well().has("The message was sent to the user.");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_scrolled_and_revisited() {
    let scene = Scene::new().await;
    let seen = scene.act("goto('SITE/long')").await.well();
    seen.has("In sight: 0 to 720 of ");
    scene.act("scroll(0, 500)").await.well().has("In sight: 500 to 1220 of ");
    let bottom = seen.id_of("'Bottom'");
    scene.act(&format!("click('{bottom}')")).await.well().has("'Bottom', focused");
    scene.act("goto('SITE/second')").await.well().has("Title: Second");
    scene.act("go_back()").await.well().has("heading 'Top'");
    let seen = scene.act("go_forward()").await.well();
    seen.has("The second page");
    assert_eq!(seen.page.url, format!("{}/second", scene.site));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tabs_are_opened_selected_and_closed() {
    let scene = Scene::new().await;
    let seen = scene.act("goto('SITE/tabs')").await.well();
    let seen = scene.act(&format!("click('{}')", seen.id_of("link 'Open'"))).await.well();
    seen.has("A tab was opened.").has("* 1: ").has("Title: Second");
    assert_eq!((seen.page.open_pages_urls.len(), seen.page.active_page_index), (2, 1));
    let seen = scene.act("tab_focus(0)").await.well();
    seen.has("* 0: ").has("link 'Open'");
    let seen = scene.act("new_tab()\ngoto('SITE/second')").await.well();
    assert_eq!((seen.page.open_pages_urls.len(), seen.page.active_page_index), (3, 2));
    let seen = scene.act("tab_close()\ntab_close()\ntab_close()").await.well();
    assert_eq!(seen.page.open_pages_urls, ["about:blank"]);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dialogs_are_dismissed_and_reported() {
    let scene = Scene::new().await;
    let seen = scene.act("goto('SITE/dialogs')").await.well();
    let seen = scene.act(&format!("click('{}')", seen.id_of("'Ask'"))).await.well();
    seen.has("a dialog (alert), which was dismissed: Be warned").has("(confirm), which was dismissed: Sure?");
    seen.has("button 'false'");
    let seen = scene.act("goto('SITE/second')").await.well();
    seen.has("The page asked whether to leave it: yes.").has("Title: Second");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_drags_and_frames_work_and_downloads_are_refused() {
    let scene = Scene::new().await;
    let seen = scene.act("goto('SITE/upload')").await.well();
    scene.run("printf content >letter.txt").await;
    let seen = scene.act(&format!("upload_file('{}', 'letter.txt')", seen.id_of("file"))).await.well();
    seen.has("Title: letter.txt content");

    let seen = scene.act("goto('SITE/download')").await.well();
    let seen = scene.act(&format!("click('{}')", seen.id_of("'Fetch'"))).await;
    seen.has("A download of ").has("link 'Fetch'");

    let seen = scene.act("goto('SITE/drag')").await.well();
    let drag = format!("drag_and_drop('{}', '{}')", seen.id_of("'Piece'"), seen.id_of("'Place'"));
    scene.act(&drag).await.well().has("Title: dropped piece");

    let seen = scene.act("goto('SITE/frames')").await.well();
    seen.has("Iframe").has("'Shadowed'");
    scene.act(&format!("click('{}')", seen.id_of("'Inside'"))).await.well().has("button '7'");
    scene.end().await;
}

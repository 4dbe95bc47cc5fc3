//! Hostile pages: huge, endless or deceptive.

use std::time::{Duration, Instant};

use super::fixture::{BrowserFixture, interactive};

/// Maximum bytes of an observation.
const MAX_OBSERVATION_BYTES: usize = 60_000;

#[tokio::test(flavor = "multi_thread")]
async fn observation_is_bounded_for_pages_of_any_size() {
    let Some(fixture) = BrowserFixture::new().await else {
        return;
    };
    for (page, part) in [
        ("many-nodes", "heading 'Many'"),
        ("deep", "heading 'Deep'"),
        ("long-title", "heading 'Titled'"),
        ("long-text", "heading 'Long'"),
        ("long-names", "button 'nnn"),
        ("many-dialogs", "more notes are omitted."),
    ] {
        let started = Instant::now();
        let seen = fixture
            .act(&format!("goto('SITE/{page}')"))
            .await
            .expect_success();
        seen.has(part);
        assert!(
            seen.text.len() < MAX_OBSERVATION_BYTES,
            "{page}: {}",
            seen.text.len()
        );
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "{page}: {:?}",
            started.elapsed()
        );
    }
    // The page may crash Chromium.
    let seen = fixture.act("goto('SITE/longest-text')").await;
    assert!(
        seen.text.contains("heading 'Long'") || seen.page.error,
        "{}",
        seen.text
    );
    assert!(seen.text.len() < MAX_OBSERVATION_BYTES);
    fixture
        .act("goto('SITE/many-nodes')")
        .await
        .has("The page is too large to be described as a whole");
    fixture
        .act("scroll(0, 1000)")
        .await
        .expect_success()
        .has("Content above the viewport is omitted.");

    let seen = fixture.act("goto('SITE/many-tabs')").await.expect_success();
    let seen = fixture
        .act(&format!("click('{}')", seen.element_id("'More'")))
        .await;
    assert!(
        seen.page.open_pages_urls.len() <= 20,
        "{:?}",
        seen.page.open_pages_urls
    );
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_scripts_cannot_falsify_the_observation() {
    let Some(fixture) = BrowserFixture::new().await else {
        return;
    };
    let seen = fixture.act("goto('SITE/liar')").await.expect_success();
    assert!(!seen.text.contains("lies"), "{}", seen.text);
    fixture
        .act(&format!("click('{}')", seen.element_id("button 'True'")))
        .await
        .expect_success()
        .has("Title: 1");
    let seen = fixture.act("goto('SITE/hidden')").await.expect_success();
    seen.has("StaticText 'seen'").has("value='•••••'");
    for hidden in ["one", "two", "three", "four", "five", "six", "seven"] {
        assert!(!seen.text.contains(hidden), "{hidden} in {}", seen.text);
    }
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_is_observed_when_it_never_finishes_loading() {
    let Some(fixture) = BrowserFixture::new().await else {
        return;
    };
    let seen = fixture.act("goto('SITE/endless')").await.expect_success();
    seen.has("has not finished loading after 30 seconds")
        .has("heading 'started'");
    let request = interactive(&format!("goto('{}/silent')", fixture.site), 3.0);
    let started = Instant::now();
    let observed = fixture.perform(fixture.next_id(), &request).await.unwrap();
    assert!(
        observed.content.contains("it took longer than 3 seconds"),
        "{}",
        observed.content
    );
    assert!(started.elapsed() < Duration::from_secs(20));
    fixture
        .act("goto('SITE/second')")
        .await
        .expect_success()
        .has("Title: Second");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn action_times_out_when_a_page_script_never_ends() {
    let Some(fixture) = BrowserFixture::new().await else {
        return;
    };
    let seen = fixture.act("goto('SITE/busy')").await.expect_success();
    let request = interactive(&format!("click('{}')", seen.element_id("'Spin'")), 5.0);
    let started = Instant::now();
    let observed = fixture.perform(fixture.next_id(), &request).await.unwrap();
    assert!(
        observed.content.contains("it took longer than 5 seconds"),
        "{}",
        observed.content
    );
    assert!(
        started.elapsed() < Duration::from_secs(60),
        "{:?}",
        started.elapsed()
    );
    fixture
        .act("goto('SITE/loaded-busy')")
        .await
        .has("interrupted");
    fixture
        .act("goto('SITE/second')")
        .await
        .expect_success()
        .has("Title: Second");
    fixture.end().await;
}

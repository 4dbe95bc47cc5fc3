//! Pages that would rather not be looked at.

use std::time::{Duration, Instant};

use super::scene::{Scene, interactive};

/// What is told of any page, in bytes: what the model can read.
const LONGEST_OBSERVATION: usize = 60_000;

#[tokio::test(flavor = "multi_thread")]
async fn observation_is_bounded_for_pages_of_any_size() {
    let scene = Scene::new().await;
    for (page, part) in [
        ("many-nodes", "heading 'Many'"),
        ("deep", "heading 'Deep'"),
        ("long-title", "heading 'Titled'"),
        ("long-text", "heading 'Long'"),
        ("long-names", "button 'nnn"),
        ("many-dialogs", "more of such are left out."),
    ] {
        let begun = Instant::now();
        let seen = scene.act(&format!("goto('SITE/{page}')")).await.well();
        seen.has(part);
        assert!(seen.text.len() < LONGEST_OBSERVATION, "{page}: {}", seen.text.len());
        assert!(begun.elapsed() < Duration::from_secs(60), "{page}: {:?}", begun.elapsed());
    }
    // It may be more than Chromium itself can bear.
    let seen = scene.act("goto('SITE/longest-text')").await;
    assert!(seen.text.contains("heading 'Long'") || seen.page.error, "{}", seen.text);
    assert!(seen.text.len() < LONGEST_OBSERVATION);
    scene.act("goto('SITE/many-nodes')").await.has("The page is too large to be described as a whole");
    scene.act("scroll(0, 1000)").await.well().has("What is above the window is left out.");

    let seen = scene.act("goto('SITE/many-tabs')").await.well();
    let seen = scene.act(&format!("click('{}')", seen.id_of("'More'"))).await;
    assert!(seen.page.open_pages_urls.len() <= 20, "{:?}", seen.page.open_pages_urls);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_scripts_cannot_falsify_the_observation() {
    let scene = Scene::new().await;
    let seen = scene.act("goto('SITE/liar')").await.well();
    assert!(!seen.text.contains("lies"), "{}", seen.text);
    scene.act(&format!("click('{}')", seen.id_of("button 'True'"))).await.well().has("Title: 1");
    let seen = scene.act("goto('SITE/hidden')").await.well();
    seen.has("StaticText 'seen'").has("value='•••••'");
    for hidden in ["one", "two", "three", "four", "five", "six", "seven"] {
        assert!(!seen.text.contains(hidden), "{hidden} in {}", seen.text);
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_is_observed_when_it_never_finishes_loading() {
    let scene = Scene::new().await;
    let seen = scene.act("goto('SITE/endless')").await.well();
    seen.has("has not finished loading after 30 seconds").has("heading 'begun'");
    let request = interactive(&format!("goto('{}/silent')", scene.site), 3.0);
    let begun = Instant::now();
    let observed = scene.perform(scene.next_id(), &request).await.unwrap();
    assert!(observed.content.contains("it took longer than 3 seconds"), "{}", observed.content);
    assert!(begun.elapsed() < Duration::from_secs(20));
    scene.act("goto('SITE/second')").await.well().has("Title: Second");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn action_times_out_when_a_page_script_never_ends() {
    let scene = Scene::new().await;
    let seen = scene.act("goto('SITE/busy')").await.well();
    let request = interactive(&format!("click('{}')", seen.id_of("'Spin'")), 5.0);
    let begun = Instant::now();
    let observed = scene.perform(scene.next_id(), &request).await.unwrap();
    assert!(observed.content.contains("it took longer than 5 seconds"), "{}", observed.content);
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    scene.act("goto('SITE/loaded-busy')").await.has("interrupted");
    scene.act("goto('SITE/second')").await.well().has("Title: Second");
    scene.end().await;
}

//! Crashes, of pages, of the browser and of the host; and what is cancelled.

use std::sync::Arc;
use std::time::Duration;

use protocol::ObservationKind;
use tests::sandbox_contract::faults::FaultInjection as _;

use super::scene::{Scene, interactive};

/// Kills the sandbox's browser, or a page of it.
fn kill(pattern: &str) -> String {
    format!("for p in $(pgrep -f {pattern}); do kill -9 $p; done")
}

impl Scene {
    /// The processes of this sandbox's browser have its folder among their arguments.
    fn profile(&self) -> String {
        format!("glovebox-browse[r]-{}/profile", self.sandbox.lease().boot_id)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn page_crash_is_reported_and_another_page_opens() {
    let scene = Scene::new().await;
    scene.act("goto('SITE/form')").await.well();
    let seen = scene.act("goto('chrome://crash')").await;
    seen.failed("is not a page");
    scene.run(&kill(&format!("'type=rendere[r].*{}'", scene.profile()))).await;
    let seen = scene.act("noop(100)").await;
    seen.has("has crashed");
    scene.act("goto('SITE/second')").await.well().has("Title: Second");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn browser_is_restarted_and_agent_notified_when_killed() {
    let scene = Scene::new().await;
    scene.act("goto('SITE/form')").await.well();
    scene.run(&kill(&scene.profile())).await;
    let seen = scene.act("noop(1)").await.well();
    seen.has("The browser had ended. This is a new one");
    assert_eq!(seen.page.url, "about:blank");
    // And in the middle of an action.
    let killing = async {
        scene.arrival().await;
        scene.run(&kill(&scene.profile())).await
    };
    let (seen, _) = tokio::join!(scene.act("goto('SITE/arrived')\nnoop(60000)"), killing);
    seen.failed("the browser has ended, or the connection to it; the next action");
    scene.act("goto('SITE/second')").await.well().has("Title: Second");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_is_found_and_no_call_repeated_when_host_restarts() {
    let mut scene = Scene::new().await;
    let seen = scene.act("goto('SITE/form')").await.well();
    let poke = seen.id_of("generic '', clickable");
    let again = scene.next_id();
    let request = interactive(&format!("click('{poke}')\nnoop(60000)"), 60.0);
    let sandbox = Arc::clone(&scene.sandbox);
    let (id, asked) = (again.clone(), request.clone());
    let first = tokio::spawn(async move { sandbox.execute(&id, &asked, &|_| {}).await });
    scene.arrival().await;
    // As a killed host: its tasks end without a word.
    first.abort();
    scene.backend.cut_connection(&scene.sandbox.lease().sandbox_id).await;
    scene.start_anew().await;
    let observed = scene.perform(again, &request).await.unwrap();
    assert!(observed.content.contains("what came of it is not known"), "{}", observed.content);
    assert!(observed.content.contains("StaticText 'poked'"), "{}", observed.content);
    let seen = scene.act("noop(1)").await.well();
    seen.has("heading 'Sign up'").has("StaticText 'poked'");
    scene
        .act(&format!("click('{}', 'right')", seen.id_of("generic '', clickable")))
        .await
        .well()
        .has("'right'");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_of_a_killed_host_receives_no_responses() {
    let mut scene = Scene::new().await;
    scene.act("goto('SITE/form')").await.well();
    // A killed host ends no program: its link stays open, and still reads.
    let left = Arc::clone(&scene.sandbox);
    scene.start_anew().await;
    scene.act("noop(1)").await.well().has("heading 'Sign up'");
    drop(left);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_stays_open_when_the_connection_breaks() {
    let scene = Scene::new().await;
    scene.act("goto('SITE/form')").await.well();
    assert!(scene.backend.cut_connection(&scene.sandbox.lease().sandbox_id).await > 0);
    scene.act("noop(1)").await.well().has("heading 'Sign up'");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_browser_action_ends_immediately() {
    let scene = Scene::new().await;
    scene.act("goto('SITE/form')").await.well();
    let id = scene.next_id();
    let request = interactive(&format!("goto('{}/arrived')\nnoop(60000)", scene.site), 60.0);
    let begun = std::time::Instant::now();
    let cancelling = async {
        scene.arrival().await;
        scene.sandbox.cancel(&id).await.unwrap();
    };
    let (observed, ()) = tokio::join!(scene.perform(id.clone(), &request), cancelling);
    let observed = observed.unwrap();
    assert!(observed.content.contains("it was cancelled"), "{observed:?}");
    assert!(matches!(&observed.kind, ObservationKind::Browse(page) if page.error));
    assert!(begun.elapsed() < Duration::from_secs(10));
    // Who asks again for the latest one hears the same.
    assert_eq!(scene.perform(id, &request).await.unwrap(), observed);
    scene.act("goto('SITE/second')").await.well().has("Title: Second");
    scene.end().await;
}

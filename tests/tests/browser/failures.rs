//! Crashes of pages, of the browser and of the host; cancelled actions.

use std::sync::Arc;
use std::time::Duration;

use protocol::ObservationKind;
use tests::sandbox_contract::faults::FaultInjection as _;

use super::fixture::{BrowserFixture, interactive};
use crate::skip::skip_without;

/// Returns a command that kills the sandbox's browser or one of its pages.
fn kill(pattern: &str) -> String {
    format!("for p in $(pgrep -f {pattern}); do kill -9 $p; done")
}

impl BrowserFixture {
    /// Returns the profile folder, which is an argument of each process of this sandbox's browser.
    fn profile(&self) -> String {
        format!(
            "glovebox-browse[r]-{}/profile",
            self.sandbox.lease().boot_id
        )
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn page_crash_is_reported_and_another_page_opens() {
    if skip_without("pgrep") {
        return;
    }
    let Some(fixture) = BrowserFixture::new().await else {
        return;
    };
    fixture.act("goto('SITE/form')").await.expect_success();
    let seen = fixture.act("goto('chrome://crash')").await;
    seen.failed("is not a page");
    fixture
        .run(&kill(&format!("'type=rendere[r].*{}'", fixture.profile())))
        .await;
    let seen = fixture.act("noop(100)").await;
    seen.has("has crashed");
    fixture
        .act("goto('SITE/second')")
        .await
        .expect_success()
        .has("Title: Second");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn browser_is_restarted_and_agent_notified_when_killed() {
    if skip_without("pgrep") {
        return;
    }
    let Some(fixture) = BrowserFixture::new().await else {
        return;
    };
    fixture.act("goto('SITE/form')").await.expect_success();
    fixture.run(&kill(&fixture.profile())).await;
    let seen = fixture.act("noop(1)").await.expect_success();
    seen.has("The browser had exited. This is a new one");
    assert_eq!(seen.page.url, "about:blank");
    // During an action.
    let killing = async {
        fixture.arrival().await;
        fixture.run(&kill(&fixture.profile())).await
    };
    let (seen, _) = tokio::join!(fixture.act("goto('SITE/arrived')\nnoop(60000)"), killing);
    seen.failed("the browser has exited, or the connection to it is lost; the next action");
    fixture
        .act("goto('SITE/second')")
        .await
        .expect_success()
        .has("Title: Second");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_is_found_and_no_call_repeated_when_host_restarts() {
    let Some(mut fixture) = BrowserFixture::new().await else {
        return;
    };
    let seen = fixture.act("goto('SITE/form')").await.expect_success();
    let poke = seen.element_id("generic '', clickable");
    let again = fixture.next_id();
    let request = interactive(&format!("click('{poke}')\nnoop(60000)"), 60.0);
    let sandbox = Arc::clone(&fixture.sandbox);
    let (id, asked) = (again.clone(), request.clone());
    let first = tokio::spawn(async move { sandbox.execute(&id, &asked, &|_| {}).await });
    fixture.arrival().await;
    // Aborts the tasks as a killed host would.
    first.abort();
    fixture
        .backend
        .cut_connection(&fixture.sandbox.lease().sandbox_id)
        .await;
    fixture.restart_host().await;
    let observed = fixture.perform(again, &request).await.unwrap();
    assert!(
        observed.content.contains("its result is unknown"),
        "{}",
        observed.content
    );
    assert!(
        observed.content.contains("StaticText 'poked'"),
        "{}",
        observed.content
    );
    let seen = fixture.act("noop(1)").await.expect_success();
    seen.has("heading 'Sign up'").has("StaticText 'poked'");
    fixture
        .act(&format!(
            "click('{}', 'right')",
            seen.element_id("generic '', clickable")
        ))
        .await
        .expect_success()
        .has("'right'");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_of_a_killed_host_receives_no_responses() {
    let Some(mut fixture) = BrowserFixture::new().await else {
        return;
    };
    fixture.act("goto('SITE/form')").await.expect_success();
    // The program that a killed host started continues to read from its connection.
    let left = Arc::clone(&fixture.sandbox);
    fixture.restart_host().await;
    fixture
        .act("noop(1)")
        .await
        .expect_success()
        .has("heading 'Sign up'");
    drop(left);
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_stays_open_when_the_connection_breaks() {
    let Some(fixture) = BrowserFixture::new().await else {
        return;
    };
    fixture.act("goto('SITE/form')").await.expect_success();
    assert!(
        fixture
            .backend
            .cut_connection(&fixture.sandbox.lease().sandbox_id)
            .await
            > 0
    );
    fixture
        .act("noop(1)")
        .await
        .expect_success()
        .has("heading 'Sign up'");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_browser_action_ends_immediately() {
    let Some(fixture) = BrowserFixture::new().await else {
        return;
    };
    fixture.act("goto('SITE/form')").await.expect_success();
    let id = fixture.next_id();
    let request = interactive(
        &format!("goto('{}/arrived')\nnoop(60000)", fixture.site),
        60.0,
    );
    let started = std::time::Instant::now();
    let cancelling = async {
        fixture.arrival().await;
        fixture.sandbox.cancel(&id).await.unwrap();
    };
    let (observed, ()) = tokio::join!(fixture.perform(id.clone(), &request), cancelling);
    let observed = observed.unwrap();
    assert!(
        observed.content.contains("it was cancelled"),
        "{observed:?}"
    );
    assert!(matches!(&observed.kind, ObservationKind::Browse(page) if page.error));
    assert!(started.elapsed() < Duration::from_secs(10));
    // A repeated request for the latest action returns the same result.
    assert_eq!(fixture.perform(id, &request).await.unwrap(), observed);
    fixture
        .act("goto('SITE/second')")
        .await
        .expect_success()
        .has("Title: Second");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mouse_is_released_when_a_drag_is_cancelled() {
    let Some(fixture) = BrowserFixture::new().await else {
        return;
    };
    let seen = fixture.act("goto('SITE/sticky')").await.expect_success();
    let id = fixture.next_id();
    let drag = format!(
        "drag_and_drop('{}', '{}')",
        seen.element_id("'Piece'"),
        seen.element_id("'Place'")
    );
    let request = interactive(&drag, 60.0);
    let cancelling = async {
        fixture.arrival().await;
        fixture.sandbox.cancel(&id).await.unwrap();
    };
    let (observed, ()) = tokio::join!(fixture.perform(id.clone(), &request), cancelling);
    assert!(observed.unwrap().content.contains("it was cancelled"));
    // Interrupts the script of the page.
    fixture
        .act("noop(1)")
        .await
        .expect_success()
        .has("Title: released");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn action_can_be_cancelled_until_its_last_caller_ends() {
    let Some(fixture) = BrowserFixture::new().await else {
        return;
    };
    let id = fixture.next_id();
    let request = interactive(
        &format!("goto('{}/arrived')\nnoop(60000)", fixture.site),
        120.0,
    );
    let (sandbox, first_id, asked) = (Arc::clone(&fixture.sandbox), id.clone(), request.clone());
    let first = tokio::spawn(async move { sandbox.execute(&first_id, &asked, &|_| {}).await });
    fixture.arrival().await;
    let cancelling = async {
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        fixture.sandbox.cancel(&id).await.unwrap();
    };
    let (observed, ()) = tokio::join!(fixture.perform(id.clone(), &request), cancelling);
    assert!(observed.unwrap().content.contains("it was cancelled"));
    fixture.end().await;
}

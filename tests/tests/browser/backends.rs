//! The browser in sandboxes on a remote host and in isolated ones.

use protocol::sandbox_api::ActionRequest;
use sandbox_local::IsolationKind;
use serde_json::json;
use tests::sandbox_contract::local::LocalBackend;
use tests::sandbox_contract::ssh::SshBackend;

use super::fixture::BrowserFixture;
use crate::pypi::packages;

#[tokio::test(flavor = "multi_thread")]
async fn page_on_a_remote_loopback_is_browsed_over_ssh() {
    let Some(backend) = SshBackend::new() else {
        return;
    };
    let Some(fixture) = BrowserFixture::with_backend(backend).await else {
        return;
    };
    let seen = fixture.browse("form").await.expect_success();
    let poke = seen
        .has("Title: A form")
        .element_id("generic '', clickable");
    fixture
        .act(&format!("click('{poke}')"))
        .await
        .expect_success()
        .has("StaticText 'poked'");
    fixture.end().await;
}

/// The browser and the IPython kernel find their files inside the isolation.
#[tokio::test(flavor = "multi_thread")]
async fn browser_and_ipython_read_the_workspace_under_landlock() {
    let Some(backend) = LocalBackend::isolated(IsolationKind::Landlock).await else {
        return;
    };
    let Some(fixture) = BrowserFixture::with_backend(backend).await else {
        return;
    };
    let page = "<title>Of the workspace</title><button>Go</button>";
    fixture.run(&format!("echo '{page}' > page.html")).await;
    let folder = &fixture.sandbox.lease().working_dir;
    let seen = fixture
        .act(&format!("goto('file://{folder}/page.html')"))
        .await
        .expect_success();
    seen.has("Title: Of the workspace").has("button 'Go'");
    if let Some(packages) = packages("ipython", include_str!("../../ipython.txt"), &[]) {
        // The sandbox sees the workspace, but not necessarily this repository.
        let copying = std::process::Command::new("cp")
            .arg("-r")
            .arg(packages)
            .arg(folder)
            .status()
            .unwrap();
        assert!(copying.success());
        let code = format!("open('{folder}/page.html').read().count('button')");
        let cell = json!({"action": "run_ipython", "args": {"code": code}, "timeout": 60.0});
        let cell: ActionRequest = serde_json::from_value(cell).unwrap();
        let environment = [("PYTHONPATH".to_owned(), format!("{folder}/ipython"))].into();
        fixture
            .sandbox
            .processes()
            .unwrap()
            .set_environment(&environment)
            .await
            .unwrap();
        let observation = fixture.perform(fixture.next_id(), &cell).await.unwrap();
        assert!(
            observation.content.starts_with("2\n[Jupyter current"),
            "{observation:?}"
        );
    }
    fixture.end().await;
}

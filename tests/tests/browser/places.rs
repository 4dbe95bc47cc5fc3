//! The browser where sandboxes are not ordinary: on another machine, and isolated on this one.

use protocol::sandbox_api::ActionRequest;
use sandbox::IsolationKind;
use serde_json::json;
use tests::sandbox_contract::local::Local;
use tests::sandbox_contract::ssh::Ssh;

use super::scene::Scene;
use crate::pypi::packages;

#[tokio::test(flavor = "multi_thread")]
async fn page_on_a_remote_loopback_is_browsed_over_ssh() {
    let Some(backend) = Ssh::new() else { return };
    let scene = Scene::on(backend).await;
    let seen = scene.browse("form").await.well();
    let poke = seen.has("Title: A form").id_of("generic '', clickable");
    scene.act(&format!("click('{poke}')")).await.well().has("StaticText 'poked'");
    scene.end().await;
}

/// The browser and the kernel of cells find what they need in what a sandbox sees.
#[tokio::test(flavor = "multi_thread")]
async fn browser_and_ipython_read_the_workspace_under_landlock() {
    let Some(backend) = Local::isolated(IsolationKind::Landlock).await else { return };
    let scene = Scene::on(backend).await;
    let page = "<title>Of the workspace</title><button>Go</button>";
    scene.run(&format!("echo '{page}' > page.html")).await;
    let folder = &scene.sandbox.lease().working_dir;
    let seen = scene.act(&format!("goto('file://{folder}/page.html')")).await.well();
    seen.has("Title: Of the workspace").has("button 'Go'");
    if let Some(packages) = packages("ipython", include_str!("../../ipython.txt"), &[]) {
        // In the workspace a sandbox sees them, wherever this repository lies.
        let copying = std::process::Command::new("cp").arg("-r").arg(packages).arg(folder).status().unwrap();
        assert!(copying.success());
        let code = format!("open('{folder}/page.html').read().count('button')");
        let cell = json!({"action": "run_ipython", "args": {"code": code}, "timeout": 60.0});
        let cell: ActionRequest = serde_json::from_value(cell).unwrap();
        let environment = [("PYTHONPATH".to_owned(), format!("{folder}/ipython"))].into();
        scene.sandbox.processes().unwrap().set_environment(&environment).await.unwrap();
        let told = scene.perform(scene.next_id(), &cell).await.unwrap();
        assert!(told.content.starts_with("2\n[Jupyter current"), "{told:?}");
    }
    scene.end().await;
}

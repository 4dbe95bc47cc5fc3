//! Host programs killed with many sandboxes open: some conversations are resumed, and a sweep
//! removes the sandboxes of the others.

use std::collections::BTreeSet;
use std::future::ready;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use engine::sandbox::{SandboxProvider, sweep};
use protocol::ConversationId;
use sandbox_client::HostSecret;
use sandbox_docker::{DockerConfig, DockerProvider};
use sandbox_local::{CONTROL_GROUPS, IsolationChoice, LocalConfig, LocalProvider};
use serde_json::json;
use tests::glovebox::{Home, RunningProgram, bash, finish, wait_until};
use tests::sandbox_contract::docker::DockerBackend;
use tests::sandbox_contract::{Backend as _, embedded_server};

const OPEN: usize = 20;
const RESUMED: usize = 3;

/// Runs until the file `go` exists. Prints often enough to avoid the silence timeout.
const WAITING: &str =
    "echo run >> counter; while [ ! -e go ]; do echo waiting; sleep 0.2; done; echo the end";

fn secret(home: &Home) -> HostSecret {
    let bytes = std::fs::read(home.path().join(".glovebox/secret")).unwrap();
    HostSecret::new(bytes.try_into().unwrap())
}

/// Returns the provider that the program in this home uses.
fn local(home: &Home) -> Box<dyn SandboxProvider> {
    let state_dir = home.path().join(".glovebox");
    Box::new(LocalProvider::new(LocalConfig {
        server: embedded_server(state_dir.join("bin")),
        state_dir,
        secret: secret(home),
        environment: Vec::new(),
        idle_timeout: Duration::from_secs(60),
        isolation: IsolationChoice::Unsafe,
        network: true,
        hidden: Vec::new(),
        launcher: "/nowhere".into(),
        bubblewrap: Vec::new(),
        control_groups: CONTROL_GROUPS.into(),
        runtime_dir: None,
        user: None,
        probes: Arc::default(),
    }))
}

fn docker(home: &Home) -> Box<dyn SandboxProvider> {
    let server = embedded_server(home.path().join(".glovebox/bin"));
    let secret = secret(home);
    let owner = secret.owner();
    let host = std::env::var("DOCKER_HOST").ok();
    Box::new(DockerProvider::new(DockerConfig {
        host,
        ..DockerConfig::new(server, secret, owner)
    }))
}

async fn many_are_swept_or_resumed(
    runtime: &[&str],
    provider: fn(&Home) -> Box<dyn SandboxProvider>,
) {
    let home = Home::new();
    let model = home.script(&json!([bash(WAITING), bash("echo after"), finish()]));
    let workspaces: Vec<_> = (0..OPEN)
        .map(|number| home.workspace().join(number.to_string()))
        .collect();
    let start = |workspace: &Path| -> RunningProgram {
        std::fs::create_dir(workspace).unwrap();
        let mut arguments = vec![
            "run",
            "--json",
            "-t",
            "work",
            "-l",
            &model,
            "-d",
            workspace.to_str().unwrap(),
        ];
        arguments.extend(runtime);
        home.start(&mut home.glovebox(&arguments))
    };
    let mut runs: Vec<RunningProgram> = workspaces
        .iter()
        .map(|workspace| start(workspace))
        .collect();
    let ids: Vec<String> = runs.iter_mut().map(RunningProgram::conversation).collect();
    for workspace in &workspaces {
        wait_until("the command runs", || workspace.join("counter").exists());
    }
    runs.into_iter().for_each(RunningProgram::kill);

    let provider = provider(&home);
    assert_eq!(
        provider.list().await.unwrap().len(),
        OPEN,
        "all sandboxes survive their hosts"
    );
    let used: BTreeSet<ConversationId> = ids[..RESUMED]
        .iter()
        .map(|id| id.parse().unwrap())
        .collect();
    let is_used = |summary: engine::sandbox::SandboxSummary| {
        ready(
            summary
                .conversation
                .is_some_and(|conversation| used.contains(&conversation)),
        )
    };
    let swept = sweep(&*provider, is_used).await.unwrap();
    let expected: BTreeSet<String> = ids[RESUMED..]
        .iter()
        .map(|id| format!("glovebox-{id}"))
        .collect();
    assert_eq!(
        swept
            .iter()
            .map(ToString::to_string)
            .collect::<BTreeSet<_>>(),
        expected
    );
    assert_eq!(provider.list().await.unwrap().len(), RESUMED);

    for (id, workspace) in ids.iter().zip(&workspaces).take(RESUMED) {
        std::fs::write(workspace.join("go"), "").unwrap();
        let resumed = home.run(&["resume", id, "--json"]).expect(0).events();
        let ended: Vec<_> = resumed
            .iter()
            .filter(|event| event["observation"] == "run")
            .collect();
        assert_eq!(ended.len(), 2, "{ended:?}");
        assert!(
            ended[0]["content"]
                .as_str()
                .unwrap()
                .trim_end()
                .ends_with("waiting\nthe end"),
            "{}",
            ended[0]
        );
        assert_eq!(
            std::fs::read_to_string(workspace.join("counter")).unwrap(),
            "run\n",
            "it ran once"
        );
    }
    assert_eq!(provider.list().await.unwrap(), []);
    home.assert_nothing_runs();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_sandboxes_are_swept_or_resumed_when_hosts_are_killed() {
    many_are_swept_or_resumed(&["--runtime", "local"], local).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn docker_sandboxes_are_swept_or_resumed_when_hosts_are_killed() {
    if let Some(backend) = DockerBackend::busybox() {
        let image = backend.image().unwrap();
        many_are_swept_or_resumed(&["--runtime", "docker", "--image", &image], docker).await;
    }
}

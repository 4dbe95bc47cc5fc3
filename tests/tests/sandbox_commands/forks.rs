//! `glovebox sandbox fork` and `snapshot`: no image remains without a request.

use engine::sandbox::{SandboxProvider as _, SnapshotPurpose};
use sandbox_client::HostSecret;
use sandbox_docker::{DockerConfig, DockerProvider};
use serde_json::Value;
use tests::sandbox_contract::docker::DockerBackend;

use super::{SandboxFixture, refused};

fn snapshots(fixture: &SandboxFixture) -> Vec<Value> {
    serde_json::from_str(
        &fixture
            .run(&["ls", "--snapshots", "--json"])
            .expect(0)
            .stdout,
    )
    .unwrap()
}

#[test]
fn fork_has_the_files_and_its_image_is_removed_with_it() {
    let Some(fixture) = SandboxFixture::docker() else {
        return;
    };
    let (name, fork) = (fixture.name(), format!("{}-fork", fixture.name()));
    fixture.exec(&["sh", "-c", "echo one > file"]).expect(0);
    refused(
        &fixture.run(&["fork", &name, &fork, "--env", "GLOVEBOX_NO_SUCH"]),
        2,
        "GLOVEBOX_NO_SUCH",
    );
    fixture
        .run(&["fork", &name, &fork, "--volume", "/no/such/folder:/x"])
        .expect(2);
    assert_eq!(
        snapshots(&fixture),
        Vec::<Value>::new(),
        "images of failed forks"
    );

    assert_eq!(
        fixture.run(&["fork", &name, &fork]).expect(0).stdout,
        format!("{fork}\n")
    );
    assert_eq!(
        fixture
            .run(&["exec", &fork, "--", "cat", "file"])
            .expect(0)
            .stdout,
        "one\n"
    );
    assert_eq!(snapshots(&fixture)[0]["fork"], fork);
    let table = fixture.run(&["ls", "--snapshots"]).expect(0).stdout;
    assert!(table.contains(&format!("for the fork {fork}")), "{table}");
    fixture.run(&["rm", &fork]).expect(0);
    assert_eq!(snapshots(&fixture), Vec::<Value>::new());
    fixture.end();
}

#[test]
fn snapshot_is_kept_until_it_is_removed_by_name() {
    let Some(fixture) = SandboxFixture::docker() else {
        return;
    };
    let image = fixture
        .run(&["snapshot", &fixture.name()])
        .expect(0)
        .stdout
        .trim()
        .to_owned();
    assert_eq!(
        (
            &snapshots(&fixture)[0]["image"],
            &snapshots(&fixture)[0]["fork"]
        ),
        (&image.clone().into(), &Value::Null)
    );
    assert_eq!(fixture.run(&["prune"]).expect(0).stdout, "");
    refused(
        &fixture.run(&["rm", "--snapshot", "no-such-image"]),
        2,
        "there is no snapshot no-such-image",
    );
    assert_eq!(
        fixture.run(&["rm", "--snapshot", &image]).expect(0).stdout,
        format!("{image}\n")
    );
    assert_eq!(snapshots(&fixture), Vec::<Value>::new());
    fixture.end();
}

#[test]
fn sandbox_is_created_from_a_snapshot_without_users() {
    let Some(fixture) = SandboxFixture::docker() else {
        return;
    };
    let (name, image) = (
        fixture.name(),
        format!("{}-image", fixture.name().to_lowercase()),
    );
    fixture
        .exec(&["sh", "-c", "echo one > file; rm /etc/passwd /etc/group"])
        .expect(0);
    fixture.run(&["snapshot", &name, &image]).expect(0);
    let (created, fork) = (format!("{name}-created"), format!("{name}-fork"));
    fixture
        .run(&["create", &created, "--image", &image])
        .expect(0);
    fixture.run(&["fork", &created, &fork]).expect(0);
    for sandbox in [&created, &fork] {
        let script = "cat file; id -u; ls /etc/passwd 2>&-; cd ~ && touch x && pwd";
        let ran = fixture
            .run(&["exec", sandbox, "--", "sh", "-c", script])
            .expect(0);
        assert_eq!(ran.stdout, "one\n0\n/.glovebox/home\n", "{ran:?}");
    }
    fixture.run(&["rm", &created, &fork]).expect(0);
    fixture.run(&["rm", "--snapshot", &image]).expect(0);
    fixture.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prune_removes_the_snapshot_of_a_killed_fork() {
    let (Some(fixture), Some(backend)) = (SandboxFixture::docker(), DockerBackend::busybox())
    else {
        return;
    };
    let secret = HostSecret::new(
        std::fs::read(fixture.home.path().join(".glovebox/secret"))
            .unwrap()
            .try_into()
            .unwrap(),
    );
    let provider = DockerProvider::new(DockerConfig {
        owner: secret.owner(),
        ..backend.config()
    });
    let purpose = SnapshotPurpose::Fork(&"never-created".parse().unwrap());
    let sandbox = format!("glovebox-{}", fixture.name()).parse().unwrap();
    let image = provider
        .snapshots()
        .unwrap()
        .create_snapshot(&sandbox, purpose)
        .await
        .unwrap();
    assert_eq!(
        fixture.run(&["prune"]).expect(0).stdout,
        format!("{image}\n")
    );
    assert_eq!(snapshots(&fixture), Vec::<Value>::new());
    fixture.end();
}

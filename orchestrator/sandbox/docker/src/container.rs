//! Pure translation of a spec into the engine's request to create a container.

use std::collections::HashMap;

use bollard::models::{
    ContainerCreateBody, DeviceRequest, HostConfig, HostConfigLogConfig, ResourcesUlimits,
};
use engine::sandbox::{ResourceLimits, SandboxSpec};
use protocol::SandboxId;

use super::image::Image;
use super::labels::{self, Ownership};
use super::user::User;
use super::{DockerConfig, Gpus, ServerSource, mounts};

/// Folder of the action server in a container.
pub(super) const SERVER_FOLDER: &str = "/.glovebox";
/// Path of the server's binary in a container.
pub(super) const SERVER: &str = "/.glovebox/action-server";
/// The server's socket, on a tmpfs, so that the image needs no writable folder.
pub(super) const SOCKET: &str = "/.glovebox/run/socket";
/// The server is PID 1 of the container, which no process inside can kill or replace. `dial`
/// verifies that this process owns the socket, since the agent's processes can replace the socket
/// file.
pub(super) const SERVER_PID: &str = "1";
/// Working directory of the agent.
pub(super) const WORKSPACE: &str = "/workspace";

const RUN_FOLDER: &str = "/.glovebox/run";
/// Home of a user who has none in the image, such as the owner of a workspace. It is on a tmpfs.
const FALLBACK_HOME: &str = "/.glovebox/home";

/// The folders of the server that are tmpfs.
pub(super) const MEMORY_FOLDERS: [&str; 2] = [RUN_FOLDER, FALLBACK_HOME];

/// Capabilities that package managers and test suites need as root: access to all files of the
/// container (dpkg, tar, npm), switching users (apt's `_apt`, database servers under test) and
/// signals to their processes. Raw sockets, devices, tracing and mounts are excluded.
const CAPABILITIES: &[&str] = &[
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "SETGID",
    "SETUID",
    "KILL",
];

/// The scheduler's period in microseconds. A CPU quota is used because engines refuse `NanoCpus`
/// above the number of the host's processors.
pub(super) const CPU_PERIOD: i64 = 100_000;

/// Parameters of a container.
pub(super) struct ContainerPlan<'a> {
    pub(super) config: &'a DockerConfig,
    pub(super) name: &'a SandboxId,
    pub(super) belongs: Ownership<'a>,
    pub(super) spec: &'a SandboxSpec,
    pub(super) image: &'a Image,
    pub(super) server: &'a ServerSource,
    /// User of the container. `None` for the image's user.
    pub(super) user: Option<User>,
    /// Whether to request a disk quota from the storage driver.
    pub(super) is_disk_bounded: bool,
}

impl ContainerPlan<'_> {
    /// Builds the request body.
    pub(super) fn body(&self) -> ContainerCreateBody {
        let serve = [
            "serve",
            "--socket",
            SOCKET,
            "--working-dir",
            WORKSPACE,
            "--key-stdin",
        ];
        let home = ["--fallback-home", FALLBACK_HOME];
        ContainerCreateBody {
            image: Some(self.image.name.clone()),
            entrypoint: Some(vec![SERVER.into()]),
            cmd: Some(serve.into_iter().chain(home).map(String::from).collect()),
            user: self.user.map(|user| user.to_string()),
            // The engine creates this folder if the image lacks it.
            working_dir: Some(WORKSPACE.into()),
            // The server reads its key from stdin once, before any other process runs.
            attach_stdin: Some(true),
            open_stdin: Some(true),
            stdin_once: Some(true),
            labels: Some(labels::container_labels(
                &self.config.owner,
                self.name,
                self.belongs,
                self.spec.lifetime,
            )),
            host_config: Some(self.host_config()),
            ..ContainerCreateBody::default()
        }
    }

    fn host_config(&self) -> HostConfig {
        let ResourceLimits {
            memory_bytes,
            cpus,
            pids,
            disk_bytes,
        } = self.spec.resources;
        let memory = i64::try_from(memory_bytes).unwrap_or(i64::MAX);
        let disk = i64::try_from(disk_bytes).unwrap_or(i64::MAX);
        let disk_option = || HashMap::from([("size".to_owned(), disk_bytes.to_string())]);
        HostConfig {
            // An engine accepts only one network here. The others are joined before the start.
            // Overrides the daemon's `--init`, which would make another process PID 1.
            init: Some(false),
            network_mode: Some(self.config.networks().next().unwrap_or("none").to_owned()),
            storage_opt: self.is_disk_bounded.then(disk_option),
            // If the storage driver has no quota, at least the size of a single file is limited.
            ulimits: Some(vec![ResourcesUlimits {
                name: Some("fsize".into()),
                soft: Some(disk),
                hard: Some(disk),
            }]),
            device_requests: self
                .config
                .gpus
                .as_ref()
                .map(|gpus| vec![device_request(gpus)]),
            memory: Some(memory),
            memory_swap: Some(memory), // together: no swap on top
            cpu_period: Some(CPU_PERIOD),
            cpu_quota: Some((cpus * CPU_PERIOD as f64) as i64),
            pids_limit: Some(pids.into()),
            cap_drop: Some(vec!["ALL".into()]),
            cap_add: Some(CAPABILITIES.iter().map(|name| (*name).into()).collect()),
            security_opt: Some(vec!["no-new-privileges".into()]),
            mounts: Some(mounts::for_container(self.server, self.spec)),
            tmpfs: Some(self.memory_folders()),
            // Processes inside can write to the server's stderr, so that the log on the host's disk
            // must be bounded.
            log_config: Some(HostConfigLogConfig {
                typ: Some("json-file".into()),
                config: Some(HashMap::from([
                    ("max-size".into(), "1m".into()),
                    ("max-file".into(), "1".into()),
                ])),
            }),
            ..HostConfig::default()
        }
    }

    fn memory_folders(&self) -> HashMap<String, String> {
        // Writable by every user: only the engine can resolve the image's user name to an id.
        let mut folders = vec![
            (RUN_FOLDER, "rw,nosuid,nodev,noexec,size=64k,mode=1777"),
            (FALLBACK_HOME, "rw,nosuid,nodev,exec,size=512m,mode=1777"),
        ];
        // A mount point cannot be renamed. Root could rename any other folder, together with the
        // server that is mounted in it, and put a program of its own in that place. An uploaded
        // server would be covered.
        if matches!(self.server, ServerSource::Mounted(_)) {
            folders.push((SERVER_FOLDER, "rw,nosuid,nodev,noexec,size=64k,mode=755"));
        }
        let to_owned = |(folder, options): (&str, &str)| (folder.into(), options.into());
        folders.into_iter().map(to_owned).collect()
    }
}

fn device_request(gpus: &Gpus) -> DeviceRequest {
    let (count, device_ids) = match gpus {
        Gpus::All => (Some(-1), None),
        Gpus::Ids(ids) => (None, Some(ids.clone())),
    };
    // Without a driver name, the engine selects a driver with this capability.
    DeviceRequest {
        count,
        device_ids,
        capabilities: Some(vec![vec!["gpu".into()]]),
        ..DeviceRequest::default()
    }
}

#[cfg(test)]
mod tests {
    use engine::sandbox::{ResourceLimits, SandboxSpec};
    use sandbox_client::{HostSecret, ServerBinary};

    use super::super::image::Image;
    use super::super::{DockerConfig, Gpus, ServerSource};
    use super::{ContainerPlan, Ownership};

    #[test]
    fn container_is_isolated_and_bounded_and_has_no_key() {
        let config = DockerConfig {
            gpus: Some(Gpus::Ids(vec!["3".into()])),
            ..DockerConfig::new(
                ServerBinary::from_file("/s"),
                HostSecret::new([7; 32]),
                "me",
            )
        };
        let spec = SandboxSpec {
            workspace: Some("/home/me/work".into()),
            resources: ResourceLimits {
                memory_bytes: 1 << 30,
                cpus: 1.5,
                pids: 100,
                disk_bytes: 2 << 30,
            },
            ..SandboxSpec::new("c".parse().unwrap())
        };
        let sandbox = "glovebox-c".parse().unwrap();
        let image = Image {
            name: "i".into(),
            id: "sha256:1".into(),
            user: String::new(),
            is_snapshot: false,
        };
        let server = ServerSource::Mounted("/s".into());
        let user = Some(super::User {
            uid: 1000,
            gid: 100,
        });
        let plan = ContainerPlan {
            config: &config,
            name: &sandbox,
            belongs: Ownership::Conversation(&spec.conversation),
            spec: &spec,
            image: &image,
            server: &server,
            user,
            is_disk_bounded: true,
        };
        let body = plan.body();
        let host = body.host_config.clone().unwrap();
        assert_eq!(host.network_mode.as_deref(), Some("none"));
        assert_eq!(
            (host.memory, host.memory_swap),
            (Some(1 << 30), Some(1 << 30))
        );
        assert_eq!(
            (host.cpu_quota, host.pids_limit),
            (Some(150_000), Some(100))
        );
        assert_eq!(host.cap_drop.as_deref(), Some(&["ALL".to_owned()][..]));
        assert_eq!((host.privileged, host.init), (None, Some(false)));
        assert_eq!(host.port_bindings, None);
        assert_eq!(host.storage_opt.unwrap()["size"], "2147483648");
        assert_eq!(host.ulimits.unwrap()[0].hard, Some(2 << 30));
        assert_eq!(
            host.device_requests.unwrap()[0].device_ids,
            Some(vec!["3".to_owned()])
        );
        let mounts: Vec<_> = host
            .mounts
            .iter()
            .flatten()
            .map(|mount| (mount.target.as_deref().unwrap(), mount.read_only))
            .collect();
        assert_eq!(
            mounts,
            [
                ("/.glovebox/action-server", Some(true)),
                ("/workspace", Some(false))
            ]
        );
        assert_eq!(body.user.as_deref(), Some("1000:100"));
        assert_eq!(body.env, None, "the home is the one of the image's user");

        let key =
            secrecy::ExposeSecret::expose_secret(&config.secret.derive_key(&sandbox)).to_owned();
        assert!(!serde_json::to_string(&body).unwrap().contains(&key));
    }
}

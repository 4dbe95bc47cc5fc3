//! Mounts of a container: the server's binary, the workspace and the spec's volumes.

use std::path::{Component, Path};

use bollard::models::{Mount, MountType};
use engine::sandbox::{SandboxError, SandboxSpec, Volume};

use super::ServerSource;
use super::container::{SERVER, SERVER_FOLDER, WORKSPACE};

/// Returns all mounts of a container.
pub(super) fn for_container(server: &ServerSource, spec: &SandboxSpec) -> Vec<Mount> {
    let server = match server {
        ServerSource::Mounted(path) => Some(bind(path.to_string_lossy().into(), SERVER, true)),
        ServerSource::Uploaded => None,
    };
    let workspace = spec.workspace.as_ref();
    let workspace = workspace.map(|path| bind(path.to_string_lossy().into(), WORKSPACE, false));
    server
        .into_iter()
        .chain(workspace)
        .chain(spec.volumes.iter().map(volume))
        .collect()
}

/// Whether a host folder or a named volume is mounted as workspace.
pub(super) fn cover_workspace(spec: &SandboxSpec) -> bool {
    spec.workspace.is_some()
        || spec
            .volumes
            .iter()
            .any(|volume| is_at(&volume.target, WORKSPACE))
}

/// Returns the host path of a volume. `None` for a named volume of the engine.
pub(super) fn host_source(volume: &Volume) -> Option<&Path> {
    volume
        .source
        .starts_with('/')
        .then(|| Path::new(&volume.source))
}

/// Refuses volumes that would hide the action server.
pub(super) fn check_targets(volumes: &[Volume]) -> Result<(), SandboxError> {
    for Volume { target, .. } in volumes {
        let path = Path::new(target);
        let is_plain = path
            .components()
            .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        if !is_plain || path.starts_with(SERVER_FOLDER) {
            return Err(SandboxError::Invalid {
                detail: format!(
                    "cannot mount a volume at {target}: choose a plain path that is not below {SERVER_FOLDER}"
                ),
            });
        }
    }
    Ok(())
}

fn is_at(target: &str, folder: &str) -> bool {
    // Compares by component, so that `/workspace/` equals `/workspace`.
    Path::new(target) == Path::new(folder)
}

fn volume(volume: &Volume) -> Mount {
    match host_source(volume) {
        Some(_) => bind(volume.source.clone(), &volume.target, volume.read_only),
        None => Mount {
            typ: Some(MountType::VOLUME),
            source: Some(volume.source.clone()),
            target: Some(volume.target.clone()),
            read_only: Some(volume.read_only),
            ..Mount::default()
        },
    }
}

/// Returns a bind mount. The engine refuses it if the source is missing, instead of creating a
/// folder.
fn bind(source: String, target: &str, read_only: bool) -> Mount {
    Mount {
        typ: Some(MountType::BIND),
        source: Some(source),
        target: Some(target.into()),
        read_only: Some(read_only),
        ..Mount::default()
    }
}

#[cfg(test)]
mod tests {
    use engine::sandbox::SandboxSpec;

    use super::{check_targets, cover_workspace};

    #[test]
    fn volume_may_cover_the_workspace_but_not_the_server() {
        let with = |volume: &str| SandboxSpec {
            volumes: vec![volume.parse().unwrap()],
            ..SandboxSpec::new("c".parse().unwrap())
        };
        assert!(cover_workspace(&with("/a:/workspace/")));
        assert!(!cover_workspace(&with("/a:/workspace/sub")));
        for (volume, is_fine) in [
            ("/a:/data", true),
            ("/a:/.gloveboxes", true),
            ("/a:/.glovebox", false),
            ("/a://.glovebox/run", false),
            ("/a:/data/../.glovebox", false),
        ] {
            assert_eq!(
                check_targets(&with(volume).volumes).is_ok(),
                is_fine,
                "{volume}"
            );
        }
    }
}

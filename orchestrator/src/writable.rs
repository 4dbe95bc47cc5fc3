//! Folders of this machine that a sandbox may write: none that this machine runs programs from or
//! trusts files in.

use std::path::{Path, PathBuf};

use engine::sandbox::{SandboxSpec, Volume};

use crate::config::Config;
use crate::exit::UsageError;
use crate::resolved_path::ResolvedPath;
use crate::trust::{TrustReason, UndecidedFile, Verdict};

/// Checks the folders that a sandbox can write. Returns the files in them that take effect now and
/// that the user has not decided about: the sandbox can change these.
pub(crate) fn check(config: &Config, spec: &SandboxSpec) -> Result<Vec<UndecidedFile>, UsageError> {
    if config.runtime.is_on_other_machine() {
        // The folders are another machine's.
        return Ok(Vec::new());
    }
    let mut undecided = Vec::new();
    for folder in writable_folders(spec) {
        // A volume may be a system folder, because the user names it explicitly with its mount
        // point.
        let is_workspace = spec.workspace.as_deref().map(absolute).as_ref() == Some(&folder);
        let system = || system_folder(&folder).filter(|_| is_workspace);
        if !config.allows_broad_folders
            && let Some(reason) = protected_folder(config, &folder).or_else(system)
        {
            return Err(UsageError(format!(
                "cannot give the folder {} to a sandbox: {reason}, so that what runs in the sandbox could change what this \
                 machine runs and trusts; name another folder, or add --unsafe-directory",
                folder.display()
            )));
        }
        for volume in host_volumes(spec) {
            if ResolvedPath::new(volume).is_ok_and(|volume| volume.leads_out_of(&folder)) {
                return Err(UsageError(format!(
                    "cannot mount {}: it is a link in {}, which the sandbox can write; name the folder that is meant",
                    volume.display(),
                    folder.display()
                )));
            }
        }
        for file in config
            .effective_files()
            .filter(|file| file.path.is_reached_through(&folder))
        {
            if file.path.leads_out_of(&folder) {
                // Trust in the content is worthless, because the sandbox can change the link's
                // target.
                return Err(UsageError(format!(
                    "cannot use the configuration {}: it is named by a link in {}, which the sandbox can write; name the \
                     file itself",
                    file.path.display(),
                    folder.display()
                )));
            }
            match config.trust.verdict(file) {
                Some(Verdict::Trusted) => {}
                Some(Verdict::Denied) => {
                    let text = format!(
                        "{} is denied by `glovebox trust --deny`",
                        file.path.display()
                    );
                    return Err(UsageError(text));
                }
                None => undecided.push(UndecidedFile {
                    file: file.clone(),
                    reason: TrustReason::WritableBySandbox,
                }),
            }
        }
    }
    Ok(undecided)
}

/// Folders with this machine's programs and settings. Root and the users of a Docker engine can
/// write them.
const SYSTEM_FOLDERS: [&str; 11] = [
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/sbin", "/sys", "/usr",
];

/// Subfolders of system folders that are meant for work.
const WORK_FOLDERS: [&str; 3] = ["/dev/shm", "/usr/local/src", "/usr/src"];

/// The reason why a workspace is a system folder. `None` if it is not.
fn system_folder(workspace: &Path) -> Option<String> {
    let is_for_work = WORK_FOLDERS
        .iter()
        .any(|folder| workspace.starts_with(folder));
    let is_of_system =
        |folder: &&&str| workspace.starts_with(folder) || Path::new(folder).starts_with(workspace);
    let folder = SYSTEM_FOLDERS
        .iter()
        .find(is_of_system)
        .filter(|_| !is_for_work)?;
    Some(format!("it holds or is part of {folder}, the system's own"))
}

fn writable_folders(spec: &SandboxSpec) -> impl Iterator<Item = PathBuf> {
    let volumes = spec.volumes.iter().filter(|volume| !volume.read_only);
    let volumes = volumes.filter_map(host_source);
    spec.workspace
        .as_deref()
        .into_iter()
        .chain(volumes)
        .map(absolute)
}

fn host_volumes(spec: &SandboxSpec) -> impl Iterator<Item = &Path> {
    spec.volumes.iter().filter_map(host_source)
}

/// The path of a volume on this machine. `None` for a named volume of the engine.
fn host_source(volume: &Volume) -> Option<&Path> {
    volume
        .source
        .starts_with('/')
        .then(|| Path::new(&volume.source))
}

/// The reason why no sandbox should write a folder: what it contains, or what contains it. `None`
/// if it is harmless.
fn protected_folder(config: &Config, folder: &Path) -> Option<String> {
    let state_dir = absolute(&config.state_dir);
    if folder.starts_with(&state_dir) && !folder.starts_with(state_dir.join("workspaces")) {
        return Some(format!(
            "it lies in the state folder {}",
            state_dir.display()
        ));
    }
    let home = config.host.home.as_deref();
    // Includes folders that do not exist yet, because the sandbox could create them.
    let [own, v0, ssh] =
        [".glovebox", ".openhands", ".ssh"].map(|name| home.map(|home| home.join(name)));
    let held = [
        ("your home", home),
        ("the state folder", Some(state_dir.as_path())),
        ("your configuration", own.as_deref()),
        ("your configuration", v0.as_deref()),
        ("your SSH keys", ssh.as_deref()),
        (
            "the configuration of your Docker client",
            config.host.docker_config.as_deref(),
        ),
    ];
    held.into_iter().find_map(|(what, held)| {
        let held = absolute(held?);
        held.starts_with(folder)
            .then(|| format!("it holds {what}, {}", held.display()))
    })
}

fn absolute(path: &Path) -> PathBuf {
    path.canonicalize()
        .or_else(|_| std::path::absolute(path))
        .unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Overrides;

    fn refusal(folder: &Path, home: &Path, unsafe_directory: bool) -> Option<String> {
        let overrides = Overrides {
            unsafe_directory,
            ..Default::default()
        };
        let home = home.to_str().unwrap();
        let config =
            Config::load(&overrides, |name| (name == "HOME").then(|| home.to_owned())).unwrap();
        let id = "c".parse().unwrap();
        let spec = SandboxSpec {
            workspace: Some(folder.to_owned()),
            ..SandboxSpec::new(id)
        };
        check(&config, &spec).err().map(|error| error.to_string())
    }

    #[test]
    fn protected_folder_is_refused_without_the_flag() {
        let root = tempfile::tempdir().unwrap();
        let home = root.path().canonicalize().unwrap().join("home");
        let state = home.join(".glovebox");
        for folder in ["workspaces/c", "bin", "../work"] {
            std::fs::create_dir_all(state.join(folder)).unwrap();
        }
        std::os::unix::fs::symlink(&home, home.join("work/link")).unwrap();
        for (folder, part) in [
            (PathBuf::from("/"), "it holds your home"),
            (home.clone(), "it holds your home"),
            (home.join("work/link"), "it holds your home"),
            (home.join(".."), "it holds your home"),
            (state.clone(), "it lies in the state folder"),
            (state.join("bin"), "it lies in the state folder"),
            (home.join(".openhands"), "it holds your configuration"),
            (home.join(".ssh"), "it holds your SSH keys"),
            (PathBuf::from("/usr"), "it holds or is part of /usr"),
            (
                PathBuf::from("/usr/local/bin"),
                "it holds or is part of /usr",
            ),
            (PathBuf::from("/bin/."), "the system's own"),
            (PathBuf::from("/etc/ssh"), "it holds or is part of /etc"),
            (PathBuf::from("/dev"), "it holds or is part of /dev"),
        ] {
            let refusal = refusal(&folder, &home, false).unwrap_or_default();
            assert!(
                refusal.contains(part) && refusal.contains("--unsafe-directory"),
                "{folder:?}: {refusal}"
            );
        }
        for folder in [
            home.join("work"),
            state.join("workspaces/c"),
            "/nowhere".into(),
            "/usr/src/x".into(),
            "/dev/shm".into(),
        ] {
            assert_eq!(refusal(&folder, &home, false), None);
        }
        assert_eq!(refusal(&home, &home, true), None);
    }
}

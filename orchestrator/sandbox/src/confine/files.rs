//! What a confined process may open. Landlock only allows: what is to stay hidden is what no rule reaches.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};

use super::{ConfineError, Confined, Confinement};

/// The first that refuses to truncate what cannot be written.
const LEAST: ABI = ABI::V3;

/// The newest that this was written for: what a kernel has of it is used.
const MOST: ABI = ABI::V9;

/// A start waits for each: some microseconds. A host that is laid out as hosts are needs some hundreds.
const MAX_RULES: usize = 4096;

/// What programs expect of `/dev` and can do no harm with.
const DEVICES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// Where terminals are made.
const TERMINALS: [&str; 2] = ["/dev/ptmx", "/dev/pts"];

/// Puts the rules on this process and what it starts.
pub(super) fn restrict(confinement: &Confinement) -> Result<Confined, ConfineError> {
    let failed = |doing| move |source| ConfineError::Landlock { doing, source };
    let mut rules = Rules { ruleset: ruleset(confinement).map_err(failed("asking for Landlock"))?, count: 0 };
    let (reading, everything) = (AccessFs::from_read(MOST), AccessFs::from_all(MOST));
    let devices = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
    let shown = shown(&confinement.hidden.iter().map(PathBuf::as_path).collect())?;
    // A device that is made in a folder opens what the device of the same number does.
    let writing = everything & !(AccessFs::MakeChar | AccessFs::MakeBlock);
    for (paths, access) in [
        (&shown, reading),
        (&confinement.readable, reading),
        (&confinement.writable, writing),
        (&DEVICES.map(PathBuf::from).to_vec(), devices),
        (&TERMINALS.map(PathBuf::from).to_vec(), devices | AccessFs::ReadDir),
    ] {
        for path in paths {
            rules = rules.allow(path, access)?;
        }
    }
    let status = rules.ruleset.restrict_self().map_err(failed("entering Landlock"))?;
    match status.landlock {
        LandlockStatus::Available { effective_abi, .. } if effective_abi >= LEAST => {
            Ok(Confined { landlock_abi: effective_abi as i32 })
        }
        _ => Err(ConfineError::OldLandlock),
    }
}

fn ruleset(confinement: &Confinement) -> Result<RulesetCreated, RulesetError> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(LEAST))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(MOST))?
        .scope(Scope::from_all(MOST))?;
    if !confinement.network {
        ruleset = ruleset.handle_access(AccessNet::from_all(MOST))?;
    }
    ruleset.create()
}

struct Rules {
    ruleset: RulesetCreated,
    count: usize,
}

impl Rules {
    /// What is not there, or cannot be opened, needs no rule.
    fn allow(self, path: &Path, access: BitFlags<AccessFs>) -> Result<Self, ConfineError> {
        let Ok(opened) = PathFd::new(path) else {
            return Ok(self);
        };
        let count = self.count + 1;
        if count > MAX_RULES {
            return Err(ConfineError::TooManyRules(MAX_RULES));
        }
        let access = if path.is_dir() { access } else { access & AccessFs::from_file(MOST) };
        let ruleset = self.ruleset.add_rule(PathBeneath::new(opened, access));
        let ruleset = ruleset.map_err(|source| ConfineError::Landlock { doing: "adding a rule", source })?;
        Ok(Self { ruleset, count })
    }
}

/// Everything but what is hidden and `/dev`, in as few paths as possible: a folder with something hidden beneath is
/// given child by child, and cannot be listed itself.
fn shown(hidden: &BTreeSet<&Path>) -> Result<Vec<PathBuf>, ConfineError> {
    let mut shown = Vec::new();
    let mut left = vec![PathBuf::from("/")];
    while let Some(path) = left.pop() {
        if hidden.contains(path.as_path()) || path == Path::new("/dev") {
            continue;
        }
        if path == Path::new("/") || hidden.iter().any(|hidden| hidden.starts_with(&path)) {
            let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
            // A rule on a link would be one on what it leads to, which may be hidden.
            let entries = entries.filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink()));
            left.extend(entries.map(|entry| entry.path()));
        } else {
            shown.push(path);
        }
        if shown.len() + left.len() > MAX_RULES {
            return Err(ConfineError::TooManyRules(MAX_RULES));
        }
    }
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::shown;

    #[test]
    fn everything_is_shown_beside_what_is_hidden() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for path in ["home/me/project", "home/you", "secrets/deep"] {
            std::fs::create_dir_all(root.join(path)).unwrap();
        }
        std::os::unix::fs::symlink(root.join("secrets"), root.join("link")).unwrap();
        let hidden = [root.join("home/me"), root.join("secrets"), root.join("nowhere")];
        let shown = shown(&hidden.iter().map(PathBuf::as_path).collect()).unwrap();
        let beneath: Vec<&Path> = shown.iter().filter_map(|path| path.strip_prefix(&root).ok()).collect();
        assert_eq!(beneath, [Path::new("home/you")]);
        assert!(shown.contains(&"/proc".into()) && !shown.contains(&"/dev".into()));
        assert!(!shown.iter().any(|path| root.starts_with(path)));
    }
}

//! Landlock as a second layer behind the mounts: restricts what a confined process can open if it
//! escapes them.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};

use super::mounts::{Content, Mount};
use super::{ConfineError, ConfinementReport};

/// The oldest version that can refuse to truncate a file.
const MIN_ABI: ABI = ABI::V3;

/// The newest supported version. An older kernel is used with all features that it has.
const MAX_ABI: ABI = ABI::V9;

/// Restricts this process and its children: they can read everything in the root, and write to
/// writable mounts.
pub(super) fn restrict(mounts: &[Mount]) -> Result<ConfinementReport, ConfineError> {
    let failed = |operation| move |source| ConfineError::Landlock { operation, source };
    let mut ruleset = ruleset().map_err(failed("create a Landlock ruleset"))?;
    let everything = AccessFs::from_all(MAX_ABI);
    let devices = AccessFs::from_read(MAX_ABI)
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::IoctlDev;
    // A device node in a writable directory would give access to the device with its number.
    let writing = everything & !(AccessFs::MakeChar | AccessFs::MakeBlock);
    let writable = mounts
        .iter()
        .filter(|each| matches!(each.content, Content::Writable(_)));
    let writable = writable.map(|each| (each.path.clone(), writing));
    let fixed = [
        ("/", AccessFs::from_read(MAX_ABI)),
        ("/dev", devices),
        ("/dev/shm", writing),
        (
            "/proc",
            AccessFs::from_read(MAX_ABI) | AccessFs::WriteFile | AccessFs::Truncate,
        ),
    ];
    for (path, access) in fixed
        .map(|(path, access)| (PathBuf::from(path), access))
        .into_iter()
        .chain(writable)
    {
        ruleset = allow(ruleset, &path, access).map_err(failed("add a Landlock rule"))?;
    }
    let status = ruleset
        .restrict_self()
        .map_err(failed("enforce Landlock"))?;
    match status.landlock {
        LandlockStatus::Available { effective_abi, .. } if effective_abi >= MIN_ABI => {
            Ok(ConfinementReport {
                landlock_abi: effective_abi as i32,
            })
        }
        _ => Err(ConfineError::OldLandlock),
    }
}

/// Prevents this process and its children from connecting to abstract sockets of the host, if the
/// kernel supports that.
pub(super) fn refuse_abstract_sockets() -> Result<(), ConfineError> {
    let ruleset = Ruleset::default()
        .scope(Scope::AbstractUnixSocket)
        .and_then(Ruleset::create);
    let restricted = ruleset.and_then(RulesetCreated::restrict_self);
    restricted
        .map(drop)
        .map_err(|source| ConfineError::Landlock {
            operation: "enforce Landlock",
            source,
        })
}

fn ruleset() -> Result<RulesetCreated, RulesetError> {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(MIN_ABI))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(MAX_ABI))?
        .scope(Scope::from_all(MAX_ABI))?
        .create()
}

/// Adds a rule for a path. A path that cannot be opened needs none.
fn allow(
    ruleset: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    let Ok(opened) = PathFd::new(path) else {
        return Ok(ruleset);
    };
    let access = if path.is_dir() {
        access
    } else {
        access & AccessFs::from_file(MAX_ABI)
    };
    ruleset.add_rule(PathBeneath::new(opened, access))
}

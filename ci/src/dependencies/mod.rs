//! Step `dependencies`: each dependency is allowed, licensed, new enough, and has a stated reason.
//!
//! Checks all packages of all features and platforms. cargo-deny, configured in `.deny.toml`,
//! checks the same and the advisory database; this step needs neither cargo-deny nor a network.

mod deny;
mod policy;
mod reasons;

use anyhow::{Result, bail};

use crate::metadata::{CargoMetadata, Package};
use crate::report;
use crate::step::Notes;
use crate::workspace::Workspace;

pub(crate) fn run(workspace: &Workspace) -> Result<Notes> {
    let mut cargo = workspace.cargo();
    cargo.args(["metadata", "--locked", "--all-features"]);
    let metadata = CargoMetadata::read(&mut cargo, "reading all dependencies")?;
    let mut faults = faults(&metadata.packages);
    for package in metadata.members() {
        faults.extend(reasons::missing_in(workspace, &package.manifest_path)?);
    }
    faults.extend(reasons::missing_in(
        workspace,
        &workspace.root.join("Cargo.toml"),
    )?);
    faults.extend(deny::disagreements(workspace)?);
    faults.iter().for_each(|fault| report::note(fault));
    match faults.as_slice() {
        [] => Ok(vec![format!("{} packages in all", metadata.packages.len())]),
        [only] => bail!("{only}"),
        [first, others @ ..] => bail!("{first}; and {} more", others.len()),
    }
}

fn faults(packages: &[Package]) -> Vec<String> {
    packages
        .iter()
        .flat_map(|package| {
            [ban(package), floor(package), licence(package)]
                .into_iter()
                .flatten()
        })
        .collect()
}

fn ban(package: &Package) -> Option<String> {
    let (name, reason) = policy::BANS
        .iter()
        .find(|(name, _)| *name == package.name)?;
    Some(format!("{name} is banned: {reason}"))
}

fn floor(package: &Package) -> Option<String> {
    let floor = policy::FLOORS
        .iter()
        .find(|floor| floor.package == package.name)?;
    let too_old = !floor.allows(&package.version);
    too_old.then(|| {
        format!(
            "{} {} is below {}: {}",
            package.name, package.version, floor.at_least, floor.reason
        )
    })
}

fn licence(package: &Package) -> Option<String> {
    let Some(expression) = &package.license else {
        return Some(format!("{} names no licence", package.name));
    };
    match policy::allows_licence(expression) {
        Ok(true) => None,
        Ok(false) => Some(format!(
            "{}: licence {expression} is not on the list",
            package.name
        )),
        Err(error) => Some(format!(
            "{}: cannot parse its licence {expression:?}: {error:#}",
            package.name
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn package(name: &str, version: &str, license: Option<&str>) -> Package {
        serde_json::from_value(json!({
            "id": name, "name": name, "version": version, "license": license, "manifest_path": "Cargo.toml",
            "dependencies": [],
        }))
        .unwrap()
    }

    #[test]
    fn ordinary_package_passes() {
        assert!(faults(&[package("russh", "0.65.0", Some("Apache-2.0"))]).is_empty());
    }

    #[test]
    fn faults_contain_the_package_and_the_reason() {
        let faults = faults(&[
            package("tokio-tar", "0.3.1", Some("MIT")),
            package("russh", "0.64.2", Some("Apache-2.0")),
            package("borrowed", "1.0.0", Some("GPL-3.0-only")),
            package("nameless", "1.0.0", None),
        ]);
        let [ban, floor, licence, nameless] = faults.as_slice() else {
            panic!("{faults:?}")
        };
        assert!(ban.starts_with("tokio-tar is banned: "));
        assert!(floor.starts_with("russh 0.64.2 is below 0.65.0: "));
        assert_eq!(licence, "borrowed: licence GPL-3.0-only is not on the list");
        assert_eq!(nameless, "nameless names no licence");
    }
}

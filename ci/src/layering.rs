//! Step `layering`: our crates depend on each other only as designed.
//!
//! Checks all declared dependencies: for every platform, and also those of tests and build scripts.

use anyhow::{Result, bail};

use crate::metadata::{CargoMetadata, DependencyKind, Package};
use crate::report;
use crate::step::Notes;
use crate::workspace::Workspace;

/// Allowed dependencies of each crate. A new edge is a design change of its own and starts here.
const ALLOWED_DEPENDENCIES: &[(&str, &[&str])] = &[
    ("protocol", &[]),
    ("remove-folder", &[]),
    ("action-server", &["protocol", "remove-folder"]),
    ("engine", &["protocol"]),
    ("accounts", &["protocol"]),
    ("browser", &["engine", "protocol"]),
    ("git_providers", &["protocol", "tls"]),
    ("tls", &[]),
    ("llm", &["engine", "protocol", "tls"]),
    ("mcp", &["engine", "protocol", "tls"]),
    ("sandbox-client", &["engine", "protocol"]),
    ("sandbox-docker", &["engine", "protocol", "sandbox-client"]),
    (
        "sandbox-local",
        &["engine", "protocol", "remove-folder", "sandbox-client"],
    ),
    (
        "sandbox-remote",
        &["engine", "protocol", "sandbox-client", "tls"],
    ),
    ("sandbox-ssh", &["engine", "protocol", "sandbox-client"]),
    ("sandbox-host", &["engine", "protocol", "sandbox-client"]),
    ("embedded-server", &[]),
    ("storage", &["accounts", "engine", "protocol", "tls"]),
    ("conversations", &["engine", "protocol"]),
    ("client", &["conversations", "protocol", "tls"]),
    (
        "server",
        &[
            "accounts",
            "conversations",
            "engine",
            "git_providers",
            "protocol",
            "tls",
        ],
    ),
    (
        "orchestrator",
        &[
            "accounts",
            "browser",
            "client",
            "conversations",
            "embedded-server",
            "engine",
            "git_providers",
            "llm",
            "mcp",
            "sandbox-client",
            "sandbox-docker",
            "sandbox-host",
            "sandbox-local",
            "sandbox-remote",
            "sandbox-ssh",
            "server",
            "storage",
            "protocol",
            "remove-folder",
            "tls",
        ],
    ),
    (
        "tests",
        &[
            "accounts",
            "browser",
            "client",
            "conversations",
            "embedded-server",
            "engine",
            "llm",
            "mcp",
            "protocol",
            "sandbox-client",
            "sandbox-docker",
            "sandbox-host",
            "sandbox-local",
            "sandbox-remote",
            "sandbox-ssh",
            "storage",
            "tls",
        ],
    ),
    ("ci", &[]),
];

/// The only crate whose normal dependencies may enable the engine's fakes.
const TESTS: &str = "tests";

pub(crate) fn run(workspace: &Workspace) -> Result<Notes> {
    let mut cargo = workspace.cargo();
    let metadata = CargoMetadata::read(
        cargo.args(["metadata", "--no-deps"]),
        "reading our crates' dependencies",
    )?;
    let members: Vec<&Package> = metadata.members().collect();
    let faults = faults(&members);
    if faults.is_empty() {
        return Ok(Notes::new());
    }
    faults.iter().for_each(|fault| report::note(fault));
    bail!("{}", faults.join("; "));
}

fn faults(members: &[&Package]) -> Vec<String> {
    members
        .iter()
        .flat_map(|package| faults_of(package, members))
        .collect()
}

fn faults_of(package: &Package, members: &[&Package]) -> Vec<String> {
    let from = package.name.as_str();
    let Some((_, allowed)) = ALLOWED_DEPENDENCIES.iter().find(|(name, _)| *name == from) else {
        return vec![format!("{from} is not in the table of ci/src/layering.rs")];
    };
    let ours = package
        .dependencies
        .iter()
        .filter(|edge| members.iter().any(|member| member.name == edge.name));
    let mut faults = Vec::new();
    for edge in ours {
        let to = edge.name.as_str();
        // A crate may name itself in its dev-dependencies, to enable a feature for its own tests.
        let is_itself = to == from && edge.kind == Some(DependencyKind::Dev);
        if !allowed.contains(&to) && !is_itself {
            faults.push(format!("{from} must not depend on {to}"));
        }
        let enables_fakes =
            to == "engine" && edge.features.iter().any(|feature| feature == "testing");
        if enables_fakes && from != TESTS && edge.kind != Some(DependencyKind::Dev) {
            faults.push(format!(
                "{from} enables engine's `testing` outside its dev-dependencies"
            ));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Adapters, which never depend on each other.
    const ADAPTERS: &[&str] = &[
        "browser",
        "llm",
        "mcp",
        "sandbox-docker",
        "sandbox-local",
        "sandbox-remote",
        "sandbox-ssh",
        "storage",
    ];

    fn package(name: &str, dependencies: &Value) -> Package {
        serde_json::from_value(json!({
            "id": name, "name": name, "version": "0.1.0", "license": "MIT", "manifest_path": "Cargo.toml",
            "dependencies": dependencies,
        }))
        .unwrap()
    }

    fn edge(name: &str) -> Value {
        json!({ "name": name, "kind": null, "features": [] })
    }

    fn faults_with(name: &str, dependencies: &Value) -> Vec<String> {
        let others = ["protocol", "engine", "llm", "storage"];
        let mut packages: Vec<Package> = others
            .into_iter()
            .filter(|other| *other != name)
            .map(|other| package(other, &json!([])))
            .collect();
        packages.push(package(name, dependencies));
        faults(&packages.iter().collect::<Vec<_>>())
    }

    #[test]
    fn designed_edges_and_external_crates_pass() {
        assert!(
            faults_with(
                "llm",
                &json!([edge("engine"), edge("protocol"), edge("serde")])
            )
            .is_empty()
        );
    }

    #[test]
    fn edge_between_adapters_is_a_fault() {
        assert_eq!(
            faults_with("llm", &json!([edge("storage")])),
            ["llm must not depend on storage"]
        );
    }

    #[test]
    fn dev_and_build_dependencies_are_checked() {
        let dev = json!([{ "name": "llm", "kind": "dev", "features": [] }]);
        assert_eq!(
            faults_with("engine", &dev),
            ["engine must not depend on llm"]
        );
        let build = json!([{ "name": "engine", "kind": "build", "features": [] }]);
        assert_eq!(
            faults_with("protocol", &build),
            ["protocol must not depend on engine"]
        );
    }

    #[test]
    fn fakes_are_allowed_only_in_dev_dependencies() {
        let fakes =
            |kind: Value| json!([{ "name": "engine", "kind": kind, "features": ["testing"] }]);
        assert!(faults_with("storage", &fakes(json!("dev"))).is_empty());
        assert_eq!(
            faults_with("storage", &fakes(Value::Null)),
            ["storage enables engine's `testing` outside its dev-dependencies"]
        );
    }

    #[test]
    fn crate_may_enable_its_own_feature_for_its_tests() {
        let dev = json!([{ "name": "engine", "kind": "dev", "features": ["testing"] }]);
        assert!(faults_with("engine", &dev).is_empty());
    }

    #[test]
    fn crate_without_a_table_entry_is_a_fault() {
        assert_eq!(
            faults_with("helpers", &json!([])),
            ["helpers is not in the table of ci/src/layering.rs"]
        );
    }

    #[test]
    fn no_adapter_may_depend_on_another() {
        for (name, allowed) in ALLOWED_DEPENDENCIES
            .iter()
            .filter(|(name, _)| ADAPTERS.contains(name))
        {
            assert!(allowed.iter().all(|to| !ADAPTERS.contains(to)), "{name}");
        }
    }
}

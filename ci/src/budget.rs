//! Step `budget`: the action server is a static file within its limits of size and crates.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::command;
use crate::elf;
use crate::step::Notes;
use crate::workspace::Workspace;

/// Maximum size of the action server. It is uploaded into sandboxes, which takes 2.4 s at 20
/// Mbit/s.
const MAX_BYTES: u64 = 6_000_000;

/// A path that only the C library's name service reads.
const NAME_SERVICE: &[u8] = b"/etc/nsswitch.conf";

/// Maximum number of crates that an auditor must review: normal and build dependencies for Linux.
const MAX_CRATES: usize = 110;

pub(crate) fn run(workspace: &Workspace) -> Result<Notes> {
    workspace.build()?;
    let file = workspace.action_server();
    let bytes = check_file(&file).with_context(|| format!("cannot accept {}", file.display()))?;
    let crates = count_crates(workspace)?;
    if crates > MAX_CRATES {
        bail!("the action server is made of {crates} crates, the limit is {MAX_CRATES}");
    }
    Ok(vec![format!(
        "the action server has {bytes} of {MAX_BYTES} bytes and {crates} of {MAX_CRATES} crates"
    )])
}

fn check_file(file: &Path) -> Result<u64> {
    let bytes = std::fs::metadata(file)
        .context("cannot read its size")?
        .len();
    if bytes > MAX_BYTES {
        bail!("it has {bytes} bytes, the limit is {MAX_BYTES}");
    }
    let content = std::fs::read(file).context("cannot read it")?;
    if elf::has_interpreter(&content)? {
        bail!("it is not static: it names an interpreter");
    }
    if content
        .windows(NAME_SERVICE.len())
        .any(|part| part == NAME_SERVICE)
    {
        bail!("it contains the C library's name service: see the action server's `c_library`");
    }
    Ok(bytes)
}

/// Counts with `cargo tree`, because `cargo metadata` unifies features across the workspace and so
/// includes crates that the action server is built without.
fn count_crates(workspace: &Workspace) -> Result<usize> {
    let mut cargo = workspace.cargo();
    cargo.args([
        "tree",
        "-p",
        "action-server",
        "--edges",
        "normal,build",
        "--prefix",
        "none",
        "--locked",
    ]);
    cargo.args(["--target", "x86_64-unknown-linux-gnu", "--format", "{p}"]);
    Ok(distinct_crates(&command::capture(
        &mut cargo,
        "counting the action server's crates",
    )?))
}

/// Counts distinct `name version` pairs, without the first line, which is the action server itself.
fn distinct_crates(tree: &str) -> usize {
    let names: BTreeSet<String> = tree
        .lines()
        .map(|line| line.split(' ').take(2).collect())
        .collect();
    names.len().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_of_a_crate_counts_once() {
        let tree = "action-server v0.1.0 (/x)\nserde v1.0.2\nsyn v2.0.1 (proc-macro)\nserde v1.0.2 (*)\nsyn v1.0.9";
        assert_eq!(distinct_crates(tree), 3);
    }

    #[test]
    fn dynamic_program_is_rejected() {
        let error = check_file(Path::new("/bin/sh")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "it is not static: it names an interpreter"
        );
    }
}

//! Step `budget`: the action server stays what it is, one small static file made of few crates.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::command;
use crate::elf;
use crate::step::Notes;
use crate::workspace::{Profile, Workspace};

/// It is uploaded into sandboxes, some over slow lines: two seconds at 20 Mbit/s. In both counts of a megabyte.
const BYTES: u64 = 5_000_000;

/// What only the C library's name service reads.
const NAME_SERVICE: &[u8] = b"/etc/nsswitch.conf";

/// Everything it is made of, ordinary and build dependencies for Linux: what an auditor has to look at.
const CRATES: usize = 110;

pub(crate) fn run(workspace: &Workspace) -> Result<Notes> {
    workspace.build_program(Profile::Debug)?;
    let file = workspace.action_server();
    let bytes = check_file(&file).with_context(|| format!("checking {}", file.display()))?;
    let crates = count_crates(workspace)?;
    if crates > CRATES {
        bail!("the action server is made of {crates} crates, the budget is {CRATES}");
    }
    Ok(vec![format!("the action server has {bytes} of {BYTES} bytes and {crates} of {CRATES} crates")])
}

fn check_file(file: &Path) -> Result<u64> {
    let bytes = std::fs::metadata(file).context("looking at its size")?.len();
    if bytes > BYTES {
        bail!("it has {bytes} bytes, the budget is {BYTES}");
    }
    let content = std::fs::read(file).context("reading it")?;
    if elf::has_interpreter(&content)? {
        bail!("it is not static: it names an interpreter");
    }
    if content.windows(NAME_SERVICE.len()).any(|part| part == NAME_SERVICE) {
        bail!("it holds the C library's name service: see the action server's `c_library`");
    }
    Ok(bytes)
}

/// Asked of `cargo tree` and not of `cargo metadata`: the latter mixes in features that other crates of the workspace
/// switch on, and with them crates that the action server is built without.
fn count_crates(workspace: &Workspace) -> Result<usize> {
    let mut cargo = workspace.cargo();
    cargo.args(["tree", "-p", "action-server", "--edges", "normal,build", "--prefix", "none", "--locked"]);
    cargo.args(["--target", "x86_64-unknown-linux-gnu", "--format", "{p}"]);
    Ok(distinct_crates(&command::capture(&mut cargo, "counting the action server's crates")?))
}

/// Lines are `name version`, then notes; the first is the action server itself.
fn distinct_crates(tree: &str) -> usize {
    let names: BTreeSet<String> = tree.lines().map(|line| line.split(' ').take(2).collect()).collect();
    names.len().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_counts_once_and_each_of_its_versions() {
        let tree =
            "action-server v0.1.0 (/x)\nserde v1.0.2\nsyn v2.0.1 (proc-macro)\nserde v1.0.2 (*)\nsyn v1.0.9";
        assert_eq!(distinct_crates(tree), 3);
    }

    #[test]
    fn a_dynamic_program_is_refused() {
        let error = check_file(Path::new("/bin/sh")).unwrap_err();
        assert_eq!(error.to_string(), "it is not static: it names an interpreter");
    }
}

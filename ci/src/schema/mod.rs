//! Step `schema`: schemathesis sends valid and invalid requests, derived from the API's document,
//! to a real server. No response may be a server error (5xx).
//!
//! The server executes generated commands, so it is isolated (see [`confinement`]). Every run sends
//! the same requests. The step is skipped if isolation or schemathesis is unavailable. With
//! `CI=true` that is a failure.

mod confinement;
mod document;
mod schemathesis;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::scratch::ScratchFolder;
use crate::step::{self, Notes};
use crate::workspace::Workspace;
use confinement::{Confinement, IsolatedServer};
use schemathesis::Schemathesis;

/// The API's document, relative to the root.
const DOCUMENT: &str = "action-server/openapi.json";

pub(crate) fn run(workspace: &Workspace) -> Result<Notes> {
    let scratch = ScratchFolder::new_in(&workspace.cache()?)?;
    let (confinement, schemathesis) = match prepare(workspace, &scratch) {
        Ok(parts) => parts,
        Err(error) => return step::skipped("requests derived from the API's document", error),
    };
    workspace.build()?;
    let document: Value = serde_json::from_str(&workspace.read(DOCUMENT.as_ref())?)
        .with_context(|| format!("cannot parse {DOCUMENT}"))?;
    let file = scratch.path().join("openapi.json");
    fs::write(&file, document::bounded(document)?.to_string())
        .with_context(|| format!("cannot write {}", file.display()))?;
    let mut server = IsolatedServer::start(&confinement, &workspace.program("action-server"))?;
    let tested = schemathesis.run(&file, &server, scratch.path());
    // A server that has exited explains failed requests.
    server.check_alive()?;
    Ok(vec![tested?])
}

/// Installs schemathesis in `cache`, unless an earlier run has.
pub(crate) fn install(cache: &Path) -> Result<()> {
    Schemathesis::install(cache).map(drop)
}

fn prepare(workspace: &Workspace, scratch: &ScratchFolder) -> Result<(Confinement, Schemathesis)> {
    Ok((
        Confinement::new(&scratch.path().join("root"))?,
        Schemathesis::install(&workspace.cache()?)?,
    ))
}

//! Step `schema`: schemathesis sends what the API's document promises to take, and what it does not, to a real server,
//! and no answer may be the server's own fault (5xx).
//!
//! The server does as it is told, also with what was made up, so it is confined (see [`confinement`]). Every run sends
//! the same requests. Where it cannot be confined, or schemathesis cannot be had, the step is skipped, which on a build
//! machine is a failure.

mod confinement;
mod document;
mod schemathesis;

use std::fs;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::command;
use crate::scratch::Scratch;
use crate::step::{self, Notes};
use crate::workspace::Workspace;
use confinement::{Confinement, Server};
use schemathesis::Schemathesis;

/// The API's document, relative to the root.
const DOCUMENT: &str = "action-server/openapi.json";

pub(crate) fn run(workspace: &Workspace) -> Result<Notes> {
    let scratch = Scratch::new_in(&workspace.cache()?)?;
    let (confinement, schemathesis) = match parts(workspace, &scratch) {
        Ok(parts) => parts,
        Err(error) => return step::skipped("requests made from the API's document", error),
    };
    let mut build = workspace.cargo();
    build.args(["build", "--locked", "--package", "action-server", "--bin", "action-server"]);
    command::stream(&mut build, "building the action server")?;

    let document: Value = serde_json::from_str(&workspace.read(DOCUMENT.as_ref())?)
        .with_context(|| format!("reading {DOCUMENT} as JSON"))?;
    let file = scratch.path().join("openapi.json");
    fs::write(&file, document::bounded(document)?.to_string())
        .with_context(|| format!("writing {}", file.display()))?;
    let mut server = Server::start(&confinement, &workspace.program("action-server"))?;
    let tested = schemathesis.run(&file, &server, scratch.path());
    // A server that is gone is why nothing could be asked of it.
    server.check_alive()?;
    Ok(vec![tested?])
}

fn parts(workspace: &Workspace, scratch: &Scratch) -> Result<(Confinement, Schemathesis)> {
    Ok((Confinement::new(&scratch.path().join("root"))?, Schemathesis::find(workspace)?))
}

//! The model of a server for which none is configured: a script, so that a first look needs no key.

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::compose::StateDir;

/// Name of the script in the state folder.
const FILE_NAME: &str = "first-look.json";

/// Number of replies. Further messages stop the agent with an error.
const REPLIES: usize = 1000;

const REPLY: &str = "\
I am a script, and need no key: I have looked at the workspace, as you can see above, and now I only repeat this. Choose a model in \
the settings, or start the server with --model, and I will do what you ask.";

/// Writes the script. Returns the name of its model.
pub(super) fn model(state_dir: &StateDir) -> anyhow::Result<String> {
    let look = json!({"tool_calls": [{"name": "execute_bash", "arguments": {"command": "pwd; ls -A; uname -sr"}}]});
    let replies = std::iter::repeat_n(json!({"text": REPLY}), REPLIES);
    let responses: Vec<Value> = std::iter::once(look).chain(replies).collect();
    let file = state_dir.path().join(FILE_NAME);
    let script = json!({"model": "first-look", "responses": responses});
    std::fs::write(&file, script.to_string())
        .with_context(|| format!("cannot write {}", file.display()))?;
    Ok(format!("scripted:{}", file.display()))
}

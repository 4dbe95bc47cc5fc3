//! The folder in which V0 stores conversations: `sessions/ID/events/N.json` and
//! `sessions/ID/metadata.json`, or the same below `users/USER/conversations` on a server with
//! users.

mod export;

use std::collections::BTreeMap;
use std::fs::read_dir;
use std::io;
use std::path::{Path, PathBuf};

use protocol::client_api::git::GitProvider;
use protocol::{Event, EventBody, python_json};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

pub(crate) use export::{Exported, V0Export};

use crate::input_file;

/// Maximum size of one event, in bytes: a page with its screenshot.
const MAX_EVENT_LENGTH: usize = 64 << 20;

/// Maximum size of all events of a conversation, in bytes.
const MAX_LENGTH: usize = 1 << 30;

/// A conversation of V0.
#[derive(Debug)]
pub(crate) struct V0Conversation {
    pub(crate) metadata: V0Metadata,
    /// In the order of their numbers.
    pub(crate) events: Vec<Event>,
    /// Files that are no events of a known kind, with the problem of each.
    pub(crate) skipped: Vec<String>,
}

/// What V0 stores of a conversation besides its events. Older versions stored none.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct V0Metadata {
    pub(crate) title: Option<String>,
    /// Its full name at the provider.
    pub(crate) selected_repository: Option<String>,
    /// `None` for one that Glovebox does not know.
    #[serde(deserialize_with = "known_provider")]
    pub(crate) git_provider: Option<GitProvider>,
    pub(crate) selected_branch: Option<String>,
    pub(crate) llm_model: Option<String>,
}

fn known_provider<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<GitProvider>, D::Error> {
    let name = Value::deserialize(deserializer)?;
    Ok(GitProvider::deserialize(name).ok())
}

/// Returns the folders of the conversations in V0's folder, sorted. The folder may also be that of
/// one conversation, or its parent.
pub(crate) fn find(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let is_conversation = |folder: &Path| folder.join("events").is_dir();
    if is_conversation(folder) {
        return Ok(vec![folder.to_owned()]);
    }
    let users = folders(&folder.join("users")).unwrap_or_default();
    let parents = users
        .iter()
        .map(|user| user.join("conversations"))
        .chain([folder.join("sessions")]);
    // The folder itself must be readable. The others exist in some folders only.
    let mut found = folders(folder)?;
    found.extend(parents.flat_map(|parent| folders(&parent).unwrap_or_default()));
    found.retain(|folder| is_conversation(folder));
    Ok(found)
}

/// Reads a conversation.
pub(crate) fn read(folder: &Path) -> io::Result<V0Conversation> {
    let metadata = match input_file::read_found(&folder.join("metadata.json"), MAX_EVENT_LENGTH) {
        Ok(text) => serde_json::from_slice(&python_json::to_json(&text))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => V0Metadata::default(),
        Err(error) => return Err(error),
    };
    let mut files = BTreeMap::new();
    for entry in read_dir(folder.join("events"))? {
        let path = entry?.path();
        let number = path
            .file_name()
            .and_then(|name| name.to_str()?.strip_suffix(".json")?.parse::<u64>().ok());
        files.extend(number.map(|number| (number, path)));
    }
    let (mut events, mut skipped, mut length) = (Vec::new(), Vec::new(), 0);
    for path in files.into_values() {
        let text = input_file::read_found(&path, MAX_EVENT_LENGTH)?;
        length += text.len();
        if length > MAX_LENGTH {
            let problem = format!("its events have more than {MAX_LENGTH} bytes");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, problem));
        }
        match parse(&text) {
            Ok(event) => events.push(event),
            Err(problem) => skipped.push(format!("{}: {problem}", path.display())),
        }
    }
    Ok(V0Conversation {
        metadata,
        events,
        skipped,
    })
}

fn parse(text: &[u8]) -> Result<Event, String> {
    let value: Value =
        serde_json::from_slice(&python_json::to_json(text)).map_err(|error| error.to_string())?;
    let event = Event::from_value(&value).map_err(|error| error.to_string())?;
    match event.body {
        EventBody::Record(_) => {
            Err("it is a record of Glovebox, which V0 does not write".to_owned())
        }
        _ => Ok(event),
    }
}

/// Returns the folders in a folder, sorted.
fn folders(parent: &Path) -> io::Result<Vec<PathBuf>> {
    let paths = read_dir(parent)?.map(|entry| Ok(entry?.path()));
    let mut folders: Vec<PathBuf> = paths.collect::<io::Result<_>>()?;
    folders.retain(|path| path.is_dir());
    folders.sort();
    Ok(folders)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_of_metadata_may_be_unknown() {
        for (metadata, provider) in [
            (r#"{"git_provider": "gitlab"}"#, Some(GitProvider::GitLab)),
            (r#"{"git_provider": "forgejo"}"#, None),
            (r#"{"git_provider": null}"#, None),
            ("{}", None),
        ] {
            let metadata: V0Metadata = serde_json::from_str(metadata).unwrap();
            assert_eq!(metadata.git_provider, provider);
        }
    }
}

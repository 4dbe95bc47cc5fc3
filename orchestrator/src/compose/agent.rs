//! The agent, and the memory of facts and microagents that its prompts draw from.

use std::fs::{DirEntry, File};
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use engine::agent::{Agent, CodeActAgent, DummyAgent};
use engine::memory::{KnowledgeFile, MAX_KNOWLEDGE_FILE_BYTES, MAX_KNOWLEDGE_FILES, Memory};

use super::{registry, security_analyzer};
use crate::config::Config;
use crate::exit::UsageError;

/// Maximum depth of the user's folders of microagents.
const MAX_FOLDER_DEPTH: usize = 4;

/// The configured agent.
pub(crate) fn agent(config: &Config) -> anyhow::Result<Arc<dyn Agent>> {
    let definition = config.agent.definition.clone().map_err(UsageError)?;
    if config.agent.is_dummy() {
        return Ok(Arc::new(DummyAgent));
    }
    let declares_risk = security_analyzer(&config.security)?
        .is_some_and(|analyzer| analyzer.requires_declared_risk());
    Ok(Arc::new(CodeActAgent {
        definition,
        command_timeout: config.command_timeout,
        declares_risk,
    }))
}

/// Microagents of the user's own folders, secrets' names and facts about the sandbox. Glovebox's
/// folder wins over V0's. `None` if the agent's prompt has no extensions.
pub(crate) fn memory(config: &Config) -> Option<Memory> {
    if !config.agent.has_prompt_extensions {
        return None;
    }
    let mut files = Vec::new();
    for folder in &config.microagent_folders {
        collect(folder, "", 0, &mut files);
    }
    let memory = Memory::new(files, config.agent.disabled_microagents.clone()).with_built_in();
    let sandbox_facts = match super::network(config.runtime, &config.sandbox).as_str() {
        "none" => {
            "The sandbox has no network: nothing can be downloaded, and no host but itself can be reached. If the task \
             needs a network, say so."
        }
        _ => "",
    };
    Some(
        memory
            .with_secrets(registry(&config.secrets).descriptions())
            .with_sandbox_facts(sandbox_facts.to_owned()),
    )
}

/// Collects microagents. Skips files that cannot be read, because they may belong to another user.
/// Follows links to files, but not to folders, because those may form a cycle.
fn collect(folder: &Path, relative_path: &str, depth: usize, files: &mut Vec<KnowledgeFile>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    let mut entries: Vec<_> = entries.flatten().collect();
    entries.sort_by_key(DirEntry::file_name);
    for entry in entries {
        let (path, name) = (entry.path(), entry.file_name());
        let relative_path = format!("{relative_path}{}", name.to_string_lossy());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if depth < MAX_FOLDER_DEPTH {
                collect(&path, &format!("{relative_path}/"), depth + 1, files);
            }
        } else if KnowledgeFile::is_knowledge_file(&relative_path)
            && path.is_file()
            && files.len() <= MAX_KNOWLEDGE_FILES
        {
            let mut content = Vec::new();
            let read = File::open(&path).and_then(|file| {
                file.take(MAX_KNOWLEDGE_FILE_BYTES as u64 + 1)
                    .read_to_end(&mut content)
            });
            if read.is_ok() {
                files.push(KnowledgeFile {
                    path: path.display().to_string(),
                    relative_path,
                    content,
                });
            }
        }
    }
}

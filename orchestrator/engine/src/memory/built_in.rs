//! Built-in knowledge, under V0's names. The user's files of the same names replace it.

use super::KnowledgeFile;

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("built_in/", $name)))),*]
    };
}

const FILES: &[(&str, &str)] = &files![
    "add_agent.md",
    "add_repo_inst.md",
    "address_pr_comments.md",
    "agent_memory.md",
    "azure_devops.md",
    "bitbucket.md",
    "code-review.md",
    "codereview-roasted.md",
    "docker.md",
    "fix-py-line-too-long.md",
    "fix_test.md",
    "github.md",
    "gitlab.md",
    "kubernetes.md",
    "npm.md",
    "onboarding.md",
    "pdflatex.md",
    "security.md",
    "ssh.md",
    "swift-linux.md",
    "update_pr_description.md",
    "update_test.md",
];

pub(super) fn files() -> Vec<KnowledgeFile> {
    let file = |(name, content): &(&str, &str)| KnowledgeFile {
        path: format!("built-in {name}"),
        relative_path: (*name).to_owned(),
        content: content.as_bytes().to_vec(),
    };
    FILES.iter().map(file).collect()
}

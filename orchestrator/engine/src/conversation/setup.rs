//! Set-up of a workspace: the shell script of each step. Pure.
//!
//! A step is a run action in the agent's shell, so that the exports of a set-up script stay. It
//! requires only a POSIX shell, and its output names missing programs. Every step is idempotent.
//! Values of the user are quoted.

use protocol::action::RunAction;
use protocol::record::WorkspaceSetup;
use protocol::sandbox_api::{ActionRequest, SandboxAction};
use protocol::{Observation, ObservationKind};

/// Timeout of a step, in seconds: V0's timeout for set-up scripts. There is no timeout for missing
/// output.
pub(super) const STEP_TIMEOUT: f64 = 600.0;

/// Time after the timeout in which the sandbox must respond, in seconds. Killing the step takes
/// about a second.
pub(super) const CANCEL_GRACE_PERIOD: f64 = 30.0;

/// Folder of the workspace that an organization's knowledge is cloned to.
const KNOWLEDGE_FOLDER: &str = ".openhands-organization";

/// Maximum length of a failed step's output in an error.
const MAX_QUOTED_LINES: usize = 3;
const MAX_QUOTED_CHARS: usize = 600;

/// One step of a set-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetupStep {
    /// Clone the repository into a folder of the workspace.
    Clone,
    /// Clone the repository that holds the organization's knowledge, if there is one.
    CloneKnowledge,
    /// Initialize the workspace as a repository.
    Initialize,
    /// Run the set-up script, if there is one.
    RunScript,
    /// Install the repository's pre-commit script as a git hook, if there is one.
    InstallHook,
}

/// The repository that a set-up clones. All fields are empty if it clones none.
#[derive(Debug, Clone, Default)]
pub(super) struct Repository {
    pub(super) name: String,
    pub(super) branch: String,
    /// Folder that it is cloned to.
    pub(super) folder: String,
    /// Folder that the knowledge of its organization is cloned to, if there is any.
    pub(super) knowledge_folder: String,
}

/// Result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SetupStepResult {
    Done,
    /// It exited with a failure.
    Failed,
    /// It was interrupted, or never started.
    Interrupted,
}

impl SetupStep {
    /// Returns the steps of a set-up, in order.
    pub(super) fn all_for(setup: &WorkspaceSetup) -> &'static [Self] {
        match setup {
            WorkspaceSetup::Repository { url, .. } if organization_repository(url).is_some() => &[
                Self::Clone,
                Self::CloneKnowledge,
                Self::RunScript,
                Self::InstallHook,
            ],
            WorkspaceSetup::Repository { .. } => &[Self::Clone, Self::RunScript, Self::InstallHook],
            WorkspaceSetup::EmptyRepository => &[Self::Initialize],
            WorkspaceSetup::Folder => &[Self::RunScript, Self::InstallHook],
        }
    }

    /// Whether the agent cannot work without the step. Failures of the others are only reported to
    /// it, as in V0.
    pub(super) fn is_required(self) -> bool {
        matches!(self, Self::Clone | Self::Initialize)
    }

    /// Returns the result that an observation reports.
    pub(super) fn result(observation: &Observation) -> SetupStepResult {
        match &observation.kind {
            ObservationKind::Run(run) if run.metadata.exit_code == 0 => SetupStepResult::Done,
            ObservationKind::Run(_) => SetupStepResult::Failed,
            _ => SetupStepResult::Interrupted,
        }
    }

    /// Returns the action of the step. Its `thought` is the label of the step.
    pub(super) fn action(self, setup: &WorkspaceSetup, working_dir: &str) -> RunAction {
        let (command, thought) = match (self, setup) {
            (Self::Clone, WorkspaceSetup::Repository { url, branch }) => (
                clone(url, branch.as_deref(), working_dir),
                clone_title(url, branch.as_deref()),
            ),
            (Self::CloneKnowledge, WorkspaceSetup::Repository { url, .. }) => {
                let url = organization_repository(url).unwrap_or_default();
                let values = format!("url={}\nfolder={KNOWLEDGE_FOLDER}\n", quote(&url));
                (
                    in_subshell(
                        working_dir,
                        &values,
                        include_str!("setup/clone_knowledge.sh"),
                    ),
                    format!("Looking for the organization's knowledge at {url}"),
                )
            }
            (Self::Clone | Self::CloneKnowledge | Self::Initialize, _) => (
                in_subshell(working_dir, "", include_str!("setup/initialize.sh")),
                "Initializing the workspace as a repository".to_owned(),
            ),
            (Self::RunScript, _) => (
                format!(
                    "cd -- {} &&\n{}",
                    quote(&repository_folder(setup, working_dir)),
                    include_str!("setup/run_script.sh")
                ),
                "Running the set-up script".to_owned(),
            ),
            // `set +eu` first: if the set-up script left these options set, a failing command would
            // end the shell.
            (Self::InstallHook, _) => (
                format!(
                    "set +eu\n{}",
                    in_subshell(
                        &repository_folder(setup, working_dir),
                        "",
                        include_str!("setup/install_hook.sh")
                    )
                ),
                "Installing the commit hook".to_owned(),
            ),
        };
        RunAction {
            command,
            thought,
            blocking: true,
            ..Default::default()
        }
    }
}

/// Describes a failed step, with the end of its output.
pub(super) fn describe_failure(request: &ActionRequest, observation: &Observation) -> String {
    let thought = match &request.action {
        SandboxAction::Run(run) => &run.thought,
        _ => "the set-up of the workspace",
    };
    let status = match &observation.kind {
        ObservationKind::Run(run) => format!(" failed with exit code {}", run.metadata.exit_code),
        _ => " failed".to_owned(),
    };
    let lines: Vec<_> = observation
        .content
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let output = lines
        .get(lines.len().saturating_sub(MAX_QUOTED_LINES)..)
        .unwrap_or_default()
        .join(" ");
    let skipped = output.chars().count().saturating_sub(MAX_QUOTED_CHARS);
    let output: String = output
        .chars()
        .skip(skipped)
        .filter(|character| !character.is_control())
        .collect();
    format!("{thought}{status}: {output}")
}

fn clone(url: &str, branch: Option<&str>, working_dir: &str) -> String {
    let folder = folder_name(url);
    let is_path = url.starts_with('/') || url.starts_with("file://");
    let values = format!(
        "url={}\nbranch={}\nfolder={}\nneeds_network={}\n",
        quote(url),
        quote(branch.unwrap_or_default()),
        quote(&folder),
        if is_path { "" } else { "yes" },
    );
    let clone = in_subshell(working_dir, &values, include_str!("setup/clone.sh"));
    format!("{clone} &&\ncd -- {}", quote(&join(working_dir, &folder)))
}

fn clone_title(url: &str, branch: Option<&str>) -> String {
    branch.map_or_else(
        || format!("Cloning {url}"),
        |branch| format!("Cloning {url}, branch {branch}"),
    )
}

/// Changes to the folder and runs the script in a subshell without standard input.
fn in_subshell(folder: &str, values: &str, text: &str) -> String {
    format!("cd -- {} && (\n{values}{text}) </dev/null", quote(folder))
}

/// Returns the URL of the repository with an organization's knowledge. `None` if the URL has no
/// owner, such as a path.
///
/// The names are V0's: `.openhands`, and `openhands-config` at GitLab and Azure DevOps, where no
/// name starts with a dot.
fn organization_repository(url: &str) -> Option<String> {
    let trimmed = url.trim_end_matches('/');
    let (host, path) = match trimmed.split_once("://") {
        Some(("file", _)) => return None,
        Some((_, rest)) => rest.split_once('/')?,
        None if trimmed.starts_with('/') => return None,
        None => trimmed.split_once(':')?,
    };
    let (owner, _) = path
        .rsplit_once('/')
        .filter(|(owner, _)| !owner.is_empty())?;
    let before_path = trimmed.strip_suffix(path)?;
    if host.ends_with("dev.azure.com") {
        let (organization, _) = path.split_once('/')?;
        return Some(format!(
            "{before_path}{organization}/openhands-config/_git/openhands-config"
        ));
    }
    let name = if host.contains("gitlab") {
        "openhands-config"
    } else {
        ".openhands"
    };
    let suffix = if path.ends_with(".git") { ".git" } else { "" };
    Some(format!("{before_path}{owner}/{name}{suffix}"))
}

/// Returns the repository that a set-up clones. `None` if it clones none.
pub(super) fn repository(setup: &WorkspaceSetup, working_dir: &str) -> Option<Repository> {
    let WorkspaceSetup::Repository { url, branch } = setup else {
        return None;
    };
    let path = url.trim_end_matches('/').trim_end_matches(".git");
    let mut parts = path.rsplit(['/', ':']).take(2).collect::<Vec<_>>();
    parts.reverse();
    Some(Repository {
        name: parts.join("/"),
        branch: branch.clone().unwrap_or_default(),
        folder: repository_folder(setup, working_dir),
        knowledge_folder: join(working_dir, KNOWLEDGE_FOLDER),
    })
}

/// Returns the folder of the repository.
fn repository_folder(setup: &WorkspaceSetup, working_dir: &str) -> String {
    match setup {
        WorkspaceSetup::Repository { url, .. } => join(working_dir, &folder_name(url)),
        WorkspaceSetup::EmptyRepository | WorkspaceSetup::Folder => working_dir.to_owned(),
    }
}

/// Returns the folder name that git would choose, without unusual characters.
fn folder_name(url: &str) -> String {
    let path = url.trim_end_matches('/');
    let path = path.strip_suffix("/.git").unwrap_or(path);
    let last = path.rsplit(['/', ':']).next().unwrap_or_default();
    let name: String = last
        .strip_suffix(".git")
        .unwrap_or(last)
        .chars()
        .map(|character| {
            if character.is_ascii_alphanumeric() || "._-".contains(character) {
                character
            } else {
                '-'
            }
        })
        .take(100)
        .collect();
    let name = name.trim_start_matches(['.', '-']);
    if name.is_empty() {
        "repository".to_owned()
    } else {
        name.to_owned()
    }
}

fn join(folder: &str, name: &str) -> String {
    format!("{}/{name}", folder.trim_end_matches('/'))
}

/// Quotes a text as one shell word, without NULs, which no shell accepts.
fn quote(text: &str) -> String {
    let text = text.replace('\0', "");
    shlex::try_quote(&text).map_or_else(|_| "''".to_owned(), std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use protocol::observation::{CommandMetadata, RunObservation};

    use super::*;
    use crate::skip::skip_without;

    fn repository(url: &str, branch: Option<&str>) -> WorkspaceSetup {
        WorkspaceSetup::Repository {
            url: url.into(),
            branch: branch.map(Into::into),
        }
    }

    /// Runs a step in a new shell. Returns its exit code, and its output with the shell's folder at
    /// the end.
    fn perform(
        step: SetupStep,
        setup: &WorkspaceSetup,
        folder: &Path,
        path: Option<&Path>,
    ) -> (i32, String) {
        let action = step.action(setup, folder.to_str().unwrap());
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(format!(
            "{}\ncode=$?; echo \"in $PWD\"; exit $code",
            action.command
        ));
        shell.env_clear().env("HOME", folder).env(
            "PATH",
            path.unwrap_or(Path::new("/usr/local/bin:/usr/bin:/bin")),
        );
        let output = shell.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.code().unwrap_or(-1),
            String::from_utf8_lossy(&text).into_owned(),
        )
    }

    fn git(folder: &Path, arguments: &[&str]) -> bool {
        git_with(folder, arguments, &[])
    }

    fn git_with(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> bool {
        let mut git = Command::new("git");
        git.args([
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@t",
            "-c",
            "init.defaultBranch=main",
        ])
        .args(arguments);
        git.current_dir(folder)
            .env("HOME", folder)
            .env_remove("GLOVEBOX_SESSION")
            .envs(variables.iter().copied())
            .output()
            .unwrap()
            .status
            .success()
    }

    #[test]
    fn repository_folder_is_named_like_git_names_it() {
        for (url, name) in [
            ("https://h/o/project.git", "project"),
            ("https://h/o/project/", "project"),
            ("git@h:project.git", "project"),
            ("/srv/project/.git", "project"),
            ("https://h/..", "repository"),
            ("https://h/.git", "h"),
            ("https://h/--upload-pack=x", "upload-pack-x"),
            ("https://h/a b;c", "a-b-c"),
            ("", "repository"),
        ] {
            assert_eq!(folder_name(url), name, "{url}");
        }
    }

    #[test]
    fn organization_repository_is_named_as_in_v0() {
        for (url, expected) in [
            (
                "https://github.com/octo/hello.git",
                Some("https://github.com/octo/.openhands.git"),
            ),
            (
                "https://github.com/octo/hello/",
                Some("https://github.com/octo/.openhands"),
            ),
            (
                "git@github.com:octo/hello.git",
                Some("git@github.com:octo/.openhands.git"),
            ),
            (
                "ssh://git@h:22/octo/hello",
                Some("ssh://git@h:22/octo/.openhands"),
            ),
            (
                "https://gitlab.com/octo/team/hello",
                Some("https://gitlab.com/octo/team/openhands-config"),
            ),
            (
                "https://dev.azure.com/octo/project/_git/hello",
                Some("https://dev.azure.com/octo/openhands-config/_git/openhands-config"),
            ),
            ("/srv/octo/hello", None),
            ("file:///srv/octo/hello", None),
            ("https://h/hello", None),
            ("git@h:hello", None),
            ("/hello", None),
            ("", None),
        ] {
            assert_eq!(organization_repository(url).as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn organization_knowledge_is_cloned_if_there_is_any() {
        if skip_without("git") {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let work = folder.path().join("work");
        let stale = work.join(KNOWLEDGE_FOLDER).join("microagents/stale.md");
        std::fs::create_dir_all(stale.parent().unwrap()).unwrap();
        std::fs::write(&stale, "").unwrap();
        let origins = format!(
            "[url \"file://{}/\"]\ninsteadOf = https://h/\n",
            folder.path().display()
        );
        std::fs::write(work.join(".gitconfig"), origins).unwrap();
        let setup = repository("https://h/owner's/hello", None);
        assert!(SetupStep::all_for(&setup).contains(&SetupStep::CloneKnowledge));
        let (code, output) = perform(SetupStep::CloneKnowledge, &setup, &work, None);
        assert!(
            code == 0 && output.contains("There is no repository"),
            "{output}"
        );
        assert!(!work.join(KNOWLEDGE_FOLDER).exists());

        let origin = folder.path().join("owner's/.openhands");
        std::fs::create_dir_all(origin.join("microagents")).unwrap();
        std::fs::write(origin.join("microagents/house.md"), "House rules.").unwrap();
        assert!(
            git(&origin, &["init"])
                && git(&origin, &["add", "."])
                && git(&origin, &["commit", "-m", "x"])
        );
        let (code, output) = perform(SetupStep::CloneKnowledge, &setup, &work, None);
        assert_eq!(code, 0, "{output}");
        assert!(
            work.join(KNOWLEDGE_FOLDER)
                .join("microagents/house.md")
                .exists(),
            "{output}"
        );

        let programs = folder.path().join("empty");
        let (code, _) = perform(SetupStep::CloneKnowledge, &setup, &work, Some(&programs));
        assert_eq!(code, 0, "a sandbox without git");
    }

    #[test]
    fn url_and_branch_are_never_executed() {
        if skip_without("git") {
            return;
        }
        let hostile = [
            "$(touch made)",
            "`touch made`",
            "'; touch made; '",
            "\"; touch made; \"",
            "x\ntouch made\n",
            "--upload-pack=touch made",
            "ext::touch made",
            "-u touch made",
            "a & touch made",
            "/nowhere'$(touch made)",
            "!touch made",
            "\\'; touch made",
        ];
        for text in hostile {
            for setup in [
                repository(text, None),
                repository("/nowhere", Some(text)),
                repository(text, Some(text)),
            ] {
                let folder = tempfile::tempdir().unwrap();
                let (code, output) = perform(SetupStep::Clone, &setup, folder.path(), None);
                assert_ne!(code, 0, "{output}");
                perform(SetupStep::CloneKnowledge, &setup, folder.path(), None);
                let left: Vec<_> = std::fs::read_dir(folder.path())
                    .unwrap()
                    .flatten()
                    .map(|entry| entry.file_name())
                    .collect();
                assert!(left.is_empty(), "{text}: {left:?}");
            }
        }
    }

    #[test]
    fn clone_is_atomic_and_idempotent() {
        if skip_without("git") {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (origin, work) = (
            folder.path().join("it's an origin"),
            folder.path().join("my work"),
        );
        std::fs::create_dir_all(&origin).unwrap();
        std::fs::create_dir_all(work.join(".it-s-an-origin.unfinished-clone/.git")).unwrap();
        std::fs::write(origin.join("file"), "text").unwrap();
        assert!(
            git(&origin, &["init"])
                && git(&origin, &["add", "."])
                && git(&origin, &["commit", "-m", "x"])
        );
        assert!(git(
            &origin,
            &["branch", "-m", "it's a branch".replace(' ', "-").as_str()]
        ));
        let setup = repository(origin.to_str().unwrap(), Some("it's-a-branch"));
        for _ in 0..2 {
            let (code, output) = perform(SetupStep::Clone, &setup, &work, None);
            assert_eq!(code, 0, "{output}");
            assert!(
                output.contains(&format!("in {}/it-s-an-origin", work.display())),
                "{output}"
            );
            assert_eq!(
                std::fs::read_to_string(work.join("it-s-an-origin/file")).unwrap(),
                "text"
            );
            assert_eq!(std::fs::read_dir(&work).unwrap().count(), 1);
        }
        std::fs::remove_dir_all(work.join("it-s-an-origin/.git")).unwrap();
        let (code, output) = perform(SetupStep::Clone, &setup, &work, None);
        assert!(
            code == 1 && output.contains("something else at it-s-an-origin"),
            "{output}"
        );
    }

    #[test]
    fn clone_names_the_missing_network() {
        let folder = tempfile::tempdir().unwrap();
        let programs = folder.path().join("programs");
        std::fs::create_dir(&programs).unwrap();
        for (name, text) in [("git", "exit 128"), ("ls", "echo lo"), ("rm", "exit 0")] {
            std::fs::write(programs.join(name), format!("#!/bin/sh\n{text}\n")).unwrap();
            Command::new("chmod")
                .arg("755")
                .arg(programs.join(name))
                .status()
                .unwrap();
        }
        for (url, is_named) in [
            ("https://h/o/p", true),
            ("git@h:o/p", true),
            ("/srv/p", false),
            ("file:///srv/p", false),
        ] {
            let (code, output) = perform(
                SetupStep::Clone,
                &repository(url, None),
                folder.path(),
                Some(&programs),
            );
            assert_eq!(
                (code, output.contains("has no network")),
                (1, is_named),
                "{output}"
            );
        }
    }

    #[test]
    fn clone_names_the_missing_git() {
        let folder = tempfile::tempdir().unwrap();
        let programs = folder.path().join("empty");
        for (step, setup) in [
            (SetupStep::Clone, repository("https://h/o/project", None)),
            (SetupStep::Initialize, WorkspaceSetup::EmptyRepository),
        ] {
            let (code, output) = perform(step, &setup, folder.path(), Some(&programs));
            assert!(code == 127 && output.contains("has no git"), "{output}");
        }
    }

    #[test]
    fn empty_workspace_is_initialized_once() {
        if skip_without("git") {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        for expected in ["Initialized", "already"] {
            let (code, output) = perform(
                SetupStep::Initialize,
                &WorkspaceSetup::EmptyRepository,
                folder.path(),
                None,
            );
            assert!(code == 0 && output.contains(expected), "{output}");
            assert!(folder.path().join(".git/HEAD").exists());
        }
    }

    #[test]
    fn hook_is_installed_once_and_calls_the_previous_one() {
        if skip_without("git") {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        assert!(git(folder.path(), &["init"]));
        std::fs::create_dir(at(".openhands")).unwrap();
        std::fs::write(
            at(".openhands/pre-commit.sh"),
            "echo ours >> log; [ ! -e refuse ]",
        )
        .unwrap();
        std::fs::create_dir_all(at(".git/hooks")).unwrap();
        std::fs::write(
            at(".git/hooks/pre-commit"),
            "#!/bin/sh\necho theirs >> log\n",
        )
        .unwrap();
        Command::new("chmod")
            .arg("755")
            .arg(at(".git/hooks/pre-commit"))
            .status()
            .unwrap();
        for _ in 0..2 {
            let (code, output) = perform(
                SetupStep::InstallHook,
                &WorkspaceSetup::Folder,
                folder.path(),
                None,
            );
            assert_eq!(code, 0, "{output}");
        }
        let in_sandbox = [("GLOVEBOX_SESSION", "1")];
        let commit = |variables: &[(&str, &str)]| {
            let arguments = ["commit", "--allow-empty", "-m", "x"];
            let is_done = git_with(folder.path(), &arguments, variables);
            let log = std::fs::read_to_string(at("log")).unwrap();
            std::fs::remove_file(at("log")).unwrap();
            (is_done, log)
        };
        assert_eq!(commit(&in_sandbox), (true, "theirs\nours\n".into()));
        std::fs::write(at("refuse"), "").unwrap();
        assert_eq!(commit(&in_sandbox), (false, "theirs\nours\n".into()));
        // A user's own commit runs nothing of the repository.
        assert_eq!(commit(&[]), (true, "theirs\n".into()));
    }

    #[test]
    fn setup_failure_is_one_bounded_line() {
        let metadata = CommandMetadata {
            exit_code: 128,
            ..Default::default()
        };
        let run = RunObservation {
            metadata,
            ..Default::default()
        };
        let run_action = RunAction {
            thought: "Cloning x".into(),
            ..Default::default()
        };
        let request = ActionRequest::new(SandboxAction::Run(run_action), None);
        let output = describe_failure(
            &request,
            &Observation::new(
                "Cloning into 'y'...\r\nfatal:\u{1b}[2J no\n\nWhy not.",
                run.clone(),
            ),
        );
        assert_eq!(
            output,
            "Cloning x failed with exit code 128: Cloning into 'y'... fatal:[2J no Why not."
        );
        let output = describe_failure(&request, &Observation::new("é".repeat(100_000), run));
        assert!(output.chars().count() < 700 && !output.contains('\n'));
    }
}

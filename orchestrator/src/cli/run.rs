//! `glovebox run`: starts a conversation and runs it to its end.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use conversations::{Conversations, InitialTask};
use protocol::action::MessageAction;
use protocol::client_api::v2::CreateConversation;

use super::conversation_run::{self, NewRun};
use super::remote::{RemoteRun, RemoteServer};
use super::run_options::RunOptions;
use super::{BackendOptions, pictures, prepare, print, remote, saved_trajectory, trusted_config};
use crate::compose;
use crate::config::Overrides;
use crate::exit::{Exit, UsageError};
use crate::input_file;
use crate::workspace::{self, WorkspaceFolder};

/// Maximum size of a task, in bytes.
const MAX_TASK_LENGTH: usize = 1 << 20;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Set the model with --model, LLM_MODEL or config.toml, its key with LLM_API_KEY, and its address with LLM_BASE_URL.
Example: LLM_API_KEY=… glovebox run -l gpt-4o -d . 'Make the tests pass'
Prints the agent's answer on standard output, and everything else on standard error.")]
pub(super) struct RunArguments {
    /// The task; the same as -t TASK.
    #[arg(value_name = "TASK", conflicts_with_all = ["task", "file"])]
    positional_task: Option<String>,

    /// The task.
    #[arg(short = 't', long, value_name = "TASK", conflicts_with = "file")]
    task: Option<String>,

    /// UTF-8 file with the task; - is standard input.
    #[arg(short = 'f', long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Attach a picture to the task: PNG, JPEG, GIF or WebP. Can be repeated.
    #[arg(long = "image-file", value_name = "PATH")]
    image_files: Vec<PathBuf>,

    /// Agent: a built-in one such as ReadOnlyAgent, an [agent.NAME] section, a name in
    /// .glovebox/agents, or a Markdown file.
    #[arg(short = 'c', long, aliases = ["agent-cls", "agent-config"], value_name = "NAME|FILE")]
    agent: Option<String>,

    /// Title of the conversation, which `conversations ls` shows. By default, the start of the
    /// task.
    #[arg(short = 'n', long, value_name = "TITLE", value_parser = title)]
    name: Option<String>,

    /// Repository to clone into the workspace: OWNER/NAME, or a URL that git in the sandbox can
    /// clone.
    #[arg(long, value_name = "URL[#BRANCH]")]
    selected_repo: Option<String>,

    /// With --server: end once the task is stored, and print the id of the conversation.
    #[arg(long)]
    detach: bool,

    #[command(flatten)]
    backend: BackendOptions,

    #[command(flatten)]
    options: RunOptions,
}

/// Gives the task to an agent of a server.
pub(super) async fn run_on_server(
    arguments: RunArguments,
    url: &str,
    overrides: &Overrides,
) -> anyhow::Result<Exit> {
    let local = arguments.backend.first_given_option();
    if let Some(option) = local.or(arguments.options.given_for_this_machine()) {
        return Err(UsageError(format!("{option} is chosen by the server")).into());
    }
    if let Some(agent) = arguments.agent.as_ref().filter(|agent| agent.contains('/')) {
        return Err(UsageError(format!("{agent}: a server has no files of this machine")).into());
    }
    let server = RemoteServer::open(url, overrides)?;
    let output = arguments.options.output();
    let task = arguments.task.or(arguments.positional_task);
    let content = read_task(task, arguments.file.as_deref())?;
    let image_urls = Some(pictures::read(&arguments.image_files)?).filter(|urls| !urls.is_empty());
    let (repository, branch) = match arguments.selected_repo {
        Some(repository) => match repository.split_once('#') {
            Some((url, branch)) => (Some(url.to_owned()), Some(branch.to_owned())),
            None => (Some(repository), None),
        },
        None => (None, None),
    };
    let request = CreateConversation {
        agent: arguments.agent,
        model: arguments.options.model,
        message: Some(MessageAction {
            content,
            image_urls,
            ..MessageAction::default()
        }),
        repository,
        branch,
        title: arguments.name,
        ..CreateConversation::default()
    };
    let run = RemoteRun {
        request,
        output,
        is_detached: arguments.detach,
    };
    remote::run(run, server).await
}

pub(super) async fn run(arguments: RunArguments, overrides: Overrides) -> anyhow::Result<Exit> {
    if arguments.detach {
        let text = "--detach needs --server URL: this process runs the agent otherwise";
        return Err(UsageError(text.to_owned()).into());
    }
    let overrides = arguments
        .backend
        .overrides(arguments.options.overrides(overrides));
    let overrides = Overrides {
        agent: arguments.agent,
        selected_repository: arguments.selected_repo,
        ..overrides
    };
    let replayed = trusted_config::load_and_ask(&overrides)?.replay_trajectory;
    let task = arguments.task.or(arguments.positional_task);
    let task = match replayed {
        Some(_)
            if task.is_some() || arguments.file.is_some() || !arguments.image_files.is_empty() =>
        {
            let text = "core.replay_trajectory_path is set, and the trajectory contains the task: give none";
            return Err(UsageError(text.to_owned()).into());
        }
        Some(path) => InitialTask::Replay {
            trajectory: saved_trajectory::read(&path)?,
            continues: true,
        },
        None => {
            let content = read_task(task, arguments.file.as_deref())?;
            let image_urls =
                Some(pictures::read(&arguments.image_files)?).filter(|urls| !urls.is_empty());
            InitialTask::Message(MessageAction {
                content,
                image_urls,
                ..Default::default()
            })
        }
    };
    let (config, state_dir) = prepare(&overrides).await?;
    if !arguments.image_files.is_empty() && config.llm.provider.disable_vision == Some(true) {
        print::warning("the model gets no pictures: disable_vision is set under [llm]");
    }
    // Errors of the agent are reported before those of its model.
    compose::agent(&config)?;
    let id = Conversations::new_id();
    let models = arguments.options.models(&config, 0, &id)?;
    arguments.options.reach_provider(&config).await?;
    let workspace = WorkspaceFolder::choose(
        &config,
        &state_dir,
        &id,
        arguments.backend.directory.as_deref(),
    )?;
    let setup = workspace::setup(&config.workspace, &workspace)?;
    let model = compose::stored_model_name(&config.llm);
    let title = arguments.name;
    let new = NewRun {
        id,
        title,
        task,
        workspace,
        setup,
        models,
        model,
        options: arguments.options,
    };
    conversation_run::start(new, &config, &state_dir).await
}

fn title(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("a title cannot be empty".to_owned()),
        title => Ok(title.to_owned()),
    }
}

fn read_task(task: Option<String>, file: Option<&Path>) -> anyhow::Result<String> {
    let text = match (task, file) {
        (Some(task), _) => task,
        (None, Some(path)) if path == Path::new("-") => read_stdin()?,
        (None, Some(path)) => {
            let bytes = input_file::read_named(path, MAX_TASK_LENGTH).map_err(|error| {
                UsageError(format!(
                    "cannot read the task in {}: {error}",
                    path.display()
                ))
            })?;
            to_utf8(bytes, &path.display().to_string())?
        }
        (None, None) if !std::io::stdin().is_terminal() => read_stdin()?,
        (None, None) => String::new(),
    };
    if text.trim().is_empty() {
        return Err(UsageError(
            "no task: give one as an argument, with -t TASK or with -f FILE".to_owned(),
        )
        .into());
    }
    Ok(text)
}

fn read_stdin() -> anyhow::Result<String> {
    let bytes =
        input_file::read_bounded(std::io::stdin().lock(), MAX_TASK_LENGTH).map_err(|error| {
            UsageError(format!("cannot read the task from standard input: {error}"))
        })?;
    to_utf8(bytes, "standard input")
}

fn to_utf8(bytes: Vec<u8>, source: &str) -> anyhow::Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let byte = error.utf8_error().valid_up_to();
        UsageError(format!("the task in {source} is not UTF-8: byte {byte}")).into()
    })
}

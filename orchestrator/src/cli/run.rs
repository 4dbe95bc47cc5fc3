//! `glovebox run`: a new conversation, followed to its end.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::conversations::Conversations;
use engine::agent::Agent;
use engine::conversation::{Afterwards, Conversation, Parts};
use engine::events::EventStore;
use engine::memory::Memory;
use engine::replay::{Replay, Trajectory};
use engine::sandbox::SandboxSpec;
use protocol::action::MessageAction;
use protocol::record::{ConversationStarted, WorkspaceSetup};
use protocol::{ConversationId, EventId};

use super::conversations::TrajectoryFile;
use super::follow::{Follow, Followed, Output};
use super::title::entitle;
use super::{PlaceArguments, conversations, pictures, prepare, print, replay, trust};
use crate::compose::{self, Lock, Models, StateDir};
use crate::config::{Config, Overrides};
use crate::exit::{Exit, UsageError};
use crate::input_file;
use crate::terminal_input::InputKeptFromShell;
use crate::workspace::{self, WorkFolder};

/// Longest task, in bytes.
const MAX_TASK_LENGTH: usize = 1 << 20;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The model comes from --model, LLM_MODEL or config.toml; its key from LLM_API_KEY, its address from LLM_BASE_URL.
Example: LLM_API_KEY=… glovebox run -l gpt-4o -d . 'Make the tests pass'
The agent's answer goes to standard output, everything else to standard error.")]
pub(super) struct RunArguments {
    /// The task; the same as -t TASK.
    #[arg(value_name = "TASK", conflicts_with_all = ["task", "file"])]
    positional_task: Option<String>,

    /// The task.
    #[arg(short = 't', long, value_name = "TASK", conflicts_with = "file")]
    task: Option<String>,

    /// A UTF-8 file that holds the task; - is standard input.
    #[arg(short = 'f', long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Attach a picture to the task: PNG, JPEG, GIF or WebP; may be given several times.
    #[arg(long = "image-file", value_name = "PATH")]
    image_files: Vec<PathBuf>,

    /// CodeActAgent, ReadOnlyAgent, an [agent.NAME] section, a name in .glovebox/agents, or a Markdown file.
    #[arg(short = 'c', long, aliases = ["agent-cls", "agent-config"], value_name = "NAME|FILE")]
    agent: Option<String>,

    /// The conversation's title, which `conversations ls` shows; else it is taken from the task.
    #[arg(short = 'n', long, value_name = "TITLE", value_parser = title)]
    name: Option<String>,

    /// A repository that is cloned into the workspace: OWNER/NAME, or what git clones from the sandbox.
    #[arg(long, value_name = "URL[#BRANCH]")]
    selected_repo: Option<String>,

    #[command(flatten)]
    place: PlaceArguments,

    #[command(flatten)]
    work: WorkArguments,
}

/// How the agent works, for new conversations and old ones.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct WorkArguments {
    /// A model, an [llm.NAME] group of the configuration, or scripted:FILE for a file of answers.
    #[arg(short = 'l', long, alias = "llm-config", value_name = "MODEL")]
    pub(super) model: Option<String>,

    /// How many steps the agent may take.
    #[arg(short = 'i', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) max_iterations: Option<u32>,

    /// What the calls to the model may cost, in US dollars.
    #[arg(short = 'b', long = "max-budget-per-task", value_name = "DOLLARS", value_parser = dollars)]
    pub(super) max_budget: Option<f64>,

    /// Do not tell an agent that asks a question to go on by itself.
    #[arg(long)]
    pub(super) no_auto_continue: bool,

    /// Print one event a line as JSON on standard output instead of the transcript.
    #[arg(long)]
    pub(super) json: bool,

    /// What commands may use by its name and nobody may see: from the environment, from a file, or as it is (then other
    /// users see it in the list of processes). It is taken out of the log, the output, and what the agent sees.
    #[arg(long = "secret", value_name = "NAME[=VALUE|=@FILE]")]
    pub(super) secrets: Vec<String>,
    /// Write each call of the model and its answer to a file in this folder.
    #[arg(long, value_name = "DIR", conflicts_with = "replay")]
    pub(super) record: Option<PathBuf>,

    /// Answer each call of the model from the files that --record wrote to this folder; nothing is sent to a provider.
    #[arg(long, value_name = "DIR")]
    pub(super) replay: Option<PathBuf>,

    /// Write the conversation's V0 events to this file at the end.
    #[arg(long, value_name = "FILE")]
    pub(super) save_trajectory: Option<PathBuf>,
}

impl WorkArguments {
    pub(super) fn overrides(&self, overrides: Overrides) -> Overrides {
        Overrides {
            model: self.model.clone(),
            max_iterations: self.max_iterations,
            max_budget: self.max_budget,
            save_trajectory: self.save_trajectory.clone(),
            secrets: self.secrets.clone(),
            ..overrides
        }
    }

    /// The models, recorded or replayed.
    pub(super) fn models(
        &self,
        config: &Config,
        answered: usize,
        id: &ConversationId,
    ) -> anyhow::Result<Models> {
        match (&self.record, &self.replay) {
            (_, Some(folder)) => Models::replayed(config, answered, id, folder),
            (Some(folder), None) => Models::recorded(config, answered, id, folder),
            (None, None) => Models::new(config, answered),
        }
    }

    /// Fails where the provider cannot be reached, unless nothing will be sent to it.
    pub(super) async fn reach_provider(&self, config: &Config) -> anyhow::Result<()> {
        if self.replay.is_some() { Ok(()) } else { compose::reach_provider(config).await }
    }

    pub(super) fn output(&self) -> Output {
        if self.json { Output::Json } else { Output::Transcript }
    }
}

pub(super) async fn run(arguments: RunArguments, overrides: Overrides) -> anyhow::Result<Exit> {
    let overrides = arguments.place.overrides(arguments.work.overrides(overrides));
    let overrides =
        Overrides { agent: arguments.agent, selected_repository: arguments.selected_repo, ..overrides };
    let replayed = trust::load_decided(&overrides)?.replay_trajectory;
    let task = arguments.task.or(arguments.positional_task);
    let what = match replayed {
        Some(_) if task.is_some() || arguments.file.is_some() || !arguments.image_files.is_empty() => {
            let text = "core.replay_trajectory_path is set, and a trajectory brings its own task: give none";
            return Err(UsageError(text.to_owned()).into());
        }
        Some(path) => What::Replayed { trajectory: replay::read(&path)?, hands_over: true },
        None => {
            let text = read_task(task, arguments.file.as_deref())?;
            What::Asked { text, image_urls: pictures::read(&arguments.image_files)? }
        }
    };
    let (config, state_dir) = prepare(&overrides).await?;
    if !arguments.image_files.is_empty() && config.llm.settings.flag("llm", "disable_vision") == Some(true) {
        print::warning("the model sees no pictures: disable_vision is set under [llm]");
    }
    // What is wrong with the agent is reported before its model is looked at.
    compose::agent(&config)?;
    let id = Conversations::new_id();
    let models = arguments.work.models(&config, 0, &id)?;
    arguments.work.reach_provider(&config).await?;
    let workspace = WorkFolder::choose(&config, &state_dir, &id, arguments.place.directory.as_deref())?;
    let setup = workspace::setup(&config, &workspace)?;
    let model = compose::lasting_model_name(&config.llm);
    let title = arguments.name;
    let task = Task { id, title, what, workspace, setup, models, model, work: arguments.work };
    perform(task, &config, &state_dir).await
}

/// A task that is ready to be begun.
pub(super) struct Task {
    pub(super) id: ConversationId,
    /// The user's own. `None` if it is taken from the task.
    pub(super) title: Option<String>,
    pub(super) what: What,
    pub(super) workspace: WorkFolder,
    /// How it is made ready.
    pub(super) setup: Option<WorkspaceSetup>,
    pub(super) models: Models,
    /// The name that the conversation is resumed with.
    pub(super) model: String,
    pub(super) work: WorkArguments,
}

/// What is to be done.
pub(super) enum What {
    /// What the user asks for, with pictures as data URLs.
    Asked { text: String, image_urls: Vec<String> },
    /// What a trajectory's agent did; then the agent goes on, if it is to.
    Replayed { trajectory: Trajectory, hands_over: bool },
}

/// Begins a conversation and follows it to its end.
pub(super) async fn perform(task: Task, config: &Config, state_dir: &StateDir) -> anyhow::Result<Exit> {
    let id = task.id.clone();
    let _input = InputKeptFromShell;
    let _lock = state_dir.lock(&id)?;
    let _folder = match &task.workspace {
        WorkFolder::Here(path) => note_folder(state_dir, path)?,
        WorkFolder::There(_) | WorkFolder::Fresh => None,
    };
    let store = state_dir.store(config.durability).await?;
    let exit = perform_locked(task, config, state_dir, store.clone()).await;
    compose::conversations(store, state_dir).remove_empty_workspace(&id).await;
    exit
}

async fn perform_locked(
    task: Task,
    config: &Config,
    state_dir: &StateDir,
    store: Arc<dyn EventStore>,
) -> anyhow::Result<Exit> {
    let trajectory = conversations::prepare_trajectory(config, &task.id)?;
    let started = ConversationStarted {
        agent: config.agent.lasting_name.clone(),
        model: task.model,
        max_iterations: config.max_iterations,
        max_budget: config.max_budget,
        confirmation: compose::security(config)?.0,
        runtime: config.runtime.clone(),
        image: config.sandbox.image.clone(),
        workspace: task.workspace.for_log()?,
        network: Some(config.sandbox.network.clone().unwrap_or_else(|| "none".to_owned())),
        setup: task.setup,
        forked_from: None,
        history_truncation_disabled: config.history_truncation_disabled,
        stuck_detection_disabled: config.stuck_detection_disabled,
    };
    let live = compose::agent(config)?;
    let has_answer = !matches!(&task.what, What::Replayed { hands_over: false, .. });
    let (said, replayed, agent): (_, _, Arc<dyn Agent>) = match task.what {
        What::Asked { text, image_urls } => (Some((text, image_urls)), None, live),
        What::Replayed { trajectory, hands_over: true } => {
            (None, Some(trajectory.clone()), Arc::new(Replay::new(trajectory, live)))
        }
        What::Replayed { trajectory, hands_over: false } => {
            (None, Some(trajectory.clone()), Arc::new(Replay::alone(trajectory, live)))
        }
    };
    let spec = spec(config, &task.id, &started);
    trust::check_sandbox(config, &spec)?;
    let parts = compose::parts(config, state_dir, store, &task.models, agent, spec)?;
    warn_of_memory(&parts);
    warn_of_budget(&task.models, config, config.max_budget);
    if task.work.output() == Output::Transcript {
        introduce(&task.id, &started, config);
        if let Some((isolation, bounds)) = compose::isolation(config, state_dir).await? {
            print::note(&format!("isolation: {isolation}\nbounded: {bounds}\n"));
        }
    }
    let sweep = compose::sweep(&parts.provider, config, state_dir);
    let redactor = compose::redactor(config)?;
    let conversation = Conversation::begin(parts.clone(), task.id, started).await?;
    if let Some(title) = &task.title {
        conversation.set_title(&redactor.text(title))?;
    }
    // At once: said after the sandbox could not be placed, it would have another one placed.
    if let Some((text, image_urls)) = said {
        let content = redactor.text(&text).into_owned();
        let image_urls = Some(image_urls).filter(|urls| !urls.is_empty());
        conversation.say(MessageAction { content, image_urls, ..Default::default() })?;
    }
    let course = Course { from: EventId::FIRST, replayed: replayed.as_ref(), has_answer, trajectory };
    let exit = finish(conversation, &parts, config, state_dir, &task.work, course, &task.models).await;
    sweep.finish().await;
    exit
}

/// What is followed of a conversation.
pub(super) struct Course<'a> {
    /// The first event to show.
    pub(super) from: EventId,
    /// What is done again, with what its user said.
    pub(super) replayed: Option<&'a Trajectory>,
    /// Whether what the agent says at the end is an answer to the user.
    pub(super) has_answer: bool,
    /// Where the conversation's events are saved at the end.
    pub(super) trajectory: Option<TrajectoryFile>,
}

/// Follows an open conversation to its end and closes it: of the sandbox becomes what is configured, the log and the
/// workspace stay.
pub(super) async fn finish(
    conversation: Conversation,
    parts: &Parts,
    config: &Config,
    state_dir: &StateDir,
    work: &WorkArguments,
    course: Course<'_>,
    models: &Models,
) -> anyhow::Result<Exit> {
    let following = Follow {
        conversation: &conversation,
        output: work.output(),
        from: course.from,
        auto_continue: !work.no_auto_continue,
        replayed: course.replayed,
        network: &compose::network(config),
    };
    let followed = tokio::select! {
        followed = following.follow() => followed,
        // Nothing waits for a title.
        never = async {
            entitle(&conversation, models.title()).await;
            std::future::pending().await
        } => never,
    };
    let id = conversation.id().clone();
    let state = conversation.state();
    let exit = followed.and_then(|Followed { exit, answer }| {
        let is_answered = course.has_answer && matches!(exit, Exit::Finished | Exit::Waiting);
        if is_answered && work.output() == Output::Transcript {
            print::answer(answer.as_deref().unwrap_or_default())?;
        }
        Ok(exit)
    });
    // Those in the sandbox too, while it is there.
    parts.shut_down_tool_servers().await;
    // A lease that cannot be reached now may hold work: only what ended in order is removed.
    let is_in_order = !state.is_underway() || exit.as_ref().is_ok_and(|exit| *exit == Exit::Interrupted);
    conversation.close(if is_in_order { config.sandbox.afterwards } else { Afterwards::Keep }).await?;
    let exit = exit?;
    if let Some(file) = course.trajectory {
        let store = compose::conversations(Arc::clone(&parts.store), state_dir);
        conversations::save_trajectory(&store, &id, file, config.saves_screenshots).await?;
    }
    if work.output() == Output::Transcript {
        print::note(&conversations::closing_words(&id, &state, exit));
    }
    Ok(exit)
}

/// Tells what of the user's own files could not be read as it was meant.
pub(super) fn warn_of_memory(parts: &Parts) {
    for problem in parts.memory.iter().flat_map(Memory::problems) {
        print::warning(&problem.to_string());
    }
}

/// Tells of a limit of money that nothing will reach.
pub(super) fn warn_of_budget(models: &Models, config: &Config, budget: Option<f64>) {
    if let Some(most) = budget.filter(|_| !models.have_a_price(config)) {
        print::warning(&format!(
            "the limit of ${most} has no effect: no price is known of {}; `input_cost_per_token` and `output_cost_per_token` \
             under [llm] tell it",
            config.llm.model.as_deref().unwrap_or("the model")
        ));
    }
}

/// What the conversation's sandbox is to be. Its environment is the configuration's: the log holds no secrets.
pub(super) fn spec(config: &Config, id: &ConversationId, started: &ConversationStarted) -> SandboxSpec {
    SandboxSpec {
        image: started.image.clone(),
        environment: workspace::environment(config, started.setup.as_ref()),
        workspace: started.workspace.as_ref().map(PathBuf::from),
        ..compose::spec(config, id.clone())
    }
}

pub(super) fn introduce(id: &ConversationId, started: &ConversationStarted, config: &Config) {
    let workspace = started.workspace.as_deref().unwrap_or("a fresh folder");
    let network = compose::network(config);
    let hint = if network == "none" { " (--network gives it one)" } else { "" };
    print::note(&format!(
        "conversation {id}: {} in {}, working in {workspace}\nnetwork of the sandbox: {network}{hint}\n",
        started.model, started.runtime
    ));
}

/// Notes that this process works in a folder, and warns where another one does too.
pub(super) fn note_folder(state_dir: &StateDir, folder: &Path) -> anyhow::Result<Option<Lock>> {
    let lock = state_dir.lock_folder(folder)?;
    if lock.is_none() {
        let folder = folder.display();
        print::warning(&format!("another run works in {folder}: both may change the same files"));
    }
    Ok(lock)
}

fn title(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("a title cannot be empty".to_owned()),
        title => Ok(title.to_owned()),
    }
}

fn dollars(text: &str) -> Result<f64, String> {
    let sum: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if sum.is_finite() && sum > 0.0 { Ok(sum) } else { Err("more than 0 is needed".to_owned()) }
}

fn read_task(task: Option<String>, file: Option<&Path>) -> anyhow::Result<String> {
    let text = match (task, file) {
        (Some(task), _) => task,
        (None, Some(path)) if path == Path::new("-") => read_stdin()?,
        (None, Some(path)) => {
            let bytes = input_file::read_named(path, MAX_TASK_LENGTH).map_err(|error| {
                UsageError(format!("cannot read the task in {}: {error}", path.display()))
            })?;
            utf8(bytes, &path.display().to_string())?
        }
        (None, None) if !std::io::stdin().is_terminal() => read_stdin()?,
        (None, None) => String::new(),
    };
    if text.trim().is_empty() {
        return Err(UsageError(
            "there is no task: give one as an argument, with -t TASK or with -f FILE".to_owned(),
        )
        .into());
    }
    Ok(text)
}

fn read_stdin() -> anyhow::Result<String> {
    let bytes = input_file::read_bounded(std::io::stdin().lock(), MAX_TASK_LENGTH)
        .map_err(|error| UsageError(format!("cannot read the task from standard input: {error}")))?;
    utf8(bytes, "standard input")
}

fn utf8(bytes: Vec<u8>, what: &str) -> anyhow::Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let byte = error.utf8_error().valid_up_to();
        UsageError(format!("the task in {what} is not UTF-8: byte {byte}")).into()
    })
}

//! The language models.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use engine::agent::tools::ToolName;
use engine::llm::{ChatMessage, Llm, LlmErrorKind, LlmRequest, MessagePart};
use llm::{LlmConfig, MultimodalRouter, RecordingLlm, RecordingRedaction, ReplayLlm, ScriptedLlm};
use protocol::ConversationId;

use super::secrets::recording_redaction;
use crate::config::{Config, LlmSettings};
use crate::exit::UsageError;
use crate::input_file;
use crate::metrics::ModelMetrics;

/// Prefix of a model name that is the path of a file with responses.
pub(super) const SCRIPTED: &str = "scripted:";

/// Maximum size of a file with responses, in bytes.
const MAX_SCRIPT_LENGTH: usize = 64 << 20;

/// Timeout of a call that checks a model. A local model may have to be loaded first.
const CHECK_TIMEOUT: Duration = Duration::from_secs(60);

/// A script without responses.
const EMPTY_SCRIPT: &str = r#"{"responses": []}"#;

/// The models of one conversation.
pub(crate) struct Models {
    /// The agent's model, or two models behind a router.
    pub(super) agent: Arc<dyn Llm>,
    title: Option<Arc<dyn Llm>>,
    mode: CallMode,
}

/// Whether calls reach the provider.
#[derive(Clone)]
pub(crate) enum CallMode {
    Live,
    /// Calls reach the provider, and are measured.
    Metered(ModelMetrics),
    /// Calls reach the provider, and are written to the folder with secrets redacted.
    Record(PathBuf, RecordingRedaction),
    /// Calls are answered from a recording. Nothing is sent.
    Replay(Arc<dyn Llm>),
}

impl Models {
    /// The configured models. A scripted model skips `answered` responses, for a resumed
    /// conversation.
    pub(crate) fn new(config: &Config, answered: usize, mode: CallMode) -> anyhow::Result<Self> {
        let agent = mode.wrap(|| connect_routed(config, answered))?;
        let title = config.title_llm.as_ref();
        let title = title
            .map(|settings| mode.wrap(|| connect(config, settings, 0)))
            .transpose()?;
        Ok(Self { agent, title, mode })
    }

    /// A scripted model for the agent, and none for titles.
    pub(crate) fn scripted(script: &str) -> anyhow::Result<Self> {
        Ok(Self {
            agent: scripted(script, 0)?,
            title: None,
            mode: CallMode::Live,
        })
    }

    /// Whether the price of the agent's model is known. Without it a budget is never exceeded.
    /// Scripts and recordings hold the cost of each response.
    fn has_known_price(&self, config: &Config) -> bool {
        is_scripted(&config.llm)
            || matches!(self.mode, CallMode::Replay(_))
            || self.agent.max_cost(1) > 0.0
    }

    /// Warns of a budget, in US dollars, without effect: the model has no prices. `None` without a
    /// budget, or if it is kept.
    pub(crate) fn budget_warning(
        &self,
        config: &Config,
        max_budget: Option<f64>,
    ) -> Option<String> {
        let max = max_budget.filter(|_| !self.has_known_price(config))?;
        Some(format!(
            "the limit of ${max} has no effect, because the price of {} is unknown: set `input_cost_per_token` and \
             `output_cost_per_token` under [llm]",
            config.llm.model.as_deref().unwrap_or("the model")
        ))
    }

    /// The model that generates titles. `None` if titles are not generated.
    pub(crate) fn title(&self) -> Option<Arc<dyn Llm>> {
        self.title.clone()
    }

    /// The models of an agent that tasks are delegated to. It shares the client of the same model.
    pub(super) fn for_delegate(&self, config: &Config, delegate: &Config) -> anyhow::Result<Self> {
        let agent = match delegate.is_routed_like(config) {
            true => Arc::clone(&self.agent),
            false => self.mode.wrap(|| connect_routed(delegate, 0))?,
        };
        Ok(Self {
            agent,
            title: None,
            mode: self.mode.clone(),
        })
    }

    /// The model that applies drafted edits: the configured one if the agent drafts edits, else the
    /// agent's own.
    pub(super) fn draft_editor(&self, config: &Config) -> anyhow::Result<Arc<dyn Llm>> {
        let definition = config.agent.definition.as_ref();
        let drafts = definition.is_ok_and(|agent| agent.tools.contains(&ToolName::EditFile));
        match config.draft_editor_llm.as_ref().filter(|_| drafts) {
            Some(settings) => self.connect(config, settings),
            None => Ok(Arc::clone(&self.agent)),
        }
    }

    /// A model in addition to the agent's.
    pub(super) fn connect(
        &self,
        config: &Config,
        settings: &LlmSettings,
    ) -> anyhow::Result<Arc<dyn Llm>> {
        self.mode.wrap(|| connect(config, settings, 0))
    }
}

impl CallMode {
    /// Records the calls of a conversation to a folder, or replays them from one.
    pub(crate) fn new(
        config: &Config,
        conversation: &ConversationId,
        record: Option<&Path>,
        replay: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let redaction = || recording_redaction(config, Some(conversation));
        Ok(match (record, replay) {
            (_, Some(folder)) => {
                let llm = ReplayLlm::open(folder, redaction()?).map_err(|error| {
                    let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
                    UsageError(format!("{error}{}", cause.unwrap_or_default()))
                })?;
                Self::Replay(Arc::new(llm))
            }
            (Some(folder), None) => Self::Record(folder.to_owned(), redaction()?),
            (None, None) => Self::Live,
        })
    }

    /// Wraps a model, or replaces it by the recording.
    fn wrap(
        &self,
        llm: impl FnOnce() -> anyhow::Result<Arc<dyn Llm>>,
    ) -> anyhow::Result<Arc<dyn Llm>> {
        Ok(match self {
            Self::Live => llm()?,
            Self::Metered(metrics) => metrics.measure(llm()?),
            Self::Record(folder, redaction) => {
                Arc::new(RecordingLlm::new(llm()?, folder, redaction.clone())?)
            }
            Self::Replay(llm) => Arc::clone(llm),
        })
    }
}

/// The agent's model, or two models behind a router. The scripted agent calls no model and needs no
/// configuration of one.
fn connect_routed(config: &Config, answered: usize) -> anyhow::Result<Arc<dyn Llm>> {
    if config.agent.is_dummy() {
        return scripted(EMPTY_SCRIPT, 0);
    }
    let primary = connect(config, &config.llm, answered)?;
    let Some(secondary) = &config.secondary_llm else {
        return Ok(primary);
    };
    Ok(Arc::new(MultimodalRouter {
        primary,
        secondary: connect(config, secondary, 0)?,
    }))
}

/// One model. Its calls are recorded if `log_completions` is set.
fn connect(
    config: &Config,
    settings: &LlmSettings,
    answered: usize,
) -> anyhow::Result<Arc<dyn Llm>> {
    let llm = connect_unlogged(settings, answered)?;
    if !settings.logs_completions {
        return Ok(llm);
    }
    let folder = settings
        .log_folder
        .clone()
        .unwrap_or_else(|| config.state_dir.join("completions"));
    Ok(Arc::new(RecordingLlm::new(
        llm,
        &folder,
        recording_redaction(config, None)?,
    )?))
}

/// The agent's models that need a provider. Excludes those that may never be called, such as the
/// one for drafted edits.
pub(crate) fn provider_models(config: &Config) -> impl Iterator<Item = (&String, LlmConfig)> {
    let all = std::iter::once(&config.llm).chain(&config.secondary_llm);
    all.filter(|settings| !is_scripted(settings))
        .filter_map(|settings| {
            let model = settings.model.as_ref()?;
            Some((model, settings.provider_config(model)))
        })
}

/// Fails if the provider of the agent's model requires a key and there is none.
pub(crate) fn check_key(config: &Config) -> anyhow::Result<()> {
    match provider_models(config).find(|(_, config)| llm::is_key_missing(config)) {
        Some((model, _)) => Err(UsageError(format!(
            "no key for {model}: set LLM_API_KEY, or api_key under [llm]; a server of your own needs its address in \
             LLM_BASE_URL instead"
        ))
        .into()),
        None => Ok(()),
    }
}

/// Fails if the configuration of a model is invalid, or a file of responses cannot be used.
/// Connects to no provider.
pub(crate) fn check_models(config: &Config) -> anyhow::Result<()> {
    config
        .llms()
        .filter(|settings| settings.model.is_some())
        .try_for_each(|settings| connect_unlogged(settings, 0).map(drop))
}

/// Fails if the provider of the agent's model cannot be reached. Called before a sandbox is
/// started.
pub(crate) async fn reach_provider(config: &Config) -> anyhow::Result<()> {
    check_key(config)?;
    for (model, config) in provider_models(config) {
        let reached = llm::check_connection(&config).await;
        reached.map_err(|error| {
            anyhow::anyhow!(
                "cannot reach the provider of {model}: {}{}",
                error.detail,
                next_step(error.kind)
            )
        })?;
    }
    Ok(())
}

/// Sends each of the agent's models a short message, without retries. Fails with the next step if
/// one does not answer.
pub(crate) async fn call_models(config: &Config) -> anyhow::Result<String> {
    let mut lines = Vec::new();
    for (model, mut config) in provider_models(config) {
        config.retry.num_retries = 1;
        config.timeouts.total = config.timeouts.total.min(CHECK_TIMEOUT);
        let text = MessagePart::Text("Reply with the word ok.".to_owned());
        let request = LlmRequest {
            messages: vec![ChatMessage::User(vec![text])],
            tools: Vec::new(),
        };
        let completion = llm::connect(&config)?.complete(&request, &|_| {}).await;
        let completion = completion
            .map_err(|error| anyhow::anyhow!("{model}: {error}{}", next_step(error.kind)))?;
        lines.push(format!(
            "{model} answers in {:.1} s",
            completion.latency.as_secs_f64()
        ));
    }
    Ok(if lines.is_empty() {
        "the responses come from a file".to_owned()
    } else {
        lines.join("\n")
    })
}

/// What the user can do about an error of a model.
fn next_step(kind: LlmErrorKind) -> &'static str {
    match kind {
        LlmErrorKind::Authentication | LlmErrorKind::Permission => {
            "; set LLM_API_KEY, or api_key under [llm]"
        }
        // The error has it.
        LlmErrorKind::MissingKey => "",
        LlmErrorKind::UnknownModel => "; set LLM_MODEL, or model under [llm]",
        LlmErrorKind::WrongAddress | LlmErrorKind::AddressRefused | LlmErrorKind::Connection => {
            "; set LLM_BASE_URL, or base_url under [llm]"
        }
        LlmErrorKind::Timeout => {
            "; a model that is being loaded answers later: try again, or set LLM_BASE_URL, or base_url under [llm]"
        }
        LlmErrorKind::OutOfCredit => {
            "; add credit, or set the key of another account in LLM_API_KEY"
        }
        LlmErrorKind::RateLimited | LlmErrorKind::Unavailable | LlmErrorKind::StreamCut => {
            "; try again later"
        }
        LlmErrorKind::BadRequest
        | LlmErrorKind::ContextWindowExceeded
        | LlmErrorKind::ContentPolicy
        | LlmErrorKind::Malformed
        | LlmErrorKind::ScriptEnded
        | LlmErrorKind::NotRecorded => "; check the keys under [llm]",
    }
}

fn connect_unlogged(settings: &LlmSettings, answered: usize) -> anyhow::Result<Arc<dyn Llm>> {
    let Some(model) = &settings.model else {
        let text = "no model is named: set LLM_MODEL (and LLM_API_KEY, LLM_BASE_URL), or use --model; \
                    `glovebox demo` needs none";
        return Err(UsageError(text.to_owned()).into());
    };
    if let Some(file) = model.strip_prefix(SCRIPTED) {
        let script = input_file::read_named(Path::new(file), MAX_SCRIPT_LENGTH)
            .and_then(input_file::to_text)
            .map_err(|error| UsageError(format!("cannot read the script {file}: {error}")))?;
        return scripted(&script, answered)
            .map_err(|error| UsageError(format!("the script {file}: {error:#}")).into());
    }
    llm::connect(&settings.provider_config(model)).map_err(|error| {
        let cause = std::error::Error::source(&error)
            .map(|cause| format!(": {cause}"))
            .unwrap_or_default();
        UsageError(format!("the configuration of the model: {error}{cause}")).into()
    })
}

fn scripted(script: &str, answered: usize) -> anyhow::Result<Arc<dyn Llm>> {
    Ok(Arc::new(
        ScriptedLlm::from_json(script)?.resuming_after(answered),
    ))
}

/// Whether the model's responses come from a file.
pub(super) fn is_scripted(settings: &LlmSettings) -> bool {
    settings.model.as_deref().is_some_and(is_scripted_name)
}

/// Whether a model's name is the path of a file with responses.
pub(super) fn is_scripted_name(model: &str) -> bool {
    model.starts_with(SCRIPTED)
}

/// The model's name in a conversation's log. The path of a script is absolute, to be valid in any
/// folder.
pub(crate) fn stored_model_name(settings: &LlmSettings) -> String {
    let model = settings.model.clone().unwrap_or_default();
    let script = model
        .strip_prefix(SCRIPTED)
        .and_then(|file| Path::new(file).canonicalize().ok());
    script.map_or(model, |path| format!("{SCRIPTED}{}", path.display()))
}

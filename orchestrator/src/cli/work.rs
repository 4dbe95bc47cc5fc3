//! The arguments that say how an agent works, in new conversations and old ones.

use std::path::PathBuf;

use protocol::ConversationId;

use super::screen::Output;
use crate::compose::{self, Models};
use crate::config::{Config, Overrides};

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

fn dollars(text: &str) -> Result<f64, String> {
    let sum: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if sum.is_finite() && sum > 0.0 { Ok(sum) } else { Err("more than 0 is needed".to_owned()) }
}

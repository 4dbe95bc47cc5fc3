//! Arguments of commands that run an agent, in a new or a resumed conversation.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use protocol::ConversationId;

use super::print;
use super::screen::Output;
use crate::compose::{self, CallMode, Models};
use crate::config::{Config, Overrides};

/// Options of a new or a resumed conversation.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct RunOptions {
    /// A model, an [llm.NAME] group of the configuration, or scripted:FILE for a file of responses.
    #[arg(short = 'l', long, alias = "llm-config", value_name = "MODEL", value_parser = NonEmptyStringValueParser::new())]
    pub(super) model: Option<String>,

    /// Maximum number of steps of the agent.
    #[arg(short = 'i', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) max_iterations: Option<u32>,

    /// Maximum cost of the model calls, in US dollars.
    #[arg(short = 'b', long = "max-budget-per-task", value_name = "DOLLARS", value_parser = dollars)]
    pub(super) max_budget: Option<f64>,

    /// Wait for an answer when the agent asks a question, instead of telling it to continue.
    #[arg(long)]
    pub(super) no_auto_continue: bool,

    /// Print the events as JSON on standard output, one per line, instead of the transcript.
    #[arg(long)]
    pub(super) json: bool,

    /// Secret that commands can use by its name, from the environment, a file, or the command line
    /// (where other users can read it in the process list). It is redacted in the log, the output,
    /// and what the agent sees.
    #[arg(long = "secret", value_name = "NAME[=VALUE|=@FILE]")]
    pub(super) secrets: Vec<String>,

    /// Record each model call and its response in this folder.
    #[arg(long, value_name = "DIR", conflicts_with = "replay")]
    pub(super) record: Option<PathBuf>,

    /// Answer each model call from a folder that --record has written. Nothing is sent to a
    /// provider.
    #[arg(long, value_name = "DIR")]
    pub(super) replay: Option<PathBuf>,

    /// Write the conversation's trajectory, in V0's format, to this file at the end.
    #[arg(long, value_name = "FILE")]
    pub(super) save_trajectory: Option<PathBuf>,
}

impl RunOptions {
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

    /// Returns an option that was given and that only works for conversations of this machine.
    pub(super) fn given_for_this_machine(&self) -> Option<&'static str> {
        let options = [
            ("--max-iterations", self.max_iterations.is_some()),
            ("--max-budget-per-task", self.max_budget.is_some()),
            ("--secret", !self.secrets.is_empty()),
            ("--record", self.record.is_some()),
            ("--replay", self.replay.is_some()),
            ("--save-trajectory", self.save_trajectory.is_some()),
        ];
        let given = options.into_iter().find(|(_, is_given)| *is_given);
        given.map(|(name, _)| name)
    }

    /// Connects the models. Their calls are recorded or replayed if requested. A scripted model
    /// skips `answered` responses.
    pub(super) fn models(
        &self,
        config: &Config,
        answered: usize,
        id: &ConversationId,
    ) -> anyhow::Result<Models> {
        let mode = CallMode::new(config, id, self.record.as_deref(), self.replay.as_deref())?;
        Models::new(config, answered, mode)
    }

    /// Fails if the provider cannot be reached, unless calls are replayed.
    pub(super) async fn reach_provider(&self, config: &Config) -> anyhow::Result<()> {
        if self.replay.is_some() {
            Ok(())
        } else {
            print::with_notice("the provider of the model", compose::reach_provider(config)).await
        }
    }

    pub(super) fn output(&self) -> Output {
        if self.json {
            Output::Json
        } else {
            Output::Transcript
        }
    }
}

pub(super) fn dollars(text: &str) -> Result<f64, String> {
    let sum: f64 = text.parse().map_err(|_| "expected a number".to_owned())?;
    if sum.is_finite() && sum > 0.0 {
        Ok(sum)
    } else {
        Err("expected more than 0".to_owned())
    }
}

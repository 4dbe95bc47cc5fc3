//! `glovebox replay`: runs the actions of a saved trajectory in a fresh sandbox.

use std::path::PathBuf;

use conversations::{Conversations, InitialTask};
use engine::replay::ReplayDifference;
use protocol::Observation;
use serde_json::{Value, json};

use super::conversation_run::{self, NewRun};
use super::run_options::RunOptions;
use super::{BackendOptions, prepare, print, saved_trajectory};
use crate::compose::{self, Models, Stores};
use crate::config::Overrides;
use crate::exit::Exit;
use crate::workspace::{self, WorkspaceFolder};

/// Maximum number of lines of an observation in a difference.
const MAX_LINES: usize = 12;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
FILE is a JSON array of V0's events, which --save-trajectory and V0 write. After the last action, the agent continues with \
the model, as in `glovebox run`.
With --diff, no model is called, and the exit code is 1 if the result of an action differs from that in the file.")]
pub(super) struct ReplayArguments {
    /// The trajectory.
    file: PathBuf,

    /// Only run the actions, and print the results that differ; with --json as one JSON array.
    #[arg(long)]
    diff: bool,

    #[command(flatten)]
    backend: BackendOptions,

    #[command(flatten)]
    options: RunOptions,
}

pub(super) async fn run(arguments: ReplayArguments, overrides: Overrides) -> anyhow::Result<Exit> {
    let ReplayArguments {
        file,
        diff,
        backend,
        options,
    } = arguments;
    let trajectory = saved_trajectory::read(&file)?;
    let overrides = backend.overrides(options.overrides(overrides));
    let (config, state_dir) = prepare(&overrides).await?;
    let id = Conversations::new_id();
    let workspace =
        WorkspaceFolder::choose(&config, &state_dir, &id, backend.directory.as_deref())?;
    let setup = workspace::setup(&config.workspace, &workspace)?;
    let (models, model) = if diff {
        (Models::scripted(r#"{"responses": []}"#)?, "none".to_owned())
    } else {
        let models = options.models(&config, 0, &id)?;
        options.reach_provider(&config).await?;
        (models, compose::stored_model_name(&config.llm))
    };
    let (is_json, options) = (
        options.json,
        RunOptions {
            json: options.json && !diff,
            ..options
        },
    );
    let task = InitialTask::Replay {
        trajectory: trajectory.clone(),
        continues: !diff,
    };
    let new = NewRun {
        id: id.clone(),
        title: None,
        task,
        workspace,
        setup,
        models,
        model,
        options,
    };
    let exit = conversation_run::start(new, &config, &state_dir).await?;
    if !diff || exit == Exit::Interrupted {
        return Ok(exit);
    }
    let stores = Stores::open(&config, &state_dir).await?;
    let differences = stores
        .conversations()
        .await?
        .compare_replay(&id, &trajectory)
        .await?;
    stores.close().await;
    if is_json {
        let rows: Vec<_> = differences.iter().map(to_json).collect();
        print::line(&serde_json::to_string(&rows)?)?;
    } else {
        differences
            .iter()
            .try_for_each(|difference| print::line(&to_text(difference)))?;
        let (count, same) = (
            trajectory.len(),
            trajectory.len().saturating_sub(differences.len()),
        );
        print::note(&format!("{same} of {count} actions had the same result\n"));
    }
    Ok(if differences.is_empty() {
        Exit::Finished
    } else {
        Exit::Failed
    })
}

fn to_json(difference: &ReplayDifference) -> Value {
    let ReplayDifference {
        action,
        message,
        before,
        after,
    } = difference;
    json!({ "action": action, "message": message, "before": before, "after": after })
}

fn to_text(difference: &ReplayDifference) -> String {
    let part = |name: &str, observation: &Option<Observation>| {
        let Some(observation) = observation else {
            return format!("  {name}: nothing\n");
        };
        let text = print::for_terminal(observation.content.trim_end());
        let lines: Vec<_> = text.lines().collect();
        let mut part = format!("  {name} ({}):\n", observation.kind.kind());
        for line in lines.iter().take(MAX_LINES) {
            part.push_str(&format!("    {line}\n"));
        }
        if lines.len() > MAX_LINES {
            part.push_str(&format!("    … {} more lines\n", lines.len() - MAX_LINES));
        }
        part
    };
    let ReplayDifference {
        action,
        message,
        before,
        after,
    } = difference;
    let message = print::for_terminal(message.lines().next().unwrap_or_default());
    format!(
        "event {action}: {message}\n{}{}",
        part("then", before),
        part("now", after)
    )
}

//! `glovebox replay`: what a saved trajectory's agent did is done again in a fresh sandbox.

use std::path::{Path, PathBuf};

use conversations::Conversations;
use engine::replay::{ReplayDifference, Trajectory};
use protocol::{Event, Observation, python_json};
use serde_json::{Value, json};

use super::run::{Task, What, WorkArguments, perform};
use super::{PlaceArguments, prepare, print};
use crate::compose::{self, Models};
use crate::config::Overrides;
use crate::exit::{Exit, UsageError};
use crate::input_file;
use crate::workspace::{self, WorkFolder};

/// How much of an observation a difference quotes, in lines.
const LINES_SHOWN: usize = 12;

/// Longest trajectory, in bytes.
const MAX_LENGTH: usize = 256 << 20;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The file is a JSON array of V0's events, as --save-trajectory and V0 write it. When all of it has been done again, the
agent goes on from there with the model, as after `glovebox run`.
With --diff no model is called: ends with 1 where something else came of an action than the file says.")]
pub(super) struct ReplayArguments {
    /// The trajectory.
    file: PathBuf,

    /// Only do it again, and show where something else came of an action; with --json as one JSON array.
    #[arg(long)]
    diff: bool,

    #[command(flatten)]
    place: PlaceArguments,

    #[command(flatten)]
    work: WorkArguments,
}

pub(super) async fn run(arguments: ReplayArguments, overrides: Overrides) -> anyhow::Result<Exit> {
    let ReplayArguments { file, diff, place, work } = arguments;
    let trajectory = read(&file)?;
    let overrides = place.overrides(work.overrides(overrides));
    let (config, state_dir) = prepare(&overrides).await?;
    let id = Conversations::new_id();
    let workspace = WorkFolder::choose(&config, &state_dir, &id, place.directory.as_deref())?;
    let setup = workspace::setup(&config, &workspace)?;
    let (models, model) = if diff {
        (Models::scripted(r#"{"responses": []}"#)?, "none".to_owned())
    } else {
        let models = work.models(&config, 0, &id)?;
        work.reach_provider(&config).await?;
        (models, compose::lasting_model_name(&config.llm))
    };
    let (is_json, work) = (work.json, WorkArguments { json: work.json && !diff, ..work });
    let what = What::Replayed { trajectory: trajectory.clone(), hands_over: !diff };
    let task = Task { id: id.clone(), title: None, what, workspace, setup, models, model, work };
    let exit = perform(task, &config, &state_dir).await?;
    if !diff || exit == Exit::Interrupted {
        return Ok(exit);
    }
    let store = state_dir.store(config.durability).await?;
    let log = compose::conversations(store, &state_dir).events(&id).await?;
    let differences = trajectory.differences(&log);
    if is_json {
        let told: Vec<_> = differences.iter().map(to_json).collect();
        print::line(&serde_json::to_string(&told)?)?;
    } else {
        differences.iter().try_for_each(|difference| print::line(&to_text(difference)))?;
        let (of, same) = (trajectory.len(), trajectory.len().saturating_sub(differences.len()));
        print::note(&format!("{same} of {of} actions came to what they had come to\n"));
    }
    Ok(if differences.is_empty() { Exit::Finished } else { Exit::Failed })
}

/// A saved trajectory.
pub(super) fn read(path: &Path) -> anyhow::Result<Trajectory> {
    let wrong = |problem: String| UsageError(format!("the trajectory {}: {problem}", path.display()));
    let text = input_file::read_named(path, MAX_LENGTH).map_err(|error| wrong(error.to_string()))?;
    let values: Vec<Value> = serde_json::from_slice(&python_json::to_json(&text))
        .map_err(|error| wrong(format!("not a JSON array of events: {error}")))?;
    let event = |(number, value)| {
        Event::from_value(value).map_err(|error| wrong(format!("entry {number}, counted from 0: {error}")))
    };
    let events = values.iter().enumerate().map(event).collect::<Result<Vec<_>, _>>()?;
    let trajectory = Trajectory::new(&events);
    if trajectory.is_empty() {
        return Err(wrong("its agent did nothing that could be done again".into()).into());
    }
    if trajectory.cancelled() > 0 {
        print::note(&format!(
            "not done again: {} that the user stopped or rejected\n",
            trajectory.cancelled()
        ));
    }
    if trajectory.undrafted() > 0 {
        print::note(&format!(
            "not done again: {} drafts of edits that came to nothing\n",
            trajectory.undrafted()
        ));
    }
    Ok(trajectory)
}

fn to_json(difference: &ReplayDifference) -> Value {
    let ReplayDifference { action, asked, before, after } = difference;
    json!({ "action": action, "message": asked, "before": before, "after": after })
}

fn to_text(difference: &ReplayDifference) -> String {
    let part = |name: &str, observation: &Option<Observation>| {
        let Some(observation) = observation else { return format!("  {name}: nothing\n") };
        let text = print::for_terminal(observation.content.trim_end());
        let lines: Vec<_> = text.lines().collect();
        let mut part = format!("  {name} ({}):\n", observation.kind.kind());
        for line in lines.iter().take(LINES_SHOWN) {
            part.push_str(&format!("    {line}\n"));
        }
        if lines.len() > LINES_SHOWN {
            part.push_str(&format!("    … {} more lines\n", lines.len() - LINES_SHOWN));
        }
        part
    };
    let ReplayDifference { action, asked, before, after } = difference;
    let asked = print::for_terminal(asked.lines().next().unwrap_or_default());
    format!("event {action}: {asked}\n{}{}", part("then", before), part("now", after))
}

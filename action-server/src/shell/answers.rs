//! Creates the observations of run actions, in V0's words where its clients parse them. Pure.

use std::path::Path;
use std::time::Duration;

use protocol::action::RunAction;
use protocol::observation::{CommandMetadata, NOT_EXECUTED_NOTICE, Observation, RunObservation};

use super::facts::MachineInfo;
use super::output::FoldedText;

/// V0's maximum for the output in one observation.
pub(crate) const SHOWN_CHARS: usize = 30_000;

/// Maximum for an observation that is hidden from the agent. V0 has none, and programs read long
/// files this way.
const HIDDEN_CHARS: usize = 1024 * 1024;

const OMISSION: &str = "\n[... Observation truncated due to length ...]\n";
const OUT_OF_MEMORY: &str = "\n[Out of memory: the kernel killed a process that used too much.]";
/// V0's texts, which its clients parse.
const TRUNCATED: &str = "[Previous command outputs are truncated.]\n";
const MORE_OUTPUT: &str = "[Below is the output of the previous command.]\n";

/// Returns the maximum number of characters in an action's observation.
pub(super) fn content_limit(action: &RunAction) -> usize {
    if action.hidden {
        HIDDEN_CHARS
    } else {
        SHOWN_CHARS
    }
}

/// Reason why an action is answered now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CommandOutcome {
    /// The shell has reported the end of the command.
    Completed { status: i32 },
    /// The command has ended the shell.
    ShellEnded { status: i32 },
    /// The action has timed out; the command continues.
    TimedOut { after: Duration },
    /// The command has no output; it continues.
    Quiet { after: Duration },
    /// Another command is running, and continues.
    NotExecuted,
    /// It was cancelled before it was started.
    NotStarted,
    /// The shell ended before it had read the command.
    NeverRead,
    /// The command and all its processes were killed.
    Cancelled { shell_lost: bool },
}

impl CommandOutcome {
    /// Returns whether the command has ended.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Self::Completed { .. }
            | Self::ShellEnded { .. }
            | Self::Cancelled { .. }
            | Self::NotStarted
            | Self::NeverRead => true,
            Self::TimedOut { .. } | Self::Quiet { .. } | Self::NotExecuted => false,
        }
    }

    /// Returns whether it was terminated by SIGKILL.
    pub(super) fn is_a_kill(&self) -> bool {
        self.exit_code() == 137
    }

    fn exit_code(&self) -> i32 {
        match self {
            Self::Completed { status } | Self::ShellEnded { status } => *status,
            Self::Cancelled { .. } | Self::NotStarted | Self::NeverRead => 137,
            Self::TimedOut { .. } | Self::Quiet { .. } | Self::NotExecuted => -1,
        }
    }
}

/// The contents of an observation of a command.
#[derive(Debug)]
pub(super) struct CommandReport<'a> {
    pub(super) ending: &'a CommandOutcome,
    pub(super) folded: FoldedText,
    /// The first observation of the command. V0 marks later ones.
    pub(super) first: bool,
    /// The foreground process group of a command that continues.
    pub(super) running: Option<i32>,
    pub(super) working_dir: &'a Path,
    /// An additional sentence for the agent.
    pub(super) note: Option<&'static str>,
    /// The kernel has killed a process because memory ran out.
    pub(super) out_of_memory: bool,
}

/// Creates the observation of `action`.
pub(super) fn answer(
    action: &RunAction,
    facts: &MachineInfo,
    answer: CommandReport<'_>,
) -> Observation {
    let mut suffix = suffix(action, &answer);
    let mut prefix = if answer.first {
        String::new()
    } else {
        MORE_OUTPUT.to_owned()
    };
    if answer.folded.dropped > 0 {
        prefix += TRUNCATED;
        suffix += &format!(
            "\n[{} characters were left out of the middle.]",
            answer.folded.dropped
        );
    }
    if let Some(note) = answer.note {
        suffix += &format!("\n[{note}]");
    }
    if answer.out_of_memory {
        suffix += OUT_OF_MEMORY;
    }
    let metadata = CommandMetadata {
        exit_code: answer.ending.exit_code().into(),
        pid: answer.running.map_or(-1, i64::from),
        working_dir: Some(answer.working_dir.to_string_lossy().into_owned()),
        prefix,
        suffix,
        out_of_memory: answer.out_of_memory,
        ..about(facts)
    };
    run(action, metadata, content(answer.folded))
}

/// Creates the observation of an action that requires a running command.
pub(super) fn nothing_runs(
    action: &RunAction,
    facts: &MachineInfo,
    working_dir: &Path,
) -> Observation {
    let wanted = if action.command.is_empty() {
        "retrieve logs from"
    } else {
        "interact with"
    };
    let metadata = CommandMetadata {
        working_dir: Some(working_dir.to_string_lossy().into_owned()),
        ..about(facts)
    };
    run(
        action,
        metadata,
        format!("ERROR: No previous running command to {wanted}."),
    )
}

/// Creates the observation of an action that was cancelled in the queue.
pub(super) fn never_begun(
    action: &RunAction,
    facts: &MachineInfo,
    working_dir: &Path,
) -> Observation {
    let answer_of = CommandReport {
        ending: &CommandOutcome::NotStarted,
        folded: FoldedText::default(),
        first: true,
        running: None,
        working_dir,
        note: None,
        out_of_memory: false,
    };
    answer(action, facts, answer_of)
}

fn run(action: &RunAction, metadata: CommandMetadata, content: String) -> Observation {
    Observation::new(
        content,
        RunObservation {
            command: action.command.clone(),
            metadata,
            hidden: action.hidden,
        },
    )
}

fn about(facts: &MachineInfo) -> CommandMetadata {
    CommandMetadata {
        username: facts.username.clone(),
        hostname: facts.hostname.clone(),
        py_interpreter_path: facts.python.clone(),
        ..CommandMetadata::default()
    }
}

/// Returns the text without trailing whitespace.
pub(crate) fn content(folded: FoldedText) -> String {
    let FoldedText {
        mut head,
        tail,
        dropped,
    } = folded;
    if dropped > 0 {
        head += OMISSION;
    }
    head += &tail;
    // The suffix starts with a newline.
    head.truncate(head.trim_end().len());
    head
}

fn suffix(action: &RunAction, answer: &CommandReport<'_>) -> String {
    match answer.ending {
        CommandOutcome::Completed { status } => completed(*status, action),
        CommandOutcome::ShellEnded { status } => format!(
            "{}\n[It ended the shell. The next command gets a new shell, without the state of this one.]",
            completed(*status, action)
        ),
        CommandOutcome::TimedOut { after } => {
            format!(
                "\n[The command timed out after {:?} seconds. {STILL_RUNNING}",
                after.as_secs_f64()
            )
        }
        CommandOutcome::Quiet { after } => {
            format!(
                "\n[The command has no new output after {} seconds. {STILL_RUNNING}",
                after.as_secs_f64()
            )
        }
        CommandOutcome::NotExecuted => format!(
            "{NOT_EXECUTED_NOTICE}{}\" is NOT executed. The previous command is still running. {STILL_RUNNING}",
            action.command
        ),
        CommandOutcome::NeverRead => {
            "\n[The shell ended before the command began; it was not run.]".to_owned()
        }
        CommandOutcome::NotStarted => "\n[The command was cancelled before it started.]".to_owned(),
        CommandOutcome::Cancelled { shell_lost } => {
            let lost = if *shell_lost {
                " The shell did not respond and was killed too. The next command gets a new one."
            } else {
                ""
            };
            format!("\n[The command was cancelled, and all its processes were killed.{lost}]")
        }
    }
}

const STILL_RUNNING: &str = "It continues to run: send an empty command to see more of its output, is_input to type to it, \
                             or the keys C-c, C-z or C-d.]";

fn completed(status: i32, action: &RunAction) -> String {
    let key = key(&action.command).filter(|_| action.is_input);
    let sent = key
        .map(|key| format!(" CTRL+{} was sent.", key.to_ascii_uppercase()))
        .unwrap_or_default();
    format!("\n[The command completed with exit code {status}.{sent}]")
}

/// Returns the letter of a key like `C-c`.
pub(super) fn key(text: &str) -> Option<char> {
    let mut letters = text.strip_prefix("C-")?.chars();
    let letter = letters.next().filter(char::is_ascii_alphabetic)?;
    letters.next().is_none().then_some(letter)
}

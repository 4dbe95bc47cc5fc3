//! The observations of run actions, in V0's words where its clients read them.
//!
//! Pure: how a look at a command ended goes in, an observation comes out.

use std::path::Path;
use std::time::Duration;

use protocol::action::RunAction;
use protocol::observation::{CommandMetadata, Observation, RunObservation};

use super::facts::Facts;
use super::output::Folded;

/// V0's bound on what an agent is shown of one observation.
pub(crate) const SHOWN_CHARS: usize = 30_000;

/// The bound on an observation that is kept from the agent: V0 has none, and programs read long files this way.
const HIDDEN_CHARS: usize = 1024 * 1024;

const OMISSION: &str = "\n[... Observation truncated due to length ...]\n";
const OUT_OF_MEMORY: &str = "\n[Out of memory: the kernel killed what took too much of it.]";
const MORE_OUTPUT: &str = "[Below is the output of the previous command.]\n";

/// How many characters an action's observation may hold.
pub(super) fn content_limit(action: &RunAction) -> usize {
    if action.hidden { HIDDEN_CHARS } else { SHOWN_CHARS }
}

/// Why an action is answered now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    /// The shell is at its prompt again.
    Completed { status: i32 },
    /// The command ended the shell with itself.
    ShellEnded { status: i32 },
    /// The action's time is over; the command goes on.
    TimedOut { after: Duration },
    /// The command says nothing; it goes on.
    Quiet { after: Duration },
    /// Another command still runs, and goes on.
    NotExecuted,
    /// It was cancelled before it could begin.
    NeverBegun,
    /// Everything the command started was killed.
    Cancelled { shell_lost: bool },
}

impl Ending {
    /// Whether the command is over.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Self::Completed { .. } | Self::ShellEnded { .. } | Self::Cancelled { .. } | Self::NeverBegun => {
                true
            }
            Self::TimedOut { .. } | Self::Quiet { .. } | Self::NotExecuted => false,
        }
    }

    /// Whether what ended was ended by SIGKILL.
    pub(super) fn is_a_kill(&self) -> bool {
        self.exit_code() == 137
    }

    fn exit_code(&self) -> i32 {
        match self {
            Self::Completed { status } | Self::ShellEnded { status } => *status,
            Self::Cancelled { .. } | Self::NeverBegun => 137,
            Self::TimedOut { .. } | Self::Quiet { .. } | Self::NotExecuted => -1,
        }
    }
}

/// What an observation of a command says.
#[derive(Debug)]
pub(super) struct Answer<'a> {
    pub(super) ending: &'a Ending,
    pub(super) folded: Folded,
    /// It is the command's first; V0 announces the later ones.
    pub(super) first: bool,
    /// The foreground process group of what still runs.
    pub(super) running: Option<i32>,
    pub(super) working_dir: &'a Path,
    /// Something else the agent should know, a sentence.
    pub(super) note: Option<&'static str>,
    /// The kernel has killed for lack of memory.
    pub(super) out_of_memory: bool,
}

/// The observation of `action`.
pub(super) fn answer(action: &RunAction, facts: &Facts, answer: Answer<'_>) -> Observation {
    let mut suffix = suffix(action, &answer);
    if answer.folded.dropped > 0 {
        suffix += &format!("\n[{} characters were left out of the middle.]", answer.folded.dropped);
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
        prefix: if answer.first { String::new() } else { MORE_OUTPUT.to_owned() },
        suffix,
        out_of_memory: answer.out_of_memory,
        ..about(facts)
    };
    run(action, metadata, content(answer.folded))
}

/// Nothing runs that could be waited for or typed to.
pub(super) fn nothing_runs(action: &RunAction, facts: &Facts, working_dir: &Path) -> Observation {
    let wanted = if action.command.is_empty() { "retrieve logs from" } else { "interact with" };
    let metadata =
        CommandMetadata { working_dir: Some(working_dir.to_string_lossy().into_owned()), ..about(facts) };
    run(action, metadata, format!("ERROR: No previous running command to {wanted}."))
}

/// It was cancelled while it waited for another.
pub(super) fn never_begun(action: &RunAction, facts: &Facts, working_dir: &Path) -> Observation {
    let answer_of = Answer {
        ending: &Ending::NeverBegun,
        folded: Folded::default(),
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
        RunObservation { command: action.command.clone(), metadata, hidden: action.hidden },
    )
}

fn about(facts: &Facts) -> CommandMetadata {
    CommandMetadata {
        username: facts.username.clone(),
        hostname: facts.hostname.clone(),
        py_interpreter_path: facts.python.clone(),
        ..CommandMetadata::default()
    }
}

/// The text, without a blank end.
pub(crate) fn content(folded: Folded) -> String {
    let Folded { mut head, tail, dropped } = folded;
    if dropped > 0 {
        head += OMISSION;
    }
    head += &tail;
    // V0's content has no blank end: the suffix brings its own newline.
    head.truncate(head.trim_end().len());
    head
}

fn suffix(action: &RunAction, answer: &Answer<'_>) -> String {
    match answer.ending {
        Ending::Completed { status } => completed(*status, action),
        Ending::ShellEnded { status } => format!(
            "{}\n[It ended the shell. The next command gets a new one, without what was set in this one.]",
            completed(*status, action)
        ),
        Ending::TimedOut { after } => {
            format!("\n[The command timed out after {:?} seconds. {STILL_RUNNING}", after.as_secs_f64())
        }
        Ending::Quiet { after } => {
            format!("\n[The command has no new output after {} seconds. {STILL_RUNNING}", after.as_secs_f64())
        }
        Ending::NotExecuted => format!(
            "\n[Your command \"{}\" is NOT executed. The previous command is still running. {STILL_RUNNING}",
            action.command
        ),
        Ending::NeverBegun => "\n[The command was cancelled before it began.]".to_owned(),
        Ending::Cancelled { shell_lost } => {
            let lost = if *shell_lost {
                " The shell did not let go and was killed too; the next command gets a new one."
            } else {
                ""
            };
            format!("\n[The command was cancelled and killed with everything it started.{lost}]")
        }
    }
}

const STILL_RUNNING: &str = "It goes on running: send an empty command to see more of its output, is_input to type to it, \
                             or the keys C-c, C-z or C-d.]";

fn completed(status: i32, action: &RunAction) -> String {
    let key = key(&action.command).filter(|_| action.is_input);
    let sent = key.map(|key| format!(" CTRL+{} was sent.", key.to_ascii_uppercase())).unwrap_or_default();
    format!("\n[The command completed with exit code {status}.{sent}]")
}

/// The letter of a text like `C-c`.
pub(super) fn key(text: &str) -> Option<char> {
    let mut letters = text.strip_prefix("C-")?.chars();
    let letter = letters.next().filter(char::is_ascii_alphabetic)?;
    letters.next().is_none().then_some(letter)
}

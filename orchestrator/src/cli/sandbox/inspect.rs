//! `glovebox sandbox inspect`.

use std::time::Duration;

use engine::sandbox::{
    Lifetime, Sandbox, SandboxDetails, SandboxError, SandboxState, SandboxSummary, Script,
    ScriptResult,
};
use indicatif::BinaryBytes;
use protocol::sandbox_api::ListeningPort;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::arguments::SandboxChoice;
use super::ls::{age_of, as_json, image_name, remaining, state};
use super::name::display_name;
use super::runtime::SandboxRuntime;
use crate::cli::print;
use crate::config::Overrides;
use crate::exit::Exit;

/// Timeout of what is asked inside of the sandbox.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum length of the name of a user that a sandbox may report, in bytes.
const MAX_NAME_LENGTH: usize = 256;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
User and ports are known while the sandbox runs; limits only for runtimes that enforce them.
Example: glovebox sandbox inspect box --json")]
pub(super) struct InspectArguments {
    #[command(flatten)]
    sandbox: SandboxChoice,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// What is known about a sandbox.
struct Inspection<'a> {
    runtime: &'a SandboxRuntime,
    summary: &'a SandboxSummary,
    details: SandboxDetails,
    /// `None` unless it is running.
    running: Option<RunningDetails>,
    /// Why it has ended. `None` if it has not, or if that is unknown.
    end_reason: Option<String>,
}

/// What its action server reports.
struct RunningDetails {
    working_dir: String,
    /// `None` if the sandbox has no program `id`.
    user: Option<String>,
    ports: Vec<ListeningPort>,
}

pub(super) async fn run(
    arguments: InspectArguments,
    overrides: &Overrides,
) -> anyhow::Result<Exit> {
    let (runtime, summary) = arguments.sandbox.find(overrides).await?;
    let details = match runtime.provider.monitoring() {
        Ok(monitoring) => monitoring.details(&summary.sandbox).await?,
        // The runtime knows nothing more.
        Err(_) => SandboxDetails::default(),
    };
    let (running, end_reason) = match summary.condition {
        SandboxState::Running => (inspect_inside(&runtime, &summary).await, None),
        SandboxState::Paused => (None, None),
        SandboxState::Ended => match runtime.provider.find(&summary.sandbox).await {
            Err(SandboxError::Lost { detail }) => (None, Some(detail)),
            _ => (None, None),
        },
    };
    let inspection = Inspection {
        runtime: &runtime,
        summary: &summary,
        details,
        running,
        end_reason,
    };
    if arguments.json {
        print::line(&inspection.to_json().to_string())?;
    } else {
        print::text(&inspection.to_text())?;
    }
    Ok(Exit::Finished)
}

/// Asks the sandbox itself. Warns if it does not respond.
async fn inspect_inside(
    runtime: &SandboxRuntime,
    summary: &SandboxSummary,
) -> Option<RunningDetails> {
    let ask = async {
        let sandbox = runtime.connect(summary).await?;
        let user = user(sandbox.as_ref()).await?;
        let ports = sandbox.streams()?.ports().await?;
        anyhow::Ok(RunningDetails {
            working_dir: sandbox.lease().working_dir.clone(),
            user,
            ports,
        })
    };
    let asked = timeout(PROBE_TIMEOUT, ask).await;
    match asked.unwrap_or_else(|_| {
        Err(anyhow::anyhow!(
            "no response within {} s",
            PROBE_TIMEOUT.as_secs()
        ))
    }) {
        Ok(details) => Some(details),
        Err(error) => {
            print::warning(&format!("user and ports are unknown: {error:#}"));
            None
        }
    }
}

/// Returns the name of the user of new processes, or the number of one without an account. `None`
/// without a program `id`.
async fn user(sandbox: &dyn Sandbox) -> Result<Option<String>, SandboxError> {
    let script = Script {
        // For a number without an account, `id -un` prints the number and fails.
        text: "name=$(id -un 2>/dev/null) || name=$(id -u) && echo \"$name\"",
        arguments: &[],
        timeout: PROBE_TIMEOUT,
        max_output_bytes: MAX_NAME_LENGTH,
    };
    match script.run(sandbox).await? {
        ScriptResult::Exited { code: 0, output } => {
            Ok(Some(String::from_utf8_lossy(&output).trim().to_owned()))
        }
        _ => Ok(None),
    }
}

impl Inspection<'_> {
    /// Returns the row of `sandbox ls --json`, and what the list lacks.
    fn to_json(&self) -> Value {
        let running = self.running.as_ref();
        let mut row = as_json(self.summary, self.runtime);
        let more = json!({
            "conversation_id": self.conversation(),
            "user": running.and_then(|running| running.user.as_ref()),
            "working_dir": running.map(|running| &running.working_dir),
            "workspace": self.details.workspace,
            "networks": self.details.networks,
            "limits": {
                "memory_bytes": self.details.memory_bytes,
                "cpus": self.details.cpus,
                "pids": self.details.pids,
            },
            "ports": running.map(|running| &running.ports),
            "end_reason": self.end_reason,
        });
        if let (Value::Object(row), Value::Object(more)) = (&mut row, more) {
            row.extend(more);
        }
        row
    }

    /// Returns a line for each property.
    fn to_text(&self) -> String {
        let Self {
            runtime,
            summary,
            details,
            running,
            end_reason,
        } = self;
        let unknown = || "-".to_owned();
        let created = summary
            .created_at
            .map_or_else(unknown, |at| format!("{at:.0} ({} ago)", age_of(Some(at))));
        let removed = match summary.lifetime {
            Lifetime::Conversation => "after the conversation".to_owned(),
            Lifetime::UntilRemoved => "by `glovebox sandbox rm`".to_owned(),
            Lifetime::Until(time) => format!("{time:.0} (in {})", remaining(summary.lifetime)),
        };
        let owner = self
            .conversation()
            .map_or_else(|| "you".to_owned(), |id| format!("conversation {id}"));
        let workspace = match (
            &details.workspace,
            running.as_ref().map(|running| &running.working_dir),
        ) {
            (Some(folder), Some(inside)) if folder != inside => {
                format!("{folder}, in the sandbox {inside}")
            }
            (Some(folder), _) => folder.clone(),
            (None, Some(inside)) => format!("{inside}, only in the sandbox"),
            (None, None) => unknown(),
        };
        let networks = Some(details.networks.join(", ")).filter(|names| !names.is_empty());
        let limits: Vec<_> = [
            details
                .memory_bytes
                .map(|bytes| format!("{} of memory", BinaryBytes(bytes))),
            details.cpus.map(|cpus| format!("{cpus} processors")),
            details.pids.map(|pids| format!("{pids} processes")),
        ]
        .into_iter()
        .flatten()
        .collect();
        let user = running.as_ref().and_then(|running| running.user.clone());
        let state = match end_reason {
            Some(reason) => format!("{}: {reason}", state(summary.condition)),
            None => state(summary.condition).to_owned(),
        };
        let ports = running.as_ref().map(|running| ports(&running.ports));
        let lines = [
            ("name", display_name(summary)),
            ("runtime", runtime.provider.runtime().to_owned()),
            ("state", state),
            (
                "image",
                summary
                    .image
                    .as_deref()
                    .map_or_else(unknown, |image| image_name(image).to_owned()),
            ),
            ("owner", owner),
            ("created", created),
            ("removal", removed),
            ("user", user.unwrap_or_else(unknown)),
            ("workspace", workspace),
            ("network", networks.unwrap_or_else(unknown)),
            (
                "limits",
                Some(limits.join(", "))
                    .filter(|text| !text.is_empty())
                    .unwrap_or_else(unknown),
            ),
            ("ports", ports.unwrap_or_else(unknown)),
        ];
        // Names of images, users and programs may be hostile to a terminal.
        let line =
            |(name, value): (&str, String)| format!("{name:<9}  {}\n", print::visible_line(&value));
        lines.into_iter().map(line).collect()
    }

    /// Returns the conversation that the sandbox belongs to. `None` if a user created it, or it is
    /// pre-warmed.
    fn conversation(&self) -> Option<&protocol::ConversationId> {
        self.summary
            .conversation
            .as_ref()
            .filter(|_| self.summary.lifetime == Lifetime::Conversation)
    }
}

fn ports(ports: &[ListeningPort]) -> String {
    let port = |port: &ListeningPort| {
        let programs: Vec<_> = port
            .processes
            .iter()
            .map(|process| process.name.as_str())
            .collect();
        let programs = Some(programs.join(", ")).filter(|names| !names.is_empty());
        format!(
            "{}{}",
            port.port,
            programs
                .map(|names| format!(" ({names})"))
                .unwrap_or_default()
        )
    };
    match ports {
        [] => "none".to_owned(),
        ports => ports.iter().map(port).collect::<Vec<_>>().join(", "),
    }
}

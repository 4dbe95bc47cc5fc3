//! The host's own time per step of the agent, and the memory of conversations.

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::condenser::CondenserConfig;
use engine::conversation::{SandboxDisposition, State};
use engine::events::EventLog;
use engine::llm::{ChatMessage, LlmRequest, MessagePart};
use engine::view::View;
use llm::LlmConfig;
use llm::testing::InProcessProvider;
use protocol::AgentState;
use serde_json::{Value, json};
use storage::{Durability, SqliteStore};
use tests::glovebox::{bash, finish};

use super::conversation::{self, Script, WAITING_COMMAND};
use super::figure::Figure;
use super::load::cpu_time;
use super::report::BenchmarkReport;
use super::server::memory_mb;

/// A line of a command's output. With it, a log of 10,000 events has 15 MB.
const LINE: &str = "a line of output, as long as such lines are\n";
const LINES: usize = 15;

const OPENINGS: usize = 25;
const CALLS: usize = 25;

/// Maximum host time of a call, as a multiple of the time to write its messages as JSON.
const MAX_CALL_RATIO: f64 = 4.0;

/// Maximum time to open a log, as a multiple of that to parse its JSON.
const MAX_OPENING_RATIO: f64 = 1.0;

/// Concurrent conversations.
const CONVERSATIONS: usize = 500;

pub(crate) async fn measure(report: BenchmarkReport) {
    memory_by_length(&report).await;
    report.add_all(concurrent_conversations(report.repetitions(CONVERSATIONS)).await);
    let measured = count(&report, 200);
    let short = run(measured, measured, CondenserConfig::Noop {}).await;
    // A step has two events.
    let recent = CondenserConfig::Recent {
        keep_first: 1,
        max_events: 100,
    };
    let long = run(count(&report, 5000), measured, recent).await;
    report.add_all([
        Figure::below(
            "host time of an agent's step, scripted model, 200 steps",
            short.step_ms,
            "ms",
            5.0,
        ),
        Figure::below(
            "host time of a step after 10,000 events, of which 100 are sent",
            long.step_ms,
            "ms",
            1.0,
        ),
    ]);
    report.add_all(open(&long, &report).await);
    report.add_all(calls(&long, &report).await);
}

fn count(report: &BenchmarkReport, full: u32) -> u32 {
    u32::try_from(report.repetitions(full as usize)).unwrap()
}

/// A completed conversation and its measurements.
struct CompletedConversation {
    /// Mean time of its last steps.
    step_ms: f64,
    /// Growth of this process's memory.
    growth_mb: f64,
    folder: tempfile::TempDir,
}

impl CompletedConversation {
    async fn store(&self) -> Arc<SqliteStore> {
        let file = self.folder.path().join("log.db");
        Arc::new(
            SqliteStore::open(file, Durability::default())
                .await
                .unwrap(),
        )
    }
}

async fn run(steps: u32, measured: u32, condenser: CondenserConfig) -> CompletedConversation {
    let mut ran = CompletedConversation {
        step_ms: 0.0,
        growth_mb: 0.0,
        folder: tempfile::tempdir().unwrap(),
    };
    // Before the memory is measured: the script is not the conversation's.
    let script = Script::new((0..steps).map(|_| bash("true")).chain([finish()]).collect());
    let provider = conversation::provider(&LINE.repeat(LINES));
    let before = rss_mb();
    let mut started = Instant::now();
    let conversation =
        conversation::start("bench", ran.store().await, provider, script, condenser).await;
    if steps > measured {
        conversation
            .wait_for(|state| state.iterations >= steps - measured)
            .await;
        started = Instant::now();
    }
    let state = conversation
        .wait_for(|state| state.agent_state == AgentState::Finished)
        .await;
    ran.step_ms = started.elapsed().as_secs_f64() * 1e3 / f64::from(measured + 1);
    ran.growth_mb = rss_mb() - before;
    assert_eq!(state.iterations, steps + 1);
    conversation
        .close(SandboxDisposition::Remove)
        .await
        .unwrap();
    ran
}

/// Measures the memory by a conversation's length if the model receives the latest hundred events.
/// Each conversation is ten times as long as the previous one and reuses its memory.
async fn memory_by_length(report: &BenchmarkReport) {
    let condenser = || CondenserConfig::Amortized {
        max_size: 100,
        keep_first: 1,
    };
    run(count(report, 500), count(report, 500), condenser()).await; // warms up the store's caches and the threads
    let names = [
        (50, "growth of memory by a conversation of 100 events"),
        (500, "growth beyond that by one of 1,000 events"),
        (5000, "growth beyond that by one of 10,000 events"),
    ];
    for (steps, name) in names {
        let steps = count(report, steps);
        report.add(Figure::below(
            name,
            run(steps, steps, condenser()).await.growth_mb,
            "MB",
            10.0,
        ));
    }
}

/// Measures conversations after 20 steps, each with a running command.
async fn concurrent_conversations(size: usize) -> Vec<Figure> {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(
        SqliteStore::open(folder.path().join("log.db"), Durability::default())
            .await
            .unwrap(),
    );
    let provider = conversation::provider(&LINE.repeat(LINES));
    let before = rss_mb();
    let started = Instant::now();
    let mut conversations = Vec::new();
    for number in 0..size {
        let responses = (0..20)
            .map(|_| bash("true"))
            .chain([bash(WAITING_COMMAND), finish()])
            .collect();
        let script = Script::new(responses);
        let (store, provider) = (store.clone(), provider.clone());
        let id = format!("concurrent-{number}");
        conversations.push(
            conversation::start(&id, store, provider, script, CondenserConfig::Noop {}).await,
        );
    }
    for conversation in &conversations {
        conversation
            .wait_for(|state| state.iterations == 21 && state.has_pending_actions())
            .await;
    }
    let took = started.elapsed();
    let step_count = (size * 21) as f64;
    let growth = rss_mb() - before;
    for conversation in conversations {
        conversation
            .close(SandboxDisposition::Remove)
            .await
            .unwrap();
    }
    vec![
        Figure::below(
            "growth of memory by 500 running conversations of 45 events",
            growth,
            "MB",
            512.0,
        ),
        Figure::plain(
            "their steps, 21 each",
            step_count / took.as_secs_f64(),
            "steps/s",
        ),
    ]
}

/// Measures the time to open and fold a log of 10,000 events. The fastest of many counts, because
/// other load only adds to it.
///
/// Counted in instructions, four fifths are for reading events: half of that for parsing, a third
/// for writing them again, which checks that nothing is lost. A tenth is for the fold, on one
/// processor only.
async fn open(ran: &CompletedConversation, report: &BenchmarkReport) -> Vec<Figure> {
    let store = ran.store().await;
    let (mut fastest, mut least_cpu) = (Duration::MAX, Duration::MAX);
    let mut texts: Vec<String> = Vec::new();
    for _ in 0..report.repetitions(OPENINGS) {
        let (started, cpu) = (Instant::now(), cpu_time(std::process::id()));
        let (_, events) = EventLog::open(store.clone(), "bench".parse().unwrap())
            .await
            .unwrap();
        let state = State::fold(events.iter().map(AsRef::as_ref));
        let view = View::from_events(events.clone());
        fastest = fastest.min(started.elapsed());
        least_cpu = least_cpu.min(cpu_time(std::process::id()) - cpu);
        let steps = count(report, 5000);
        assert!(view.len() >= 2 * steps as usize && state.iterations == steps + 1);
        if texts.is_empty() {
            texts = events
                .iter()
                .map(|event| serde_json::to_string(event.as_ref()).unwrap())
                .collect();
        }
    }
    let mut floor = Duration::MAX;
    for _ in 0..report.repetitions(OPENINGS) {
        let started = Instant::now();
        texts
            .iter()
            .for_each(|text| drop(serde_json::from_str::<Value>(text).unwrap()));
        floor = floor.min(started.elapsed());
    }
    let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
    let size: usize = texts.iter().map(String::len).sum();
    let size = Figure::plain("size of a log of 10,000 events", size as f64 / 1e6, "MB");
    vec![
        size,
        Figure::within(
            "opened and folded (floor: its JSON as trees of values)",
            ms(fastest),
            "ms",
            ms(floor),
            MAX_OPENING_RATIO,
        ),
        Figure::plain("processor time of that", ms(least_cpu), "ms"),
    ]
}

/// Measures a call of each wire with all of 10,000 events, up to the request as text, and its short
/// response. The fastest of many, because other load only adds to it.
async fn calls(ran: &CompletedConversation, report: &BenchmarkReport) -> Vec<Figure> {
    let (_, events) = EventLog::open(ran.store().await, "bench".parse().unwrap())
        .await
        .unwrap();
    let request = LlmRequest {
        messages: View::from_events(events).messages(),
        tools: Vec::new(),
    };
    let mut floor = Duration::MAX;
    for _ in 0..report.repetitions(CALLS) {
        let started = Instant::now();
        assert!(as_json(&request).len() > 1000);
        floor = floor.min(started.elapsed());
    }
    let chat = json!({"choices": [{"message": {"role": "assistant", "content": "done"}}]});
    let messages = json!({"content": [{"type": "text", "text": "done"}]});
    let items = json!([{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]}]);
    let wires = [
        (
            "chat completions with 10,000 events (floor: as JSON)",
            "my-model",
            chat,
        ),
        (
            "Anthropic's messages with 10,000 events",
            "anthropic/my-model",
            messages,
        ),
        (
            "the Responses API with 10,000 events",
            "openai/responses/my-model",
            json!({"status": "completed", "output": items}),
        ),
    ];
    let mut figures = Vec::new();
    for (name, model, response) in wires {
        let config = LlmConfig {
            in_process: Some(InProcessProvider::new(move |_| (200, response.clone()))),
            ..LlmConfig::new(model)
        };
        let llm = llm::connect(&config).unwrap();
        let mut fastest = Duration::MAX;
        for _ in 0..report.repetitions(CALLS) {
            let started = Instant::now();
            llm.complete(&request, &|_| ()).await.unwrap();
            fastest = fastest.min(started.elapsed());
        }
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        figures.push(Figure::within(
            name,
            ms(fastest),
            "ms",
            ms(floor),
            MAX_CALL_RATIO,
        ));
    }
    figures
}

/// Returns the messages as JSON, as they are stored.
fn as_json(request: &LlmRequest) -> Vec<u8> {
    let text = |parts: &[MessagePart]| match parts {
        [MessagePart::Text(text)] => text.clone(),
        _ => unreachable!("commands have one text"),
    };
    let to_json = |message: &ChatMessage| match message {
        ChatMessage::System(text) => json!({"role": "system", "content": text}),
        ChatMessage::User(parts) => json!({"role": "user", "content": text(parts)}),
        ChatMessage::Assistant(message) => message.to_stored().into(),
        ChatMessage::ToolResult { call_id, parts, .. } => {
            json!({"role": "tool", "tool_call_id": call_id, "content": text(parts)})
        }
    };
    serde_json::to_vec(&request.messages.iter().map(to_json).collect::<Vec<_>>()).unwrap()
}

/// Returns this process's resident memory.
fn rss_mb() -> f64 {
    memory_mb(std::process::id(), &["Rss:"])
}

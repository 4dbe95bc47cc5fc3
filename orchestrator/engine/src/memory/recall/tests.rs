use std::sync::Arc;

use proptest::prelude::*;
use protocol::{Action, Event, EventBody, EventId, EventSource};

use super::*;
use crate::llm::{ChatMessage, MessagePart};
use crate::memory::knowledge::KnowledgeSource;
use crate::memory::{KnowledgeFile, format_recall};
use crate::testing::timestamp;
use crate::view::View;

fn file(relative_path: &str, content: &str) -> KnowledgeFile {
    KnowledgeFile {
        path: format!("at/{relative_path}"),
        relative_path: relative_path.into(),
        content: content.into(),
    }
}

fn triggered(name: &str, trigger: &str) -> KnowledgeFile {
    file(
        &format!("{name}.md"),
        &format!("---\ntriggers: [\"{trigger}\"]\n---\nAll of {name}."),
    )
}

fn memory(files: Vec<KnowledgeFile>) -> Memory {
    Memory::new(files, BTreeSet::from(["disabled".to_owned()]))
}

fn found(recall: &Recall) -> &RecallObservation {
    match &recall.observation.kind {
        ObservationKind::Recall(found) => found,
        other => panic!("{other:?}"),
    }
}

fn names(recall: &Recall) -> Vec<&str> {
    found(recall)
        .microagent_knowledge
        .iter()
        .map(|piece| piece.name.as_str())
        .collect()
}

fn facts() -> WorkspaceFacts {
    WorkspaceFacts {
        repo_name: "a/b".into(),
        repo_directory: "/workspace/b".into(),
        date: "2026-01-02".into(),
        working_dir: "/workspace".into(),
        runtime_hosts: BTreeMap::from([("http://localhost:5000".into(), 5000)]),
        ..WorkspaceFacts::default()
    }
}

#[test]
fn first_message_adds_facts_later_ones_trigger_once() {
    let memory = memory(vec![
        file("repo.md", "Build with make."),
        triggered("docker", "Docker"),
        triggered("git", "git"),
        triggered("disabled", "git"),
    ]);
    let mut recalled = RecallHistory::default();
    let mut say = |text: &str| {
        let recall = memory.recall(text, &facts(), &recalled);
        recall
            .iter()
            .for_each(|recall| recalled.apply(&recall.observation));
        recall
    };
    let first = say("dockerize it").unwrap();
    assert_eq!(
        (first.action.recall_type, first.action.query.as_str()),
        (RecallType::WorkspaceContext, "dockerize it")
    );
    assert_eq!(
        (found(&first).repo_instructions.as_str(), names(&first)),
        ("Build with make.", vec!["docker"])
    );
    assert_eq!(found(&first).date, "2026-01-02");
    assert_eq!(say("docker once more"), None);
    let later = say("DOCKER and GitHub").unwrap();
    assert_eq!(
        (later.action.recall_type, names(&later)),
        (RecallType::Knowledge, vec!["git"])
    );
    assert_eq!(found(&later).microagent_knowledge[0].trigger, "git");
    assert_eq!((found(&later).date.as_str(), say("git docker")), ("", None));
}

#[test]
fn workspace_knowledge_replaces_the_users() {
    let mut memory = memory(vec![triggered("git", "git"), file("repo.md", "Mine.")]);
    let workspace = vec![
        file("git.md", "---\ntriggers: [git]\n---\nTheirs."),
        file("pdf/SKILL.md", "---\ndescription: Reads PDFs.\n---\nLong."),
    ];
    memory.workspace = memory.read(workspace, KnowledgeSource::Workspace);
    let recall = memory
        .recall("git", &WorkspaceFacts::default(), &RecallHistory::default())
        .unwrap();
    assert_eq!(found(&recall).microagent_knowledge[0].content, "Theirs.");
    assert_eq!(
        found(&recall).repo_instructions,
        "Mine.\n\nInstructions for special tasks. Read the file before such a task:\n\
         - pdf: Reads PDFs. (at/pdf/SKILL.md)"
    );
}

#[test]
fn built_in_knowledge_can_be_replaced_and_disabled() {
    let disabled = ["docker", "ssh"].map(str::to_owned).into();
    let memory = Memory::new(vec![triggered("github", "github")], disabled).with_built_in();
    assert_eq!(memory.problems(), []);
    let recall =
        |query: &str| memory.recall(query, &WorkspaceFacts::default(), &RecallHistory::default());
    let recalled = recall("See GitHub and kubectl, docker, ssh").unwrap();
    assert_eq!(names(&recalled), ["kubernetes", "github"]);
    assert_eq!(
        found(&recalled).microagent_knowledge[1].content,
        "All of github."
    );
    assert_eq!(
        names(&recall("/codereview the branch").unwrap()),
        ["code-review"]
    );
    assert_eq!(recall("Fix the digital clock"), None);
    let all = Memory::default().with_built_in();
    assert!(all.all().all(
        |knowledge| matches!(knowledge.activation, Activation::OnTrigger(_))
            && knowledge.content.len() < 4096
    ));
}

#[test]
fn recalled_text_is_bounded() {
    let long = "é".repeat(32 << 10);
    let instructions = (0..9).map(|number| file(&format!("i{number}.md"), &long));
    let knowledge = (0..9).map(|number| {
        file(
            &format!("k{number}.md"),
            &format!("---\ntriggers: x\n---\n{long}"),
        )
    });
    let memory = memory(instructions.chain(knowledge).collect());
    let recall = memory
        .recall("x", &WorkspaceFacts::default(), &RecallHistory::default())
        .unwrap();
    assert!(format_recall(found(&recall)).len() <= 2 * MAX_RECALL_BYTES + 1000);
    assert!(
        found(&recall)
            .repo_instructions
            .ends_with("[The rest of the instructions is omitted.]")
    );
    let mut recalled = RecallHistory::default();
    recalled.apply(&recall.observation);
    let next = memory
        .recall("x", &WorkspaceFacts::default(), &recalled)
        .unwrap();
    assert!(
        names(&recall)
            .iter()
            .all(|name| !names(&next).contains(name)),
        "what was too much comes later"
    );
}

#[test]
fn recall_omits_empty_sections() {
    assert_eq!(
        memory(Vec::new()).recall("x", &WorkspaceFacts::default(), &RecallHistory::default()),
        None
    );
    let secrets = BTreeMap::from([
        ("KEY".into(), "for the forge".into()),
        ("X".into(), String::new()),
    ]);
    let memory = memory(vec![
        file("repo.md", "Build with make."),
        triggered("git", "git"),
    ])
    .with_secrets(secrets);
    let recall = memory
        .recall("git", &facts(), &RecallHistory::default())
        .unwrap();
    let text = format_recall(found(&recall));
    let events = [
        EventBody::from(Action::from(recall.action)),
        EventBody::from(recall.observation),
    ];
    let events = (0..)
        .zip(events)
        .map(|(id, body)| Event::new(EventId(id), timestamp(), EventSource::User, body));
    let messages = View::from_events(events.map(Arc::new).collect()).messages();
    assert_eq!(
        messages,
        [ChatMessage::User(vec![MessagePart::Text(text.clone())])]
    );
    for part in [
        "Today is 2026-01-02. Your shell starts in /workspace. You work on the repository a/b in /workspace/b.",
        "\n- http://localhost:5000: port 5000",
        "\n- $KEY: for the forge\n- $X\n",
        "<repository_instructions>\nBuild with make.\n</repository_instructions>",
        "<knowledge name=\"git\" about=\"git\">\nAll of git.\n</knowledge>",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

proptest! {
    #[test]
    fn every_match_is_recalled_exactly_once(
        triggers in prop::collection::vec("[a-cA-CäÄ]{1,2}", 1..8),
        messages in prop::collection::vec("[a-cA-CäÄ ]{0,12}", 1..8),
    ) {
        let files = triggers.iter().enumerate().map(|(number, trigger)| triggered(&number.to_string(), trigger));
        let memory = memory(files.collect());
        let mut recalled = RecallHistory::default();
        let mut found = Vec::new();
        for message in &messages {
            if let Some(recall) = memory.recall(message, &WorkspaceFacts::default(), &recalled) {
                recalled.apply(&recall.observation);
                found.extend(names(&recall).iter().map(|name| name.parse::<usize>().unwrap()));
            }
        }
        found.sort_unstable();
        let all = messages.iter().map(|message| message.to_lowercase()).collect::<Vec<_>>();
        let due: Vec<_> = (0..triggers.len())
            .filter(|number| all.iter().any(|message| message.contains(&triggers[*number].to_lowercase())))
            .collect();
        prop_assert_eq!(found, due);
    }
}

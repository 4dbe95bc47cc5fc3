//! Formats a recall for a model: a sequence of templates, of which those without values are
//! omitted.

use protocol::observation::RecallObservation;

/// Formats a recall as a message in the user's role.
pub fn format_recall(recall: &RecallObservation) -> String {
    let sections = [
        location(recall),
        hosts(recall),
        filled("", &recall.additional_agent_instructions, ""),
        secrets(recall),
        filled(
            "<repository_instructions>\n",
            &recall.repo_instructions,
            "\n</repository_instructions>\nThese apply to all work here, unless the user decides otherwise.",
        ),
        filled(
            "<user_instructions>\n",
            &recall.conversation_instructions,
            "\n</user_instructions>",
        ),
        knowledge(recall),
    ];
    sections
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join("\n\n")
}

fn filled(before: &str, text: &str, after: &str) -> Option<String> {
    (!text.is_empty()).then(|| format!("{before}{text}{after}"))
}

/// Formats the date, the working directory and the repository.
fn location(recall: &RecallObservation) -> Option<String> {
    let branch = filled(", branch ", &recall.repo_branch, "").unwrap_or_default();
    let directory = filled(" in ", &recall.repo_directory, "").unwrap_or_default();
    let lines = [
        filled("Today is ", &recall.date, "."),
        filled("Your shell starts in ", &recall.working_dir, "."),
        filled(
            "You work on the repository ",
            &recall.repo_name,
            &format!("{directory}{branch}."),
        ),
    ];
    let lines: Vec<_> = lines.into_iter().flatten().collect();
    (!lines.is_empty()).then(|| lines.join(" "))
}

fn hosts(recall: &RecallObservation) -> Option<String> {
    let lines: String = recall
        .runtime_hosts
        .iter()
        .map(|(host, port)| format!("\n- {host}: port {port}"))
        .collect();
    filled(
        "The user can reach servers that you start on these ports at these addresses. They must listen on 0.0.0.0, and \
         allow any origin and embedding in a frame.",
        &lines,
        "",
    )
}

fn secrets(recall: &RecallObservation) -> Option<String> {
    let line = |(name, description): (&String, &String)| {
        format!(
            "\n- ${name}{}",
            filled(": ", description, "").unwrap_or_default()
        )
    };
    let lines: String = recall
        .custom_secrets_descriptions
        .iter()
        .map(line)
        .collect();
    filled(
        "You can use these secrets without knowing their values. A shell command whose text names one has it in its \
         environment, other commands do not, and output shows <secret_hidden> in place of the value. Write it as a \
         variable (curl -H \"Authorization: Bearer $NAME\" …), or set it for a program that reads it from its \
         environment (NAME=$NAME ./deploy). Do not copy values into files or other variables, and do not try to see them.",
        &lines,
        "",
    )
}

fn knowledge(recall: &RecallObservation) -> Option<String> {
    let pieces = recall.microagent_knowledge.iter().map(|piece| {
        format!(
            "<knowledge name=\"{}\" about=\"{}\">\n{}\n</knowledge>",
            piece.name, piece.trigger, piece.content
        )
    });
    let pieces = pieces.collect::<Vec<_>>().join("\n");
    filled("This may be relevant to the message:\n", &pieces, "")
}

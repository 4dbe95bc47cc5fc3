//! Formats a recall for a model: a sequence of templates, of which those without values are omitted.

use protocol::observation::RecallObservation;

/// Formats a recall as a message in the user's role.
pub fn format_recall(recall: &RecallObservation) -> String {
    let sections = [
        place(recall),
        hosts(recall),
        filled("", &recall.additional_agent_instructions, ""),
        secrets(recall),
        filled(
            "<repository_instructions>\n",
            &recall.repo_instructions,
            "\n</repository_instructions>\nThese hold for all work here, unless the user says otherwise.",
        ),
        filled("<user_instructions>\n", &recall.conversation_instructions, "\n</user_instructions>"),
        knowledge(recall),
    ];
    sections.into_iter().flatten().collect::<Vec<_>>().join("\n\n")
}

fn filled(before: &str, text: &str, after: &str) -> Option<String> {
    (!text.is_empty()).then(|| format!("{before}{text}{after}"))
}

/// Formats the date, the working directory and the repository.
fn place(recall: &RecallObservation) -> Option<String> {
    let branch = filled(", branch ", &recall.repo_branch, "").unwrap_or_default();
    let directory = filled(" in ", &recall.repo_directory, "").unwrap_or_default();
    let lines = [
        filled("Today is ", &recall.date, "."),
        filled("Your shell begins in ", &recall.working_dir, "."),
        filled("You work on the repository ", &recall.repo_name, &format!("{directory}{branch}.")),
    ];
    let lines: Vec<_> = lines.into_iter().flatten().collect();
    (!lines.is_empty()).then(|| lines.join(" "))
}

fn hosts(recall: &RecallObservation) -> Option<String> {
    let lines: String =
        recall.runtime_hosts.iter().map(|(host, port)| format!("\n- {host}: port {port}")).collect();
    filled(
        "The user can reach servers that you start on these ports, at these addresses. Have them listen on 0.0.0.0 and \
         allow any origin and being shown in a frame.",
        &lines,
        "",
    )
}

fn secrets(recall: &RecallObservation) -> Option<String> {
    let line = |(name, description): (&String, &String)| {
        format!("\n- ${name}{}", filled(": ", description, "").unwrap_or_default())
    };
    let lines: String = recall.custom_secrets_descriptions.iter().map(line).collect();
    filled(
        "You may use these secrets without knowing them: a shell command whose text names one has it in its environment, \
         no other command has it, and where its value would be shown stands <secret_hidden>. Write it as a variable where \
         it is needed (curl -H \"Authorization: Bearer $NAME\" …), or name it before a program that reads it by itself \
         (NAME=$NAME ./deploy). Do not copy values into files or other variables, and do not try to see them.",
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
    filled(
        "This may help with what the message speaks of, and may as well be beside the point:\n",
        &pieces,
        "",
    )
}

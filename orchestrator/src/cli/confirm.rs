//! Asks the user at the terminal to confirm an action, or to instruct an agent that waits.

use protocol::{EventId, UserCommand};

use super::interrupts::Interrupts;
use super::print;
use super::screen::Output;
use crate::terminal_input::{LineHistory, TerminalInput, has_user};

const REASON: &str = "  reason for the agent, or Enter for none: ";

const INSTRUCTION: &str = "  what should the agent do? (Enter to leave): ";

/// Answer to the question about an action.
#[derive(Debug, PartialEq)]
pub(super) enum Answer {
    /// A confirmation or a rejection.
    Decision(UserCommand),
    Stop,
    /// Standard input was closed. The question stays open.
    Leave,
}

/// Instruction to an agent that waits.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Instruction {
    Message(String),
    Stop,
    Leave,
}

/// A typed line, or the reason why there is none.
enum InputLine {
    Line(String),
    Interrupted,
    End,
}

/// A key that answers the question about an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    Approve,
    ApproveSimilar,
    Reject,
    Stop,
}

/// Asks the user at the terminal.
pub(super) struct TerminalPrompt {
    input: TerminalInput,
}

impl TerminalPrompt {
    /// `None` if no user is at the terminal.
    pub(super) fn at_terminal(output: Output) -> Option<Self> {
        (output == Output::Transcript && has_user()).then(|| Self {
            input: TerminalInput::default(),
        })
    }

    /// Asks what an agent that waits should do.
    pub(super) async fn ask_instruction(&mut self, interrupts: &mut Interrupts) -> Instruction {
        match self
            .ask_line(INSTRUCTION, LineHistory::Remember, interrupts)
            .await
        {
            InputLine::Line(line) if !line.trim().is_empty() => Instruction::Message(line),
            InputLine::Line(_) | InputLine::End => Instruction::Leave,
            InputLine::Interrupted => Instruction::Stop,
        }
    }

    /// Shows an action and asks until the user decides. `similar` describes the actions that can be
    /// approved with it.
    pub(super) async fn ask_decision(
        &mut self,
        action: EventId,
        description: &str,
        similar: Option<&str>,
        interrupts: &mut Interrupts,
    ) -> Answer {
        print::note(description);
        let always = similar
            .map(|actions| format!(", [a]lways {actions} in this conversation"))
            .unwrap_or_default();
        let question = format!("  approve? [y]es, [n]o{always}, [s]top: ");
        loop {
            let line = match self
                .ask_line(&question, LineHistory::Skip, interrupts)
                .await
            {
                InputLine::Line(line) => line,
                InputLine::Interrupted => return Answer::Stop,
                InputLine::End => return Answer::Leave,
            };
            match parse_choice(&line) {
                Some(Choice::Approve) => {
                    return Answer::Decision(UserCommand::confirm(Some(action)));
                }
                Some(Choice::ApproveSimilar) if similar.is_some() => {
                    return Answer::Decision(UserCommand::Confirm {
                        action: Some(action),
                        and_similar: true,
                    });
                }
                Some(Choice::Stop) => return Answer::Stop,
                Some(Choice::Reject) => {
                    return match self
                        .ask_line(REASON, LineHistory::Remember, interrupts)
                        .await
                    {
                        InputLine::Line(reason) => Answer::Decision(UserCommand::Reject {
                            action: Some(action),
                            reason: reason.trim().to_owned(),
                        }),
                        InputLine::Interrupted => Answer::Stop,
                        InputLine::End => Answer::Leave,
                    };
                }
                Some(Choice::ApproveSimilar) | None => {}
            }
        }
    }

    /// Reads a line. Discards what was typed before the prompt.
    async fn ask_line(
        &mut self,
        prompt: &str,
        history: LineHistory,
        interrupts: &mut Interrupts,
    ) -> InputLine {
        let line = tokio::select! {
            line = self.input.ask(prompt, history) => line,
            () = interrupts.next() => {
                print::note("\n");
                return InputLine::Interrupted;
            }
        };
        match line {
            Ok(Some(line)) => InputLine::Line(line),
            Ok(None) | Err(_) => InputLine::End,
        }
    }
}

/// Parses an answer. Approval requires an exact word; rejections are case-insensitive.
fn parse_choice(line: &str) -> Option<Choice> {
    let word = line.trim();
    match word {
        "y" | "Y" | "yes" | "Yes" => return Some(Choice::Approve),
        "a" | "A" | "always" | "Always" => return Some(Choice::ApproveSimilar),
        _ => {}
    }
    match word.to_ascii_lowercase().as_str() {
        "n" | "no" => Some(Choice::Reject),
        "s" | "stop" => Some(Choice::Stop),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_approves_only_when_it_is_an_exact_word() {
        for (choices, words) in [
            (Some(Choice::Approve), &["y", "Y", "yes", " Yes "][..]),
            (Some(Choice::ApproveSimilar), &["a", "Always"]),
            (Some(Choice::Reject), &["n", "N", "no", "No", "NO", "nO"]),
            (Some(Choice::Stop), &["s", "STOP"]),
            (
                None,
                &[
                    "",
                    " ",
                    "YES",
                    "yes please",
                    "use rg",
                    "yy",
                    "\u{1b}[Ay",
                    "ja",
                ],
            ),
        ] {
            for word in words {
                assert_eq!(parse_choice(word), choices, "{word}");
            }
        }
    }
}

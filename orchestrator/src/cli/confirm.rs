//! What a person at the terminal is asked: whether an action may be performed, and what the agent is to do.

use std::io::IsTerminal as _;

use conversations::UserDecision;

use super::interrupts::Interrupts;
use super::print;
use super::screen::Output;
use crate::terminal_input::TerminalInput;

const REASON: &str = "  reason for the agent, or Enter for none: ";

const INSTRUCTION: &str = "  what should the agent do? (Enter to leave): ";

/// What the user answers to the question about an action.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Decision(UserDecision),
    Stop,
    /// Nobody answers any more. The question stays open.
    Leave,
}

/// What the user says to an agent that waits.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Instruction {
    Say(String),
    Stop,
    Leave,
}

/// A typed line, or why there is none.
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

/// Asks a person at the terminal.
pub(super) struct TerminalPrompt {
    input: TerminalInput,
}

impl TerminalPrompt {
    /// `None` where no person reads the transcript and types.
    pub(super) fn at_terminal(output: Output) -> Option<Self> {
        let is_there =
            output == Output::Transcript && std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        is_there.then(|| Self { input: TerminalInput::default() })
    }

    /// What an agent that waits is to do.
    pub(super) async fn instruction(&mut self, interrupts: &mut Interrupts) -> Instruction {
        match self.line(INSTRUCTION, interrupts).await {
            InputLine::Line(line) if !line.trim().is_empty() => Instruction::Say(line),
            InputLine::Line(_) | InputLine::End => Instruction::Leave,
            InputLine::Interrupted => Instruction::Stop,
        }
    }

    /// Shows an action and asks until there is a decision. `similar` says what else could be approved with it.
    pub(super) async fn decide(
        &mut self,
        description: &str,
        similar: Option<&str>,
        interrupts: &mut Interrupts,
    ) -> Answer {
        print::note(description);
        let always =
            similar.map(|what| format!(", [a]lways {what} in this conversation")).unwrap_or_default();
        let question = format!("  approve? [y]es, [n]o{always}, [s]top: ");
        loop {
            let line = match self.line(&question, interrupts).await {
                InputLine::Line(line) => line,
                InputLine::Interrupted => return Answer::Stop,
                InputLine::End => return Answer::Leave,
            };
            match choice(&line) {
                Some(Choice::Approve) => return Answer::Decision(UserDecision::Approve),
                Some(Choice::ApproveSimilar) if similar.is_some() => {
                    return Answer::Decision(UserDecision::ApproveSimilar);
                }
                Some(Choice::Stop) => return Answer::Stop,
                Some(Choice::Reject) => {
                    return match self.line(REASON, interrupts).await {
                        InputLine::Line(reason) => {
                            Answer::Decision(UserDecision::Reject(reason.trim().to_owned()))
                        }
                        InputLine::Interrupted => Answer::Stop,
                        InputLine::End => Answer::Leave,
                    };
                }
                Some(Choice::ApproveSimilar) | None => {}
            }
        }
    }

    /// Only what is typed after the prompt is an answer to it.
    async fn line(&mut self, prompt: &str, interrupts: &mut Interrupts) -> InputLine {
        self.input.discard();
        print::note(prompt);
        let line = tokio::select! {
            line = self.input.line() => line,
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

/// Approving takes one of few exact words; what stops or rejects may be written in any case.
fn choice(line: &str) -> Option<Choice> {
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
    fn only_exact_words_approve_and_a_sentence_is_no_answer() {
        for (choices, words) in [
            (Some(Choice::Approve), &["y", "Y", "yes", " Yes "][..]),
            (Some(Choice::ApproveSimilar), &["a", "Always"]),
            (Some(Choice::Reject), &["n", "N", "no", "No", "NO", "nO"]),
            (Some(Choice::Stop), &["s", "STOP"]),
            (None, &["", " ", "YES", "yes please", "use rg", "yy", "\u{1b}[Ay", "ja"]),
        ] {
            for word in words {
                assert_eq!(choice(word), choices, "{word}");
            }
        }
    }
}

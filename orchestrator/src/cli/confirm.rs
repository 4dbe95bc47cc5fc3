//! What the user is asked where somebody sits at the terminal: whether an action may be performed, and what the agent asks.

use std::io::IsTerminal as _;

use tokio::io::{AsyncBufReadExt as _, BufReader, Lines, Stdin};

use super::follow::{Interrupts, Output};
use super::print;

const QUESTION: &str = "  perform it? [y]es, [n]o, [s]top, or what to do instead: ";

const ANSWER: &str = "  your answer, or nothing to leave: ";

/// What the user wants.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Confirm,
    /// With what the agent is told; empty: it waits for the user.
    Reject(String),
    Stop,
    /// Nobody answers any more. The question stays open.
    Leave,
}

/// The user's answers, line by line.
pub(super) struct Questions {
    lines: Lines<BufReader<Stdin>>,
}

impl Questions {
    /// Nothing where no person reads the transcript and types.
    pub(super) fn where_somebody_answers(output: Output) -> Option<Self> {
        let is_there =
            output == Output::Transcript && std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        is_there.then(|| Self { lines: BufReader::new(tokio::io::stdin()).lines() })
    }

    /// What the user says to the agent; nothing: nothing more.
    pub(super) async fn answer(&mut self, interrupts: &mut Interrupts) -> Option<String> {
        print::note(ANSWER);
        let line = tokio::select! {
            line = self.lines.next_line() => line.ok()?,
            () = interrupts.next() => None,
        };
        line.filter(|line| !line.trim().is_empty())
    }

    /// Asks until there is an answer, about what is named, or was shown last.
    pub(super) async fn ask(&mut self, about: Option<&str>, interrupts: &mut Interrupts) -> Answer {
        if let Some(about) = about {
            print::note(&format!("  {about}\n"));
        }
        loop {
            print::note(QUESTION);
            let line = tokio::select! {
                line = self.lines.next_line() => line,
                () = interrupts.next() => {
                    print::note("\n");
                    return Answer::Stop;
                }
            };
            let Ok(Some(line)) = line else { return Answer::Leave };
            if let Some(answer) = read(&line) {
                return answer;
            }
        }
    }
}

fn read(line: &str) -> Option<Answer> {
    match line.trim() {
        "" => None,
        "y" | "yes" => Some(Answer::Confirm),
        "n" | "no" => Some(Answer::Reject(String::new())),
        "s" | "stop" => Some(Answer::Stop),
        other => Some(Answer::Reject(other.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_line_is_no_answer_and_a_sentence_is_a_reason() {
        assert_eq!(read(" \n"), None);
        assert_eq!(read("y"), Some(Answer::Confirm));
        assert_eq!(read("no"), Some(Answer::Reject(String::new())));
        assert_eq!(read("use rg"), Some(Answer::Reject("use rg".into())));
        assert_eq!(read("stop"), Some(Answer::Stop));
    }
}

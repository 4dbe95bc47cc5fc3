//! The question whether an action may be performed, where somebody sits at the terminal.

use std::io::IsTerminal as _;

use tokio::io::{AsyncBufReadExt as _, BufReader, Lines, Stdin};

use super::follow::{Interrupts, Output};
use super::print;

const QUESTION: &str = "  perform it? [y]es, [n]o, [s]top, or what to do instead: ";

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

    /// Asks until there is an answer.
    pub(super) async fn ask(&mut self, interrupts: &mut Interrupts) -> Answer {
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

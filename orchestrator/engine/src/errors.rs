//! Text of errors with their causes.

use std::error::Error;

/// Returns an error and its causes in one line.
pub fn format_chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes
        .map(ToString::to_string)
        .fold(error.to_string(), |text, cause| {
            // Some libraries print their causes themselves.
            if text.contains(&cause) {
                text
            } else {
                format!("{text}: {cause}")
            }
        })
}

#[cfg(test)]
mod tests {
    use super::format_chain;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Failure {
        text: &'static str,
        source: Option<Box<Failure>>,
    }

    #[test]
    fn each_cause_is_printed_once() {
        let chain = ["cannot read f: denied", "denied", "no permission"];
        let chain = chain.into_iter().rev().fold(None, |source, text| {
            Some(Box::new(Failure { text, source }))
        });
        assert_eq!(
            format_chain(&*chain.unwrap()),
            "cannot read f: denied: no permission"
        );
    }
}

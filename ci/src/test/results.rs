//! Results of the tests, from the JUnit report of nextest.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

/// A test that takes longer is listed with its reason.
const SLOW_SECONDS: f64 = 20.0;

/// Tests that may take longer, and why. The start of a name is enough for the cases of a suite.
const SLOW_TESTS: &[(&str, &str)] = &[
    (
        "proxy_works_on_both_wires_and_its_errors_are_classified",
        "LiteLLM is installed first, and loads for ten seconds",
    ),
    (
        "small_model_streams_counts_and_calls_tools",
        "a model runs on the processor",
    ),
    (
        "shell::tests::lost_reports::",
        "the shell is given up only after its timeout of 25 s",
    ),
    (
        "browser::hostile::",
        "pages run into the timeouts of actions, which are 15 to 30 s",
    ),
    (
        "host_killed::",
        "twenty hosts are killed, and their sandboxes outlive them",
    ),
];

/// What the report says.
#[derive(Debug, Default, PartialEq)]
pub(super) struct TestResults {
    /// Number of tests that ran. Skipped tests are included.
    pub(super) count: usize,
    /// Tests without a reason in [`SLOW_TESTS`], and their times in seconds.
    pub(super) slow: Vec<(String, f64)>,
}

impl TestResults {
    pub(super) fn read(report: &Path) -> Result<Self> {
        let text = fs::read_to_string(report)
            .with_context(|| format!("cannot read {}", report.display()))?;
        Self::parse(&text).with_context(|| format!("cannot parse {}", report.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let mut results = Self::default();
        let mut reader = Reader::from_str(text);
        loop {
            match reader.read_event()? {
                Event::Start(element) | Event::Empty(element)
                    if element.name().as_ref() == b"testcase" =>
                {
                    results.add(&element)?;
                }
                Event::Eof => return Ok(results),
                _ => {}
            }
        }
    }

    fn add(&mut self, case: &BytesStart<'_>) -> Result<()> {
        let attribute = |name| -> Result<String> {
            let attribute = case
                .try_get_attribute(name)?
                .with_context(|| format!("a test without {name}"))?;
            Ok(attribute
                .normalized_value(XmlVersion::Implicit1_0)?
                .into_owned())
        };
        let (name, seconds) = (attribute("name")?, attribute("time")?.parse()?);
        self.count += 1;
        if seconds > SLOW_SECONDS && !SLOW_TESTS.iter().any(|(start, _)| name.starts_with(start)) {
            self.slow.push((name, seconds));
        }
        Ok(())
    }

    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        let slow = self.slow.iter().map(|(name, seconds)| {
            format!(
                "slow: {name} took {seconds:.0} s, and ci/src/test/results.rs has no reason for it"
            )
        });
        [format!("{} tests", self.count)].into_iter().chain(slow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_counted_and_slow_ones_without_a_reason_listed() {
        let report = r#"<?xml version="1.0" encoding="UTF-8"?>
            <testsuites name="nextest-run" tests="3"><testsuite name="a" tests="3">
            <testcase name="b::fast &amp; small" classname="a" timestamp="x" time="0.5"></testcase>
            <testcase name="b::slow" classname="a" time="20.4"/>
            <testcase name="host_killed::x" classname="a" time="60.0"/>
            </testsuite></testsuites>"#;
        let expected = TestResults {
            count: 3,
            slow: vec![("b::slow".to_owned(), 20.4)],
        };
        assert_eq!(TestResults::parse(report).unwrap(), expected);
    }
}

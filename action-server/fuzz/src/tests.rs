//! The fuzz targets as property tests. Unlike a fuzzer they do not learn from the code's coverage,
//! so the inputs of the parsers consist of pieces that these know.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// Pieces of output: marks of the shell, control sequences, and characters of several bytes.
const OUTPUT: &[&str] = &[
    "\x1b]n;",
    "\x1b]n;12ab\x07",
    "\x1b]n;0",
    "\x07",
    "\x1b",
    "\x1b]",
    "\x1b]0;title\x07",
    "\r",
    "\n",
    "\r\n",
    "\x08",
    "\t",
    "text",
    "\x1b[K",
    "\x1b[2K",
    "\x1b[31m",
    "\x1b[3;4H",
    "\x1b[65535C",
    "\x1b[?1049h",
    "\x1b[?1049l",
    "é",
    "\u{1f600}",
];

/// Pieces of requests.
const REQUEST: &[&str] = &[
    "{\"action\":\"run\",\"args\":{\"command\":\"a\"}}",
    "{\"action\":\"read\",\"args\":{\"path\":\"/a\"}}",
    "{\"action\":",
    "\"run\"",
    "\"edit\"",
    "\"write\"",
    "\"run_ipython\"",
    ",\"args\":{",
    "\"command\":",
    "\"path\":",
    "\"content\":",
    "\"timeout\":",
    "\"session\":",
    "\"environment\":",
    "\"str_replace\"",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "\\u0000",
    "null",
    "true",
    "1e999",
    "-1",
    "0.1",
    "\"a\"",
    "\n",
    "\0\0\0",
];

/// The default number of cases, which `PROPTEST_CASES` sets, times `factor`: the cheaper a target,
/// the more.
fn cases(factor: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: default.cases.saturating_mul(factor),
        ..default
    }
}

/// Bytes that a target reads as choices.
fn choices() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..400)
}

fn pieces(known: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let known = select(known).prop_map(|piece| piece.as_bytes().to_vec());
    let piece = prop_oneof![4 => known, 1 => vec(any::<u8>(), 1..6)];
    (any::<u8>(), vec(piece, 0..40))
        .prop_map(|(first, pieces)| [vec![first], pieces.concat()].concat())
}

proptest! {
    #![proptest_config(cases(4))]

    #[test]
    fn output_folds_equally_for_any_chunk_size(bytes in pieces(OUTPUT)) {
        super::fold(&bytes);
    }

    #[test]
    fn archives_never_leave_their_folder(bytes in choices()) {
        super::archive(&bytes);
    }
}

proptest! {
    #![proptest_config(cases(10))]

    #[test]
    fn edits_change_only_the_named_text(bytes in choices()) {
        super::edit(&bytes);
    }
}

proptest! {
    #![proptest_config(cases(20))]

    #[test]
    fn marks_are_found_for_any_chunk_size(bytes in pieces(OUTPUT)) {
        super::marks(&bytes);
    }

    #[test]
    fn requests_are_rejected_or_round_trip(bytes in pieces(REQUEST)) {
        // Without the first byte, which is the size of chunks for the other targets.
        super::request(&bytes[1..]);
    }
}

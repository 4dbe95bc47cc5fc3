//! Computes the edit of a draft from the text of the file and the response of the model. Pure.

use std::collections::HashMap;
use std::ops::Range;

use protocol::action::{EditAction, EditCommand};

use crate::secrets::REDACTED;

/// Maximum number of lines of a draft. V0's limit: a model that copies more makes mistakes.
const MAX_LINES: usize = 300;

/// Maximum length of a range, and of a draft, in bytes.
pub(super) const MAX_RANGE_BYTES: usize = 64 << 10;

/// Minimum length of a line that identifies a position in the file, in bytes.
const MIN_UNIQUE_LINE_BYTES: usize = 8;

const BYTE_ORDER_MARK: char = '\u{feff}';

/// Text with which models mark omitted lines.
const OMISSION_MARK: &str = "existing code";

/// How to turn a draft into an edit.
#[derive(Debug, PartialEq)]
pub(super) enum DraftPlan {
    /// The edit, without a model.
    Edit(EditAction),
    /// A model has to write the lines.
    Rewrite(DraftLines),
}

/// Lines of a file.
#[derive(Debug, PartialEq)]
pub(super) struct DraftLines {
    text: String,
    /// Byte range of the lines in the text, without a byte order mark, with the last line ending if
    /// there is one.
    range: Range<usize>,
    /// The range with enough adjacent lines to occur only once.
    around: Range<usize>,
    /// First and last line, from 1, both inclusive.
    first: usize,
    last: usize,
}

/// Plans a draft for a file with this text. An error is the reason for the agent.
pub(super) fn plan(draft: &EditAction, text: String) -> Result<DraftPlan, String> {
    let mark = if text.starts_with(BYTE_ORDER_MARK) {
        BYTE_ORDER_MARK.len_utf8()
    } else {
        0
    };
    if text.len() == mark {
        let (insert_line, new_str) = (Some(i64::from(mark > 0)), Some(draft.content.clone()));
        return Ok(DraftPlan::Edit(EditAction {
            command: EditCommand::Insert,
            insert_line,
            new_str,
            ..draft.clone()
        }));
    }
    let mut ends: Vec<usize> = text
        .match_indices('\n')
        .map(|(index, _)| index + 1)
        .collect();
    ends.extend((!text.ends_with('\n')).then_some(text.len()));
    let count = ends.len();
    let is_appended = draft.start == -1;
    let (first, last) = if is_appended {
        (count, count)
    } else {
        range_of(draft, count)?
    };
    // Lines are numbered from 1. Each starts at the end of the preceding one.
    let start_of = |line: usize| {
        line.checked_sub(2)
            .and_then(|before| ends.get(before))
            .copied()
            .unwrap_or(mark)
    };
    let end_of = |line: usize| {
        line.checked_sub(1)
            .and_then(|own| ends.get(own))
            .copied()
            .unwrap_or(text.len())
    };
    let range = start_of(first)..end_of(last);
    if !is_appended
        && (last - first >= MAX_LINES
            || range.len() > MAX_RANGE_BYTES
            || draft.content.len() > MAX_RANGE_BYTES)
    {
        return Err(too_long(draft, &text, &ends, first, last));
    }
    let mut around = range.clone();
    let mut more = 1;
    while !is_found_only_at(&text, &around) && around != (mark..text.len()) {
        around = start_of(first.saturating_sub(more))..end_of(last.saturating_add(more).min(count));
        more *= 2;
    }
    // A redacted secret above the lines may have several lines itself, so that the agent's line
    // numbers are wrong.
    if text
        .get(..around.end)
        .is_some_and(|text| text.contains(REDACTED))
    {
        return Err(
            "these lines, or lines above them, have a redacted secret, so that they cannot be identified; use the shell".into(),
        );
    }
    let replaced = text.get(around.clone()).unwrap_or_default();
    if replaced.contains(char::REPLACEMENT_CHARACTER) {
        return Err("these lines are not UTF-8; use the shell".into());
    }
    let lines = DraftLines {
        text,
        range,
        around,
        first,
        last,
    };
    Ok(if is_appended {
        DraftPlan::Edit(lines.appended(draft))
    } else {
        DraftPlan::Rewrite(lines)
    })
}

/// Returns the first and the last line of a draft, for a file with `count` lines.
fn range_of(draft: &EditAction, count: usize) -> Result<(usize, usize), String> {
    match (usize::try_from(draft.start), usize::try_from(draft.end)) {
        (Ok(first), _) if first == 0 || first > count => Err(format!(
            "the file has {count} lines, from 1, and `start` is {first}"
        )),
        (Ok(first), Ok(last)) if last < first => {
            Err(format!("`end` is {last}, which is before `start`, {first}"))
        }
        (Ok(first), last) if last.is_ok() || draft.end == -1 => {
            Ok((first, last.unwrap_or(count).min(count)))
        }
        _ => Err(format!(
            "{} to {} are no lines of the file",
            draft.start, draft.end
        )),
    }
}

/// Whether the text occurs only at this range, as the editor requires.
fn is_found_only_at(text: &str, range: &Range<usize>) -> bool {
    let mut found = text
        .match_indices(text.get(range.clone()).unwrap_or_default())
        .map(|(at, _)| at);
    found.next() == Some(range.start) && found.next().is_none()
}

fn too_long(draft: &EditAction, text: &str, ends: &[usize], first: usize, last: usize) -> String {
    if first == last {
        return format!(
            "line {first} or its draft is too long: the limit is {MAX_RANGE_BYTES} bytes; use the shell"
        );
    }
    let mut numbers = HashMap::new();
    for (line, number) in text.lines().zip(1..=ends.len()) {
        numbers.entry(line.trim()).or_insert(number);
    }
    let mut unique = draft
        .content
        .lines()
        .map(str::trim)
        .filter(|line| line.len() >= MIN_UNIQUE_LINE_BYTES);
    let likely = unique.find_map(|line| numbers.get(line));
    let likely = likely.map(|number| format!("; line {number} of the file is also in your draft"));
    format!(
        "lines {first} to {last} or their draft are too long: the limit is {MAX_LINES} lines and {MAX_RANGE_BYTES} bytes for \
         each. Choose a smaller range with `start` and `end`{}",
        likely.unwrap_or_default()
    )
}

impl DraftLines {
    fn old(&self) -> &str {
        self.text.get(self.range.clone()).unwrap_or_default()
    }

    /// Returns the request to the model.
    pub(super) fn prompt(&self, draft: &EditAction) -> String {
        let (old, new) = (without_end(self.old()), without_end(&draft.content));
        let longest = |text: &str| {
            text.split(|character| character != '`')
                .map(str::len)
                .max()
                .unwrap_or_default()
        };
        let fence = "`".repeat((longest(old).max(longest(new)) + 1).max(3));
        format!(
            "Lines {} to {} of {}:\n<lines>\n{old}\n</lines>\n\n<draft>\n{new}\n</draft>\n\nWrite the new lines between a \
             line `{fence}` and another one.",
            self.first, self.last, draft.path
        )
    }

    /// Returns the edit that a response results in, or the reason for the agent why it is unusable.
    pub(super) fn parse_response(
        &self,
        draft: &EditAction,
        response: &str,
    ) -> Result<EditAction, String> {
        let block = block(response).ok_or(
            "the model that applies drafts did not respond with one block of lines; the file is unchanged",
        )?;
        let has = |text: &str, wanted: &str| text.lines().any(|line| line.trim() == wanted);
        let left_out = draft.content.lines().map(str::trim).find(|line| {
            line.to_ascii_lowercase().contains(OMISSION_MARK)
                && has(&block, line)
                && !has(self.old(), line)
        });
        if let Some(line) = left_out {
            return Err(format!(
                "the model that applies drafts left out lines at `{line}` of the draft; the file is unchanged"
            ));
        }
        let new = self.with_own_line_ends(&block, self.old().ends_with('\n'));
        match new == self.old() {
            true => Err("the draft changes nothing".into()),
            false => Ok(self.replaced_by(draft, &new)),
        }
    }

    /// Reconstructs the edit that resulted in this text. `None` if other lines changed too.
    pub(super) fn reconstruct(&self, draft: &EditAction, text: &str) -> Option<EditAction> {
        let (before, after) = (
            self.text.get(..self.range.start)?,
            self.text.get(self.range.end..)?,
        );
        let new = text.strip_prefix(before)?.strip_suffix(after)?;
        Some(self.replaced_by(draft, new))
    }

    /// Returns the edit that appends the draft to these lines.
    fn appended(&self, draft: &EditAction) -> EditAction {
        let added = self.with_own_line_ends(&draft.content, self.old().ends_with('\n'));
        let between = if self.old().ends_with('\n') {
            ""
        } else {
            self.line_end()
        };
        self.replaced_by(draft, &format!("{}{between}{added}", self.old()))
    }

    fn replaced_by(&self, draft: &EditAction, new: &str) -> EditAction {
        let text = |from, to| self.text.get(from..to).unwrap_or_default();
        let (before, after) = (
            text(self.around.start, self.range.start),
            text(self.range.end, self.around.end),
        );
        EditAction {
            command: EditCommand::StrReplace,
            old_str: Some(format!("{before}{}{after}", self.old())),
            new_str: Some(format!("{before}{new}{after}")),
            ..draft.clone()
        }
    }

    fn with_own_line_ends(&self, text: &str, is_ended: bool) -> String {
        let mut text = text.lines().collect::<Vec<_>>().join(self.line_end());
        if is_ended && !text.is_empty() {
            text.push_str(self.line_end());
        }
        text
    }

    /// Returns the line ending of these lines, or of the file's first line if they have none.
    fn line_end(&self) -> &'static str {
        let text = if self.old().contains('\n') {
            self.old()
        } else {
            &self.text
        };
        let first = text.split_inclusive('\n').next().unwrap_or_default();
        if first.ends_with("\r\n") {
            "\r\n"
        } else {
            "\n"
        }
    }
}

/// Removes the last line ending.
fn without_end(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}

/// Returns the content of the only code block of a response. `None` if there are several, which is
/// ambiguous, or if the block has no end, because the response was truncated.
fn block(response: &str) -> Option<String> {
    let fence_of = |line: &str| line.bytes().take_while(|byte| *byte == b'`').count();
    let mut lines = response.lines();
    let fence = lines.by_ref().map(fence_of).find(|fence| *fence >= 3)?;
    let mut block = String::new();
    loop {
        let line = lines.next()?;
        if fence_of(line) == fence && line.trim_end().len() == fence {
            break;
        }
        block.push_str(line);
        block.push('\n');
    }
    lines.all(|line| fence_of(line) < 3).then_some(block)
}

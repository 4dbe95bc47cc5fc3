//! Entry points of fuzz targets for the pure modules.

use super::marks::{MarkPiece, MarkReader};
use super::output::OutputFold;

/// Returns the output between the marks.
pub(crate) fn marks<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    let mut reader = MarkReader::new("n");
    let mut pieces = vec![Vec::new()];
    for chunk in chunks {
        reader.feed(chunk, |piece| match piece {
            MarkPiece::Output(bytes) => {
                if let Some(last) = pieces.last_mut() {
                    last.extend_from_slice(bytes);
                }
            }
            MarkPiece::Mark => pieces.push(Vec::new()),
        });
    }
    pieces
}

/// Returns the folded text.
pub(crate) fn fold<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut fold = OutputFold::new(500);
    chunks.into_iter().for_each(|chunk| fold.feed(chunk));
    let folded = fold.take_text();
    folded.head + &folded.tail
}

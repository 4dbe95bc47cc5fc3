//! Entry points of fuzz targets for the pure modules.

use super::marks::{MarkPiece, MarkReader};
use super::output::OutputFold;

/// Returns the output before each mark, and the mark.
pub(crate) fn marks<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut reader = MarkReader::new("n");
    let mut pieces = vec![(Vec::new(), Vec::new())];
    for chunk in chunks {
        reader.feed(chunk, |piece| {
            let Some(last) = pieces.last_mut() else {
                return;
            };
            match piece {
                MarkPiece::Output(bytes) => last.0.extend_from_slice(bytes),
                MarkPiece::Mark(body) => {
                    last.1 = body.to_vec();
                    pieces.push((Vec::new(), Vec::new()));
                }
            }
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

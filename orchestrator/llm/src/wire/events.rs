//! Server-sent events: bytes in, as they arrive; the data of each event out.
//!
//! Knows nothing of what the data means. Its buffer is bounded by whoever bounds the bytes.

/// Between two pieces of a stream.
#[derive(Debug, Default)]
pub(crate) struct EventReader {
    line: Vec<u8>,
    data: Option<String>,
}

impl EventReader {
    /// Takes a piece; returns the data of the events that it ends.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut events = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                events.extend(self.end_line());
            }
        }
        events
    }

    /// The event that the stream ended in. The standard discards it, servers forget the empty line.
    pub(crate) fn finish(mut self) -> Option<String> {
        self.end_line().or(self.data)
    }

    /// An empty line ends the event; of all fields only `data` says something to us.
    fn end_line(&mut self) -> Option<String> {
        let line = String::from_utf8_lossy(&self.line).trim_end_matches(['\r', '\n']).to_owned();
        self.line.clear();
        if line.is_empty() {
            return self.data.take();
        }
        let value = line.strip_prefix("data:")?;
        let value = value.strip_prefix(' ').unwrap_or(value);
        match &mut self.data {
            Some(data) => {
                data.push('\n');
                data.push_str(value);
            }
            none => *none = Some(value.to_owned()),
        }
        None
    }
}

/// Whether a body that does not say so is a stream of events.
pub(crate) fn looks_like_events(body: &str) -> bool {
    ["data:", "event:", ": "].into_iter().any(|start| body.trim_start().starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(pieces: &[&[u8]]) -> (Vec<String>, Option<String>) {
        let mut reader = EventReader::default();
        let events = pieces.iter().flat_map(|piece| reader.push(piece)).collect();
        (events, reader.finish())
    }

    #[test]
    fn pieces_may_break_anywhere() {
        let stream = ": ping\r\n\r\nevent: x\r\ndata: {\"a\": \"\u{1f9e4}\"}\r\n\r\ndata:one\ndata: two\n\ndata: [DONE]\n\n";
        let whole = vec!["{\"a\": \"\u{1f9e4}\"}".to_owned(), "one\ntwo".to_owned(), "[DONE]".to_owned()];
        let bytes: Vec<&[u8]> = stream.as_bytes().chunks(1).collect();
        assert_eq!(events(&bytes), (whole.clone(), None));
        assert_eq!(events(&[stream.as_bytes()]), (whole, None));
    }

    #[test]
    fn the_last_event_needs_no_empty_line() {
        assert_eq!(events(&[b"data: a\n\ndata: b"]), (vec!["a".into()], Some("b".into())));
        assert_eq!(events(&[b"data: a\n\ndata: b\n"]), (vec!["a".into()], Some("b".into())));
        assert_eq!(events(&[b": only a comment"]), (vec![], None));
    }
}

//! Incremental reader of server-sent events that returns the data of each event.
//!
//! The caller limits the number of bytes, and with them the buffer. sse-stream 0.3 was tried: it
//! owns the stream of bytes and returns events only, but the idle timeout of a model call starts
//! again with every chunk, also with one that completes no event, such as a keep-alive comment; and
//! it discards a last event without an empty line after it, which some servers send.
//! eventsource-stream 0.2 scans an incomplete line again with every chunk: 1.8 s for a line of 4
//! MB.

/// State between two chunks of a stream.
#[derive(Debug, Default)]
pub(crate) struct EventReader {
    line: Vec<u8>,
    data: Option<String>,
}

impl EventReader {
    /// Appends a chunk, and returns the data of the events that it completes.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut events = Vec::new();
        for chunk in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(chunk);
            if chunk.ends_with(b"\n") {
                events.extend(self.end_line());
            }
        }
        events
    }

    /// Returns the last event if no empty line follows it.
    pub(crate) fn finish(mut self) -> Option<String> {
        self.end_line().or(self.data)
    }

    /// Handles a complete line. An empty one completes the event. Fields other than `data` are
    /// ignored.
    fn end_line(&mut self) -> Option<String> {
        let line = String::from_utf8_lossy(&self.line)
            .trim_end_matches(['\r', '\n'])
            .to_owned();
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

/// Whether a body is a stream of events although its content type is another one.
pub(crate) fn looks_like_events(body: &str) -> bool {
    ["data:", "event:", ": "]
        .into_iter()
        .any(|start| body.trim_start().starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(chunks: &[&[u8]]) -> (Vec<String>, Option<String>) {
        let mut reader = EventReader::default();
        let events = chunks.iter().flat_map(|chunk| reader.push(chunk)).collect();
        (events, reader.finish())
    }

    #[test]
    fn events_are_read_for_any_chunk_size() {
        let stream = ": ping\r\n\r\nevent: x\r\ndata: {\"a\": \"\u{1f9e4}\"}\r\n\r\ndata:one\ndata: two\n\ndata: [DONE]\n\n";
        let whole = vec![
            "{\"a\": \"\u{1f9e4}\"}".to_owned(),
            "one\ntwo".to_owned(),
            "[DONE]".to_owned(),
        ];
        let bytes: Vec<&[u8]> = stream.as_bytes().chunks(1).collect();
        assert_eq!(events(&bytes), (whole.clone(), None));
        assert_eq!(events(&[stream.as_bytes()]), (whole, None));
    }

    #[test]
    fn last_event_is_read_without_an_empty_line() {
        assert_eq!(
            events(&[b"data: a\n\ndata: b"]),
            (vec!["a".into()], Some("b".into()))
        );
        assert_eq!(
            events(&[b"data: a\n\ndata: b\n"]),
            (vec!["a".into()], Some("b".into()))
        );
        assert_eq!(events(&[b": only a comment"]), (vec![], None));
    }
}

//! An incremental parser of `multipart/form-data`. Buffers one chunk and a possible start of a
//! boundary.
//!
//! multer 3.1 was tried: it buffers the header of a part without a limit (300 MB of header took 311
//! MB of memory), and finds no filename where `filename*` precedes it.

/// Maximum size of a part's header. V0's clients send two short lines.
const MAX_HEADER_BYTES: usize = 16 << 10;

/// The maximum that the format allows.
const MAX_BOUNDARY_BYTES: usize = 70;

/// An event of the parser.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FormEvent {
    /// The start of a field.
    Part(FormPart),
    /// A part of the field's content.
    Data(Vec<u8>),
    /// The form is complete.
    End,
}

/// The name of a field, and the filename if it is a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FormPart {
    pub(super) name: String,
    pub(super) filename: Option<String>,
}

/// The body is not a valid form.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot parse the body as multipart/form-data: {0}")]
pub(super) struct FormError(pub(super) &'static str);

/// The parser.
#[derive(Debug)]
pub(super) struct MultipartParser {
    delimiter: Vec<u8>,
    buffer: Vec<u8>,
    state: ParserState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ParserState {
    Preamble,
    AfterDelimiter,
    Header,
    Content,
    Ended,
}

impl MultipartParser {
    /// Creates a parser for the content type.
    pub(super) fn new(content_type: &str) -> Result<Self, FormError> {
        let (media_type, parameters) = content_type.split_once(';').unwrap_or((content_type, ""));
        if !media_type
            .trim()
            .eq_ignore_ascii_case("multipart/form-data")
        {
            return Err(FormError("the content-type is another one"));
        }
        let boundary = parameter(parameters, "boundary").filter(|boundary| !boundary.is_empty());
        let boundary = boundary.ok_or(FormError("the content-type has no boundary"))?;
        if boundary.len() > MAX_BOUNDARY_BYTES {
            return Err(FormError("the boundary is too long"));
        }
        // The first delimiter may be at the start of the body, without a preceding line end.
        Ok(Self {
            delimiter: format!("\r\n--{boundary}").into_bytes(),
            buffer: b"\r\n".to_vec(),
            state: ParserState::Preamble,
        })
    }

    /// Appends received bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next event. `None` if more bytes are needed.
    pub(super) fn next_event(&mut self) -> Result<Option<FormEvent>, FormError> {
        loop {
            match self.state {
                ParserState::Ended => {
                    self.buffer.clear();
                    return Ok(None);
                }
                ParserState::Preamble => {
                    let (skipped, is_whole) = self.before_delimiter();
                    self.buffer.drain(..skipped);
                    if !is_whole {
                        return Ok(None);
                    }
                    self.consume_delimiter();
                }
                ParserState::AfterDelimiter => match self.buffer.get(..2) {
                    None => return Ok(None),
                    Some(b"--") => {
                        self.state = ParserState::Ended;
                        return Ok(Some(FormEvent::End));
                    }
                    // The line end is kept, so that even an empty header ends with an empty line.
                    Some(b"\r\n") => self.state = ParserState::Header,
                    Some(_) => {
                        return Err(FormError("a boundary is not followed by a line end"));
                    }
                },
                ParserState::Header => {
                    let Some(end) = find(&self.buffer, b"\r\n\r\n") else {
                        return match self.buffer.len() > MAX_HEADER_BYTES {
                            true => Err(FormError("the header of a part is too long")),
                            false => Ok(None),
                        };
                    };
                    let header: Vec<u8> = self.buffer.drain(..end + 4).collect();
                    self.state = ParserState::Content;
                    return part(&header).map(|part| Some(FormEvent::Part(part)));
                }
                ParserState::Content => {
                    let (length, is_whole) = self.before_delimiter();
                    if length > 0 {
                        return Ok(Some(FormEvent::Data(self.buffer.drain(..length).collect())));
                    }
                    if !is_whole {
                        return Ok(None);
                    }
                    self.consume_delimiter();
                }
            }
        }
    }

    fn consume_delimiter(&mut self) {
        self.buffer.drain(..self.delimiter.len());
        self.state = ParserState::AfterDelimiter;
    }

    /// Returns the number of bytes before the next delimiter, and whether that is complete.
    fn before_delimiter(&self) -> (usize, bool) {
        for (at, _) in self
            .buffer
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b'\r')
        {
            let rest = self.buffer.get(at..).unwrap_or_default();
            if rest.starts_with(&self.delimiter) {
                return (at, true);
            }
            if self.delimiter.starts_with(rest) {
                return (at, false);
            }
        }
        (self.buffer.len(), false)
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}

fn part(header: &[u8]) -> Result<FormPart, FormError> {
    let header =
        std::str::from_utf8(header).map_err(|_| FormError("the header of a part is not UTF-8"))?;
    let disposition = header.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim()
            .eq_ignore_ascii_case("content-disposition")
            .then_some(value)
    });
    let disposition = disposition.ok_or(FormError("a part has no content-disposition"))?;
    let (_, parameters) = disposition.split_once(';').unwrap_or((disposition, ""));
    let name = parameter(parameters, "name").ok_or(FormError("a part has no name"))?;
    let filename = parameter(parameters, "filename*")
        .and_then(|encoded| decoded(&encoded))
        .or_else(|| parameter(parameters, "filename"));
    Ok(FormPart { name, filename })
}

/// Returns the value of `name=value` or `name="value"`.
fn parameter(parameters: &str, wanted: &str) -> Option<String> {
    let mut rest = parameters;
    loop {
        let (name, after) = rest.split_once('=')?;
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => unquoted(quoted)?,
            None => {
                let (value, after) = after.split_once(';').unwrap_or((after, ""));
                (value.trim().to_owned(), after)
            }
        };
        if name
            .trim_start_matches([';', ' ', '\t'])
            .trim_end()
            .eq_ignore_ascii_case(wanted)
        {
            return Some(value);
        }
        rest = after;
    }
}

/// Parses up to the closing quote, and returns the rest. Clients write a quote as `\"` or `%22`.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value.replace("%22", "\""), text.get(at + 1..)?)),
            '\\' => value.push(characters.next()?.1),
            other => value.push(other),
        }
    }
    None
}

/// Decodes `UTF-8''a%20name`.
fn decoded(encoded: &str) -> Option<String> {
    let text = encoded
        .get(..7)
        .filter(|charset| charset.eq_ignore_ascii_case("utf-8''"))
        .and(encoded.get(7..))?;
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                bytes.push(u8::try_from(digit(high)? * 16 + digit(low)?).ok()?);
                rest = after;
            }
            (byte, _) => bytes.push(*byte),
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(body: &[u8], chunk: usize) -> Result<Vec<FormEvent>, FormError> {
        let mut form = MultipartParser::new("multipart/form-data; boundary=\"b\"")?;
        let mut events: Vec<FormEvent> = Vec::new();
        for chunk in body.chunks(chunk) {
            form.push(chunk);
            while let Some(event) = form.next_event()? {
                match (events.last_mut(), event) {
                    (Some(FormEvent::Data(before)), FormEvent::Data(more)) => before.extend(more),
                    (_, event) => events.push(event),
                }
            }
        }
        Ok(events)
    }

    fn field(name: &str, filename: Option<&str>) -> FormEvent {
        FormEvent::Part(FormPart {
            name: name.into(),
            filename: filename.map(str::to_owned),
        })
    }

    #[test]
    fn form_is_parsed_for_any_chunk_size() {
        let body = b"preamble\r\n--b\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\n\r\n--b\r\n\
            content-type: text/plain\r\nCONTENT-DISPOSITION: form-data; filename=\"a \\\"b;.zip\"; name=file\r\n\r\n\
            \r\n--\r\n-b\r\r\n--b--epilogue";
        for chunk in 1..body.len() {
            assert_eq!(
                read(body, chunk).unwrap(),
                [
                    field("x", None),
                    field("file", Some("a \"b;.zip")),
                    FormEvent::Data(b"\r\n--\r\n-b\r".to_vec()),
                    FormEvent::End
                ],
                "in chunks of {chunk}"
            );
        }
    }

    #[test]
    fn filename_is_parsed_in_all_spellings() {
        let name = |text: &str| {
            part(format!("content-disposition: form-data; name=f; {text}\r\n").as_bytes())
        };
        assert_eq!(
            name("filename*=utf-8''%C3%A9.zip; filename=x")
                .unwrap()
                .filename
                .unwrap(),
            "é.zip"
        );
        assert_eq!(
            name("filename=\"a%22b\"").unwrap().filename.unwrap(),
            "a\"b"
        );
        assert_eq!(name("filename=\"open").unwrap().filename, None);
    }

    #[test]
    fn invalid_form_is_rejected() {
        for content_type in [
            "",
            "text/plain",
            "multipart/form-data",
            "multipart/form-data; boundary=",
        ] {
            assert!(
                MultipartParser::new(content_type).is_err(),
                "{content_type}"
            );
        }
        let long = format!("--b\r\n{}", "x".repeat(MAX_HEADER_BYTES));
        for body in [
            "--b\r\n\r\nno header",
            "--bb\r\n",
            "--b\r\ncontent-disposition: form-data\r\n\r\n",
            &long,
        ] {
            assert!(read(body.as_bytes(), 7).is_err(), "{body}");
        }
    }

    proptest! {
        #[test]
    fn content_is_unchanged_after_parsing(content in "[\r\n\\-b ]{0,40}", chunk in 1usize..9) {
            prop_assume!(!content.contains("\r\n--b"));
            let body = format!("--b\r\ncontent-disposition: form-data; name=f\r\n\r\n{content}\r\n--b--");
            let mut expected = vec![field("f", None)];
            if !content.is_empty() {
                expected.push(FormEvent::Data(content.into_bytes()));
            }
            expected.push(FormEvent::End);
            prop_assert_eq!(read(body.as_bytes(), chunk).unwrap(), expected);
        }

        #[test]
    fn parser_never_panics(body in proptest::collection::vec(any::<u8>(), 0..200), chunk in 1usize..9) {
            let _ = read(&body, chunk);
        }
    }
}

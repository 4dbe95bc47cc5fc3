//! An upload as it arrives: the file goes to a nameless file on disk, because where it belongs may be said after it.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use axum::body::Body;
use futures_util::StreamExt as _;
use nix::fcntl::OFlag;
use tokio::io::AsyncWriteExt as _;

use super::multipart::{Event, Form, FormError, Part};
use crate::api::paced_body::paced;
use crate::v0::transfer_error::TransferError;

/// Of one upload.
const MAX_UPLOAD_BYTES: u64 = 4 << 30;

/// Of a field that is no file.
const MAX_FIELD_BYTES: usize = 16 << 10;

/// Fields beside the file; V0's clients send none or two.
const MAX_FIELDS: usize = 16;

/// What was sent.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) filename: String,
    /// At its beginning.
    pub(super) file: File,
    /// The fields beside it.
    pub(super) fields: Vec<(String, String)>,
}

impl Arrival {
    /// Reads the body to its end. `folders` are where the nameless file may be kept, the first that takes it.
    pub(super) async fn read(
        content_type: &str,
        body: Body,
        folders: Vec<PathBuf>,
    ) -> Result<Self, TransferError> {
        let mut form = Form::new(content_type)?;
        let mut reading = Reading { folders, file: None, fields: Vec::new(), is_in: In::Nothing, bytes: 0 };
        let mut chunks = paced(body).into_data_stream();
        let mut has_ended = false;
        while let Some(chunk) = chunks.next().await {
            let chunk =
                chunk.map_err(|error| TransferError::Refused(format!("reading the body: {error}")))?;
            form.push(&chunk);
            while let Some(event) = form.next_event()? {
                has_ended |= event == Event::End;
                reading.take(event).await?;
            }
        }
        if !has_ended {
            return Err(FormError("it ends before its last boundary").into());
        }
        reading.finish().await
    }
}

struct Reading {
    folders: Vec<PathBuf>,
    file: Option<(String, tokio::fs::File)>,
    fields: Vec<(String, String)>,
    is_in: In,
    bytes: u64,
}

#[derive(Clone, Copy)]
enum In {
    Nothing,
    File,
    Field,
}

impl Reading {
    async fn take(&mut self, event: Event) -> Result<(), TransferError> {
        match event {
            Event::End => self.is_in = In::Nothing,
            Event::Part(part) => self.begin(part).await?,
            Event::Data(bytes) => {
                self.bytes += bytes.len() as u64;
                if self.bytes > MAX_UPLOAD_BYTES {
                    let problem = format!("field `file`: an upload has at most {MAX_UPLOAD_BYTES} bytes");
                    return Err(TransferError::TooMuch(problem));
                }
                self.add(&bytes).await?;
            }
        }
        Ok(())
    }

    async fn begin(&mut self, part: Part) -> Result<(), TransferError> {
        match part.filename {
            Some(filename) if part.name == "file" => {
                if self.file.is_some() {
                    return Err(TransferError::Refused("field `file`: there are several".into()));
                }
                let folders = std::mem::take(&mut self.folders);
                let opened = tokio::task::spawn_blocking(move || nameless(&folders)).await;
                let file = opened.unwrap_or_else(|error| Err(io::Error::other(error)));
                let file = file.map_err(|error| {
                    TransferError::io("keeping the upload in", Path::new("the temporary folder"), error)
                })?;
                self.file = Some((filename, tokio::fs::File::from_std(file)));
                self.is_in = In::File;
            }
            Some(_) => return Err(TransferError::Refused(format!("field `{}`: unknown file", part.name))),
            None if part.name == "file" => {
                return Err(TransferError::Refused("field `file`: it has no filename".into()));
            }
            None => {
                if self.fields.len() == MAX_FIELDS {
                    return Err(TransferError::Refused(format!(
                        "the form has more than {MAX_FIELDS} fields"
                    )));
                }
                self.fields.push((part.name, String::new()));
                self.is_in = In::Field;
            }
        }
        Ok(())
    }

    async fn add(&mut self, bytes: &[u8]) -> Result<(), TransferError> {
        match (self.is_in, &mut self.file, self.fields.last_mut()) {
            (In::File, Some((_, file)), _) => file.write_all(bytes).await.map_err(keeping),
            (In::Field, _, Some((name, value))) => {
                value.push_str(&String::from_utf8_lossy(bytes));
                match value.len() > MAX_FIELD_BYTES {
                    true => Err(TransferError::Refused(format!("field `{name}`: it is too long"))),
                    false => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    async fn finish(self) -> Result<Arrival, TransferError> {
        let missing = || TransferError::Refused("field `file`: it is missing".into());
        let (filename, mut file) = self.file.ok_or_else(missing)?;
        file.flush().await.map_err(keeping)?;
        let mut file = file.into_std().await;
        file.rewind().map_err(keeping)?;
        Ok(Arrival { filename, file, fields: self.fields })
    }
}

fn keeping(error: io::Error) -> TransferError {
    TransferError::io("writing to", Path::new("the temporary folder"), error)
}

fn nameless(folders: &[PathBuf]) -> io::Result<File> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for folder in folders {
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .mode(0o600)
            .custom_flags(OFlag::O_TMPFILE.bits())
            .open(folder);
        match opened {
            Ok(file) => return Ok(file),
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl From<FormError> for TransferError {
    fn from(error: FormError) -> Self {
        Self::Refused(error.to_string())
    }
}

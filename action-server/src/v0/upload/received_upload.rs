//! Receives an upload. The file is stored in an unnamed temporary file, because its destination may
//! follow in the form.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use axum::body::Body;
use futures_util::StreamExt as _;
use nix::fcntl::OFlag;
use tokio::io::AsyncWriteExt as _;

use super::multipart::{FormError, FormEvent, FormPart, MultipartParser};
use crate::api::paced_body::paced;
use crate::v0::transfer_error::TransferError;

/// Maximum size of one upload.
const MAX_UPLOAD_BYTES: u64 = 4 << 30;

/// Maximum size of a field that is not a file.
const MAX_FIELD_BYTES: usize = 16 << 10;

/// Maximum number of other fields. V0's clients send none or two.
const MAX_FIELDS: usize = 16;

/// A received upload.
#[derive(Debug)]
pub(super) struct ReceivedUpload {
    pub(super) filename: String,
    /// Positioned at its start.
    pub(super) file: File,
    /// The other fields.
    pub(super) fields: Vec<(String, String)>,
}

impl ReceivedUpload {
    /// Reads the body to its end. The temporary file is created in the first of `folders` that
    /// supports it.
    pub(super) async fn read(
        content_type: &str,
        body: Body,
        folders: Vec<PathBuf>,
    ) -> Result<Self, TransferError> {
        let mut form = MultipartParser::new(content_type)?;
        let mut reader = UploadReader {
            folders,
            file: None,
            fields: Vec::new(),
            current: CurrentPart::None,
            bytes: 0,
        };
        let mut chunks = paced(body).into_data_stream();
        let mut has_ended = false;
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|error| {
                TransferError::Refused(format!("cannot read the body: {error}"))
            })?;
            form.push(&chunk);
            while let Some(event) = form.next_event()? {
                has_ended |= event == FormEvent::End;
                reader.handle(event).await?;
            }
        }
        if !has_ended {
            return Err(FormError("the last boundary is missing").into());
        }
        reader.finish().await
    }
}

struct UploadReader {
    folders: Vec<PathBuf>,
    file: Option<(String, tokio::fs::File)>,
    fields: Vec<(String, String)>,
    current: CurrentPart,
    bytes: u64,
}

#[derive(Clone, Copy)]
enum CurrentPart {
    None,
    File,
    Field,
}

impl UploadReader {
    async fn handle(&mut self, event: FormEvent) -> Result<(), TransferError> {
        match event {
            FormEvent::End => self.current = CurrentPart::None,
            FormEvent::Part(part) => self.start_part(part).await?,
            FormEvent::Data(bytes) => {
                self.bytes += bytes.len() as u64;
                if self.bytes > MAX_UPLOAD_BYTES {
                    let problem =
                        format!("field `file`: an upload has at most {MAX_UPLOAD_BYTES} bytes");
                    return Err(TransferError::TooMuch(problem));
                }
                self.append(&bytes).await?;
            }
        }
        Ok(())
    }

    async fn start_part(&mut self, part: FormPart) -> Result<(), TransferError> {
        match part.filename {
            Some(filename) if part.name == "file" => {
                if self.file.is_some() {
                    return Err(TransferError::Refused("field `file`: more than one".into()));
                }
                let folders = std::mem::take(&mut self.folders);
                let opened = tokio::task::spawn_blocking(move || create_unnamed(&folders)).await;
                let file = opened.unwrap_or_else(|error| Err(io::Error::other(error)));
                let file = file.map_err(|error| {
                    TransferError::io(
                        "store the upload in",
                        Path::new("the temporary folder"),
                        error,
                    )
                })?;
                self.file = Some((filename, tokio::fs::File::from_std(file)));
                self.current = CurrentPart::File;
            }
            Some(_) => {
                return Err(TransferError::Refused(format!(
                    "field `{}`: unknown file",
                    part.name
                )));
            }
            None if part.name == "file" => {
                return Err(TransferError::Refused("field `file`: no filename".into()));
            }
            None => {
                if self.fields.len() == MAX_FIELDS {
                    return Err(TransferError::Refused(format!(
                        "the form has more than {MAX_FIELDS} fields"
                    )));
                }
                self.fields.push((part.name, String::new()));
                self.current = CurrentPart::Field;
            }
        }
        Ok(())
    }

    async fn append(&mut self, bytes: &[u8]) -> Result<(), TransferError> {
        match (self.current, &mut self.file, self.fields.last_mut()) {
            (CurrentPart::File, Some((_, file)), _) => {
                file.write_all(bytes).await.map_err(write_error)
            }
            (CurrentPart::Field, _, Some((name, value))) => {
                value.push_str(&String::from_utf8_lossy(bytes));
                match value.len() > MAX_FIELD_BYTES {
                    true => Err(TransferError::Refused(format!("field `{name}`: too long"))),
                    false => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    async fn finish(self) -> Result<ReceivedUpload, TransferError> {
        let missing = || TransferError::Refused("field `file`: missing".into());
        let (filename, mut file) = self.file.ok_or_else(missing)?;
        file.flush().await.map_err(write_error)?;
        let mut file = file.into_std().await;
        file.rewind().map_err(write_error)?;
        Ok(ReceivedUpload {
            filename,
            file,
            fields: self.fields,
        })
    }
}

fn write_error(error: io::Error) -> TransferError {
    TransferError::io("write to", Path::new("the temporary folder"), error)
}

fn create_unnamed(folders: &[PathBuf]) -> io::Result<File> {
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

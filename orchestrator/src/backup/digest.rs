//! Hashes of what is written to and read from an archive.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::rc::Rc;

use ring::digest::{Context, SHA256};

/// Size of a header of tar, in bytes.
pub(super) const BLOCK_BYTES: usize = 512;

/// A writer that hashes everything that is written.
pub(super) struct HashingWriter<W> {
    output: W,
    context: Context,
}

impl<W: Write> HashingWriter<W> {
    pub(super) fn new(output: W) -> Self {
        Self {
            output,
            context: Context::new(&SHA256),
        }
    }

    /// Returns the hash of everything that was written, in hexadecimal digits.
    pub(super) fn digest(&self) -> String {
        to_hex(&self.context)
    }

    pub(super) fn into_inner(self) -> W {
        self.output
    }
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.output.write(bytes)?;
        self.context.update(bytes.get(..count).unwrap_or_default());
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

/// The hash of what was read of an archive, except the last block. When the header of an entry was
/// read, that is everything before the entry.
#[derive(Clone)]
pub(super) struct DelayedDigest(Rc<RefCell<Delayed>>);

struct Delayed {
    context: Context,
    /// The last bytes that were read, at most a block.
    last: Vec<u8>,
}

impl DelayedDigest {
    pub(super) fn new() -> Self {
        Self(Rc::new(RefCell::new(Delayed {
            context: Context::new(&SHA256),
            last: Vec::with_capacity(2 * BLOCK_BYTES),
        })))
    }

    /// Returns the hash in hexadecimal digits.
    pub(super) fn digest(&self) -> String {
        to_hex(&self.0.borrow().context)
    }

    fn update(&self, bytes: &[u8]) {
        let Delayed { context, last } = &mut *self.0.borrow_mut();
        // All but the last block of both.
        let due = (last.len() + bytes.len()).saturating_sub(BLOCK_BYTES);
        let of_last = due.min(last.len());
        context.update(last.get(..of_last).unwrap_or_default());
        last.drain(..of_last);
        let (due, rest) = bytes
            .split_at_checked(due - of_last)
            .unwrap_or((bytes, &[]));
        context.update(due);
        last.extend_from_slice(rest);
    }
}

/// A reader that hashes everything that is read.
pub(super) struct HashingReader<R> {
    input: R,
    digest: DelayedDigest,
}

impl<R: Read> HashingReader<R> {
    pub(super) fn new(input: R, digest: DelayedDigest) -> Self {
        Self { input, digest }
    }

    pub(super) fn into_inner(self) -> R {
        self.input
    }
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.digest.update(buffer.get(..count).unwrap_or_default());
        Ok(count)
    }
}

fn to_hex(context: &Context) -> String {
    hex::encode(context.clone().finish().as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_block_is_not_in_the_delayed_hash() {
        let bytes: Vec<u8> = (0..5000_u32)
            .map(|number| number.to_le_bytes()[0])
            .collect();
        for sizes in [
            [1, 511, 512],
            [512, 512, 512],
            [513, 1, 2000],
            [100, 200, 300],
        ] {
            let digest = DelayedDigest::new();
            let mut start = 0;
            for size in sizes {
                digest.update(&bytes[start..start + size]);
                start += size;
                let mut expected = Context::new(&SHA256);
                expected.update(&bytes[..start.saturating_sub(BLOCK_BYTES)]);
                assert_eq!(digest.digest(), to_hex(&expected), "{sizes:?} at {start}");
            }
        }
    }
}

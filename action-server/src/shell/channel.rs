//! The socket between the server and one shell: commands in one direction, reports of their
//! completion in the other.
//!
//! The kernel attaches the sender's process id to each report, and reports of other processes than
//! the shell are dropped. So no process of a command can complete it, whatever it prints, reads or
//! inherits. Only the shell and its forks have the shell's end: it is closed by `exec`, and a
//! socket cannot be opened through `/proc`. Therefore no other program can read a command or its
//! injected variables here. The shell code of a background subshell can.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream as BlockingStream;

use nix::cmsg_space;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, UnixCredentials, recvmsg, setsockopt, sockopt,
};
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::pty;

/// Longer than any report: a path has at most 4,095 bytes on Linux.
const MAX_REPORT_BYTES: usize = 8 * 1024;

/// A report of the shell, which waits for a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ShellReport {
    /// The number of this report.
    pub(super) turn: u64,
    /// The turn of the last command that the shell started, which has ended. `None` if there is
    /// none, or a command has overwritten the variable.
    pub(super) ended: Option<u64>,
    /// The exit status of the last command.
    pub(super) status: i32,
    /// The shell has to show its prompt before the next command.
    pub(super) needs_prompt: bool,
    pub(super) working_dir: Vec<u8>,
}

/// The server's end.
#[derive(Debug)]
pub(super) struct Channel {
    socket: UnixStream,
    /// The process whose reports are accepted.
    shell: i32,
    /// An incomplete report.
    received: Vec<u8>,
    /// The rest of a command, whose size is limited.
    unsent: VecDeque<u8>,
    closed: Option<ChannelEnd>,
}

/// How the shell's end was closed, on its exit or by another program that has replaced it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChannelEnd {
    AllRead,
    /// The shell had not read everything.
    Unread,
}

impl Channel {
    /// Creates a channel, and returns it with the shell's end. Must be called in a runtime.
    pub(super) fn create() -> io::Result<(Self, OwnedFd)> {
        let (ours, shells) = BlockingStream::pair()?;
        setsockopt(&ours, sockopt::PassCred, &true)?;
        ours.set_nonblocking(true)?;
        let channel = Self {
            socket: UnixStream::from_std(ours)?,
            shell: 0,
            received: Vec::new(),
            unsent: VecDeque::new(),
            closed: None,
        };
        Ok((channel, shells.into()))
    }

    /// Accepts reports of `shell` from now on. The process must not be reaped while the channel is
    /// used.
    pub(super) fn accept(&mut self, shell: i32) {
        self.shell = shell;
    }

    /// Returns whether the shell has closed its end.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// Returns whether the shell has exited before it had read everything.
    pub(super) fn is_unread(&self) -> bool {
        self.closed == Some(ChannelEnd::Unread) || !self.unsent.is_empty()
    }

    /// Returns the number of bytes that the shell has not read.
    pub(super) fn unread(&self) -> usize {
        self.unsent.len() + pty::unread(&self.socket)
    }

    /// Sends as much as fits. [`Channel::receive`] sends the rest.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.unsent.extend(bytes);
        self.send_unsent();
    }

    fn send_unsent(&mut self) {
        while !self.unsent.is_empty() {
            match self.socket.try_write(self.unsent.as_slices().0) {
                Ok(count) => drop(self.unsent.drain(..count)),
                // The receiving side detects a closed channel.
                Err(_) => return,
            }
        }
    }

    /// Waits for a report, and sends the rest of a command meanwhile. `None` once the shell has
    /// closed its end. Cancel-safe.
    pub(super) async fn receive(&mut self) -> Option<ShellReport> {
        loop {
            if let Some(report) = self.receive_now() {
                return Some(report);
            }
            if self.is_closed() {
                return None;
            }
            let interest = match self.unsent.is_empty() {
                true => Interest::READABLE,
                false => Interest::READABLE | Interest::WRITABLE,
            };
            if self.socket.ready(interest).await.is_err() {
                self.closed = Some(ChannelEnd::AllRead);
            }
            self.send_unsent();
        }
    }

    /// Returns a report that has already arrived.
    pub(super) fn receive_now(&mut self) -> Option<ShellReport> {
        loop {
            if let Some(end) = self.received.iter().position(|&byte| byte == 0) {
                let report = parse(&self.received[..end]);
                self.received.drain(..=end);
                match report {
                    Some(report) => return Some(report),
                    None => continue,
                }
            }
            if self.is_closed() || !self.read() {
                return None;
            }
        }
    }

    /// Reads once. Returns `false` if there was nothing to read.
    fn read(&mut self) -> bool {
        let mut bytes = [0; 1024];
        // Only fits credentials. The kernel closes descriptors that are sent with them.
        let mut control = cmsg_space!(UnixCredentials);
        let received = self.socket.try_io(Interest::READABLE, || {
            let mut buffer = [IoSliceMut::new(&mut bytes)];
            let message = recvmsg::<()>(
                self.socket.as_raw_fd(),
                &mut buffer,
                Some(&mut control),
                MsgFlags::empty(),
            )?;
            let writer = message.cmsgs()?.find_map(|control| match control {
                ControlMessageOwned::ScmCredentials(credentials) => Some(credentials.pid()),
                _ => None,
            });
            Ok((message.bytes, writer))
        });
        match received {
            Ok((0, _)) => self.closed = Some(ChannelEnd::AllRead),
            // The kernel never merges messages of two processes.
            Ok((count, Some(writer))) if writer == self.shell => {
                if self.received.len() + count > MAX_REPORT_BYTES {
                    self.received.clear();
                }
                self.received.extend_from_slice(&bytes[..count]);
            }
            Ok(_) => tracing::debug!("dropped a report that the shell has not written"),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                self.closed = Some(ChannelEnd::Unread);
            }
            Err(_) => self.closed = Some(ChannelEnd::AllRead),
        }
        true
    }
}

/// Parses `TURN;ENDED;STATUS;FLAGS;PATH`. The path is last, because it may contain anything but a
/// NUL byte.
fn parse(report: &[u8]) -> Option<ShellReport> {
    let mut fields = report.splitn(5, |&byte| byte == b';');
    let mut field = || std::str::from_utf8(fields.next()?).ok();
    Some(ShellReport {
        turn: field()?.parse().ok()?,
        ended: field()?.parse().ok(),
        status: field()?.parse().ok()?,
        needs_prompt: !field()?.is_empty(),
        working_dir: fields.next()?.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    fn pair() -> (Channel, BlockingStream) {
        let (mut channel, end) = Channel::create().unwrap();
        channel.accept(std::process::id().cast_signed());
        (channel, end.into())
    }

    #[tokio::test]
    async fn reports_are_parsed_for_any_chunk_size() {
        let (mut channel, mut end) = pair();
        for part in [
            "1",
            "2;12;130;p;/a;b\nc\x0013;;0;;/",
            "\0junk\0x;;0;;/\x0014;14;1;pp;\x001;y;0;;\0",
        ] {
            end.write_all(part.as_bytes()).unwrap();
        }
        let report = |turn, ended, status, needs_prompt, path: &str| {
            Some(ShellReport {
                turn,
                ended,
                status,
                needs_prompt,
                working_dir: path.into(),
            })
        };
        assert_eq!(
            channel.receive().await,
            report(12, Some(12), 130, true, "/a;b\nc")
        );
        assert_eq!(channel.receive().await, report(13, None, 0, false, "/"));
        assert_eq!(channel.receive().await, report(14, Some(14), 1, true, ""));
        assert_eq!(channel.receive().await, report(1, None, 0, false, ""));
        drop(end);
        assert_eq!(channel.receive().await, None);
        assert!(!channel.is_unread());
    }

    #[tokio::test]
    async fn report_of_another_process_is_dropped() {
        let (mut channel, mut end) = pair();
        end.write_all(b"1;").unwrap();
        let forger = Command::new("sh")
            .args(["-c", "printf '1;1;0;;/forged\\0'"])
            .stdout(Stdio::from(OwnedFd::from(end.try_clone().unwrap())))
            .status();
        assert!(forger.unwrap().success());
        end.write_all(b"1;3;;/true\0").unwrap();
        let report = channel.receive().await.unwrap();
        assert_eq!(
            (report.status, report.working_dir.as_slice()),
            (3, b"/true".as_slice())
        );
        assert_eq!(channel.receive_now(), None);
    }

    #[tokio::test]
    async fn unread_command_is_detected_when_the_shell_ends() {
        let (mut channel, end) = pair();
        channel.send(b"command");
        drop(end);
        assert_eq!(channel.receive().await, None);
        assert!(channel.is_unread());
    }

    #[tokio::test]
    async fn endless_report_is_bounded() {
        let (mut channel, mut end) = pair();
        for _ in 0..100 {
            end.write_all(&[b'x'; 1000]).unwrap();
            channel.socket.readable().await.unwrap();
            assert_eq!(channel.receive_now(), None);
            assert!(channel.received.len() <= MAX_REPORT_BYTES);
        }
    }
}

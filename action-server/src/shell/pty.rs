//! The terminal of one shell, and how a child enters it between fork and exec.
//!
//! Only the master side is kept open. The slave side is closed once the shell has started, so that
//! the terminal hangs up when the last process closes it. The exit of the shell itself is detected
//! by waiting for it, because background jobs may keep the terminal open. Dropping the master hangs
//! up the terminal.

// The standard library cannot create a session with a controlling terminal between fork and exec,
// except through `pre_exec`.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{PtyMaster, Winsize, posix_openpt, ptsname_r, unlockpt};
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::termios::{
    InputFlags, LocalFlags, OutputFlags, SetArg, Termios, tcgetattr, tcsetattr,
};
use nix::unistd::{setsid, tcgetpgrp};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::process::Command;

use super::program::ShellDialect;

nix::ioctl_write_ptr_bad!(set_window_size, libc::TIOCSWINSZ, Winsize);
nix::ioctl_write_int_bad!(take_terminal, libc::TIOCSCTTY);
nix::ioctl_read_bad!(unread_by_peer, libc::TIOCOUTQ, libc::c_int);

/// Wide enough that programs do not wrap or cut lines.
pub(super) const COLUMNS: u16 = 1000;
pub(super) const ROWS: u16 = 50;
const WINDOW: Winsize = window(COLUMNS, ROWS);

const fn window(columns: u16, rows: u16) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

/// After a read of this size there is probably more. After a shorter one, another read would cost a
/// system call per response.
pub(super) const FLOOD_BYTES: usize = 2 * 1024;

/// Above the descriptors of the shell.
const MIN_MOVED_DESCRIPTOR: RawFd = 256;

/// The master side.
pub(super) struct Pty {
    master: AsyncFd<PtyMaster>,
    slave_path: PathBuf,
    /// The kernel's type, because that of nix cannot be shared between threads.
    settings: libc::termios,
}

impl Pty {
    /// Opens a terminal with the settings that `dialect` requires.
    ///
    /// # Errors
    /// No `/dev/ptmx`, no devpts mounted, or no terminal left.
    pub(super) fn open(dialect: ShellDialect) -> io::Result<Self> {
        Self::set_up(WINDOW, &|settings| {
            settings.output_flags.remove(OutputFlags::OPOST);
            settings.input_flags.remove(InputFlags::IXON);
            settings
                .local_flags
                .set(LocalFlags::ECHO, dialect == ShellDialect::Ash);
        })
    }

    /// Opens an interactive terminal with the kernel's default settings.
    ///
    /// # Errors
    /// As [`Pty::open`].
    pub(super) fn interactive(columns: u16, rows: u16) -> io::Result<Self> {
        Self::set_up(window(columns, rows), &|_| {})
    }

    fn set_up(size: Winsize, set: &dyn Fn(&mut Termios)) -> io::Result<Self> {
        let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let master = posix_openpt(flags)?;
        // No grantpt: devpts sets the owner, and older C libraries would look up a group.
        unlockpt(&master)?;
        let slave_path = ptsname_r(&master)?.into();
        // SAFETY: the descriptor is open, and the kernel only reads the size behind the pointer.
        unsafe { set_window_size(master.as_raw_fd(), &size) }?;
        let mut settings = tcgetattr(&master)?;
        settings.input_flags.insert(InputFlags::IUTF8);
        set(&mut settings);
        tcsetattr(&master, SetArg::TCSANOW, &settings)?;
        // Not writable: the task would be woken after each line that the shell reads. SAFETY: a
        // PtyMaster owns its descriptor and never changes it, so it stays open as long as it is
        // registered.
        let master = unsafe { AsyncFd::register_with_interest(master, Interest::READABLE) }?;
        Ok(Self {
            master,
            slave_path,
            settings: settings.into(),
        })
    }

    /// Returns the path of the slave side.
    pub(super) fn slave_path(&self) -> &Path {
        &self.slave_path
    }

    /// Sets the size, which sends SIGWINCH to the foreground process group.
    pub(super) fn resize(&self, columns: u16, rows: u16) -> io::Result<()> {
        let size = window(columns, rows);
        // SAFETY: as in `set_up`.
        unsafe { set_window_size(self.master.get_ref().as_raw_fd(), &size) }?;
        Ok(())
    }

    /// Makes `command` the leader of a new session on this terminal, with the descriptors in
    /// `inherited` at the given numbers. Resets all signals: a server that was started with `nohup`
    /// or in the background ignores some, and a child that inherits that could not be interrupted.
    ///
    /// The caller must keep `inherited` open until `command` has started.
    pub(super) fn attach<const N: usize>(
        &self,
        command: &mut Command,
        inherited: [(BorrowedFd<'_>, RawFd); N],
    ) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let slave = options
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOCTTY)
            .open(&self.slave_path)?;
        command
            .stdin(slave.try_clone()?)
            .stdout(slave.try_clone()?)
            .stderr(slave);
        let inherited = inherited.map(|(file, number)| (file.as_raw_fd(), number));
        // SAFETY: the closure runs between fork and exec and makes system calls only: no
        // allocation, no lock, nothing of the parent's. The descriptors are open then, because the
        // caller keeps them.
        unsafe { command.pre_exec(move || enter_terminal(inherited)) };
        Ok(())
    }

    /// Waits for output, and fills the buffer if there is much. Returns 0 if no process has the
    /// terminal open. Cancel-safe.
    pub(super) async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.master.readable().await?;
            match ready.try_io(|master| master.get_ref().read(buffer)) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) if error.raw_os_error() == Some(libc::EIO) => return Ok(0),
                Ok(Ok(count)) if count >= FLOOD_BYTES => return Ok(self.read_on(buffer, count)),
                Ok(result) => return result,
                Err(_would_block) => {}
            }
        }
    }

    /// Reads more. The end of the terminal is reported by the next read.
    fn read_on(&self, buffer: &mut [u8], mut filled: usize) -> usize {
        loop {
            match self.read_now(&mut buffer[filled..]) {
                0 => return filled,
                count => filled += count,
            }
        }
    }

    /// Reads without waiting; 0 if there is no output. All output that a process has written before
    /// is available.
    pub(super) fn read_now(&self, buffer: &mut [u8]) -> usize {
        self.master.get_ref().read(buffer).unwrap_or(0)
    }

    /// Writes as much input as fits, without waiting.
    pub(super) fn write_now(&self, bytes: &[u8]) -> usize {
        self.master.get_ref().write(bytes).unwrap_or(0)
    }

    /// Waits until the terminal accepts input, and writes. Cancel-safe.
    pub(super) async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let master = File::from(self.master.get_ref().as_fd().try_clone_to_owned()?);
        // SAFETY: as in `open`, of a file.
        let master = unsafe { AsyncFd::register_with_interest(master, Interest::WRITABLE) }?;
        loop {
            let mut ready = master.writable().await?;
            match ready.try_io(|master| master.get_ref().write(bytes)) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(result) => return result,
                Err(_would_block) => {}
            }
        }
    }

    /// Drops unread input, and restores the settings that `stty` and other programs have changed.
    pub(super) fn reset(&self) -> io::Result<()> {
        Ok(tcsetattr(
            self.master.get_ref(),
            SetArg::TCSAFLUSH,
            &self.settings.into(),
        )?)
    }

    /// Like [`Pty::reset`], but also disables echo, because the kernel may echo input after it was
    /// read.
    pub(super) fn reset_without_echo(&self) -> io::Result<()> {
        let mut settings = Termios::from(self.settings);
        settings.local_flags.remove(LocalFlags::ECHO);
        Ok(tcsetattr(
            self.master.get_ref(),
            SetArg::TCSAFLUSH,
            &settings,
        )?)
    }

    /// Makes the kernel process all input, and drops it. Otherwise a key could interrupt a later
    /// command.
    pub(super) fn settle(&self) {
        let _ = self.reset_without_echo();
        let mut options = OpenOptions::new();
        let flags = libc::O_NOCTTY | libc::O_NONBLOCK | libc::O_CLOEXEC;
        if let Ok(slave) = options
            .read(true)
            .custom_flags(flags)
            .open(&self.slave_path)
        {
            let _ = poll(
                &mut [PollFd::new(slave.as_fd(), PollFlags::POLLIN)],
                PollTimeout::ZERO,
            );
        }
    }

    /// Returns the process group that ^C would interrupt.
    pub(super) fn foreground_group(&self) -> Option<i32> {
        tcgetpgrp(self.master.get_ref())
            .ok()
            .map(nix::unistd::Pid::as_raw)
            .filter(|&group| group > 0)
    }
}

/// Returns how much of the data written to `socket` the peer has not read. A message counts until
/// it is read completely. 0 if the kernel does not support the query.
pub(super) fn unread(socket: &impl AsRawFd) -> usize {
    let mut bytes = 0;
    // SAFETY: the descriptor is open, and the kernel writes one number, which the pointer has room
    // for.
    match unsafe { unread_by_peer(socket.as_raw_fd(), &raw mut bytes) } {
        Ok(_) => usize::try_from(bytes).unwrap_or_default(),
        Err(_) => 0,
    }
}

/// Runs in the child. Standard input is the slave side.
fn enter_terminal<const N: usize>(inherited: [(RawFd, RawFd); N]) -> io::Result<()> {
    setsid()?;
    // SAFETY: descriptor 0 is the terminal; the argument 0 means not to steal one.
    unsafe { take_terminal(0, 0) }?;
    for each in Signal::iterator().filter(|each| !matches!(each, Signal::SIGKILL | Signal::SIGSTOP))
    {
        // SAFETY: the default disposition runs no handler.
        unsafe { signal(each, SigHandler::SigDfl) }?;
    }
    // All are moved first, because one may have the number of another's destination.
    let mut moved = inherited;
    for (file, _) in &mut moved {
        // SAFETY: plain descriptors of this process.
        *file = unsafe { libc::fcntl(*file, libc::F_DUPFD_CLOEXEC, MIN_MOVED_DESCRIPTOR) };
    }
    for (file, number) in moved {
        // SAFETY: both are plain descriptors of this process, and nothing in it owns the
        // destination.
        if unsafe { libc::dup2(file, number) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Closes the inherited descriptors on exec, except for the standard streams, so that commands do
/// not inherit them. No effect on kernels before 5.11.
pub(crate) fn close_inherited_files_on_exec() {
    // SAFETY: only sets close-on-exec on descriptors that this program has not opened.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            3,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
}

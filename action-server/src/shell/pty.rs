//! The terminal of one shell, and how a child enters it between fork and exec.
//!
//! Only the master side is held. The slave side is opened to start the shell and closed at once, so that the terminal
//! hangs up when the last process leaves it; that the shell itself ended is told by its exit, never by the terminal,
//! because a background job may hold it open. Dropping this hangs up.

// Between fork and exec the child has to make its session and terminal; the standard library leaves that to `pre_exec`.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use nix::fcntl::OFlag;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{PtyMaster, Winsize, posix_openpt, ptsname_r, unlockpt};
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::termios::{InputFlags, LocalFlags, OutputFlags, SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{setsid, tcgetpgrp};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::process::Command;

use super::program::Dialect;

nix::ioctl_write_ptr_bad!(set_window_size, libc::TIOCSWINSZ, Winsize);
nix::ioctl_write_int_bad!(take_terminal, libc::TIOCSCTTY);
nix::ioctl_read_bad!(unread_by_peer, libc::TIOCOUTQ, libc::c_int);

/// Wide enough that no program wraps or cuts its lines for us; as tall as a screen, for those that ask.
pub(super) const COLUMNS: u16 = 1000;
pub(super) const ROWS: u16 = 50;
const WINDOW: Winsize = window(COLUMNS, ROWS);

const fn window(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

/// After a read of so much there is likely more; after a shorter one, to look would cost each short answer a call.
pub(super) const FLOOD_BYTES: usize = 2 * 1024;

/// Above all numbers that a shell's descriptors get.
const OUT_OF_THE_WAY: RawFd = 256;

/// The master side.
pub(super) struct Pty {
    master: AsyncFd<PtyMaster>,
    slave_path: PathBuf,
    /// The kernel's type: nix's cannot be shared between threads.
    settings: libc::termios,
}

impl Pty {
    /// A new terminal, set as `dialect` needs it.
    ///
    /// # Errors
    /// No `/dev/ptmx`, no devpts mounted, or no terminal left.
    pub(super) fn open(dialect: Dialect) -> io::Result<Self> {
        Self::set_up(WINDOW, &|settings| {
            settings.output_flags.remove(OutputFlags::OPOST);
            settings.input_flags.remove(InputFlags::IXON);
            settings.local_flags.set(LocalFlags::ECHO, dialect == Dialect::Ash);
        })
    }

    /// A new terminal for a person, as the kernel makes them.
    ///
    /// # Errors
    /// As [`Pty::open`].
    pub(super) fn for_a_person(columns: u16, rows: u16) -> io::Result<Self> {
        Self::set_up(window(columns, rows), &|_| {})
    }

    fn set_up(size: Winsize, set: &dyn Fn(&mut Termios)) -> io::Result<Self> {
        let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let master = posix_openpt(flags)?;
        // No grantpt: devpts gives the slave to who opened the master, and older C libraries look up a group for it.
        unlockpt(&master)?;
        let slave_path = ptsname_r(&master)?.into();
        // SAFETY: the descriptor is open, and the kernel only reads the size behind the pointer.
        unsafe { set_window_size(master.as_raw_fd(), &size) }?;
        let mut settings = tcgetattr(&master)?;
        settings.input_flags.insert(InputFlags::IUTF8);
        set(&mut settings);
        tcsetattr(&master, SetArg::TCSANOW, &settings)?;
        // Only for reading: that the terminal has room again would wake us after each line that the shell reads.
        // SAFETY: a PtyMaster owns its descriptor and never changes it, so it stays open as long as it is registered.
        let master = unsafe { AsyncFd::register_with_interest(master, Interest::READABLE) }?;
        Ok(Self { master, slave_path, settings: settings.into() })
    }

    /// Gives it another size, and whoever is in front of it a SIGWINCH.
    pub(super) fn resize(&self, columns: u16, rows: u16) -> io::Result<()> {
        let size = window(columns, rows);
        // SAFETY: as in `set_up`.
        unsafe { set_window_size(self.master.get_ref().as_raw_fd(), &size) }?;
        Ok(())
    }

    /// Makes `command`, once started, the leader of a session of its own on this terminal, with `inherited` under the numbers
    /// given, and with every signal at its default: a server that was started with `nohup` or in the background ignores some,
    /// and a child that inherits that could not be interrupted.
    ///
    /// The caller keeps `inherited` open until `command` was started.
    pub(super) fn attach<const N: usize>(
        &self,
        command: &mut Command,
        inherited: [(Option<BorrowedFd<'_>>, RawFd); N],
    ) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let slave = options.read(true).write(true).custom_flags(libc::O_NOCTTY).open(&self.slave_path)?;
        command.stdin(slave.try_clone()?).stdout(slave.try_clone()?).stderr(slave);
        let inherited = inherited.map(|(file, number)| (file.map(|file| file.as_raw_fd()), number));
        // SAFETY: the closure runs between fork and exec and makes system calls only: no allocation, no lock, nothing
        // of the parent's. The descriptors are open then, because the caller keeps them.
        unsafe { command.pre_exec(move || enter_terminal(inherited)) };
        Ok(())
    }

    /// Waits for output, and takes all there is of a flood that has room. Cancel-safe. 0 means that no process has the
    /// terminal open any more.
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

    /// The end of the terminal shows again the next time.
    fn read_on(&self, buffer: &mut [u8], mut filled: usize) -> usize {
        loop {
            match self.read_now(&mut buffer[filled..]) {
                0 => return filled,
                count => filled += count,
            }
        }
    }

    /// What has been written to the terminal and not been read; 0 when there is nothing. Exact: the kernel hands over
    /// what a process wrote before it looks whether there is anything.
    pub(super) fn read_now(&self, buffer: &mut [u8]) -> usize {
        self.master.get_ref().read(buffer).unwrap_or(0)
    }

    /// Types at once what the terminal has room for.
    pub(super) fn write_now(&self, bytes: &[u8]) -> usize {
        self.master.get_ref().write(bytes).unwrap_or(0)
    }

    /// Waits until the terminal takes input. Cancel-safe.
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

    /// Drops what was typed and not read, and undoes what `stty` and dead programs did.
    pub(super) fn reset(&self) -> io::Result<()> {
        Ok(tcsetattr(self.master.get_ref(), SetArg::TCSAFLUSH, &self.settings.into())?)
    }

    /// As [`Pty::reset`], and what is typed then is not echoed: the kernel may do that after it was read.
    pub(super) fn reset_without_echo(&self) -> io::Result<()> {
        let mut settings = Termios::from(self.settings);
        settings.local_flags.remove(LocalFlags::ECHO);
        Ok(tcsetattr(self.master.get_ref(), SetArg::TCSAFLUSH, &settings)?)
    }

    /// Has the kernel act on what was typed, and drops it: the kernel does so later, and a key that interrupts would reach what
    /// runs then.
    pub(super) fn settle(&self) {
        let _ = self.reset_without_echo();
        let mut options = OpenOptions::new();
        let flags = libc::O_NOCTTY | libc::O_NONBLOCK | libc::O_CLOEXEC;
        if let Ok(slave) = options.read(true).custom_flags(flags).open(&self.slave_path) {
            let _ = poll(&mut [PollFd::new(slave.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO);
        }
    }

    /// The process group that ^C would reach.
    pub(super) fn foreground_group(&self) -> Option<i32> {
        tcgetpgrp(self.master.get_ref()).ok().map(nix::unistd::Pid::as_raw).filter(|&group| group > 0)
    }
}

/// How much of what was written to `socket` its other end has not read; each piece counts until it is read whole. 0 where the
/// kernel does not say.
pub(super) fn unread(socket: &impl AsRawFd) -> usize {
    let mut bytes = 0;
    // SAFETY: the descriptor is open, and the kernel writes one number, which the pointer has room for.
    match unsafe { unread_by_peer(socket.as_raw_fd(), &raw mut bytes) } {
        Ok(_) => usize::try_from(bytes).unwrap_or_default(),
        Err(_) => 0,
    }
}

/// Runs in the child. Standard input is the slave already.
fn enter_terminal<const N: usize>(inherited: [(Option<RawFd>, RawFd); N]) -> io::Result<()> {
    setsid()?;
    // SAFETY: descriptor 0 is the terminal; the argument 0 means not to steal one.
    unsafe { take_terminal(0, 0) }?;
    for each in Signal::iterator().filter(|each| !matches!(each, Signal::SIGKILL | Signal::SIGSTOP)) {
        // SAFETY: the default disposition is no function that could run.
        unsafe { signal(each, SigHandler::SigDfl) }?;
    }
    // First all out of the way: one may have the number that another is to get.
    let mut moved = inherited;
    for (file, _) in &mut moved {
        if let Some(file) = file {
            // SAFETY: plain descriptors of this process.
            *file = unsafe { libc::fcntl(*file, libc::F_DUPFD_CLOEXEC, OUT_OF_THE_WAY) };
        }
    }
    for (file, number) in moved {
        // SAFETY: both are plain descriptors of this process; nothing in it owns what has the number.
        if file.is_some_and(|file| unsafe { libc::dup2(file, number) } < 0) {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Keeps what this process has inherited from the programs that it starts, standard streams apart. Whoever started the
/// server may have left anything open. Kernels before 5.11 cannot; nothing is closed there.
pub(crate) fn close_inherited_files_on_exec() {
    // SAFETY: it only marks descriptors, none of which are ours yet, to be closed on exec.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

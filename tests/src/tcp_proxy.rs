//! A TCP proxy to a local port whose connections can be cut.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

type ReplyLimits = Box<dyn Iterator<Item = u64> + Send>;

/// A proxy that accepts connections until it is dropped.
pub struct TcpProxy {
    port: u16,
    target: Arc<AtomicU16>,
    refuses: Arc<AtomicBool>,
    /// Maximum numbers of bytes of the target in the next connections. Others have none.
    reply_limits: Arc<Mutex<ReplyLimits>>,
    connections: Arc<Mutex<Vec<JoinHandle<()>>>>,
    accepting: JoinHandle<()>,
}

impl TcpProxy {
    /// Starts a proxy that forwards to this port.
    pub async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap().port();
        let connections = Arc::new(Mutex::new(Vec::new()));
        let refuses = Arc::new(AtomicBool::new(false));
        let (made, is_refused) = (Arc::clone(&connections), Arc::clone(&refuses));
        let target = Arc::new(AtomicU16::new(port));
        let current = Arc::clone(&target);
        let none: ReplyLimits = Box::new(std::iter::empty());
        let reply_limits = Arc::new(Mutex::new(none));
        let limits = Arc::clone(&reply_limits);
        let accepting = tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                if is_refused.load(Ordering::SeqCst) {
                    continue;
                }
                let port = current.load(Ordering::SeqCst);
                let max = limits.lock().unwrap().next().unwrap_or(u64::MAX);
                let passing = tokio::spawn(async move {
                    let Ok(mut far) =
                        TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).await
                    else {
                        return;
                    };
                    let _ = (near.set_nodelay(true), far.set_nodelay(true));
                    let ((mut near_read, mut near_write), (far_read, mut far_write)) =
                        (near.split(), far.split());
                    let mut replies = far_read.take(max);
                    // Either side has ended, or the maximum is reached.
                    tokio::select! {
                        _ = tokio::io::copy(&mut replies, &mut near_write) => {}
                        _ = tokio::io::copy(&mut near_read, &mut far_write) => {}
                    }
                });
                made.lock().unwrap().push(passing);
            }
        });
        Self {
            port: own,
            target,
            refuses,
            reply_limits,
            connections,
            accepting,
        }
    }

    /// Returns the proxy's port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Forwards new connections to another port, such as of a server that was restarted.
    pub fn retarget(&self, port: u16) {
        self.target.store(port, Ordering::SeqCst);
    }

    /// Closes each of the next connections after a number of bytes of the target.
    pub fn limit_replies(&self, limits: impl Iterator<Item = u64> + Send + 'static) {
        *self.reply_limits.lock().unwrap() = Box::new(limits);
    }

    /// Closes all current connections, and each new one until it is called with `false`.
    pub fn refuse(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::SeqCst);
        self.cut();
    }

    /// Cuts all current connections and returns their number.
    pub fn cut(&self) -> usize {
        let cut: Vec<JoinHandle<()>> = self.connections.lock().unwrap().drain(..).collect();
        let open: Vec<&JoinHandle<()>> = cut
            .iter()
            .filter(|connection| !connection.is_finished())
            .collect();
        open.iter().for_each(|connection| connection.abort());
        open.len()
    }
}

impl Drop for TcpProxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

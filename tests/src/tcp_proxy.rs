//! A TCP proxy to a local port whose connections can be cut.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A proxy that accepts connections until it is dropped.
pub struct TcpProxy {
    port: u16,
    refuses: Arc<AtomicBool>,
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
        let accepting = tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                if is_refused.load(Ordering::SeqCst) {
                    continue;
                }
                let passing = tokio::spawn(async move {
                    let Ok(mut far) =
                        TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).await
                    else {
                        return;
                    };
                    let _ = (near.set_nodelay(true), far.set_nodelay(true));
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await; // either side has ended
                });
                made.lock().unwrap().push(passing);
            }
        });
        Self {
            port: own,
            refuses,
            connections,
            accepting,
        }
    }

    /// Returns the proxy's port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
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

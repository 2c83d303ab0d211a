//! The part of a fake API server that listens: it can end and begin again where it was, and has a
//! folder with a kubeconfig that leads to it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread::JoinHandle;

use axum::Router;
use tokio::sync::oneshot;

use crate::config::Credentials;

/// The token that a fake server takes until a test says otherwise.
pub(crate) const TOKEN: &str = "first-token";

/// A server on loopback; it ends with this.
pub(crate) struct FakeServer {
    dir: tempfile::TempDir,
    address: SocketAddr,
    router: Router,
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl FakeServer {
    /// Starts it, with a kubeconfig that carries [`TOKEN`].
    pub(crate) fn start(router: Router) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let address = "127.0.0.1:0".parse().unwrap();
        let mut server = Self { dir, address, router, running: None };
        server.resume();
        server.write_kubeconfig(TOKEN);
        server
    }

    /// Ends it and every connection to it.
    pub(crate) fn stop(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            drop(stop);
            thread.join().unwrap();
        }
    }

    /// Starts it again where it was.
    pub(crate) fn resume(&mut self) {
        let socket = std::net::TcpListener::bind(self.address).unwrap();
        self.address = socket.local_addr().unwrap();
        socket.set_nonblocking(true).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let router = self.router.clone();
        // A runtime of its own, so that its end is the end of its connections.
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async move {
                let listener = tokio::net::TcpListener::from_std(socket).unwrap();
                tokio::select! {
                    served = axum::serve(listener, router) => served.unwrap(),
                    _ = stopped => {}
                }
            });
        });
        self.running = Some((stop, thread));
    }

    /// Where its kubeconfig lies.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    /// Writes the kubeconfig, in place of the one before by a rename.
    pub(crate) fn write_kubeconfig(&self, token: &str) {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: k, cluster: {{server: \"http://{}\"}}}}]\n\
             users: [{{name: u, user: {{token: {token}}}}}]\n\
             contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n",
            self.address
        );
        let next = self.dir.path().join("next");
        std::fs::write(&next, text).unwrap();
        std::fs::rename(next, self.kubeconfig()).unwrap();
    }

    /// The credential that its kubeconfig is.
    pub(crate) fn credentials(&self) -> Credentials {
        Credentials::Kubeconfig(vec![self.kubeconfig()])
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.stop();
    }
}

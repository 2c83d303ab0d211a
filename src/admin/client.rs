//! The other end of the admin socket, for the command line.
//!
//! It speaks HTTP/1.0: the server then ends each answer with the connection, so that an answer is
//! read to its end and a stream line by line, without an HTTP library.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::socket::{COMMAND_ANSWER_TIMEOUT, Refusal};

/// The agent answers a read at once and a command within [`COMMAND_ANSWER_TIMEOUT`].
const ANSWER_TIMEOUT: Duration =
    Duration::from_secs(COMMAND_ANSWER_TIMEOUT.as_secs().saturating_add(5));

/// A history of fifty attempts has some tens of kB.
const ANSWER_BYTES_MAX: u64 = 4 << 20;

/// A head of ours has less than ten lines.
const HEAD_LINES_MAX: usize = 64;

/// Speaks to the agent of this host.
#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
}

/// Why the agent could not be spoken to.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// There is no socket.
    #[error(
        "the agent does not run: there is no {}; see `systemctl status lockkeeper`",
        socket.display()
    )]
    NoSocket {
        /// The socket.
        socket: PathBuf,
    },
    /// A socket lies there and nobody listens.
    #[error(
        "the agent does not run: nobody listens on {}; see `systemctl status lockkeeper`",
        socket.display()
    )]
    NobodyListens {
        /// The socket.
        socket: PathBuf,
    },
    /// The caller may not open the socket.
    #[error("{} may be used by root only; try again with sudo", socket.display())]
    NotRoot {
        /// The socket.
        socket: PathBuf,
    },
    /// The agent said no, in its own words.
    #[error("{0}")]
    Refused(String),
    /// No answer in time.
    #[error("the agent did not answer within {} s", ANSWER_TIMEOUT.as_secs())]
    Timeout,
    /// The connection broke.
    #[error("the connection to the agent broke")]
    Io(#[source] io::Error),
    /// What came is no answer of an agent of this kind.
    #[error("the answer of the agent cannot be read: {0}")]
    NoAnswer(String),
}

// === impl Client ===

impl Client {
    /// Speaks to the agent whose sockets are in `run_dir`.
    pub fn new(run_dir: &Path) -> Self {
        Self { socket: run_dir.join(super::SOCKET_NAME) }
    }

    /// Reads what `path` says.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let answer = self.whole("GET", path, "").await?;
        serde_json::from_str(&answer).map_err(|error| ClientError::NoAnswer(error.to_string()))
    }

    /// Gives a command.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn post<T: Serialize + Sync>(
        &self,
        path: &str,
        body: &T,
    ) -> Result<String, ClientError> {
        let body = serde_json::to_string(body)
            .map_err(|error| ClientError::NoAnswer(error.to_string()))?;
        self.whole("POST", path, &body).await
    }

    /// Follows `path`: one line for each change, until the agent ends.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn follow(
        &self,
        path: &str,
    ) -> Result<Lines<impl AsyncBufRead + Unpin + use<>>, ClientError> {
        let (_, reader) = bounded(self.ask("GET", path, "")).await?;
        Ok(reader.lines())
    }

    async fn whole(&self, method: &str, path: &str, body: &str) -> Result<String, ClientError> {
        bounded(async {
            let (_, reader) = self.ask(method, path, body).await?;
            rest(reader).await
        })
        .await
    }

    /// Sends the request and reads the head; anything but 2xx is an error with the agent's words.
    async fn ask(
        &self,
        method: &str,
        path: &str,
        body: &str,
    ) -> Result<(u16, BufReader<UnixStream>), ClientError> {
        let mut stream =
            UnixStream::connect(&self.socket).await.map_err(|error| self.unreachable(error))?;
        let request = format!(
            "{method} {path} HTTP/1.0\r\nHost: agent\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.map_err(ClientError::Io)?;
        let mut reader = BufReader::new(stream);
        let code = head(&mut reader).await?;
        if (200..300).contains(&code) {
            return Ok((code, reader));
        }
        let text = rest(reader).await?;
        let refusal = serde_json::from_str::<Refusal>(&text).map(|refusal| refusal.error);
        Err(ClientError::Refused(refusal.unwrap_or_else(|_| format!("the agent answers {code}"))))
    }

    fn unreachable(&self, error: io::Error) -> ClientError {
        let socket = self.socket.clone();
        if error.kind() == io::ErrorKind::NotFound {
            ClientError::NoSocket { socket }
        } else if error.kind() == io::ErrorKind::ConnectionRefused {
            ClientError::NobodyListens { socket }
        } else if error.kind() == io::ErrorKind::PermissionDenied {
            ClientError::NotRoot { socket }
        } else {
            ClientError::Io(error)
        }
    }
}

async fn bounded<T>(work: impl Future<Output = Result<T, ClientError>>) -> Result<T, ClientError> {
    timeout(ANSWER_TIMEOUT, work).await.unwrap_or(Err(ClientError::Timeout))
}

/// Reads status line and headers; gives the status.
async fn head(reader: &mut (impl AsyncBufRead + Unpin)) -> Result<u16, ClientError> {
    let mut head = reader.take(ANSWER_BYTES_MAX);
    let mut line = String::new();
    head.read_line(&mut line).await.map_err(ClientError::Io)?;
    let code = line.split(' ').nth(1).and_then(|code| code.parse().ok());
    let Some(code) = code.filter(|_| line.starts_with("HTTP/1.")) else {
        let line: String = line.trim_end().chars().take(64).collect();
        return Err(ClientError::NoAnswer(format!("expected an HTTP status line, found {line:?}")));
    };
    for _ in 0..HEAD_LINES_MAX {
        line.clear();
        head.read_line(&mut line).await.map_err(ClientError::Io)?;
        if line.trim_end().is_empty() {
            return Ok(code);
        }
    }
    Err(ClientError::NoAnswer("its head does not end".to_owned()))
}

async fn rest(reader: impl AsyncBufRead + Unpin) -> Result<String, ClientError> {
    let mut text = String::new();
    reader.take(ANSWER_BYTES_MAX).read_to_string(&mut text).await.map_err(ClientError::Io)?;
    Ok(text)
}

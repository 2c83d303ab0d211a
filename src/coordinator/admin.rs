//! The coordinator's door for its administrator: a unix socket of root's.
//!
//! One line of JSON each way a connection.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use crate::fleetlock::Operation;

use super::desk::Desk;
use super::slots::{Ask, Claim, Decision, Holder, Policies};

/// Name of the socket in the run folder.
const SOCKET: &str = "coordinator.sock";
/// Longer than any question.
const QUESTION_BYTES_MAX: u64 = 4096;
/// As long as the store's file may be.
const ANSWER_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// How long one conversation may take, a slow disk included.
const WITHIN: Duration = Duration::from_secs(30);
/// How long to wait after a connection could not be accepted.
const ACCEPT_RETRY: Duration = Duration::from_millis(500);

/// What can be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Question {
    /// Who holds what.
    List,
    /// Take a slot away from its holder.
    Release {
        /// The group.
        group: String,
        /// The holder's id.
        id: String,
    },
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// All groups, by name.
    Listed(Vec<ListedGroup>),
    /// It held a slot until now.
    Released(Holder),
    /// It holds none.
    NotHeld,
    /// Not done, and why.
    Failed(String),
}

/// A group as it is listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedGroup {
    /// Its name.
    pub group: String,
    /// Its slots; `None` if it is no longer configured.
    pub slots: Option<u32>,
    /// Who holds them, oldest first.
    pub holders: Vec<Holder>,
}

/// Why the door does not open, or nobody answers at it.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// Another coordinator answers at this socket.
    #[error("{0}: another coordinator answers at this socket")]
    InUse(PathBuf),
    /// A file operation failed.
    #[error("{file}: {doing}")]
    File {
        /// The file.
        file: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The answer is none.
    #[error("{file}: expected an answer of the coordinator: {because}")]
    NotAnAnswer {
        /// The socket.
        file: PathBuf,
        /// What came instead.
        because: String,
    },
    /// No answer came in time.
    #[error("{0}: no answer within {seconds} s", seconds = WITHIN.as_secs())]
    NoAnswer(PathBuf),
}

/// The socket in a run folder.
pub fn socket(run_dir: &Path) -> PathBuf {
    run_dir.join(SOCKET)
}

/// Opens the door. A socket that a killed coordinator left is replaced.
///
/// # Errors
/// Somebody else answers at it, or the file system refuses.
pub async fn bind(run_dir: &Path) -> Result<UnixListener, AdminError> {
    let file = socket(run_dir);
    let failed = |doing| {
        let file = file.clone();
        move |source| AdminError::File { file, doing, source }
    };
    fs::create_dir_all(run_dir).map_err(failed("making its folder"))?;
    if UnixStream::connect(&file).await.is_ok() {
        return Err(AdminError::InUse(file));
    }
    match fs::remove_file(&file) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            return Err(failed("removing the one left over")(e));
        }
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(&file).map_err(failed("binding it"))?;
    // Until this is done the peer's user is the only guard; it is checked for everyone.
    fs::set_permissions(&file, Permissions::from_mode(0o600)).map_err(failed("guarding it"))?;
    Ok(listener)
}

/// Answers at the door, one after the other, for ever.
pub async fn serve(listener: UnixListener, desk: Desk, policies: Policies) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let talk = timeout(WITHIN, converse(stream, &desk, &policies)).await;
                if let Ok(Err(error)) = talk {
                    tracing::debug!(%error, "a conversation at the admin socket broke off");
                }
            }
            Err(error) => {
                tracing::warn!(%error, "the admin socket cannot accept");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// Asks the coordinator behind a run folder's socket.
///
/// # Errors
/// There is none, it does not let this user in, or it does not answer.
pub async fn ask(run_dir: &Path, question: &Question) -> Result<Answer, AdminError> {
    let file = socket(run_dir);
    match timeout(WITHIN, ask_at(&file, question)).await {
        Ok(answer) => answer,
        Err(_) => Err(AdminError::NoAnswer(file)),
    }
}

async fn ask_at(file: &Path, question: &Question) -> Result<Answer, AdminError> {
    let failed = |doing| move |source| AdminError::File { file: file.to_owned(), doing, source };
    let not_an_answer =
        |because: String| AdminError::NotAnAnswer { file: file.to_owned(), because };
    let mut line = serde_json::to_vec(question).map_err(|e| not_an_answer(e.to_string()))?;
    line.push(b'\n');
    let mut stream = UnixStream::connect(file).await.map_err(failed("connecting"))?;
    stream.write_all(&line).await.map_err(failed("asking"))?;
    let mut answer = String::new();
    let mut reader = BufReader::new(stream).take(ANSWER_BYTES_MAX);
    reader.read_line(&mut answer).await.map_err(failed("reading the answer"))?;
    if answer.is_empty() {
        return Err(not_an_answer("it closed the connection".to_owned()));
    }
    serde_json::from_str(&answer).map_err(|e| not_an_answer(e.to_string()))
}

async fn converse(stream: UnixStream, desk: &Desk, policies: &Policies) -> io::Result<()> {
    let user = stream.peer_cred()?.uid();
    let mut stream = BufReader::new(stream);
    let answer = if may_enter(user) {
        let mut line = String::new();
        (&mut stream).take(QUESTION_BYTES_MAX).read_line(&mut line).await?;
        match serde_json::from_str(&line) {
            Ok(question) => reply(question, desk, policies, user).await,
            Err(error) => Answer::Failed(format!("no question of ours: {error}")),
        }
    } else {
        tracing::warn!(user, "a user without the right knocked at the admin socket");
        Answer::Failed(format!("only root may ask here, not user {user}"))
    };
    let mut line = serde_json::to_vec(&answer)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    stream.shutdown().await
}

/// Root, and the user whose coordinator it is.
fn may_enter(user: u32) -> bool {
    user == 0 || user == nix::unistd::geteuid().as_raw()
}

async fn reply(question: Question, desk: &Desk, policies: &Policies, user: u32) -> Answer {
    match question {
        Question::List => Answer::Listed(list(desk, policies)),
        Question::Release { group, id } => {
            let operation = Operation::SteadyState;
            let ask = Ask { group, id, operation, claim: Claim::default() };
            let answer = match desk.ask(ask.clone()).await {
                Ok(Decision::Released { holder }) => Answer::Released(holder),
                Ok(Decision::UnknownGroup) => {
                    Answer::Failed(format!("there is no group {:?}", ask.group))
                }
                Ok(
                    Decision::NotHeld
                    | Decision::NotTheirs { .. }
                    | Decision::Granted { .. }
                    | Decision::Full { .. }
                    | Decision::OtherAttempt { .. },
                ) => Answer::NotHeld,
                Err(error) => Answer::Failed(error.to_string()),
            };
            let (group, id) = (ask.group.as_str(), ask.id.as_str());
            match &answer {
                Answer::Released(holder) => {
                    let (since, attempt) = (holder.since, holder.claim.attempt.as_deref());
                    tracing::warn!(
                        group, id, user, %since, attempt,
                        "{user} released the slot of {id} in group {group}, held since {since}"
                    );
                }
                Answer::NotHeld => {
                    tracing::info!(group, id, user, "no slot to release by hand: {id} holds none");
                }
                Answer::Failed(why) => {
                    tracing::warn!(group, id, user, "slot not released by hand: {why}");
                }
                Answer::Listed(_) => {}
            }
            answer
        }
    }
}

fn list(desk: &Desk, policies: &Policies) -> Vec<ListedGroup> {
    let view = desk.view();
    let mut names: Vec<&String> = policies.keys().chain(view.slots.groups.keys()).collect();
    names.sort_unstable();
    names.dedup();
    names
        .into_iter()
        .map(|name| ListedGroup {
            group: name.clone(),
            slots: policies.get(name).map(|policy| policy.slots),
            holders: view.slots.groups.get(name).map(|g| g.holders.clone()).unwrap_or_default(),
        })
        .filter(|listed| listed.slots.is_some() || !listed.holders.is_empty())
        .collect()
}

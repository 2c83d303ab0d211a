//! `FinalizeDeployment`: the call, the transaction on its own socket, and what its end means.

use std::collections::HashMap;
use std::time::Duration;

use futures::StreamExt;
use zbus::{Connection, Message, MessageStream, Variant};

use super::{BUSY_TRIES, REST, Staged, os_interface};
use crate::fleetlock::clean_value;
use crate::lifecycle::RebootAnswer;
use crate::model::AttemptId;
use crate::signals::bus::{BusError, CALL_TIMEOUT, Link, build, one_line};

/// How long connecting to a transaction's socket may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the transaction may take: it unlocks one file and queues the reboot.
const FINALIZE_TIMEOUT: Duration = Duration::from_secs(300);

/// Texts after which rpm-ostreed has changed nothing: all its checks come before the unlocking.
const CHANGED_NOTHING: [&str; 9] = [
    "No pending staged deployment found",
    "Missing expected checksum",
    "Expected staged base checksum",
    "Reboot blocked by a systemd inhibitor lock",
    "Staged deployment already unlocked",
    "Pending deployment is not staged",
    "Transaction in progress",
    "System transaction in progress",
    "cancelling",
];

/// Text with which a daemon that has already queued a reboot refuses everything else.
const REBOOT_QUEUED: &str = "Reboot initiated";

/// "Transaction in progress" and "System transaction in progress".
const IN_PROGRESS: &str = "ransaction in progress";

const TRANSACTION: &str = "org.projectatomic.rpmostree1.Transaction";

/// How one transaction ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    /// `Finished(true)`: unlocked, and the reboot is queued.
    Finished,
    /// It said why not.
    Failed(String),
    /// It was never begun.
    NotBegun(String),
    /// It may have done anything.
    Unknown(String),
}

/// Finalizes what is staged. If the daemon calls it by another of its names, that one is taken.
pub(super) async fn finalize(link: &Link, staged: &Staged, attempt: &AttemptId) -> RebootAnswer {
    let mut end = patiently(link, staged, &staged.identity, attempt).await;
    if let End::Failed(text) | End::NotBegun(text) = &end
        && let Some(name) = found_name(text)
        && name != staged.identity
        && staged.entry.is_called(name)
    {
        tracing::info!(name, "the daemon calls the deployment by another name");
        end = patiently(link, staged, name, attempt).await;
    }
    match end {
        End::Finished => RebootAnswer::Accepted,
        End::NotBegun(text) if text.contains(REBOOT_QUEUED) => RebootAnswer::Unknown(text),
        End::NotBegun(text) => RebootAnswer::Refused(text),
        End::Failed(text) if CHANGED_NOTHING.iter().any(|known| text.contains(known)) => {
            RebootAnswer::Refused(text)
        }
        End::Failed(text) | End::Unknown(text) => RebootAnswer::Unknown(text),
    }
}

/// As [`transaction`], behind the one that is under way: the last one of ours is so until the daemon
/// has noticed that we hung up.
async fn patiently(link: &Link, staged: &Staged, name: &str, attempt: &AttemptId) -> End {
    let mut tries = 0;
    loop {
        tries += 1;
        match transaction(link, staged, name, attempt).await {
            End::NotBegun(text) if text.contains(IN_PROGRESS) && tries < BUSY_TRIES => {
                tokio::time::sleep(REST).await;
            }
            end @ (End::NotBegun(_) | End::Finished | End::Failed(_) | End::Unknown(_)) => {
                return end;
            }
        }
    }
}

/// The name in "Expected staged base checksum X, but found Y".
fn found_name(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("but found ")?;
    rest.split_whitespace()
        .next()
        .map(|word| word.trim_matches(['\'', '"', '`', '.', ',', '‘', '’']))
}

async fn transaction(link: &Link, staged: &Staged, name: &str, attempt: &AttemptId) -> End {
    let command_line = format!("lockkeeper agent (attempt {attempt})");
    let options = HashMap::from([
        ("checksum", Variant::from(name)),
        // The lock cannot be read reliably, and a deployment that is unlocked could otherwise never
        // be finalized. That it is the one we mean is said by its checksum.
        ("allow-unlocked", Variant::from(true)),
        ("initiating-command-line", Variant::from(command_line)),
    ]);
    let os = os_interface(&staged.os);
    let address: String = match link.call(os, "FinalizeDeployment", &options).await {
        Ok(address) => address,
        // Without `Start` nothing happens: the daemon drops the transaction with our connection.
        Err(error) => return End::NotBegun(error.words().unwrap_or_else(|| error.text())),
    };
    // Another kind of address may lead to another machine.
    if !address.starts_with("unix:") || address.contains(';') {
        let found = clean_value(&address);
        return End::NotBegun(format!("the transaction: expected a local socket, found {found:?}"));
    }
    let builder = zbus::connection::Builder::address(address.as_str()).p2p();
    let peer = match tokio::time::timeout(CONNECT_TIMEOUT, build(builder)).await {
        Ok(Ok(peer)) => peer,
        Ok(Err(error)) => return End::NotBegun(format!("the transaction: {}", one_line(&error))),
        Err(_) => return End::NotBegun("the transaction does not answer".to_owned()),
    };
    let end = match tokio::time::timeout(FINALIZE_TIMEOUT, drive(&peer)).await {
        Ok(end) => end,
        Err(_) => End::Unknown("the transaction does not end".to_owned()),
    };
    // The daemon waits for its peers to go before it is idle again.
    let _ = tokio::time::timeout(CALL_TIMEOUT, peer.close()).await;
    end
}

/// Starts the transaction and waits for its end. It is listened to first, since it may end at once.
async fn drive(peer: &Connection) -> End {
    let mut messages = MessageStream::from(peer.clone());
    let start = async {
        let call = peer.call_method(None::<&str>, "/", Some(TRANSACTION), "Start", &());
        match tokio::time::timeout(CALL_TIMEOUT, call).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(source)) => Err(BusError::Call {
                service: "transaction".to_owned(),
                member: "Start".to_owned(),
                source,
            }),
            Err(_) => Err(BusError::TimedOut {
                service: "transaction".to_owned(),
                member: "Start".to_owned(),
                after: CALL_TIMEOUT,
            }),
        }
    };
    tokio::pin!(start);
    let mut started = false;
    loop {
        tokio::select! {
            // What was said before the connection broke comes first.
            biased;
            message = messages.next() => match message {
                Some(Ok(message)) => {
                    if let Some(end) = finished(&message) {
                        return end;
                    }
                }
                Some(Err(error)) => return End::Unknown(one_line(&error)),
                None => return End::Unknown("the transaction's connection was closed".to_owned()),
            },
            answer = &mut start, if !started => match answer {
                Ok(()) => started = true,
                Err(error) => return End::Unknown(error.text()),
            },
        }
    }
}

/// What a message of the transaction says about its end, if it does.
fn finished(message: &Message) -> Option<End> {
    let header = message.header();
    if message.message_type() != zbus::message::Type::Signal
        || header.interface().is_none_or(|interface| interface.as_str() != TRANSACTION)
        || header.member().is_none_or(|member| member.as_str() != "Finished")
    {
        return None;
    }
    let body = message.body();
    Some(match body.deserialize::<(bool, String)>() {
        Ok((true, _)) => End::Finished,
        Ok((false, text)) => End::Failed(clean_value(&text)),
        Err(error) => End::Unknown(format!("Finished: {}", one_line(&error))),
    })
}

#[cfg(test)]
mod tests {
    use super::found_name;

    #[test]
    fn the_name_that_was_found() {
        for (text, name) in [
            ("Expected staged base checksum abc, but found def", Some("def")),
            ("Expected staged base checksum a, but found sha256:12.", Some("sha256:12")),
            ("Expected staged base checksum a, but found 'b'", Some("b")),
            ("Expected staged base checksum a, but found ", None),
            ("No pending staged deployment found", None),
            ("", None),
        ] {
            assert_eq!(found_name(text), name, "{text:?}");
        }
    }
}

//! logind: whether the host goes down, and what a gate looks at.

#[cfg(test)]
mod noise;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use futures::StreamExt;
use tokio::sync::mpsc::Sender;
use tokio::time::{Sleep, sleep};
use zbus::{Message, MessageStream, OwnedVariant};

use crate::lifecycle::Event;
use crate::signals::bus::retry::Retry;
use crate::signals::bus::{Bus, BusError, Link, Object, owner};
use crate::signals::if_any;

/// logind's manager object.
pub(crate) const MANAGER: Object<'static> = Object {
    service: "org.freedesktop.login1",
    path: "/org/freedesktop/login1",
    interface: "org.freedesktop.login1.Manager",
};

/// A login is several signals; the gates are looked at once for all of them.
const GATHER: Duration = Duration::from_millis(500);

const RULES: [&str; 5] = [
    "type='signal',sender='org.freedesktop.login1',path='/org/freedesktop/login1',\
     interface='org.freedesktop.login1.Manager',member='PrepareForShutdown'",
    "type='signal',sender='org.freedesktop.login1',path='/org/freedesktop/login1',\
     interface='org.freedesktop.login1.Manager',member='SessionNew'",
    "type='signal',sender='org.freedesktop.login1',path='/org/freedesktop/login1',\
     interface='org.freedesktop.login1.Manager',member='SessionRemoved'",
    "type='signal',sender='org.freedesktop.login1',path='/org/freedesktop/login1',\
     interface='org.freedesktop.DBus.Properties',member='PropertiesChanged',\
     arg0='org.freedesktop.login1.Manager'",
    "type='signal',sender='org.freedesktop.DBus',interface='org.freedesktop.DBus',\
     member='NameOwnerChanged',arg0='org.freedesktop.login1'",
];

/// What a message means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hint {
    None,
    Preparing(bool),
    HostChanged,
    OwnerCame,
}

type Asked = Pin<Box<dyn Future<Output = Result<bool, BusError>> + Send>>;

/// Tells `PreparingForShutdown` at the start, after logind came back and when it changes, and that
/// an inhibitor or a session came or went. Returns only when nobody listens any more.
pub async fn watch(bus: Bus, events: Sender<Event>) {
    let mut retry = Retry::default();
    let mut told: Option<String> = None;
    let mut going_down = false;
    loop {
        let end = tokio::select! {
            () = events.closed() => return,
            end = session(&bus, &events, &mut retry, &mut told, &mut going_down) => end,
        };
        let Err(error) = end;
        if going_down {
            // The bus goes down with the host, often before us: no news.
            tracing::debug!(error = error.text(), "logind went away");
        } else {
            tell(&error, &mut told);
        }
        let rest = retry.failed();
        tokio::select! {
            () = events.closed() => return,
            () = sleep(rest) => {}
        }
    }
}

/// Whether the host goes down now.
///
/// # Errors
/// logind does not answer.
pub(crate) async fn preparing_for_shutdown(link: &Link) -> Result<bool, BusError> {
    link.boolean(MANAGER, "PreparingForShutdown").await
}

/// One connection's life.
async fn session(
    bus: &Bus,
    events: &Sender<Event>,
    retry: &mut Retry,
    told: &mut Option<String>,
    going_down: &mut bool,
) -> Result<Infallible, BusError> {
    let link = bus.connect().await?;
    let mut messages = MessageStream::from(link.connection.clone());
    for rule in RULES {
        link.add_match(rule).await?;
    }
    let mut owner = link.owner_of(MANAGER.service).await?;
    // What happened before this connection was not seen.
    let mut gather: Option<Pin<Box<Sleep>>> = Some(Box::pin(sleep(Duration::ZERO)));
    let mut asked: Option<Asked> = Some(ask(&link));
    loop {
        tokio::select! {
            message = messages.next() => {
                let Some(Ok(message)) = message else { return Err(BusError::Closed) };
                match understand(&message, &mut owner) {
                    Hint::None => {}
                    Hint::Preparing(going) => {
                        // The signal is newer than an answer that is still under way.
                        asked = None;
                        *going_down = going;
                        let _ = events.send(Event::PreparingForShutdown(going)).await;
                    }
                    Hint::HostChanged => {
                        gather.get_or_insert_with(|| Box::pin(sleep(GATHER)));
                    }
                    Hint::OwnerCame => {
                        asked = Some(ask(&link));
                        gather.get_or_insert_with(|| Box::pin(sleep(GATHER)));
                    }
                }
            }
            () = if_any(&mut gather) => {
                gather = None;
                let _ = events.send(Event::HostChanged).await;
            }
            answer = if_any(&mut asked) => {
                asked = None;
                match answer {
                    Ok(going) => {
                        retry.succeeded();
                        if told.take().is_some() {
                            tracing::info!("logind answers again");
                        }
                        *going_down = going;
                        let _ = events.send(Event::PreparingForShutdown(going)).await;
                    }
                    // Nobody to ask, and nobody can be started: its coming will be seen.
                    Err(error) if error.is_absent() => tell(&error, told),
                    Err(error) => return Err(error),
                }
            }
        }
    }
}

fn tell(error: &BusError, told: &mut Option<String>) {
    let text = error.text();
    if told.as_ref() != Some(&text) {
        tracing::warn!(error = text, "logind cannot be watched: {text}");
        *told = Some(text);
    }
}

fn ask(link: &Link) -> Asked {
    let link = link.clone();
    Box::pin(async move { preparing_for_shutdown(&link).await })
}

/// Only the bus names an owner, and only the owner is believed.
fn understand(message: &Message, owner: &mut Option<String>) -> Hint {
    if message.message_type() != zbus::message::Type::Signal {
        return Hint::None;
    }
    if owner::changed(message, MANAGER.service, owner) {
        return if owner.is_some() { Hint::OwnerCame } else { Hint::None };
    }
    let header = message.header();
    let (Some(sender), Some(interface), Some(member)) =
        (header.sender(), header.interface(), header.member())
    else {
        return Hint::None;
    };
    let body = message.body();
    if owner.as_deref() != Some(sender.as_str()) {
        return Hint::None;
    }
    match (interface.as_str(), member.as_str()) {
        ("org.freedesktop.login1.Manager", "PrepareForShutdown") => {
            body.deserialize::<bool>().map_or(Hint::None, Hint::Preparing)
        }
        ("org.freedesktop.login1.Manager", "SessionNew" | "SessionRemoved") => Hint::HostChanged,
        ("org.freedesktop.DBus.Properties", "PropertiesChanged") => {
            let parsed: zbus::Result<(String, HashMap<String, OwnedVariant>, Vec<String>)> =
                body.deserialize();
            match parsed {
                Ok((_, changed, invalidated))
                    if changed.contains_key("BlockInhibited")
                        || invalidated.iter().any(|name| name == "BlockInhibited") =>
                {
                    Hint::HostChanged
                }
                Ok(_) | Err(_) => Hint::None,
            }
        }
        _ => Hint::None,
    }
}

//! A service of a test's own that answers as it is told, oddly too.

#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};

use futures::StreamExt;
use serde::Serialize;
use zbus::{Connection, DynamicType, Message, MessageStream, Variant};

use super::Bus;

/// What is said to a call; `None`: nothing, for ever.
pub(crate) type Answer = Option<Message>;

/// A service on a bus until it is dropped.
#[derive(Debug)]
pub(crate) struct Fake {
    pub(crate) connection: Connection,
    calls: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Fake {
    /// Takes a name and answers calls. A property's read arrives as `Get:NAME`.
    pub(crate) async fn serve(
        bus: &Bus,
        name: &'static str,
        mut answer: impl FnMut(&str, &Message) -> Answer + Send + 'static,
    ) -> Self {
        let connection = bus.connect().await.unwrap().connection;
        let mut messages = MessageStream::from(connection.clone());
        let calls: Arc<Mutex<Vec<String>>> = Arc::default();
        let task = tokio::spawn({
            let (connection, calls) = (connection.clone(), calls.clone());
            async move {
                while let Some(Ok(message)) = messages.next().await {
                    if message.message_type() != zbus::message::Type::MethodCall {
                        continue;
                    }
                    let called = called(&message);
                    calls.lock().unwrap().push(called.clone());
                    if let Some(reply) = answer(&called, &message) {
                        let _ = connection.send(&reply).await;
                    }
                }
            }
        });
        connection.request_name(name).await.unwrap();
        Self { connection, calls, task }
    }

    /// How often something was called.
    pub(crate) fn count(&self, called: &str) -> usize {
        self.calls.lock().unwrap().iter().filter(|call| *call == called).count()
    }

    /// Everything that was called.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }

    /// Sends a signal to all, or straight to one.
    pub(crate) async fn signal<B: Serialize + DynamicType>(
        &self,
        to: Option<&str>,
        path: &str,
        interface: &str,
        member: &str,
        body: &B,
    ) {
        self.connection.emit_signal(to, path, interface, member, body).await.unwrap();
    }

    /// Leaves the bus.
    pub(crate) async fn leave(self) {
        self.task.abort();
        let _ = self.connection.clone().close().await;
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn called(message: &Message) -> String {
    let header = message.header();
    let member = header.member().unwrap().to_string();
    if member != "Get" {
        return member;
    }
    let body = message.body();
    let (_, name): (String, String) = body.deserialize().unwrap();
    format!("Get:{name}")
}

/// An answer.
pub(crate) fn reply<B: Serialize + DynamicType>(call: &Message, body: &B) -> Answer {
    Some(Message::method_return(&call.header()).build(body).unwrap())
}

/// A property's value.
pub(crate) fn value<'a>(call: &Message, value: impl Into<Variant<'a>>) -> Answer {
    reply(call, &value.into())
}

/// An error.
pub(crate) fn error(call: &Message, name: &'static str, text: &str) -> Answer {
    Some(Message::error(&call.header(), name).build(&text).unwrap())
}

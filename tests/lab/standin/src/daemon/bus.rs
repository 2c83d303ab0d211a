//! Calls on the system bus and their answers.

use std::collections::{BTreeMap, HashMap};

use anyhow::Result;
use zbus::Connection;
use zbus::message::{Message, Type};
use zbus::wire::{ObjectPath, OwnedVariant, Variant};

use crate::dictionary::{self, Table};
use crate::faults::{Faults, Kind};
use crate::paths::OSNAME;

use super::Daemon;
use super::execute::{Options, Work};
use super::polkit;
use super::properties::{OS, ROOT_PATH, SYSROOT, SYSROOT_PATH, os_path};
use super::transaction::Order;

const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
/// How GDBus names an error of GIO: its domain in an escaped form, then the code.
const GIO_ERROR: &str = "org.gtk.GDBus.UnmappedGError.Quark._g_2dio_2derror_2dquark.Code";
const GIO_FAILED: u32 = 0;
const GIO_BUSY: u32 = 26;

/// An answer to a call.
#[derive(Debug)]
pub(crate) enum Answer {
    Nothing,
    Flag(bool),
    Text(String),
    Path(String),
    Variant(Variant<'static>),
    Variants(BTreeMap<String, Variant<'static>>),
    Objects(BTreeMap<String, BTreeMap<String, BTreeMap<String, Variant<'static>>>>),
}

/// An error as answer to a call.
#[derive(Debug)]
pub(crate) struct Refusal {
    name: String,
    text: String,
}

// === impl Refusal ===

impl Refusal {
    pub(crate) fn new(name: &str, text: impl Into<String>) -> Self {
        Self { name: name.to_owned(), text: text.into() }
    }

    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Self::new(&format!("{GIO_ERROR}{GIO_FAILED}"), text)
    }

    pub(crate) fn busy(text: impl Into<String>) -> Self {
        Self::new(&format!("{GIO_ERROR}{GIO_BUSY}"), text)
    }

    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::new("org.freedesktop.DBus.Error.InvalidArgs", text)
    }

    pub(crate) fn unknown_method(name: &str) -> Self {
        Self::new("org.freedesktop.DBus.Error.UnknownMethod", format!("No such method “{name}”"))
    }
}

impl From<anyhow::Error> for Refusal {
    fn from(error: anyhow::Error) -> Self {
        Self::failed(format!("{error:#}"))
    }
}

impl From<zbus::Error> for Refusal {
    fn from(error: zbus::Error) -> Self {
        Self::failed(error.to_string())
    }
}

// === impl Daemon ===

impl Daemon {
    pub(crate) async fn message(&mut self, message: Message) -> Result<()> {
        let header = message.header();
        let member = header.member().map_or("", |member| member.as_str());
        if message.message_type() == Type::Signal && member == "NameOwnerChanged" {
            let (name, _, now): (String, String, String) = message.body().deserialize()?;
            if now.is_empty() {
                self.vanished(&name).await?;
            }
        }
        if message.message_type() != Type::MethodCall
            || Faults::load(&self.paths)?.is_on(Kind::Hang)
        {
            return Ok(());
        }
        let result = self.call(&message).await;
        answer(&self.bus, &message, result).await?;
        Ok(())
    }

    pub(crate) async fn emit_changed(
        &self,
        path: &str,
        interface: &str,
        changed: &Table,
    ) -> Result<()> {
        let body = (interface, dictionary::table_to_variants(changed), Vec::<&str>::new());
        let nobody = None::<zbus::names::BusName<'_>>;
        self.bus.emit_signal(nobody, path, PROPERTIES, "PropertiesChanged", &body).await?;
        Ok(())
    }

    async fn call(&mut self, message: &Message) -> Result<Answer, Refusal> {
        let header = message.header();
        let path = header.path().map_or("", |path| path.as_str());
        let member = header.member().map_or("", |member| member.as_str());
        match header.interface().map_or("", |interface| interface.as_str()) {
            "org.freedesktop.DBus.Peer" => match member {
                "Ping" => Ok(Answer::Nothing),
                other => Err(Refusal::unknown_method(other)),
            },
            "org.freedesktop.DBus.Introspectable" => self.introspect(path),
            PROPERTIES => self.properties(path, member, message),
            "org.freedesktop.DBus.ObjectManager" if path == ROOT_PATH => Ok(self.objects()),
            SYSROOT if path == SYSROOT_PATH => self.sysroot_call(member, message).await,
            OS if path == os_path(OSNAME) => self.os_call(member, message).await,
            other => Err(Refusal::new(
                "org.freedesktop.DBus.Error.UnknownMethod",
                format!("No such interface “{other}” on object at path {path}"),
            )),
        }
    }

    fn table(&self, path: &str, interface: &str) -> Result<&Table, Refusal> {
        match interface {
            SYSROOT if path == SYSROOT_PATH => Ok(&self.shown.sysroot),
            OS if path == os_path(OSNAME) => Ok(&self.shown.os),
            other => Err(Refusal::invalid(format!("No such interface “{other}”"))),
        }
    }

    fn properties(&self, path: &str, member: &str, call: &Message) -> Result<Answer, Refusal> {
        match member {
            "Get" => {
                let (interface, name): (String, String) = arguments(call)?;
                let field = self.table(path, &interface)?.get(&name);
                let field =
                    field.ok_or_else(|| Refusal::invalid(format!("No such property “{name}”")))?;
                Ok(Answer::Variant(field.to_variant()))
            }
            "GetAll" => {
                let interface: String = arguments(call)?;
                let table = self.table(path, &interface)?;
                Ok(Answer::Variants(dictionary::table_to_variants(table)))
            }
            "Set" => Err(Refusal::invalid("Property is not writable")),
            other => Err(Refusal::unknown_method(other)),
        }
    }

    fn objects(&self) -> Answer {
        let one = |interface: &str, table: &Table| {
            BTreeMap::from([(interface.to_owned(), dictionary::table_to_variants(table))])
        };
        Answer::Objects(BTreeMap::from([
            (SYSROOT_PATH.to_owned(), one(SYSROOT, &self.shown.sysroot)),
            (os_path(OSNAME), one(OS, &self.shown.os)),
        ]))
    }

    fn introspect(&self, path: &str) -> Result<Answer, Refusal> {
        let os = os_path(OSNAME);
        let os_node = os.rsplit('/').next().unwrap_or_default();
        let text = match path {
            ROOT_PATH => {
                introspection(&["org.freedesktop.DBus.ObjectManager"], &["Sysroot", os_node])
            }
            SYSROOT_PATH => introspection(&[SYSROOT], &[]),
            path if path == os => introspection(&[OS], &[]),
            "/" => introspection(&[], &["org"]),
            "/org" => introspection(&[], &["projectatomic"]),
            "/org/projectatomic" => introspection(&[], &["rpmostree1"]),
            _ => introspection(&[], &[]),
        };
        Ok(Answer::Text(text))
    }

    async fn sysroot_call(&mut self, member: &str, call: &Message) -> Result<Answer, Refusal> {
        let sender = sender(call);
        match member {
            "RegisterClient" => {
                let _: HashMap<String, OwnedVariant> = arguments(call)?;
                polkit::check(&self.bus, &sender, "client-management").await?;
                self.clients.insert(sender);
                self.update_idle();
                Ok(Answer::Nothing)
            }
            "UnregisterClient" => {
                let _: HashMap<String, OwnedVariant> = arguments(call)?;
                self.clients.remove(&sender);
                self.update_idle();
                Ok(Answer::Nothing)
            }
            "ReloadConfig" => {
                polkit::check(&self.bus, &sender, "reload-daemon").await?;
                self.reload().await?;
                Ok(Answer::Nothing)
            }
            "Reload" => {
                self.reload().await?;
                Ok(Answer::Nothing)
            }
            "GetOS" => {
                let name: String = arguments(call)?;
                if name.is_empty() || name == OSNAME {
                    return Ok(Answer::Path(os_path(OSNAME)));
                }
                Err(Refusal::failed(format!("OS name \"{name}\" not found")))
            }
            other => Err(Refusal::unknown_method(other)),
        }
    }

    async fn os_call(&mut self, member: &str, call: &Message) -> Result<Answer, Refusal> {
        let (action, title, work) = match member {
            "FinalizeDeployment" => {
                let options = Options::read(arguments(call)?);
                let title = options.command_line.clone();
                ("finalize-deployment", title, Work::Finalize(options))
            }
            "Cleanup" => ("cleanup", None, Work::Cleanup(arguments(call)?)),
            "Rollback" => {
                let _: HashMap<String, OwnedVariant> = arguments(call)?;
                ("rollback", None, Work::Rollback)
            }
            "RefreshMd" => {
                let _: HashMap<String, OwnedVariant> = arguments(call)?;
                ("repo-refresh", Some("refresh-md".to_owned()), Work::Nothing)
            }
            "ListRepos" => return Ok(Answer::Variants(BTreeMap::new())),
            other => return Err(Refusal::unknown_method(other)),
        };
        let sender = sender(call);
        let uid = polkit::check(&self.bus, &sender, action).await?;
        let order = Order {
            method: member.to_owned(),
            arguments: call.body().data().bytes().to_vec(),
            sender,
            path: os_path(OSNAME),
            title: title.unwrap_or_else(|| action.to_owned()),
            uid,
            work,
        };
        self.begin(order).await
    }
}

fn sender(message: &Message) -> String {
    message.header().sender().map(ToString::to_string).unwrap_or_default()
}

/// The arguments of a call, or the error for wrong ones.
pub(crate) fn arguments<T>(message: &Message) -> Result<T, Refusal>
where
    T: for<'d> serde::Deserialize<'d> + zbus::wire::Type,
{
    let body = message.body();
    body.deserialize().map_err(|error| {
        Refusal::invalid(format!(
            "Type of message, “({})”, does not match: {error}",
            body.signature().to_string_no_parens()
        ))
    })
}

/// Sends an answer, unless none is wanted.
pub(crate) async fn answer(
    connection: &Connection,
    call: &Message,
    result: Result<Answer, Refusal>,
) -> zbus::Result<()> {
    let header = call.header();
    if header.primary().flags().contains(zbus::message::Flags::NO_REPLY_EXPECTED) {
        return Ok(());
    }
    match result {
        Ok(Answer::Nothing) => connection.reply(&header, &()).await,
        Ok(Answer::Flag(flag)) => connection.reply(&header, &flag).await,
        Ok(Answer::Text(text)) => connection.reply(&header, &text).await,
        Ok(Answer::Path(path)) => connection.reply(&header, &ObjectPath::try_from(path)?).await,
        Ok(Answer::Variant(variant)) => connection.reply(&header, &variant).await,
        Ok(Answer::Variants(variants)) => connection.reply(&header, &variants).await,
        Ok(Answer::Objects(objects)) => {
            let mut body = BTreeMap::new();
            for (path, interfaces) in objects {
                body.insert(ObjectPath::try_from(path)?, interfaces);
            }
            connection.reply(&header, &body).await
        }
        Err(refusal) => connection.reply_error(&header, refusal.name.as_str(), &refusal.text).await,
    }
}

/// Names of interfaces and nodes; nobody needs more to look around.
pub(crate) fn introspection(interfaces: &[&str], nodes: &[&str]) -> String {
    let mut text = String::from("<node>");
    for interface in interfaces.iter().chain(&[PROPERTIES, "org.freedesktop.DBus.Peer"]) {
        text.push_str(&format!("<interface name=\"{interface}\"/>"));
    }
    for node in nodes {
        text.push_str(&format!("<node name=\"{node}\"/>"));
    }
    text.push_str("</node>");
    text
}

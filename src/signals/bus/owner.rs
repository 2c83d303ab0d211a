//! Who has a name on the bus, as the bus tells it.

use zbus::Message;

/// The bus itself, whose word alone counts here.
const BUS: &str = "org.freedesktop.DBus";

/// The match rule by which changes of a name's owner come.
pub(crate) fn rule(name: &str) -> String {
    format!(
        "type='signal',sender='{BUS}',interface='{BUS}',member='NameOwnerChanged',arg0='{name}'"
    )
}

/// Takes over what a signal says of the owner of `name`. Whether it says anything: a signal that was
/// sent straight to us passes by every match rule, and only the bus may name an owner.
pub(crate) fn changed(message: &Message, name: &str, owner: &mut Option<String>) -> bool {
    let header = message.header();
    let from_bus = header.sender().is_some_and(|sender| sender.as_str() == BUS);
    let member = header.member();
    if !from_bus || member.is_none_or(|member| member.as_str() != "NameOwnerChanged") {
        return false;
    }
    let body = message.body();
    let parsed: zbus::Result<(&str, &str, &str)> = body.deserialize();
    match parsed {
        Ok((of, _, new)) if of == name => {
            *owner = (!new.is_empty()).then(|| new.to_owned());
            true
        }
        Ok(_) | Err(_) => false,
    }
}

//! Values of every D-Bus type and of several shapes, for places where they do not belong.

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;

use zbus::{Array, Message, OwnedObjectPath, Signature, Variant};

use super::fake::{Answer, error, reply, value};

/// What a stranger may write to look like something else.
pub(crate) const FORGED: &str = "x\nLOCKKEEPER_TO=rebooting\n\u{1b}[2J\u{9b}31m\u{0085}\u{7f}";

/// How many kinds of odd values there are.
pub(crate) const KINDS: usize = 28;

/// One kind of odd value.
pub(crate) fn odd(kind: usize) -> Variant<'static> {
    match kind % KINDS {
        0 => Variant::from(0_u8),
        1 => Variant::from(false),
        2 => Variant::from(i16::MIN),
        3 => Variant::from(u16::MAX),
        4 => Variant::from(i32::MIN),
        5 => Variant::from(u32::MAX),
        6 => Variant::from(i64::MIN),
        7 => Variant::from(u64::MAX),
        8 => Variant::from(f64::NAN),
        9 => Variant::from(""),
        10 => Variant::from("none"),
        11 => Variant::from(FORGED),
        12 => Variant::from("x".repeat(1 << 20)),
        13 => Variant::from(Signature::try_from("a{s(iv)}").unwrap()),
        14 => Variant::from(path("/")),
        15 => Variant::from(path("/org/freedesktop/login1")),
        16 => Variant::Variant(Box::new(Variant::from("inner"))),
        17 => (0..40).fold(Variant::from(1_u8), |inner, _| Variant::Variant(Box::new(inner))),
        18 => Variant::from(Array::new(&Signature::try_from("s").unwrap())),
        19 => Variant::from(Array::new(&Signature::try_from("a{sv}").unwrap())),
        20 => Variant::new(vec!["a"; 50_000]),
        21 => Variant::new(Vec::<HashMap<String, Variant<'_>>>::new()),
        22 => Variant::new(many_deployments()),
        23 => Variant::new(HashMap::from([("booted", "yes")])),
        24 => Variant::new((FORGED,)),
        25 => Variant::new(("", "", 7_u32)),
        26 => Variant::new((1_u8, (2_u16, (3_u32, (4_u64, "deep"))))),
        27 => Variant::new(vec![vec![vec![0_u8; 3]; 3]; 3]),
        _ => unreachable!(),
    }
}

/// An odd answer to a call: a value in place of another, in no variant, nothing at all, or errors.
pub(crate) fn odd_answer(call: &Message, kind: usize) -> Answer {
    match kind % ANSWERS {
        kind if kind < KINDS => value(call, odd(kind)),
        28 => reply(call, &()),
        29 => reply(call, &FORGED),
        30 => reply(call, &(7_u32, "s", vec![1_u8])),
        31 => reply(call, &HashMap::from([(FORGED, FORGED)])),
        32 => error(call, "org.freedesktop.DBus.Error.AccessDenied", FORGED),
        33 => error(call, "com.example.Odd", &FORGED.repeat(10_000)),
        _ => unreachable!(),
    }
}

/// How many kinds of odd answers there are.
pub(crate) const ANSWERS: usize = 34;

/// Whether a text may be shown to people: one line, no control characters, not endless.
pub(crate) fn is_plain(text: &str) -> bool {
    text.chars().count() <= 1024 && !text.chars().any(char::is_control)
}

fn path(text: &str) -> OwnedObjectPath {
    OwnedObjectPath::try_from(text).unwrap()
}

fn many_deployments() -> Vec<HashMap<String, Variant<'static>>> {
    (0..3000)
        .map(|index| {
            let odd = odd(index % 12);
            HashMap::from([("checksum".to_owned(), odd), ("booted".to_owned(), (index > 1).into())])
        })
        .collect()
}

#[test]
fn each_can_be_sent() {
    let call = Message::method_call("/", "Odd").build(&()).unwrap();
    assert!((0..ANSWERS).all(|kind| odd_answer(&call, kind).is_some()));
}

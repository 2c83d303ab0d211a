//! The kinds of entries that can be searched for: `journalctl MESSAGE_ID=…` is an API.

use crate::lifecycle::{Outcome, Stage, Transition};

/// A kind of journal entry. Its id never changes, and never means anything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Message {
    /// A stage began.
    Stage(Stage),
    /// An attempt ended.
    Outcome(Outcome),
    /// The reason to wait changed.
    Waiting,
}

// === impl Message ===

impl Message {
    /// The kind of a transition: the end of an attempt where it has one, else the stage that
    /// begins. A stage in which a person is needed always goes by its own name.
    pub fn of(transition: &Transition) -> Self {
        let person_needed = matches!(transition.to, Stage::Stuck | Stage::Halted);
        match transition.outcome {
            Some(outcome) if !person_needed => Self::Outcome(outcome),
            Some(_) | None => Self::Stage(transition.to),
        }
    }

    /// Its 128 bits in hex, as `MESSAGE_ID` wants them.
    pub fn id(self) -> &'static str {
        match self {
            Self::Stage(stage) => stage_id(stage),
            Self::Outcome(outcome) => outcome_id(outcome),
            Self::Waiting => "aa2b717f050a40f2b8d7776406825837",
        }
    }

    /// Whether somebody would be woken for it.
    pub fn wakes_someone(self) -> bool {
        match self {
            Self::Stage(Stage::Stuck | Stage::Halted) | Self::Outcome(Outcome::FellBack) => true,
            Self::Stage(
                Stage::Idle
                | Stage::Waiting
                | Stage::Requesting
                | Stage::Draining
                | Stage::Rebooting
                | Stage::Settling
                | Stage::Uncordoning
                | Stage::Yielding
                | Stage::Releasing,
            )
            | Self::Outcome(
                Outcome::Updated
                | Outcome::Yielded
                | Outcome::Withdrawn
                | Outcome::FinalizeFailed
                | Outcome::NotFinalized
                | Outcome::RebootNeverCame
                | Outcome::Interrupted
                | Outcome::Rebooted
                | Outcome::OtherSystem,
            )
            | Self::Waiting => false,
        }
    }
}

fn stage_id(stage: Stage) -> &'static str {
    match stage {
        Stage::Idle => "6b0dfdf6c24b4e1c8cfe0ce319c86ca8",
        Stage::Waiting => "154c424c38234664b88c2d2f7d5c1627",
        Stage::Requesting => "ce540847d45c4ff481919466b4d0b1d5",
        Stage::Draining => "3f1805860d6e483e889320c47729b702",
        Stage::Rebooting => "cf41538098634cbcad391b91a74f1c23",
        Stage::Settling => "f812f5f8760043f98ae30f9b0c342b07",
        Stage::Stuck => "d9de34e7a9834bb68822113fe2fc330b",
        Stage::Uncordoning => "7e493ce4ba6c4957afb2f60f1327cef0",
        Stage::Yielding => "527c7d351f594633b288969bd1d814cd",
        Stage::Releasing => "b64a4fe7afd04e18bdbd7643c68f2421",
        Stage::Halted => "69006528963847ad9af607697db76cf4",
    }
}

fn outcome_id(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Updated => "624d262d425e435497c81aef02b58615",
        Outcome::Yielded => "8d1d385c35fe4429aa09175b1ab1bae1",
        Outcome::Withdrawn => "909e69dd2b2941308ce3991f481335fa",
        Outcome::FellBack => "7e3ce6d633ae4fcf9d2b75bbb75ba125",
        Outcome::FinalizeFailed => "7df6d110ee004fc9add0b8cfb0bdc1c8",
        Outcome::NotFinalized => "27d6e3d7d3444554b13fc32eecf8fdf3",
        Outcome::RebootNeverCame => "ec7e82e8f31b4eb7a8c108e39a95e2dd",
        Outcome::Interrupted => "c7bf43f8059d493aa1be1bd695850345",
        Outcome::Rebooted => "0a11fd8dbdb1447686cae37b95c0f441",
        Outcome::OtherSystem => "dbd3f1ae1c8e43e69c4b0650d145c40a",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use std::collections::BTreeMap;

    use super::*;

    const CATALOG: &str = include_str!("../../systemd/lockkeeper.catalog");

    const OUTCOMES: [Outcome; 10] = [
        Outcome::Updated,
        Outcome::Yielded,
        Outcome::Withdrawn,
        Outcome::FellBack,
        Outcome::FinalizeFailed,
        Outcome::NotFinalized,
        Outcome::RebootNeverCame,
        Outcome::Interrupted,
        Outcome::Rebooted,
        Outcome::OtherSystem,
    ];

    fn all() -> Vec<Message> {
        let stages = Stage::ALL.into_iter().map(Message::Stage);
        stages.chain(OUTCOMES.map(Message::Outcome)).chain([Message::Waiting]).collect()
    }

    /// Catalog entries by id: header fields and text.
    fn catalog() -> BTreeMap<String, (String, String)> {
        let mut entries = BTreeMap::new();
        for block in CATALOG.split("\n-- ").skip(1) {
            let (id, rest) = block.split_once('\n').expect("an id line");
            let (head, body) = rest.split_once("\n\n").expect("an empty line after the header");
            let earlier = entries.insert(id.to_owned(), (head.to_owned(), body.to_owned()));
            assert!(earlier.is_none(), "{id} is there twice");
        }
        entries
    }

    #[test]
    fn ids_are_distinct_and_well_formed() {
        let mut ids: Vec<_> = all().into_iter().map(Message::id).collect();
        assert!(ids.iter().all(|id| id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit())));
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all().len());
    }

    #[test]
    fn catalog_and_table_name_the_same_ids() {
        let mut table: Vec<_> = all().into_iter().map(|m| m.id().to_owned()).collect();
        table.sort_unstable();
        assert_eq!(catalog().into_keys().collect::<Vec<_>>(), table);
    }

    #[test]
    fn every_text_has_a_subject_and_says_what_to_do() {
        for (id, (head, body)) in catalog() {
            assert!(head.starts_with("Subject: "), "{id}: no subject");
            let (explains, says) = body.split_once("What to do: ").expect(&id);
            assert!(explains.trim().len() > 40, "{id}: explains nothing");
            assert!(says.trim().len() >= "nothing.".len(), "{id}: does not say what to do");
        }
    }
}

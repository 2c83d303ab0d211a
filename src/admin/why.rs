//! Why the agent does nothing more, as one paragraph: what for, since when, what ends it, what helps.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Snapshot;
use super::advice::{self, Advice};
use super::schema::SCHEMA;

/// The answer to `lockkeeper why`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Name of the own Node, where it is known.
    pub node: Option<String>,
    /// Where in the cycle.
    pub state: String,
    /// The bounded word.
    pub code: String,
    /// What is waited for.
    pub text: String,
    /// Since when.
    pub since: Option<Timestamp>,
    /// When it ends, where that is known.
    pub until: Option<Timestamp>,
    /// What ends it: completes "It ends when …".
    pub ends: String,
    /// What a person can do, where there is something.
    pub help: Option<String>,
    /// What comes then, if all goes well.
    pub next: String,
    /// Why the configuration on disk is not the one in use, since a reload that failed.
    pub config_trouble: Option<String>,
}

// === impl Why ===

impl Why {
    /// Explains a snapshot.
    pub fn of(snapshot: &Snapshot) -> Self {
        let Snapshot { state, waiting, .. } = snapshot;
        let stage = state.record.core.stage;
        let Advice { ends: _, help } = advice::advice(waiting);
        let since = state.waiting_since.filter(|(code, _)| *code == waiting.code());
        Self {
            schema: SCHEMA,
            node: snapshot.node_name.clone(),
            state: stage.name().to_owned(),
            code: waiting.code().to_owned(),
            text: advice::text(snapshot),
            since: since.map(|(_, since)| since),
            until: advice::until(snapshot),
            ends: advice::ends(snapshot),
            help: help.map(|help| match &snapshot.node_name {
                Some(name) => help.replace("node NODE ", &format!("node {name} ")),
                None => help.to_owned(),
            }),
            next: advice::next(stage, waiting).to_owned(),
            config_trouble: snapshot.config_trouble.clone(),
        }
    }
}

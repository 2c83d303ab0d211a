//! What the own Node shows, and what becomes of writing to it.

use super::effect::Lane;
use super::event::{CordonAnswer, NodeTrouble, NodeView, UncordonAnswer};
use super::heart::Heart;
use super::record::{Cordon, Stage};
use super::state::Because;

/// What ends a drain at the Node.
const DELETED: &str = "the Node was deleted";
pub(super) const REPLACED: &str = "the Node was deleted and registered again";
pub(super) const LIFTED: &str = "somebody made the node schedulable";

impl Heart<'_> {
    pub(super) fn saw_node(&mut self, node: NodeView, fresh: bool) {
        self.state.record.seen_as_node = true;
        if self.state.record.core.stage == Stage::Draining {
            let before = self.state.record.node_uid.as_ref();
            let other = before.is_some_and(|before| *before != node.uid);
            let lifted = self.state.run.cordoned && !node.unschedulable;
            self.state.run.doubt_node = (other || lifted) && !fresh;
            if fresh && other {
                self.turn_back(Because::OtherNode, REPLACED);
            } else if fresh && lifted {
                self.turn_back(Because::ForeignUncordon, LIFTED);
            }
        }
        let fulfilled = self.state.record.fulfilled.take();
        self.state.record.fulfilled = fulfilled.filter(|text| node.reboot.as_ref() == Some(text));
        self.state.view.node = Some(Ok(node));
    }

    /// Whether this trouble ends the drain: the Node is gone. Old news of the watch are no proof of it.
    pub(super) fn ends_the_drain(&mut self, trouble: &NodeTrouble, fresh: bool) -> bool {
        let gone = matches!(trouble, NodeTrouble::Missing(_));
        if !gone || self.state.record.core.stage != Stage::Draining {
            return false;
        }
        self.state.run.doubt_node = !fresh;
        if fresh {
            self.turn_back(Because::OtherNode, DELETED);
        }
        fresh
    }

    /// That the Node is gone is an answer; nothing has failed then.
    pub(super) fn node_failed_or_gone(&mut self, trouble: NodeTrouble) {
        if self.ends_the_drain(&trouble, true) {
            self.lane_ok(Lane::Node);
        } else {
            self.node_failed(trouble);
        }
    }

    /// The Node is not as the drain needs it. The first such reason is told.
    pub(super) fn turn_back(&mut self, because: Because, text: &str) {
        self.state.run.broken.get_or_insert((because, text.to_owned()));
    }

    pub(super) fn read_node(&mut self, answer: Result<NodeView, NodeTrouble>) {
        match answer {
            Ok(node) => {
                self.lane_ok(Lane::Node);
                self.state.run.node_trouble = None;
                let stage = self.state.record.core.stage;
                if stage == Stage::Requesting {
                    // While a person's cordon is to be put back, the Node does not show it.
                    if !self.state.record.cordon_owed {
                        self.note_node(&node);
                    }
                } else if stage == Stage::Draining {
                    // An older agent may have dropped it.
                    self.state.record.node_uid.get_or_insert(node.uid.clone());
                }
                self.saw_node(node, true);
            }
            // What the watch showed stands: it tells changes only, and would never take this back.
            Err(trouble) => self.node_failed_or_gone(trouble),
        }
    }

    pub(super) fn cordoned(&mut self, answer: CordonAnswer) {
        self.state.run.node_trouble = None;
        match answer {
            CordonAnswer::Ours => {
                self.lane_ok(Lane::Node);
                self.state.run.cordoned = true;
                // Also where a person's cordon was lifted before ours came.
                self.state.record.core.cordon = Cordon::Ours;
            }
            CordonAnswer::Foreign => {
                self.lane_ok(Lane::Node);
                self.state.run.cordoned = true;
                // Cordoned by others after the slot was asked for (some slot servers do): it is
                // neither ours to lift nor a person's to put back.
                if self.state.record.core.cordon == Cordon::Ours {
                    self.state.record.core.cordon = Cordon::None;
                }
            }
            CordonAnswer::OtherNode(_) => {
                self.lane_ok(Lane::Node);
                self.turn_back(Because::OtherNode, REPLACED);
            }
            CordonAnswer::Failed(trouble) => self.node_failed_or_gone(trouble),
        }
    }

    pub(super) fn uncordoned(&mut self, answer: UncordonAnswer) {
        match answer {
            // The release may have lifted a person's cordon before the host went down.
            UncordonAnswer::AlreadySchedulable if self.owes_a_cordon() => {
                self.lane_ok(Lane::Node);
                self.state.run.uncordoned = true;
            }
            UncordonAnswer::Lifted
            | UncordonAnswer::AlreadySchedulable
            | UncordonAnswer::NoNode => {
                self.lane_ok(Lane::Node);
                self.state.record.core.cordon = Cordon::None;
                self.state.run.uncordoned = true;
            }
            UncordonAnswer::Foreign => {
                self.lane_ok(Lane::Node);
                if self.state.record.core.cordon == Cordon::Ours {
                    self.state.record.core.cordon = Cordon::None;
                }
                self.state.run.uncordoned = true;
            }
            UncordonAnswer::Failed(trouble) => self.node_failed(trouble),
        }
    }

    /// Whether a person's cordon stood when a slot began to be released: since then some slot servers
    /// have lifted it.
    pub(super) fn owes_a_cordon(&self) -> bool {
        let record = &self.state.record;
        let released = record.stages.iter().any(|time| time.stage == Stage::Releasing);
        (released || record.cordon_owed) && record.core.cordon == Cordon::Foreign
    }
}

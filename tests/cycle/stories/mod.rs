//! The stories, each a promise and its proof. They are told in this order.

use crate::runner::Story;

mod turns;

macro_rules! stories {
    ($($room:ident: $($name:ident),+;)+) => {
        &[$($(Story { name: stringify!($name), tell: $room::$name },)+)+]
    };
}

/// All of them.
pub const ALL: &[Story] = stories! {
    turns: three_nodes_take_turns_and_tell_of_it;
};

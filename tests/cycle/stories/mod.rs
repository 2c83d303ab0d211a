//! The stories, each a promise and its proof. They are told in this order.

use crate::runner::Story;

mod agent;
mod away;
mod boots;
mod drain;
mod durability;
mod gates;
mod identity;
mod people;
mod record;
mod sequences;
mod turns;
mod update;

macro_rules! stories {
    ($($room:ident: $($name:ident),+;)+) => {
        &[$($(Story { name: stringify!($name), tell: $room::$name },)+)+]
    };
}

/// All of them.
pub const ALL: &[Story] = stories! {
    people: another_user_is_turned_away, the_status_keeps_its_schema, a_wrong_configuration_is_refused,
        a_node_comes_home_under_a_wrong_configuration;
    gates: a_hold_keeps_the_node, who_blocks_the_shutdown_is_named_before_the_slot_is_taken,
        a_full_boot_is_named_before_the_slot_is_taken, a_logged_in_user_is_waited_for;
    turns: three_nodes_take_turns_and_tell_of_it;
    drain: a_blocked_rehearsal_leaves_the_slot_to_others, a_drain_past_its_deadline_yields,
        a_persons_cordon_survives_the_cycle, somebody_who_uncordons_is_obeyed,
        a_drain_past_its_deadline_deletes, a_drain_past_its_deadline_reboots;
    agent: an_agent_killed_in_mid_drain_goes_on, a_second_agent_is_turned_away;
    update: a_withdrawn_update_is_let_go, the_newer_update_is_booted, a_slow_daemon_is_waited_for;
    boots: a_failed_finalization_counts, a_fallback_is_denied_and_keeps_the_slot,
        an_unhealthy_node_keeps_slot_and_cordon, a_reboot_that_never_comes_is_undone;
    away: a_bus_that_is_restarted_is_found_again, rpm_ostreed_killed_in_mid_transaction_is_undone,
        an_api_server_that_goes_away_is_waited_for, a_coordinator_that_goes_away_is_waited_for;
    durability: the_record_is_on_disk_before_anybody_hears;
    record: a_power_cut_in_mid_drain_is_survived, a_power_cut_at_the_reboot_is_survived,
        a_record_of_garbage_is_set_aside, an_unwritable_record_stops_what_is_dangerous;
    sequences: one_id_on_two_hosts_goes_down_once,
        zincati_that_asks_elsewhere_keeps_the_agent_from_asking,
        a_coordinator_without_memory_ends_the_drain, a_node_deleted_in_mid_drain_is_noticed,
        a_node_deleted_while_its_host_is_down_settles, a_cordon_made_while_the_node_settles_stays,
        a_person_who_reboots_in_mid_attempt_is_survived, an_agent_replaced_in_mid_drain_goes_on;
    identity: a_rotated_certificate_is_taken, a_credential_that_is_none_is_waited_for,
        a_service_account_will_do, a_host_without_kubernetes_goes_round;
};

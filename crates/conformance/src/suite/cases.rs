//! The list of all cases, once, and the macros that work on it.

/// Hands the list of all cases, by theme, to another macro. Whatever needs the list gets it from here.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_cases {
    ([$($then:tt)+] $($with:tt)*) => {
        $($then)+! {
            $($with)*
            create {
                what_is_stored_comes_back_whole,
                get_many_answers_in_the_order_asked_for,
                a_duplicate_is_refused,
                a_duplicate_in_one_batch_is_refused_alone,
                no_outputs_is_refused,
                create_holds_the_inputs,
                every_bad_input_is_named,
                a_batch_may_build_on_itself_in_order,
                of_two_rivals_in_one_batch_the_first_wins,
                created_as_mined,
                created_on_a_fork_is_unmined,
                created_frozen,
                created_conflicting,
                created_conflicting_and_mined_is_conflicting,
                trusted_inputs_may_be_absent,
                coinbase_matures_from_its_block,
                zero_value_outputs_count_and_data_outputs_do_not,
                outputs_are_found_one_by_one,
                a_thousand_made_spent_and_read_back,
            }
            spend {
                a_rival_is_refused_and_told_by_whom,
                the_same_spend_again_is_fine,
                the_spender_must_be_the_one_it_is_said_to_be,
                checks_come_in_the_documented_order,
                status_shows_the_first_that_applies,
                locked_outputs_cannot_be_spent,
                coinbase_maturity_edges,
                a_failed_double_spend_leaves_every_slot_as_it_was,
                a_failed_spend_keeps_what_was_held_before,
                one_output_cannot_be_spent_twice_in_one_call,
                a_mined_spender_leaves_its_height,
                the_expected_hash_is_checked,
                zero_value_data_and_missing_outputs,
                each_spender_of_a_batch_stands_alone,
                unspend_gives_the_output_back,
                unspend_compares_the_spender_first,
                what_cannot_be_given_back,
            }
            mined {
                blocks_are_appended_and_the_greatest_height_counts,
                the_same_block_again_replaces_its_entry,
                unset_removes_the_matching_entry_only,
                a_missing_transaction_can_be_unset_but_not_set,
                a_batch_with_one_missing_is_done_in_part,
                a_block_unlocks,
                a_loser_cannot_be_mined,
                what_does_not_hold_its_inputs_cannot_be_mined,
                what_spends_an_output_that_its_parent_does_not_have_cannot_be_mined,
                a_rivals_hold_does_not_count_as_ones_own,
                on_and_off_the_longest_chain_and_on_again,
                the_highest_block_goes_onto_the_longest_chain,
                without_a_block_nothing_is_on_the_longest_chain,
                unmined_since_is_the_earliest_height,
                every_slot_of_every_parent_follows,
            }
            due {
                fully_spent_but_unmined_is_not_due,
                mined_but_partly_spent_is_not_due,
                mined_and_fully_spent_is_due_after_the_latest_event,
                spent_first_and_mined_later_is_due_after_its_own_block,
                of_several_own_blocks_the_greatest_counts,
                an_unmined_child_keeps_its_parent,
                mined_on_a_fork_is_not_due,
                unspend_takes_it_back,
                a_loser_is_due_after_it_lost,
                a_frozen_output_keeps_a_loser,
                preserved_is_not_due,
                locked_is_not_due,
                a_frozen_output_keeps_its_transaction,
                data_outputs_never_keep_a_record,
                coinbase_maturity_does_not_make_due,
                retention_zero_keeps_everything,
                verdicts_come_in_order_with_body_and_size,
                due_is_listed_by_height,
                a_due_cursor_survives_changes,
                what_retains_records_is_counted_by_reason,
                settled_records_are_counted_by_height_through_blocks_and_rollbacks,
                an_unmined_child_of_a_further_page_is_counted,
            }
            prune {
                due_at_3_and_4_pruned_at_2_3_and_4,
                a_parent_remembers_its_pruned_child,
                parents_and_children_may_go_in_any_order,
                a_persister_holds_until_it_has_caught_up,
                a_consumer_at_zero_or_silent_holds_everything,
                what_is_due_above_the_safe_height_stays,
                what_a_rollback_may_need_stays_whatever_is_asked,
                what_wrote_over_another_stays_while_that_can_come_back,
                of_a_batch_exactly_those_go_that_may,
                with_and_without_the_child_check_the_same_goes,
                a_pruned_loser_is_listed_no_longer,
                pruning_goes_on_at_the_cursor,
                a_dry_run_changes_nothing,
                pruning_none_at_a_time_is_refused,
                records_with_a_body_outside_are_spared_on_request,
                what_is_deleted_is_gone_everywhere,
                forgetting_gives_the_inputs_back,
                what_cannot_be_forgotten,
                a_pruned_child_still_keeps_its_unmined_parent,
                life_goes_on_without_a_pruned_parent,
            }
            preserve {
                parents_of_old_unmined_are_preserved,
                the_greater_height_wins_and_absent_ones_are_skipped,
                a_preservation_ends_at_its_height,
                preservations_end_lowest_first_up_to_the_limit,
                whoever_preserved_can_end_it_and_nobody_elses,
                the_end_of_a_preservation_rechecks_everything,
                what_happened_meanwhile_counts_at_the_end,
                a_forgotten_record_takes_its_preservation_with_it,
            }
            unmined {
                nothing_is_unmined_in_an_empty_or_fully_mined_store,
                a_page_of_nothing_is_refused,
                everything_is_listed_once_in_the_order_of_the_ids,
                block_assembly_gets_what_it_needs,
                losers_and_coinbases_are_not_for_block_assembly,
                the_cutoff_is_inclusive,
                old_unmined_is_complete_beyond_any_page_limit,
                excluded_ones_do_not_end_the_listing,
                an_unmined_cursor_survives_changes,
                mined_ones_leave_and_come_back_with_their_height,
            }
            freeze {
                frozen_blocks_spending_until_unfrozen,
                only_unspent_can_be_frozen_and_only_frozen_unfrozen,
                lock_and_unlock,
                reassign_needs_a_frozen_output_and_its_hash,
                reassigned_output_has_a_new_hash_and_the_old_one_is_gone,
                reassigned_output_is_immature_for_a_thousand_blocks,
                reassigned_again_the_last_one_decides,
                reassigned_output_moves_to_its_new_address,
                reassigned_output_keeps_its_record,
                reassigned_output_keeps_even_a_loser,
            }
            paging {
                records_of_any_number_of_pages_come_back_whole,
                outputs_at_page_edges_are_spent_where_they_are,
                due_only_once_every_page_is_spent,
                the_latest_child_of_any_page_decides,
                repeated_spends_do_not_inflate_the_counters,
                lock_and_unlock_reach_every_page,
                descendants_are_found_on_every_page,
                a_claim_on_the_last_page_keeps_a_loser,
                deleting_removes_every_page,
                blocks_with_many_pages_can_be_taken_back,
            }
            conflicts {
                losing_gives_back_and_winning_takes_again,
                descendants_lose_too_breadth_first,
                mined_and_frozen_ones_cannot_lose,
                each_loser_of_a_batch_stands_alone,
                coming_back_needs_every_input,
                a_double_spend_and_the_fork_back,
                several_rivals_in_different_blocks,
                chains_win_and_lose_as_a_whole,
                a_triple_fork,
                a_resolution_is_all_or_nothing,
                a_descendant_of_a_loser_cannot_win,
                a_descendant_of_an_earlier_winners_loser_cannot_win,
                a_descendant_of_an_old_loser_can_only_win_with_it,
                a_winner_and_its_absent_parents,
                a_lock_does_not_stop_a_resolution_but_a_frozen_output_does,
            }
            reorg {
                a_double_spend_decided_by_a_reorganisation,
                nested_reorganisations,
                a_frozen_loser_stops_the_new_branch,
                a_deep_spend_may_forget_its_spender_but_not_its_height,
                a_recent_spend_keeps_its_spender,
                a_forgotten_spender_keeps_its_output_spent,
                a_child_holds_a_slot_that_has_forgotten_it,
                a_slot_inside_the_window_never_forgets,
            }
            blocks {
                the_first_block_may_have_any_height,
                a_block_brings_mined_transactions,
                a_block_mines_what_was_waiting,
                a_block_makes_its_transactions_hold_their_inputs,
                an_output_made_and_spent_in_one_block_is_never_seen,
                unmined_rivals_of_a_block_lose,
                what_a_rival_gave_back_can_be_spent_in_the_same_block,
                the_undo_record_says_what_the_block_did,
                block_numbers_are_never_used_twice,
                a_transaction_may_be_written_over_where_that_is_allowed,
                a_fully_spent_transaction_may_be_written_over,
                the_floor_follows_at_the_distance_of_the_window,
                undo_records_are_dropped_only_below_the_floor,
                a_block_of_a_thousand,
                m17_fee_and_input_values_are_kept,
                m17_fees_survive_a_rollback,
            }
            runs {
                blocks_in_a_row_do_what_they_do_one_by_one,
                a_row_ends_before_the_first_bad_block,
                a_row_sees_what_the_block_before_spent,
                a_row_begins_where_the_chain_ends,
                blocks_in_a_row_share_a_page,
                a_refused_block_leaves_the_pages_of_the_one_before,
                a_row_after_a_rollback_sees_what_was_rolled_back,
            }
            further_pages {
                a_rollback_reaches_every_page,
                mining_reaches_every_page,
                freezing_and_reassigning_reach_every_page,
                losing_and_winning_reach_every_page,
                a_failed_item_leaves_every_page,
                spent_outputs_are_counted_on_every_page,
            }
            refused_blocks {
                only_the_next_height_is_next,
                an_applied_block_is_not_applied_again,
                another_hash_is_another_block,
                a_missing_input_is_always_an_error,
                an_unmined_parent_is_an_error,
                a_double_spend_is_an_error,
                an_immature_coinbase_is_an_error,
                frozen_locked_data_and_waiting_outputs_are_errors,
                no_outputs_and_duplicates_are_errors,
                spending_from_a_later_transaction_is_an_error,
                a_transaction_without_outputs_is_taken_where_the_chain_allows_it,
                the_maturity_of_a_block_is_that_of_its_chain,
                a_rival_that_cannot_lose_stops_the_block,
                a_refused_block_uses_no_number,
                nothing_follows_the_last_height,
                no_number_is_given_after_the_greatest,
                amounts_are_checked_where_asked_for,
            }
            rollback {
                a_smaller_window_forgets_nobody_above_the_old_floor,
                for_a_node_transactions_are_unmined_again,
                for_a_follower_everything_is_as_it_was,
                what_was_waiting_before_waits_again,
                a_coinbase_loses_with_its_descendants,
                for_a_follower_waiting_descendants_lose,
                losers_of_a_block_stay_losers,
                exactly_the_blocks_above_the_target_go,
                what_was_written_over_comes_back,
                a_frozen_descendant_stops_the_rollback,
                what_wrote_over_a_record_is_forgotten,
                what_comes_back_names_nobody_who_is_gone,
                a_spender_of_the_same_block_is_no_obstacle,
                a_refused_rollback_changes_nothing,
                the_floor_can_be_reached_after_undo_is_pruned,
                to_the_last_block_is_nothing_to_do,
                everything_can_be_taken_back_while_the_floor_is_at_the_first_block,
                back_and_forth_comes_to_the_same,
                what_is_gone_already_is_passed_over,
                what_is_in_another_block_stays_mined,
                unmined_since_survives_blocks_and_rollbacks,
                what_is_forgotten_gives_back_what_was_settled,
            }
            address {
                an_entry_says_everything_about_its_output,
                spending_removes_and_giving_back_returns,
                outputs_of_losers_are_not_listed,
                credentials_are_an_index_of_their_own,
                both_orders_are_complete_in_pages_of_any_size,
                a_cursor_survives_changes_in_both_orders,
                mining_does_not_move_an_output,
                blocks_and_rollbacks_are_followed,
                an_owner_of_thousands_is_listed_completely,
            }
            digest {
                every_kind_of_change_is_seen,
                notes_are_kept_and_are_not_state,
                blocks_undo_and_cursor_are_seen,
                every_field_of_a_transaction_is_seen,
                the_way_to_a_state_does_not_matter,
            }
            utxo_set {
                an_empty_set_has_a_hash,
                known_coins_have_the_hash_of_bitcoin_core,
                the_way_to_the_coins_does_not_matter,
                what_makes_a_coin_counts_and_nothing_else,
                only_mined_outputs_are_coins,
                spent_by_an_unmined_transaction_is_still_a_coin,
                data_outputs_are_no_coins,
                amounts_beyond_64_bits_are_added_up,
                a_rollback_restores_the_set,
                a_reorganisation_equals_the_straight_chain,
                overwritten_coins_go_and_come_back,
                every_page_follows_the_records_block,
                pruning_does_not_change_it,
                a_reassigned_coin_is_another_coin,
                counting_shows_progress_and_can_be_stopped,
            }
            timelines {
                child_mined_at_1001_skip_at_1288_delete_at_1289,
                child_mined_at_1001_by_blocks,
                child_never_mined_keeps_the_parent_for_ever,
                child_mined_at_1500_delete_at_1788,
                child_remined_at_1300_delete_at_1588,
                child_remined_at_1300_by_blocks,
                child_a_pruned_long_before_child_b_is_mined,
                child_a_pruned_long_before_child_b_by_blocks,
                every_child_is_checked_not_only_the_last,
                a_hundred_children,
                pruning_first_after_a_restart_is_safe_without_preservation,
                the_parents_own_block_counts,
            }
            incidents {
                teranode_1768_fork_must_not_restamp_unmined_since,
                teranode_1772_parent_of_a_live_unmined_child_is_never_deleted,
                teranode_1214_no_deletion_leaves_a_dangling_spender,
                teranode_1214_a_parent_is_not_forgotten_under_its_child,
                teranode_1701_a_pruned_child_is_not_taken_for_a_repeat,
                teranode_1701_a_pruned_child_does_not_come_back_as_a_loser,
                teranode_1702_a_pruned_child_is_not_mined_again_by_a_block,
                teranode_1113_expired_preservation_must_not_delete_a_live_coin,
                teranode_1186_due_height_comes_from_the_mined_block,
                teranode_489_the_consumers_height_decides,
                teranode_498_the_backlog_is_listed_without_any_event,
                teranode_712_a_zero_hash_is_answered_at_once,
                teranode_882_deleted_records_can_be_restored,
                teranode_1469_a_page_of_due_records_is_a_range,
                teraslab_after_a_quiet_period_every_deletable_record_is_gone,
                teraslab_deleting_an_unmined_child_gives_its_inputs_back,
                teraslab_a_pruned_child_cannot_be_made_again,
                bitcoin_22733_nothing_is_left_behind,
                reth_20130_a_tick_is_bounded,
                reth_22803_pruning_leaves_the_chain_alone,
                kaspa_680_the_lag_can_be_seen,
                waterfalls_96_undo_is_written_for_every_block,
                erigon_3658_policy_changes_at_run_time,
                erigon_3658_an_unsafe_policy_is_refused_at_run_time,
                teranode_1769_failure_at_each_input,
                teranode_1705_nothing_probable_decides,
            }
            concurrency {
                the_same_spend_twenty_times_and_its_rival_always_fails,
                of_twenty_rivals_one_wins_and_the_others_know_which,
                the_same_create_twenty_times_stores_once,
                different_work_at_once_is_all_done,
                on_and_off_the_longest_chain_at_once,
                of_two_next_blocks_one_is_applied,
                deleting_while_the_child_is_unmined,
                deleting_while_it_is_preserved,
                deleting_while_it_is_locked,
                deleting_a_loser_while_it_comes_back,
                two_pruners_delete_each_record_once,
                freezing_while_it_is_spent,
                readers_never_see_half_a_block,
                two_records_of_one_block_are_never_torn,
            }
            reopened {
                an_empty_store_is_empty_again,
                everything_is_there_again,
                blocks_roll_back_and_go_on,
                pruning_goes_on,
            }
        }
    };
}

/// One test for each case, on stores made by a factory: `conformance_suite!(MyFactory)`. The expression is evaluated once for
/// each case.
#[macro_export]
macro_rules! conformance_suite {
    ($factory:expr) => {
        $crate::conformance_cases! { [$crate::conformance_tests] { $factory } }
    };
}

/// The tests of [`conformance_suite`].
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    ($factory:block $($theme:ident { $($case:ident,)* })*) => {
        $(
            mod $theme {
                #[allow(unused_imports, reason = "the factory may or may not need them")]
                use super::*;
                $(
                    #[test]
                    fn $case() {
                        $crate::suite::run_case(Box::pin(async { $crate::suite::$theme::$case(&$factory).await }));
                    }
                )*
            }
        )*
    };
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    macro_rules! names {
        ($($theme:ident { $($case:ident,)* })*) => {
            vec![$($((stringify!($theme), stringify!($case))),*),*]
        };
    }

    /// A case that is written but not listed would never run.
    #[test]
    fn every_case_is_listed_and_only_once() {
        let listed: Vec<(&str, &str)> = crate::conformance_cases!([names]);
        let unique: BTreeSet<_> = listed.iter().map(|(theme, case)| format!("{theme}::{case}")).collect();
        assert_eq!(unique.len(), listed.len(), "a case is listed twice");
        let mut written = BTreeSet::new();
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/suite");
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let theme = path.file_stem().unwrap().to_str().unwrap().to_owned();
            for line in fs::read_to_string(&path).unwrap().lines() {
                let Some(rest) = line.strip_prefix("pub async fn ") else { continue };
                let Some((case, _)) = rest.split_once("(factory: &dyn StoreFactory") else { continue };
                written.insert(format!("{theme}::{case}"));
            }
        }
        assert!(written.len() > 150, "only {} cases found: the search is broken", written.len());
        assert_eq!(unique, written);
    }
}

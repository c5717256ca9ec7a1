//! What newcomers, operators and attackers ran into with version 0.1, by number, and the tests that fail if it comes back.

use std::{collections::BTreeSet, fs, path::Path};

/// A finding, and its tests: functions of any crate, or steps of the scripts that drive a browser.
const FINDINGS: &[(&str, &[&str])] = &[
    (
        "C1 a refused block looks healthy",
        &[
            "c1_run_shows_a_refused_block_and_a_gap_of_its_files_also_after_a_restart",
            "c1_headers_without_blocks_and_a_refused_block_are_told",
            "page_refused_block_is_shown_with_its_reason_and_what_is_built_on_it",
        ],
    ),
    (
        "C1 a source that is down looks healthy",
        &[
            "c1_h4_h9_truth_is_told_of_a_recorded_node_within_five_seconds",
            "c1_pause_between_two_tries_is_bounded",
            "c1_every_number_of_the_source_is_scraped_with_the_same_value",
            "the_alert_rules_use_metrics_and_alerts_that_exist",
        ],
    ),
    ("C1 a gap in the files looks healthy", &["c1_gap_in_the_files_is_shown_until_it_is_filled"]),
    (
        "C2 run does not start on a longer bad branch",
        &["c2_run_starts_on_a_longer_bad_branch_and_follows_the_best_good_one"],
    ),
    (
        "C2 repeated imports are stuck",
        &[
            "c2_repeated_imports_of_a_growing_file_end_where_one_import_does",
            "c2_every_prefix_of_the_block_test_ends_where_bitcoin_core_does_however_often_it_is_started",
        ],
    ),
    (
        "C3 gRPC changes need no token, are not logged, and contradict the source",
        &[
            "c3_changes_over_grpc_need_the_admin_token_on_loopback_too",
            "c3_every_change_over_grpc_is_logged_with_who_and_what",
            "c3_a_following_node_takes_no_writes_without_the_token_and_none_of_utxos_with_it",
        ],
    ),
    (
        "H4 the process exits with its source",
        &[
            "h4_run_survives_a_directory_that_is_not_there_comes_goes_and_comes_back",
            "h4_wrong_password_and_wrong_network_are_told_once_and_following_begins_when_they_are_right",
        ],
    ),
    (
        "H5 the policy is forgotten at a restart, or shortened by one",
        &[
            "h5_the_policy_is_shown_and_changed_and_shortening_wants_yes",
            "h5_an_import_with_a_longer_retention_is_kept_by_a_run_with_the_defaults",
            "page_policy_is_shortened_only_after_what_it_deletes_is_shown",
        ],
    ),
    (
        "H6 import --after hangs",
        &[
            "h6_import_after_ends_with_an_error_when_its_first_block_is_refused",
            "h6_import_of_later_blocks_of_mainnet_ends_with_an_error",
        ],
    ),
    (
        "H7 plan, explain and status of a directory are not what prune now does",
        &[
            "h7_the_plan_of_a_directory_is_what_prune_now_does",
            "h7_offline_the_plan_tells_what_pruning_does",
            "h7_offline_looking_starts_no_job",
        ],
    ),
    (
        "H8 a running node cannot be asked, nor over https, nor for its UTXO hash",
        &[
            "h8_answers_are_the_same_from_a_running_node_and_from_its_directory",
            "h8_holds_and_pruning_are_controlled_online_and_offline",
            "h8_https_is_spoken_with_the_authority_that_is_named",
            "heavy_statistics_and_the_interval_of_measuring_come_from_the_configuration",
        ],
    ),
    (
        "H9 a lower tip is not followed",
        &["h9_lower_tip_is_followed_live_as_at_start", "h9_lower_tip_is_followed_at_a_start"],
    ),
    (
        "M10 1,024 connections shut everybody out",
        &[
            "m10_two_thousand_connections_shut_out_neither_a_probe_nor_an_operator",
            "m10_health_and_the_admin_token_get_in_over_grpc_when_all_places_are_taken",
        ],
    ),
    ("M11 bodies are not verified", &["m11_a_body_that_is_not_that_of_its_id_is_noticed"]),
    (
        "M12 SIGABRT, SIGHUP",
        &[
            "m12_a_start_that_fails_after_grpc_is_up_ends_with_an_error_and_nothing_else",
            "m12_a_second_sigterm_ends_the_process_without_an_abort",
            "m12_sighup_takes_over_what_it_can_and_names_what_it_cannot",
        ],
    ),
    (
        "M13 config approves what run refuses, and run takes what cannot be meant",
        &[
            "m13_config_check_refuses_what_run_refuses",
            "m13_what_cannot_be_meant_is_refused_by_the_name_in_the_file",
        ],
    ),
    (
        "M14 the network is only in node.json, a missing store is made, a read-only copy cannot be looked at",
        &[
            "m14_a_node_file_of_another_network_is_refused",
            "m14_a_missing_store_is_said_and_none_is_made",
            "m14_a_directory_that_cannot_be_written_can_be_looked_at",
        ],
    ),
    (
        "M15 import says 0 when it did not import everything",
        &[
            "m15_import_of_an_empty_file_exits_nonzero_and_makes_no_directory",
            "m15_import_that_refuses_a_block_exits_nonzero_and_says_what_was_left",
            "m15_import_with_blocks_without_a_parent_exits_nonzero_and_names_the_missing_one",
            "m15_bad_best_tip_does_not_end_the_import_when_there_is_a_good_sibling",
            "m15_repeated_import_need_not_repeat_what_the_directory_was_made_with",
        ],
    ),
    (
        "M16 names differ by door",
        &[
            "m16_the_table_of_names_has_one_column",
            "m16_import_prints_blocks_as_rest_does",
            "m16_no_retired_name_is_left_in_rest_or_grpc",
            "m16_every_metric_has_the_one_prefix_and_its_own_meaning",
            "every_setting_is_documented_and_nothing_else_is",
        ],
    ),
    (
        "M17 fee, inputs, single numbers of the policy, 429, cancel, consumers, blocks, cursors, protobuf",
        &[
            "m17_fee_and_inputs_of_a_real_transaction_are_known",
            "h5_one_number_of_the_policy_is_changed_and_shortening_is_confirmed",
            "m17_every_answer_to_too_many_requests_is_documented",
            "m17_a_job_is_cancelled",
            "m17_a_consumer_is_registered_reports_and_is_released",
            "m17_blocks_are_listed_in_pages_in_both_orders",
            "m17_a_cursor_is_taken_only_by_the_list_and_order_it_was_given_for",
            "m17_malformed_protobuf_is_an_invalid_argument",
        ],
    ),
    (
        "L18 colours, plain text and Rust's Debug in the log, http:// with TLS",
        &[
            "l18_with_json_every_line_is_json_and_text_has_no_colours",
            "c1_h4_h9_truth_is_told_of_a_recorded_node_within_five_seconds",
            "h8_https_is_spoken_with_the_authority_that_is_named",
        ],
    ),
    ("L18 rollback above the tip", &["l18_rollback_above_the_tip_says_so"]),
    (
        "L18 genesis output, empty address, limit 0",
        &[
            "l18_output_that_can_never_be_spent_is_told_as_such",
            "l18_empty_address_empty_page_and_negative_number_are_refused_plainly",
        ],
    ),
    (
        "L18 P2PK outputs are not found by their address",
        &["l18_list_of_an_address_says_that_outputs_to_its_key_are_not_in_it"],
    ),
    (
        "L18 peer of a refused token, case of a host name",
        &[
            "l18_a_refused_token_is_logged_with_its_peer",
            "l18_a_page_elsewhere_whose_name_leads_here_reads_nothing_and_case_does_not_matter",
        ],
    ),
    ("L18 password in an error", &["l18_a_password_in_the_address_is_not_repeated"]),
    (
        "L18 symlinks below bodies and at store",
        &["l18_a_symlink_below_bodies_is_not_followed", "l18_a_store_that_is_a_symlink_counts"],
    ),
    (
        "L18 modes of the data directory, keys and tokens",
        &[
            "c3_a_fed_node_takes_blocks_and_utxos_over_grpc_and_keeps_them",
            "l18_what_other_users_can_read_is_warned_about_with_the_fix",
        ],
    ),
    (
        "L18 events: repeated, without ids, hello, all streams for one client",
        &[
            "l18_a_job_is_told_of_once_for_each_state",
            "l18_a_client_that_comes_back_goes_on_where_it_was",
            "l18_hello_knows_what_is_persisted_from_the_hold",
            "l18_one_client_cannot_take_all_event_streams",
        ],
    ),
    (
        "L18 1 blocks, --x -1",
        &[
            "l18_one_thing_is_told_in_the_singular",
            "l18_empty_address_empty_page_and_negative_number_are_refused_plainly",
        ],
    ),
    (
        "L18 demo: port of gRPC, txs_per_block, bytes on disk",
        &[
            "l18_demo_says_where_it_can_be_asked_and_what_it_left_on_disk",
            "l18_demo_names_the_option_that_is_wrong",
        ],
    ),
    (
        "Page: no way in for a newcomer",
        &[
            "page_newcomer_reaches_a_transaction_in_two_clicks",
            "page_search_takes_a_txid_an_outpoint_an_address_a_height_and_a_block_hash",
            "page_hashes_can_be_copied",
        ],
    ),
    ("Page: controls without a token", &["page_controls_are_offered_only_where_they_can_work"]),
    ("Page: two meanings of a label, inside language", &["page_labels_have_one_meaning_each"]),
    (
        "Page: prune now at once, a note that stays, a policy without words",
        &[
            "page_plan_is_shown_before_pruning",
            "page_note_of_a_job_goes_when_the_node_is_gone",
            "page_policy_is_shortened_only_after_what_it_deletes_is_shown",
            "page_policy_says_what_each_number_means",
        ],
    ),
    (
        "Page: without pruning starts again with the process",
        &["page_what_was_pruned_before_a_restart_counts_after_it"],
    ),
    (
        "Page: equal ticks, first spike, cut label",
        &[
            "page_tick_labels_differ_on_a_flat_line",
            "page_first_spike_does_not_flatten_the_throughput",
            "page_labels_of_charts_are_not_cut_on_a_phone",
        ],
    ),
    ("Page: the headline jumps", &["page_headline_keeps_its_height"]),
    ("Page: tables on a phone", &["page_phone_shows_what_matters_without_scrolling"]),
    (
        "Page: title and icon, first job cancelled, header twice, amounts without unit",
        &[
            "page_alert_reaches_the_title_and_the_icon",
            "h7_no_job_before_the_chain_is_followed",
            "page_header_does_not_say_the_same_twice",
            "page_amounts_have_a_unit_and_an_address_a_sum",
        ],
    ),
];

/// The names of all functions and browser steps below a directory.
fn names(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            names(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs" || end == "mjs") {
            let text = fs::read_to_string(&path).unwrap();
            let words =
                |start, end| text.split(start).skip(1).filter_map(move |rest: &str| rest.split(end).next());
            found.extend(words("fn ", '(').chain(words("step(\"", '"')).map(str::to_owned));
        }
    }
}

#[test]
fn every_finding_has_its_tests() {
    let mut found = BTreeSet::new();
    names(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &mut found);
    let numbers: BTreeSet<&str> =
        FINDINGS.iter().filter_map(|(finding, _)| finding.split(' ').next()).collect();
    assert_eq!(numbers.len(), 19, "18 numbers and the page: {numbers:?}");
    for (finding, tests) in FINDINGS {
        for test in *tests {
            assert!(found.contains(*test), "{finding}: there is no test {test}");
        }
    }
}

//! What every engine must do, told by cases.
//!
//! Each case takes an [`EngineFactory`](crate::EngineFactory) and panics where the engine does something else. The list of cases stands once, in
//! [`engine_cases`](crate::engine_cases); a test makes sure that no case is missing from it.
//!
//! # How an engine gets all of it
//! ```ignore
//! sapwood_conformance::engine_suite!(Factory);
//! ```

pub mod commits;
pub mod failures;
pub mod random;
pub mod reads;
pub mod reopening;
pub mod views;

mod rows;

/// Hands the list of all cases, by theme, to another macro.
#[doc(hidden)]
#[macro_export]
macro_rules! engine_cases {
    ([$($then:tt)+] $($with:tt)*) => {
        $($then)+! {
            $($with)*
            commits {
                new_engine_has_no_rows_and_no_commits,
                commits_are_numbered_without_gaps,
                refused_commit_changes_nothing,
                later_changes_of_one_commit_win,
                absent_rows_can_be_deleted,
                range_ends_before_its_end,
                tables_are_apart,
                rows_of_any_size_come_back,
                stats_name_every_table,
                background_work_changes_no_row,
                missing_capabilities_are_refused_with_a_reason,
            }
            reads {
                get_many_answers_in_the_order_of_the_keys,
                get_many_of_thousands_in_any_order,
                scan_goes_by_bytes_in_both_directions,
                scan_includes_its_start_and_excludes_its_end,
                scan_of_nothing_calls_nothing,
                scan_ends_when_told,
                scan_goes_over_the_rows_of_many_owners,
                scan_does_not_show_deleted_rows,
            }
            views {
                view_does_not_change_under_later_commits,
                views_of_every_commit_stay_apart,
                view_and_commit_do_not_wait_for_each_other,
                readers_see_whole_commits_only,
            }
            reopening {
                rows_and_number_survive,
                two_writers_cannot_both_commit,
                reader_reads_and_writes_nothing,
                ledger_goes_on_after_reopening,
            }
            failures {
                damaged_row_is_reported_for_its_own_key,
                failed_commit_poisons_the_ledger_until_reopened,
                every_write_is_refused_after_a_failed_one,
            }
            random {
                random_commits_agree_with_a_plain_map,
            }
        }
    };
}

/// Makes a test of each case for an engine.
#[macro_export]
macro_rules! engine_suite {
    ($factory:expr) => {
        $crate::engine_cases!([$crate::engine_tests][$factory]);
    };
}

/// Makes a test of each case.
#[doc(hidden)]
#[macro_export]
macro_rules! engine_tests {
    ([$factory:expr] $($theme:ident { $($case:ident,)* })*) => {
        $(
            mod $theme {
                #[allow(unused_imports, reason = "the factory may need what is around it")]
                use super::*;
                $(
                    #[test]
                    fn $case() {
                        $crate::engine::$theme::$case(&$factory);
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
    fn every_engine_case_is_listed_and_only_once() {
        let listed: Vec<(&str, &str)> = crate::engine_cases!([names]);
        let unique: BTreeSet<_> = listed.iter().map(|(theme, case)| format!("{theme}::{case}")).collect();
        assert_eq!(unique.len(), listed.len(), "a case is listed twice");
        let mut written = BTreeSet::new();
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/engine");
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let theme = path.file_stem().unwrap().to_str().unwrap().to_owned();
            for line in fs::read_to_string(&path).unwrap().lines() {
                let Some(rest) = line.strip_prefix("pub fn ") else { continue };
                let Some((case, _)) = rest.split_once("(factory: &dyn EngineFactory") else { continue };
                written.insert(format!("{theme}::{case}"));
            }
        }
        assert!(written.len() > 20, "only {} cases found: the search is broken", written.len());
        assert_eq!(unique, written);
    }
}

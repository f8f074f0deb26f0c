//! The suite every store passes, run against the real server from several connections at once.
//!
//! It holds the rules of [`emmer_store::contract`] and the cases the original's membership table
//! tests have (gateways, stale tokens, 20 writers of which one wins, heartbeats during votes,
//! clean-up). It needs an empty scratch database, no particular async runtime (whatever the store
//! itself needs must be running) and no luck: races are driven by many futures on several
//! connections and judged by their outcome, never by time.
//!
//! ```
//! # use std::sync::Arc;
//! # use emmer_store::{MemoryStore, SystemStore};
//! # use emmer_test_servers::suite::conformance;
//! # async fn example() {
//! let shared = MemoryStore::new();
//! let report = conformance::run(
//!     &|| {
//!         let connection: Arc<dyn SystemStore> = Arc::new(shared.clone());
//!         Box::pin(async move { Ok(connection) })
//!     },
//!     &mut |line| println!("{line}"),
//! )
//! .await;
//! assert!(report.is_success(), "{report}");
//! # }
//! ```

mod bench;
mod commits;
mod figures;
mod journals;
mod races;
mod reminders;
mod rows;
mod silos;
mod states;

use std::fmt;
use std::sync::Arc;

use emmer_store::contract::{BoxFuture, Result, SystemStore};

use bench::{Bench, Case};

/// Number of connections the suite opens.
pub const CONNECTIONS: usize = 4;

/// Findings of the suite.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct ConformanceReport {
    /// The cases that passed.
    pub passed: Vec<&'static str>,
    /// The cases that failed, each with the observed result.
    pub failed: Vec<(&'static str, String)>,
}

impl ConformanceReport {
    /// Returns true if every case ran and passed.
    pub fn is_success(&self) -> bool {
        self.failed.is_empty() && self.passed.len() == CASES.len()
    }
}

impl fmt::Display for ConformanceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} cases passed", self.passed.len(), CASES.len())?;
        self.failed.iter().try_for_each(|(name, why)| write!(f, "\n  {name}: {why}"))
    }
}

/// Opens one more independent connection to the same server.
pub type Factory<'f> = dyn Fn() -> BoxFuture<'static, Result<Arc<dyn SystemStore>>> + Sync + 'f;

type CaseFn = for<'a> fn(&'a Bench) -> BoxFuture<'a, Case>;

macro_rules! cases {
    ($($module:ident :: $case:ident),* $(,)?) => {
        &[$((concat!(stringify!($module), "::", stringify!($case)), |bench| Box::pin($module::$case(bench)))),*]
    };
}

static CASES: &[(&str, CaseFn)] = cases![
    rows::tables_are_made_by_many_at_once,
    rows::another_shape_is_refused,
    rows::a_table_never_made_is_not_found,
    rows::every_value_comes_back,
    rows::difficult_texts_come_back,
    rows::odd_keys_come_back_in_order,
    rows::large_values_come_back,
    rows::scan_takes_ranges_and_wraps_around,
    rows::a_sample_is_a_few_of_the_rows,
    rows::append_keeps_what_is_there,
    rows::clean_up_deletes_what_is_older,
    rows::touch_changes_one_column_only,
    rows::touch_of_a_missing_row_creates_nothing,
    rows::partitions_with_a_common_prefix_are_apart,
    commits::insert_refuses_an_existing_row,
    commits::replace_needs_the_row_and_its_etag,
    commits::upsert_writes_either_way,
    commits::delete_and_check_keep_their_conditions,
    commits::a_failed_commit_changes_nothing,
    commits::etags_never_come_back,
    commits::an_etag_of_another_row_is_a_conflict,
    commits::volatile_columns_are_left_alone,
    commits::a_hundred_mutations_and_no_more,
    commits::a_commit_keeps_the_limits_that_the_store_names,
    commits::requests_against_the_rules_are_invalid,
    races::one_of_many_inserts_wins,
    races::no_increment_is_lost,
    races::no_read_is_torn,
    races::a_read_that_needs_no_moment_is_never_put_off,
    races::heartbeats_never_cost_a_vote,
    races::connections_see_each_other,
    silos::an_empty_table_reads_as_version_zero,
    silos::gateways_are_the_active_silos_with_a_port,
    silos::a_second_insert_is_a_conflict,
    silos::stale_tokens_update_nothing,
    silos::twenty_writers_make_version_twenty,
    silos::a_heartbeat_leaves_everything_else_alone,
    silos::a_new_row_brings_its_first_heartbeat,
    silos::clean_up_deletes_dead_rows_only,
    silos::deleting_a_row_that_is_gone_is_a_conflict,
    silos::clusters_a_and_ab_are_apart,
    silos::versions_and_rows_change_together,
    silos::ninety_nine_rows_and_no_more,
    states::a_state_is_written_read_and_cleared,
    states::a_stale_etag_writes_nothing,
    states::kinds_of_keys_and_odd_keys_are_apart,
    states::racing_writers_lose_nothing,
    states::many_grains_at_once_have_a_partition_each,
    journals::a_journal_grows_is_cut_and_keeps_stale_writers_out,
    reminders::upserts_of_one_row_have_an_etag_each,
    reminders::a_reminder_comes_back_and_goes,
    reminders::ranges_of_the_ring_are_found,
    reminders::what_is_due_is_found_without_the_rest,
    reminders::difficult_names_and_keys_are_apart,
    figures::a_silo_and_a_client_have_a_row_each,
    figures::statistics_are_added_and_the_newest_come_first,
    figures::history_is_kept_until_it_is_cleaned,
];

/// The names of all cases.
pub fn case_names() -> impl Iterator<Item = &'static str> {
    CASES.iter().map(|(name, _)| *name)
}

/// Runs every case, one after the other, on [`CONNECTIONS`] connections from `factory`. `report` is
/// given one line per case as it ends.
pub async fn run(
    factory: &Factory<'_>,
    report: &mut (dyn FnMut(&str) + Send),
) -> ConformanceReport {
    let mut found = ConformanceReport::default();
    let bench = match Bench::open(factory).await {
        Ok(bench) => bench,
        Err(failure) => {
            found.failed.push(("open", failure.to_string()));
            report(&format!("FAILED open: {failure}"));
            return found;
        }
    };
    for (name, case) in CASES {
        match case(&bench).await {
            Ok(()) => {
                found.passed.push(name);
                report(&format!("ok {name}"));
            }
            Err(failure) => {
                report(&format!("FAILED {name}: {failure}"));
                found.failed.push((name, failure.to_string()));
            }
        }
    }
    found
}

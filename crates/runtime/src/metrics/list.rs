//! Every metric of a silo, declared once: name, kind, labels and meaning. The page
//! `docs/metrics.md` is made from this list, and a test compares the list with the metrics of a
//! cluster.
//!
//! Names are Prometheus's: a unit at the end (`_seconds`, `_bytes`), `_total` for what only grows.

use std::fmt;

/// The way in which a metric's value changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It only grows, from 0 at the silo's start.
    Counter,
    /// It goes up and down.
    Gauge,
    /// It counts durations, by how long they were.
    Histogram,
}

impl fmt::Display for MetricKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        })
    }
}

/// One metric.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metric {
    /// The name, as `emmer_activations`.
    pub name: &'static str,
    /// Kind of change of its value.
    pub kind: MetricKind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// One or two sentences.
    pub meaning: &'static str,
}

macro_rules! metrics {
    ($($id:ident $kind:ident $name:literal [$($label:literal),*] $meaning:literal)*) => {
        $(pub(crate) static $id: Metric = Metric {
            name: $name,
            kind: MetricKind::$kind,
            labels: &[$($label),*],
            meaning: $meaning,
        };)*

        /// Every metric, in the order of the page.
        pub static METRICS: &[&Metric] = &[$(&$id),*];
    };
}

metrics! {
    SILO_INFO Gauge "emmer_silo_info" ["silo", "name", "cluster", "version"]
        "Always 1. Its labels name the silo, its cluster and the version of Emmer."
    SILO_STATUS Gauge "emmer_silo_status" ["status"]
        "1 for the silo's own status in the view in force, 0 for every other one."

    VIEW_VERSION Gauge "emmer_membership_view_version" []
        "The version of the membership view in force. Silos of one cluster show the same."
    SILOS Gauge "emmer_membership_silos" ["status"]
        "Silos in the view in force, by their status."
    VIEWS Counter "emmer_membership_views_total" []
        "Views put in force."
    PROBES Counter "emmer_membership_probes_total" ["event"]
        "Direct probes of other silos: `sent`, `answered`, `missed`, and `received` from others."
    INDIRECT_PROBES Counter "emmer_membership_indirect_probes_total" []
        "Probes that another silo was asked to make."
    VOTES Counter "emmer_membership_votes_total" ["event"]
        "Suspicions: `cast` by this silo, `received` against it, `withdrawn` by it."
    DEATHS Counter "emmer_membership_deaths_total" []
        "Silos that this one wrote down as Dead."
    COMMITS Counter "emmer_membership_commits_total" ["outcome"]
        "Commits to the membership table: `tried`, `lost` to another writer, of `unknown` outcome."
    TABLE_AWAY Counter "emmer_membership_table_unavailable_total" []
        "Requests that the membership table did not answer."
    TABLE_ANSWER_AGE Gauge "emmer_membership_table_answer_age_seconds" []
        "The time since the membership table last answered this silo."
    HEALTH Gauge "emmer_health_score" []
        "How unwell the silo takes itself for: 0 is healthy, 8 the worst."
    FENCE Gauge "emmer_fence_shut" []
        "1 while the silo runs no turns because no other silo confirms that it is alive."
    FENCES Counter "emmer_fence_shut_total" []
        "Times the fence shut."
    FENCE_SECONDS Counter "emmer_fence_shut_seconds_total" []
        "The time for which the fence was shut."

    STORE_REQUESTS Counter "emmer_store_requests_total" ["operation", "outcome"]
        "Requests to the system store, by operation; `ok`, `conflict`, `unknown` or `error`."
    STORE_SECONDS Histogram "emmer_store_request_seconds" ["operation"]
        "How long requests to the system store took."

    REGISTRATIONS Gauge "emmer_directory_registrations" []
        "Grains whose place this silo's part of the directory knows."
    DIRECTORY_REQUESTS Counter "emmer_directory_requests_total" ["operation"]
        "Requests that this silo's grains and calls made to the directory: `register`, `lookup`, \
         `unregister`."
    PLACED Counter "emmer_placements_total" ["outcome"]
        "Grains for which a silo was chosen: this one (`here`), another one (`elsewhere`), or none \
         (`failed`)."

    ACTIVATIONS Gauge "emmer_activations" ["grain"]
        "Activations in memory, by grain type."
    ACTIVATED Counter "emmer_activations_begun_total" ["grain"]
        "Activations that were made, by grain type."
    DEACTIVATED Counter "emmer_deactivations_total" ["grain"]
        "Activations that ended, by grain type."
    ACTIVATIONS_FAILED Counter "emmer_activation_failures_total" ["grain"]
        "Activations that failed, by grain type."
    ACTIVATION_SECONDS Histogram "emmer_activation_seconds" ["grain"]
        "How long one activation in 8 took, from the registration to the end of the hook, by grain \
         type."
    MOVES Counter "emmer_moves_total" ["grain", "outcome"]
        "Grains that moved: to this silo (`arrived`), from it (`left`), those that the other silo did \
         not take (`returned`), and those that were lost with it (`lost`)."
    MOVE_SECONDS Histogram "emmer_move_seconds" ["grain"]
        "How long the calls of a grain that left for another silo waited, by grain type."
    BUSY Gauge "emmer_activations_recently_used" []
        "Activations that were called within ten minutes, as of the last load report."

    STATES Counter "emmer_state_operations_total" ["operation", "outcome"]
        "What grains asked of their states and journals: `read`, `write`, `append`, `snapshot` or \
         `clear`; `conflict`: another process wrote since it was read, `unknown`: it may have \
         happened."

    TURNS Counter "emmer_turns_total" []
        "Turns begun: the sum of all methods' calls."
    TURNS_WAITING Gauge "emmer_turns_waiting" []
        "Turns that wait for their grain."
    TURNS_BLOCKING Counter "emmer_turns_blocking_total" []
        "Turns that held their thread for 100 ms without an `await`. The log names their methods."
    CALLS Counter "emmer_calls_total" ["grain", "method"]
        "Calls whose turn began on this silo, by grain type and method."
    CALL_ERRORS Counter "emmer_call_errors_total" ["grain", "method", "kind"]
        "Calls that failed: with the method's own error (`own`), or otherwise (`failed`): a panic, \
         a result that cannot be encoded, an activation that failed."
    CALL_SECONDS Histogram "emmer_call_seconds" ["grain", "method"]
        "How long one call in 64 took on this silo, waiting for its turn included."
    CALLS_RECEIVED Counter "emmer_calls_received_total" []
        "Calls that came over connections."
    CALLS_FORWARDED Counter "emmer_calls_forwarded_total" []
        "Calls that were passed on to another silo."
    CALLS_REFUSED Counter "emmer_calls_refused_total" []
        "Calls that were refused because a limit was reached."
    ONE_WAYS_LOST Counter "emmer_one_way_calls_lost_total" ["outcome"]
        "One-way calls that this silo sent or passed on and that did not run (`failed`), or that \
         another process may not have read when the connection to it broke (`unknown`)."
    CALLS_SHED Counter "emmer_calls_shed_total" []
        "Calls of clients that were refused because the silo had too much to do."
    SHEDDING Gauge "emmer_load_shedding" []
        "1 while the silo refuses calls of clients because it has too much to do."
    CALLS_IN_FLIGHT Gauge "emmer_calls_in_flight" []
        "Calls that this silo has sent over connections and waits for."
    CALLS_SERVING Gauge "emmer_calls_serving" []
        "Calls of others that are under way here and were not answered at once."
    CLIENT_BYTES Gauge "emmer_client_bytes" []
        "Bytes that clients make this silo hold: arguments of calls, and answers not read."

    STREAMS Gauge "emmer_streams" ["end"]
        "Streams between this silo and other processes: `written` here, `read` here."
    STREAM_VALUES Counter "emmer_stream_values_total" ["end"]
        "Values of these streams: `written` here, `read` here."
    STREAMS_BROKEN Counter "emmer_streams_broken_total" []
        "Streams that were read here and ended before their writer had finished."

    CONNECTIONS Gauge "emmer_connections" ["peer"]
        "Open connections, to silos (`silo`) and of clients (`client`)."
    MESSAGES Counter "emmer_messages_total" ["direction"]
        "Frames over all connections: `sent` and `received`."
    BYTES Counter "emmer_bytes_total" ["direction"]
        "Bytes over all connections: `sent` and `received`."
    SEND_QUEUE Gauge "emmer_send_queue_bytes" []
        "Bytes that wait to be sent, over all connections."

    TIMERS Gauge "emmer_timers" []
        "Timers of activations that will tick again."
    REMINDERS Gauge "emmer_reminders" []
        "Reminders in memory: those that this silo fires and that are due soon."
    REMINDERS_FIRED Counter "emmer_reminder_ticks_total" ["outcome"]
        "Ticks of reminders: `delivered`, `failed` (each try), `missed`."

    CPU Gauge "emmer_cpu_percent" []
        "Use of the processors in percent, averaged over some seconds: of the machine's or of \
         those that the process may use, whichever is more. Missing where it is not measured."
    MEMORY Gauge "emmer_memory_percent" []
        "Use of the memory in percent, of the machine's or of the container's limit. Missing where \
         it is not measured."
    MEMORY_BYTES Gauge "emmer_memory_bytes" []
        "The memory of the process. Missing where it is not measured."
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_and_labels_follow_the_rules() {
        let mut names = BTreeSet::new();
        for metric in METRICS {
            let Metric { name, kind, labels, meaning } = metric;
            assert!(names.insert(name) && name.starts_with("emmer_"), "{name}");
            let is_word = |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
            assert!(is_word(name) && labels.iter().all(|label| is_word(label)), "{name}");
            assert_eq!(name.ends_with("_total"), *kind == MetricKind::Counter, "{name}");
            assert!(*kind != MetricKind::Histogram || name.ends_with("_seconds"), "{name}");
            assert!(meaning.ends_with('.') && !meaning.contains("  "), "{name}: {meaning}");
        }
    }
}

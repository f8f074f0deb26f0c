//! The risks of the server, and other facts for an operator.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use emmer_core::Timestamp;
use emmer_store::examine::{ClockDifference, Examination, FindingLevel, FindingSubject};
use emmer_store_keyvalue::security;

/// Words of the server about itself: `INFO`, and `CONFIG GET` where this user may ask.
#[derive(Clone, Debug, Default)]
pub(crate) struct Server {
    facts: BTreeMap<String, String>,
}

impl Server {
    /// Reads `INFO`: lines of `name:value`.
    pub(crate) fn of_info(info: &str) -> Self {
        let pairs = info.lines().filter_map(|line| line.trim_end().split_once(':'));
        Self { facts: pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect() }
    }

    /// Adds what `CONFIG GET` says: names and values in turn.
    pub(crate) fn with_config(mut self, settings: &[String]) -> Self {
        for pair in settings.chunks_exact(2) {
            if let [name, value] = pair {
                self.facts.insert(format!("config {name}"), value.clone());
            }
        }
        self
    }

    fn fact(&self, name: &str) -> &str {
        self.facts.get(name).map_or("", String::as_str)
    }

    /// The product and its version.
    pub(crate) fn name(&self) -> (&'static str, &str) {
        match self.fact("valkey_version") {
            "" => ("Redis", self.fact("redis_version")),
            version => ("Valkey", version),
        }
    }

    /// Why acknowledged writes may be lost, each with what to do about it. Empty: a crash loses
    /// none.
    pub(crate) fn losses(&self) -> Vec<String> {
        let mut losses = Vec::new();
        if self.facts.is_empty() {
            let unknown = "this user may not run INFO, so the server's durability is unknown: \
                           unless it has appendonly yes, appendfsync always and maxmemory-policy \
                           noeviction, commits that were answered may be lost";
            return vec![unknown.to_owned()];
        }
        if self.fact("aof_enabled") == "1" {
            match self.fact("config appendfsync") {
                "always" => {}
                "" => losses.push(
                    "this user may not run CONFIG, so appendfsync is unknown: unless it is \
                     always, a crash loses the commits of about a second that were answered; set \
                     appendfsync always"
                        .to_owned(),
                ),
                other => losses.push(format!(
                    "appendfsync is {other}: a crash loses the commits of about a second that were \
                     answered; set appendfsync always"
                )),
            }
        } else {
            let kept = match self.fact("config save") {
                "" => "nothing is kept on disk, as far as is known",
                _ => "only snapshots are kept on disk",
            };
            losses.push(format!(
                "appendonly is off and {kept}: a crash loses the commits since then that were \
                 answered; set appendonly yes and appendfsync always"
            ));
        }
        let (policy, max) = (self.fact("maxmemory_policy"), self.fact("maxmemory"));
        if !policy.is_empty() && policy != "noeviction" && max != "0" {
            losses.push(format!(
                "maxmemory-policy is {policy}: the server deletes the cluster's tables when its \
                 memory is full; set maxmemory-policy noeviction"
            ));
        }
        losses
    }

    /// As [`warnings`](Self::warnings), with the losses of a failover.
    pub(crate) fn risks(&self, wait_replicas: u32) -> Vec<String> {
        let mut risks = self.losses();
        let replicas = self.fact("connected_slaves");
        if wait_replicas == 0 && !matches!(replicas, "" | "0") {
            risks.push(format!(
                "{replicas} replicas follow asynchronously: a failover loses the newest commits \
                 that were answered; add ?wait_replicas=1 to the URL"
            ));
        }
        risks
    }

    /// Returns true if it is a node of a cluster.
    pub(crate) fn is_node(&self) -> bool {
        self.fact("cluster_enabled") == "1"
    }

    /// The whole report.
    pub(crate) fn examination(&self, wait_replicas: u32, tls: bool, password: bool) -> Examination {
        let (product, version) = self.name();
        let mut found = Examination::of(product, version);
        for loss in self.risks(wait_replicas) {
            found.may_lose_writes(loss);
        }
        if self.fact("role") == "slave" {
            let text = "the server is a replica and takes no writes; name the primary";
            found.add(FindingLevel::Problem, FindingSubject::Setup, text);
        }
        let encrypt_by = (!tls).then_some("use rediss://");
        security::note(&mut found, (!password).then_some("password"), encrypt_by);
        found
    }
}

/// The other primaries that the answer of `CLUSTER NODES` names, as `host:port`: a line for each
/// node, with its id, its address (`host:port@bus,name`) and its flags.
pub(crate) fn other_primaries(nodes: &str) -> Vec<String> {
    let primary = |line: &str| {
        let mut words = line.split(' ');
        let (_, address, flags) = (words.next()?, words.next()?, words.next()?);
        let has = |flag: &str| flags.split(',').any(|found| found == flag);
        let (place, _) = address.split_once('@')?;
        (has("master") && !has("myself") && !has("fail") && !has("noaddr"))
            .then(|| place.to_owned())
    };
    nodes.lines().filter_map(primary).collect()
}

/// The answer of `TIME`, seconds and microseconds, as a clock difference.
pub(crate) fn clock(
    asked: SystemTime,
    time: &[String],
    answered: SystemTime,
) -> Option<ClockDifference> {
    let [seconds, micros] = time else { return None };
    let ms = seconds
        .parse::<i64>()
        .ok()?
        .checked_mul(1_000)?
        .checked_add(micros.parse::<i64>().ok()? / 1_000)?;
    Some(ClockDifference::measured(
        asked,
        Timestamp::from_millis(ms),
        answered,
        Duration::from_millis(1),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(aof: &str, fsync: &str, policy: &str) -> Server {
        let info = format!(
            "# \
             Server\r\nredis_version:7.0.15\r\naof_enabled:{aof}\r\nmaxmemory_policy:{policy}\r\nmaxmemory:100\r\n"
        );
        let config = if fsync.is_empty() {
            vec![]
        } else {
            ["appendfsync", fsync].map(str::to_owned).to_vec()
        };
        Server::of_info(&info).with_config(&config)
    }

    #[test]
    fn only_a_server_that_syncs_every_write_and_evicts_nothing_loses_none() {
        assert!(server("1", "always", "noeviction").losses().is_empty());
        for (aof, fsync, policy, word) in [
            ("1", "everysec", "noeviction", "appendfsync is everysec"),
            ("1", "", "noeviction", "this user may not run"),
            ("0", "always", "noeviction", "appendonly is off"),
            ("1", "always", "allkeys-lru", "allkeys-lru"),
        ] {
            let losses = server(aof, fsync, policy).losses();
            assert!(losses.len() == 1 && losses[0].contains(word), "{losses:?}");
            assert!(server(aof, fsync, policy).examination(0, true, true).warns_of_lost_writes());
        }
        assert!(Server::default().losses()[0].contains("may not run INFO"));
    }

    #[test]
    fn the_other_primaries_are_found() {
        let nodes = "07c3 127.0.0.1:30004@31004,one slave e7d1 0 1426238317239 4 connected\n\
                     67ed 127.0.0.1:30002@31002 master - 0 1426238316232 2 connected 5461-10922\n\
                     292f 127.0.0.1:30003@31003 master,fail - 0 1426238318243 3 connected \
                     10923-16383\n\
                     e7d1 127.0.0.1:30001@31001 myself,master - 0 0 1 connected 0-5460\n";
        assert_eq!(other_primaries(nodes), ["127.0.0.1:30002"]);
    }

    #[test]
    fn a_replica_is_a_problem_and_a_primary_with_replicas_a_risk() {
        let of = |info: &str| {
            Server::of_info(&format!("aof_enabled:1\nredis_version:7\n{info}"))
                .with_config(&["appendfsync", "always"].map(str::to_owned))
        };
        let replica = of("role:slave").examination(0, true, true);
        assert_eq!(replica.findings[0].level, FindingLevel::Problem);
        assert!(of("connected_slaves:2").examination(0, true, true).warns_of_lost_writes());
        assert!(!of("connected_slaves:2").examination(1, true, true).warns_of_lost_writes());
        assert_eq!(of("valkey_version:8.1").name(), ("Valkey", "8.1"));
    }
}

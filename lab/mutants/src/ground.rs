//! Sources that are mutated, and the tests that hunt the mutants: the protocol by its simulator,
//! the runtime by its swarm, reminders, streams and connections by the worlds of their own tests.

/// One of the five.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ground {
    /// The machines of membership and directory.
    #[default]
    Protocol,
    /// The tokio shell: calls, activations, connections.
    Runtime,
    /// The machine of reminders.
    Reminders,
    /// The machines of the two ends of a stream.
    Streams,
    /// The machine of the two ends of a connection.
    Link,
}

impl Ground {
    #[cfg(test)]
    pub(crate) const ALL: [Self; 5] =
        [Self::Protocol, Self::Runtime, Self::Reminders, Self::Streams, Self::Link];

    /// Mutated crates, by folder, with their package.
    pub(crate) const fn crates(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Protocol => &[
                ("crates/membership", "emmer-membership"),
                ("crates/directory", "emmer-directory"),
            ],
            Self::Runtime => &[("crates/net", "emmer-net"), ("crates/runtime", "emmer-runtime")],
            Self::Reminders => &[("crates/reminders", "emmer-reminders")],
            Self::Streams => &[("crates/streams", "emmer-streams")],
            Self::Link => &[("crates/link", "emmer-link")],
        }
    }

    /// The folders of the crates whose sources decide the result of a hunt. Placement is left out:
    /// the simulator takes any silo that it is given. A change of its random choices may change a
    /// seed's run, and a kept result still counts.
    pub(crate) const fn sources(self) -> &'static [&'static str] {
        match self {
            Self::Protocol => &[
                "crates/core",
                "crates/store",
                "crates/wire",
                "crates/membership",
                "crates/directory",
                "lab/sim",
            ],
            Self::Runtime => &[
                "crates/core",
                "crates/store",
                "crates/wire",
                "crates/placement",
                "crates/membership",
                "crates/directory",
                "crates/macros",
                "crates/virtual",
                "crates/link",
                "crates/net",
                "crates/runtime",
                "crates/testkit",
                "crates/emmer",
                "lab/swarm",
            ],
            Self::Reminders => &["crates/core", "crates/reminders"],
            Self::Streams => &["crates/core", "crates/streams"],
            Self::Link => &["crates/core", "crates/wire", "crates/link"],
        }
    }

    /// The folder of the crate that hunts, with an example called `hunt`; none if the unit tests
    /// do.
    pub(crate) const fn hunter(self) -> Option<&'static str> {
        match self {
            Self::Protocol => Some("lab/sim"),
            Self::Runtime => Some("lab/swarm"),
            Self::Reminders | Self::Streams | Self::Link => None,
        }
    }

    /// The list of its mutants.
    pub(crate) const fn list(self) -> &'static str {
        match self {
            Self::Protocol => "lab/mutants/protocol.toml",
            Self::Runtime => "lab/mutants/runtime.toml",
            Self::Reminders => "lab/mutants/reminders.toml",
            Self::Streams => "lab/mutants/streams.toml",
            Self::Link => "lab/mutants/link.toml",
        }
    }

    /// Name of its folder below `target/mutants`.
    pub(crate) const fn tree(self) -> &'static str {
        match self {
            Self::Protocol => "tree",
            Self::Runtime => "tree-runtime",
            Self::Reminders => "tree-reminders",
            Self::Streams => "tree-streams",
            Self::Link => "tree-link",
        }
    }
}

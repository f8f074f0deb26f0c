//! What is mutated, and by what it is hunted: the protocol by its simulator, the runtime by its
//! swarm, reminders by the worlds of their own tests.

/// One of the three.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ground {
    /// The machines of membership and directory.
    #[default]
    Protocol,
    /// The tokio shell: calls, activations, connections.
    Runtime,
    /// The machine of reminders.
    Reminders,
}

impl Ground {
    /// Mutated crates, by folder, with their package.
    pub(crate) const fn crates(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Protocol => &[
                ("crates/membership", "emmer-membership"),
                ("crates/directory", "emmer-directory"),
            ],
            Self::Runtime => &[("crates/runtime", "emmer-runtime")],
            Self::Reminders => &[("crates/reminders", "emmer-reminders")],
        }
    }

    /// The folders of the crates whose sources decide what a hunt finds.
    /// Placement is left out: the simulator takes any silo that it is given. A change of its random
    /// choices may change what a seed does, and a result that is kept still counts.
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
                "crates/runtime",
                "crates/testkit",
                "crates/emmer",
                "lab/swarm",
            ],
            Self::Reminders => &["crates/core", "crates/reminders"],
        }
    }

    /// The folder of the crate that hunts, with an example called `hunt`; none if the unit tests
    /// do.
    pub(crate) const fn hunter(self) -> Option<&'static str> {
        match self {
            Self::Protocol => Some("lab/sim"),
            Self::Runtime => Some("lab/swarm"),
            Self::Reminders => None,
        }
    }

    /// Where the lists of mutants written by hand are.
    pub(crate) const fn lists(self) -> &'static str {
        match self {
            Self::Protocol => "lab/mutants/protocol",
            Self::Runtime => "lab/mutants/runtime",
            Self::Reminders => "lab/mutants/reminders",
        }
    }

    /// What its folder below `target/mutants` is called.
    pub(crate) const fn tree(self) -> &'static str {
        match self {
            Self::Protocol => "tree",
            Self::Runtime => "tree-runtime",
            Self::Reminders => "tree-reminders",
        }
    }

    /// Files and folders of the mutated crates that decide nothing: forms of data, options,
    /// counters, test worlds.
    pub(crate) const fn left_out(self) -> &'static [&'static str] {
        match self {
            Self::Protocol => &[
                "/config/",
                "api.rs",
                "chaos_tests.rs",
                "compact.rs",
                "config.rs",
                "counters.rs",
                "humane.rs",
                "lib.rs",
                "message.rs",
                "planted.rs",
                "scale_tests.rs",
                "supersede_tests.rs",
                "wire_tests.rs",
                "world.rs",
                "world_tests.rs",
            ],
            Self::Runtime => &[
                "/metrics/",
                "/world/",
                "bounds_tests.rs",
                "clock.rs",
                "error.rs",
                "interface.rs",
                "lib.rs",
                "options.rs",
                "call.rs",
            ],
            Self::Reminders => &["/world_tests/", "api.rs", "lib.rs"],
        }
    }
}

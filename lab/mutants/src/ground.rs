//! What is mutated, and by what it is hunted: the protocol by its simulator, the runtime by its
//! swarm.

/// One of the two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ground {
    /// The machines of membership and directory.
    #[default]
    Protocol,
    /// The tokio shell: calls, activations, connections.
    Runtime,
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
        }
    }

    /// The folders of the crates whose sources decide what a hunt finds; the last one hunts.
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
        }
    }

    /// The folder of the crate that hunts, with an example called `hunt`.
    pub(crate) const fn hunter(self) -> &'static str {
        match self {
            Self::Protocol => "lab/sim",
            Self::Runtime => "lab/swarm",
        }
    }

    /// Where the lists of mutants written by hand are.
    pub(crate) const fn lists(self) -> &'static str {
        match self {
            Self::Protocol => "lab/mutants/protocol",
            Self::Runtime => "lab/mutants/runtime",
        }
    }

    /// What its folder below `target/mutants` is called.
    pub(crate) const fn tree(self) -> &'static str {
        match self {
            Self::Protocol => "tree",
            Self::Runtime => "tree-runtime",
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
        }
    }
}

//! The parameters that the URLs of all SQL servers share.

use emmer_store::{Parameter, Parameters};

/// The most connections at once.
pub const POOL_MAX: Parameter = Parameter::number("pool_max", 1, 64);
/// Level of TLS, see [`TlsMode`].
pub const SSL_MODE: Parameter =
    Parameter::one_of("sslmode", &["disable", "prefer", "require", "verify-full"]);
/// The file with the certificates of the authorities that are trusted.
pub const CA_FILE: Parameter = Parameter::text("ca_file").or("sslrootcert");

/// Level of TLS of a URL (`sslmode=`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsMode {
    /// None, even if the server offers it.
    Disable,
    /// If the server offers it, for any server.
    Prefer,
    /// Nothing without, for any server.
    Require,
    /// Nothing without, and only from a server with a certificate for its name from a root that is
    /// trusted.
    VerifyFull,
}

impl TlsMode {
    /// The mode that a URL asks for, or the usual one.
    pub fn of(parameters: &Parameters, usual: Self) -> Self {
        match parameters.text("sslmode") {
            Some("disable") => Self::Disable,
            Some("prefer") => Self::Prefer,
            Some("require") => Self::Require,
            Some("verify-full") => Self::VerifyFull,
            _ => usual,
        }
    }
}

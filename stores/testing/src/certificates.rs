//! Certificates for tests of TLS, made by `openssl`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Trouble;
use crate::process::{find, run};

/// Debian's package.
pub const PACKAGE: &str = "openssl";

/// The files of an unknown authority, and of a server it vouches for.
#[derive(Clone, Debug)]
pub struct Certificates {
    /// The authority's certificate, PEM.
    pub authority: PathBuf,
    /// The server's certificate, for `127.0.0.1` and `localhost`, PEM.
    pub certificate: PathBuf,
    /// The server's key, PEM.
    pub key: PathBuf,
}

impl Certificates {
    /// Makes new ones in `folder`.
    ///
    /// # Errors
    /// OpenSSL is not installed, or fails.
    pub fn new(folder: &Path) -> Result<Self, Trouble> {
        let missing = || Trouble::Missing { program: "openssl".to_owned(), package: PACKAGE };
        let openssl = find("openssl", &[]).ok_or_else(missing)?;
        let file = |name: &str| folder.join(name);
        let new_key =
            ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
        let command = || {
            let mut command = Command::new(&openssl);
            command.current_dir(folder);
            command
        };
        run(command()
            .args(new_key)
            .args(["-x509", "-days", "2", "-subj", "/CN=emmer test authority"])
            .args(["-keyout", "ca.key", "-out", "ca.pem"]))?;
        run(command().args(new_key).args([
            "-subj",
            "/CN=localhost",
            "-keyout",
            "server.key",
            "-out",
            "server.csr",
        ]))?;
        let names =
            "subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n";
        std::fs::write(file("names"), names).map_err(|e| Trouble::Failed(e.to_string()))?;
        run(command()
            .args(["x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key"])
            .args(["-CAcreateserial", "-days", "2", "-extfile", "names", "-out", "server.pem"]))?;
        Ok(Self {
            authority: file("ca.pem"),
            certificate: file("server.pem"),
            key: file("server.key"),
        })
    }
}

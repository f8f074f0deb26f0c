//! Certificates for servers of tests, made by `openssl`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::Trouble;
use crate::process::{find, run};

/// A root and a certificate for 127.0.0.1 that it signed. Dropped, the files are removed.
#[derive(Debug)]
pub struct Certificates {
    folder: TempDir,
}

impl Certificates {
    /// Makes them.
    ///
    /// # Errors
    /// `openssl` is missing or fails.
    pub fn make() -> Result<Self, Trouble> {
        let missing = || Trouble::Missing { program: "openssl".to_owned(), package: "openssl" };
        let openssl = find("openssl", &[PathBuf::from("/usr/bin")]).ok_or_else(missing)?;
        let failed = |e: std::io::Error| Trouble::Failed(e.to_string());
        let folder = TempDir::with_prefix("emmer-tls-").map_err(failed)?;
        fs::write(folder.path().join("names"), "subjectAltName=IP:127.0.0.1\n").map_err(failed)?;
        let new_key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        for line in [
            format!("req -x509 {new_key} -keyout root.key -out root.crt -days 30 -subj /CN=root"),
            format!("req {new_key} -keyout server.key -out server.csr -subj /CN=server"),
            "x509 -req -in server.csr -CA root.crt -CAkey root.key -CAcreateserial -out server.crt \
             -days 30 -extfile names"
                .to_owned(),
        ] {
            run(Command::new(&openssl).args(line.split(' ')).current_dir(folder.path()))?;
        }
        Ok(Self { folder })
    }

    /// The root's certificate.
    pub fn root(&self) -> PathBuf {
        self.folder.path().join("root.crt")
    }

    /// Puts `server.crt` and `server.key` into a folder of `user`, who alone may read the key.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn install(&self, folder: &Path, user: &str) -> Result<(), Trouble> {
        for name in ["server.crt", "server.key"] {
            let file = folder.join(name);
            fs::copy(self.folder.path().join(name), &file)
                .map_err(|e| Trouble::Failed(e.to_string()))?;
            run(Command::new("chmod").arg("600").arg(&file))?;
            crate::process::give_to(user, &file)?;
        }
        Ok(())
    }
}

//! Silo processes that are encrypted, and those that are not let in.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use emmer::certs::{Authority, Wanted};

use crate::harness::{Silo, emmer, failure, members, run, store_in, wait_for, wait_status};

const FREE: &str = "127.0.0.1:0";

/// A folder with a store, and what `emmer certs` makes.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn store(&self) -> String {
        store_in(self.0.path())
    }

    pub(crate) fn certs(&self, folder: &str, more: &[&str]) {
        let folder = self.file(folder);
        let mut args = vec!["certs", folder.to_str().unwrap(), "--cluster-id", "test"];
        args.extend(more);
        let made = run(&args);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }

    /// Makes `ours/FILE.pem` and its key.
    pub(crate) fn issue(&self, file: &str, wanted: &Wanted) {
        let ours = self.file("ours");
        let made = |name| fs::read_to_string(ours.join(name)).unwrap();
        let authority = Authority::of(&made("authority.pem"), &made("authority.key")).unwrap();
        let issued = authority.issue(wanted).unwrap();
        fs::write(ours.join(format!("{file}.pem")), issued.certificate).unwrap();
        fs::write(ours.join(format!("{file}.key")), issued.key).unwrap();
    }

    /// The flags of a silo that shows `FILE.pem` of a folder.
    pub(crate) fn shows(&self, folder: &str, file: &str) -> Vec<String> {
        let set = |key: &str, name: &str| {
            ["--set".to_owned(), format!("tls.{key}={}/{name}", self.file(folder).display())]
        };
        let (certificate, key) = (format!("{file}.pem"), format!("{file}.key"));
        [set("authority", "authority.pem"), set("certificate", &certificate), set("key", &key)]
            .concat()
    }

    fn secret(&self, folder: &str) -> Vec<String> {
        let file = self.file(folder).join("cluster.secret");
        vec!["--set".to_owned(), format!("tls.secret={}", file.display())]
    }
}

/// Joins in a second, and notices in seconds that it cannot.
fn flags(more: &[String]) -> Vec<&str> {
    let mut all = vec!["--profile", "fast"];
    all.extend(more.iter().map(String::as_str));
    all
}

pub(crate) fn start(folder: &Folder, more: &[String]) -> Silo {
    Silo::start(&folder.store(), FREE, &flags(more))
}

/// A silo that does not join: its exit code and its words.
fn stranger(folder: &Folder, more: &[String]) -> (Option<i32>, String) {
    let Err((status, said)) = Silo::try_start(&folder.store(), FREE, &flags(more)) else {
        panic!("it has joined")
    };
    (status.code(), said)
}

/// Ends a silo, and returns its output.
pub(crate) fn end(mut silo: Silo) -> String {
    silo.process.signal("TERM");
    let (status, said) = silo.process.end();
    assert!(status.success(), "{status}: {said}");
    said
}

#[test]
fn strangers_do_not_join_and_both_sides_say_why() {
    let folder = Folder::new();
    folder.certs("ours", &[]);
    folder.certs("theirs", &[]);
    folder.certs("ours", &["--secret"]);
    let ours = folder.shows("ours", "silo");
    for (shows, here, there) in [
        (
            folder.shows("theirs", "silo"),
            "the certificate is of an authority that is not believed",
            "the peer does not know the authority of this certificate",
        ),
        (
            Vec::new(),
            "this port accepts encrypted connections only (TLS)",
            "this port accepts encrypted connections only (TLS)",
        ),
        (
            folder.secret("ours"),
            "a secret, and the other one certificates",
            "a secret, and the other one certificates",
        ),
    ] {
        let silo = start(&folder, &ours);
        let (code, said) = stranger(&folder, &shows);
        assert_eq!(code, Some(5), "{said}");
        assert!(said.contains("WARN") && said.contains("a silo was not connected to"), "{said}");
        assert!(said.contains(here), "{said}");
        wait_status(&folder.store(), &silo.address, "Active");
        let said = end(silo);
        assert!(said.contains("a connection of a silo was refused"), "{said}");
        assert!(said.contains(there), "{said}");
    }
}

#[test]
fn a_cluster_by_certificates_or_by_a_secret_is_shown_to_be_encrypted() {
    let folder = Folder::new();
    folder.certs("ours", &["--silo", "a", "--address", "127.0.0.1"]);
    folder.certs("ours", &["--silo", "b", "--address", "127.0.0.1", "--client", "billing"]);
    folder.certs("ours", &["--secret"]);
    for [a, b] in [
        [folder.shows("ours", "a"), folder.shows("ours", "b")],
        [folder.secret("ours"), folder.secret("ours")],
    ] {
        let silos = [start(&folder, &a), start(&folder, &b)];
        for silo in &silos {
            wait_status(&folder.store(), &silo.address, "Active");
        }
        let store = folder.store();
        let args = ["members", "--store", &store, "--cluster-id", "test", "--ports"];
        let shown = String::from_utf8(run(&args).stdout).unwrap();
        let encrypted = shown.lines().filter(|line| line.ends_with(" tls"));
        assert_eq!(encrypted.count(), 2, "{shown}");
        for silo in silos {
            end(silo);
        }
    }
    // Another secret.
    folder.certs("theirs", &["--secret"]);
    let silo = start(&folder, &folder.secret("ours"));
    let (code, said) = stranger(&folder, &folder.secret("theirs"));
    assert_eq!(code, Some(5), "{said}");
    let told = "the peer has another secret, or is of another cluster";
    assert!(said.contains(told), "{said}");
    assert!(end(silo).contains(told));
    let secret = fs::read_to_string(folder.file("ours").join("cluster.secret")).unwrap();
    assert!(!said.contains(secret.trim()), "{said}");
}

/// The authority of a silo that runs is replaced: a silo with a certificate of the new one joins.
#[test]
fn a_silo_that_runs_takes_replaced_files() {
    let folder = Folder::new();
    folder.certs("old", &[]);
    folder.certs("new", &[]);
    let authority = |name: &str| folder.file(name).join("authority.pem");
    let both = ["old", "new"].map(|name| fs::read_to_string(authority(name)).unwrap()).concat();
    let silo = start(&folder, &folder.shows("old", "silo"));
    for name in ["old", "new"] {
        fs::write(authority(name), &both).unwrap();
    }
    // Files are read every few seconds: one that comes too early is declared dead.
    let other = wait_for("a silo of the new authority to join", || {
        Silo::try_start(&folder.store(), FREE, &flags(&folder.shows("new", "silo"))).ok()
    });
    for silo in [silo, other] {
        wait_status(&folder.store(), &silo.address, "Active");
        end(silo);
    }
}

#[test]
fn files_that_no_peer_would_accept_are_refused_at_the_start() {
    let folder = Folder::new();
    folder.certs("ours", &["--silo", "elsewhere", "--address", "10.0.0.7"]);
    folder.certs("ours", &["--client", "billing"]);
    folder.issue("bank", &Wanted::silo("bank"));
    folder.issue("old", &Wanted::silo("test").until(SystemTime::now() - Duration::from_secs(1)));
    for (file, told) in [
        ("elsewhere", "elsewhere.pem: it is for a silo at 10.0.0.7, and this one is at 127.0.0.1"),
        ("billing", "billing.pem: it is a client's certificate, and this is a silo"),
        ("bank", "bank.pem: it names none of this cluster"),
        ("old", "old.pem: the certificate has expired"),
        ("none", "none.pem: No such file"),
    ] {
        let (code, said) = stranger(&folder, &folder.shows("ours", file));
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("TLS: ") && said.contains(told), "{said}");
    }
    fs::write(folder.file("short"), "changeme").unwrap();
    let short = format!("tls.secret={}", folder.file("short").display());
    let (code, said) = stranger(&folder, &["--set".to_owned(), short]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("expected a secret of at least 32 bytes, one has 8"), "{said}");
    assert!(!said.contains("changeme"), "{said}");
    let silos = members(&folder.store(), "test");
    assert_eq!(silos["silos"].as_array().unwrap().len(), 0, "nothing is left behind");
}

#[test]
fn a_silo_that_others_reach_has_tls_or_says_that_it_has_none() {
    let folder = Folder::new();
    let store = folder.store();
    let plain = |more: &[&str]| {
        let mut args = vec!["silo", "--store", &store, "--cluster-id", "test"];
        args.extend(["--listen", "0.0.0.0:0", "--advertise", "127.0.0.1:0"]);
        args.extend(more);
        args.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let args = plain(&[]);
    let (code, said) =
        failure(&emmer(&args.iter().map(String::as_str).collect::<Vec<_>>()).output().unwrap());
    assert_eq!(code, 2);
    assert!(said.contains("0.0.0.0:0, for silos, can be reached from other hosts"), "{said}");
    let more = ["--insecure", "--advertise", "127.0.0.1:0"];
    let silo = Silo::start(&store, "0.0.0.0:0", &more);
    end(silo);
}

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn emmer_certs_overwrites_nothing_and_keeps_keys_for_their_owner() {
    let folder = Folder::new();
    folder.certs("ours", &[]);
    let path = folder.file("ours");
    let read = |name: &str| fs::read_to_string(path.join(name)).unwrap();
    let all =
        ["authority.pem", "authority.key", "silo.pem", "silo.key", "client.pem", "client.key"];
    let before = all.map(read);
    for (name, text) in all.iter().zip(&before) {
        let is_key = name.ends_with(".key");
        assert_eq!(mode(&path.join(name)), if is_key { 0o600 } else { 0o644 }, "{name}");
        assert_eq!(text.contains("PRIVATE KEY"), is_key, "{name}");
    }
    let certs = |more: &[&str]| {
        let mut args = vec!["certs", path.to_str().unwrap(), "--cluster-id", "test"];
        args.extend(more);
        run(&args)
    };
    let (code, said) = failure(&certs(&[]));
    assert_eq!(code, 7);
    assert!(said.contains("is there already: --renew replaces it"), "{said}");
    assert_eq!(all.map(read), before);
    assert!(certs(&["--renew"]).status.success());
    let after = all.map(read);
    assert_eq!(after[..2], before[..2], "the authority stays");
    assert!(after.iter().zip(&before).skip(2).all(|(after, before)| after != before));
    for (more, says) in [
        (&["--silo", "../x"][..], "--silo: expected 1 to 64 letters"),
        (&["--client", "authority"], "--client: expected 1 to 64 letters"),
        (&["--silo", "x", "--client", "x"], "one name, and would be one file"),
        (&["--address", "10.0.0.1", "--client", "x"], "give --silo NAME as well"),
    ] {
        let (code, said) = failure(&certs(more));
        assert_eq!(code, 2, "{said}");
        assert!(said.contains(says), "{said}");
    }
    fs::remove_file(path.join("authority.key")).unwrap();
    let (code, said) = failure(&certs(&["--silo", "x"]));
    assert_eq!(code, 7);
    assert!(said.contains("authority.pem is there, and") && said.contains("is not"), "{said}");
    assert!(!path.join("x.pem").exists());
    let odd = run(&["certs", path.to_str().unwrap(), "--cluster-id", "a b"]);
    assert_eq!(failure(&odd).0, 2);
    // A secret stays. The key of clients is made again on demand.
    assert!(certs(&["--secret"]).status.success());
    let secret = read("cluster.secret");
    assert!(certs(&["--secret", "--renew"]).status.success());
    assert_eq!(read("cluster.secret"), secret);
}

//! The making of the files.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use emmer::certs::{self, Authority, CertsError, Issued, Wanted};
use emmer::tables::ClusterId;
use serde::Serialize;

use super::super::output::show;
use super::Args;
use crate::exit::{Code, Failure, Result};

/// A file that is made.
#[derive(Serialize)]
struct File {
    file: String,
    /// For people.
    purpose: &'static str,
    /// True if its reader could take the place of its owner.
    is_secret: bool,
    #[serde(skip)]
    text: String,
    #[serde(skip)]
    is_replaced: bool,
}

#[derive(Serialize)]
struct Document {
    folder: String,
    made: Vec<File>,
}

pub(in super::super) fn run(args: &Args) -> Result<()> {
    ClusterId::new(&args.cluster_id)
        .map_err(|why| Failure::usage(format!("--cluster-id: {why}")))?;
    let files = if args.secret { secret(args)? } else { certificates(args)? };
    write(&args.folder, &files, args.renew)?;
    let document = Document { folder: args.folder.display().to_string(), made: files };
    show(args.format, || table(&document), &document)
}

/// The certificates of one silo and one client, for [`run`] and the demo.
pub(in super::super) fn both(folder: &Path, cluster: &str) -> Result<()> {
    let mut files = Vec::new();
    let authority = authority(folder, &mut files)?;
    let silo = authority.issue(&Wanted::silo(cluster)).map_err(made)?;
    let client = authority.issue(&Wanted::client(cluster)).map_err(made)?;
    files.extend(of(silo, "silo", SILO));
    files.extend(of(client, "client", CLIENT));
    write(folder, &files, false)
}

fn certificates(args: &Args) -> Result<Vec<File>> {
    let neither = args.silo.is_none() && args.client.is_none();
    let given = |name: &Option<String>, default: &str| {
        name.clone().or_else(|| neither.then(|| default.to_owned()))
    };
    let (silo, client) = (given(&args.silo, "silo"), given(&args.client, "client"));
    if silo.is_some() && silo == client {
        return Err(Failure::usage("--silo and --client have one name, and would be one file"));
    }
    let (cluster, days) = (&args.cluster_id, args.days);
    let mut files = Vec::new();
    let authority = authority(&args.folder, &mut files)?;
    if let Some(name) = silo {
        check_name("--silo", &name)?;
        let wanted = Wanted::silo(cluster).days(days);
        let wanted = args.address.iter().fold(wanted, |wanted, address| wanted.address(*address));
        files.extend(of(authority.issue(&wanted).map_err(made)?, &name, SILO));
    } else if !args.address.is_empty() {
        return Err(Failure::usage("--address is of a silo: give --silo NAME as well"));
    }
    if let Some(name) = client {
        check_name("--client", &name)?;
        let wanted = Wanted::client(cluster).days(days);
        let wanted = if args.client.is_some() { wanted.name(&name) } else { wanted };
        files.extend(of(authority.issue(&wanted).map_err(made)?, &name, CLIENT));
    }
    Ok(files)
}

fn secret(args: &Args) -> Result<Vec<File>> {
    let path = args.folder.join("cluster.secret");
    let mut files = Vec::new();
    let secret = match read(&path)? {
        Some(secret) => secret,
        None => {
            let text = certs::secret().map_err(made)? + "\n";
            let file = "cluster.secret".to_owned();
            let purpose = "the secret of silos (tls.secret)";
            files.push(File {
                file,
                purpose,
                is_secret: true,
                text: text.clone(),
                is_replaced: false,
            });
            text
        }
    };
    let text = certs::client_key(&secret, &args.cluster_id).map_err(made)?;
    let (file, purpose) = ("client-key.pem".to_owned(), "the key of clients (Tls::client_key)");
    files.push(File { file, purpose, is_secret: true, text, is_replaced: true });
    Ok(files)
}

/// The authority of the folder, or a new one.
fn authority(folder: &Path, files: &mut Vec<File>) -> Result<Authority> {
    let (certificate, key) = (folder.join("authority.pem"), folder.join("authority.key"));
    match (read(&certificate)?, read(&key)?) {
        (Some(certificate), Some(key)) => Authority::of(&certificate, &key)
            .map_err(|why| Failure::new(Code::Input, format!("{}: {why}", folder.display()))),
        (None, None) => {
            let authority = Authority::new("Emmer development").map_err(made)?;
            let issued = Issued { certificate: authority.certificate(), key: authority.key() };
            files.extend(of(issued, "authority", AUTHORITY).map(|mut file| {
                file.is_replaced = false;
                file
            }));
            Ok(authority)
        }
        (there, _) => {
            let (there, missing) =
                if there.is_some() { (certificate, key) } else { (key, certificate) };
            let (there, missing) = (there.display(), missing.display());
            Err(Failure::new(Code::Input, format!("{there} is there, and {missing} is not")))
        }
    }
}

/// The use of a certificate and of its key, for people.
type Purposes = [&'static str; 2];

const AUTHORITY: Purposes =
    ["the certificate that all of them believe", "the key that signs: keep it elsewhere"];
const SILO: Purposes = ["the certificate of a silo", "the key of a silo"];
const CLIENT: Purposes = ["the certificate of a client", "the key of a client"];

/// The files of a certificate. The key comes first: a silo that reads between the two finds that
/// they do not fit, and reads again.
fn of(issued: Issued, name: &str, [certificate, key]: Purposes) -> [File; 2] {
    let file = |end: &str, purpose, is_secret, text| File {
        file: format!("{name}.{end}"),
        purpose,
        is_secret,
        text,
        is_replaced: true,
    };
    [file("key", key, true, issued.key), file("pem", certificate, false, issued.certificate)]
}

/// The beginning of a file's name, and of a certificate's: nothing that leads to another folder.
fn check_name(flag: &str, name: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    let is_reserved = name == "authority" || name.starts_with('.') || name.is_empty();
    if is_reserved || name.len() > 64 || !name.chars().all(fits) {
        return Err(Failure::usage(format!(
            "{flag}: expected 1 to 64 letters, digits, `-`, `.` and `_`, not {name:?}"
        )));
    }
    Ok(())
}

fn made(why: CertsError) -> Failure {
    Failure::usage(why)
}

fn read(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::new(Code::Input, format!("{}: {error}", path.display()))),
    }
}

/// Writes all files, or none if one exists that may not be replaced.
fn write(folder: &Path, files: &[File], renew: bool) -> Result<()> {
    let at = |path: &Path| {
        let path = path.display().to_string();
        move |error: std::io::Error| Failure::other(format!("{path}: {error}"))
    };
    for file in files {
        let path = folder.join(&file.file);
        let is_there = path.try_exists().map_err(at(&path))?;
        if is_there && !(renew && file.is_replaced) {
            let hint = if file.is_replaced { ": --renew replaces it" } else { "" };
            let why = format!("{} is there already{hint}", path.display());
            return Err(Failure::new(Code::Input, why));
        }
    }
    fs::create_dir_all(folder).map_err(at(folder))?;
    // Each is written under another name in its folder and put in its place whole: a silo may read
    // it at any moment.
    let mut written = Vec::new();
    for file in files {
        let path = folder.join(&file.file);
        // For its owner alone.
        let mut beside = tempfile::NamedTempFile::new_in(folder).map_err(at(&path))?;
        beside.write_all(file.text.as_bytes()).map_err(at(&path))?;
        beside.as_file().sync_all().map_err(at(&path))?;
        #[cfg(unix)]
        if !file.is_secret {
            use std::os::unix::fs::PermissionsExt as _;
            let all = fs::Permissions::from_mode(0o644);
            fs::set_permissions(beside.path(), all).map_err(at(&path))?;
        }
        written.push((beside, path));
    }
    for (beside, path) in written {
        beside.persist(&path).map_err(|error| at(&path)(error.error))?;
    }
    Ok(())
}

fn table(document: &Document) -> String {
    let folder = Path::new(&document.folder);
    let lines = document.made.iter().map(|file| {
        let secret = if file.is_secret { ", secret" } else { "" };
        format!("{}  {}{secret}\n", folder.join(&file.file).display(), file.purpose)
    });
    lines.collect()
}

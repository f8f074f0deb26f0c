//! What leaves a server open to others.

use emmer_store::examine::{Examination, FindingLevel, FindingSubject};

/// Notes that the URL names no user, token or password (`names_no`), and that the connection is not
/// encrypted, with the setting that would encrypt it (`encrypt_by`).
pub fn note(found: &mut Examination, names_no: Option<&str>, encrypt_by: Option<&str>) {
    let mut note = |text: String| found.add(FindingLevel::Note, FindingSubject::Security, text);
    if let Some(what) = names_no {
        note(format!(
            "the URL names no {what}: every process that reaches the server may read and change \
             the cluster's tables"
        ));
    }
    if let Some(how) = encrypt_by {
        note(format!("the connection is not encrypted: {how} where the network is not private"));
    }
}

/// Notes that the URL says who we are by `what`, and that the server does not look at it, and why.
pub fn note_ignored(found: &mut Examination, what: &str, why: &str) {
    let text = format!(
        "the server does not check the URL's {what} ({why}): every process that reaches it may \
         read and change the cluster's tables"
    );
    found.add(FindingLevel::Note, FindingSubject::Security, text);
}

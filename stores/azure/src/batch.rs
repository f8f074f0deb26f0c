//! Entity group transactions: the content of `$batch`, and the meaning of its answer.
//!
//! The status of the answer is 202 whether the transaction happened or not: only the answers inside
//! tell. One that failed has a single answer inside, whose message begins with the position of the
//! operation that failed, `3:...`.

use emmer_store::StoreErrorKind;
use emmer_store_keyvalue::{Failure, Fault};
use serde_json::Value as Json;

use crate::keys::in_url;

/// The most operations in one transaction.
pub(crate) const OPERATIONS_MAX: usize = 100;
/// The most bytes of a transaction as it is sent.
pub(crate) const BATCH_BYTES_MAX: usize = 4 << 20;

/// Verb of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Makes an entity that must not exist.
    Insert,
    /// Makes an entity or replaces the existing one.
    Put,
    /// Sets some properties of an entity that exists.
    Merge,
    /// Deletes an entity that exists.
    Delete,
}

/// One operation on one entity.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    verb: Verb,
    partition: String,
    row: String,
    if_match: Option<String>,
    body: String,
}

impl Operation {
    /// An operation on the entity with these stored keys. `if_match` is the service's etag that the
    /// entity must have, `*` for any; without one an entity that is not there is made.
    pub(crate) fn new(
        verb: Verb,
        partition: &str,
        row: &str,
        if_match: Option<&str>,
        body: String,
    ) -> Self {
        let if_match = if_match.map(str::to_owned);
        Self { verb, partition: partition.to_owned(), row: row.to_owned(), if_match, body }
    }

    fn write(&self, table: &str, out: &mut String) {
        let verb = match self.verb {
            Verb::Insert => "POST",
            Verb::Put => "PUT",
            Verb::Merge => "MERGE",
            Verb::Delete => "DELETE",
        };
        out.push_str("Content-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n");
        out.push_str(verb);
        out.push(' ');
        out.push_str(table);
        if self.verb != Verb::Insert {
            out.push_str(&format!(
                "(PartitionKey='{}',RowKey='{}')",
                quoted(&self.partition),
                quoted(&self.row)
            ));
        }
        out.push_str(
            " HTTP/1.1\r\nAccept: application/json;odata=nometadata\r\nDataServiceVersion: 3.0\r\n",
        );
        if self.verb == Verb::Insert {
            out.push_str("Prefer: return-no-content\r\n");
        }
        if let Some(etag) = &self.if_match {
            out.push_str("If-Match: ");
            out.push_str(etag);
            out.push_str("\r\n");
        }
        if !self.body.is_empty() {
            out.push_str("Content-Type: application/json\r\n");
        }
        out.push_str("\r\n");
        out.push_str(&self.body);
        out.push_str("\r\n");
    }
}

/// Escapes a key for the quotes in a URL.
fn quoted(key: &str) -> String {
    in_url(&key.replace('\'', "''"))
}

/// The body of a transaction on `table`, the URL of a table, and its content type. `mark` is a text
/// that no entity holds.
pub(crate) fn encode(table: &str, operations: &[Operation], mark: &str) -> (String, String) {
    let bytes: usize = operations.iter().map(|operation| operation.body.len() + 512).sum();
    let mut out = String::with_capacity(bytes + 512);
    out.push_str(&format!(
        "--batch_{mark}\r\nContent-Type: multipart/mixed; boundary=changeset_{mark}\r\n\r\n"
    ));
    for operation in operations {
        out.push_str(&format!("--changeset_{mark}\r\n"));
        operation.write(table, &mut out);
    }
    out.push_str(&format!("--changeset_{mark}--\r\n--batch_{mark}--\r\n"));
    (out, format!("multipart/mixed; boundary=batch_{mark}"))
}

/// Outcome of a transaction that the service executed or refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// All of it happened, with the service's etags; None for deleted rows.
    All(Vec<Option<String>>),
    /// None of it happened: the condition of this operation did not hold.
    Not(usize),
}

/// One of the answers inside.
#[derive(Debug)]
struct Part {
    status: u16,
    etag: Option<String>,
    body: String,
}

/// Understands the answer to a transaction of `operations` operations.
///
/// # Errors
/// `Nothing` when the answer says that nothing happened and why; `Broken` when it does not tell.
pub(crate) fn decode(answer: &str, operations: usize) -> Result<Done, Failure> {
    let parts = parts(answer);
    if let Some(failed) = parts.iter().find(|part| part.status >= 300) {
        return refused(failed, operations);
    }
    if parts.len() != operations {
        let detail = format!("{} answers to a transaction of {operations} operations", parts.len());
        return Err(Failure::Broken(Fault::corrupt(detail)));
    }
    Ok(Done::All(parts.into_iter().map(|part| part.etag).collect()))
}

fn refused(part: &Part, operations: usize) -> Result<Done, Failure> {
    let (code, message) = error(part.body.as_bytes());
    let at = message.split_once(':').and_then(|(at, _)| at.parse::<usize>().ok());
    let at = at.or_else(|| (operations == 1).then_some(0)).filter(|at| *at < operations);
    let condition = matches!(
        code.as_str(),
        "EntityAlreadyExists"
            | "UpdateConditionNotSatisfied"
            | "ConditionNotMet"
            | "ResourceNotFound"
            | "EntityNotFound"
    );
    match at {
        Some(at) if condition && matches!(part.status, 404 | 409 | 412) => Ok(Done::Not(at)),
        _ => Err(failure(part.status, &code, &message)),
    }
}

/// Code and message of an error in the service's words; empty where it has none.
pub(crate) fn error(body: &[u8]) -> (String, String) {
    let json: Json = serde_json::from_slice(body).unwrap_or_default();
    let error = json.get("odata.error");
    let code = error.and_then(|e| e.get("code")).and_then(Json::as_str).unwrap_or_default();
    let message = error
        .and_then(|e| e.get("message")?.get("value"))
        .and_then(Json::as_str)
        .unwrap_or_default();
    // What follows are the request's id and its time.
    let message = message.lines().next().unwrap_or_default();
    (code.to_owned(), message.chars().take(300).collect())
}

/// Meaning of a status that is no success, and if something may have happened.
pub(crate) fn failure(status: u16, code: &str, message: &str) -> Failure {
    use StoreErrorKind::{Invalid, NotFound, Refused, Unavailable};
    let words = if code.is_empty() {
        format!("HTTP {status}")
    } else {
        format!("HTTP {status} {code}: {message}")
    };
    let kind = match (status, code) {
        (404, "TableNotFound") => NotFound,
        (
            400 | 413,
            "RequestBodyTooLarge"
            | "EntityTooLarge"
            | "PropertyValueTooLarge"
            | "TooManyProperties"
            | "KeyValueTooLarge",
        )
        | (413, _) => Invalid,
        (409, "TableBeingDeleted" | "TableBeingCreated") | (429, _) | (503, "ServerBusy") => {
            Unavailable
        }
        (400..=499, _) => Refused,
        // It ran out of time, or does not know itself.
        _ => return Failure::Broken(Fault::unavailable(words)),
    };
    Failure::Nothing(Fault::new(kind, words))
}

fn parts(answer: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut lines = answer.lines();
    while let Some(line) = lines.next() {
        let Some(status) =
            line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok())
        else {
            continue;
        };
        let mut etag = None;
        for header in lines.by_ref().take_while(|line| !line.is_empty()) {
            if let Some((name, value)) = header.split_once(':')
                && name.eq_ignore_ascii_case("etag")
            {
                etag = Some(value.trim().to_owned());
            }
        }
        let body = lines.by_ref().take_while(|line| !line.starts_with("--")).collect();
        parts.push(Part { status, etag, body });
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const DONE: &str = "--batchresponse_1\r\nContent-Type: multipart/mixed; \
        boundary=changesetresponse_2\r\n\r\n\
        --changesetresponse_2\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: \
        binary\r\n\r\n\
        HTTP/1.1 204 No Content\r\nContent-ID: 1\r\nETag: W/\"datetime'1'\"\r\n\r\n\r\n\
        --changesetresponse_2\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: \
        binary\r\n\r\n\
        HTTP/1.1 204 No Content\r\nContent-ID: \
        2\r\n\r\n\r\n--changesetresponse_2--\r\n--batchresponse_1--\r\n";

    fn refusal(status: &str, code: &str, message: &str) -> String {
        format!(
            "--batchresponse_1\r\nContent-Type: multipart/mixed; \
             boundary=changesetresponse_2\r\n\r\n\
             --changesetresponse_2\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: \
             binary\r\n\r\n\
             HTTP/1.1 {status}\r\nContent-ID: 2\r\nContent-Type: application/json\r\n\r\n\
             {{\"odata.error\":{{\"code\":\"{code}\",\"message\":{{\"lang\":\"en-us\",\"value\":\"{message}\\nRequestId:1\"}}}}}}\r\n\
             --changesetresponse_2--\r\n--batchresponse_1--\r\n"
        )
    }

    #[test]
    fn the_answers_inside_decide() {
        let etags = vec![Some("W/\"datetime'1'\"".to_owned()), None];
        assert_eq!(decode(DONE, 2), Ok(Done::All(etags)));
        // Fewer answers than operations, or none that can be read, leave everything open.
        assert!(matches!(decode(DONE, 3), Err(Failure::Broken(_))));
        assert!(matches!(decode("<html>", 1), Err(Failure::Broken(_))));
        for (status, code) in [
            ("412 Precondition Failed", "UpdateConditionNotSatisfied"),
            ("409 Conflict", "EntityAlreadyExists"),
            ("404 Not Found", "ResourceNotFound"),
        ] {
            assert_eq!(
                decode(&refusal(status, code, "1:It is so."), 2),
                Ok(Done::Not(1)),
                "{code}"
            );
        }
        // A single operation needs no number.
        let alone = refusal("412 Precondition Failed", "UpdateConditionNotSatisfied", "It is so.");
        assert_eq!(decode(&alone, 1), Ok(Done::Not(0)));
    }

    #[test]
    fn what_is_no_condition_is_an_error_and_never_a_conflict() {
        use StoreErrorKind::{Invalid, NotFound, Refused, Unavailable};
        for (status, code, kind) in [
            ("404 Not Found", "TableNotFound", NotFound),
            ("400 Bad Request", "PropertyValueTooLarge", Invalid),
            ("413 Too Large", "RequestBodyTooLarge", Invalid),
            ("403 Forbidden", "AuthorizationFailure", Refused),
            ("503 Busy", "ServerBusy", Unavailable),
            ("429 Slow", "TooManyRequests", Unavailable),
            ("409 Conflict", "TableBeingDeleted", Unavailable),
            // A position beyond the operations does not count.
            ("412 Precondition Failed", "UpdateConditionNotSatisfied", Refused),
        ] {
            match decode(&refusal(status, code, "7:It is so."), 2) {
                Err(Failure::Nothing(fault)) => assert_eq!(fault.kind, kind, "{code}: {fault:?}"),
                other => panic!("{code}: {other:?}"),
            }
        }
        for (status, code) in
            [("500 Error", "OperationTimedOut"), ("500 Error", "InternalError"), ("503 x", "Other")]
        {
            let answer = refusal(status, code, "0:It is so.");
            assert!(matches!(decode(&answer, 2), Err(Failure::Broken(_))), "{code}");
        }
    }

    #[test]
    fn a_transaction_is_written_as_the_service_reads_it() {
        let operations = [
            Operation::new(Verb::Put, "it's", "a%2F", Some("W/\"1\""), "{\"N\":1}".to_owned()),
            Operation::new(Verb::Delete, "p", "r", Some("*"), String::new()),
        ];
        let (body, content_type) = encode("http://127.0.0.1/t", &operations, "m");
        assert_eq!(content_type, "multipart/mixed; boundary=batch_m");
        for wanted in [
            "--batch_m\r\nContent-Type: multipart/mixed; \
             boundary=changeset_m\r\n\r\n--changeset_m\r\n",
            "PUT http://127.0.0.1/t(PartitionKey='it%27%27s',RowKey='a%252F') HTTP/1.1\r\n",
            "If-Match: W/\"1\"\r\nContent-Type: \
             application/json\r\n\r\n{\"N\":1}\r\n--changeset_m\r\n",
            "DELETE http://127.0.0.1/t(PartitionKey='p',RowKey='r') HTTP/1.1\r\n",
            "If-Match: *\r\n\r\n\r\n--changeset_m--\r\n--batch_m--\r\n",
        ] {
            assert!(body.contains(wanted), "{wanted} is not in {body}");
        }
    }
}

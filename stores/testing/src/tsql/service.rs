//! Microsoft's SqlToolsService, a language server: it gets a document and answers with the mistakes
//! in it.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Complaint;

/// Time that an answer may take: the machine may be busy with tests.
const LIMIT: Duration = Duration::from_secs(300);
/// The longest message read.
const MESSAGE_BYTES_MAX: u64 = 64 << 20;
/// Maximum messages that are read but not handled.
const QUEUED_MAX: usize = 64;

/// The parser: installed, or running.
#[derive(Debug)]
pub struct Parser {
    folder: PathBuf,
    libraries: PathBuf,
    running: Option<Running>,
    documents: usize,
}

#[derive(Debug)]
struct Running {
    child: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // It holds nothing that could be lost.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Parser {
    /// Name of the service.
    pub const NAME: &str = "SqlToolsService of mssql-cli 1.0.0";

    /// The parser installed in `folder`.
    pub(super) fn new(folder: &Path) -> Self {
        let libraries = folder.join("psycopg2_binary.libs");
        Self { folder: folder.to_owned(), libraries, running: None, documents: 0 }
    }

    pub(super) fn program(&self) -> PathBuf {
        self.folder.join("mssqlcli/mssqltoolsservice/bin/MicrosoftSqlToolsServiceLayer")
    }

    pub(super) fn libraries(&self) -> &Path {
        &self.libraries
    }

    /// Starts it.
    pub(super) fn run(&mut self) -> Result<(), String> {
        let say = |e: std::io::Error| format!("Microsoft's parser does not start: {e}");
        let mut child = Command::new(self.program())
            // It keeps files in its user's home, and needs no ICU for parsing.
            .env("HOME", &self.folder)
            .env("DOTNET_SYSTEM_GLOBALIZATION_INVARIANT", "1")
            .env("LD_LIBRARY_PATH", &self.libraries)
            .current_dir(&self.folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(say)?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (Some(input), Some(output)) = (input, output) else {
            return Err("no pipes".to_owned());
        };
        self.running = Some(Running { child, input, messages: messages(output) });
        let hello = json!({ "processId": std::process::id(), "rootPath": "/", "capabilities": {} });
        self.send(
            &json!({ "jsonrpc": "2.0", "id": "1", "method": "initialize", "params": hello }),
        )?;
        self.receive(|message| (message.get("id") == Some(&json!("1"))).then_some(()))
    }

    /// Faults in a script.
    pub(super) fn complaints(&mut self, script: &str) -> Result<Vec<Complaint>, String> {
        self.documents += 1;
        let uri = format!("file:///{}.sql", self.documents);
        let document = json!({ "uri": uri, "languageId": "sql", "version": 1, "text": script });
        let params = json!({ "textDocument": document });
        self.send(
            &json!({ "jsonrpc": "2.0", "method": "textDocument/didOpen", "params": params }),
        )?;
        self.receive(|message| {
            let params = message.get("params")?;
            let is_it = message.get("method")? == "textDocument/publishDiagnostics"
                && params.get("uri")? == &uri;
            is_it
                .then(|| params.get("diagnostics")?.as_array()?.iter().map(complaint).collect())
                .flatten()
        })
    }

    fn send(&mut self, message: &Value) -> Result<(), String> {
        let running = self.running.as_mut().ok_or("Microsoft's parser was not started")?;
        let text = message.to_string();
        let written = write!(running.input, "Content-Length: {}\r\n\r\n{text}", text.len());
        written
            .and_then(|()| running.input.flush())
            .map_err(|e| format!("Microsoft's parser does not listen: {e}"))
    }

    /// The first message that `wanted` takes; others are let go.
    fn receive<T>(&mut self, wanted: impl Fn(&Value) -> Option<T>) -> Result<T, String> {
        let running = self.running.as_mut().ok_or("Microsoft's parser was not started")?;
        let deadline = Instant::now() + LIMIT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let message = running.messages.recv_timeout(left);
            let message =
                message.map_err(|_| "Microsoft's parser ended or does not answer".to_owned())?;
            if let Some(found) = wanted(&message) {
                return Ok(found);
            }
        }
    }
}

/// A diagnostic of the language server protocol.
fn complaint(diagnostic: &Value) -> Option<Complaint> {
    let line = diagnostic.get("range")?.get("start")?.get("line")?.as_u64()?;
    let words = diagnostic.get("message")?.as_str()?;
    Some((usize::try_from(line).ok()?, words.to_owned()))
}

/// The messages on a pipe, until it ends or something else comes.
fn messages(output: ChildStdout) -> Receiver<Value> {
    let (sender, receiver) = sync_channel(QUEUED_MAX);
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        while let Some(found) = message(&mut output) {
            if sender.send(found).is_err() {
                return;
            }
        }
    });
    receiver
}

fn message(output: &mut impl BufRead) -> Option<Value> {
    let mut length = None;
    loop {
        let mut line = String::new();
        let read = output.by_ref().take(1_024).read_line(&mut line).ok()?;
        let line = line.trim();
        if read == 0 {
            return None;
        }
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse::<u64>().ok().filter(|bytes| *bytes <= MESSAGE_BYTES_MAX);
        }
    }
    let mut bytes = Vec::new();
    output.by_ref().take(length?).read_to_end(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_taken_apart_by_their_length() {
        let mut pipe =
            "Content-Length: 7\r\n\r\n{\"a\":1}content-length: 2\r\nX: y\r\n\r\n[]".as_bytes();
        assert_eq!(message(&mut pipe), Some(json!({ "a": 1 })));
        assert_eq!(message(&mut pipe), Some(json!([])));
        assert_eq!(message(&mut pipe), None);
        // No length, an invalid length, and foreign text.
        for strange in ["\r\n", "Content-Length: x\r\n\r\n{}", "usage: this program\n\n"] {
            assert_eq!(message(&mut strange.as_bytes()), None, "{strange}");
        }
    }

    #[test]
    fn a_diagnostic_has_a_line_and_words() {
        let found = json!({ "range": { "start": { "line": 3, "character": 1 } }, "message": "no" });
        assert_eq!(complaint(&found), Some((3, "no".to_owned())));
        assert_eq!(complaint(&json!({})), None);
    }
}

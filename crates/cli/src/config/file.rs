//! The TOML file, with the line of every value.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Place, Settings, keys};
use crate::exit::{Failure, Result};

/// The largest file, in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// Reads and checks the file's keys.
pub(super) fn read(path: &Path) -> Result<Settings> {
    let unreadable = |why: &dyn std::fmt::Display| {
        Failure::usage(format!("configuration file {}: {why}", path.display()))
    };
    let file = File::open(path).map_err(|error| unreadable(&error))?;
    let mut text = String::new();
    file.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| unreadable(&error))?;
    if text.len() as u64 > BYTES_MAX {
        return Err(unreadable(&format!("larger than {BYTES_MAX} bytes")));
    }
    parse(path, &text)
}

/// [`read`] without the reading.
pub(super) fn parse(path: &Path, text: &str) -> Result<Settings> {
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_at(text, span.start));
        Failure::usage(format!("{}:{line}: {}", path.display(), error.message()))
    })?;
    let mut settings = Settings::default();
    take(path, text, "", table.get_ref(), &mut settings)?;
    Ok(settings)
}

fn take(
    path: &Path,
    text: &str,
    prefix: &str,
    table: &DeTable<'_>,
    settings: &mut Settings,
) -> Result<()> {
    for (name, value) in table {
        let key = format!("{prefix}{}", name.get_ref());
        let place = Place::File { path: path.to_owned(), line: line_at(text, name.span().start) };
        if let (DeValue::Table(inner), true) = (value.get_ref(), prefix.is_empty()) {
            table_name(&key, &place)?;
            take(path, text, &format!("{key}."), inner, settings)?;
            continue;
        }
        let key = keys::check(&key).map_err(|why| Failure::usage(format!("{place}: {why}")))?;
        let found =
            scalar(value).map_err(|why| Failure::usage(format!("{place}: {key}: {why}")))?;
        settings.put(key, found, place);
    }
    Ok(())
}

fn table_name(name: &str, place: &Place) -> Result<()> {
    let tables = ["membership".to_owned(), "limits".to_owned()];
    if tables.iter().any(|known| known == name) {
        return Ok(());
    }
    let hint = keys::nearest(name, &tables).map_or_else(
        || "there are [membership] and [limits]".to_owned(),
        |t| format!("did you mean [{t}]?"),
    );
    Err(Failure::usage(format!("{place}: unknown table [{name}]; {hint}")))
}

/// The value as text; what it must be is known only where it is used.
fn scalar(value: &Spanned<DeValue<'_>>) -> std::result::Result<String, String> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Boolean(truth) => Ok(truth.to_string()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map(|number| number.to_string())
            .map_err(|_| format!("{} is out of range", number.as_str())),
        other => Err(format!(
            "expected a text, a whole number, true or false, found {}",
            other.type_str()
        )),
    }
}

fn line_at(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

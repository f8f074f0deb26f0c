//! The TOML file, with the line of every value.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{ConfigError, Place, Result, Settings, keys};

/// The largest file, in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// The form of a line, for a file that is not TOML.
const HINT: &str = ". Write each setting as `key = \"text\"`, `key = 10` or `key = true`";

/// Reads and checks the file's keys.
pub(super) fn read(path: &Path) -> Result<Settings> {
    let unreadable = |why: &dyn std::fmt::Display| {
        ConfigError::new(format!("configuration file {}: {why}", path.display()))
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
        let why = error.message();
        // The parser's own words do not show what a line looks like.
        let hint = if why.contains("expected") { HINT } else { "" };
        ConfigError::new(format!("{}:{line}: {why}{hint}", path.display()))
    })?;
    let (mut settings, mut wrong) = (Settings::default(), Vec::new());
    Text { path, text }.take("", table.get_ref(), &mut settings, &mut wrong);
    // The parser gives tables in the order of their names.
    wrong.sort_by_key(|(line, _)| *line);
    ConfigError(wrong.into_iter().map(|(_, mistake)| mistake).collect()).check().map(|()| settings)
}

/// A file that was read.
struct Text<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Text<'_> {
    /// Reads the keys of a table. Mistakes go to `wrong`, with their lines.
    fn take(
        &self,
        prefix: &str,
        table: &DeTable<'_>,
        settings: &mut Settings,
        wrong: &mut Vec<(usize, String)>,
    ) {
        for (name, value) in table {
            let key = format!("{prefix}{}", name.get_ref());
            let line = line_at(self.text, name.span().start);
            let place = Place::File { path: self.path.to_owned(), line };
            let known = keys::check(&key);
            let is_no_key = prefix.is_empty() && known.is_err();
            if let (DeValue::Table(inner), true) = (value.get_ref(), is_no_key) {
                match table_name(&key) {
                    Ok(()) => self.take(&format!("{key}."), inner, settings, wrong),
                    Err(why) => wrong.push((line, format!("{place}: {why}"))),
                }
                continue;
            }
            if is_no_key && table_name(&key).is_ok() {
                let why = "is a table: its keys stand below it, a line each";
                wrong.push((line, format!("{place}: [{key}] {why}")));
                continue;
            }
            let found = known
                .and_then(|key| Ok((scalar(value).map_err(|why| format!("{key}: {why}"))?, key)));
            match found {
                Ok((text, key)) => settings.put(key, text, place),
                Err(why) => wrong.push((line, format!("{place}: {why}"))),
            }
        }
    }
}

fn table_name(name: &str) -> std::result::Result<(), String> {
    let tables = keys::tables();
    if tables.iter().any(|known| known == name) {
        return Ok(());
    }
    let hint = keys::nearest(name, &tables).map_or_else(
        || format!("there are [{}]", tables.join("], [")),
        |table| format!("did you mean [{table}]?"),
    );
    Err(format!("unknown table [{name}]; {hint}"))
}

/// The value as text; the user of the key knows its type.
fn scalar(value: &Spanned<DeValue<'_>>) -> std::result::Result<String, String> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Boolean(truth) => Ok(truth.to_string()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map(|number| number.to_string())
            .map_err(|_| format!("{} is out of range", number.as_str())),
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        other => {
            Err(format!("expected a text, a number, true or false, found {}", other.type_str()))
        }
    }
}

fn line_at(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

//! Reading the file: all of it is checked before a single departure is fed.

use std::collections::HashSet;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;

use flate2::read::GzDecoder;

use crate::Departure;

/// The columns, in order.
const COLUMNS: [&str; 13] = [
    "year",
    "month",
    "day",
    "dep_time",
    "sched_dep_time",
    "dep_delay",
    "arr_delay",
    "carrier",
    "flight",
    "tailnum",
    "origin",
    "dest",
    "distance",
];

/// The longest line, in bytes; the file's longest has 77.
const LINE_BYTES_MAX: u64 = 1_024;

/// The most departures one file may have.
pub const DEPARTURES_MAX: usize = 10_000_000;

/// The longest delay believed, in minutes: a week.
const DELAY_MAX: i32 = 7 * 24 * 60;

/// The file cannot be used; none of it was.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A line has the wrong form.
    #[error("line {line}: {reason}")]
    Line {
        /// The line, counted from 1, the header included.
        line: u64,
        /// The fault in the line.
        reason: String,
    },
    /// The bytes cannot be read or uncompressed.
    #[error("the file cannot be read after line {line}: {source}")]
    Read {
        /// How many whole lines were read.
        line: u64,
        /// The words of the system or the decompressor.
        source: io::Error,
    },
    /// There is a header and nothing else, or not even that.
    #[error("the file holds no departures")]
    Empty,
}

/// Reads departures from CSV, compressed with gzip or not (told apart by the first two bytes). At
/// most `rows` of them are kept when given, but every line is checked.
///
/// # Errors
/// The first thing wrong, naming its line.
pub fn read(source: impl Read, rows: Option<usize>) -> Result<Vec<Departure>, FileError> {
    let mut source = BufReader::new(source);
    let magic = source.fill_buf().map_err(|source| FileError::Read { line: 0, source })?;
    if magic.starts_with(&[0x1f, 0x8b]) {
        parse(BufReader::new(GzDecoder::new(source)), rows)
    } else {
        parse(source, rows)
    }
}

fn parse(mut source: impl BufRead, rows: Option<usize>) -> Result<Vec<Departure>, FileError> {
    let mut names = Names::default();
    let mut departures = Vec::new();
    let (mut line, mut text) = (0, Vec::new());
    loop {
        text.clear();
        let read = (&mut source).take(LINE_BYTES_MAX).read_until(b'\n', &mut text);
        if read.map_err(|source| FileError::Read { line, source })? == 0 {
            break;
        }
        line += 1;
        let wrong = |reason: String| FileError::Line { line, reason };
        let fields = whole_line(&text).map_err(wrong)?;
        if line == 1 {
            header(fields).map_err(wrong)?;
            continue;
        }
        if departures.len() == DEPARTURES_MAX {
            return Err(wrong(format!("more than {DEPARTURES_MAX} departures")));
        }
        let departure = names.departure(fields).map_err(wrong)?;
        if rows.is_none_or(|rows| departures.len() < rows) {
            departures.push(departure);
        }
    }
    if departures.is_empty() { Err(FileError::Empty) } else { Ok(departures) }
}

/// A line without its end. A line that does not end is the last one of a file that was cut off,
/// whatever it holds: a distance of 431 cut after the 4 would look fine.
fn whole_line(text: &[u8]) -> Result<&str, String> {
    let Some(text) = text.strip_suffix(b"\n") else {
        return Err(if text.len() as u64 == LINE_BYTES_MAX {
            format!("longer than {LINE_BYTES_MAX} bytes")
        } else {
            "it does not end with a line break: the file is cut off here".to_owned()
        });
    };
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    std::str::from_utf8(text).map_err(|_| "not UTF-8".to_owned())
}

fn header(fields: &str) -> Result<(), String> {
    let mut names = fields.split(',');
    for expected in COLUMNS {
        match names.next() {
            Some(name) if name == expected => {}
            found => {
                let found = found.unwrap_or("nothing");
                return Err(format!(
                    "the header says {} where {expected:?} is expected",
                    shown(found)
                ));
            }
        }
    }
    names
        .next()
        .map_or(Ok(()), |name| Err(format!("the header has one column too many, {}", shown(name))))
}

/// Codes that occur again and again, kept once.
#[derive(Default)]
struct Names(HashSet<Arc<str>>);

impl Names {
    fn departure(&mut self, line: &str) -> Result<Departure, String> {
        let mut fields = [""; COLUMNS.len()];
        let mut count = 0;
        for field in line.split(',') {
            if let Some(slot) = fields.get_mut(count) {
                *slot = field;
            }
            count += 1;
        }
        if count != COLUMNS.len() {
            return Err(format!("{count} fields where {} are expected", COLUMNS.len()));
        }
        let [
            year,
            month,
            day,
            dep,
            sched,
            dep_delay,
            arr_delay,
            carrier,
            flight,
            tail,
            origin,
            dest,
            distance,
        ] = fields;
        number::<u16>("year", year, 1900, 2100)?;
        clock("sched_dep_time", sched)?;
        let departure = Departure {
            month: number("month", month, 1, 12)?,
            day: number("day", day, 1, 31)?,
            dep_time: known(dep).map(|dep| clock("dep_time", dep)).transpose()?,
            dep_delay: known(dep_delay)
                .map(|d| number("dep_delay", d, -DELAY_MAX, DELAY_MAX))
                .transpose()?,
            arr_delay: known(arr_delay)
                .map(|d| number("arr_delay", d, -DELAY_MAX, DELAY_MAX))
                .transpose()?,
            carrier: self.code("carrier", carrier, 2..=3)?,
            flight: number("flight", flight, 1, 9_999)?,
            tail: known(tail).map(|tail| self.code("tailnum", tail, 3..=8)).transpose()?,
            origin: self.code("origin", origin, 3..=3)?,
            dest: self.code("dest", dest, 3..=3)?,
            distance: number("distance", distance, 1, 20_000)?,
        };
        if departure.origin == departure.dest {
            return Err(format!("origin and dest are both {}", departure.origin));
        }
        Ok(departure)
    }

    fn code(
        &mut self,
        column: &str,
        text: &str,
        length: std::ops::RangeInclusive<usize>,
    ) -> Result<Arc<str>, String> {
        let legal = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit();
        if !length.contains(&text.len()) || !text.bytes().all(legal) {
            let (min, max) = (length.start(), length.end());
            return Err(format!(
                "{column} is {} where a code of {min} to {max} characters A-Z 0-9 is expected",
                shown(text)
            ));
        }
        if let Some(known) = self.0.get(text) {
            return Ok(known.clone());
        }
        let code: Arc<str> = text.into();
        self.0.insert(code.clone());
        Ok(code)
    }
}

/// The field, unless it says that nothing is known.
fn known(field: &str) -> Option<&str> {
    Some(field).filter(|field| *field != "NA" && !field.is_empty())
}

fn number<T>(column: &str, text: &str, min: T, max: T) -> Result<T, String>
where
    T: std::str::FromStr + PartialOrd + std::fmt::Display + Copy,
{
    let wrong =
        || format!("{column} is {} where a number from {min} to {max} is expected", shown(text));
    let number: T = text.parse().map_err(|_| wrong())?;
    if number < min || number > max { Err(wrong()) } else { Ok(number) }
}

/// A local time as `HMM`; midnight at the end of the day is 2400.
fn clock(column: &str, text: &str) -> Result<u16, String> {
    let time = number(column, text, 0, 2_400)?;
    if time % 100 < 60 {
        Ok(time)
    } else {
        Err(format!("{column} is {text}, which is no time of day"))
    }
}

/// At most a few characters of something wrong.
fn shown(text: &str) -> String {
    format!("{:?}", text.chars().take(24).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "year,month,day,dep_time,sched_dep_time,dep_delay,arr_delay,carrier,flight,tailnum,origin,dest,distance\n";
    const GOOD: &str = "2013,1,1,517,515,2,11,UA,1545,N14228,EWR,IAH,1400\n";

    fn read_text(text: &str) -> Result<Vec<Departure>, FileError> {
        read(text.as_bytes(), None)
    }

    #[test]
    fn reads_known_and_unknown_fields() {
        let cancelled = "2013,1,1,NA,1630,NA,NA,EV,4308,NA,EWR,RDU,416\r\n";
        let found = read_text(&format!("{HEADER}{GOOD}{cancelled}")).unwrap();
        assert_eq!((found.len(), found[0].dep_time, found[0].arr_delay), (2, Some(517), Some(11)));
        assert_eq!(found[0].tail.as_deref(), Some("N14228"));
        assert_eq!(
            (found[1].flew(), found[1].tail.as_ref(), found[1].distance),
            (false, None, 416)
        );
    }

    #[test]
    fn names_the_line_of_what_is_wrong() {
        for (row, says) in [
            ("2013,1,1,517,515,2,11,UA,1545,N14228,EWR\n", "11 fields where 13 are expected"),
            ("2013,1,1,517,515,2,11,UA,1545,N14228,EWR,IAH,14", "cut off"),
            ("2013,13,1,517,515,2,11,UA,1545,N14228,EWR,IAH,1400\n", "month is \"13\""),
            ("2013,1,1,575,515,2,11,UA,1545,N14228,EWR,IAH,1400\n", "no time of day"),
            ("2013,1,1,517,515,two,11,UA,1545,N14228,EWR,IAH,1400\n", "dep_delay is \"two\""),
            ("2013,1,1,517,515,2,11,UA,1545,N14228,ewr,IAH,1400\n", "origin is \"ewr\""),
            ("2013,1,1,517,515,2,11,UA,1545,N14228,EWR,EWR,1400\n", "both EWR"),
            ("2013,1,1,517,515,2,11,UA,1545,N14228,EWR,IAH,1400,\n", "14 fields"),
            ("\n", "1 fields"),
        ] {
            let error = read_text(&format!("{HEADER}{GOOD}{row}")).unwrap_err().to_string();
            assert!(error.starts_with("line 3: ") && error.contains(says), "{row}: {error}");
        }
        let error = read_text(GOOD).unwrap_err().to_string();
        assert!(error.starts_with("line 1: ") && error.contains("\"year\""), "{error}");
        let long = format!("{HEADER}{}", "x".repeat(5_000));
        assert!(read_text(&long).unwrap_err().to_string().contains("longer than"));
        for empty in ["", HEADER] {
            assert!(matches!(read_text(empty), Err(FileError::Empty)));
        }
    }

    #[test]
    fn reads_the_bundled_file_and_notices_that_it_is_cut() {
        let all = read(crate::BUNDLED, None).unwrap();
        assert_eq!((all.len(), all.iter().filter(|d| !d.flew()).count()), (336_776, 8_255));
        assert_eq!(read(crate::BUNDLED, Some(1_000)).unwrap(), all[..1_000]);
        let cut = &crate::BUNDLED[..crate::BUNDLED.len() / 2];
        assert!(matches!(read(cut, Some(1_000)), Err(FileError::Read { line: 2.., .. })));
    }
}

//! MessagePack and JSON, as operators read and write them.

use serde_json::Value as Json;

/// Deepest nesting of a value: as deep as Emmer writes any.
const DEPTH_MAX: usize = 128;

/// The payload of a state as JSON: bytes are numbers, and keys of maps are texts.
///
/// # Errors
/// It cannot be read, in these words.
pub fn of_state(format: &str, payload: &[u8]) -> Result<Json, String> {
    match format.split('/').next() {
        Some("msgpack") => of_msgpack(payload),
        // The head of a journal.
        Some("journal") => serde_json::from_slice(payload).map_err(|error| error.to_string()),
        _ => Err(format!("the format {format:?} is not known")),
    }
}

/// MessagePack as JSON.
///
/// # Errors
/// It cannot be read, in these words.
pub fn of_msgpack(payload: &[u8]) -> Result<Json, String> {
    let mut rest = payload;
    let value = rmpv::decode::read_value_with_max_depth(&mut rest, DEPTH_MAX)
        .map_err(|error| format!("the payload is not MessagePack: {error}"))?;
    if !rest.is_empty() {
        return Err(format!("{} bytes follow the value", rest.len()));
    }
    serde_json::to_value(value).map_err(|error| error.to_string())
}

/// JSON as MessagePack.
pub fn to_msgpack(json: &Json) -> Vec<u8> {
    let mut out = Vec::new();
    // Writing into memory does not fail.
    let _ = rmpv::encode::write_value(&mut out, &value_of(json));
    out
}

fn value_of(json: &Json) -> rmpv::Value {
    match json {
        Json::Null => rmpv::Value::Nil,
        Json::Bool(yes) => (*yes).into(),
        Json::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
            (Some(number), _, _) => number.into(),
            (_, Some(number), _) => number.into(),
            (_, _, number) => number.unwrap_or(f64::NAN).into(),
        },
        Json::String(text) => text.as_str().into(),
        Json::Array(all) => rmpv::Value::Array(all.iter().map(value_of).collect()),
        Json::Object(all) => {
            let pairs = all.iter().map(|(key, value)| (key.as_str().into(), value_of(value)));
            rmpv::Value::Map(pairs.collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_that_are_no_messagepack_are_reported() {
        // {"n": 1, 2: bytes}
        let good = [0x82, 0xa1, b'n', 1, 2, 0xc4, 1, 9];
        assert_eq!(of_state("msgpack/3", &good).unwrap().to_string(), r#"{"2":[9],"n":1}"#);
        for (format, payload) in
            [("msgpack", &good[..3]), ("msgpack", &[1, 2]), ("json", &[1]), ("journal", &[1])]
        {
            assert!(of_state(format, payload).is_err(), "{format} {payload:?}");
        }
        let deep = vec![0x91; 100_000];
        assert!(of_state("msgpack", &deep).is_err());
    }

    #[test]
    fn json_comes_back_as_it_was() {
        let json = r#"{"a":[1,-2,3.5,null,true],"b":{"c":"ü","d":18446744073709551615}}"#;
        let value: Json = serde_json::from_str(json).unwrap();
        assert_eq!(of_msgpack(&to_msgpack(&value)).unwrap().to_string(), json);
    }
}

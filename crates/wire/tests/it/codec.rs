//! User values: names, versions, hostile nesting, errors that say what and why.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // In helpers of tests, too.

use std::collections::BTreeMap;

use bytes::BytesMut;
use emmer_wire::codec::{self, CODEC_MESSAGE_PACK, VALUE_DEPTH_MAX};
use emmer_wire::{Codec, CodecError, MessagePack};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};

fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    let mut out = BytesMut::new();
    codec::encode_into(&mut out, value).unwrap();
    out.to_vec()
}

fn through<A: Serialize, B: DeserializeOwned>(value: &A) -> Result<B, CodecError> {
    codec::decode(&encode(value))
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Shape {
    Dot,
    Circle(f64),
    Box { width: u32, height: Option<u32> },
    Pair(i8, String),
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct AddV1 {
    n: u64,
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct AddV2 {
    n: u64,
    #[serde(default)]
    note: Option<String>,
}

#[derive(Serialize, Deserialize, Debug)]
enum Nested {
    End,
    More(Box<Self>),
}

#[test]
fn values_of_every_shape_round_trip() {
    let shapes = vec![
        Shape::Dot,
        Shape::Circle(-0.5),
        Shape::Box { width: 7, height: None },
        Shape::Box { width: u32::MAX, height: Some(0) },
        Shape::Pair(-128, "ü".to_owned()),
    ];
    assert_eq!(through(&shapes), Ok(shapes));
    let map: BTreeMap<u16, Result<(), String>> = [(1, Ok(())), (2, Err("no".to_owned()))].into();
    assert_eq!(through(&map), Ok(map));
    assert_eq!(through(&(u64::MAX, i64::MIN, true, ())), Ok((u64::MAX, i64::MIN, true, ())));
    let bytes: Vec<u8> = (0..=255).collect();
    assert_eq!(through(&bytes), Ok(bytes));
    let silo: emmer_core::SiloAddress = "[::1]:5:6".parse().unwrap();
    assert_eq!(through(&silo), Ok(silo));
    assert_eq!(
        (MessagePack::NUMBER, MessagePack::NAME.contains("named")),
        (CODEC_MESSAGE_PACK, true)
    );
}

#[test]
fn fields_are_named_and_may_come_and_go() {
    assert_eq!(encode(&AddV1 { n: 5 }), [0x81, 0xa1, b'n', 5]);
    assert_eq!(through(&AddV1 { n: 5 }), Ok(AddV2 { n: 5, note: None }));
    assert_eq!(through(&AddV2 { n: 5, note: Some("x".to_owned()) }), Ok(AddV1 { n: 5 }));
}

#[test]
fn errors_name_the_type_and_the_reason() {
    let error = codec::decode::<AddV1>(&encode(&"text")).unwrap_err().to_string();
    assert!(error.contains("AddV1") && error.contains("string"), "{error}");
    let error = codec::decode::<AddV1>(&[0x80]).unwrap_err().to_string();
    assert!(error.contains("missing field `n`"), "{error}");
    let long = format!("V{}", "ä".repeat(100_000));
    let error = codec::decode::<Shape>(&encode(&long)).unwrap_err();
    assert!(error.to_string().len() < 400 && error.to_string().contains("Shape"), "{error}");
}

#[test]
fn a_value_fills_its_bytes_exactly() {
    let mut bytes = encode(&AddV1 { n: 5 });
    for end in 0..bytes.len() {
        assert!(matches!(codec::decode::<AddV1>(&bytes[..end]), Err(CodecError::Truncated { .. })));
    }
    bytes.extend([1, 2]);
    assert!(matches!(codec::decode::<AddV1>(&bytes), Err(CodecError::Trailing { bytes: 2, .. })));
}

#[test]
fn a_failed_encoding_leaves_the_buffer_as_it_was() {
    struct Half;
    impl Serialize for Half {
        fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
            let _ = s;
            Err(serde::ser::Error::custom("only half"))
        }
    }
    let mut out = BytesMut::from(&b"before"[..]);
    let error =
        codec::encode_into(&mut out, &("a long start of a value", Half)).unwrap_err().to_string();
    assert!(error.contains("Half") && error.contains("only half"), "{error}");
    assert_eq!(&out[..], b"before");
}

/// Recursion through enum variants is where serde itself counts nothing. A small stack makes an
/// overflow certain if the limit were not kept.
#[test]
fn hostile_nesting_is_refused_before_it_reaches_the_stack() {
    let nested = |depth: usize| {
        let mut bytes = b"\x81\xa4More".repeat(depth);
        bytes.extend(b"\xa3End");
        bytes
    };
    let small_stack = std::thread::Builder::new().stack_size(512 << 10);
    let test = small_stack.spawn(move || {
        assert!(codec::decode::<Nested>(&nested(VALUE_DEPTH_MAX)).is_ok());
        for depth in [VALUE_DEPTH_MAX + 1, 1_000_000] {
            let error = codec::decode::<Nested>(&nested(depth)).unwrap_err();
            assert!(matches!(error, CodecError::TooDeep { .. }), "{error}");
        }
        // Also in what the type does not know and skips.
        let skipped = [&b"\x82\xa1n\x05\xa1x"[..], &[0x91; 500_000], &[0xc0]].concat();
        assert!(matches!(codec::decode::<AddV1>(&skipped), Err(CodecError::TooDeep { .. })));
    });
    test.unwrap().join().unwrap();
}

#[test]
fn announced_sizes_are_not_believed() {
    for huge in
        [&b"\xdd\xff\xff\xff\xff\x00"[..], b"\xdf\xff\xff\xff\xff\x00", b"\xdb\xff\xff\xff\xff\x00"]
    {
        assert!(matches!(codec::decode::<Vec<u64>>(huge), Err(CodecError::Truncated { .. })));
    }
}

/// A list that nests as deep as it is long.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Deep(Vec<Self>);

fn deep(levels: usize) -> Deep {
    (1..levels).fold(Deep::default(), |inner, _| Deep(vec![inner]))
}

/// Lets go of it level by level: dropping it at once would overflow the stack.
fn let_go(mut value: Deep) {
    while let Some(inner) = value.0.pop() {
        value = inner;
    }
}

#[test]
fn what_is_written_can_be_read_again_and_nothing_overflows_the_stack() {
    // The innermost list is empty and nests nothing.
    for levels in 1..=VALUE_DEPTH_MAX + 1 {
        assert_eq!(through::<_, Deep>(&deep(levels)).unwrap(), deep(levels), "{levels} levels");
    }
    let mut out = BytesMut::from(&b"before"[..]);
    for levels in (VALUE_DEPTH_MAX + 2..300).chain([1_000]) {
        let refused = codec::encode_into(&mut out, &deep(levels));
        assert!(matches!(refused, Err(CodecError::TooDeep { .. })), "{levels} levels: {refused:?}");
        assert_eq!(&out[..], b"before");
    }
    let endless = deep(1_000_000);
    let refused = codec::encode_into(&mut out, &endless);
    assert!(matches!(refused, Err(CodecError::TooDeep { .. })), "{refused:?}");
    assert_eq!(&out[..], b"before");
    let_go(endless);
}

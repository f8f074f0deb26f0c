//! Headers that must be refused, and where exactly the limits are.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // In helpers of tests, too.

use crate::common;
use crate::common::{Message, grain, samples};
use bytes::{Bytes, BytesMut};
use emmer_core::limits::{CALL_CHAIN_MAX, GRAIN_KEY_BYTES_MAX};
use emmer_wire::*;

/// The payload of the sample of this name.
fn payload(name: &str) -> Vec<u8> {
    let (_, message) = samples().into_iter().find(|(n, _)| *n == name).unwrap();
    message.bytes()[FRAME_PREFIX_BYTES + 1..].to_vec()
}

fn request_with(target_key: &str, links: usize) -> RequestHeader {
    let link = ChainLink { grain: grain(1, u64::MAX), exclusive: true, free: false, turn: 7 };
    RequestHeader {
        correlation: 1,
        target: grain(1, target_key),
        method: 2,
        flags: RequestFlags::NONE,
        deadline_ms: 0,
        forwards: 0,
        expect_view: 0,
        chain: CallChain::new(&vec![link; links]).unwrap(),
        trace: None,
    }
}

fn encoded(header: &RequestHeader) -> Vec<u8> {
    let mut out = BytesMut::new();
    encode_request(&mut out, header, |_| Ok::<(), ()>(())).unwrap();
    out[FRAME_PREFIX_BYTES + 1..].to_vec()
}

fn refused(payload: Vec<u8>) -> HeaderError {
    decode_request(Bytes::from(payload)).unwrap_err()
}

#[test]
fn versions_are_negotiated_to_the_highest_common() {
    assert_eq!(negotiate(1, 1), Some(1));
    assert_eq!(negotiate(0, u16::MAX), Some(PROTOCOL_VERSION));
    for (min, max) in
        [(PROTOCOL_VERSION + 1, u16::MAX), (0, PROTOCOL_VERSION_MIN - 1), (1, 0), (2, 1)]
    {
        assert_eq!(negotiate(min, max), None, "{min} to {max}");
    }
}

#[test]
fn a_hello_of_another_age_is_a_version_mismatch_whatever_follows() {
    let mut hello = payload("hello-silo");
    hello[4..8].copy_from_slice(&[7, 0, 9, 0]);
    for end in 8..hello.len() {
        let error = Hello::decode(&hello[..end]).unwrap_err();
        assert_eq!(error, HeaderError::Version { min: 7, max: 9 });
        assert_eq!(error.refuse_code(), RefuseCode::VersionMismatch);
    }
    let mut welcome = payload("welcome");
    welcome[0] = 2;
    assert_eq!(Welcome::decode(&welcome), Err(HeaderError::Version { min: 2, max: 2 }));
}

#[test]
fn handshakes_leave_room_for_later_fields() {
    for (name, message) in samples() {
        let mut later = payload(name);
        match &message {
            Message::Hello(Hello { token: None, seal: None, .. }) => later.extend([0, 0, 0]),
            Message::Hello(Hello { seal: None, .. })
            | Message::Welcome(Welcome { seal: None, .. }) => {
                later.push(0);
            }
            _ => {}
        }
        later.extend_from_slice(b"more");
        match message {
            Message::Hello(hello) => assert_eq!(Hello::decode(&later), Ok(hello)),
            Message::Welcome(welcome) => assert_eq!(Welcome::decode(&later), Ok(welcome)),
            Message::Refuse(refuse) => assert_eq!(Refuse::decode(&later), Ok(refuse)),
            _ => {}
        }
    }
    let credit = [&payload("credit")[..], b"more"].concat();
    assert_eq!(decode_credit(&credit), Err(HeaderError::Trailing(4)));
}

#[test]
fn a_hello_with_an_illegal_field_is_refused() {
    // Offsets in the vector "hello-silo": 8 the length of the cluster id, 9 to 12 the id, 13 the
    // peer.
    for (at, value) in [(8, 0), (8, 255), (9, b'/'), (9, 0xff), (13, 0), (13, 6), (40, 2), (67, 0)]
    {
        let mut hello = payload("hello-silo");
        hello[at] = value;
        let error = Hello::decode(&hello).unwrap_err();
        assert_eq!(error.refuse_code(), RefuseCode::BadHello, "byte {at} = {value}: {error}");
    }
}

#[test]
fn keys_are_limited_to_the_byte() {
    let longest = "k".repeat(GRAIN_KEY_BYTES_MAX);
    let header = request_with(&longest, 0);
    assert_eq!(decode_request(Bytes::from(encoded(&header))).unwrap(), (header, Bytes::new()));
    // One more than the limit: 1025 is 81 08.
    let mut over = encoded(&request_with(&longest, 0));
    assert_eq!(over[32..34], [0x80, 0x08]);
    over[32] = 0x81;
    over.push(b'k');
    assert_eq!(refused(over), HeaderError::KeyTooLong(GRAIN_KEY_BYTES_MAX as u64 + 1));
    let key_too_long = RequestHeader { target: grain(1, "k".repeat(1025)), ..request_with("k", 0) };
    assert_eq!(key_too_long.check(), Err(HeaderError::KeyTooLong(1025)));
    let mut not_text = encoded(&request_with("k", 0));
    not_text[33] = 0xff;
    assert!(matches!(refused(not_text), HeaderError::Text(_)));
}

#[test]
fn chains_are_limited_to_the_link() {
    let longest = request_with("k", CALL_CHAIN_MAX);
    assert_eq!(longest.chain.push(longest.chain[0].clone()), Err(ChainTooLong));
    assert_eq!(decode_request(Bytes::from(encoded(&longest))).unwrap().0, longest);
    let mut over = encoded(&longest);
    over[30] = CALL_CHAIN_MAX as u8 + 1;
    assert_eq!(refused(over), HeaderError::ChainTooLong(CALL_CHAIN_MAX as u8 + 1));
    // Links that are announced and not there.
    let mut short = encoded(&request_with("k", 0));
    short[30] = CALL_CHAIN_MAX as u8;
    assert!(matches!(refused(short), HeaderError::Truncated(_)));
}

#[test]
fn a_trace_context_is_whole_and_has_ids() {
    let trace = TraceContext::new([1; 16], [2; 8], 1);
    let traced = RequestHeader { trace, ..request_with("k", 1) };
    let bytes = encoded(&traced);
    assert_eq!(decode_request(Bytes::from(bytes.clone())).unwrap().0, traced);
    let mut short = bytes.clone();
    short.pop();
    assert!(matches!(refused(short), HeaderError::Truncated(_)));
    for id in [bytes.len() - 25..bytes.len() - 9, bytes.len() - 9..bytes.len() - 1] {
        let mut zeros = bytes.clone();
        zeros[id].fill(0);
        assert!(matches!(refused(zeros), HeaderError::Value { .. }));
    }
    assert!(TraceContext::new([0; 16], [2; 8], 1).is_none());
    assert!(TraceContext::new([1; 16], [0; 8], 1).is_none());
}

#[test]
fn a_request_context_is_whole_ordered_and_bounded() {
    let context = RequestContext::EMPTY.with("a", "1").unwrap().with("b", "2").unwrap();
    let plain = request_with("k", 1);
    let with = |context| RequestHeader {
        chain: plain.chain.clone().with_context(context),
        ..plain.clone()
    };
    let bytes = encoded(&with(context));
    let read = decode_request(Bytes::from(bytes.clone())).unwrap().0;
    assert_eq!(read.chain.context().iter().collect::<Vec<_>>(), [("a", "1"), ("b", "2")]);
    assert_eq!(read.chain.len(), 1);
    let at = bytes.len() - 11;
    assert_eq!(bytes[at..], [2, 1, b'a', 1, 0, b'1', 1, b'b', 1, 0, b'2']);
    let mut short = bytes.clone();
    short.pop();
    assert!(matches!(refused(short), HeaderError::Truncated(_)));
    // No entry, two with one key, a key without a letter, an invalid text.
    for (place, byte) in [(at, 0), (at + 7, b'a'), (at + 5, 0xff), (at + 2, 0xff)] {
        let mut odd = bytes.clone();
        odd[place] = byte;
        assert!(matches!(refused(odd), HeaderError::Value { .. }), "{place}");
    }
    let mut nameless = bytes[..at].to_vec();
    nameless.extend([1, 0, 1, 0, b'x']);
    assert!(matches!(refused(nameless), HeaderError::Value { .. }));
    let mut many = bytes[..at].to_vec();
    many.push(33);
    for n in 0..33_u8 {
        many.extend([1, b'A' + n, 0, 0]);
    }
    assert!(matches!(refused(many), HeaderError::Value { .. }));
    let mut large = bytes[..at].to_vec();
    large.extend([1, 1, b'a', 0, 16]);
    large.extend([b'x'; 4_096]);
    assert!(matches!(refused(large), HeaderError::Value { .. }));
}

#[test]
fn a_cancel_frame_is_filled_and_then_another_one_begun() {
    let (mut out, mut bytes) = (BytesMut::new(), 0);
    for call in 1..=u64::try_from(CANCELS_MAX).unwrap() + 1 {
        bytes = extend_cancel(&mut out, bytes, call);
    }
    let first = decode_frame(&mut out, 4_096).unwrap().unwrap();
    assert_eq!(decode_cancel(&first.payload).unwrap().len(), CANCELS_MAX);
    let second = decode_frame(&mut out, 4_096).unwrap().unwrap();
    assert_eq!(decode_cancel(&second.payload), Ok(vec![u64::try_from(CANCELS_MAX).unwrap() + 1]));
    assert!(out.is_empty());
    for broken in [&[0; 8][..], &[1; 7], &[], &vec![1; 8 * CANCELS_MAX + 8]] {
        assert!(decode_cancel(broken).is_err(), "{} bytes", broken.len());
    }
}

#[test]
fn chains_grow_at_the_end() {
    let link = |n: u64| ChainLink { grain: grain(1, n), exclusive: n == 1, free: false, turn: n };
    let chain = CallChain::EMPTY.push(link(1)).unwrap().push(link(2)).unwrap();
    assert_eq!(&chain[..], [link(1), link(2)]);
    assert_eq!(CallChain::new(&[link(1), link(2)]), Ok(chain));
    assert_eq!(CallChain::new(&vec![link(1); CALL_CHAIN_MAX + 1]), Err(ChainTooLong));
}

#[test]
fn requests_with_meaningless_fields_are_refused() {
    // 28 the flags, 31 the kind of key.
    for (at, value) in [(28, 0x20), (28, 0x80), (31, 0), (31, 5), (31, 0x84)] {
        let mut request = encoded(&request_with("k", 0));
        request[at] = value;
        let error = refused(request);
        assert!(matches!(error, HeaderError::Value { .. }), "byte {at} = {value}: {error}");
    }
    let mut nobody_waits = encoded(&request_with("k", 0));
    nobody_waits[0] = 0;
    assert!(matches!(refused(nobody_waits), HeaderError::Value { .. }));
}

#[test]
fn responses_with_meaningless_fields_are_refused() {
    // 0 the correlation (7), 8 the status, 9 the location.
    for (at, value) in [(0, 0), (8, 15), (8, 255), (9, 2)] {
        let mut response = payload("response");
        response[at] = value;
        let error = decode_response(Bytes::from(response)).unwrap_err();
        assert!(matches!(error, HeaderError::Value { .. }), "byte {at} = {value}: {error}");
    }
    assert!(matches!(decode_failure(&[2]), Err(HeaderError::Value { .. })));
    assert!(matches!(decode_failure(&[1, 0xff]), Err(HeaderError::Text(_))));
    assert!(matches!(decode_failure(&[]), Err(HeaderError::Truncated(_))));
    let too_long = [&[1][..], &vec![b'x'; TEXT_BYTES_MAX + 1]].concat();
    assert_eq!(decode_failure(&too_long), Err(HeaderError::TextTooLong(TEXT_BYTES_MAX + 1)));
}

#[test]
fn long_details_are_cut_between_characters() {
    let mut out = BytesMut::new();
    let detail = format!("x{}", "é".repeat(TEXT_BYTES_MAX));
    let appended = encode_failure(&mut out, 3, FailureCode::Panicked, true, &detail);
    assert_eq!(appended, out.len());
    let Ok(Message::Failure(header, failure)) = common::decode_whole(&out) else {
        panic!("a failure")
    };
    assert_eq!(
        (header.correlation, header.status),
        (3, ResponseStatus::Failed(FailureCode::Panicked))
    );
    assert!(failure.maybe_executed && detail.starts_with(&failure.detail));
    assert_eq!(failure.detail.len(), TEXT_BYTES_MAX - 1);
}

#[test]
fn bodies_and_payloads_are_not_copied() {
    let is_request = |message: &&(_, Message)| matches!(message.1, Message::Request(..));
    let mut input = samples().iter().find(is_request).unwrap().1.bytes();
    let memory = input.as_ptr() as usize..input.as_ptr() as usize + input.len();
    let frame = decode_frame(&mut input, 4096).unwrap().unwrap();
    let (_, body) = decode_request(frame.payload).unwrap();
    assert!(!body.is_empty() && memory.contains(&(body.as_ptr() as usize)));
}

#[test]
fn a_system_channel_is_needed() {
    assert!(matches!(decode_system_channel(&Bytes::new()), Err(HeaderError::Truncated(_))));
    assert!(matches!(
        decode_system_channel(&Bytes::from_static(&[0, 1])),
        Err(HeaderError::Value { .. })
    ));
    let later = Bytes::from_static(&[200, 0xc0]);
    assert_eq!(decode_system_channel(&later), Ok((200, Bytes::from_static(&[0xc0]))));
}
